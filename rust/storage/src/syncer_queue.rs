//! What the syncer of a log directory has to do besides its timers.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicI64, Ordering};

use parking_lot::{Condvar, Mutex};
use pyrklog_log::{DeletedFolder, RemovedSegments};

/// Files to be removed later.
#[derive(Debug)]
pub enum Deletion {
    /// Segments that retention took out.
    Segments(RemovedSegments),
    /// The folder of a deleted partition.
    Folder(DeletedFolder),
}

/// A partition that broke an invariant, and is offline.
#[derive(Debug)]
pub struct FailedPartition {
    /// Topic name.
    pub topic: Arc<str>,
    /// Partition index.
    pub index: i32,
    /// For the operator.
    pub reason: String,
}

/// What waits, under the lock. Nobody who holds it takes a partition's lock.
#[derive(Debug)]
pub struct Inner<P> {
    /// Partitions with a complete segment.
    pub rolled: Vec<P>,
    /// Each with the time (wall clock) from which on it may be done.
    pub deletions: Vec<(i64, Deletion)>,
    /// Partitions of which nobody was told that they failed.
    pub failed: Vec<FailedPartition>,
    /// The syncer is to end.
    pub is_stopped: bool,
    /// The log start checkpoint is due soon.
    pub log_start_soon: bool,
    /// A look at `flush.ms` is due.
    pub flush_soon: bool,
}

/// What the syncer of one directory has to do besides its timers.
#[derive(Debug)]
pub struct SyncerQueue<P> {
    /// What waits.
    pub inner: Mutex<Inner<P>>,
    /// Something was added.
    pub wake: Condvar,
    /// The checkpoint of high watermarks is to be written.
    pub high_watermark_moved: AtomicBool,
    /// That of recovery points.
    pub recovery_point_moved: AtomicBool,
    /// That of log starts.
    pub log_start_moved: AtomicBool,
    /// The shortest `flush.ms` of the directory's topics, as far as it is known; the greatest number
    /// where none has any.
    pub flush_ms: ShortestFlush,
}

impl<P> Default for SyncerQueue<P> {
    fn default() -> Self {
        SyncerQueue {
            inner: Mutex::new(Inner {
                rolled: Vec::new(),
                deletions: Vec::new(),
                failed: Vec::new(),
                is_stopped: false,
                log_start_soon: false,
                flush_soon: false,
            }),
            wake: Condvar::new(),
            high_watermark_moved: AtomicBool::new(false),
            recovery_point_moved: AtomicBool::new(false),
            log_start_moved: AtomicBool::new(false),
            flush_ms: ShortestFlush::default(),
        }
    }
}

impl<P> SyncerQueue<P> {
    /// A segment of the partition is complete: it is to be synced.
    pub fn rolled(&self, partition: P) {
        self.inner.lock().rolled.push(partition);
        self.wake.notify_one();
    }

    /// DeleteRecords moved a log start. The checkpoint follows soon; the files go when retention
    /// next looks (as in Kafka).
    pub fn log_start_moved(&self) {
        self.log_start_moved.store(true, Ordering::Relaxed);
        self.inner.lock().log_start_soon = true;
        self.wake.notify_one();
    }

    /// Files to be removed at `due_ms` (wall clock).
    pub fn delete_later(&self, due_ms: i64, deletion: Deletion) {
        self.inner.lock().deletions.push((due_ms, deletion));
        self.wake.notify_one();
    }

    /// A partition failed: who waits at it is to be told, and the operator.
    pub fn partition_failed(&self, failed: FailedPartition) {
        self.inner.lock().failed.push(failed);
        self.wake.notify_one();
    }

    /// A high watermark moved: its checkpoint is due at the next interval.
    pub fn high_watermark_moved(&self) {
        if !self.high_watermark_moved.load(Ordering::Relaxed) {
            self.high_watermark_moved.store(true, Ordering::Relaxed);
        }
    }

    /// A topic of the directory has this `flush.ms`.
    pub fn need_flush_ms(&self, flush_ms: i64) {
        if self.flush_ms.lower(flush_ms) {
            self.inner.lock().flush_soon = true;
            self.wake.notify_one();
        }
    }

    /// Ends the syncer after the work at hand.
    pub fn stop(&self) {
        self.inner.lock().is_stopped = true;
        self.wake.notify_one();
    }

    /// Forgets what is queued, after the end: partitions hold their directory, and so its lock.
    pub fn clear(&self) {
        let mut inner = self.inner.lock();
        inner.rolled.clear();
    }

    /// Whether the syncer is to end.
    pub fn is_stopped(&self) -> bool {
        self.inner.lock().is_stopped
    }
}

/// The shortest `flush.ms` of a directory's topics, as far as it is known; the greatest number where
/// none has any.
#[derive(Debug)]
pub struct ShortestFlush(AtomicI64);

impl Default for ShortestFlush {
    fn default() -> ShortestFlush {
        ShortestFlush(AtomicI64::new(i64::MAX))
    }
}

impl ShortestFlush {
    /// A topic has this one; true if it is the shortest from now on.
    pub fn lower(&self, flush_ms: i64) -> bool {
        self.0.fetch_min(flush_ms, Ordering::AcqRel) > flush_ms
    }

    /// Whether any topic has one.
    pub fn is_any(&self) -> bool {
        self.0.load(Ordering::Relaxed) < i64::MAX
    }

    /// Learns it anew, for topics and options go, too.
    pub fn learn(&self, shortest_ms: impl Fn() -> i64) -> i64 {
        let (set, read) = (Ordering::AcqRel, Ordering::Acquire);
        loop {
            let before_ms = self.0.load(read);
            let now_ms = shortest_ms();
            // Otherwise another topic got one meanwhile.
            if self
                .0
                .compare_exchange(before_ms, now_ms, set, read)
                .is_ok()
            {
                return now_ms;
            }
        }
    }
}
