//! One log directory at run time: its queues, its back-pressure, and whether it has failed.

use std::io;
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, OnceLock, Weak};

use parking_lot::Mutex;
use pyrklog_log::{DeletedFolder, LogDir, LogEnv, Unwritten};

use crate::closing_logs::ClosingLogs;
use crate::muted_queue::MutedQueue;
use crate::syncer_queue::SyncerQueue;
use crate::writer_queue::{Backlog, WriterQueue};
use pyrklog_control::latency::Histogram;
use pyrklog_control::outbox::Outbox;
use pyrklog_control::seam::PlaneConfig;
use pyrklog_replica::directory::Directory;
use pyrklog_replica::partition::PartitionState;
use pyrklog_replica::{hosted_partitions, partition};

/// Unwritten bytes may take at most this fraction of the volume.
const VOLUME_SHARE: u64 = 20;

/// And at most this fraction of the free space at start, so that the reserve fits, but at least the
/// following.
const FREE_SHARE: u64 = 4;
const LEAST_BYTES: u64 = 4 << 20;

/// The reserve exceeds the limit of unwritten bytes by this fraction, for indexes and partly filled
/// blocks.
const RESERVE_MORE_SHARE: u64 = 4;

/// Limit of the reserve; what finds no space stays in the block cache.
const RESERVE_MAX_BYTES: u64 = 256 << 20;

/// Default limit of unwritten bytes as a fraction of the block cache. Thousands of partitions each
/// have enough for an efficient write.
const CACHE_SHARE: u64 = 2;

/// Limit of unwritten bytes outside the block cache.
const HEAP_MAX_BYTES: usize = 64 << 20;

/// Room is short when less than this fraction is left.
const SHORT_SHARE: usize = 8;

/// Waiting producers are woken when this fraction of the room is free.
const ROOM_SHARE: usize = 8;

/// A partition in a log directory.
pub type Partition = partition::Partition<LogDirState>;

/// The partitions that this broker hosts.
pub type HostedPartitions = hosted_partitions::HostedPartitions<LogDirState>;

/// Finds partitions by name.
pub type Registry = hosted_partitions::Registry<LogDirState>;

/// Is told of partitions that broke an invariant: fails their waiters, and tells the control plane,
/// which tells the controller.
///
/// It runs on the thread that found out, with the partition locked, so it waits for no disk, and no
/// thread that holds a lock which it takes may take a partition's.
pub trait FailureListener: std::fmt::Debug + Send + Sync {
    /// `state` is the partition's, locked. It is offline until the next start of the broker, which
    /// recovers its log.
    fn partition_failed(&self, partition: &Partition, state: &mut PartitionState, reason: String);
}

/// See the module.
#[derive(Debug)]
pub struct LogDirState {
    /// Position in `log.dirs`.
    pub index: usize,
    /// Files, lock and checkpoints.
    pub files: LogDir,
    /// Partitions with something to write.
    pub writer: WriterQueue<Arc<Partition>>,
    /// How long its writes took.
    pub write_times: Histogram,
    /// Slow work.
    pub syncer: SyncerQueue<Arc<Partition>>,
    /// Produce requests that wait for room.
    pub muted: MutedQueue,
    /// Number of partitions in this directory.
    pub partitions: AtomicUsize,
    unwritten_bytes: AtomicUsize,
    unwritten_max_bytes: usize,
    /// Space that is set aside for unwritten bytes.
    pub reserve_bytes: u64,
    waiting_for_space: Mutex<Vec<Arc<Partition>>>,
    heap_bytes: AtomicUsize,
    heap_max_bytes: usize,
    /// A partition with this many unwritten bytes is due at once.
    pub flush_bytes: usize,
    is_announced: AtomicBool,
    lacks_space: AtomicBool,
    /// Logs that are still to be closed.
    pub closing_logs: ClosingLogs<LogDirState>,
    /// Writes that a simulated disk has not finished.
    #[cfg(feature = "sim")]
    pub under_way: Mutex<Vec<(Arc<Partition>, pyrklog_log::WriteJob)>>,
    /// Held while checkpoint rows are gathered and written, lowered, or removed: stale rows must
    /// not overwrite newer ones.
    pub checkpoints: Mutex<()>,
    failure_listener: OnceLock<Weak<dyn FailureListener>>,
}

