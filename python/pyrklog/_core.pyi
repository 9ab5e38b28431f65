"""Types of the Rust extension. What each command does: ``plane/core_plane.py``; an outline:
design.md, section 6.

All classes are immutable. Sizes are bytes, times are milliseconds, topic ids are 16 bytes. What
goes down is read from named tuples by the names of their fields.
"""

from collections.abc import Iterator, Mapping, Sequence, Set
from typing import Literal, final

from pyrklog.config.connection_quotas import ConnectionQuotas
from pyrklog.plane.seam import CleanerSettings, PlaneSettings
from pyrklog.plane.values import FollowerSpec, ImageDelta, LeaderSpec
from pyrklog.producing.settings import ProducerSettings
from pyrklog.scanning.settings import AccessSettings, CoreDecode, ScanSettings

__all__ = [
    "ApiRow",
    "AuthenticationError",
    "BadRecordsError",
    "BadValueError",
    "BatchTooLargeError",
    "BrokerNotAvailableError",
    "BrokerProtocolError",
    "ClientGone",
    "ClusterUnavailableError",
    "CommitBatch",
    "CorruptBatchError",
    "DataPlane",
    "Event",
    "FollowerCaughtUp",
    "FollowerLogStart",
    "ForeignLogDirError",
    "Heartbeat",
    "InternalAppended",
    "InternalLoaded",
    "InternalReadDone",
    "LeaderNotAvailableError",
    "LiveRecords",
    "LogDirError",
    "LogDirFailed",
    "LogDirLockedError",
    "LogDirsDescribed",
    "LogEndMovedError",
    "LogTruncatedError",
    "MarkersWritten",
    "NotAuthorizedError",
    "Notice",
    "OffsetCommit",
    "OffsetOutOfRangeError",
    "OffsetTable",
    "OtherBrokerLogDirError",
    "OtherClusterLogDirError",
    "PartitionFailed",
    "PartitionsDone",
    "Pattern",
    "PlaneClosedError",
    "ProduceError",
    "Producer",
    "ProducerAuthenticationError",
    "RecordTooLargeError",
    "RecordsDeleted",
    "RegistryNotAvailableError",
    "ReplicaDigestDone",
    "Request",
    "Scan",
    "ScanClosedError",
    "ScanError",
    "Session",
    "ShutdownDone",
    "TopicDeletedError",
    "TopicsMissing",
    "TransactionFencedError",
    "Transactions",
    "UnknownTopicError",
    "UnsupportedBrokerError",
    "UnsupportedClusterError",
    "VerifyTransaction",
    "__version__",
    "api_table",
    "check_access",
    "commit_error",
    "crc32c",
    "decoded_schema",
    "decompress",
    "drain_arena",
    "drop_arenas",
    "dump_file",
    "feature_table",
    "java_hash",
    "latest_schema",
    "list_arenas",
    "memory_bytes",
    "open_producer",
    "open_scan",
    "open_transactions",
    "remove_arena",
    "run_load",
    "set_clock_ahead_ms",
    "time_bounds_ns",
    "topic_names",
]

__version__: str

class LogDirError(OSError):
    """A log directory cannot be used; the message says which and what to do."""

class LogDirLockedError(LogDirError):
    """Another process holds the directory's ``.lock``."""

class ForeignLogDirError(LogDirError):
    """``meta.properties`` is of a newer format or damaged, or two directories contradict each
    other."""

class OtherClusterLogDirError(LogDirError):
    """``meta.properties`` names another cluster."""

class OtherBrokerLogDirError(LogDirError):
    """``meta.properties`` names another broker."""

class PlaneClosedError(RuntimeError):
    """The plane was shut down."""

class ScanError(Exception):
    """A scan cannot begin or go on; the message says why."""

class ScanClosedError(ScanError):
    """The scan was closed, or is read elsewhere."""

class UnknownTopicError(ScanError):
    """A topic or partition does not exist."""

class AuthenticationError(ScanError):
    """A broker refused the client's name or token, or one side the other's certificate."""

class NotAuthorizedError(ScanError):
    """The client may not read a topic."""

class OffsetOutOfRangeError(ScanError):
    """An offset was deleted, or was never in the log."""

class LogTruncatedError(ScanError):
    """Records that were read are no longer in the log (KIP-320)."""

class TopicDeletedError(ScanError):
    """A topic was deleted, or created anew, during the scan."""

class LeaderNotAvailableError(ScanError):
    """A partition had no leader that answers in time."""

