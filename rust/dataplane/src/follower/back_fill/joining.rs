//! Makes a segment that was fetched the log's first one, and tells of what failed.

use std::sync::Arc;

use pyrklog_log::disk::may_pass;
use pyrklog_log::{FillError, JoinJob, Log};

use super::{Incoming, discard_segment};
use crate::follower::truncation::write_cut;
use pyrklog_replica::partition::PartitionState;
use pyrklog_storage::checkpoints::CutLog;
use pyrklog_storage::log_dir_state::Partition;
use pyrklog_storage::log_manager::LogManager;

/// Failures after which a source that does not answer is given up: about a minute.
const FAILED_ANEW: u32 = 10;

/// Completes the files of a segment, and makes it the log's first one.
pub fn complete(
    logs: &Arc<LogManager>,
    partition: &Arc<Partition>,
    leader_epoch: i32,
    segment: Incoming,
    source: i32,
) {
    let still_counts = |state: &PartitionState| {
        state.leader_epoch == leader_epoch && state.back_fill_end().is_some()
    };
    let is_its = |state: &PartitionState| {
        let log = state.log.as_ref();
        log.is_some_and(|log| segment.fill.is_of(log)) && still_counts(state)
    };
    if !is_its(&partition.lock()) || logs.is_ending() {
        return discard_segment(Some(segment));
    }
    let finished = segment.fill.finish(&segment.aborted, segment.newest_ms);
    let joined = finished.and_then(|mut job| {
        let begun = {
            let mut state = partition.lock();
            let counts = still_counts(&state);
            let log = state.log.as_mut().filter(|_| counts);
            log.map_or(Err(FillError::Stale), |log| log.begin_join(&mut job))
        };
        match begun {
            Ok(()) => join(partition, job),
            Err(error) => {
                job.discard()?;
                Err(error)
            }
        }
    });
    match joined {
        Ok((begin, cut_log)) => {
            // Before anything else counts on it: see `become_whole`.
            write_cut(logs, partition, cut_log);
            partition.lock().failed_fills = 0;
            tell(logs, partition, begin, source);
        }
        Err(error) => {
            note_failure(logs, partition, source, &error);
            note_failed(partition);
        }
    }
}

pub fn note_failed(partition: &Partition) {
    let mut state = partition.lock();
    state.failed_sources += 1;
    state.failed_fills = state.failed_fills.saturating_add(1);
}

/// What this source has does not go with what was joined. If the log is gone that it came from, and no
/// other goes with it, this one begins anew at the leader's end.
pub fn begin_anew_at_last(logs: &LogManager, partition: &Partition, source: i32) {
    let begins_anew = {
        let mut state = partition.lock();
        let origin = state.log.as_ref().and_then(Log::fill_origin);
        let is_gone = origin.is_none_or(|origin| origin.broker == source);
        let failures_max = match is_gone {
            // By then each of them was asked.
            true => u32::try_from(state.isr.len()).unwrap_or(FAILED_ANEW),
            false => FAILED_ANEW,
        };
        let begins_anew = !state.wants_new_start && state.failed_fills >= failures_max;
        state.wants_new_start |= begins_anew;
        begins_anew
    };
    if begins_anew {
        let fields = vec![
            ("topic", partition.topic.name.to_string()),
            ("partition", partition.index.to_string()),
            ("source", source.to_string()),
        ];
        logs.events
            .notice("back_fill_begins_anew", "warning", fields);
    }
}

fn join(partition: &Arc<Partition>, mut job: JoinJob) -> Result<(i64, CutLog), FillError> {
    let result = job.execute();
    let mut state = partition.lock();
    let log = state.log.as_mut().ok_or(FillError::Stale)?;
    log.complete_join(job, result)?;
    let found = (log.log_start_offset(), CutLog::of(log));
    partition.unlock_and_write_all(state);
    Ok(found)
}

pub fn note_failure(logs: &Arc<LogManager>, partition: &Partition, source: i32, error: &FillError) {
    let reason = error.to_string();
    match error {
        FillError::Stale => {}
        // Those who write there find it out themselves, and need what is left more.
        FillError::Io(io) if may_pass(io) => {
            let reason = format!("back-filling {partition}: {reason}");
            logs.dir_notice(&partition.dir(), "back_fill_waits", "warning", reason);
        }
        FillError::Io(_) => {
            let reason = format!("back-filling {partition}: {reason}");
            logs.fail_dir(&partition.dir(), reason);
        }
        FillError::Unfit(_) => {
            let fields = vec![
                ("topic", partition.topic.name.to_string()),
                ("partition", partition.index.to_string()),
                ("source", source.to_string()),
                ("reason", reason),
            ];
            logs.events.notice("back_fill_refused", "warning", fields);
        }
    }
}

fn tell(logs: &LogManager, partition: &Partition, begin: i64, source: i32) {
    let fields = vec![
        ("topic", partition.topic.name.to_string()),
        ("partition", partition.index.to_string()),
        ("from", begin.to_string()),
        ("source", source.to_string()),
    ];
    logs.events.notice("segment_back_filled", "info", fields);
}