impl LogDirState {
    /// A directory that was just opened.
    pub fn new(
        index: usize,
        files: LogDir,
        config: &PlaneConfig,
        muted: MutedQueue,
    ) -> Arc<LogDirState> {
        let arena = files.env().arena();
        let cache_bytes = arena.map_or(0, |arena| arena.statistics().limit_bytes);
        let cache_share_bytes = usize::try_from(cache_bytes / CACHE_SHARE).unwrap_or(usize::MAX);
        let default_max_bytes = cache_share_bytes.max(HEAP_MAX_BYTES);
        let unwritten_max_bytes = config.unwritten_max_bytes.unwrap_or(default_max_bytes);
        let unwritten_max_bytes = unwritten_max_bytes.min(share_of_volume(&files)).max(1);
        let reserve_bytes = unwritten_max_bytes as u64;
        let reserve_bytes = reserve_bytes + reserve_bytes / RESERVE_MORE_SHARE;
        let reserve_bytes = reserve_bytes.min(RESERVE_MAX_BYTES);
        files.env().set_reserve_bytes(reserve_bytes);
        Arc::new(LogDirState {
            index,
            files,
            writer: WriterQueue::new(config.writer_threads_per_dir, config.cache.flush_ms),
            flush_bytes: config.cache.flush_bytes.max(1),
            write_times: Histogram::default(),
            syncer: SyncerQueue::default(),
            partitions: AtomicUsize::new(0),
            unwritten_bytes: AtomicUsize::new(0),
            unwritten_max_bytes,
            reserve_bytes,
            waiting_for_space: Mutex::default(),
            heap_bytes: AtomicUsize::new(0),
            heap_max_bytes: unwritten_max_bytes.min(HEAP_MAX_BYTES),
            is_announced: AtomicBool::new(false),
            lacks_space: AtomicBool::new(false),
            muted,
            closing_logs: ClosingLogs::default(),
            #[cfg(feature = "sim")]
            under_way: Mutex::default(),
            checkpoints: Mutex::default(),
            failure_listener: OnceLock::new(),
        })
    }

    /// Sets the listener, once.
    pub fn set_failure_listener(&self, listener: Weak<dyn FailureListener>) {
        let _first_stays = self.failure_listener.set(listener);
    }

    /// The directory's path.
    pub fn path(&self) -> &Path {
        self.files.path()
    }

    /// The environment that its logs share.
    pub fn env(&self) -> &Arc<LogEnv> {
        self.files.env()
    }

    /// Whether a write or sync failed, so that the directory refuses everything.
    pub fn has_failed(&self) -> bool {
        self.env().poisoned().is_some()
    }

    /// Whether it takes no records for lack of space, descriptors or memory.
    pub fn is_read_only(&self) -> bool {
        self.env().is_read_only()
    }

    /// Whether space is what it lacks, or lacked last.
    pub fn lacks_space(&self) -> bool {
        self.lacks_space.load(Ordering::Relaxed)
    }

    /// See [`LogDirState::lacks_space`].
    pub fn set_lacks_space(&self, lacks_space: bool) {
        self.lacks_space.store(lacks_space, Ordering::Relaxed);
    }

    /// Opens the partition's log once there is space.
    pub fn wait_for_space(&self, partition: Arc<Partition>) {
        self.waiting_for_space.lock().push(partition);
    }

    /// Whether partitions wait for space to be opened.
    pub fn has_waiting_for_space(&self) -> bool {
        !self.waiting_for_space.lock().is_empty()
    }

    /// Takes the partitions that wait for space to be opened.
    pub fn take_waiting_for_space(&self) -> Vec<Arc<Partition>> {
        std::mem::take(&mut *self.waiting_for_space.lock())
    }

    /// True for the first caller, which then reports the failure.
    pub fn announce_failure(&self) -> bool {
        !self.is_announced.swap(true, Ordering::AcqRel)
    }

    /// Appended bytes that are not in files yet.
    pub fn unwritten_bytes(&self) -> usize {
        self.unwritten_bytes.load(Ordering::Relaxed)
    }

    fn short_from_bytes(&self) -> usize {
        self.unwritten_max_bytes - self.unwritten_max_bytes / SHORT_SHARE
    }

    /// Bytes that may still be appended; 0 when producers must wait
    /// (`pyrklog.unwritten.max.bytes`).
    fn room_bytes(&self) -> usize {
        let unwritten_bytes = self.unwritten_bytes.load(Ordering::SeqCst);
        let heap_bytes = self.heap_bytes.load(Ordering::SeqCst);
        let room_bytes = self.unwritten_max_bytes.saturating_sub(unwritten_bytes);
        room_bytes.min(self.heap_max_bytes.saturating_sub(heap_bytes))
    }

    /// Whether producers must wait for the writer. False if the directory refuses records:
    /// producers get its error.
    pub fn has_too_much_unwritten(&self) -> bool {
        self.room_bytes() == 0 && !self.refuses()
    }