class BrokerNotAvailableError(ScanError):
    """No broker could be reached in time."""

class UnsupportedBrokerError(ScanError):
    """A broker is too old for what is asked."""

class BrokerProtocolError(ScanError):
    """A broker does not follow Kafka's protocol."""

class CorruptBatchError(ScanError):
    """Records do not hold together."""

class BadRecordsError(ScanError):
    """Records whose values do not fit cannot be written to their topic."""

class BadValueError(ScanError):
    """A value is not what the schema of a scan says."""

class RegistryNotAvailableError(ScanError):
    """A registry of schemas gave no answer in time."""

class BatchTooLargeError(ScanError):
    """A batch or record exceeds the limit."""

class ProduceError(Exception):
    """Records are not written, or a transaction is not ended; the message says why."""

class ProducerAuthenticationError(ProduceError):
    """A broker refused the client's name or token, or one side the other's certificate."""

class TransactionFencedError(ProduceError):
    """The transaction was ended by its coordinator or by another producer of its id."""

class ClusterUnavailableError(ProduceError):
    """Brokers did not answer in time, or did not take records."""

class UnsupportedClusterError(ProduceError):
    """A broker is too old for what is asked."""

class RecordTooLargeError(ProduceError):
    """A record is larger than its topic allows."""

class LogEndMovedError(ProduceError):
    """A log does not end where records with their own offsets are to follow."""

@final
class Session:
    connection: int
    principal: str
    host: str
    port: int
    client_id: str | None
    listener: str
    software_name: str | None
    software_version: str | None

@final
class Request:
    __match_args__ = ("id", "api_key", "api_version", "session", "body")
    id: int
    api_key: int
    api_version: int
    session: Session
    body: bytes

@final
class Heartbeat:
    """A :class:`Request` whose body says this."""

    __match_args__ = ("id", "api_key", "api_version", "session", "body")
    id: int
    api_key: int
    api_version: int
    session: Session
    body: bytes
    group_id: str
    generation: int
    member_id: str
    instance_id: str | None

@final
class OffsetCommit:
    """A :class:`Request` whose body says this; all its partitions exist."""

    __match_args__ = ("id", "api_key", "api_version", "session", "body")
    id: int
    api_key: int
    api_version: int
    session: Session
    body: bytes
    group_id: str
    generation: int
    member_id: str
    instance_id: str | None
    metadata_units: int
    """UTF-16 units of the longest note."""
    size_bytes: int
    """About what its records take in a batch."""

@final
class CommitBatch:
    """Commits that ``append_commits`` works on."""

    is_answered: bool

@final
class OffsetTable:
    """Committed offsets of one group: (record offset, offset, leader epoch, metadata, commit time,
    expiry time or -1) of each (topic, partition)."""

    pending: int
    """Partitions of which a commit is under way."""
    is_unused: bool
    """Nothing is committed and nothing is on its way."""
    def __new__(cls) -> OffsetTable: ...
    def __len__(self) -> int: ...
    def is_pending(self, topic: str, partition: int) -> bool: ...
    def get(self, topic: str, partition: int) -> tuple[int, int, int, str, int, int] | None: ...
    def items(self) -> list[tuple[tuple[str, int], tuple[int, int, int, str, int, int]]]:
        """In order of topic and partition."""
    def page(
        self, after: tuple[str, int] | None, max: int
    ) -> list[tuple[tuple[str, int], tuple[int, int, int, str, int, int]]]:
        """Up to ``max`` of them, behind this one."""
    def topics(self) -> list[str]:
        """Those with offsets that are committed or under way."""
    def partitions(self, topic: str) -> list[int]:
        """The same of one topic."""
    def stage(self, ticket: int, partitions: Sequence[tuple[str, int]]) -> None:
        """An append of these partitions has begun."""
    def stage_commit(self, ticket: int, commit: OffsetCommit) -> bool:
        """``append_commits`` will be given this commit. False, and nothing is staged, where it is
        staged already or one of its partitions exists no more."""
    def finish(
        self,
        ticket: int,
        offsets: Sequence[tuple[tuple[str, int], tuple[int, int, int, str, int, int] | None]],
    ) -> None:
        """That append is over; None where it failed."""
    def keep(
        self, offsets: Sequence[tuple[tuple[str, int], tuple[int, int, int, str, int, int]]]
    ) -> None:
        """Takes in offsets of the log, each unless a newer one is known."""
    def remove(self, partitions: Sequence[tuple[str, int]]) -> list[tuple[str, int]]:
        """Forgets; returns those whose log holds an offset or is about to."""
    def remove_expired(
        self,
        now_ms: int,
        retention_ms: int,
        since_ms: int | None,
        kept_topics: Set[str],
        kept: Set[tuple[str, int]],
    ) -> list[tuple[str, int]]:
        """Forgets offsets whose time is over, counted since then or since each commit, but for
        these and those of which a commit is under way; returns their partitions."""
    def clear(self) -> list[tuple[str, int]]: ...

