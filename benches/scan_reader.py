"""Reads a topic as fast as a reader in Python can: ``python -m benches.scan_reader READER BOOTSTRAP
TOPIC SECONDS``. READER is ``scan`` (``pyrklog.scan``, each batch taken) or ``consume``
(confluent-kafka's ``consume``).

Reads it whole, again and again until SECONDS have passed, and prints a line of JSON: rows, seconds,
CPU seconds of this process, its most resident bytes.
"""

import json
import resource
import sys
import time
from collections.abc import Callable

from confluent_kafka import OFFSET_BEGINNING, Consumer, TopicPartition

import pyrklog

_AT_ONCE = 10_000
_PATIENCE_S = 60.0


def scan(bootstrap: str, topic: str) -> int:
    """The rows of the topic, by batches of Arrow that are dropped."""
    found = pyrklog.scan(topic, bootstrap_servers=bootstrap)
    for _ in found:
        pass
    return sum(one.records for one in found.progress())


def consume(bootstrap: str, topic: str) -> int:
    """The same, by messages that are dropped."""
    consumer = Consumer(
        {"bootstrap.servers": bootstrap, "group.id": "unused", "enable.auto.commit": False}
    )
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
            left -= len(messages)
        return rows
    finally:
        consumer.close()


READERS: dict[str, Callable[[str, str], int]] = {"scan": scan, "consume": consume}


def _cpu_s() -> float:
    used = resource.getrusage(resource.RUSAGE_SELF)
    return used.ru_utime + used.ru_stime


def main(reader: str, bootstrap: str, topic: str, seconds: str) -> None:
    read = READERS[reader]
    began, cpu_before, rows = time.monotonic(), _cpu_s(), 0
    while rows == 0 or time.monotonic() - began < float(seconds):
        rows += read(bootstrap, topic)
    took = time.monotonic() - began
    most = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
    figures = {"rows": rows, "seconds": took, "cpu_s": _cpu_s() - cpu_before, "most_bytes": most}
    print(json.dumps(figures))


if __name__ == "__main__":
    main(*sys.argv[1:])