    fn refuses(&self) -> bool {
        self.has_failed() || self.is_read_only()
    }

    /// Whether replicas that catch up must wait for the writer, so that they leave producers and
    /// replicas in sync their share of the room.
    pub fn has_half_too_much_unwritten(&self) -> bool {
        let is_over =
            |bytes: &AtomicUsize, max_bytes: usize| bytes.load(Ordering::SeqCst) > max_bytes / 2;
        (is_over(&self.unwritten_bytes, self.unwritten_max_bytes)
            || is_over(&self.heap_bytes, self.heap_max_bytes))
            && !self.refuses()
    }

    /// Whether the control plane's appends must be refused. They may use twice the clients' limit.
    pub fn has_twice_too_much_unwritten(&self) -> bool {
        let is_over = |bytes: &AtomicUsize, max_bytes: usize| {
            bytes.load(Ordering::SeqCst) >= max_bytes.saturating_mul(2)
        };
        (is_over(&self.unwritten_bytes, self.unwritten_max_bytes)
            || is_over(&self.heap_bytes, self.heap_max_bytes))
            && !self.refuses()
    }

    /// Wakes waiting connections after the count fell, as many as there is room for, if the room is
    /// worth it.
    pub fn unmute(&self, outbox: &mut Outbox) {
        if !self.muted.is_used() {
            return;
        }
        let room_bytes = self.room_bytes();
        if self.unwritten_bytes() == 0 || self.refuses() {
            // No later event may wake the rest.
            self.muted.wake(usize::MAX, outbox);
        } else if self.is_worth_while(room_bytes) {
            self.muted.wake(room_bytes, outbox);
        }
    }

    /// Wakes the next connection after a waiting request was admitted. One at a time: a connection
    /// counts with the memory it holds, which may exceed the size of its request.
    pub fn unmute_next(&self, outbox: &mut Outbox) {
        if self.muted.is_used() && self.is_worth_while(self.room_bytes()) {
            self.muted.wake(1, outbox);
        }
    }

    fn is_worth_while(&self, room_bytes: usize) -> bool {
        room_bytes >= self.unwritten_max_bytes.min(self.heap_max_bytes) / ROOM_SHARE
    }

    /// Renames a partition's folder out of the way and removes its checkpoint rows; see
    /// [`LogDir::delete_folder`].
    pub fn delete_folder(
        &self,
        topic: &str,
        partition: i32,
        unique: u128,
    ) -> io::Result<Option<DeletedFolder>> {
        let _no_checkpoint_between = self.checkpoints.lock();
        self.files.delete_folder(topic, partition, unique)
    }
}

impl Directory for LogDirState {
    fn flush_bytes(&self) -> usize {
        self.flush_bytes
    }

    fn write(&self, partition: Arc<Partition>) {
        self.writer.push(partition);
    }

    fn write_later(&self, partition: Arc<Partition>) {
        self.writer.push_later(partition);
    }

    fn count(&self, before: Unwritten, now: Unwritten) {
        let unwritten_bytes = moved(&self.unwritten_bytes, before.bytes, now.bytes);
        let on_heap = |unwritten: Unwritten| unwritten.heap_bytes + unwritten.snapshot_bytes;
        if on_heap(before) != on_heap(now) {
            moved(&self.heap_bytes, on_heap(before), on_heap(now));
        }
        if now.bytes > before.bytes && unwritten_bytes > self.short_from_bytes() {
            self.writer.press();
        }
    }

    fn high_watermark_moved(&self) {
        self.syncer.high_watermark_moved();
    }

    fn partition_failed(&self, partition: &Partition, state: &mut PartitionState, reason: String) {
        if let Some(listener) = self.failure_listener.get().and_then(Weak::upgrade) {
            listener.partition_failed(partition, state, reason);
        }
    }
}

impl Backlog for LogDirState {
    fn is_short(&self) -> bool {
        self.unwritten_bytes() > self.short_from_bytes()
    }
}

fn share_of_volume(files: &LogDir) -> usize {
    let bytes = files.space().map_or(u64::MAX, |space| {
        let of_free_bytes = (space.usable_bytes / FREE_SHARE).max(LEAST_BYTES);
        of_free_bytes.min(space.total_bytes / VOLUME_SHARE)
    });
    usize::try_from(bytes).unwrap_or(usize::MAX)
}

/// Replaces one part of a sum; returns the new sum.
fn moved(sum: &AtomicUsize, before: usize, now: usize) -> usize {
    if now >= before {
        sum.fetch_add(now - before, Ordering::SeqCst) + (now - before)
    } else {
        sum.fetch_sub(before - now, Ordering::SeqCst) - (before - now)
    }
}
