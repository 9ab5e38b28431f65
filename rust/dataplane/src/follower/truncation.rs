//! Truncation to what the leader has: a command of the log loader, since it waits for disks.

use std::io;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use pyrklog_log::disk::may_pass;
use pyrklog_log::{Log, OpenError, StartAtEnd, TruncateError, TruncateJob};
use pyrklog_wire::fetch::EpochEndOffset;

use crate::follower::append_response::Carried;
use crate::follower::fetch_state::Ask;
use crate::follower::fetcher_queue::Fetchers;
use pyrklog_base::clock::Now;
use pyrklog_replica::partition::{Beginning, PartitionState, Role};
use pyrklog_storage::await_writers::await_writers;
use pyrklog_storage::checkpoints::CutLog;
use pyrklog_storage::log_dir_state::Partition;
use pyrklog_storage::log_loader::Command;
use pyrklog_storage::log_manager::LogManager;

/// Interval of checks whether everything is written.
const DRAIN_LOOK: Duration = Duration::from_millis(2);

/// Pause between tries while the system lacks something.
const AGAIN: Duration = Duration::from_millis(200);

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Cut {
    /// Where the leader's log ends in its newest epoch that is not above our last one.
    Diverging(EpochEndOffset),
    /// Our end lies outside of the leader's log.
    Outside {
        /// The leader's log start offset.
        start: i64,
        /// The leader's log end offset.
        end: i64,
    },
    /// Our log, which is empty, has to begin elsewhere to take this.
    BeginsAt(Box<Carried>),
    /// Our log, which is empty, begins at the leader's end.
    AtEnd(Arc<StartAtEnd>),
    /// Our log lacks what the leader has from this offset on, and nobody keeps us out of the ISR.
    Lacks(i64),
}