@final
class TopicsMissing:
    __match_args__ = ("id", "topics", "session")
    id: int
    topics: list[str]
    session: Session

@final
class ClientGone:
    """The client of a Request, OffsetCommit or TopicsMissing that is not answered yet sends nothing
    more; it is still to be answered or closed."""

    __match_args__ = ("id",)
    id: int

@final
class PartitionsDone:
    """Ticket of ``become_leaders``, ``become_followers`` and ``stop_partitions``: one error code a
    spec, 0 = done."""

    __match_args__ = ("ticket", "errors")
    ticket: int
    errors: list[int]

@final
class RecordsDeleted:
    """Ticket of ``delete_records``: (error code, low watermark or -1) in order."""

    __match_args__ = ("ticket", "results")
    ticket: int
    results: list[tuple[int, int]]

@final
class LogDirsDescribed:
    __match_args__ = ("ticket", "log_dirs")
    ticket: int
    log_dirs: list[tuple[str, int, int, int, list[tuple[str, int, int, int, bool]]]]
    """The fields of :class:`LogDirUsage`."""

@final
class InternalAppended:
    """Ticket of ``append_internal``: an error code, 0 once the high watermark has passed the batch,
    and the offset of its first record, -1 with an error."""

    __match_args__ = ("ticket", "error", "base_offset")
    ticket: int
    error: int
    base_offset: int

@final
class InternalReadDone:
    """Ticket of ``read_internal``: an error code, the batches, where to go on, and the end."""

    __match_args__ = ("ticket", "error", "batches", "next_offset", "end_offset")
    ticket: int
    error: int
    batches: list[
        tuple[int, int, int, bool, bool, list[tuple[int, bytes | None, bytes | None]], str | None]
    ]
    """The fields of :class:`InternalBatch`, with those of :class:`InternalRecord`."""
    next_offset: int
    end_offset: int

@final
class LiveRecords:
    """What ``load_internal`` found; see :class:`pyrklog.plane.internal_log.LiveRecords`."""

    end_offset: int
    read: int
    damaged: list[tuple[int, str]]
    damaged_count: int
    def __len__(self) -> int: ...
    def take(self, max: int) -> list[tuple[int, bytes, bytes]]: ...
    def open_transactions(self) -> list[tuple[int, int, int]]: ...
    def take_open(self, producer_id: int, max: int) -> list[tuple[int, bytes, bytes | None]]: ...

@final
class InternalLoaded:
    """Ticket of ``load_internal``: an error code, and the records, None with an error."""

    __match_args__ = ("ticket", "error", "records")
    ticket: int
    error: int
    records: LiveRecords | None

@final
class MarkersWritten:
    """Ticket of ``write_markers``: (error code, offset of the marker or -1) in order."""

    __match_args__ = ("ticket", "results")
    ticket: int
    results: list[tuple[int, int]]

@final
class VerifyTransaction:
    """A Produce request waits until ``transaction_verified`` is called with this id."""

    __match_args__ = (
        "id",
        "transactional_id",
        "producer_id",
        "producer_epoch",
        "partitions",
        "enrols",
    )
    id: int
    transactional_id: str
    producer_id: int
    producer_epoch: int
    partitions: list[tuple[str, int]]
    enrols: bool

@final
class ReplicaDigestDone:
    """Ticket of ``replica_digest``; with an error nothing else counts."""

    ticket: int
    digest: tuple[
        int, int, int, int, int, int, int, int, int, tuple[int, int, int, int] | None, int
    ]
    """The fields of :class:`ReplicaDigest`."""

@final
class ShutdownDone:
    __match_args__ = ("ticket", "clean")
    ticket: int
    clean: bool

@final
class FollowerCaughtUp:
    """A follower that may join the in-sync replicas; its broker epoch is -1 where unknown."""

    __match_args__ = ("topic", "partition", "leader_epoch", "broker", "broker_epoch")
    topic: str
    partition: int
    leader_epoch: int
    broker: int
    broker_epoch: int

