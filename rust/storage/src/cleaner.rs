//! Threads that compact logs (`compaction.md`): `log.cleaner.threads` for all log directories, each
//! with a part of the memory for keys, all with one limit of bytes a second. Options may change at
//! run time; a cleaning that has begun keeps its memory.
//!
//! A thread looks for the dirtiest log, cleans it, and looks again; without one it waits for
//! `log.cleaner.backoff.ms`. No lock of a partition is held while a disk is used.

use std::collections::{BTreeSet, HashMap, HashSet};
use std::io;
use std::sync::{Arc, Weak};
use std::time::Duration;

use parking_lot::{Condvar, Mutex};
use pyrklog_log::cleaner::{CleanError, CleanJob, CleaningPlan, MapLimits};
use pyrklog_log::{Checkpoint, Log};

use crate::cleaner::throttle::Throttle;
use crate::log_dir_state::{LogDirState, Partition};
use crate::log_manager::LogManager;
use crate::syncer_queue::Deletion;
use pyrklog_base::clock::{Now, mono_ms};
use pyrklog_base::ids::TopicId;
use pyrklog_control::seam::CleanerConfig;

mod throttle;

/// Of the threads: about a tenth of a busy processor is left for them.
const NICENESS: i32 = 10;

/// A partition, whatever is done to its log.
type Key = (Arc<str>, TopicId, i32);

/// What the threads share.
#[derive(Debug)]
pub struct Cleaners {
    logs: Arc<LogManager>,
    throttle: Throttle,
    state: Mutex<State>,
    wake: Condvar,
}

#[derive(Debug)]
struct State {
    config: CleanerConfig,
    is_stopped: bool,
    /// Numbers of the threads that were started and have not ended.
    running: BTreeSet<usize>,
    /// Being cleaned.
    busy: HashSet<Key>,
    /// Logs with damage, which are not tried again while they are as they were.
    uncleanable: HashMap<Key, Damaged>,
    /// No cleaning begins before, since one found no space (monotonic).
    waits_until_ms: i64,
}

/// A log that has a damaged batch. It may be sound once the replica was made anew, or once the batch
/// is below the log start.
#[derive(Clone, Debug)]
struct Damaged {
    partition: Weak<Partition>,
    log_start: Option<i64>,
}

impl Damaged {
    fn of(partition: &Arc<Partition>) -> Damaged {
        Damaged {
            partition: Arc::downgrade(partition),
            log_start: log_start(partition),
        }
    }

    fn is_still(&self, partition: &Arc<Partition>) -> bool {
        let is_same = std::ptr::eq(self.partition.as_ptr(), Arc::as_ptr(partition));
        is_same && self.log_start == log_start(partition)
    }
}

fn log_start(partition: &Partition) -> Option<i64> {
    let state = partition.lock();
    state.log.as_ref().map(Log::log_start_offset)
}

impl Cleaners {
    /// For the threads of a broker.
    pub fn new(logs: Arc<LogManager>, config: CleanerConfig) -> Arc<Cleaners> {
        Arc::new(Cleaners {
            logs,
            throttle: Throttle::new(config.io_max_bytes_per_second),
            state: Mutex::new(State {
                config,
                is_stopped: false,
                running: BTreeSet::new(),
                busy: HashSet::new(),
                uncleanable: HashMap::new(),
                waits_until_ms: 0,
            }),
            wake: Condvar::new(),
        })
    }

    /// Takes other options. Threads that are too many end after their cleaning; then start those
    /// of [`Cleaners::take_missing`].
    pub fn set_config(&self, config: CleanerConfig) {
        self.throttle.set_rate(config.io_max_bytes_per_second);
        self.state.lock().config = config;
        self.wake.notify_all();
    }

    /// Numbers of threads that are to be started; they count as running from now on.
    pub fn take_missing(&self) -> Vec<usize> {
        let mut state = self.state.lock();
        let wanted = match state.config.is_enabled && !state.is_stopped {
            true => state.config.threads,
            false => 0,
        };
        let mut missing: Vec<usize> = (0..wanted).collect();
        missing.retain(|number| state.running.insert(*number));
        missing
    }

    /// A thread has ended, or could not be started.
    pub fn ended(&self, number: usize) {
        self.state.lock().running.remove(&number);
    }

    /// Ends the threads, within a piece of their work.
    pub fn stop(&self) {
        self.state.lock().is_stopped = true;
        self.wake.notify_all();
    }

