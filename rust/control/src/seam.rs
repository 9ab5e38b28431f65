//! The seam's types: the control plane's commands, and their results.
//!
//! Python owns the *desired state* and compiles it into deltas of a versioned image and into
//! partition commands; the plane owns bytes, offsets and sockets. The bridge converts these plain
//! types one to one. Contract: `design.md`, "The seam".
#![allow(missing_docs)] // Docs say what the names do not.

use std::path::PathBuf;

use pyrklog_log::DIRECT_MIN_BYTES;
use pyrklog_wire::ErrorCode;

pub use crate::connection_quotas::{ConnectionQuotas, ListenerQuota};
pub use crate::control_request::{ControlRequest, Session, Software};
pub use crate::event::Event;
pub use crate::image_delta::{BrokerImage, ImageDelta, PartitionImage, TopicConfig, TopicImage};
pub use crate::live_records::LiveRecords;
pub use pyrklog_base::ids::{RequestId, TicketId, TopicId};
pub use pyrklog_base::replication_quota::{Throttled, ThrottledReplicas};
pub use pyrklog_log::producer_state::verification::ActiveProducer;

/// Options that are fixed for the life of the process.
#[derive(Clone, Debug)]
pub struct PlaneConfig {
    /// `broker.id` / `node.id`.
    pub node_id: i32,
    /// Cluster id that every log directory's `meta.properties` must have.
    pub cluster_id: String,
    /// `log.dirs` in order; created if missing.
    pub log_dirs: Vec<PathBuf>,
    /// `num.network.threads`.
    pub network_threads: usize,
    /// `num.io.threads`: threads per log directory that wait for its disk.
    pub reader_threads: usize,
    /// `num.recovery.threads.per.data.dir`.
    pub recovery_threads_per_dir: usize,
    /// `pyrklog.writer.threads.per.data.dir`.
    pub writer_threads_per_dir: usize,
    /// `socket.request.max.bytes`: a larger frame closes its connection.
    pub socket_request_max_bytes: usize,
    /// `queued.max.request.bytes`: bound of partly received frames.
    pub receive_buffers_max_bytes: usize,
    /// `queued.max.requests`: unanswered requests at the control plane.
    pub control_queue_max_requests: usize,
    /// `connections.max.idle.ms`.
    pub connections_max_idle_ms: i64,
    /// `max.connections`.
    pub max_connections: usize,
    /// `max.connections.per.ip`.
    pub max_connections_per_ip: usize,
    /// `socket.send.buffer.bytes`; -1: the system's default.
    pub socket_send_buffer_bytes: i32,
    /// `socket.receive.buffer.bytes`; -1: the system's default.
    pub socket_receive_buffer_bytes: i32,
    /// `fetch.max.bytes`: limit of a Fetch reply, whatever the client asks for.
    pub fetch_max_bytes: usize,
    /// `max.incremental.fetch.session.cache.slots`.
    pub fetch_session_slots: usize,
    /// `fetch.read.path`.
    pub fetch_read_path: ReadPath,
    /// `pyrklog.unwritten.max.bytes`: appended bytes of a log directory that may wait for its
    /// writers; beyond it, producers are muted. `None`: half of its block cache. At most 64 MiB are
    /// outside the cache.
    pub unwritten_max_bytes: Option<usize>,
    pub cache: CacheConfig,
    pub cleaner: CleanerConfig,
    /// `num.replica.alter.log.dirs.threads`, for all log directories.
    pub move_threads: usize,
    /// `log.flush.offset.checkpoint.interval.ms` (recovery point).
    pub recovery_checkpoint_interval_ms: i64,
    /// `log.flush.start.offset.checkpoint.interval.ms`.
    pub log_start_checkpoint_interval_ms: i64,
    /// `replica.high.watermark.checkpoint.interval.ms`.
    pub high_watermark_checkpoint_interval_ms: i64,
    /// `log.retention.check.interval.ms`.
    pub retention_check_interval_ms: i64,
    /// `producer.id.expiration.ms`.
    pub producer_id_expiration_ms: i64,
    /// `auto.create.topics.enable`: a Metadata request that names a missing topic, and allows
    /// creation, raises [`Event::TopicsMissing`].
    pub auto_create_topics: bool,
    /// Set in a cluster: the broker then serves other brokers' requests.
    pub cluster: Option<ClusterConfig>,
}

