"""What a machine's end does that a process's end does not."""

from pathlib import Path

from pyrklog.testing import TestBroker
from tests.support.waiting import wait_until
from tests.support.wire import batch_headers


def wait_until_written(folder: Path, end_offset: int) -> None:
    """Waits until a partition's files hold every record below `end_offset`: the block cache writes
    them behind the acknowledgement."""

    def is_written() -> bool:
        newest = max(folder.glob("*.log"), default=None)
        headers = batch_headers(newest.read_bytes()) if newest is not None else []
        return bool(headers) and headers[-1].base_offset + headers[-1].record_count >= end_offset

    wait_until(is_written, f"{folder} does not hold {end_offset} records")


def forget_boot(broker: TestBroker) -> None:
    """The next start takes place after a start of the machine: its shared memory is gone."""
    for marker in broker.data.glob("**/.pyrklog-arena"):
        lines = marker.read_text().splitlines()
        changed = [f"boot={'0' * 32}" if line.startswith("boot=") else line for line in lines]
        marker.write_text("\n".join(changed) + "\n")
