"""What a topic for bad records holds, as tools for Kafka Connect's dead letter queues read it."""

from __future__ import annotations

from typing import NamedTuple

import confluent_kafka
import pyarrow as pa
from confluent_kafka.admin import AdminClient, NewTopic

from tests.support.clients import Confluent, Record
from tests.support.waiting import PATIENCE_S

PREFIX = "__connect.errors."
ID = pa.schema([pa.field("id", pa.int64(), nullable=False)])


class Bad(NamedTuple):
    """Where it was, what it is, and what is told of it: by the last header of each name."""

    place: tuple[str, int, int]
    record: Record
    told: dict[str, str]


def read_bad(bootstrap: str, topic: str) -> list[Bad]:
    """All of them, by partition and offset of the topic."""
    consumer = confluent_kafka.Consumer({"bootstrap.servers": bootstrap, "group.id": "unused"})
    try:
        known = consumer.list_topics(topic, PATIENCE_S).topics[topic].partitions
        ends = {
            partition: consumer.get_watermark_offsets(
                confluent_kafka.TopicPartition(topic, partition), PATIENCE_S, cached=False
            )[1]
            for partition in sorted(known)
        }
    finally:
        consumer.close()
    return [
        _bad(record)
        for partition, end in ends.items()
        for record in Confluent().consume(bootstrap, topic, end, partition=partition)
    ]


def places(bootstrap: str, topic: str) -> list[tuple[str, int, int]]:
    """Of all bad records, as often as they are there."""
    return sorted(one.place for one in read_bad(bootstrap, topic))


def _bad(record: Record) -> Bad:
    told = {
        name.removeprefix(PREFIX): (value or b"").decode()
        for name, value in record.headers
        if name.startswith(PREFIX)
    }
    place = told["topic"], int(told["partition"]), int(told["offset"])
    return Bad(place, record, told)


def create_with(bootstrap: str, topic: str, **options: str) -> None:
    """A topic of one partition with options; underscores are dots."""
    config = {name.replace("_", "."): value for name, value in options.items()}
    admin = AdminClient({"bootstrap.servers": bootstrap})
    admin.create_topics([NewTopic(topic, 1, 1, config=config)])[topic].result(PATIENCE_S)


def mixed(count: int, every: int, first: int = 0) -> list[bytes | None]:
    """JSON whose ids are their numbers; each ``every``-th value is bad."""
    return [
        b"bad %d" % number if number % every == every - 1 else b'{"id": %d}' % number
        for number in range(first, first + count)
    ]


def bad_places(topic: str, partitions: int, count: int, every: int) -> list[tuple[str, int, int]]:
    """Where the bad ones of :func:`mixed` are, if each partition has them."""
    return [
        (topic, partition, offset)
        for partition in range(partitions)
        for offset in range(every - 1, count, every)
    ]
