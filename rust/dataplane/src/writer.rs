//! One thread a log directory writes what was appended to memory into the segment files, and so
//! opens the partitions' durability gates.
//!
//! What lies in the block cache is acknowledged already and may gather: a partition is written when
//! enough of it waits, or after a while. What lies on the heap is written at once.
//!
//! It works in turns: everything that is due is taken at once, each partition's bytes go out in
//! one write, and the requests that are thereby done are told at the end of the turn, each network
//! thread woken at most once. While it is busy, further appends gather into larger writes.

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicI64, Ordering};
use std::time::Duration;

use parking_lot::{Condvar, Mutex, MutexGuard};
use pyrklog_log::WriteJob;
use pyrklog_log::disk::is_full;

use crate::clock::mono_ms;
use crate::full_disk::FullDisk;
use crate::log_dir::LogDirState;
use crate::outbox::Outbox;
use crate::partition::Partition;
use crate::shared::Shared;

/// Bytes after which finished requests are told before the turn is over.
const DELIVER_BYTES: usize = 1024 * 1024;

/// A job that takes longer than this says that the disk hangs.
const STANDS_STILL_MS: i64 = 1_000;

/// So many partitions that are due later, and fewer, are due after a part of that time.
const FEW: usize = 64;
const EARLY_SHARE: i64 = 5;

/// How the writer is to end.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum End {
    /// Not at all.
    #[default]
    No,
    /// Once nothing is queued.
    WhenEmpty,
    /// Now; what is queued is lost, as at a kill.
    Now,
}

#[derive(Debug, Default)]
struct Inner {
    /// Due now.
    partitions: Vec<Arc<Partition>>,
    /// Due at some time (monotonic milliseconds), in order.
    later: VecDeque<(i64, Arc<Partition>)>,
    sleep: Sleep,
    end: End,
}

/// What the writer waits for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Sleep {
    /// It is awake.
    #[default]
    No,
    /// For the first of those that are due later.
    Until,
    /// For anything.
    Long,
}

/// Partitions with something to write, each at most once in each of two lists.
#[derive(Debug, Default)]
pub struct WriterQueue {
    inner: Mutex<Inner>,
    wake: Condvar,
    later_ms: i64,
    is_hurried: AtomicBool,
    /// Since when the writer has been at the job in its hands, monotonic milliseconds; 0 while it has
    /// none.
    at_job_since_ms: AtomicI64,
}

impl WriterQueue {
    /// A queue in which "later" means after so many milliseconds.
    pub fn new(later_ms: i64) -> WriterQueue {
        WriterQueue {
            later_ms,
            ..WriterQueue::default()
        }
    }

    /// Queues a partition, whose `queued` flag the caller has just set under its mutex.
    pub fn push(&self, partition: Arc<Partition>) {
        let mut inner = self.inner.lock();
        inner.partitions.push(partition);
        self.wake_unless(inner, Sleep::No);
    }

    /// Queues a partition to be written later, whose `queued_later` flag the caller has just set.
    pub fn push_later(&self, partition: Arc<Partition>) {
        let due_ms = mono_ms() + self.later_ms;
        let mut inner = self.inner.lock();
        inner.later.push_back((due_ms, partition));
        self.wake_unless(inner, Sleep::Until);
    }

    /// Wakes the writer from a sleep that is longer than it may be.
    fn wake_unless(&self, mut inner: MutexGuard<'_, Inner>, enough: Sleep) {
        let wake = inner.sleep != Sleep::No && inner.sleep != enough;
        if wake {
            inner.sleep = Sleep::No;
        }
        drop(inner);
        if wake {
            self.wake.notify_one();
        }
    }

    /// What is due later is due now.
    pub fn hurry(&self) {
        if !self.is_hurried.swap(true, Ordering::Relaxed) {
            self.wake_unless(self.inner.lock(), Sleep::No);
        }
    }

    /// Whether the disk has kept the writer at one job for too long.
    pub fn stands_still(&self) -> bool {
        let since_ms = self.at_job_since_ms.load(Ordering::Relaxed);
        since_ms > 0 && mono_ms() - since_ms > STANDS_STILL_MS
    }

    /// Ends the writer once nothing is queued any more.
    pub fn finish(&self) {
        self.end(End::WhenEmpty);
    }

    /// Ends the writer at once.
    pub fn stop(&self) {
        self.end(End::Now);
    }

    /// Forgets what is queued, after the end: partitions hold their directory, and so its lock.
    pub fn clear(&self) {
        let mut inner = self.inner.lock();
        inner.partitions.clear();
        inner.later.clear();
    }

    /// Partitions that wait for the writer.
    pub fn depth(&self) -> usize {
        self.inner.lock().partitions.len()
    }

    fn end(&self, end: End) {
        let mut inner = self.inner.lock();
        if inner.end != End::Now {
            inner.end = end;
        }
        inner.sleep = Sleep::No;
        drop(inner);
        self.wake.notify_one();
    }

