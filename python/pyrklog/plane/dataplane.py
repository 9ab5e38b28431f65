"""The data plane's interface :class:`Plane`, and its values.

Implemented in ``core_plane.py``, and for tests in ``testing/fake_plane.py``.
"""

from __future__ import annotations

from collections.abc import Awaitable, Mapping, Sequence
from typing import TYPE_CHECKING, NamedTuple, Protocol

from pyrklog.errors import ErrorCode
from pyrklog.plane.internal_log import AppendResult, InternalRead, NewRecord, Producer
from pyrklog.plane.values import FollowerSpec, ImageDelta, LeaderSpec

if TYPE_CHECKING:
    from pyrklog._core import CommitBatch, Heartbeat, OffsetCommit


class Session(Protocol):
    """The client of a connection."""

    connection: int
    principal: str
    host: str
    client_id: str | None
    listener: str


class Request(Protocol):
    """A request for the control plane; ``body`` follows the request header."""

    @property
    def id(self) -> int: ...
    @property
    def api_key(self) -> int: ...
    @property
    def api_version(self) -> int: ...
    @property
    def session(self) -> Session: ...
    @property
    def body(self) -> bytes: ...


class DirectoryPast(NamedTuple):
    """How the last registered life left a log directory."""

    closed_at_epoch: int | None
    """The broker epoch at a clean shutdown, -1 where it had none; None after any other end."""
    is_reattached: bool
    """Whether its block cache was reattached, so that nothing acknowledged is missing."""


class FoundPartition(NamedTuple):
    """A partition folder at start; ``topic_id`` is None without ``partition.metadata``."""

    topic: str
    partition: int
    topic_id: bytes | None
    log_dir: str


class LogDirUsage(NamedTuple):
    """A log directory; sizes of the volume are -1 where unknown.

    ``partitions``: (topic, partition, size in bytes, offset lag).
    """

    path: str
    error_code: int
    total_bytes: int
    usable_bytes: int
    partitions: Sequence[tuple[str, int, int, int]]


class ClusterSettings(NamedTuple):
    listener: str
    fetchers: int
    fetch_wait_max_ms: int
    fetch_min_bytes: int
    fetch_max_bytes: int
    fetch_response_max_bytes: int
    fetch_backoff_ms: int
    socket_timeout_ms: int
    reads_by_rack: bool


class LaggingFollowers(NamedTuple):
    topic: str
    partition: int
    leader_epoch: int
    brokers: Sequence[int]


class PlaneSettings(NamedTuple):
    """Fixed for the life of the process. Rust reads it by field names
    (rust/bridge/src/config.rs).
    """

    node_id: int
    cluster_id: str
    log_dirs: Sequence[str]
    network_threads: int
    reader_threads: int
    recovery_threads_per_dir: int
    writer_threads_per_dir: int
    socket_request_max_bytes: int
    receive_buffers_max_bytes: int
    control_queue_max_requests: int
    connections_max_idle_ms: int
    max_connections: int
    max_connections_per_ip: int
    socket_send_buffer_bytes: int
    socket_receive_buffer_bytes: int
    fetch_max_bytes: int
    fetch_session_slots: int
    fetch_read_path: str
    unwritten_max_bytes: int | None
    cache_dir: str | None
    cache_max_bytes: int | None
    cache_keeps: bool
    cache_drops: bool
    cache_flush_bytes: int
    cache_flush_ms: int
    cache_direct_min_bytes: int
    recovery_checkpoint_interval_ms: int
    log_start_checkpoint_interval_ms: int
    high_watermark_checkpoint_interval_ms: int
    retention_check_interval_ms: int
    producer_id_expiration_ms: int
    auto_create_topics: bool
    cluster: ClusterSettings | None
    """None for a single broker."""


class DigestRange(NamedTuple):
    """Offsets ``[start, end)``; ends with the batch whose size reaches ``max_bytes``."""

    start: int
    end: int
    max_bytes: int


class ReplicaDigest(NamedTuple):
    """A replica's content in a range of offsets; -1 for missing offsets.

    ``first`` is (base offset, last offset, leader epoch, CRC-32C) of the first batch.
    """

    error: ErrorCode
    leader_epoch: int = -1
    log_start_offset: int = -1
    high_watermark: int = -1
    log_end_offset: int = -1
    next_offset: int = -1
    digest: int = 0
    batches: int = 0
    damaged_offset: int = -1
    first: tuple[int, int, int, int] | None = None


class LogStarts(NamedTuple):
    """Log start offsets of a led partition. ``own`` is -1 with an error."""

    error: int
    own: int
    followers: Sequence[tuple[int, int]]
    """(broker, its last known log start offset; -1 = unknown)."""


class PlaneListener(Protocol):
    """Receives the plane's events on the Trio thread; must not block."""

    def on_request(self, request: Request) -> None:
        """Answer with ``reply`` or ``close_request``."""

    def on_heartbeat(self, heartbeat: Heartbeat) -> None:
        """A decoded Heartbeat: answer with ``answer_heartbeat``, or as any request."""

    def on_offset_commit(self, commit: OffsetCommit) -> None:
        """A decoded OffsetCommit of existing partitions; otherwise as any request."""

    def on_topics_missing(self, request_id: int, topics: Sequence[str], session: Session) -> None:
        """A Metadata request that waits for topics: answer with ``resume``."""

    def on_client_gone(self, request_id: int) -> None:
        """The client of an unanswered request, commit or missing topics sends nothing more; it must
        still be answered or closed.
        """

    def on_follower_caught_up(
        self, topic: str, partition: int, leader_epoch: int, broker: int, broker_epoch: int
    ) -> None:
        """A follower may join the ISR."""

    def on_follower_log_start(self, topic: str, partition: int) -> None:
        """A follower's log start has moved since the last ``log_starts``."""

    def on_log_dir_failed(
        self, path: str, reason: str, partitions: Sequence[tuple[str, int]]
    ) -> None:
        """A log directory failed; its partitions are offline."""

    def on_partition_failed(self, topic: str, partition: int, reason: str) -> None:
        """A partition broke an invariant; it is offline until the next start."""

    def on_notice(self, event: str, fields: Mapping[str, str], level: str) -> None:
        """A message for the operator."""


