"""What the coordinator needs of the rest of the broker.

:class:`InternalLog` is the seam: record batches are built, checked, compressed and decompressed in
Rust; here a record is a key and a value. :class:`OffsetsTopic` is the control plane's side: where
the partitions of ``__consumer_offsets`` are led, and how the topic comes to be.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence
from typing import NamedTuple, Protocol

from pyrklog.errors import ErrorCode
from pyrklog.groups.table import CommitBatch, OffsetCommit
from pyrklog.plane.internal_log import AppendResult, InternalRead, NewRecord, Producer

OFFSETS_TOPIC = "__consumer_offsets"

CODEC_NONE = 0


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
        """Appends one batch; what is awaited is that the high watermark has passed it.

        The call itself hands the batch on and does not wait, so that appends of one partition
        enter the log in the order of the calls. Errors, all of which may
        follow a partial success on other replicas: NOT_LEADER_OR_FOLLOWER (this broker has not led
        on since ``expected_epoch``), NOT_ENOUGH_REPLICAS(_AFTER_APPEND),
        MESSAGE_TOO_LARGE, RECORD_LIST_TOO_LARGE, KAFKA_STORAGE_ERROR. The caller sets the time
        limit: to give up waiting does not take the batch back.
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
        """Appends staged commits as one batch, which are answered when that is over, with an error
        where it cannot be done. None: the broker is ending."""

    def time_out_commits(self, commits: CommitBatch) -> None:
        """The clients have waited long enough: those that are not answered yet are told
        REQUEST_TIMED_OUT."""

    def close_request(self, request_id: int) -> None:
        """A commit that cannot be answered: its connection ends, and its client tries again."""

    async def read_internal(
        self, topic: str, partition: int, offset: int, *, max_bytes: int
    ) -> InternalRead:
        """Reads up to the log end offset; at least one batch however large. Errors:
        NOT_LEADER_OR_FOLLOWER, KAFKA_STORAGE_ERROR."""


class Endpoint(NamedTuple):
    """A broker as advertised on a listener."""

    node_id: int
    host: str
    port: int


class OffsetsTopic(Protocol):
    """The partitions of ``__consumer_offsets`` in this broker's view of the cluster."""

    def partition_count(self) -> int | None:
        """None while there is no such topic."""

    def led_partitions(self) -> Mapping[int, int]:
        """Of those that this broker leads and serves: partition -> the leader epoch from which it
        has led on. With another one what is known of the partition's log does not hold any more."""

    def assigned_partitions(self) -> Collection[int]:
        """Those that this broker is to lead, whether it serves them yet or not."""

    def leader_endpoint(self, partition: int, listener: str) -> Endpoint | None:
        """The partition's leader as advertised on a listener; None without one that lives."""

    async def wait_until(self, condition: Callable[[], bool]) -> None:
        """Returns when a condition over the above holds."""

    async def create(self) -> ErrorCode:
        """Creates the topic with the options ``offsets.topic.*``; TOPIC_ALREADY_EXISTS is NONE."""


class GroupOptions(NamedTuple):
    """Options of the driver; Kafka's names are in ``config/group_options.py``."""

    partition_count: int = 50
    """Partitions of ``__consumer_offsets`` if it is yet to be created."""
    codec: int = CODEC_NONE
    load_buffer_bytes: int = 5_242_880
    message_bytes_max: int = 1_048_588
    """What the log takes as one batch."""
    commit_timeout_ms: int = 5_000
    expiry_interval_ms: int = 600_000
