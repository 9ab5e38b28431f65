//! One thread per log directory for slow and periodic work: syncing complete segments, checkpoints,
//! retention, deferred deletion, expiring producers. It sleeps until something is due.

use std::io;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use pyrklog_log::disk::may_pass;
use pyrklog_log::{Checkpoint, SyncScope};

use crate::log_dir_state::{LogDirState, Partition};
use crate::log_manager::LogManager;
use crate::page_cache_limit;
use crate::syncer_queue::{Deletion, Inner};
use pyrklog_base::clock::Now;
use pyrklog_control::seam::PlaneConfig;

mod flushing;

/// `producer.id.expiration.check.interval.ms`.
const PRODUCER_CHECK_MS: i64 = 10 * 60 * 1000;

/// First check of `flush.ms`; [`Syncer::flush_due`] schedules the next ones.
const FLUSH_CHECK_MS: i64 = 500;

/// Interval at which unread windows and kept pieces are given up: after one to two intervals
/// without reads (reads.md).
const IDLE_READS_MS: i64 = 5_000;

/// First check of retention after the start, as in Kafka.
const RETENTION_FIRST_MS: i64 = 30_000;

/// Delay of the log start checkpoint after DeleteRecords: many of them share one write.
const CHECKPOINT_SOON_MS: i64 = 200;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Timer {
    Checkpoint(Checkpoint),
    Retention,
    Producers,
    Flush,
    /// Windows and kept pieces of consumers far behind.
    IdleReads,
}

const TIMERS: [Timer; 7] = [
    Timer::Checkpoint(Checkpoint::RecoveryPoint),
    Timer::Checkpoint(Checkpoint::LogStart),
    Timer::Checkpoint(Checkpoint::HighWatermark),
    Timer::Retention,
    Timer::Producers,
    Timer::Flush,
    Timer::IdleReads,
];

impl Timer {
    /// Its place in [`TIMERS`].
    fn index(self) -> usize {
        let place = TIMERS.iter().position(|timer| *timer == self);
        place.expect("every timer has a place")
    }

    fn interval_ms(self, config: &PlaneConfig) -> i64 {
        match self {
            Timer::Checkpoint(Checkpoint::RecoveryPoint) => config.recovery_checkpoint_interval_ms,
            Timer::Checkpoint(Checkpoint::LogStart) => config.log_start_checkpoint_interval_ms,
            Timer::Checkpoint(Checkpoint::HighWatermark) => {
                config.high_watermark_checkpoint_interval_ms
            }
            Timer::Retention => config.retention_check_interval_ms,
            Timer::Producers => PRODUCER_CHECK_MS,
            Timer::Flush => FLUSH_CHECK_MS,
            Timer::IdleReads => IDLE_READS_MS,
        }
        .max(1)
    }
}

#[derive(Debug)]
struct Due {
    rolled: Vec<Arc<Partition>>,
    deletions: Vec<Deletion>,
}

impl Due {
    fn take(inner: &mut Inner<Arc<Partition>>, wall_ms: i64) -> Due {
        let deletions = inner
            .deletions
            .extract_if(.., |(due_ms, _)| *due_ms <= wall_ms);
        Due {
            deletions: deletions.map(|(_, deletion)| deletion).collect(),
            rolled: std::mem::take(&mut inner.rolled),
        }
    }
}

/// The syncer thread of one directory.
#[derive(Debug)]
pub struct Syncer {
    logs: Arc<LogManager>,
    dir: Arc<LogDirState>,
    /// Partitions whose active segment retention has rolled; retention continues once it is
    /// written.
    again: Vec<Arc<Partition>>,
    /// Partitions whose sync failed and is to be retried.
    unsynced: Vec<Arc<Partition>>,
    /// When each timer is due, monotonic milliseconds.
    due_ms: [i64; TIMERS.len()],
}