/// How a cluster's brokers reach and follow each other.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ClusterConfig {
    /// The brokers' listener.
    pub listener: String,
    /// `num.replica.fetchers`: threads, connections and sessions per leader.
    pub fetchers: usize,
    /// `replica.fetch.wait.max.ms`.
    pub fetch_wait_max_ms: i32,
    /// `replica.fetch.min.bytes`.
    pub fetch_min_bytes: i32,
    /// `replica.fetch.max.bytes`, per partition.
    pub fetch_max_bytes: i32,
    /// `replica.fetch.response.max.bytes`.
    pub fetch_response_max_bytes: i32,
    /// `replica.fetch.backoff.ms`: longest pause after a partition or leader failed.
    pub fetch_backoff_ms: i64,
    /// `replica.socket.timeout.ms`.
    pub socket_timeout_ms: i64,
    /// `pyrklog.expansion.rate`: bytes a second of all back-fills together; 0 is none.
    pub back_fill_rate_bytes: u64,
    /// `pyrklog.expansion.window.ms`: how long no consumer may have read what a promotion deletes.
    pub promotion_window_ms: i64,
    /// `replica.selector.class` is rack-aware: consumers are sent to an in-sync follower in their
    /// rack (KIP-392).
    pub reads_by_rack: bool,
}

/// The block cache (`block-cache.md`).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CacheConfig {
    /// `pyrklog.cache.dir`: directory of the arenas, in shared memory. `None`: no cache; records
    /// are written to files before they are acknowledged.
    pub dir: Option<PathBuf>,
    /// `pyrklog.cache.max.bytes`, over all log directories; `None`: a share of the memory.
    pub max_bytes: Option<u64>,
    /// `pyrklog.cache.keep`: an orderly shutdown keeps the cache.
    pub keeps: bool,
    /// `pyrklog.cache.drop`: drop a kept cache.
    pub drops: bool,
    /// `pyrklog.cache.flush.bytes`: unwritten bytes after which a partition is written.
    pub flush_bytes: usize,
    /// `pyrklog.cache.flush.ms`: or after this time.
    pub flush_ms: i64,
    /// `pyrklog.cache.direct.min.bytes`: writes from this size on bypass the page cache.
    pub direct_min_bytes: u32,
}

impl CacheConfig {
    pub fn off() -> CacheConfig {
        CacheConfig {
            dir: None,
            max_bytes: None,
            keeps: false,
            drops: false,
            flush_bytes: 256 * 1024,
            flush_ms: 500,
            direct_min_bytes: DIRECT_MIN_BYTES,
        }
    }
}

/// How logs are compacted (`compaction.md`).
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct CleanerConfig {
    /// `log.cleaner.enable`.
    pub is_enabled: bool,
    /// `log.cleaner.threads`, for all log directories.
    pub threads: usize,
    /// `log.cleaner.dedupe.buffer.size`: memory of all threads for keys.
    pub dedupe_buffer_bytes: usize,
    /// `log.cleaner.io.buffer.load.factor`: how full that memory may get.
    pub load_factor: f64,
    /// `log.cleaner.io.max.bytes.per.second`: of all threads, read and written.
    pub io_max_bytes_per_second: f64,
    /// `log.cleaner.backoff.ms`: pause of a thread that found nothing to clean.
    pub backoff_ms: i64,
}

impl Default for CleanerConfig {
    /// The defaults of Kafka 3.9.
    fn default() -> Self {
        CleanerConfig {
            is_enabled: true,
            threads: 1,
            dedupe_buffer_bytes: 128 << 20,
            load_factor: 0.9,
            io_max_bytes_per_second: f64::MAX,
            backoff_ms: 15_000,
        }
    }
}

/// How file bytes of fetches reach the socket (`fetch.read.path`, reads.md).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ReadPath {
    /// From 64 KiB of file bytes on, a reader sends resident bytes by sendfile and others from
    /// windows, past the page cache. Smaller replies as with `Copy`.
    Auto,
    /// From 64 KiB of file bytes on, a reader sends everything by sendfile through the page cache.
    /// Smaller replies as with `Copy`.
    Sendfile,
    /// The network thread copies resident bytes (preadv2 with RWF_NOWAIT) and sends them; a reader
    /// reads others.
    Copy,
}

/// `become_leaders`: this broker leads the partition in this epoch.
#[derive(Clone, Debug)]
pub struct LeaderSpec {
    /// Must be in the image already.
    pub topic: String,
    pub partition: i32,
    /// Lower than the partition's is refused (FENCED_LEADER_EPOCH).
    pub leader_epoch: i32,
    pub replicas: Vec<i32>,
    pub isr: Vec<i32>,
    /// The controller has just created the partition: a missing folder is created, in the directory
    /// with the fewest partitions. Otherwise too, unless a failed log directory may hold it: then
    /// the partition is offline (Kafka's rule).
    pub is_new: bool,
    /// Replicas outside the ISR have everything clients were told of and may be elected (eligible
    /// leader replicas, KIP-966): the high watermark stands still.
    pub is_held: bool,
    /// Replicas that start at this broker's log end, and may join the ISR only once they lack
    /// nothing that this log has (`expansion.md`).
    pub partial: Vec<i32>,
}

