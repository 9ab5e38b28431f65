"""A producer's memory stays within its bound, however fast rows come, with many partitions too."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest

from tests.support.groups import create_topic

MIB = 1 << 20
MEMORY = 32 * MIB
# Vectors grow by doubling, and requests on their way are copies.
TIMES = 4
# Of a process with Python, pyrklog and what the allocator keeps.
SLACK_BYTES = 64 * MIB

_WRITER = """
import json, sys
import pyarrow as pa
from pyrklog.producing import Producer, ProducerSettings

def peak():
    with open("/proc/self/status") as status:
        lines = dict(line.split(":", 1) for line in status)
    return int(lines["VmHWM"].split()[0]) * 1024

topic, bootstrap, memory, batches = sys.argv[1:]
rows = 10_000
keys = pa.array([b"%d" % number for number in range(rows)])
batch = pa.record_batch({"key": keys, "value": pa.array([b"x" * 100] * rows)})
settings = ProducerSettings(bootstrap, ["key", "value"], topic=topic, memory_bytes=int(memory))
producer = Producer(settings)
before = peak()
for _ in range(int(batches)):
    producer.send(batch)
producer.flush()
written = sum(one.records for one in producer.written)
print(json.dumps({"rows": written, "grown": peak() - before}))
"""


@pytest.mark.parametrize("partitions", [1, 200])
def test_many_rows_are_written_in_little_memory(
    bootstrap: str, topic: str, partitions: int
) -> None:
    """600 MB, faster than a broker takes them."""
    create_topic(bootstrap, topic, partitions)
    arguments = [topic, bootstrap, str(MEMORY), "500"]
    command = [sys.executable, "-c", _WRITER, *arguments]
    output = subprocess.run(command, capture_output=True, text=True, check=True)
    told = json.loads(output.stdout)
    assert told["rows"] == 5_000_000
    assert told["grown"] < TIMES * MEMORY + SLACK_BYTES, told
