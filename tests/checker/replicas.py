"""The log directories of stopped brokers, held against each other: replicas are equal batch by
batch and record by record."""

from __future__ import annotations

import hashlib
import itertools
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

from pyrklog.groups.partitioner import OFFSETS_TOPIC
from pyrklog.plane.offline import dump_file

_COMPARED = (
    "base_offset",
    "last_offset",
    "leader_epoch",
    "producer_id",
    "producer_epoch",
    "base_sequence",
    "crc",
)


class Batch(NamedTuple):
    """``digest`` is that of everything that replicas share: header and records."""

    first: int
    last: int
    leader_epoch: int
    digest: str


def compare(folders: Mapping[int, Path]) -> list[str]:
    """What is wrong with the replicas in these log directories, by broker: damage, and where two
    are not the same."""
    partitions = sorted({path.parent.name for folder in folders.values() for path in _logs(folder)})
    found = []
    for partition in partitions:
        replicas: dict[int, list[Batch]] = {}
        for number, folder in folders.items():
            if (folder / partition).is_dir():
                replicas[number], damage = read_partition(folder / partition)
                found += [f"{partition} on broker {number}: {text}" for text in damage]
        # The last members of a group may have left while the brokers ended one by one.
        is_open = partition.startswith(f"{OFFSETS_TOPIC}-")
        found += [f"{partition}: {text}" for text in differences(replicas, is_open=is_open)]
    return found


def _logs(folder: Path) -> Iterator[Path]:
    return folder.glob("*/*.log")


def read_partition(folder: Path) -> tuple[list[Batch], list[str]]:
    """The batches of a replica in order, and what is damaged."""
    batches: list[Batch] = []
    damage: list[str] = []
    for path in sorted(folder.glob("*.log")):
        digest = hashlib.sha256()
        for row in dump_file(str(path), records=True, verify=True):
            match row["kind"]:
                case "batch":
                    digest = hashlib.sha256(repr([row[name] for name in _COMPARED]).encode())
                    batches.append(_batch(row, digest.hexdigest()))
                    if not row["valid"]:
                        damage.append(f"{path.name}: wrong checksum at {row['position']}")
                case "record":
                    content = (row["offset"], row["timestamp_ms"], row["key"], row["value"])
                    digest.update(repr(content).encode())
                    batches[-1] = batches[-1]._replace(digest=digest.hexdigest())
                case "damage":
                    damage.append(f"{path.name}: {row['message']}")
    return batches, damage


def epochs_begun(folder: Path, topic: str) -> list[str]:
    """Where in a broker's log directory the producers of a topic went on in another epoch: there a
    client has given up its sequences, and may have sent again what was written."""
    found = []
    for partition in sorted(folder.glob(f"{topic}-*")):
        epochs: dict[object, object] = {}
        for path in sorted(partition.glob("*.log")):
            for row in dump_file(str(path), records=False, verify=False):
                producer, epoch = row.get("producer_id", -1), row.get("producer_epoch")
                if row["kind"] == "batch" and producer != -1:
                    if epochs.setdefault(producer, epoch) != epoch:
                        where = f"{partition.name} at {row['base_offset']}"
                        found.append(f"producer {producer} begins epoch {epoch} in {where}")
                    epochs[producer] = epoch
    return found


def _batch(row: Mapping[str, object], digest: str) -> Batch:
    first, last, epoch = row["base_offset"], row["last_offset"], row["leader_epoch"]
    assert isinstance(first, int)
    assert isinstance(last, int)
    assert isinstance(epoch, int)
    return Batch(first, last, epoch, digest)


def differences(replicas: Mapping[int, Sequence[Batch]], *, is_open: bool) -> list[str]:
    """Where replicas differ. Logs begin where retention left them; where ``is_open``, one may end
    before another."""
    found = []
    numbers = sorted(replicas)
    for number in numbers:
        found += [f"broker {number}: {text}" for text in _gaps(replicas[number])]
    for number in numbers[1:]:
        text = _difference(replicas[numbers[0]], replicas[number], is_open)
        if text is not None:
            found.append(f"brokers {numbers[0]} and {number}: {text}")
    return found


def _gaps(batches: Sequence[Batch]) -> Iterator[str]:
    for before, batch in itertools.pairwise(batches):
        if batch.first != before.last + 1:
            yield f"offset {batch.first} follows {before.last}"
        if batch.leader_epoch < before.leader_epoch:
            yield f"epoch {batch.leader_epoch} at {batch.first} follows {before.leader_epoch}"


def _difference(one: Sequence[Batch], other: Sequence[Batch], is_open: bool) -> str | None:
    if not one or not other:
        return None if is_open or (not one and not other) else "one is empty"
    start = max(one[0].first, other[0].first)
    ours = [batch for batch in one if batch.last >= start]
    theirs = [batch for batch in other if batch.last >= start]
    for left, right in zip(ours, theirs, strict=False):
        if left != right:
            return f"{_show(left)} is {_show(right)}"
    if len(ours) != len(theirs) and not is_open:
        return f"one ends at {one[-1].last}, the other at {other[-1].last}"
    return None


def _show(batch: Batch) -> str:
    return f"{batch.first}..{batch.last} of epoch {batch.leader_epoch} ({batch.digest[:8]})"
