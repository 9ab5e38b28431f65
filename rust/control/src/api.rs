//! The seam's vocabulary: what the control plane hands down, and what comes back up.
//!
//! Python owns *desired state*; it compiles it into deltas of a versioned broker image and into
//! partition commands. The plane owns bytes, offsets and sockets. These types are plain data: the
//! bridge converts them one to one and adds nothing. `design.md`, "The seam", is the contract
//! in prose.

use std::path::PathBuf;

use pyrklog_log::DIRECT_MIN_BYTES;
use pyrklog_wire::ErrorCode;

pub use crate::control_request::{ControlRequest, Session};
pub use crate::event::Event;
pub use crate::image_delta::{BrokerImage, ImageDelta, PartitionImage, TopicConfig, TopicImage};
pub use pyrklog_base::ids::{RequestId, TicketId, TopicId};
pub use pyrklog_base::replication_quota::{Throttled, ThrottledReplicas};

/// What is fixed for the life of the process. Byte and millisecond units are in the names.
#[derive(Clone, Debug)]
pub struct PlaneConfig {
    /// This broker's id (`broker.id` / `node.id`).
    pub node_id: i32,
    /// The cluster id that `meta.properties` of every log directory must carry.
    pub cluster_id: String,
    /// `log.dirs`, in the order configured. Created when missing.
    pub log_dirs: Vec<PathBuf>,
    /// `num.network.threads`.
    pub network_threads: usize,
    /// `num.io.threads`: threads of each log directory that wait for its disk on behalf of readers.
    pub reader_threads: usize,
    /// `num.recovery.threads.per.data.dir`.
    pub recovery_threads_per_dir: usize,
    /// `pyrklog.writer.threads.per.data.dir`.
    pub writer_threads_per_dir: usize,
    /// `socket.request.max.bytes`: a frame that announces more closes its connection.
    pub socket_request_max_bytes: usize,
    /// `queued.max.request.bytes`; the bound on the sum of partly received frames.
    pub receive_buffers_max_bytes: usize,
    /// `queued.max.requests`: requests handed to the control plane and not yet answered.
    pub control_queue_max_requests: usize,
    /// `connections.max.idle.ms`.
    pub connections_max_idle_ms: i64,
    /// `max.connections`.
    pub max_connections: usize,
    /// `max.connections.per.ip`.
    pub max_connections_per_ip: usize,
    /// `socket.send.buffer.bytes`; -1 = the system's default.
    pub socket_send_buffer_bytes: i32,
    /// `socket.receive.buffer.bytes`; -1 = the system's default.
    pub socket_receive_buffer_bytes: i32,
    /// `fetch.max.bytes`: the most one Fetch reply carries, whatever the client asks for.
    pub fetch_max_bytes: usize,
    /// `max.incremental.fetch.session.cache.slots`.
    pub fetch_session_slots: usize,
    /// `fetch.read.path`.
    pub fetch_read_path: ReadPath,
    /// `pyrklog.unwritten.max.bytes`: appended bytes of one log directory that may wait for its
    /// writer; beyond it, connections that produce to that directory are muted. `None`: half
    /// of its block cache. At most 64 MiB of it lie outside the cache, and 64 MiB where there is none.
    pub unwritten_max_bytes: Option<usize>,
    /// The block cache.
    pub cache: CacheConfig,
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
    /// `auto.create.topics.enable`: a Metadata request that names a missing topic, and allows it,
    /// raises [`Event::TopicsMissing`] instead of an answer.
    pub auto_create_topics: bool,
    /// Of a broker that is one of a cluster. With it, the broker serves what only brokers ask.
    pub cluster: Option<ClusterConfig>,
}

/// How brokers of a cluster reach and follow each other.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ClusterConfig {
    /// The listener on which brokers reach each other.
    pub listener: String,
    /// `num.replica.fetchers`: threads, connections and sessions for each leader.
    pub fetchers: usize,
    /// `replica.fetch.wait.max.ms`.
    pub fetch_wait_max_ms: i32,
    /// `replica.fetch.min.bytes`.
    pub fetch_min_bytes: i32,
    /// `replica.fetch.max.bytes`, of one partition.
    pub fetch_max_bytes: i32,
    /// `replica.fetch.response.max.bytes`.
    pub fetch_response_max_bytes: i32,
    /// `replica.fetch.backoff.ms`: how long a partition or a leader that failed is left alone, at
    /// most.
    pub fetch_backoff_ms: i64,
    /// `replica.socket.timeout.ms`.
    pub socket_timeout_ms: i64,
    /// `replica.selector.class` is the rack-aware one: consumers are sent to an in-sync follower in
    /// their own rack (KIP-392).
    pub reads_by_rack: bool,
}

