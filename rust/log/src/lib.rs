//! One partition's commit log in Kafka's own file formats, and the directory that holds many.
//!
//! No sockets, no clock (time comes as `now_ms`), no file touched but through [`disk::Disk`].
//! A [`Log`] is owned by its partition behind a mutex; its methods work in memory, and hand out
//! jobs ([`WriteJob`], [`SyncJob`], [`Location`], [`TimeQuery`], ...) whose `execute`/`resolve`
//! does the input and output with the mutex released.

#![forbid(unsafe_code)]

pub mod config;
pub mod disk;
pub mod names;

pub use config::{CompressionType, LogConfig, TimestampType};

/// The public surface of the log, for those who code against it while it is being written.
///
/// ```text
/// // ---- shared by all logs of one log directory
/// LogEnv::new(disk: Arc<dyn Disk>, max_open_files: usize) -> Arc<LogEnv>
/// env.poison(reason: impl Into<String>)      // whole directory; every log of it then refuses
/// env.poisoned() -> Option<&str>             // one atomic load
///
/// // ---- LogDir (log_dir.rs): one directory
/// LogDir::open(env: Arc<LogEnv>, path: &Path, Identity{cluster_id, node_id, directory_id: None})
///       -> Result<LogDir, LogDirError{Locked, Foreign, Io..}>     // creates, locks, meta.properties, reads checkpoints
/// dir.path() -> &Path; dir.env() -> &Arc<LogEnv>
/// dir.partitions() -> io::Result<Vec<PartitionFolder{topic: String, partition: i32, path: PathBuf, topic_id: Option<[u8;16]>}>>
///                                       // folder names + partition.metadata; skips and reports strays; `-delete` folders are removed by dir.remove_deleted()
/// dir.open_state(topic, partition) -> OpenState      // from the checkpoints and the clean-shutdown marker (read at open; marker removed at open)
/// dir.write_recovery_points(&[(&str topic, i32 partition, i64 offset)]) -> io::Result<()>   // I/O, syncer
/// dir.write_log_starts(..), dir.write_high_watermarks(..)          // same
/// dir.mark_clean() -> io::Result<()>         // after every log was closed: syncfs, then the marker
/// dir.delete_folder(topic, partition) -> io::Result<DeletedFolder>  // renames to <topic>-<p>.<uuid>-delete; DeletedFolder::remove() later
/// dir.space() -> io::Result<Space>
///
/// // ---- opening; loader threads only (I/O)
/// Log::open(OpenRequest{ env: Arc<LogEnv>, log_dir: &Path, topic: &str, partition: i32, topic_id: Option<[u8;16]>,
///                        config: Arc<LogConfig>, state: OpenState, now_ms: i64, producer_id_expiration_ms: i64 })
///       -> Result<(Log, OpenReport), OpenError{Io, TopicIdMismatch, Unsupported, Poisoned}>
///     OpenState{clean: bool, recovery_point: i64, log_start_offset: i64, high_watermark: i64}   (0 / -1 where unknown)
///     OpenReport{created: bool, recovered_segments: usize, scanned_bytes: u64, truncated_bytes: u64, rebuilt_indexes: usize, notes: Vec<String>}
///
/// // ---- append (network thread, under the lock, memory only)
/// log.append(batch: &mut [u8], info: &BatchInfo, origin: Origin, leader_epoch: i32, now_ms: i64) -> Result<Appended, AppendError>
///     // `batch` is one validated batch; offsets and epoch are patched in it
///     Appended{base_offset, last_offset, log_append_time_ms (-1 for CreateTime), log_start_offset, duplicate: bool,
///              wake_writer: bool /* queue this log at the writer now */, appended_bytes: usize}
///     // acknowledge when gated_end() > last_offset (also for duplicates, whose original may still be unwritten)
///     AppendError{Poisoned, Truncating, OutOfOrderSequence, InvalidProducerEpoch, InvalidTxnState, TransactionCoordinatorFenced, TooLarge}; error_code() -> i16
///
/// // ---- writing (the directory's writer)
/// log.take_writes() -> Option<WriteJob>      // None: nothing to do, or a job is in flight
/// job.execute(&mut self) -> io::Result<()>   // no lock held
/// log.complete_writes(job, result: io::Result<()>) -> Completed{gate_moved: bool, written_bytes: usize, more: bool /* queue again */, roll: bool /* the syncer should sync */}
///     // an Err poisons this log; the owner poisons the directory (env.poison) and takes it offline
/// log.unwritten_bytes() -> usize
///
/// // ---- syncing (syncer)
/// log.take_sync(SyncScope::{ClosedSegments, Written}) -> Option<SyncJob>; job.execute(&mut self) -> io::Result<()>;
/// log.complete_sync(job, result)             // moves recovery_point
/// log.recovery_point() -> i64; log.unflushed_since_ms() -> Option<i64> (for flush.ms)
///
/// // ---- positions (memory)
/// log.log_end_offset() / gated_end() / high_watermark() / last_stable_offset() / log_start_offset() / recovery_point() -> i64
/// log.latest_epoch() -> Option<i32>; log.size_bytes() -> u64; log.segment_count()
/// log.advance_high_watermark(offset) -> bool // true when it moved; clamped to gated_end; never backwards
///
/// // ---- reading
/// log.locate(offset, Isolation::{LogEnd, HighWatermark, Committed}) -> Result<Location, ReadError::OffsetOutOfRange>
/// location.available_bytes() -> u64          // estimate for fetch.min.bytes, memory only (0 at the bound)
/// location.resolve(max_bytes: usize, min_one: bool, Wait::{Nowait, Blocking}) -> Result<Slice, ReadError::{WouldBlock, OffsetOutOfRange, Io, Corrupt}>
///     Slice{file: Option<Arc<dyn DiskFile>>, position: u64, len: usize, ...}; len 0 = nothing to send
/// log.aborted_transactions(&Slice) -> Vec<AbortedTxn{producer_id, first_offset, ..}>   // memory; for Committed reads
///
/// // ---- look-ups
/// log.offset_for_time(TimeSpec::{Earliest, Latest, MaxTimestamp, At(ms)}, Isolation) -> TimeQuery
/// query.resolve(Wait) -> Result<Option<TimeOffset{timestamp, offset, leader_epoch}>, ReadError>    // None = not found
/// TimeSpec::from_wire(i64) -> Option<TimeSpec>
/// log.end_offset_for_epoch(epoch) -> (i32, i64)   // (-1, -1) when unknown
///
/// // ---- upkeep
/// log.set_config(Arc<LogConfig>); log.assign_epoch_start(epoch)   // on becoming leader; then queue at the writer
/// log.advance_log_start(offset) -> Result<i64, ..OffsetOutOfRange> // DeleteRecords; -1 = high watermark; then plan_retention
/// log.roll_if_due(now_ms) -> bool            // segment.ms without appends is checked at the next append, as in Kafka
/// log.retention_candidates() -> Candidates; candidates.load() -> io::Result<()> (I/O, no lock)
/// log.plan_retention(now_ms) -> Option<RemovedSegments>  // memory; removed.rename() I/O at once; removed.delete() I/O after file.delete.delay.ms
/// log.expire_producers(now_ms)
/// log.begin_truncation(offset) -> Result<TruncateJob, Busy>; job.execute() I/O; log.complete_truncation(job, result)
/// log.close_cleanly() -> io::Result<()>      // I/O, syncer only, after the last complete_writes: indexes, snapshot (synced by LogDir::mark_clean)
/// ```
pub mod contract {}
