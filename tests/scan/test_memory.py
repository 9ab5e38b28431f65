"""A scan's memory stays within its bound, however slow its reader and however large the topic."""

from __future__ import annotations

import json
import subprocess
import sys
import time

import zstandard
from confluent_kafka import Producer

from tests.support import wire
from tests.support.groups import create_topic

MIB = 1 << 20
# Of a process with Python, pyrklog and what the allocator keeps.
SLACK_BYTES = 96 * MIB

LARGE_BYTES = 100_000_000
# As it was expanded and as a column, each in a vector that is copied into one twice as large when
# it is full; in the queue, and with the caller.
LARGE_TIMES = 8

_READER = """
import json, sys, time, pyrklog

def resident():
    with open("/proc/self/status") as status:
        lines = dict(line.split(":", 1) for line in status)
    return int(lines["VmHWM"].split()[0]) * 1024

topic, bootstrap, memory, fields = sys.argv[1:]
options = {}
if int(fields):
    import pyarrow

    schema = pyarrow.schema([(f"f{n}", pyarrow.int64()) for n in range(int(fields))])
    options = {"decode": "json", "schema": schema, "on_bad": "fail"}
scan = pyrklog.scan(topic, bootstrap_servers=bootstrap, memory_bytes=int(memory), **options)
before = resident()
rows = 0
for number, batch in enumerate(scan):
    if number == 0:
        # Everything that may be fetched ahead is.
        last = None
        while last != (last := open("/proc/self/statm").read()):
            time.sleep(0.3)
rows = sum(one.records for one in scan.progress())
print(json.dumps({"rows": rows, "grown": resident() - before}))
"""


def test_a_large_topic_is_read_in_little_memory(bootstrap: str, topic: str) -> None:
    """600 MB of records that compress well: six partitions of zstd."""
    create_topic(bootstrap, topic, 6)
    producer = Producer(
        {"bootstrap.servers": bootstrap, "compression.type": "zstd", "linger.ms": 50}
    )
    value = b"some words that come again and again, " * 250
    count = 60_000
    for number in range(count):
        producer.produce(topic, value, partition=number % 6)
        if number % 500 == 0:
            producer.poll(0)
            producer.flush(60)
    assert producer.flush(60) == 0
    memory = 32 * MIB
    told = _read(topic, bootstrap, memory)
    assert told["rows"] == count
    assert told["grown"] < memory + SLACK_BYTES, told


def test_rows_that_say_little_are_counted_as_their_columns(bootstrap: str, topic: str) -> None:
    """Two bytes each, which are 450 MB as columns."""
    producer = Producer({"bootstrap.servers": bootstrap, "compression.type": "zstd"})
    count = 100_000
    for number in range(count):
        producer.produce(topic, b"{}")
        if number % 500 == 0:
            producer.poll(0)
            producer.flush(60)
    assert producer.flush(60) == 0
    memory = 32 * MIB
    told = _read(topic, bootstrap, memory, 500)
    assert told["rows"] == count
    assert told["grown"] < memory + SLACK_BYTES, told


def _read(topic: str, bootstrap: str, memory: int, fields: int = 0) -> dict[str, int]:
    command = [sys.executable, "-c", _READER, topic, bootstrap, str(memory), str(fields)]
    output = subprocess.run(command, capture_output=True, text=True, check=True)
    told: dict[str, int] = json.loads(output.stdout)
    return told


def test_records_of_a_hundred_megabytes_are_read_one_at_a_time(bootstrap: str, topic: str) -> None:
    """Twenty of them: their number does not count."""
    create_topic(bootstrap, topic, 1)
    count = 20
    value = b"some words that come again and again, ".ljust(LARGE_BYTES, b"-")
    payload = zstandard.ZstdCompressor(3).compress(wire.record(0, None, value))
    records = wire.record_batch(
        [b""], attributes=4, payload=payload, timestamp_ms=time.time_ns() // 1_000_000
    )
    with wire.Connection(bootstrap) as connection:
        for _ in range(count):
            assert wire.produce(connection, topic, records).error == 0
    memory = 32 * MIB
    told = _read(topic, bootstrap, memory)
    assert told["rows"] == count
    assert told["grown"] < memory + LARGE_TIMES * LARGE_BYTES + SLACK_BYTES, told