    /// Moves everything that is due into `turn`, waiting for it, but not beyond `until_ms`; false at
    /// the end.
    fn take(&self, turn: &mut Turn, until_ms: Option<i64>) -> bool {
        let mut inner = self.inner.lock();
        loop {
            if inner.end == End::Now {
                return false;
            }
            std::mem::swap(&mut inner.partitions, &mut turn.now);
            let is_hurried = self.is_hurried.swap(false, Ordering::Relaxed);
            let is_all = is_hurried || inner.end != End::No;
            // Where few wait it costs little not to let them wait so long.
            let early_ms = match inner.later.len() {
                ..=FEW => self.later_ms - self.later_ms / EARLY_SHARE,
                _ => 0,
            };
            let next_ms = inner.later.front().map(|(due_ms, _)| *due_ms - early_ms);
            let next_ms = next_ms.into_iter().chain(until_ms).min();
            let now_ms = if next_ms.is_some() { mono_ms() } else { 0 };
            while let Some((due_ms, partition)) = inner.later.pop_front() {
                if !is_all && due_ms - early_ms > now_ms {
                    inner.later.push_front((due_ms, partition));
                    break;
                }
                turn.later.push(partition);
            }
            let is_over = inner.end == End::No && until_ms.is_some_and(|ms| ms <= now_ms);
            if !turn.now.is_empty() || !turn.later.is_empty() || is_hurried || is_over {
                return true;
            }
            match (inner.end, next_ms) {
                (End::WhenEmpty, _) => return false,
                (_, Some(due_ms)) => {
                    inner.sleep = Sleep::Until;
                    let wait_ms = u64::try_from(due_ms - now_ms).unwrap_or(0);
                    let wait = Duration::from_millis(wait_ms);
                    self.wake.wait_for(&mut inner, wait);
                }
                (_, None) => {
                    inner.sleep = Sleep::Long;
                    self.wake.wait(&mut inner);
                }
            }
            inner.sleep = Sleep::No;
        }
    }

    fn is_stopped(&self) -> bool {
        self.inner.lock().end == End::Now
    }
}

/// What is due at one time.
#[derive(Debug, Default)]
struct Turn {
    now: Vec<Arc<Partition>>,
    later: Vec<Arc<Partition>>,
}

/// The writer thread of one directory.
#[derive(Debug)]
pub struct Writer {
    shared: Arc<Shared>,
    dir: Arc<LogDirState>,
    outbox: Outbox,
    undelivered_bytes: usize,
    full_disk: FullDisk,
}

impl Writer {
    /// For one directory.
    pub fn new(shared: Arc<Shared>, dir: Arc<LogDirState>) -> Writer {
        let outbox = shared.outbox();
        let full_disk = FullDisk::new(Arc::clone(&shared), Arc::clone(&dir));
        Writer {
            shared,
            dir,
            outbox,
            undelivered_bytes: 0,
            full_disk,
        }
    }

    /// Runs until told to end.
    pub fn run(mut self) {
        let mut turn = Turn::default();
        self.full_disk.look();
        while self.dir.writer.take(&mut turn, self.full_disk.due_ms()) {
            let now = turn.now.drain(..).map(|partition| (partition, false));
            let later = turn.later.drain(..).map(|partition| (partition, true));
            for (partition, was_later) in now.chain(later) {
                if self.dir.writer.is_stopped() {
                    return;
                }
                self.write(partition, was_later);
                if self.undelivered_bytes >= DELIVER_BYTES {
                    self.deliver();
                }
            }
            self.try_again();
            self.deliver();
        }
        if !self.dir.writer.is_stopped() {
            for (partition, job) in self.full_disk.take_all() {
                self.carry_out(partition, job);
            }
            self.deliver();
        }
    }

    /// Where there was no space, there may be some by now.
    fn try_again(&mut self) {
        if self
            .full_disk
            .due_ms()
            .is_none_or(|due_ms| mono_ms() < due_ms)
        {
            return;
        }
        for (partition, job) in self.full_disk.take_due() {
            self.carry_out(partition, job);
        }
        if let Err(error) = self.full_disk.settle() {
            let reason = format!("giving the reserve up: {error}");
            self.shared.fail_dir(&self.dir, reason);
        }
    }

    fn deliver(&mut self) {
        self.dir.unpark(&mut self.outbox);
        self.outbox.deliver(&self.shared.inboxes);
        self.undelivered_bytes = 0;
    }

    fn write(&mut self, partition: Arc<Partition>, was_later: bool) {
        let job = {
            let mut state = partition.lock();
            if was_later {
                state.queued_later = false;
            } else {
                state.queued = false;
            }
            let log = state.log.as_mut();
            // What has waited long enough is written to its end.
            log.and_then(|log| match was_later {
                true => log.take_writes(),
                false => log.take_whole_pages(),
            })
        };
        if let Some(job) = job {
            self.carry_out(partition, job);
        }
    }

    fn carry_out(&mut self, partition: Arc<Partition>, mut job: WriteJob) {
        let since_ms = &self.dir.writer.at_job_since_ms;
        since_ms.store(mono_ms(), Ordering::Relaxed);
        let result = self.full_disk.execute(&mut job);
        since_ms.store(0, Ordering::Relaxed);
        if result.as_ref().is_err_and(is_full) && !self.dir.has_failed() {
            self.full_disk.keep(partition, job, &mut self.outbox);
            return;
        }
        let failure = result.as_ref().err().map(|error| error.to_string());
        let mut state = partition.lock();
        let Some(log) = &mut state.log else { return };
        let completed = log.complete_writes(job, result);
        state.count_unwritten(&self.dir);
        self.undelivered_bytes += completed.written_bytes;
        if completed.gate_moved && state.release(completed.readable_bytes, &mut self.outbox) {
            self.dir.syncer.high_watermark_moved();
        }
        if completed.more && failure.is_none() {
            partition.unlock_and_write(state);
        } else {
            drop(state);
        }
        if let Some(reason) = failure {
            let reason = format!(
                "writing {}-{}: {reason}",
                partition.topic.name, partition.index
            );
            self.shared.fail_dir(&self.dir, reason);
        } else if completed.rolled {
            self.dir.syncer.rolled(partition);
        }
    }
}
