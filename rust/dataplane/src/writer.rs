//! One thread a log directory writes what was appended to memory into the segment files, and so
//! opens the partitions' durability gates.
//!
//! It works in turns: everything that is queued is taken at once, each partition's bytes go out in
//! one write, and the requests that are thereby done are told at the end of the turn, each network
//! thread woken at most once. While it is busy, further appends gather into larger writes.

use std::sync::Arc;

use parking_lot::{Condvar, Mutex};

use crate::log_dir::LogDirState;
use crate::outbox::Outbox;
use crate::partition::Partition;
use crate::shared::Shared;

/// Bytes after which finished requests are told before the turn is over.
const DELIVER_BYTES: usize = 1024 * 1024;

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
    partitions: Vec<Arc<Partition>>,
    is_asleep: bool,
    end: End,
}

/// Partitions with something to write, each once.
#[derive(Debug, Default)]
pub struct WriterQueue {
    inner: Mutex<Inner>,
    wake: Condvar,
}

impl WriterQueue {
    /// Queues a partition, whose `queued` flag the caller has just set under its mutex.
    pub fn push(&self, partition: Arc<Partition>) {
        let mut inner = self.inner.lock();
        inner.partitions.push(partition);
        let wake = std::mem::take(&mut inner.is_asleep);
        drop(inner);
        if wake {
            self.wake.notify_one();
        }
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
        self.inner.lock().partitions.clear();
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
        inner.is_asleep = false;
        drop(inner);
        self.wake.notify_one();
    }

    /// Moves everything queued into `turn`, waiting for it; false at the end.
    fn take(&self, turn: &mut Vec<Arc<Partition>>) -> bool {
        let mut inner = self.inner.lock();
        loop {
            match inner.end {
                End::Now => return false,
                _ if !inner.partitions.is_empty() => {
                    std::mem::swap(&mut inner.partitions, turn);
                    return true;
                }
                End::WhenEmpty => return false,
                End::No => {
                    inner.is_asleep = true;
                    self.wake.wait(&mut inner);
                }
            }
        }
    }

    fn is_stopped(&self) -> bool {
        self.inner.lock().end == End::Now
    }
}

/// The writer thread of one directory.
#[derive(Debug)]
pub struct Writer {
    shared: Arc<Shared>,
    dir: Arc<LogDirState>,
    outbox: Outbox,
    undelivered_bytes: usize,
}

impl Writer {
    /// For one directory.
    pub fn new(shared: Arc<Shared>, dir: Arc<LogDirState>) -> Writer {
        let outbox = shared.outbox();
        Writer {
            shared,
            dir,
            outbox,
            undelivered_bytes: 0,
        }
    }

    /// Runs until told to end.
    pub fn run(mut self) {
        let mut turn = Vec::new();
        while self.dir.writer.take(&mut turn) {
            for partition in turn.drain(..) {
                if self.dir.writer.is_stopped() {
                    return;
                }
                self.write(partition);
                if self.undelivered_bytes >= DELIVER_BYTES {
                    self.deliver();
                }
            }
            self.deliver();
        }
    }

    fn deliver(&mut self) {
        self.dir.unpark(&mut self.outbox);
        self.outbox.deliver(&self.shared.inboxes);
        self.undelivered_bytes = 0;
    }

    fn write(&mut self, partition: Arc<Partition>) {
        let job = {
            let mut state = partition.lock();
            state.queued = false;
            state.log.as_mut().and_then(|log| log.take_writes())
        };
        let Some(mut job) = job else { return };
        let result = job.execute();
        let failure = result.as_ref().err().map(|error| error.to_string());
        let mut state = partition.lock();
        let Some(log) = &mut state.log else { return };
        let completed = log.complete_writes(job, result);
        let written = completed.written_bytes.min(state.unwritten_bytes);
        state.unwritten_bytes -= written;
        self.dir.written(written);
        self.undelivered_bytes += written;
        if completed.gate_moved && state.release(written, &mut self.outbox) {
            self.dir.syncer.high_watermark_moved();
        }
        let again = completed.more && failure.is_none() && !state.queued;
        state.queued |= again;
        drop(state);
        if again {
            self.dir.writer.push(Arc::clone(&partition));
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
