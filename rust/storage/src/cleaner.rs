//! Threads that compact logs (`compaction.md`): `log.cleaner.threads` for all log directories, each
//! with a part of the memory for keys, all with one limit of bytes a second.
//!
//! A thread looks for the dirtiest log, cleans it, and looks again; without one it waits for
//! `log.cleaner.backoff.ms`. No lock of a partition is held while a disk is used.

use std::collections::HashSet;
use std::io;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::{Condvar, Mutex};
use pyrklog_log::cleaner::{CleanError, CleanJob, CleaningPlan, MapLimits};
use pyrklog_log::{Checkpoint, Log};

use crate::cleaner::throttle::Throttle;
use crate::log_dir_state::Partition;
use crate::log_manager::LogManager;
use crate::syncer_queue::Deletion;
use pyrklog_base::clock::{Now, mono_ms};
use pyrklog_base::ids::TopicId;
use pyrklog_control::seam::CleanerConfig;

mod throttle;

/// A partition, whatever is done to its log.
type Key = (Arc<str>, TopicId, i32);

/// What the threads share.
#[derive(Debug)]
pub struct Cleaners {
    logs: Arc<LogManager>,
    config: CleanerConfig,
    throttle: Throttle,
    state: Mutex<State>,
    wake: Condvar,
}

#[derive(Debug, Default)]
struct State {
    is_stopped: bool,
    /// Being cleaned.
    busy: HashSet<Key>,
    /// Logs with damage, which are not tried again until the next start.
    uncleanable: HashSet<Key>,
    /// No cleaning begins before, since one found no space (monotonic).
    waits_until_ms: i64,
}

impl Cleaners {
    /// For the threads of a broker.
    pub fn new(logs: Arc<LogManager>) -> Arc<Cleaners> {
        let config = logs.config.cleaner;
        Arc::new(Cleaners {
            logs,
            config,
            throttle: Throttle::new(config.io_max_bytes_per_second),
            state: Mutex::default(),
            wake: Condvar::new(),
        })
    }

    /// Number of threads; 0 if logs are not to be compacted.
    pub fn threads(&self) -> usize {
        match self.config.is_enabled {
            true => self.config.threads,
            false => 0,
        }
    }

    /// Ends the threads, within a piece of their work.
    pub fn stop(&self) {
        self.state.lock().is_stopped = true;
        self.wake.notify_all();
    }

    /// The work of one thread, until it is told to stop.
    pub fn run(&self) {
        while !self.is_stopped() {
            match self.take_dirtiest() {
                Some((partition, plan)) => {
                    self.clean(&partition, plan);
                    self.state.lock().busy.remove(&key(&partition));
                }
                None => self.wait(self.config.backoff_ms),
            }
        }
    }

    fn is_stopped(&self) -> bool {
        self.state.lock().is_stopped
    }

    fn wait(&self, wait_ms: i64) {
        let mut state = self.state.lock();
        if !state.is_stopped {
            let wait = Duration::from_millis(u64::try_from(wait_ms).unwrap_or(1).max(1));
            self.wake.wait_for(&mut state, wait);
        }
    }

    /// The log with the largest dirty part of those that are due; it counts as busy from now on.
    fn take_dirtiest(&self) -> Option<(Arc<Partition>, CleaningPlan)> {
        let (passed_over, waits) = {
            let state = self.state.lock();
            let passed_over: HashSet<Key> = state.busy.union(&state.uncleanable).cloned().collect();
            (passed_over, mono_ms() < state.waits_until_ms)
        };
        if waits {
            return None;
        }
        let mut dirtiest: Option<(Arc<Partition>, CleaningPlan)> = None;
        for partition in self.logs.registry.load().partitions() {
            if self.is_stopped() {
                return None;
            }
            let dir = &partition.dir;
            let is_free = !dir.has_failed() && !dir.is_read_only();
            if !is_free || !partition.lock().settings.log.cleanup_compact {
                continue;
            }
            if passed_over.contains(&key(partition)) {
                continue;
            }
            let Some(plan) = self.plan(partition) else {
                continue;
            };
            let is_dirtier = |best: &(_, CleaningPlan)| plan.dirty_ratio() > best.1.dirty_ratio();
            if dirtiest.as_ref().is_none_or(is_dirtier) {
                dirtiest = Some((Arc::clone(partition), plan));
            }
        }
        let (partition, plan) = dirtiest?;
        let is_first = self.state.lock().busy.insert(key(&partition));
        is_first.then_some((partition, plan))
    }

