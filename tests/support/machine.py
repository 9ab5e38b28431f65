"""What a machine's end does that a process's end does not."""

import time
from pathlib import Path

from pyrklog.testing import TestBroker
from tests.support.wire import batch_headers

_PATIENCE_S = 20


def wait_until_written(folder: Path, end_offset: int) -> None:
    """Waits until a partition's files hold every record below `end_offset`: the block cache writes
    them behind the acknowledgement."""
    deadline = time.monotonic() + _PATIENCE_S
    while True:
        newest = max(folder.glob("*.log"), default=None)
        headers = batch_headers(newest.read_bytes()) if newest is not None else []
        if headers and headers[-1].base_offset + headers[-1].record_count >= end_offset:
            return
        assert time.monotonic() < deadline, f"{folder} does not hold {end_offset} records"
        time.sleep(0.01)


def forget_boot(broker: TestBroker) -> None:
    """The next start takes place after a start of the machine: its shared memory is gone."""
    for marker in broker.data.glob("**/.pyrklog-arena"):
        lines = marker.read_text().splitlines()
        changed = [f"boot={'0' * 32}" if line.startswith("boot=") else line for line in lines]
        marker.write_text("\n".join(changed) + "\n")