/// `become_followers`: this broker follows another in this partition and epoch.
#[derive(Clone, Debug)]
pub struct FollowerSpec {
    /// Must be in the image already.
    pub topic: String,
    pub partition: i32,
    /// The leader's broker id; -1: none, nothing is fetched.
    pub leader: i32,
    /// As with [`LeaderSpec`].
    pub leader_epoch: i32,
    pub replicas: Vec<i32>,
    /// The replication rate does not hold back an in-sync replica that does not yet know its
    /// leader's high watermark.
    pub isr: Vec<i32>,
    /// As with [`LeaderSpec`].
    pub is_new: bool,
    /// This replica is one of [`LeaderSpec::partial`].
    pub is_partial: bool,
}

/// A follower that may join the ISR: its log reaches the high watermark and the leader epoch's
/// start.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CaughtUp {
    pub topic: String,
    pub partition: i32,
    pub leader_epoch: i32,
    pub broker: i32,
    /// Its broker epoch at its fetch, -1 unknown.
    pub broker_epoch: i64,
}

/// A partition that is offline until the next start: it broke an invariant, or its log, which
/// waited for space, cannot be opened.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FailedPartition {
    pub topic: String,
    /// The name alone might be another topic's by now.
    pub topic_id: TopicId,
    pub partition: i32,
    /// One sentence.
    pub reason: String,
}

/// A partition's in-sync followers that have fallen behind.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Behind {
    pub topic: String,
    pub partition: i32,
    pub leader_epoch: i32,
    pub brokers: Vec<i32>,
}

/// `stop_partitions`: stops serving or deletes the partition.
#[derive(Clone, Debug)]
pub struct StopSpec {
    pub topic: String,
    pub partition: i32,
    /// Rename the folder to `*-delete` and remove it in the background.
    pub delete: bool,
}

/// The result of a slow command.
#[derive(Debug)]
pub enum TicketOutcome {
    /// `become_leaders`, `become_followers`, `stop_partitions`: an error code per spec, in order; 0
    /// = done.
    Partitions(Vec<i16>),
    /// `delete_records`: (error code, low watermark or -1), in order.
    DeleteRecords(Vec<(i16, i64)>),
    LogDirs(Vec<LogDirDescription>),
    InternalAppended {
        /// 0: the high watermark has passed the batch. With any other code it may still be in the
        /// log, now or later.
        error_code: i16,
        /// First record's offset, -1 with an error.
        base_offset: i64,
    },
    InternalRead(InternalRead),
    /// `load_internal`: what counts, or an error code.
    InternalLoaded(Result<LiveRecords, i16>),
    /// `write_markers`: (error code, offset of the marker or -1), in order. 0: the high watermark
    /// has passed it; with any other code it may still be in the log, now or later.
    Markers(Vec<(i16, i64)>),
    ReplicaDigest(ReplicaDigest),
    /// `shutdown`: whether everything was written, synced and marked clean.
    Shutdown(bool),
}

impl TicketOutcome {
    pub fn internal_appended(error: ErrorCode, base_offset: i64) -> TicketOutcome {
        let base_offset = match error {
            ErrorCode::NONE => base_offset,
            _ => -1,
        };
        TicketOutcome::InternalAppended {
            error_code: error.0,
            base_offset,
        }
    }
}

/// A batch for a partition of an internal topic, without its records.
#[derive(Clone, Copy, Debug)]
pub struct InternalAppend<'a> {
    pub topic: &'a str,
    pub partition: i32,
    /// Timestamp of all records (CreateTime).
    pub timestamp_ms: i64,
    /// Codec as in a batch's attributes: 0 none, 1 gzip, 2 snappy, 3 lz4, 4 zstd.
    pub codec: u8,
    /// The caller's leader epoch, or an earlier one since which this broker has led without a
    /// break: the caller's knowledge of the log is then still valid.
    pub expected_epoch: i32,
    /// (id, epoch) of the producer of the records' transaction.
    pub producer: Option<(i64, i16)>,
    /// What `begin_verification` gave for it, 0 included; `None`: it is not verified.
    pub guard: Option<u64>,
}

/// The end of a transaction in one partition.
#[derive(Clone, Debug)]
pub struct Marker {
    pub topic: String,
    pub partition: i32,
    pub producer_id: i64,
    pub producer_epoch: i16,
    /// Leader epoch of the coordinator's partition.
    pub coordinator_epoch: i32,
    /// Committed, else aborted.
    pub is_commit: bool,
    /// From 2 on `producer_epoch` is higher than that of the transaction's records (KIP-1228).
    pub transaction_version: i16,
}

/// A record of such a batch.
#[derive(Clone, Debug)]
pub struct NewRecord<'a> {
    pub key: &'a [u8],
    /// `None` for a tombstone.
    pub value: Option<&'a [u8]>,
    pub headers: Vec<pyrklog_wire::builder::HeaderToWrite<'a>>,
}