/// The block cache (`block-cache.md`).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CacheConfig {
    /// `pyrklog.cache.dir`: where arenas are made, in shared memory. `None`: nothing is cached, and
    /// records are in their files before they are acknowledged.
    pub dir: Option<PathBuf>,
    /// `pyrklog.cache.max.bytes`, over all log directories; `None`: a share of the memory.
    pub max_bytes: Option<u64>,
    /// `pyrklog.cache.keep`: an orderly end leaves the cache for the next start.
    pub keeps: bool,
    /// `pyrklog.cache.drop`: what an orderly end left is not used.
    pub drops: bool,
    /// `pyrklog.cache.flush.bytes`: a partition is written when so much of it waits.
    pub flush_bytes: usize,
    /// `pyrklog.cache.flush.ms`: or after this time.
    pub flush_ms: i64,
    /// `pyrklog.cache.direct.min.bytes`: a write of so much and more goes around the page cache.
    pub direct_min_bytes: u32,
}

impl CacheConfig {
    /// No cache.
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

/// How fetched file bytes reach the socket (`fetch.read.path`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ReadPath {
    /// sendfile for replies with 64 KiB of records or more, copy for smaller ones.
    Auto,
    /// The same as `Auto`, whatever a later measurement makes of that.
    Sendfile,
    /// preadv2(RWF_NOWAIT) and send by the network thread; the reader pool where that would wait.
    Copy,
}

/// `become_leader`: this broker leads the partition in this epoch.
#[derive(Clone, Debug)]
pub struct LeaderSpec {
    /// Topic name; it must be in the image already.
    pub topic: String,
    /// Partition index.
    pub partition: i32,
    /// Leader epoch; a lower one than the partition has is refused (FENCED_LEADER_EPOCH).
    pub leader_epoch: i32,
    /// Assigned replicas.
    pub replicas: Vec<i32>,
    /// In-sync replicas.
    pub isr: Vec<i32>,
    /// The controller says that the partition was created by this very decision: a missing
    /// directory is then made, in the directory with the fewest partitions. Without it a missing
    /// directory is made too, but a failed log directory that may hold it makes the partition
    /// offline instead (Kafka's rule).
    pub is_new: bool,
    /// Replicas outside of the ISR have all that clients were told of, and may be elected for it
    /// (eligible leader replicas, KIP-966): the high watermark stands still.
    pub is_held: bool,
}

/// `become_followers`: this broker follows another in this partition and epoch.
#[derive(Clone, Debug)]
pub struct FollowerSpec {
    /// Topic name; it must be in the image already.
    pub topic: String,
    /// Partition index.
    pub partition: i32,
    /// The leader's broker id; -1 while there is none: then nothing is fetched.
    pub leader: i32,
    /// As with [`LeaderSpec`].
    pub leader_epoch: i32,
    /// Assigned replicas.
    pub replicas: Vec<i32>,
    /// In-sync replicas: one of them is not held back by a rate before it knows its leader's high
    /// watermark.
    pub isr: Vec<i32>,
    /// As with [`LeaderSpec`].
    pub is_new: bool,
}

/// A follower that may join the in-sync replicas of a partition: its log reaches the high watermark
/// and the leader epoch's start.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CaughtUp {
    /// Topic name.
    pub topic: String,
    /// Partition index.
    pub partition: i32,
    /// This broker's leader epoch.
    pub leader_epoch: i32,
    /// The follower's broker id.
    pub broker: i32,
    /// The broker epoch under which it fetched, -1 unknown.
    pub broker_epoch: i64,
}

/// In-sync followers of a partition that have fallen behind.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Behind {
    /// Topic name.
    pub topic: String,
    /// Partition index.
    pub partition: i32,
    /// This broker's leader epoch.
    pub leader_epoch: i32,
    /// The followers' broker ids.
    pub brokers: Vec<i32>,
}

/// `stop_partitions`: this broker no longer holds the partition, or only stops serving it.
#[derive(Clone, Debug)]
pub struct StopSpec {
    /// Topic name.
    pub topic: String,
    /// Partition index.
    pub partition: i32,
    /// Rename the directory to `*-delete` and remove it behind.
    pub delete: bool,
}

/// The result of a slow command.
#[derive(Debug)]
pub enum TicketOutcome {
    /// `become_leaders`, `become_followers`, `stop_partitions`: one error code a spec, in order; 0 = done.
    Partitions(Vec<i16>),
    /// `delete_records`: (error code, low watermark or -1), in order.
    DeleteRecords(Vec<(i16, i64)>),
    /// `describe_log_dirs`.
    LogDirs(Vec<LogDirDescription>),
    /// `append_internal`.
    InternalAppended {
        /// 0: the high watermark has passed the batch. With any other code it may be in the log, or
        /// come to be, all the same.
        error_code: i16,
        /// Offset of the first record, -1 with an error.
        base_offset: i64,
    },
    /// `read_internal`.
    InternalRead(InternalRead),
    /// `replica_digest`.
    ReplicaDigest(ReplicaDigest),
    /// `shutdown`: true when everything was written, synced and marked clean.
    Shutdown(bool),
}

