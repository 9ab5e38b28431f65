"""What a machine's end does that a process's end does not, and what only files survive."""

from collections.abc import Iterator
from pathlib import Path

from tests.support.waiting import wait_until
from tests.support.wire import batch_headers

_MARKERS = "**/.pyrklog-arena"
_PATH = "path="


def wait_until_written(folder: Path, end_offset: int) -> None:
    """Waits until a partition's files hold every record below `end_offset`: the block cache writes
    them behind the acknowledgement."""

    def is_written() -> bool:
        newest = max(folder.glob("*.log"), default=None)
        headers = batch_headers(newest.read_bytes()) if newest is not None else []
        return bool(headers) and headers[-1].base_offset + headers[-1].record_count >= end_offset

    wait_until(is_written, f"{folder} does not hold {end_offset} records")


def arena_files(data: Path) -> Iterator[Path]:
    """The files in shared memory that a broker's log directories name."""
    for marker in data.glob(_MARKERS):
        for line in marker.read_text().splitlines():
            if line.startswith(_PATH):
                yield Path(line.removeprefix(_PATH))


def forget_memory(data: Path) -> None:
    """What the crash of its machine does to a broker that does not run: the shared memory that its
    log directories name is gone, and their markers stay."""
    for path in arena_files(data):
        path.unlink(missing_ok=True)


def forget_boot(data: Path) -> None:
    """The next start takes place after a start of the machine: its shared memory is another's."""
    for marker in data.glob(_MARKERS):
        lines = marker.read_text().splitlines()
        changed = [f"boot={'0' * 32}" if line.startswith("boot=") else line for line in lines]
        marker.write_text("\n".join(changed) + "\n")
