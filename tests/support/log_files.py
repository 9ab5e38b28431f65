"""The files of partitions, held against what their readers saw."""

from collections.abc import Iterable, Mapping
from pathlib import Path

from pyrklog.plane.offline import dump_file
from tests.support.ledger import Ledger, Place

NO_PRODUCER_ID = -1


def check_files(log_dir: Path, places: Iterable[Place], ledger: Ledger) -> None:
    """Every batch is whole, offsets and each producer's sequences have no gap and no repetition,
    each record is the one that a reader found there; what nobody has seen yet may come behind."""
    ends = ledger.ends()
    for place in places:
        folder = log_dir / f"{place[0]}-{place[1]}"
        end = check_partition(folder, place, ledger)
        if end < ends.get(place, 0):
            ledger.note(f"{folder} ends at {end}; up to {ends[place]} is acknowledged or was read")


def check_partition(folder: Path, place: Place, ledger: Ledger) -> int:
    """The same for one; its log end offset."""
    segments = sorted(folder.glob("*.log"))
    assert segments, f"{folder} has no segment"
    next_offset = int(segments[0].stem)
    sequences: dict[int, int] = {}
    seen_up_to = ledger.seen_up_to(place)
    for path in segments:
        if int(path.stem) != next_offset:
            ledger.note(f"{path} follows {next_offset - 1}")
        for row in dump_file(str(path), records=True, verify=True):
            match row["kind"]:
                case "record":
                    offset, text = row["offset"], row["value"]
                    assert isinstance(offset, int)
                    assert isinstance(text, bytes)
                    if offset != next_offset:
                        ledger.note(f"{path}: offset {offset} follows {next_offset - 1}")
                    next_offset = offset + 1
                    if offset < seen_up_to:
                        ledger.compare(place, offset, text)
                case "batch":
                    if not row["valid"]:
                        ledger.note(f"{path}: a batch at {row['position']} has a wrong checksum")
                    _check_sequence(path, row, sequences, ledger)
                case "damage":
                    ledger.note(f"{path}: {row}")
    return next_offset


def _check_sequence(
    path: Path, row: Mapping[str, object], sequences: dict[int, int], ledger: Ledger
) -> None:
    producer, first, last = row["producer_id"], row["base_sequence"], row["last_sequence"]
    assert isinstance(producer, int)
    assert isinstance(first, int)
    assert isinstance(last, int)
    if producer == NO_PRODUCER_ID:
        return
    before = sequences.get(producer)
    # The first segment may have been deleted.
    if before is not None and first != before + 1:
        ledger.note(f"{path}: sequence {first} of producer {producer} follows {before}")
    sequences[producer] = last
