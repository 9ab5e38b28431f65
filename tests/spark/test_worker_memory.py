"""A worker's memory while it scans a large partition of zstd: it stays below 512 MB, and does not
depend on how much is read.

Two gigabytes here, of the values before compression; ``WORKER_MEMORY_GB=20``, as in ``make
test-long``, reads twenty.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from pyrklog.spark.reading import TASK_MEMORY_BYTES
from tests.support.groups import create_topic
from tests.support.large_topic import LARGE_BATCH_ROWS, VALUE_BYTES, fill

GIGABYTES = int(os.environ.get("WORKER_MEMORY_GB", "2"))
WORKER_BYTES_MAX = 512 * 1000 * 1000
# One batch of the log above a task's share: as it is expanded, and the column it goes to.
LARGE_BYTES = 2 * LARGE_BATCH_ROWS * VALUE_BYTES
# What the allocator keeps, and a record batch of 8 MiB on its way to Spark: columns, and bytes.
SLACK_BYTES = 64 << 20

pytestmark = [
    pytest.mark.jvm,
    pytest.mark.long,
    pytest.mark.spark,
    pytest.mark.timeout(180 + 120 * GIGABYTES),
]


def test_a_worker_needs_little_memory_for_a_large_partition(
    bootstrap: str, topic: str, tmp_path: Path
) -> None:
    """By two workers of ``local[2]``, each of which reads a half of it."""
    small = f"{topic}-small"
    create_topic(bootstrap, small, 1)
    create_topic(bootstrap, topic, 1)
    fill(bootstrap, small, 4_000_000)
    written = fill(bootstrap, topic, GIGABYTES * 1_000_000_000)
    arguments = [bootstrap, small, topic, str(tmp_path)]
    command = [sys.executable, "-m", "tests.support.worker_memory_driver", *arguments]
    done = subprocess.run(
        command,
        capture_output=True,
        text=True,
        check=False,
        env=os.environ | {"PYTHONPATH": os.pathsep.join(filter(None, sys.path))},
    )
    assert done.returncode == 0, done.stderr[-3000:]
    raw, typed = (json.loads(line) for line in done.stdout.splitlines() if line.startswith("{"))
    assert (raw["rows"], raw["bytes"]) == (written.rows, written.bytes)
    assert (typed["rows"], typed["amount"]) == (written.rows, written.amount)
    check(raw)
    check(typed)


def check(told: dict[str, Any]) -> None:
    assert told["workers"] > 2, "a daemon and its workers"
    assert told["peak"] < WORKER_BYTES_MAX, told
    most = told["before"] + TASK_MEMORY_BYTES + LARGE_BYTES + SLACK_BYTES
    assert told["peak"] < most, told