    /// The work of one thread, until it is told to stop or is one too many. Where processors are
    /// scarce, those that serve clients go first.
    pub fn run(&self, number: usize) {
        let this_thread = Some(rustix::thread::gettid());
        if let Err(error) = rustix::process::setpriority_process(this_thread, NICENESS) {
            let fields = vec![("reason", error.to_string())];
            let notices = &self.logs.events;
            notices.notice("cleaner_priority_not_lowered", "warning", fields);
        }
        while self.goes_on(number) {
            match self.take_dirtiest() {
                Some((partition, plan)) => {
                    self.clean(&partition, plan);
                    self.state.lock().busy.remove(&key(&partition));
                }
                None => {
                    self.wait(self.config().backoff_ms);
                }
            }
        }
    }

    fn goes_on(&self, number: usize) -> bool {
        let mut state = self.state.lock();
        let goes_on = !state.is_stopped && number < state.config.threads;
        if !goes_on {
            state.running.remove(&number);
        }
        goes_on
    }

    fn config(&self) -> CleanerConfig {
        self.state.lock().config
    }

    fn is_stopped(&self) -> bool {
        self.state.lock().is_stopped
    }

    /// False if the thread is to end.
    fn wait(&self, wait_ms: i64) -> bool {
        let mut state = self.state.lock();
        if !state.is_stopped {
            let wait = Duration::from_millis(u64::try_from(wait_ms).unwrap_or(1).max(1));
            self.wake.wait_for(&mut state, wait);
        }
        !state.is_stopped
    }

    /// The log with the largest dirty part of those that are due; it counts as busy from now on.
    fn take_dirtiest(&self) -> Option<(Arc<Partition>, CleaningPlan)> {
        loop {
            let (partition, plan) = self.dirtiest()?;
            // Another thread may have taken it meanwhile.
            if self.state.lock().busy.insert(key(&partition)) {
                return Some((partition, plan));
            }
        }
    }

    fn dirtiest(&self) -> Option<(Arc<Partition>, CleaningPlan)> {
        let (busy, uncleanable, waits) = {
            let state = self.state.lock();
            let waits = mono_ms() < state.waits_until_ms;
            (state.busy.clone(), state.uncleanable.clone(), waits)
        };
        if waits {
            return None;
        }
        let mut dirtiest: Option<(Arc<Partition>, CleaningPlan)> = None;
        for partition in self.logs.registry.load().partitions() {
            if self.is_stopped() {
                return None;
            }
            let dir = partition.dir();
            if dir.has_failed() || dir.is_read_only() || !is_compacted(partition) {
                continue;
            }
            let key = key(partition);
            let is_damaged = |damaged: &Damaged| damaged.is_still(partition);
            if busy.contains(&key) || uncleanable.get(&key).is_some_and(is_damaged) {
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
        dirtiest
    }

    fn plan(&self, partition: &Arc<Partition>) -> Option<CleaningPlan> {
        let (topic, index) = (&partition.topic.name, partition.index);
        let dir = Arc::clone(&partition.dir());
        let checkpoint = dir.files.cleaned_end(topic, index);
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
                let is_there = {
                    let state = partition.lock();
                    state.log.is_some() && partition.dir().index == dir.index
                };
                if is_there {
                    self.failed(partition, error.into(), Damaged::of(partition));
                }
                None
            }
        }
    }

    fn clean(&self, partition: &Arc<Partition>, plan: CleaningPlan) {
        // Of now: a log start that passes the damage meanwhile makes it a sound log.
        let as_it_was = Damaged::of(partition);
        let begun = {
            let state = partition.lock();
            let job = state.log.as_ref().and_then(|log| log.begin_cleaning(plan));
            job.map(|job| (job, Arc::clone(&partition.dir())))
        };
        let Some((mut job, dir)) = begun else { return };
        let began_ms = mono_ms();
        match self.clean_groups(partition, &dir, &mut job) {
            Ok(()) => self.cleaned(partition, &job, mono_ms() - began_ms),
            // Its folder was renamed, or removed, while it was read.
            Err(_) if !is_cleaned_by(partition, &job) => {}
            Err(error) => self.failed(partition, error, as_it_was),
        }
    }

    fn clean_groups(
        &self,
        partition: &Arc<Partition>,
        dir: &LogDirState,
        job: &mut CleanJob,
    ) -> Result<(), CleanError> {
        let mut pace =
            |bytes| self.throttle.pass(bytes, |wait_ms| self.wait(wait_ms)) && !self.is_stopped();
        let config = self.config();
        let limits = MapLimits {
            buffer_bytes: config.dedupe_buffer_bytes / config.threads.max(1),
            load_factor: config.load_factor,
            seed: self.logs.names.unique() as u64,
        };
        job.build_map(limits, &mut pace)?;
        // So that a start after a kill takes no gap for lost records.
        dir.write_checkpoint(Checkpoint::RecoveryPoint, &self.logs.registry)?;
        while is_compacted(partition) {
            let Some(mut swap) = job.next_group(&mut pace)? else {
                return self.note_cleaned(partition, dir, job, |_| job.end());
            };
            let begun = with_log(partition, |log| log.begin_swap(&mut swap));
            if begun.is_none_or(|begun| begun.is_err()) {
                swap.discard()?;
                return Err(CleanError::Stale);
            }
            let mut result = swap.execute();
            while result.as_ref().is_err_and(pyrklog_log::disk::may_pass) && swap.is_decided() {
                if !self.wait(config.backoff_ms) {
                    break;
                }
                result = swap.execute();
            }
            let now_ms = Now::read().wall_ms;
            let removed = with_log(partition, |log| log.complete_swap(swap, result, now_ms));
            let removed = removed.ok_or(CleanError::Stale)??;
            dir.syncer
                .delete_later(removed.due_ms, Deletion::Segments(removed));
            // A cleaning that is not finished has cleaned so much all the same.
            self.note_cleaned(partition, dir, job, Log::swapped_end)?;
        }
        Err(CleanError::Stale)
    }