@final
class FollowerLogStart:
    """A follower's log starts elsewhere than at the last look at ``log_starts``."""

    __match_args__ = ("topic", "partition")
    topic: str
    partition: int

@final
class LogDirFailed:
    __match_args__ = ("path", "reason", "partitions")
    path: str
    reason: str
    partitions: list[tuple[str, int]]

@final
class PartitionFailed:
    __match_args__ = ("topic", "topic_id", "partition", "reason")
    topic: str
    topic_id: bytes
    partition: int
    reason: str

@final
class Notice:
    __match_args__ = ("event", "fields", "level")
    event: str
    fields: dict[str, str]
    level: Literal["info", "warning", "error"]

Event = (
    Request
    | Heartbeat
    | OffsetCommit
    | TopicsMissing
    | ClientGone
    | PartitionsDone
    | RecordsDeleted
    | LogDirsDescribed
    | InternalAppended
    | InternalReadDone
    | InternalLoaded
    | MarkersWritten
    | ReplicaDigestDone
    | ShutdownDone
    | FollowerCaughtUp
    | FollowerLogStart
    | LogDirFailed
    | PartitionFailed
    | VerifyTransaction
    | Notice
)

@final
class DataPlane:
    def __new__(cls, settings: PlaneSettings) -> DataPlane: ...
    def found_partitions(self) -> list[tuple[str, int, bytes | None, str]]:
        """(topic, partition, topic id or None, log directory)."""
    def pasts(self) -> list[tuple[int | None, bool]]:
        """Each usable log directory: (broker epoch of an orderly shutdown or None, reattached)."""
    def listen(self, listener: str, host: str, port: int, for_brokers: bool) -> int: ...
    def apply_image(self, delta: ImageDelta) -> None: ...
    def become_leaders(self, specs: Sequence[LeaderSpec]) -> int: ...
    def become_followers(self, specs: Sequence[FollowerSpec]) -> int: ...
    def log_ends(self, partitions: Sequence[tuple[str, int]]) -> list[tuple[int, int] | None]: ...
    def replica_offsets(
        self, partitions: Sequence[tuple[str, int]]
    ) -> list[tuple[int, int, int, int] | None]:
        """Of each: log end, high watermark, log start offset, bytes."""
    def served_bytes(self, topic: str) -> tuple[int, int]: ...
    def data_ends(self, partitions: Sequence[tuple[str, int]]) -> list[int | None]: ...
    def set_isr(
        self,
        topic: str,
        partition: int,
        leader_epoch: int,
        members: Sequence[int],
        isr: Sequence[int],
        is_held: bool,
    ) -> bool: ...
    def lagging_followers(self, max_lag_ms: int) -> list[tuple[str, int, int, list[int]]]:
        """(topic, partition, leader epoch, brokers)."""
    def set_broker_epoch(self, epoch: int) -> None: ...
    def set_replication_rates(
        self, *, leader_bytes: int | None, follower_bytes: int | None
    ) -> None: ...
    def set_back_fill_rate(self, bytes: int) -> None: ...
    def set_replication_window_ms(self, window_ms: int) -> None: ...
    def set_move_rate(self, bytes: int | None) -> None: ...
    def set_move_window_ms(self, window_ms: int) -> None: ...
    def set_connection_quotas(self, quotas: ConnectionQuotas) -> None: ...
    def set_io_threads(self, threads: int) -> None: ...
    def set_recovery_threads_per_dir(self, threads: int) -> None: ...
    def set_producer_id_expiration_ms(self, expiration_ms: int) -> None: ...
    def set_cleaner(self, settings: CleanerSettings) -> None: ...
    def stop_partitions(self, specs: Sequence[tuple[str, int, bool]]) -> int:
        """Each (topic, partition, delete)."""
    def delete_records(self, targets: Sequence[tuple[str, int, int]]) -> int:
        """Each (topic, partition, offset; -1 = high watermark)."""
    def log_starts(
        self, partitions: Sequence[tuple[str, int]]
    ) -> list[tuple[int, int, list[tuple[int, int]]]]:
        """Of each: (error code, own log's start, (broker, start) of each follower)."""
    def alter_log_dirs(self, wanted: Sequence[tuple[str, int, str]]) -> list[int]:
        """Each (topic, partition, path)."""
    def describe_log_dirs(self) -> int: ...
    def append_internal(
        self,
        topic: str,
        partition: int,
        records: Sequence[tuple[bytes, bytes | None, Sequence[tuple[bytes, bytes]]]],
        *,
        timestamp_ms: int,
        codec: int,
        expected_epoch: int,
        producer: tuple[int, int] | None,
        guard: int | None,
    ) -> int:
        """One batch of (key, value, headers); ``codec`` as in a batch's attributes; ``producer`` is
        (id, epoch) of a transaction; ``guard`` comes from ``begin_verification``."""
    def append_commits(
        self,
        topic: str,
        partition: int,
        commits: Sequence[OffsetCommit],
        *,
        timestamp_ms: int,
        codec: int,
        expected_epoch: int,
    ) -> CommitBatch:
        """One batch of staged commits, which are answered when that is over."""
    def time_out_commits(self, batch: CommitBatch) -> None:
        """Those that are not answered yet are told REQUEST_TIMED_OUT."""
    def read_internal(self, topic: str, partition: int, offset: int, *, max_bytes: int) -> int: ...
    def load_internal(self, topic: str, partition: int, *, max_bytes: int) -> int: ...
    def write_markers(
        self, markers: Sequence[tuple[str, int, int, int, int, bool, int]], *, timestamp_ms: int
    ) -> int:
        """Each with the fields of :class:`Marker`."""
    def begin_verification(
        self, topic: str, partition: int, producer_id: int, producer_epoch: int
    ) -> tuple[int, int]:
        """(error code, guard); guard 0: a transaction of this producer is open."""
    def end_verification(
        self, topic: str, partition: int, producer_id: int, producer_epoch: int, guard: int
    ) -> None:
        """A guard that is void is ignored."""
    def transaction_verified(self, id: int, errors: Sequence[int]) -> None:
        """One error code of the coordinator for each partition; an unknown id is ignored."""
    def set_transaction_verification(self, is_on: bool) -> None: ...
    def offer_client_metrics(self, is_on: bool) -> None:
        """Whether ApiVersions lists the requests by which clients push metrics; at first not."""
    def active_producers(
        self, topic: str, partition: int, *, max: int
    ) -> tuple[int, list[tuple[int, int, int, int, int, int]]]:
        """(error code, producers); these have the fields of :class:`ActiveProducer`."""
    def replica_digest(
        self, topic: str, partition: int, start: int, end: int, *, max_bytes: int
    ) -> int: ...
    def reply(self, request: int, body: bytes) -> None: ...
    def answer_heartbeat(self, heartbeat: Heartbeat, error: int) -> None:
        """Answers it with this code."""
    def resume(self, request: int, errors: Mapping[str, int]) -> None: ...
    def close_request(self, request: int) -> None: ...
    def park(self, request: int) -> bool:
        """The request keeps its connection waiting, but not its place in the channel to Python.
        False: there is no memory for more that wait, and it is to be answered now. Unknown and
        answered requests are ignored."""
    def statistics(self) -> dict[str, int]: ...
    def times(self) -> list[tuple[str, list[int]]]:
        """Histograms by name: counts of each bucket, then the sum in nanoseconds."""
    def shutdown(self, grace_ms: int) -> int: ...
    def abandon(self) -> None:
        """Ends a start that failed: log directories are left as they had been."""
    def event_fd(self) -> int: ...
    def drain_events(self, max: int) -> list[Event]: ...

