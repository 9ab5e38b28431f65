//! A log directory's writer threads write appended bytes from memory to segment files, which
//! advances the durable end offset.
//!
//! Bytes in the block cache are already acknowledged and may gather: a partition is written when
//! enough of them wait, or after a while. Bytes on the heap are written at once.
//!
//! A writer works in turns: it takes its share of what is due, writes each partition's bytes in one
//! write, and reports finished requests at the end of the turn, waking each network thread at most
//! once. Meanwhile further appends gather into larger writes. A partition has one job at a time,
//! which keeps its writes in order across writers.

use std::sync::Arc;

use pyrklog_log::WriteJob;
use pyrklog_log::disk::may_pass;

use crate::log_dir_state::{LogDirState, Partition};
use crate::log_manager::LogManager;
use crate::shortage::Shortage;
use crate::writer_queue::Turn;
use pyrklog_base::clock::{mono_ms, mono_ns};
use pyrklog_control::outbox::Outbox;
use pyrklog_replica::partition::PartitionState;

#[cfg(feature = "sim")]
pub mod simulated;

/// After this many bytes, finished requests are reported before the turn ends.
const DELIVER_BYTES: usize = 1024 * 1024;

/// One writer thread of a directory.
#[derive(Debug)]
pub struct Writer {
    logs: Arc<LogManager>,
    dir: Arc<LogDirState>,
    /// Its number in the directory. The first one also handles a full disk.
    index: usize,
    outbox: Outbox,
    undelivered_bytes: usize,
    shortage: Arc<Shortage>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Extent {
    /// It was queued as due now.
    Now,
    /// All that has waited.
    Whole,
    /// Whole pages only; the rest waits for more.
    Pages,
}

impl Writer {
    /// All writers of one directory.
    pub fn team(logs: &Arc<LogManager>, dir: &Arc<LogDirState>) -> Vec<Writer> {
        let shortage = Arc::new(Shortage::new(Arc::clone(logs), Arc::clone(dir)));
        let one = |index| Writer {
            logs: Arc::clone(logs),
            dir: Arc::clone(dir),
            index,
            outbox: logs.outbox(),
            undelivered_bytes: 0,
            shortage: Arc::clone(&shortage),
        };
        (0..dir.writer.writers()).map(one).collect()
    }

    /// Whether it is the first one, which the others help.
    pub fn is_first(&self) -> bool {
        self.index == 0
    }

    /// Its thread's name.
    pub fn name(&self) -> String {
        match self.index {
            0 => format!("writer-{}", self.dir.index),
            index => format!("writer-{}.{index}", self.dir.index),
        }
    }

    /// Runs until told to end.
    pub fn run(mut self) {
        let mut turn = Turn::default();
        if self.is_first() {
            self.shortage.check_at_start();
        }
        while self.take(&mut turn) {
            if !self.carry_out_turn(&mut turn) {
                return;
            }
        }
        // The last writer retries jobs that found no space.
        if self.dir.writer.leave() && !self.dir.writer.is_stopped() {
            for (partition, job) in self.shortage.take_all() {
                self.carry_out(partition, job);
            }
            self.deliver();
        }
    }

    /// Writes what is due; false if it was told to stop.
    fn carry_out_turn(&mut self, turn: &mut Turn<Arc<Partition>>) -> bool {
        for (partition, extent) in extents(turn) {
            if self.dir.writer.is_stopped() {
                return false;
            }
            if let Some(job) = self.take_job(&partition, extent) {
                self.carry_out(partition, job);
            }
            if self.undelivered_bytes >= DELIVER_BYTES {
                self.deliver();
            }
        }
        self.try_again();
        self.deliver();
        true
    }

    fn take(&self, turn: &mut Turn<Arc<Partition>>) -> bool {
        match self.index {
            0 => {
                let until_ms = self.shortage.due_ms();
                self.dir.writer.take(turn, until_ms, &*self.dir)
            }
            _ => self.dir.writer.help(turn, &*self.dir),
        }
    }

    fn try_again(&mut self) {
        let due_ms = self.shortage.due_ms();
        if !self.is_first() || due_ms.is_none_or(|due_ms| mono_ms() < due_ms) {
            return;
        }
        for (partition, job) in self.shortage.take_due() {
            self.carry_out(partition, job);
        }
        if let Err(error) = self.shortage.try_to_end() {
            let reason = format!("giving the reserve up: {error}");
            self.logs.fail_dir(&self.dir, reason);
        }
    }

    fn deliver(&mut self) {
        self.dir.unmute(&mut self.outbox);
        self.outbox.deliver(&*self.logs);
        self.undelivered_bytes = 0;
    }

    /// The write of a partition; `None` if there is nothing to write or a write is under way.
    fn take_job(&self, partition: &Arc<Partition>, extent: Extent) -> Option<WriteJob> {
        let mut state = partition.lock();
        if extent == Extent::Now {
            state.queued = false;
        } else {
            state.queued_later = false;
        }
        if partition.dir().index != self.dir.index {
            // It has moved since, and is for the writers of its new directory.
            partition.unlock_and_write(state);
            return None;
        }
        let PartitionState {
            log, write_rest, ..
        } = &mut *state;
        let log = log.as_mut()?;
        // The flag outlasts a write that is under way.
        *write_rest |= extent == Extent::Whole;
        if log.is_being_written() {
            return None;
        }
        match std::mem::take(write_rest) {
            true => log.take_writes(),
            false => log.take_whole_pages(),
        }
    }

    fn carry_out(&mut self, partition: Arc<Partition>, mut job: WriteJob) {
        self.dir.writer.jobs[self.index].begin();
        let began_ns = mono_ns();
        let result = self.shortage.execute(&mut job);
        let took_ns = mono_ns().saturating_sub(began_ns);
        self.dir.write_times.record(took_ns);
        self.dir.writer.jobs[self.index].end();
        if result.as_ref().is_err_and(may_pass) && !self.dir.has_failed() {
            self.shortage
                .keep_for_retry(partition, job, &mut self.outbox);
            return;
        }
        let failure = result.as_ref().err().map(|error| error.to_string());
        let mut state = partition.lock();
        // It was stopped, or another log has taken its place, with writes and counts of its own.
        let written = state.log.as_mut().filter(|log| log.is_written_by(&job));
        let Some(log) = written else { return };
        let completed = log.complete_writes(job, result);
        state.count_unwritten(&*self.dir);
        self.undelivered_bytes += completed.written_bytes;
        if completed.durable_end_moved
            && state.raise_high_watermark(completed.readable_bytes, &mut self.outbox)
        {
            self.dir.syncer.high_watermark_moved();
        }
        if completed.more && failure.is_none() {
            match state.write_rest {
                true => partition.unlock_and_write_all(state),
                false => partition.unlock_and_write(state),
            }
        } else {
            drop(state);
        }
        if let Some(reason) = failure {
            self.logs
                .fail_dir(&self.dir, format!("writing {partition}: {reason}"));
        } else if completed.rolled {
            self.dir.syncer.rolled(partition);
        }
    }
}

fn extents(turn: &mut Turn<Arc<Partition>>) -> impl Iterator<Item = (Arc<Partition>, Extent)> {
    let now = turn.now.drain(..).map(|partition| (partition, Extent::Now));
    let later = turn.later.drain(..).map(|(partition, is_whole)| {
        let extent = if is_whole {
            Extent::Whole
        } else {
            Extent::Pages
        };
        (partition, extent)
    });
    now.chain(later)
}