impl Syncer {
    /// For one directory.
    pub fn new(logs: Arc<LogManager>, dir: Arc<LogDirState>) -> Syncer {
        let now_ms = Now::read().mono_ms;
        let due_ms = TIMERS.map(|timer| {
            let interval_ms = timer.interval_ms(&logs.config);
            now_ms
                + if timer == Timer::Retention {
                    interval_ms.min(RETENTION_FIRST_MS)
                } else {
                    interval_ms
                }
        });
        Syncer {
            logs,
            dir,
            again: Vec::new(),
            unsynced: Vec::new(),
            due_ms,
        }
    }

    /// Runs until told to stop or until the directory fails.
    pub fn run(mut self) {
        while !self.dir.syncer.is_stopped() {
            if self.dir.has_failed() {
                self.wait_for_stop();
                return;
            }
            if let Err(reason) = self.turn() {
                self.logs.fail_dir(&self.dir, reason);
            }
        }
    }

    fn wait_for_stop(&self) {
        let queue = &self.dir.syncer;
        let mut inner = queue.inner.lock();
        while !inner.is_stopped {
            queue.wake.wait(&mut inner);
        }
    }

    /// Waits for work and does it. The error is a sentence.
    fn turn(&mut self) -> Result<(), String> {
        let due = self.wait();
        self.work(due)
    }

    /// Does what is due now, on the caller's thread. The error is a sentence.
    #[cfg(feature = "sim")]
    pub fn run_turn(&mut self) -> Result<(), String> {
        let now = Now::read();
        let due = {
            let mut inner = self.dir.syncer.inner.lock();
            hasten(&mut self.due_ms, &mut inner, now.mono_ms);
            Due::take(&mut inner, now.wall_ms)
        };
        self.work(due)
    }

    fn work(&mut self, due: Due) -> Result<(), String> {
        for partition in due.rolled {
            if self.dir.syncer.is_stopped() {
                return Ok(()); // The end syncs the whole file system; a kill leaves it to recovery.
            }
            self.sync(&partition, SyncScope::ClosedSegments)?;
            if let Some(place) = self
                .again
                .iter()
                .position(|other| Arc::ptr_eq(other, &partition))
            {
                self.again.swap_remove(place);
                self.retain(&partition)?;
            }
        }
        for deletion in due.deletions {
            self.delete(deletion);
        }
        let now_ms = Now::read().mono_ms;
        for (index, timer) in TIMERS.into_iter().enumerate() {
            if self.due_ms[index] <= now_ms && !self.dir.syncer.is_stopped() {
                self.due_ms[index] = now_ms + timer.interval_ms(&self.logs.config);
                self.fire(timer)?;
            }
        }
        Ok(())
    }

    fn wait(&mut self) -> Due {
        let queue = &self.dir.syncer;
        let mut inner = queue.inner.lock();
        loop {
            let now = Now::read();
            hasten(&mut self.due_ms, &mut inner, now.mono_ms);
            let timer_ms = self.next_timer_ms() - now.mono_ms;
            let deletion_ms = inner
                .deletions
                .iter()
                .map(|(due_ms, _)| due_ms - now.wall_ms)
                .min();
            let wait_ms = deletion_ms.map_or(timer_ms, |ms| ms.min(timer_ms));
            let has_work = !inner.rolled.is_empty();
            if wait_ms <= 0 || inner.is_stopped || has_work {
                let mut due = Due::take(&mut inner, now.wall_ms);
                drop(inner);
                // A busy partition is queued at each roll; a turn syncs a few segments of each, so
                // that timers and deletions get their turn.
                due.rolled.sort_by_key(Arc::as_ptr);
                due.rolled.dedup_by(|one, other| Arc::ptr_eq(one, other));
                return due;
            }
            let wait = Duration::from_millis(u64::try_from(wait_ms).unwrap_or(1));
            queue.wake.wait_for(&mut inner, wait);
        }
    }

