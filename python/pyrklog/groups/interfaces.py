"""The coordinator's view of the rest of the broker.

The data plane behind :class:`InternalLog` builds, checks and compresses batches; here a record is a
key and a value. :class:`OffsetsTopic` is the cluster's view of ``__consumer_offsets``. Tests
implement both.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence
from typing import NamedTuple, Protocol

from pyrklog.errors import ErrorCode
from pyrklog.groups.core_types import CommitBatch, OffsetCommit
from pyrklog.plane.internal_log import AppendResult, InternalRead, NewRecord, Producer


class InternalLog(Protocol):
    """Logs of internal topics that this broker leads."""

    def append_internal(
        self,
        topic: str,
        partition: int,
        records: Sequence[NewRecord],
        *,
        timestamp_ms: int,
        codec: int,
        expected_epoch: int,
        producer: Producer | None = None,
    ) -> Awaitable[AppendResult]:
        """Appends one batch; the result comes once the high watermark has passed it.

        The call itself passes the batch on: appends of a partition enter the log in call order.
        After an error other replicas may still have the batch: NOT_LEADER_OR_FOLLOWER (not leader
        since ``expected_epoch``), NOT_ENOUGH_REPLICAS(_AFTER_APPEND), MESSAGE_TOO_LARGE,
        RECORD_LIST_TOO_LARGE, KAFKA_STORAGE_ERROR. The caller limits its wait, which does not take
        the batch back.
        """

    def append_commits(
        self,
        topic: str,
        partition: int,
        commits: Sequence[OffsetCommit],
        *,
        timestamp_ms: int,
        codec: int,
        expected_epoch: int,
    ) -> CommitBatch | None:
        """Appends staged commits as one batch, then answers them, also with errors. None: the
        broker is ending."""

    def time_out_commits(self, commits: CommitBatch) -> None:
        """Answers waiting commits with REQUEST_TIMED_OUT."""

    def close_request(self, request_id: int) -> None:
        """Closes the connection of a commit without an answer; its client retries."""

    async def read_internal(
        self, topic: str, partition: int, offset: int, *, max_bytes: int
    ) -> InternalRead:
        """Reads up to the log end offset, at least one batch. Errors: NOT_LEADER_OR_FOLLOWER,
        KAFKA_STORAGE_ERROR."""


class BrokerEndpoint(NamedTuple):
    """A broker as advertised on a listener."""

    node_id: int
    host: str
    port: int


class OffsetsTopic(Protocol):
    """The partitions of ``__consumer_offsets`` in this broker's view."""

    def partition_count(self) -> int | None:
        """None while the topic does not exist."""

    def led_partitions(self) -> Mapping[int, int]:
        """Partitions led and served here, with the epoch of the leadership. Another epoch: another
        broker has led in between."""

    def assigned_partitions(self) -> Collection[int]:
        """Partitions that this broker is to lead, served or not."""

    def leader_endpoint(self, partition: int, listener: str) -> BrokerEndpoint | None:
        """The partition's leader as advertised on a listener; None without a live one."""

    async def wait_until(self, condition: Callable[[], bool]) -> None:
        """Returns once a condition over the above holds."""

    async def create(self) -> ErrorCode:
        """Creates the topic from the options ``offsets.topic.*``; NONE if it exists."""
