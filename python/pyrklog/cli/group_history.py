"""A group's rebalances, from the records of ``__consumer_offsets``.

Any Kafka writes a record for each generation; compaction removes old ones. pyrklog adds the reason
as a header.
"""

import time
from collections.abc import Iterator
from datetime import UTC, datetime
from typing import Any

from pyrklog.base.problems import Problem
from pyrklog.cli.connection import Connection
from pyrklog.cli.failures import CliError
from pyrklog.cli.interrupts import held
from pyrklog.cli.output import Item, Listing, columns
from pyrklog.cli.topic_details import query_offsets
from pyrklog.groups.partitioner import partition_for
from pyrklog.groups.persistence import REASON_HEADER
from pyrklog.protocol import DecodeError
from pyrklog.protocol.group_records import (
    GroupKey,
    GroupValue,
    decode_group_value,
    encode_group_key,
)

OFFSETS_TOPIC = "__consumer_offsets"
GROUP_ID = "pyrklog-cli"
BATCH_RECORDS_MAX = 10_000
POLL_S = 0.05
FETCH_WAIT_MS = 10

COLUMNS = columns("at TIME, generation>, members>, protocol, reason, leader*, clients*")


def read_history(connection: Connection, name: str) -> Listing:
    """The generations in the log, the oldest first. Raises :class:`CliError` if there is none."""
    metadata = connection.metadata()
    topic = metadata.topics.get(OFFSETS_TOPIC)
    items: list[Item] = []
    if topic is not None and topic.partitions:
        place = (OFFSETS_TOPIC, partition_for(name, len(topic.partitions)))
        items = list(_generations(_records(connection, place, encode_group_key(GroupKey(name)))))
    if not items:
        raise CliError(
            Problem.NO_HISTORY,
            f"nothing is known of rebalances of group {name}",
            "see `pyrklog group list`",
        )
    return Listing("pyrklog.group-history/1", COLUMNS, items, metadata.cluster_id)


def _records(connection: Connection, place: tuple[str, int], key: bytes) -> Iterator[Any]:
    """Records of a partition with this key; each restarts the timeout."""
    from confluent_kafka import Consumer, KafkaError, TopicPartition
    from confluent_kafka.admin import OffsetSpec

    end = query_offsets(connection, [place], OffsetSpec.latest())[place]
    start = query_offsets(connection, [place], OffsetSpec.earliest())[place]
    if start >= end:
        return
    configuration = connection.configuration(
        **{
            "group.id": GROUP_ID,
            "enable.auto.commit": False,
            "enable.partition.eof": True,
            "auto.offset.reset": "earliest",
            "isolation.level": "read_uncommitted",
            "fetch.wait.max.ms": FETCH_WAIT_MS,
        }
    )
    consumer = connection.make(Consumer, configuration)
    try:
        consumer.assign([TopicPartition(*place, start)])
        heard = time.monotonic()
        while time.monotonic() - heard < connection.settings.timeout_s:
            with held:
                messages = consumer.consume(BATCH_RECORDS_MAX, POLL_S)
            for message in messages:
                error = message.error()
                if error is None:
                    heard = time.monotonic()
                    if message.key() == key:
                        yield message
                    if message.offset() >= end - 1:
                        return
                elif error.code() == KafkaError._PARTITION_EOF:
                    return
                elif not error.retriable():
                    raise connection.explain(error, f"{place[0]} [{place[1]}]")
        raise CliError(Problem.NO_ANSWER, f"{place[0]} [{place[1]}] could not be read to its end")
    finally:
        consumer.close()


def _generations(messages: Iterator[Any]) -> Iterator[Item]:
    """One item for each generation or end of the group; a returning static member repeats its
    generation's record."""
    last: tuple[int, int] | None = None
    for message in messages:
        at = _time(message.timestamp()[1])
        if message.value() is None:
            last = None
            yield {"at": at, "generation": None, "members": 0, "reason": "the group was deleted"}
            continue
        try:
            value = decode_group_value(message.value())
        except DecodeError as error:
            yield {"at": at, "generation": None, "reason": f"cannot be read: {error}"}
            continue
        current = (value.generation, len(value.members))
        if current != last:
            yield {"at": at, **_generation(value), "reason": _reason(message)}
        last = current


def _generation(value: GroupValue) -> Item:
    return {
        "generation": value.generation,
        "members": len(value.members),
        "protocol": value.protocol,
        "leader": value.leader,
        "clients": sorted(
            {f"{one.client_id}@{one.client_host.strip('/')}" for one in value.members}
        ),
    }


def _reason(message: Any) -> str | None:
    wanted = REASON_HEADER.decode()
    for name, content in message.headers() or ():
        if name == wanted and content is not None:
            return str(content, "utf-8", errors="replace")
    return None


def _time(timestamp_ms: int) -> str:
    try:
        at = datetime.fromtimestamp(timestamp_ms / 1000, UTC)
    except (ValueError, OverflowError, OSError):
        return str(timestamp_ms)
    return at.isoformat(timespec="milliseconds").replace("+00:00", "Z")