@final
class ApiRow:
    key: int
    name: str
    min_version: int
    max_version: int
    flexible_since: int
    """32767 where no version is flexible."""
    owner: Literal["rust", "python"]

def api_table() -> list[ApiRow]: ...
def feature_table() -> list[tuple[str, int, int, int]]:
    """Features of ApiVersions (KIP-584): name, lowest and highest supported version, finalized
    version."""

@final
class Pattern:
    """A regular expression without backtracking: matching takes linear time."""

    def __new__(cls, text: str) -> Pattern:
        """Raises ``ValueError`` where it cannot be read or is too large."""
    def matches(self, text: str) -> bool:
        """The whole text."""

def crc32c(bytes: bytes) -> int: ...
def decompress(codec: int, body: bytes, max_bytes: int) -> bytes:
    """``codec`` as in a batch's attributes. Raises ``ValueError`` for no such codec or corrupt
    bytes, ``OverflowError`` beyond ``max_bytes``.
    """

def time_bounds_ns() -> list[int]:
    """Upper bounds of the buckets of :meth:`DataPlane.times`; one more has what is longer."""

def java_hash(utf16: bytes) -> int:
    """``String.hashCode`` of a text in UTF-16, big endian."""

def commit_error(error: int) -> int:
    """What a client is told when its offsets could not be written for this reason."""

