"""A machine's end, as opposed to a process's: what only files survive."""

from collections.abc import Iterator
from pathlib import Path

from tests.support.waiting import wait_until
from tests.support.wire import batch_headers

_MARKER = ".pyrklog-arena"
_PATH = "path="


def wait_until_written(folder: Path, end_offset: int) -> None:
    """Waits until a partition's files hold every record below ``end_offset``: the block cache
    writes after the acknowledgement."""

    def is_written() -> bool:
        newest = max(folder.glob("*.log"), default=None)
        headers = batch_headers(newest.read_bytes()) if newest is not None else []
        return bool(headers) and headers[-1].base_offset + headers[-1].record_count >= end_offset

    wait_until(is_written, f"{folder} does not hold {end_offset} records")


def _markers(data: Path) -> list[Path]:
    """Of the log directory ``data`` and of those in it. Partitions' folders are not looked into: a
    running broker removes them meanwhile."""
    return [marker for pattern in (_MARKER, f"*/{_MARKER}") for marker in data.glob(pattern)]


def arena_files(data: Path) -> Iterator[Path]:
    for marker in _markers(data):
        for line in marker.read_text().splitlines():
            if line.startswith(_PATH):
                yield Path(line.removeprefix(_PATH))


def forget_memory(data: Path) -> None:
    """A crash of a stopped broker's machine: its shared memory is gone, its markers stay."""
    for path in arena_files(data):
        path.unlink(missing_ok=True)


def forget_boot(data: Path) -> None:
    """The next start follows a reboot: the shared memory is another boot's."""
    for marker in _markers(data):
        lines = marker.read_text().splitlines()
        changed = [f"boot={'0' * 32}" if line.startswith("boot=") else line for line in lines]
        marker.write_text("\n".join(changed) + "\n")