    /// Raises the checkpoint of what is cleaned.
    fn note_cleaned(
        &self,
        partition: &Partition,
        dir: &LogDirState,
        job: &CleanJob,
        cleaned_end: impl Fn(&Log) -> i64,
    ) -> Result<(), CleanError> {
        let _no_cut_between = dir.checkpoints.lock();
        let ends = with_log(partition, |log| (cleaned_end(log), log.log_end_offset()));
        let (end, log_end) = ends.ok_or(CleanError::Stale)?;
        let end = end.min(log_end);
        if !is_cleaned_by(partition, job) {
            return Err(CleanError::Stale);
        }
        let (topic, index) = (&partition.topic.name, partition.index);
        match dir.files.cleaned_end(topic, index) {
            // One beyond the log's end is of another log.
            Some(before) if (end..=log_end).contains(&before) => Ok(()),
            _ => Ok(dir.files.write_cleaned_end(topic, index, end)?),
        }
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

    fn failed(&self, partition: &Arc<Partition>, error: CleanError, as_it_was: Damaged) {
        match error {
            CleanError::Stopped | CleanError::Stale => {}
            error if error.may_pass() => self.wait_for_space(partition, &error),
            CleanError::Io(error) => self.fail_dir(partition, &error),
            CleanError::Corrupt(reason) => {
                let mut state = self.state.lock();
                let uncleanable = &mut state.uncleanable;
                uncleanable.retain(|_, one| one.partition.strong_count() > 0);
                uncleanable.insert(key(partition), as_it_was);
                drop(state);
                let (topic, index) = (&partition.topic.name, partition.index);
                self.logs
                    .partition_error(topic, index, "log_uncleanable", reason);
            }
        }
    }

    fn wait_for_space(&self, partition: &Partition, error: &CleanError) {
        let mut state = self.state.lock();
        state.waits_until_ms = mono_ms().saturating_add(state.config.backoff_ms);
        drop(state);
        let reason = format!("cleaning {partition}: {error}");
        self.logs
            .dir_notice(&partition.dir(), "cleaning_waits", "warning", reason);
    }

    fn fail_dir(&self, partition: &Partition, error: &io::Error) {
        let reason = format!("cleaning {partition}: {error}");
        self.logs.fail_dir(&partition.dir(), reason);
    }
}

fn key(partition: &Partition) -> Key {
    let topic = &partition.topic;
    (Arc::clone(&topic.name), topic.id, partition.index)
}

fn is_compacted(partition: &Partition) -> bool {
    let is_compacted = |log: &Log| log.config().cleanup_compact;
    partition.lock().log.as_ref().is_some_and(is_compacted)
}

/// Whether it still has the log that is cleaned: it may have been stopped, or moved to another
/// directory.
fn is_cleaned_by(partition: &Partition, job: &CleanJob) -> bool {
    let is_it = |log: &Log| log.is_cleaned_by(job);
    partition.lock().log.as_ref().is_some_and(is_it)
}

/// Acts on the log under its lock; `None` if the partition was stopped meanwhile.
fn with_log<T>(partition: &Partition, act: impl FnOnce(&mut Log) -> T) -> Option<T> {
    partition.lock().log.as_mut().map(act)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Made from the same topic and index, as when its replica is removed and placed here again.
    #[test]
    fn damage_is_that_of_one_replica() {
        let root = tempfile::tempdir().unwrap();
        let (dirs, damaged) = crate::moves::tests::rig(root.path());
        let again = Arc::new(Partition::new(
            Arc::clone(&damaged.topic),
            damaged.index,
            Arc::clone(&dirs[0]),
            1,
        ));
        let noted = Damaged::of(&damaged);
        assert_eq!(key(&damaged), key(&again));
        assert!(noted.is_still(&damaged) && !noted.is_still(&again));
        drop(damaged);
        assert_eq!(noted.partition.strong_count(), 0);
    }
}