class Plane(Protocol):
    """The data plane's commands. Results have protocol codes for single partitions.

    A slow command after ``shutdown`` never completes; cancel its caller.
    """

    def found_partitions(self) -> Sequence[FoundPartition]:
        """Partition folders at start."""

    def pasts(self) -> Sequence[DirectoryPast]:
        """How the last registered life left each usable log directory."""

    def listen(self, listener: str, host: str, port: int, *, for_brokers: bool = False) -> int:
        """Binds and accepts; returns the port. ``for_brokers``: only for brokers, which may connect
        when clients have taken every connection (KIP-402). Raises :class:`TemporaryError`.
        """

    def apply_image(self, delta: ImageDelta) -> None:
        """Applies the next version of the image."""

    async def become_leaders(self, specs: Sequence[LeaderSpec]) -> Sequence[int]:
        """Opens or creates logs and serves them; one error code for each spec, 0 = done."""

    async def become_followers(self, specs: Sequence[FollowerSpec]) -> Sequence[int]:
        """Opens or creates logs and follows their leaders; one error code for each spec, 0
        = done.
        """

    def log_ends(self, partitions: Sequence[tuple[str, int]]) -> Sequence[tuple[int, int] | None]:
        """(leader epoch of the last record, -1 without any; log end offset) of each log; None where
        none is open.
        """

    def set_isr(
        self,
        topic: str,
        partition: int,
        leader_epoch: int,
        members: Sequence[int],
        isr: Sequence[int],
        is_held: bool,
    ) -> bool:
        """Sets a led partition's ISR: the written one, and ``members`` with joining replicas;
        ``is_held`` as in :class:`LeaderSpec`. False where it is not led in that epoch, or where a
        joining replica lacks records below the high watermark (it is reported again once it has
        them).
        """

    def lagging_followers(self, max_lag_ms: int) -> Sequence[LaggingFollowers]:
        """Of all led partitions."""

    def set_broker_epoch(self, epoch: int) -> None:
        """The epoch of this broker's registration."""

    def set_replication_rates(
        self, *, leader_bytes: int | None, follower_bytes: int | None
    ) -> None:
        """Bytes a second to and from replicas that topics name as throttled (KIP-73); None =
        unlimited.
        """

    async def stop_partitions(self, specs: Sequence[tuple[str, int, bool]]) -> Sequence[int]:
        """Each (topic, partition, delete); one error code for each spec, 0 = done."""

    async def delete_records(
        self, targets: Sequence[tuple[str, int, int]]
    ) -> Sequence[tuple[int, int]]:
        """Each (topic, partition, offset); (error code, log start offset or -1) in order."""

    def log_starts(self, partitions: Sequence[tuple[str, int]]) -> Sequence[LogStarts]:
        """Of each partition; ``on_follower_log_start`` tells once when one has moved since."""

    async def describe_log_dirs(self) -> Sequence[LogDirUsage]:
        """All log directories."""

    async def replica_digest(self, topic: str, partition: int, asked: DigestRange) -> ReplicaDigest:
        """Digests this broker's replica. Errors: see ``DataPlane::replica_digest`` in
        rust/dataplane/src/plane/digests.rs.
        """

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
        """Appends one batch to an internal topic; the result comes when the high watermark has
        passed it.

        The batch enters the log in memory within the call: a partition's appends are in the order
        of the calls. Cancelling the wait does not take it back. ``codec`` is the number in a
        batch's attributes. Errors: see ``DataPlane::append_internal`` in
        rust/dataplane/src/plane.rs; after a shutdown NOT_LEADER_OR_FOLLOWER.
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
        """Appends staged commits as one batch, in order; they are answered afterwards, also with
        errors. None: the plane is ending.
        """

    def time_out_commits(self, commits: CommitBatch) -> None:
        """Answers the unanswered ones with REQUEST_TIMED_OUT."""

    async def read_internal(
        self, topic: str, partition: int, offset: int, *, max_bytes: int
    ) -> InternalRead:
        """Reads whole batches of an internal topic, decompressed, up to the log end offset.

        At least one batch, however large. Errors: NOT_LEADER_OR_FOLLOWER, KAFKA_STORAGE_ERROR,
        OFFSET_OUT_OF_RANGE (beyond the log end), INVALID_TOPIC_EXCEPTION (not internal).
        """

    def reply(self, request_id: int, body: bytes) -> None:
        """Answers a request; ``body`` follows the response header."""

    def answer_heartbeat(self, heartbeat: Heartbeat, error: int) -> None:
        """Answers a heartbeat with a code."""

    def resume(self, request_id: int, errors: Mapping[str, int]) -> None:
        """Answers a Metadata request that waited."""

    def close_request(self, request_id: int) -> None:
        """Closes the connection of a request without an answer."""

    def park(self, request_id: int) -> bool:
        """The answer waits (for other clients, replication or the metadata store): the request no
        longer counts in ``queued.max.requests``. Returns False where there is no memory for more
        waiting ones: answer at once.
        """

    def statistics(self) -> Mapping[str, int]:
        """Counters."""

    async def shutdown(self, grace_ms: int) -> bool:
        """Refuses new work, drains, writes, syncs; True when everything is marked clean."""

    async def run(self, listener: PlaneListener) -> None:
        """Delivers events until cancelled."""
