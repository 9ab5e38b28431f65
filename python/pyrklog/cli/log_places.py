"""Where ``pyrklog log dump`` finds a partition, and how it reads one whose broker runs."""

import os
import re
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

from pyrklog.base.problems import Problem
from pyrklog.cli.failures import CliError

Row = dict[str, Any]
Rows = Callable[..., Iterator[Row]]

LOOKS = 3
"""Damage in what a broker is writing has to be there so often."""
LOOK_AGAIN_S = 0.2
_PLACE = re.compile(r"(?P<topic>[A-Za-z0-9._-]+):(?P<partition>[0-9]+)", re.ASCII)
_SEGMENT = re.compile(r"[0-9]{20}\.")


def found_paths(
    texts: Sequence[str],
    data: Path | None,
    config: Path | None,
    overrides: Sequence[str],
    dev: str | None = None,
) -> tuple[list[Path], list[str]]:
    """Paths as they are, and the folders of partitions; notes about other replicas of them.

    ``dev`` is the cluster of ``pyrklog dev`` whose brokers are looked at first, unless one is
    named. Raises :class:`CliError`.
    """
    log_dirs: list[Path] | None = None
    found, notes = list[Path](), list[str]()
    is_named = data is not None or config is not None or bool(overrides)
    for text in texts:
        place = None if Path(text).exists() else _PLACE.fullmatch(text)
        if place is None:
            found.append(Path(text))
            continue
        if log_dirs is None:
            of_dev = [] if dev is None or is_named else _dev_log_dirs(dev)
            log_dirs = [*of_dev, *_log_dirs(data, config, overrides)]
        folders = _folders(log_dirs, place["topic"], int(place["partition"]))
        found.append(folders[0])
        if len(folders) > 1:
            others = ", ".join(map(str, folders[1:]))
            notes.append(f"this is {folders[0]}; {text} is also {others}")
    if log_dirs is None and is_named:
        what = "--data, --config and --set say where TOPIC:P is, and only paths are given"
        raise CliError(Problem.ARGUMENTS_DISAGREE, what, "name a partition, such as orders:0")
    return found, notes


def _dev_log_dirs(name: str) -> list[Path]:
    """Of all brokers of a cluster of ``pyrklog dev``; none where it was purged."""
    from pyrklog.dev.brokers import CONFIG_FILE
    from pyrklog.dev.errors import DevError
    from pyrklog.dev.state import Place, dev_root

    place = Place(dev_root(os.environ), name)
    try:
        cluster = place.load()
    except DevError:
        return []
    files = (place.node_folder(cluster, node) / CONFIG_FILE for node in cluster.brokers)
    return [one for file in files if file.exists() for one in _log_dirs(None, file, ())]


def _log_dirs(data: Path | None, config: Path | None, overrides: Sequence[str]) -> list[Path]:
    from pyrklog.config.load import load_config
    from pyrklog.errors import StartError

    flags = {"pyrklog.data.dir": str(data)} if data is not None else {}
    for one in (data, config):
        if one is not None and not one.exists():
            fix = "name the directories as for `pyrklog serve`, with --data or --config"
            raise CliError(Problem.FILE_NOT_FOUND, f"{one} does not exist", fix)
    try:
        settings = load_config(file=config, overrides=overrides, environ=os.environ, flags=flags)
    except StartError as error:
        raise CliError(Problem.ARGUMENT_VALUE, error.what.rstrip("."), error.fix) from None
    return list(settings.log_dirs)


def _folders(log_dirs: Sequence[Path], topic: str, partition: int) -> list[Path]:
    name = f"{topic}-{partition}"
    found = [one / name for one in dict.fromkeys(log_dirs) if (one / name).is_dir()]
    if found:
        return found
    looked = ", ".join(map(str, log_dirs))
    what = f"there is no partition {topic}:{partition} in {looked}"
    fix = "name the broker's directory with --data, or its options with --config or --set"
    raise CliError(Problem.NO_DATA, what, fix)


class LivePartition:
    """The files of the last segment of a partition, while its broker appends to them.

    Nothing is locked or written. A batch that is half in the file, or an index that is ahead of
    what was read of its segment, looks like damage; on the next look it is gone.
    """

    def __init__(self, path: Path) -> None:
        from pyrklog.base.diagnosis import lock_holder

        self._path = path
        self._is_last = _is_last(path)
        self.is_live = self._is_last and lock_holder(path.parent.parent / ".lock") is not None

    def settled(self, rows: Rows, first: Iterator[Row], *, verify: bool) -> Iterator[Row]:
        """The rows; damage of a running broker's last segment at the end, if it stays."""
        if not self.is_live:
            yield from first
            return
        doubted = list[Row]()
        for row in first:
            if row["kind"] == "damage":
                doubted.append(row)
            else:
                yield row
        for _ in range(LOOKS - 1):
            if not doubted:
                return
            time.sleep(LOOK_AGAIN_S)
            if not self._path.exists():
                return
            again = [
                row
                for row in rows(self._path, records=False, verify=verify)
                if row["kind"] == "damage"
            ]
            doubted = [row for row in doubted if row in again]
        yield from doubted


def _is_last(path: Path) -> bool:
    """Whether the segment is that which records are appended to."""
    if not _SEGMENT.match(path.name):
        return False
    try:
        last = max(one.name[:20] for one in path.parent.iterdir() if _SEGMENT.match(one.name))
    except (OSError, ValueError):
        return False
    return path.name[:20] >= last