impl<'a> From<(&'a [u8], Option<&'a [u8]>)> for NewRecord<'a> {
    fn from((key, value): (&'a [u8], Option<&'a [u8]>)) -> Self {
        NewRecord {
            key,
            value,
            headers: Vec::new(),
        }
    }
}

/// A transaction begins in these partitions, as far as they know (KIP-890).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct VerifyTransaction {
    /// For `transaction_verified`.
    pub id: u64,
    pub transactional_id: String,
    pub producer_id: i64,
    pub producer_epoch: i16,
    /// (topic, partition), at least one.
    pub partitions: Vec<(String, i32)>,
    /// The coordinator adds them; else it says whether they were added.
    pub enrols: bool,
}

/// Offsets to digest.
#[derive(Clone, Copy, Debug)]
pub struct DigestRange {
    /// First offset; the batch that holds it is included.
    pub start: i64,
    /// End offset; a batch that reaches beyond it is excluded.
    pub end: i64,
    /// Limit of the sum of batch sizes; the batch that reaches it is the last.
    pub max_bytes: usize,
}

/// Result of `replica_digest`.
#[derive(Clone, Copy, Debug)]
pub struct ReplicaDigest {
    /// The other fields are valid only with 0.
    pub error_code: i16,
    pub leader_epoch: i32,
    pub log_start_offset: i64,
    pub high_watermark: i64,
    /// Its durable end offset.
    pub log_end_offset: i64,
    /// Where to continue; the range's end once everything is included.
    pub next_offset: i64,
    /// Digest of the batches before `next_offset`.
    pub digest: i64,
    /// Their number.
    pub batches: i64,
    /// First damaged batch's offset, -1 for none; `next_offset` if the next batch cannot be found.
    pub damaged_offset: i64,
    pub first: Option<DigestedBatch>,
    /// Below it the replica is compacted, -1 for none.
    pub compacted_end: i64,
}

impl ReplicaDigest {
    pub fn failed(error_code: i16) -> ReplicaDigest {
        ReplicaDigest {
            error_code,
            leader_epoch: -1,
            log_start_offset: -1,
            high_watermark: -1,
            log_end_offset: -1,
            next_offset: -1,
            digest: 0,
            batches: 0,
            damaged_offset: -1,
            first: None,
            compacted_end: -1,
        }
    }
}

/// A batch of a digest.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DigestedBatch {
    pub base_offset: i64,
    pub last_offset: i64,
    pub leader_epoch: i32,
    /// CRC-32C of its bytes.
    pub crc: u32,
}

/// Result of `read_internal`.
#[derive(Debug)]
pub struct InternalRead {
    /// The other fields are valid only with 0.
    pub error_code: i16,
    /// In order.
    pub batches: Vec<InternalBatch>,
    /// Where to continue.
    pub next_offset: i64,
    /// End of the readable records.
    pub end_offset: i64,
}

/// A batch of an internal topic, decompressed and checked.
#[derive(Debug)]
pub struct InternalBatch {
    pub base_offset: i64,
    pub last_offset: i64,
    /// -1 without a producer.
    pub producer_id: i64,
    pub producer_epoch: i16,
    pub is_transactional: bool,
    /// A transaction's marker.
    pub is_control: bool,
    /// Records as in an uncompressed batch; see [`InternalBatch::records`].
    pub body: Vec<u8>,
    /// Why the batch cannot be read; it then has no records.
    pub damage: Option<String>,
}

impl InternalBatch {
    /// Offset, key and value of each record.
    pub fn records(&self) -> impl Iterator<Item = (i64, Option<&[u8]>, Option<&[u8]>)> {
        // The reader has checked them.
        pyrklog_wire::records::Records::new(&self.body)
            .map_while(Result::ok)
            .map(|record| {
                let offset = self.base_offset + i64::from(record.offset_delta);
                (offset, record.key, record.value)
            })
    }
}

/// One log directory (DescribeLogDirs v4).
#[derive(Debug)]
pub struct LogDirDescription {
    pub path: PathBuf,
    /// 0 or KAFKA_STORAGE_ERROR.
    pub error_code: i16,
    /// Size of the volume, -1 unknown.
    pub total_bytes: i64,
    /// Usable bytes, -1 unknown, 0 while the directory is full.
    pub usable_bytes: i64,
    /// (topic, partition, size in bytes, offset lag, whether it is a copy that moves here).
    pub partitions: Vec<(String, i32, i64, i64, bool)>,
}

/// A partition folder found at `DataPlane::open`.
#[derive(Clone, Debug)]
pub struct FoundPartition {
    /// From the folder's name.
    pub topic: String,
    pub partition: i32,
    /// From `partition.metadata`; `None` without that file.
    pub topic_id: Option<TopicId>,
    pub log_dir: PathBuf,
}
