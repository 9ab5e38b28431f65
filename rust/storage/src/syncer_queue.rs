//! The work of a log directory's syncer besides its timers.

use std::sync::atomic::{AtomicBool, AtomicI64, Ordering};

use parking_lot::{Condvar, Mutex};
use pyrklog_log::{Checkpoint, DeletedFolder, RemovedSegments};

/// Files to be removed later.
#[derive(Debug)]
pub enum Deletion {
    /// Segments that retention took out.
    Segments(RemovedSegments),
    /// The folder of a deleted partition.
    Folder(DeletedFolder),
}

/// What waits, under the lock. No holder of the lock takes a partition's lock.
#[derive(Debug)]
pub struct Inner<P> {
    /// Partitions with a complete segment.
    pub rolled: Vec<P>,
    /// Each with the time (wall clock) at which it is due.
    pub deletions: Vec<(i64, Deletion)>,
    /// The syncer is to end.
    pub is_stopped: bool,
    /// The log start checkpoint is due soon.
    pub log_start_soon: bool,
    /// A check of `flush.ms` is due.
    pub flush_soon: bool,
}

/// The work of one directory's syncer besides its timers.
#[derive(Debug)]
pub struct SyncerQueue<P> {
    /// The queue.
    pub inner: Mutex<Inner<P>>,
    /// Signals an addition.
    pub wake: Condvar,
    /// By [`Checkpoint`]: it is to be written.
    moved: [AtomicBool; Checkpoint::ALL.len()],
    /// The shortest `flush.ms` of the directory's topics.
    pub flush_ms: ShortestFlush,
}

impl<P> Default for SyncerQueue<P> {
    fn default() -> Self {
        SyncerQueue {
            inner: Mutex::new(Inner {
                rolled: Vec::new(),
                deletions: Vec::new(),
                is_stopped: false,
                log_start_soon: false,
                flush_soon: false,
            }),
            wake: Condvar::new(),
            moved: Default::default(),
            flush_ms: ShortestFlush::default(),
        }
    }
}

impl<P> SyncerQueue<P> {
    fn change(&self, change: impl FnOnce(&mut Inner<P>)) {
        change(&mut self.inner.lock());
        self.wake.notify_one();
    }

    /// Queues a partition with a complete segment to sync.
    pub fn rolled(&self, partition: P) {
        self.change(|inner| inner.rolled.push(partition));
    }

    /// DeleteRecords moved a log start offset. The checkpoint follows soon; retention removes the
    /// files later, as in Kafka.
    pub fn log_start_moved(&self) {
        self.set_moved(Checkpoint::LogStart);
        self.change(|inner| inner.log_start_soon = true);
    }

    /// Queues files to be removed at `due_ms` (wall clock).
    pub fn delete_later(&self, due_ms: i64, deletion: Deletion) {
        self.change(|inner| inner.deletions.push((due_ms, deletion)));
    }

    /// A high watermark moved: its checkpoint is due at the next interval.
    pub fn high_watermark_moved(&self) {
        if !self.has_moved(Checkpoint::HighWatermark) {
            self.set_moved(Checkpoint::HighWatermark);
        }
    }

    /// An offset moved: the checkpoint is due at the next interval.
    pub fn set_moved(&self, checkpoint: Checkpoint) {
        self.moved[checkpoint as usize].store(true, Ordering::Relaxed);
    }

    /// Whether a checkpoint is to be written.
    pub fn has_moved(&self, checkpoint: Checkpoint) -> bool {
        self.moved[checkpoint as usize].load(Ordering::Relaxed)
    }

    /// The same, for the one who writes it.
    pub fn take_moved(&self, checkpoint: Checkpoint) -> bool {
        self.moved[checkpoint as usize].swap(false, Ordering::Relaxed)
    }

    /// A topic of the directory has this `flush.ms`.
    pub fn need_flush_ms(&self, flush_ms: i64) {
        if self.flush_ms.lower(flush_ms) {
            self.change(|inner| inner.flush_soon = true);
        }
    }

    /// Ends the syncer after its current work.
    pub fn stop(&self) {
        self.change(|inner| inner.is_stopped = true);
    }

    /// Drops what is queued, after the end: partitions hold their directory and so its lock.
    pub fn clear(&self) {
        self.inner.lock().rolled.clear();
    }

    /// Whether the syncer is to end.
    pub fn is_stopped(&self) -> bool {
        self.inner.lock().is_stopped
    }
}

/// The shortest known `flush.ms` of a directory's topics; `i64::MAX` if none has any.
#[derive(Debug)]
pub struct ShortestFlush(AtomicI64);

impl Default for ShortestFlush {
    fn default() -> ShortestFlush {
        ShortestFlush(AtomicI64::new(i64::MAX))
    }
}

impl ShortestFlush {
    /// Adds a topic's value; true if it is the new shortest.
    pub fn lower(&self, flush_ms: i64) -> bool {
        self.0.fetch_min(flush_ms, Ordering::AcqRel) > flush_ms
    }

    /// Whether any topic has one.
    pub fn is_any(&self) -> bool {
        self.0.load(Ordering::Relaxed) < i64::MAX
    }

    /// Replaces the value by `shortest_ms()`, which reflects removed topics and options.
    pub fn learn(&self, shortest_ms: impl Fn() -> i64) -> i64 {
        let (set, read) = (Ordering::AcqRel, Ordering::Acquire);
        loop {
            let before_ms = self.0.load(read);
            let now_ms = shortest_ms();
            // A failed exchange means that a topic was added meanwhile.
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
