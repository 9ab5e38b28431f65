"""Where logs end, with the records of open transactions: what is behind a last stable offset is not
lost."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from typing import Protocol

from pyrklog.spark.cluster import KafkaCluster
from pyrklog.spark.connection import Connection
from pyrklog.spark.offsets import TopicPartition
from pyrklog.spark.places import LATEST


class HighWatermarks(Protocol):
    """A question that is asked before a loss is told."""

    def ends(self, places: Iterable[TopicPartition]) -> dict[TopicPartition, int]:
        """The offset behind the last record, committed or not. Raises ClusterError, GoneError."""

    def close(self) -> None:
        """Ends connections."""


class KafkaHighWatermarks:
    """Asks by a client of its own, which connects with the first question."""

    def __init__(self, connection: Connection) -> None:
        self._cluster = KafkaCluster(replace(connection, isolation="read_uncommitted"))

    def ends(self, places: Iterable[TopicPartition]) -> dict[TopicPartition, int]:
        found = self._cluster.offsets(dict.fromkeys(places, LATEST))
        return {place: position.offset for place, position in found.items()}

    def close(self) -> None:
        self._cluster.close()