    /// When the next timer is due that has something to do.
    fn next_timer_ms(&self) -> i64 {
        let queue = &self.dir.syncer;
        let has_reason = |timer| match timer {
            // The writer sets the flag without waking this thread, so it is checked at each
            // interval.
            Timer::Checkpoint(Checkpoint::HighWatermark) => true,
            Timer::Checkpoint(checkpoint) => queue.has_moved(checkpoint),
            Timer::Flush => queue.flush_ms.is_any(),
            Timer::Retention | Timer::Producers | Timer::IdleReads => true,
        };
        TIMERS
            .into_iter()
            .zip(self.due_ms)
            .filter(|(timer, _)| has_reason(*timer))
            .map(|(_, due_ms)| due_ms)
            .min()
            .unwrap_or(i64::MAX)
    }

    fn fire(&mut self, timer: Timer) -> Result<(), String> {
        match timer {
            Timer::Checkpoint(checkpoint) => self.write_checkpoint(checkpoint),
            Timer::Retention => self.each_partition(Self::retain),
            Timer::Producers => {
                let expiration_ms = self.logs.producer_id_expiration_ms.load(Ordering::Relaxed);
                self.each_partition(|_, partition| {
                    let now_ms = Now::read().wall_ms;
                    if let Some(log) = &mut partition.lock().log {
                        log.expire_producers(now_ms, expiration_ms);
                    }
                    Ok(())
                })
            }
            Timer::Flush => self.flush_due(),
            Timer::IdleReads => {
                page_cache_limit::update();
                self.dir.env().forget_idle_reads();
                Ok(())
            }
        }
    }

    fn write_checkpoint(&mut self, checkpoint: Checkpoint) -> Result<(), String> {
        let queue = &self.dir.syncer;
        if checkpoint == Checkpoint::HighWatermark {
            // The interval suits retries of syncs as well.
            for partition in self.unsynced.drain(..) {
                queue.rolled(partition);
            }
        }
        if !queue.take_moved(checkpoint) {
            return Ok(());
        }
        match self.dir.write_checkpoint(checkpoint, &self.logs.registry) {
            Err(error) if may_pass(&error) => {
                self.logs
                    .fall_short(&self.dir, "writing a checkpoint", &error);
                queue.set_moved(checkpoint);
                Ok(())
            }
            written => written.map_err(|error| format!("writing a checkpoint: {error}")),
        }
    }

    fn each_partition(
        &mut self,
        act: impl Fn(&mut Self, &Arc<Partition>) -> Result<(), String>,
    ) -> Result<(), String> {
        let dir = Arc::clone(&self.dir);
        for partition in self.logs.registry.load().partitions_in(&dir) {
            if dir.syncer.is_stopped() {
                break;
            }
            act(self, partition)?;
        }
        Ok(())
    }

    fn sync(&mut self, partition: &Arc<Partition>, scope: SyncScope) -> Result<(), String> {
        // Synced segments need not stay open.
        self.dir.env().close_surplus();
        let mut state = partition.lock();
        if self.has_left(partition) {
            drop(state);
            partition.dir().syncer.rolled(Arc::clone(partition));
            return Ok(());
        }
        let job = state.log.as_mut().and_then(|log| log.take_sync(scope));
        drop(state);
        let Some(mut job) = job else { return Ok(()) };
        let result = job.execute();
        let failed = result.as_ref().err();
        let failure = failed.map(|error| describe(partition, "syncing", error));
        let falls_short = failed.filter(|error| may_pass(error));
        if let Some(error) = falls_short {
            self.fall_short("syncing", partition, error);
        }
        let falls_short = falls_short.is_some();
        let mut state = partition.lock();
        // The partition was stopped meanwhile; its folder may be gone.
        let Some(log) = &mut state.log else {
            return Ok(());
        };
        let more = log.complete_sync(job, result);
        drop(state);
        if falls_short {
            self.unsynced.push(Arc::clone(partition));
            return Ok(());
        }
        if more && failure.is_none() {
            self.dir.syncer.rolled(Arc::clone(partition));
        }
        self.dir.syncer.set_moved(Checkpoint::RecoveryPoint);
        failure.map_or(Ok(()), Err)
    }