    fn plan(&self, partition: &Partition) -> Option<CleaningPlan> {
        let (topic, index) = (&partition.topic.name, partition.index);
        let checkpoint = partition.dir.files.cleaned_end(topic, index);
        let (candidate, rules) = {
            let state = partition.lock();
            let log = state.log.as_ref()?;
            (
                log.cleaning_candidate(checkpoint)?,
                log.config().cleaning_rules(),
            )
        };
        match candidate.assess(rules, Now::read().wall_ms) {
            Ok(plan) => plan.filter(CleaningPlan::is_worthwhile),
            Err(error) => {
                self.failed(partition, error.into());
                None
            }
        }
    }

    fn clean(&self, partition: &Arc<Partition>, plan: CleaningPlan) {
        let job = with_log(partition, |log| log.begin_cleaning(plan)).flatten();
        let Some(mut job) = job else { return };
        let began_ms = mono_ms();
        match self.clean_groups(partition, &mut job) {
            Ok(()) => self.cleaned(partition, &job, mono_ms() - began_ms),
            Err(error) => self.failed(partition, error),
        }
    }

    fn clean_groups(
        &self,
        partition: &Arc<Partition>,
        job: &mut CleanJob,
    ) -> Result<(), CleanError> {
        let mut pace =
            |bytes| self.throttle.pass(bytes, |wait_ms| self.wait(wait_ms)) && !self.is_stopped();
        let limits = MapLimits {
            buffer_bytes: self.config.dedupe_buffer_bytes / self.config.threads.max(1),
            load_factor: self.config.load_factor,
            seed: self.logs.names.unique() as u64,
        };
        job.build_map(limits, &mut pace)?;
        let dir = &partition.dir;
        // So that a start after a kill takes no gap for lost records.
        dir.write_checkpoint(Checkpoint::RecoveryPoint, &self.logs.registry)?;
        while let Some(mut swap) = job.next_group(&mut pace)? {
            let begun = with_log(partition, |log| log.begin_swap(&mut swap));
            if !begun.is_some_and(|begun| begun.is_ok()) {
                swap.discard()?;
                return Err(CleanError::Stale);
            }
            let mut result = swap.execute();
            while result.as_ref().is_err_and(pyrklog_log::disk::may_pass) && swap.is_decided() {
                if self.is_stopped() {
                    break;
                }
                self.wait(self.config.backoff_ms);
                result = swap.execute();
            }
            let now_ms = Now::read().wall_ms;
            let removed = with_log(partition, |log| log.complete_swap(swap, result, now_ms));
            let removed = removed.ok_or(CleanError::Stale)??;
            dir.syncer
                .delete_later(removed.due_ms, Deletion::Segments(removed));
        }
        let _in_order = dir.checkpoints.lock();
        let (topic, index) = (&partition.topic.name, partition.index);
        Ok(dir.files.write_cleaned_end(topic, index, job.end())?)
    }

    fn cleaned(&self, partition: &Partition, job: &CleanJob, took_ms: i64) {
        let stats = job.stats();
        let fields = vec![
            ("topic", partition.topic.name.to_string()),
            ("partition", partition.index.to_string()),
            ("clean_below", job.end().to_string()),
            ("bytes_before", stats.bytes_before.to_string()),
            ("bytes_after", stats.bytes_after.to_string()),
            ("keys", stats.keys.to_string()),
            ("ms", took_ms.to_string()),
        ];
        self.logs.events.notice("log_cleaned", "info", fields);
    }

    fn failed(&self, partition: &Partition, error: CleanError) {
        let is_gone = partition.lock().log.is_none();
        match error {
            CleanError::Stopped | CleanError::Stale => {}
            _ if is_gone => {}
            error if error.may_pass() => self.wait_for_space(partition, &error),
            CleanError::Io(error) => self.fail_dir(partition, &error),
            CleanError::Corrupt(reason) => {
                self.state.lock().uncleanable.insert(key(partition));
                let (topic, index) = (&partition.topic.name, partition.index);
                self.logs
                    .partition_error(topic, index, "log_uncleanable", reason);
            }
        }
    }

    fn wait_for_space(&self, partition: &Partition, error: &CleanError) {
        self.state.lock().waits_until_ms = mono_ms() + self.config.backoff_ms;
        let reason = format!("cleaning {partition}: {error}");
        self.logs
            .dir_notice(&partition.dir, "cleaning_waits", "warning", reason);
    }

    fn fail_dir(&self, partition: &Partition, error: &io::Error) {
        let reason = format!("cleaning {partition}: {error}");
        self.logs.fail_dir(&partition.dir, reason);
    }
}

fn key(partition: &Partition) -> Key {
    let topic = &partition.topic;
    (Arc::clone(&topic.name), topic.id, partition.index)
}

/// Acts on the log under its lock; `None` if the partition was stopped meanwhile.
fn with_log<T>(partition: &Partition, act: impl FnOnce(&mut Log) -> T) -> Option<T> {
    partition.lock().log.as_mut().map(act)
}
