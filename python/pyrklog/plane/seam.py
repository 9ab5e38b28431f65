"""What crosses to the data plane and back (:class:`.core_plane.Plane`): its settings, requests,
results and events. The image of the cluster is in :mod:`.values`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Annotated, NamedTuple, Protocol

from pyrklog.errors import ErrorCode

if TYPE_CHECKING:
    from pyrklog._core import Heartbeat, OffsetCommit


class Session(Protocol):
    """The client of a connection."""

    connection: int
    principal: str
    host: str
    client_id: str | None
    listener: str
    port: int
    software_name: str | None
    """What the client called itself (KIP-511); None if it did not."""
    software_version: str | None


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


class VerifyTransaction(Protocol):
    """The first batches of a transaction in these partitions wait (KIP-890)."""

    @property
    def id(self) -> int:
        """For ``transaction_verified``."""

    @property
    def transactional_id(self) -> str: ...
    @property
    def producer_id(self) -> int: ...
    @property
    def producer_epoch(self) -> int: ...
    @property
    def partitions(self) -> Sequence[tuple[str, int]]:
        """At least one."""

    @property
    def enrols(self) -> bool:
        """Whether the coordinator adds the partitions (transaction version 2, Produce v12); else it
        says whether they were added."""


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

    ``partitions``: (topic, partition, size in bytes, offset lag, whether it is a copy that moves
    here).
    """

    path: str
    error_code: int
    total_bytes: int
    usable_bytes: int
    partitions: Sequence[tuple[str, int, int, int, bool]]


class ClusterSettings(NamedTuple):
    """With the names of the broker's options that the fields have."""

    listener: str
    fetchers: Annotated[int, "num.replica.fetchers"]
    fetch_wait_max_ms: Annotated[int, "replica.fetch.wait.max.ms"]
    fetch_min_bytes: Annotated[int, "replica.fetch.min.bytes"]
    fetch_max_bytes: Annotated[int, "replica.fetch.max.bytes"]
    fetch_response_max_bytes: Annotated[int, "replica.fetch.response.max.bytes"]
    fetch_backoff_ms: Annotated[int, "replica.fetch.backoff.ms"]
    socket_timeout_ms: Annotated[int, "replica.socket.timeout.ms"]
    back_fill_rate_bytes: Annotated[int, "pyrklog.expansion.rate"]
    promotion_window_ms: Annotated[int, "pyrklog.expansion.window.ms"]
    reads_by_rack: bool


class LaggingFollowers(NamedTuple):
    topic: str
    partition: int
    leader_epoch: int
    brokers: Sequence[int]


class CleanerSettings(NamedTuple):
    """Of compaction; may change at run time. With the names of the broker's options."""

    is_enabled: Annotated[bool, "log.cleaner.enable"]
    threads: Annotated[int, "log.cleaner.threads"]
    dedupe_buffer_bytes: Annotated[int, "log.cleaner.dedupe.buffer.size"]
    load_factor: Annotated[float, "log.cleaner.io.buffer.load.factor"]
    io_max_bytes_per_second: Annotated[float, "log.cleaner.io.max.bytes.per.second"]
    backoff_ms: Annotated[int, "log.cleaner.backoff.ms"]


class PlaneSettings(NamedTuple):
    """Fixed for the life of the process. Rust reads it by field names
    (rust/bridge/src/config.rs). With the names of the broker's options that the fields have.
    """

    node_id: int
    cluster_id: str
    log_dirs: Sequence[str]
    network_threads: Annotated[int, "num.network.threads"]
    reader_threads: Annotated[int, "num.io.threads"]
    recovery_threads_per_dir: Annotated[int, "num.recovery.threads.per.data.dir"]
    writer_threads_per_dir: Annotated[int, "pyrklog.writer.threads.per.data.dir"]
    socket_request_max_bytes: int
    receive_buffers_max_bytes: int
    control_queue_max_requests: Annotated[int, "queued.max.requests"]
    connections_max_idle_ms: Annotated[int, "connections.max.idle.ms"]
    max_connections: Annotated[int, "max.connections"]
    max_connections_per_ip: int
    socket_send_buffer_bytes: int
    socket_receive_buffer_bytes: Annotated[int, "socket.receive.buffer.bytes"]
    fetch_max_bytes: Annotated[int, "fetch.max.bytes"]
    fetch_session_slots: Annotated[int, "max.incremental.fetch.session.cache.slots"]
    fetch_read_path: str
    unwritten_max_bytes: int | None
    cache_dir: str | None
    cache_max_bytes: int | None
    cache_keeps: Annotated[bool, "pyrklog.cache.keep"]
    cache_drops: Annotated[bool, "pyrklog.cache.drop"]
    cache_flush_bytes: Annotated[int, "pyrklog.cache.flush.bytes"]
    cache_flush_ms: Annotated[int, "pyrklog.cache.flush.ms"]
    cache_direct_min_bytes: Annotated[int, "pyrklog.cache.direct.min.bytes"]
    cleaner: CleanerSettings
    move_threads: int
    recovery_checkpoint_interval_ms: Annotated[int, "log.flush.offset.checkpoint.interval.ms"]
    log_start_checkpoint_interval_ms: Annotated[
        int, "log.flush.start.offset.checkpoint.interval.ms"
    ]
    high_watermark_checkpoint_interval_ms: Annotated[
        int, "replica.high.watermark.checkpoint.interval.ms"
    ]
    retention_check_interval_ms: Annotated[int, "log.retention.check.interval.ms"]
    producer_id_expiration_ms: Annotated[int, "producer.id.expiration.ms"]
    auto_create_topics: Annotated[bool, "auto.create.topics.enable"]
    cluster: ClusterSettings | None
    """None for a single broker."""


class DigestRange(NamedTuple):
    """Offsets ``[start, end)``; ends with the batch whose size reaches ``max_bytes``."""

    start: int
    end: int
    max_bytes: int


class ReplicaDigest(NamedTuple):
    """A replica's content in a range of offsets; -1 for missing offsets.

    ``first`` is (base offset, last offset, leader epoch, CRC-32C) of the first batch. Below
    ``compacted_end`` the replica is compacted.
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
    compacted_end: int = -1


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

    def on_verify_transaction(self, asked: VerifyTransaction) -> None:
        """Ask the transaction's coordinator, then call ``transaction_verified``."""

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

    def on_partition_failed(self, topic: str, topic_id: bytes, partition: int, reason: str) -> None:
        """A partition is offline until the next start: it broke an invariant, or its log, which
        waited for space, cannot be opened. ``topic_id`` has 16 bytes.
        """

    def on_notice(self, event: str, fields: Mapping[str, str], level: str) -> None:
        """A message for the operator."""