impl Cut {
    fn reason(&self) -> &'static str {
        match self {
            Cut::Diverging(_) => "the leader's epochs end earlier",
            Cut::Outside { .. } => "its end lies outside of the leader's log",
            Cut::BeginsAt(_) => "the leader's log begins within a batch",
            Cut::AtEnd(_) => "it begins at the leader's end",
            Cut::Lacks(_) => "it began at a leader's end, which the controller does not know",
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Plan {
    Keep,
    To(i64),
    RestartAt(i64),
}

/// Cuts after the partition's earlier commands, then follows again. Has no effect after another
/// decision, or if the log end is not the one that the leader was asked about. Each command that
/// ends follows again, so one for an older epoch may have asked for the same cut a second time, and
/// what was appended after the first cut is in sync by then.
pub fn submit(
    logs: &Arc<LogManager>,
    fetchers: &Arc<dyn Fetchers>,
    partition: Arc<Partition>,
    ask: Ask,
    cut: Cut,
) {
    let fetchers = Arc::clone(fetchers);
    let command = Command::about(partition, logs, move |logs, partition| {
        carry_out(logs, partition, &ask, cut);
        fetchers.follow(partition);
    });
    logs.loader.submit([command]);
}

/// What a follower did before there were leader epochs (a planted bug).
pub fn to_high_watermark(logs: &Arc<LogManager>, partition: &Arc<Partition>) {
    let ask = {
        let state = partition.lock();
        let Some(log) = &state.log else { return };
        Ask::of(log, state.leader_epoch)
    };
    let end = EpochEndOffset {
        epoch: -1,
        end_offset: -1,
    };
    carry_out(logs, partition, &ask, Cut::Diverging(end));
}

fn carry_out(logs: &Arc<LogManager>, partition: &Arc<Partition>, ask: &Ask, cut: Cut) {
    let Some((mut job, plan, end)) = begin(logs, partition, ask, &cut) else {
        return;
    };
    let result = match lower_start(logs, partition) {
        true => execute(logs, partition, &mut job),
        false => Err(OpenError::Io(io::Error::other("its start is not written"))),
    };
    let failure = result.as_ref().err().map(ToString::to_string);
    let mut state = partition.lock();
    if let Some(log) = &mut state.log {
        log.complete_truncation(job, result);
    }
    state.count_unwritten(&**partition.dir());
    state.tell_fetches_later();
    let cut_log = state.log.as_ref().map(CutLog::of);
    drop(state);
    match (failure, cut_log) {
        (None, Some(cut_log)) => {
            write_cut(logs, partition, cut_log);
            if matches!(cut, Cut::AtEnd(_)) {
                note_given(partition, ask.leader_epoch);
            }
            tell(logs, partition, cut.reason(), plan, end);
            if let Cut::BeginsAt(carried) = cut {
                carried.append(logs, partition);
            }
        }
        (Some(reason), _) => {
            let reason = format!("truncating {partition}: {reason}");
            logs.fail_dir(&partition.dir(), reason);
        }
        _ => {}
    }
}

/// Writes the start of a log that is about to begin lower: without its files, a kill would leave an
/// empty log at the higher start, and what lies between would be missing for ever. False where the
/// directory has failed.
fn lower_start(logs: &Arc<LogManager>, partition: &Partition) -> bool {
    let lower = {
        let state = partition.lock();
        let Some(log) = &state.log else { return true };
        let row = log.log_start_row();
        (row < log.log_start_offset()).then_some(row)
    };
    let (topic, index) = (&*partition.topic.name, partition.index);
    lower.is_none_or(|offset| {
        until_written(logs, partition, || {
            partition.dir().write_log_start(topic, index, offset)
        })
    })
}

/// The leader of this epoch has given the log its start.
fn note_given(partition: &Partition, leader_epoch: i32) {
    let mut state = partition.lock();
    if state.leader_epoch == leader_epoch {
        state.beginning = Beginning::Given;
    }
    state.wants_new_start = false;
    state.failed_fills = 0;
}

/// Waits until everything is written. Returns the job, its plan and the log end; `None` if nothing
/// is to be cut any more.
fn begin(
    logs: &Arc<LogManager>,
    partition: &Arc<Partition>,
    ask: &Ask,
    cut: &Cut,
) -> Option<(TruncateJob, Plan, i64)> {
    let now_ms = Now::read().wall_ms;
    let expiration_ms = logs.producer_id_expiration_ms.load(Ordering::Relaxed);
    loop {
        let mut state = partition.lock();
        let (role, leader_epoch) = (state.role, state.leader_epoch);
        let PartitionState { log, .. } = &mut *state;
        let log = log.as_mut()?;
        let is_wanted = role == Role::Follower && ask.still_holds(log, leader_epoch);
        // On a full disk this would wait for unwritten bytes: the fetcher tries again.
        let dir = &partition.dir();
        if !is_wanted || dir.has_failed() || dir.is_read_only() || logs.is_ending() {
            log.give_up_truncation();
            return None;
        }
        let plan = plan(log, cut);
        let end = log.log_end_offset();
        let begun = match plan {
            Plan::Keep => {
                log.give_up_truncation();
                // It led, and appended nothing: an epoch without records must not be asked about.
                log.forget_empty_epochs();
                partition.unlock_and_write_all(state);
                return None;
            }
            Plan::To(offset) => log.begin_truncation(offset, now_ms, expiration_ms),
            Plan::RestartAt(offset) => match cut {
                Cut::AtEnd(start) => log.begin_at_end(start, now_ms, expiration_ms).map(Some),
                _ => log.begin_restart(offset, now_ms, expiration_ms).map(Some),
            },
        };
        match begun {
            Ok(job) => return job.map(|job| (job, plan, end)),
            Err(TruncateError::Poisoned(_)) => return None,
            Err(TruncateError::Busy) => {
                partition.unlock_and_write_all(state);
                await_writers(logs, DRAIN_LOOK);
            }
        }
    }
}

/// KIP-101 and KIP-279: never further than to where both logs are known to agree.
fn plan(log: &Log, cut: &Cut) -> Plan {
    let own_end = log.log_end_offset();
    let offset = match cut {
        Cut::Outside { start, .. } if *start > own_end => return Plan::RestartAt(*start),
        Cut::Outside { end, .. } => *end,
        Cut::BeginsAt(carried) => return Plan::RestartAt(carried.offset()),
        Cut::AtEnd(start) => return Plan::RestartAt(start.offset()),
        Cut::Lacks(start) => return Plan::RestartAt(*start),
        Cut::Diverging(leader) if leader.end_offset < 0 => log.high_watermark(),
        Cut::Diverging(leader) => match log.end_offset_for_epoch(leader.epoch) {
            (-1, _) => leader.end_offset,
            (epoch, end) if epoch == leader.epoch => end.min(leader.end_offset),
            // The leader does not know our epoch: back to the one before, and ask again.
            (_, end) => end,
        },
    };
    if offset < log.log_start_offset() {
        // Nothing of the log is left, and below the cut the leader may have records that this one
        // never had. So it begins at the leader's start, which is asked for if it is not known.
        match cut {
            Cut::Outside { start, .. } => Plan::RestartAt(*start),
            _ => Plan::RestartAt(0),
        }
    } else if offset < own_end {
        Plan::To(offset.max(0))
    } else {
        Plan::Keep
    }
}

/// Tries until it succeeds: a log that was cut in part takes no records, and no other command may
/// cut it.
fn execute(
    logs: &Arc<LogManager>,
    partition: &Partition,
    job: &mut TruncateJob,
) -> Result<(), OpenError> {
    loop {
        match job.execute() {
            Err(OpenError::Io(error)) if may_pass(&error) && !logs.is_ending() => {
                wait_for_better(logs, partition, &error);
            }
            result => return result,
        }
    }
}

/// Writes the checkpoint rows of a cut log, with retries until both are written: with a recovery
/// point behind the end, the next start would take unsynced records for synced; with a log start
/// behind the next appends, it would remove them. The directory fails on errors other than lack of
/// space, descriptors or memory.
pub fn write_cut(logs: &Arc<LogManager>, partition: &Partition, cut_log: CutLog) {
    let (topic, index) = (&*partition.topic.name, partition.index);
    until_written(logs, partition, || {
        partition.dir().write_cut(topic, index, cut_log)
    });
}

/// [`LogDir::lower_high_watermark_row`](pyrklog_log::LogDir::lower_high_watermark_row), with the
/// same retries.
pub fn lower_high_watermark_row(logs: &Arc<LogManager>, partition: &Partition, log_end: i64) {
    let (topic, index) = (&*partition.topic.name, partition.index);
    until_written(logs, partition, || {
        let files = &partition.dir().files;
        files.lower_high_watermark_row(topic, index, log_end)
    });
}

/// False where the directory has failed.
pub fn until_written(
    logs: &Arc<LogManager>,
    partition: &Partition,
    write: impl Fn() -> io::Result<()>,
) -> bool {
    loop {
        let reason = match write() {
            Ok(()) => return true,
            Err(error) if may_pass(&error) && !logs.is_ending() => {
                wait_for_better(logs, partition, &error);
                continue;
            }
            Err(error) => format!("writing the checkpoints of {partition}: {error}"),
        };
        logs.fail_dir(&partition.dir(), reason);
        return false;
    }
}

/// Pauses for lack of space, descriptors or memory.
fn wait_for_better(logs: &Arc<LogManager>, partition: &Partition, error: &io::Error) {
    logs.fall_short(&partition.dir(), &format!("cutting {partition}"), error);
    let wait = || await_writers(logs, AGAIN);
    let key = (Arc::clone(&partition.topic.name), partition.index);
    logs.loader.lend_place(&key, wait);
}

fn tell(logs: &LogManager, partition: &Partition, reason: &str, plan: Plan, end: i64) {
    let (event, offset) = match plan {
        Plan::Keep => return,
        Plan::To(offset) => ("replica_truncated", offset),
        Plan::RestartAt(offset) => ("replica_restarted", offset),
    };
    let fields = vec![
        ("topic", partition.topic.name.to_string()),
        ("partition", partition.index.to_string()),
        ("from", end.to_string()),
        ("to", offset.to_string()),
        ("reason", reason.to_owned()),
    ];
    logs.events.notice(event, "info", fields);
}

#[cfg(test)]
mod tests;