impl TicketOutcome {
    /// How a ticket of an internal append ends.
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

/// One batch for a partition of an internal topic, but for its records.
#[derive(Clone, Copy, Debug)]
pub struct InternalAppend<'a> {
    /// Topic name.
    pub topic: &'a str,
    /// Partition index.
    pub partition: i32,
    /// Of every record (CreateTime).
    pub timestamp_ms: i64,
    /// Codec as in a batch's attributes: 0 none, 1 gzip, 2 snappy, 3 lz4, 4 zstd.
    pub codec: u8,
    /// The leader epoch that the caller acts in, or one before from which this broker has led on:
    /// what the caller knows of the log holds as long as nobody else has led.
    pub expected_epoch: i32,
    /// (id, epoch) of the producer whose transaction the records belong to.
    pub producer: Option<(i64, i16)>,
}

/// A record of such a batch.
#[derive(Clone, Debug)]
pub struct NewRecord<'a> {
    /// Key.
    pub key: &'a [u8],
    /// Value, `None` for a tombstone.
    pub value: Option<&'a [u8]>,
    /// Headers.
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

/// Offsets to digest.
#[derive(Clone, Copy, Debug)]
pub struct DigestRange {
    /// The first one; a batch that begins before it and holds it counts.
    pub start: i64,
    /// Behind the last one; a batch that reaches beyond it does not count.
    pub end: i64,
    /// The batch that brings the sum of sizes to this is the last one.
    pub max_bytes: usize,
}

/// What `replica_digest` found.
#[derive(Clone, Copy, Debug)]
pub struct ReplicaDigest {
    /// Without 0 there is nothing else.
    pub error_code: i16,
    /// The replica's leader epoch.
    pub leader_epoch: i32,
    /// Its log start offset.
    pub log_start_offset: i64,
    /// Its high watermark.
    pub high_watermark: i64,
    /// Its log end offset, as far as others may see.
    pub log_end_offset: i64,
    /// Where to go on; the end of the range when all of it is in the digest.
    pub next_offset: i64,
    /// Of the batches up to there.
    pub digest: i64,
    /// How many they are.
    pub batches: i64,
    /// Where the first batch is damaged; -1 for none. Where the way to the next batch is lost, too,
    /// it is `next_offset`.
    pub damaged_offset: i64,
    /// The first batch.
    pub first: Option<DigestedBatch>,
}

impl ReplicaDigest {
    /// An error, and nothing else.
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
        }
    }
}

/// One of the batches of a digest.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DigestedBatch {
    /// First offset.
    pub base_offset: i64,
    /// Last offset.
    pub last_offset: i64,
    /// Leader epoch.
    pub leader_epoch: i32,
    /// CRC-32C of its bytes.
    pub crc: u32,
}

/// What `read_internal` found.
#[derive(Debug)]
pub struct InternalRead {
    /// Without 0 there is nothing else.
    pub error_code: i16,
    /// In order.
    pub batches: Vec<InternalBatch>,
    /// Where to go on.
    pub next_offset: i64,
    /// The end of what could be read.
    pub end_offset: i64,
}

/// A batch of an internal topic, its records decompressed and checked.
#[derive(Debug)]
pub struct InternalBatch {
    /// First offset.
    pub base_offset: i64,
    /// Last offset.
    pub last_offset: i64,
    /// Producer id, -1 without one.
    pub producer_id: i64,
    /// Part of a transaction.
    pub is_transactional: bool,
    /// A transaction's marker.
    pub is_control: bool,
    /// The records as in an uncompressed batch; see [`InternalBatch::records`].
    pub body: Vec<u8>,
    /// Why the batch cannot be read; it then has no records.
    pub damage: Option<String>,
}

impl InternalBatch {
    /// Offset, key and value of each record.
    pub fn records(&self) -> impl Iterator<Item = (i64, Option<&[u8]>, Option<&[u8]>)> {
        // The reader has walked them all.
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
    /// Absolute path.
    pub path: PathBuf,
    /// 0 or KAFKA_STORAGE_ERROR.
    pub error_code: i16,
    /// Bytes of the volume, -1 unknown.
    pub total_bytes: i64,
    /// Usable bytes, -1 unknown, 0 while the directory takes no records for lack of space.
    pub usable_bytes: i64,
    /// (topic, partition, size in bytes, offset lag).
    pub partitions: Vec<(String, i32, i64, i64)>,
}

/// A directory found under a log directory at `DataPlane::open`.
#[derive(Clone, Debug)]
pub struct FoundPartition {
    /// Topic name, from the folder.
    pub topic: String,
    /// Partition index, from the folder.
    pub partition: i32,
    /// From `partition.metadata`; `None` where that file is missing.
    pub topic_id: Option<TopicId>,
    /// The log directory.
    pub log_dir: PathBuf,
}
