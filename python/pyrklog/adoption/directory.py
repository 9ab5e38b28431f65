"""Kafka's files that the plane does not read; read once, at the adoption."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path

from pyrklog.adoption.batches import BatchError, read_values
from pyrklog.adoption.kraft import KraftMetadata, replay
from pyrklog.base.problems import Problem
from pyrklog.cluster.image import KRAFT_TOPIC
from pyrklog.errors import ConfigError
from pyrklog.plane.offline import dump_file
from pyrklog.plane.seam import FoundPartition
from pyrklog.protocol.primitives import DecodeError

METADATA_FOLDER = f"{KRAFT_TOPIC}-0"
BOOTSTRAP = "bootstrap.checkpoint"
EPOCHS = "leader-epoch-checkpoint"
COMPACTED = "cleaner-offset-checkpoint"
"""In each log directory: a version, a count, then TOPIC PARTITION OFFSET of each log that was
compacted."""
_SNAPSHOT = re.compile(r"(\d{20})-(\d{10})\.checkpoint")
_SEGMENT = re.compile(r"(\d{20})\.log")


def read_kraft(log_dirs: Sequence[Path]) -> KraftMetadata | None:
    """The cluster's KRaft metadata, if any. Raises :class:`ConfigError`."""
    for folder in (path / METADATA_FOLDER for path in log_dirs):
        if folder.is_dir():
            return _read_folder(folder)
    for path in (path / BOOTSTRAP for path in log_dirs):
        if path.is_file():
            state = KraftMetadata()
            _replay(path, 0, state, torn_end=False)
            # Our export, unused by Kafka; Kafka's own file names no topics.
            state.is_own_export = True
            return state if state.topics else None
    return None


def _read_folder(folder: Path) -> KraftMetadata:
    state = KraftMetadata()
    names = sorted(path.name for path in folder.iterdir())
    snapshots = [name for name in names if _SNAPSHOT.fullmatch(name)]
    segments = [name for name in names if _SEGMENT.fullmatch(name)]
    start = 0
    if snapshots:
        start = int(snapshots[-1][:20])
        _replay(folder / snapshots[-1], 0, state, torn_end=False)
    bases = [int(name[:20]) for name in segments]
    if segments and bases[0] > start:
        raise _unreadable(folder, f"its log begins at offset {bases[0]}, behind offset {start}")
    for number, name in enumerate(segments):
        is_last = number + 1 == len(segments)
        if is_last or bases[number + 1] > start:
            _replay(folder / name, start, state, torn_end=is_last)
    return state


def _replay(path: Path, start_offset: int, state: KraftMetadata, *, torn_end: bool) -> None:
    try:
        values = read_values(path.read_bytes(), start_offset, torn_end=torn_end)
        replay((value.data for value in values), state)
    except (BatchError, DecodeError) as error:
        raise _unreadable(path, str(error)) from None
    except OSError as error:
        raise _unreadable(path, error.strerror or str(error)) from None


def _unreadable(path: Path, why: str) -> ConfigError:
    return ConfigError(
        Problem.HANDOVER,
        f"Kafka's metadata cannot be read ({path}: {why}).",
        fix=f"repair it, or move {METADATA_FOLDER} out of the log directory to adopt the topics "
        "without their options",
    )


def folder_of(item: FoundPartition) -> Path:
    return Path(item.log_dir, f"{item.topic}-{item.partition}")


def newest_epochs(found: Iterable[FoundPartition]) -> Mapping[tuple[str, int], int]:
    """The last leader epoch in each folder. An unreadable file counts as none: the plane rebuilds
    it."""
    newest = {}
    for item in found:
        try:
            lines = (folder_of(item) / EPOCHS).read_text(encoding="utf-8").splitlines()
            newest[item.topic, item.partition] = max(int(line.split()[0]) for line in lines[2:])
        except (OSError, ValueError, IndexError):
            continue
    return newest


def compacted_topics(log_dirs: Iterable[Path]) -> frozenset[str]:
    """Topics that Kafka has compacted. An unreadable file names none."""
    found: set[str] = set()
    for path in log_dirs:
        try:
            lines = (path / COMPACTED).read_text(encoding="utf-8").splitlines()[2:]
        except (OSError, ValueError):
            continue
        found.update(line.split()[0] for line in lines if line.strip())
    return frozenset(found)


def largest_producer_id(found: Iterable[FoundPartition]) -> int:
    """The largest in the folders, -1 for none: from each newest snapshot and the batch headers
    after it."""
    return max((id for item in found for id in _producer_ids(folder_of(item))), default=-1)


def _producer_ids(folder: Path) -> Iterator[int]:
    snapshots = sorted(folder.glob("*.snapshot"))
    covered = 0
    if snapshots and snapshots[-1].stem.isdecimal():
        covered = int(snapshots[-1].stem)
        yield from _ids_in(snapshots[-1])
    segments = sorted(path for path in folder.glob("*.log") if path.stem.isdecimal())
    for number, segment in enumerate(segments):
        is_last = number + 1 == len(segments)
        if is_last or int(segments[number + 1].stem) > covered:
            yield from _ids_in(segment)


def _ids_in(path: Path) -> Iterator[int]:
    try:
        for row in dump_file(str(path), records=False, verify=False):
            producer_id = row.get("producer_id")
            if isinstance(producer_id, int):
                yield producer_id
    except (OSError, ValueError):
        return  # damaged: recovery will report it; unreadable ids cannot collide