def run_load(arguments: list[str]) -> str:
    """Runs the load generator with this command line; what it prints, a line of JSON. Prints how
    far it is on standard error. Raises ValueError for a command line that is not understood
    (``--help`` tells them), RuntimeError with the reason if the run fails."""

def dump_file(path: str, *, records: bool, verify: bool) -> Iterator[dict[str, object]]:
    """Rows of one file of a partition folder or checkpoint, for ``pyrklog log dump``."""

def list_arenas(
    directory: str,
) -> list[tuple[str, str, str, int, int | None, int | None, int | None, int | None, str | None]]:
    """Arenas in a directory: path, log directory, state, size in bytes, bytes of records, since
    when it is kept in milliseconds since the epoch, partitions with records that are not in their
    files, bytes of these, what is wrong. Raises OSError.
    """

def set_clock_ahead_ms(ahead_ms: int) -> None:
    """Sets the time of day of the data plane so far ahead of the machine's, for tests."""

def memory_bytes() -> int:
    """The smaller of RAM and the limit of this process's memory groups."""

def drain_arena(log_dir: str) -> tuple[int, int]:
    """Brings what a killed broker left in its arena to the files: partitions, bytes.

    Raises OSError.
    """

def drop_arenas(directory: str, log_dir: str | None) -> tuple[int, int]:
    """Removes what orderly ends left in a directory, of all or of one log directory: arenas,
    bytes. Raises OSError.
    """

def remove_arena(path: str, *, force: bool) -> None:
    """Removes an arena's file; ValueError when in use, or when it would be missed."""

@final
class Scan:
    """A planned scan; what each method gives: ``scanning/scan.py``."""

    def splits(self) -> list[tuple[str, int, bytes, int, int]]:
        """(topic, partition, topic id, start, end)."""
    def progress(self) -> list[tuple[int, int, int, int, int, int]]:
        """(position, leader epoch, records, bytes, skipped, bad), in the order of the splits."""
    def schema_capsule(self) -> object: ...
    def stream_capsule(self) -> object: ...
    def next_batch(self, most_ms: int | None) -> tuple[tuple[object, object] | None, bool]:
        """(schema, array), and whether the scan has ended. Without a batch it has, or none came in
        time."""
    def failure(self) -> Exception | None: ...
    def left_out(self) -> list[tuple[str, int, str]]:
        """(topic, partition, why)."""
    def close(self) -> None: ...

def open_scan(settings: ScanSettings) -> Scan:
    """Asks the cluster what there is to read."""

def topic_names(settings: ScanSettings) -> list[str]:
    """All topics but internal ones, sorted. Raises as ``open_scan``."""

def decoded_schema(settings: CoreDecode) -> object | None:
    """A schema's capsule: ``scanning/decoding.py``."""

def latest_schema(
    registry: str, subject: str, connect_timeout_ms: int, request_timeout_ms: int
) -> str:
    """The latest schema of a subject: ``scanning/registry.py``."""

def check_access(settings: AccessSettings) -> None:
    """Asks the first broker that can be reached. Raises AuthenticationError."""

_OpenRow = tuple[str, int, int, list[tuple[str, list[int]]]]
"""(transactional id, producer id, epoch, partitions by topic)."""

@final
class Producer:
    """What each method does: ``producing/producer.py``."""

    def producer_id(self) -> tuple[int, int]: ...
    def send(self, reader: object) -> None:
        """The batches of a ``pyarrow.RecordBatchReader``."""
    def follow(self, topic: str, partition: int, end: int) -> None: ...
    def flush(self) -> None: ...
    def end(self, commit: bool) -> None: ...
    def written(self) -> list[tuple[str, int, int]]:
        """(topic, partition, records)."""
    def acknowledged_bytes(self) -> int: ...

def open_producer(settings: ProducerSettings) -> Producer:
    """Connects, and gets a producer id."""

@final
class Transactions:
    """What each method does: ``producing/transactions.py``."""

    def init(self, id: str, timeout_ms: int) -> tuple[int, int]:
        """(producer id, epoch)."""
    def check(self, all: list[_OpenRow]) -> list[str | None]: ...
    def end(self, all: list[_OpenRow], commit: bool) -> list[str | None]: ...
    def open_with_prefix(self, prefix: str) -> list[str]: ...

def open_transactions(settings: ProducerSettings) -> Transactions:
    """Connects with the first question."""
