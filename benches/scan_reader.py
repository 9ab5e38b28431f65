"""Reads a topic as fast as a reader in Python can: ``python -m benches.scan_reader READER BOOTSTRAP
TOPIC SECONDS``. READER is ``scan`` (``pyrklog.scan``, each batch taken), ``consume``
(confluent-kafka's ``consume``), or one of these with ``-json``: values of ``EVENT`` as typed
columns, by ``decode="json"`` or by ``pyarrow.json``, on one processor.

Reads it whole, again and again until SECONDS have passed, and prints a line of JSON: rows, seconds,
CPU seconds of this process, its most resident bytes.
"""

import io
import json
import os
import resource
import sys
import time
from collections.abc import Callable

import pyarrow
import pyarrow.json
from confluent_kafka import OFFSET_BEGINNING, Consumer, TopicPartition

import pyrklog

_AT_ONCE = 10_000
_PATIENCE_S = 60.0
EVENT = pyarrow.schema(
    [
        ("id", pyarrow.int64()),
        ("user", pyarrow.string()),
        ("amount", pyarrow.float64()),
        ("paid", pyarrow.bool_()),
        ("at", pyarrow.string()),
    ]
)


def event(number: int) -> bytes:
    """A value of the JSON case."""
    fields = {
        "id": number,
        "user": f"user-{number % 9973}",
        "amount": number % 100_003 / 100,
        "paid": number % 3 == 0,
        "at": f"2026-01-31T12:{number // 60 % 60:02}:{number % 60:02}Z",
    }
    return json.dumps(fields).encode()


def scan(bootstrap: str, topic: str) -> int:
    """The rows of the topic, by batches of Arrow that are dropped."""
    found = pyrklog.scan(topic, bootstrap_servers=bootstrap)
    for _ in found:
        pass
    return sum(one.records for one in found.progress())


def consume(bootstrap: str, topic: str) -> int:
    """The same, by messages that are dropped."""
    return _consume(bootstrap, topic, None)


def _consume(bootstrap: str, topic: str, use: Callable[[list[bytes]], int] | None) -> int:
    settings: dict[str, str | int | bool] = {
        "bootstrap.servers": bootstrap,
        "group.id": "unused",
        "enable.auto.commit": False,
    }
    if use is not None:
        # By default librdkafka waits a second once it is ahead of a reader that decodes.
        settings["fetch.queue.backoff.ms"] = 10
    consumer = Consumer(settings)
    try:
        partitions = sorted(consumer.list_topics(topic, _PATIENCE_S).topics[topic].partitions)
        places = [TopicPartition(topic, index, OFFSET_BEGINNING) for index in partitions]
        edges = [consumer.get_watermark_offsets(place, _PATIENCE_S) for place in places]
        rows: int = sum(last - first for first, last in edges)
        consumer.assign(places)
        left = rows
        while left > 0:
            messages = consumer.consume(min(_AT_ONCE, left), _PATIENCE_S)
            if not messages:
                raise SystemExit(f"{left} of {rows} records did not come")
            for message in messages:
                if message.error() is not None:
                    raise SystemExit(str(message.error()))
            if use is not None:
                use([message.value() or b"" for message in messages])
            left -= len(messages)
        return rows
    finally:
        consumer.close()


def scan_json(bootstrap: str, topic: str) -> int:
    """The rows of the topic, decoded."""
    found = pyrklog.scan(
        topic,
        columns=["value"],
        decode="json",
        schema=EVENT,
        on_bad="fail",
        threads=1,
        bootstrap_servers=bootstrap,
    )
    for _ in found:
        pass
    return sum(one.records for one in found.progress())


def consume_json(bootstrap: str, topic: str) -> int:
    """The same, by confluent-kafka and pyarrow."""
    return _consume(bootstrap, topic, _decoded)


def _decoded(values: list[bytes]) -> int:
    options = pyarrow.json.ParseOptions(explicit_schema=EVENT, unexpected_field_behavior="ignore")
    alone = pyarrow.json.ReadOptions(use_threads=False)
    lines = io.BytesIO(b"\n".join(values))
    rows: int = pyarrow.json.read_json(lines, alone, options).num_rows
    return rows


READERS: dict[str, Callable[[str, str], int]] = {
    "scan": scan,
    "consume": consume,
    "scan-json": scan_json,
    "consume-json": consume_json,
}


def _cpu_s() -> float:
    used = resource.getrusage(resource.RUSAGE_SELF)
    return used.ru_utime + used.ru_stime


def main(reader: str, bootstrap: str, topic: str, seconds: str) -> None:
    read = READERS[reader]
    if reader.endswith("-json"):
        os.sched_setaffinity(0, {max(os.sched_getaffinity(0))})
    began, cpu_before, rows = time.monotonic(), _cpu_s(), 0
    while rows == 0 or time.monotonic() - began < float(seconds):
        rows += read(bootstrap, topic)
    took = time.monotonic() - began
    most = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
    figures = {"rows": rows, "seconds": took, "cpu_s": _cpu_s() - cpu_before, "most_bytes": most}
    print(json.dumps(figures))


if __name__ == "__main__":
    main(*sys.argv[1:])