    fn fall_short(&self, doing: &str, partition: &Partition, error: &io::Error) {
        let doing = format!("{doing} {partition}");
        self.logs.fall_short(&self.dir, &doing, error);
    }

    /// Whether it has moved to another directory, whose syncer cares for it. Ask with the partition
    /// locked.
    fn has_left(&self, partition: &Partition) -> bool {
        partition.dir().index != self.dir.index
    }

    /// Removes what retention no longer keeps and what lies below the log start offset.
    fn retain(&mut self, partition: &Arc<Partition>) -> Result<(), String> {
        let now_ms = Now::read().wall_ms;
        let candidates = partition
            .lock()
            .log
            .as_ref()
            .map(|log| log.retention_candidates(now_ms));
        let Some(candidates) = candidates else {
            return Ok(());
        };
        if let Err(error) = candidates.load() {
            if may_pass(&error) {
                self.fall_short("reading", partition, &error);
                return Ok(());
            }
            return self.unless_gone(partition, describe(partition, "reading", &error));
        }
        let mut state = partition.lock();
        if self.has_left(partition) {
            return Ok(());
        }
        let Some(log) = &mut state.log else {
            return Ok(());
        };
        let before = log.log_start_offset();
        let retention = log.plan_retention(now_ms);
        if log.log_start_offset() != before {
            state.tell_fetches_later();
        }
        partition.unlock_and_write(state);
        if retention.again {
            self.again.push(Arc::clone(partition));
        }
        let Some(mut removed) = retention.removed else {
            return Ok(());
        };
        self.dir.syncer.set_moved(Checkpoint::LogStart);
        match removed.rename() {
            Err(error) if may_pass(&error) => {
                self.fall_short("renaming", partition, &error);
            }
            Err(error) => {
                return self.unless_gone(partition, describe(partition, "renaming", &error));
            }
            Ok(()) => {}
        }
        self.logs.events.notice(
            "segments_deleted",
            "info",
            vec![
                ("topic", partition.topic.name.to_string()),
                ("partition", partition.index.to_string()),
                ("bytes", removed.size_bytes().to_string()),
            ],
        );
        self.dir
            .syncer
            .delete_later(removed.due_ms, Deletion::Segments(removed));
        Ok(())
    }

    /// An error says nothing of the directory if the folder was removed meanwhile.
    fn unless_gone(&self, partition: &Partition, reason: String) -> Result<(), String> {
        let state = partition.lock();
        if state.log.is_none() || self.has_left(partition) {
            Ok(())
        } else {
            Err(reason)
        }
    }

    fn delete(&self, deletion: Deletion) {
        let result = match &deletion {
            Deletion::Segments(removed) => removed.delete(),
            Deletion::Folder(folder) => folder.remove(),
        };
        if let Err(error) = result {
            // The next start removes files with these names.
            self.logs
                .dir_notice(&self.dir, "deletion_failed", "warning", error.to_string());
        }
    }
}

fn describe(partition: &Partition, doing: &str, error: &io::Error) -> String {
    format!("{doing} {partition}: {error}")
}

/// Makes timers due early on request.
fn hasten(due_ms: &mut [i64; TIMERS.len()], inner: &mut Inner<Arc<Partition>>, now_ms: i64) {
    let mut due_by = |timer: Timer, by_ms: i64| {
        let due_ms = &mut due_ms[timer.index()];
        *due_ms = (*due_ms).min(by_ms);
    };
    if std::mem::take(&mut inner.log_start_soon) {
        due_by(
            Timer::Checkpoint(Checkpoint::LogStart),
            now_ms + CHECKPOINT_SOON_MS,
        );
    }
    if std::mem::take(&mut inner.flush_soon) {
        due_by(Timer::Flush, now_ms);
    }
}
