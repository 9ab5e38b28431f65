"""Topics that are compacted eagerly: what was written, and what a reader finds of it."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

from tests.support.cluster_clients import end_offset
from tests.support.waiting import PATIENCE_S
from tests.support.wire import batch_headers

EAGER_BROKER: dict[str, str | int | bool] = {
    "log.cleaner.backoff.ms": 50,
    "log.segment.delete.delay.ms": 0,
    "log.retention.check.interval.ms": 500,
}
EAGER_TOPIC = {
    "cleanup.policy": "compact",
    "segment.bytes": "20000",
    "index.interval.bytes": "512",
    "min.cleanable.dirty.ratio": "0.01",
}
FILLER = b"filler"
KEYS = 40

Pairs = list[tuple[bytes, bytes | None]]


class Found(NamedTuple):
    offset: int
    key: bytes
    value: bytes | None


def create_compacted(bootstrap: str, topic: str, replicas: int = 1, **options: str) -> None:
    admin = AdminClient({"bootstrap.servers": bootstrap})
    named = {name.replace("_", "."): value for name, value in options.items()}
    new = NewTopic(topic, 1, replicas, config={**EAGER_TOPIC, **named})
    admin.create_topics([new])[topic].result(PATIENCE_S)


def put(bootstrap: str, topic: str, pairs: Pairs, codec: str = "none") -> None:
    """Writes keys and values in this order, in batches of some."""
    producer = Producer(
        {
            "bootstrap.servers": bootstrap,
            "enable.idempotence": True,
            "batch.num.messages": 10,
            "compression.type": codec,
        }
    )
    for key, value in pairs:
        producer.produce(topic, key=key, value=value, partition=0)
    assert producer.flush(PATIENCE_S) == 0


def fill(bootstrap: str, topic: str) -> None:
    """More than a segment, so that everything before can be compacted."""
    put(bootstrap, topic, [(FILLER, b"%d " % number * 100) for number in range(120)])


def read_all(bootstrap: str, topic: str, start: int = 0) -> list[Found]:
    """All records from an offset to the end."""
    consumer = Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": "none",
            "enable.auto.commit": False,
            "auto.offset.reset": "earliest",
            "isolation.level": "read_committed",
            "enable.partition.eof": True,
            "check.crcs": True,
        }
    )
    end_offset(consumer, TopicPartition(topic, 0))
    consumer.assign([TopicPartition(topic, 0, start)])
    found: list[Found] = []
    deadline = time.monotonic() + PATIENCE_S
    while (message := consumer.poll(1)) is None or message.error() is None:
        assert time.monotonic() < deadline, f"no end of {topic} after {len(found)} records"
        if message is not None:
            key, offset = message.key(), message.offset()
            assert key is not None
            assert offset is not None
            found.append(Found(offset, key, message.value()))
    consumer.close()
    return found


def last_values(records: Sequence[Found]) -> dict[bytes, bytes]:
    """As a reader that keeps a table sees them; without what fills segments."""
    values: dict[bytes, bytes | None] = {one.key: one.value for one in records}
    return {key: value for key, value in values.items() if value is not None and key != FILLER}


def model(pairs: Pairs) -> Mapping[bytes, bytes]:
    return last_values([Found(offset, *pair) for offset, pair in enumerate(pairs)])


def rounds(count: int, stem: str = "v") -> Pairs:
    """Each key so many times."""
    return [
        (b"k%d" % key, f"{stem} {turn} of {key} ".encode() * 5)
        for turn in range(count)
        for key in range(KEYS)
    ]


def record_count(folder: Path) -> int:
    """In the segments of a partition's folder, while they may change."""
    count = 0
    for path in folder.glob("*.log"):
        with suppress(FileNotFoundError):
            count += sum(header.record_count for header in batch_headers(path.read_bytes()))
    return count
