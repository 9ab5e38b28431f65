"""Commits a stream's offsets for a group, so that its lag is seen where operators look for it."""

from __future__ import annotations

import logging
import time
from collections.abc import Mapping
from typing import Protocol

from confluent_kafka import ConsumerGroupTopicPartitions, KafkaError, KafkaException, TopicPartition
from confluent_kafka.admin import AdminClient

from pyrklog.spark.connection import Connection
from pyrklog.spark.offsets import Position, StreamOffset
from pyrklog.spark.offsets import TopicPartition as Place

COMMIT_MOST_S = 5.0
"""A stream waits no longer for its group's coordinator."""

ALL_EVERY_S = 24 * 3600.0
"""How often all positions are committed. A group without members loses the offset of a partition
that was not committed for ``offsets.retention.minutes``, seven days by default (KIP-211)."""

_WAIT_S = 0.1
# A coordinator loads its groups, or moves.
_PASSING = frozenset(
    {
        KafkaError.COORDINATOR_LOAD_IN_PROGRESS,
        KafkaError.COORDINATOR_NOT_AVAILABLE,
        KafkaError.NOT_COORDINATOR,
        KafkaError._TRANSPORT,
    }
)

logger = logging.getLogger("pyrklog.spark")


class Group(Protocol):
    """Where a stream tells how far it is. Nothing is read from it."""

    def commit(self, offset: StreamOffset) -> None:
        """Never fails: the stream does not depend on it."""

    def close(self) -> None:
        """Ends connections."""


class KafkaGroup:
    """Commits as tools do that alter a group's offsets: the group has no members. Positions that
    did not change are committed once a day.

    What may pass is tried again for ``COMMIT_MOST_S``, but not with each offset while it lasts.
    What fails is logged once for each reason and tried again with the next offset.
    """

    def __init__(self, connection: Connection, name: str) -> None:
        self._name = name
        self._settings = connection.librdkafka()
        self._timeout_s = min(COMMIT_MOST_S, connection.request_timeout_s)
        self._client: AdminClient | None = None
        self._committed: Mapping[Place, Position] = {}
        self._all_due_s = 0.0
        self._reason = ""

    def commit(self, offset: StreamOffset) -> None:
        now_s = time.monotonic()
        takes_all = now_s >= self._all_due_s
        changed = changed_positions({} if takes_all else self._committed, offset.positions)
        if not changed:
            return
        metadata = f"pyrklog.spark {offset.number}"
        wanted = [
            TopicPartition(*place, position.offset, metadata, *_epoch(position))
            for place, position in changed.items()
        ]
        until = now_s + self._timeout_s
        left_s = self._timeout_s
        while (failure := self._try(wanted, left_s)) is not None:
            left_s = until - time.monotonic() - _WAIT_S
            if failure.code() not in _PASSING or left_s <= 0 or self._reason:
                self._warn(f"{failure.name()}: {failure.str()}")
                return
            time.sleep(_WAIT_S)
        self._committed = dict(offset.positions)
        if takes_all:
            self._all_due_s = now_s + ALL_EVERY_S
        self._reason = ""

    def _try(self, wanted: list[TopicPartition], timeout_s: float) -> KafkaError | None:
        try:
            if self._client is None:
                self._client = AdminClient(self._settings)
            futures = self._client.alter_consumer_group_offsets(
                [ConsumerGroupTopicPartitions(self._name, wanted)], request_timeout=timeout_s
            )
            answers = futures[self._name].result().topic_partitions
        except KafkaException as error:
            failure: KafkaError = error.args[0]
            return failure
        return next((one.error for one in answers if one.error is not None), None)

    def close(self) -> None:
        self._client = None

    def _warn(self, reason: str) -> None:
        if reason != self._reason:
            self._reason = reason
            logger.warning(
                "offsets are not committed for group %s, whose lag is wrong until they are: %s",
                self._name,
                reason,
            )


def changed_positions(
    before: Mapping[Place, Position], now: Mapping[Place, Position]
) -> dict[Place, Position]:
    """What is to be committed, sorted; partitions that no longer exist are left alone."""
    return {place: now[place] for place in sorted(now) if before.get(place) != now[place]}


def _epoch(position: Position) -> tuple[int, ...]:
    return (position.epoch,) if position.epoch >= 0 else ()
