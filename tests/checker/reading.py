"""Reads topics in full at the end of a history."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from confluent_kafka import Consumer, KafkaError, TopicPartition

from tests.checker.analysis import Log
from tests.checker.clients import Reader
from tests.checker.history import NONE, History, decode_copy
from tests.checker.transactions import Copies, Copy
from tests.support.cluster import BrokerCluster
from tests.support.cluster_clients import end_offset
from tests.support.waiting import wait_until

PARTITIONS = 4
"""Of the checker's topics."""
READ_WITHIN_S = 60.0


class CopyReader(Reader):
    """Reads committed records of transactions, and notes when it has all up to the last stable
    offset."""

    options: Mapping[str, Any] = {"isolation.level": "read_committed", "enable.partition.eof": True}

    def __init__(
        self, bootstrap: str, topic: str, partitions: int, name: str, history: History
    ) -> None:
        super().__init__(bootstrap, topic, partitions, name, history)
        self.stable = [NONE] * partitions
        """Last stable offsets up to which everything is read."""

    def take(self, message: Any) -> None:
        error, partition, offset = message.error(), message.partition(), message.offset()
        if error is None:
            value, transaction = decode_copy(message.value())
            self.history.add(
                self.name,
                "read",
                "ok",
                partition,
                value=value,
                offset=offset,
                transaction=transaction,
            )
            self.positions[partition] = offset + 1
        elif error.code() == KafkaError._PARTITION_EOF:
            self.history.add(self.name, "stable", "ok", partition, offset=offset)
            self.stable[partition] = offset
        else:
            super().take(message)


class RawReader(CopyReader):
    """Reads all records. What it notes are no last stable offsets: for a history of its own."""

    options: Mapping[str, Any] = {**CopyReader.options, "isolation.level": "read_uncommitted"}


def read_all(
    cluster: BrokerCluster, topic: str, history: History, name: str = "last"
) -> dict[int, Log]:
    """The log, read once from the start through each broker. Differences between the reads are for
    the analysis: they are readers like any other."""
    ends = end_offsets(cluster, topic)
    for number, broker in cluster.brokers.items():
        reader = Reader(broker.bootstrap, topic, PARTITIONS, f"{name}-{number}", history)
        way = f"the log cannot be read up to its end by way of broker {number}"
        run_to_the_end(reader, lambda reader=reader: reader.positions, ends, way)  # type: ignore[misc]
    final: dict[int, Log] = {partition: {} for partition in range(PARTITIONS)}
    first = f"{name}-{min(cluster.brokers)}"
    for op in history:
        if op.client == first and op.action == "read" and op.outcome == "ok":
            final[op.partition][op.offset] = op.value
    return final


def read_copies(cluster: BrokerCluster, topic: str, reader: CopyReader) -> Copies:
    """The same of transactions' records. All of them have ended, or it fails."""
    ends = end_offsets(cluster, topic)
    otherwise = f"{reader.name} does not get to the end"
    run_to_the_end(reader, lambda: reader.stable, ends, otherwise)
    final: dict[int, dict[int, Copy]] = {partition: {} for partition in range(PARTITIONS)}
    for op in reader.history:
        if op.client == reader.name and op.action == "read" and op.outcome == "ok":
            final[op.partition][op.offset] = Copy(op.value, op.transaction)
    return final


def run_to_the_end(
    reader: Reader, position: Callable[[], Sequence[int]], ends: Sequence[int], otherwise: str
) -> None:
    def is_there() -> bool:
        return all(at >= end for at, end in zip(position(), ends, strict=True))

    reader.start()
    wait_until(is_there, lambda: f"{otherwise}: {position()} of {ends}", READ_WITHIN_S)
    reader.end()
    assert reader.join(READ_WITHIN_S), "a reader does not end"


def end_offsets(cluster: BrokerCluster, topic: str) -> list[int]:
    """The high watermarks, also behind open transactions."""
    consumer = Consumer(
        {
            "bootstrap.servers": cluster.bootstrap,
            "group.id": "ends",
            "isolation.level": "read_uncommitted",
        }
    )
    places = [TopicPartition(topic, partition) for partition in range(PARTITIONS)]
    ends = [end_offset(consumer, place, READ_WITHIN_S) for place in places]
    consumer.close()
    return ends
