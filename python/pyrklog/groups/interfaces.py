"""What the coordinator needs of the rest of the broker.

:class:`InternalLog` leads to the data plane, which builds, checks and compresses record batches;
here a record is a key and a value. :class:`OffsetsTopic` is the cluster's view of
``__consumer_offsets``. Tests have an implementation of their own of each.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence
from typing import NamedTuple, Protocol

from pyrklog.errors import ErrorCode
from pyrklog.groups.core_types import CommitBatch, OffsetCommit
from pyrklog.plane.internal_log import AppendResult, InternalRead, NewRecord, Producer


class InternalLog(Protocol):
    """The logs of internal topics that this broker leads."""

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

        The call itself hands the batch on, so that appends of a partition enter the log in the
        order of the calls. Errors, after which other replicas may have the batch all the same:
        NOT_LEADER_OR_FOLLOWER (this broker has not led on since ``expected_epoch``),
        NOT_ENOUGH_REPLICAS(_AFTER_APPEND), MESSAGE_TOO_LARGE, RECORD_LIST_TOO_LARGE,
        KAFKA_STORAGE_ERROR. The caller sets the time limit; a caller that stops waiting does not
        take the batch back.
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
        """Appends staged commits as one batch, and answers them after the append, with an error if
        it fails. None: the broker is ending."""

    def time_out_commits(self, commits: CommitBatch) -> None:
        """Answers the commits that still wait with REQUEST_TIMED_OUT."""

    def close_request(self, request_id: int) -> None:
        """Ends the connection of a commit that cannot be answered; its client retries."""

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
    """The partitions of ``__consumer_offsets`` in this broker's view of the cluster."""

    def partition_count(self) -> int | None:
        """None while the topic does not exist."""

    def led_partitions(self) -> Mapping[int, int]:
        """Partitions that this broker leads and serves, with the epoch since which it has led them.
        Another epoch: another broker has led in between."""

    def assigned_partitions(self) -> Collection[int]:
        """Partitions that this broker is to lead, whether it serves them yet or not."""

    def leader_endpoint(self, partition: int, listener: str) -> BrokerEndpoint | None:
        """The partition's leader as advertised on a listener; None without a live one."""

    async def wait_until(self, condition: Callable[[], bool]) -> None:
        """Returns once a condition over the above holds."""

    async def create(self) -> ErrorCode:
        """Creates the topic from the options ``offsets.topic.*``; NONE if it exists."""
