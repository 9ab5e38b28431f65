//! A write job that finds no space is kept and executed again, at each of its operations; the
//! result is the same as without the failure.

use std::path::Path;
use std::sync::Arc;

use crate::common::{Life, Rig, batch, open_in, small};
use pyrklog_log::disk::may_pass;
use pyrklog_log::disk::testing::{Fault, Operation};
use pyrklog_log::{Log, LogConfig, LogEnv, OpenRequest, OpenState, SyncScope};

/// Several segments, including the first one, with indexes and epochs to write.
fn filled(has_cache: bool) -> Rig {
    let config = LogConfig {
        index_interval_bytes: 20,
        ..small()
    };
    let mut rig = if has_cache {
        Rig::with_cache(config)
    } else {
        Rig::new(config)
    };
    if let Some(cache) = &rig.cache {
        cache.tend();
    }
    for number in 0..12 {
        rig.now_ms += 10;
        let mut records = batch(rig.now_ms, &[&format!("{number:0>200}")]);
        rig.append(&mut records).unwrap();
    }
    rig
}

/// Writes everything with retries; returns the number of failures.
fn write(log: &mut Log) -> usize {
    let mut failures = 0;
    while let Some(mut job) = log.take_writes() {
        while let Err(error) = job.execute() {
            assert!(may_pass(&error), "{error}");
            failures += 1;
            assert!(log.take_writes().is_none(), "one job at a time");
        }
        log.complete_writes(job, Ok(()));
    }
    log.advance_high_watermark(log.durable_end_offset());
    failures
}

#[test]
fn write_job_resumes_where_it_found_no_space() {
    for has_cache in [false, true] {
        let mut whole = filled(has_cache);
        assert_eq!(write(&mut whole.log), 0);
        let expected = whole.contents();
        assert_eq!(expected.len(), 12);
        for operation in [Operation::Write, Operation::Open, Operation::Rename] {
            let mut skip = 0;
            loop {
                let mut rig = filled(has_cache);
                let no_space = Fault::NoSpaceAfter(7 * (skip % 20));
                rig.disk.fail(operation, "", skip, 1 + skip % 3, no_space);
                let failures = write(&mut rig.log);
                rig.disk.heal();
                assert_eq!(rig.contents(), expected, "{operation:?} {skip}");
                assert_eq!(rig.files(), whole.files(), "{operation:?} {skip}");
                rig.restart_killed();
                write(&mut rig.log);
                assert_eq!(rig.contents(), expected, "{operation:?} {skip}");
                if failures == 0 {
                    assert!(skip > 3, "{operation:?}: nothing failed");
                    break;
                }
                skip += 1;
            }
        }
    }
}

/// A kill between two tries: the block cache has what the files lack.
#[test]
fn a_kill_on_a_full_disk_loses_nothing_of_the_cache() {
    for skip in 0..12 {
        let mut rig = filled(true);
        let acknowledged = rig.log.durable_end_offset();
        assert!(acknowledged > 0);
        rig.disk.fail(
            Operation::Write,
            "",
            skip,
            usize::MAX,
            Fault::NoSpaceAfter(70),
        );
        let mut job = rig.log.take_writes().unwrap();
        let failed = job.execute();
        drop(job);
        rig.disk.heal();
        rig.restart_killed();
        assert!(rig.log.durable_end_offset() >= acknowledged, "{skip}");
        write(&mut rig.log);
        let records = rig.contents();
        assert!(records.len() >= acknowledged as usize, "{failed:?}");
    }
}

#[test]
fn a_full_log_takes_nothing_and_says_so() {
    let mut rig = filled(true);
    rig.log.env().set_read_only(true);
    let mut records = batch(rig.now_ms, &["no"]);
    let end = rig.log.log_end_offset();
    let refused = rig.append(&mut records).unwrap_err();
    assert_eq!(refused, pyrklog_log::AppendError::ReadOnly);
    write(&mut rig.log);
    rig.log.env().set_read_only(false);
    assert_eq!(rig.append(&mut records).unwrap().base_offset, end);
}

/// The disk did not fail: the sync is carried out later.
#[test]
fn a_sync_that_got_no_descriptor_is_asked_for_again() {
    for skip in 0..6 {
        let mut rig = filled(false);
        write(&mut rig.log);
        rig.disk
            .fail(Operation::Open, "", skip, 1, Fault::NoDescriptor);
        let mut job = rig.log.take_sync(SyncScope::Written).unwrap();
        let result = job.execute();
        let has_failed = result.is_err();
        rig.log.complete_sync(job, result);
        assert_eq!(rig.log.poisoned(), None);
        rig.disk.heal();
        if has_failed {
            assert_eq!(rig.log.synced_end(), 0);
            rig.sync(SyncScope::Written);
        }
        assert_eq!(rig.log.synced_end(), 12);
        let (state, contents) = (rig.state(false), rig.contents());
        rig.memory.reboot(skip as u64);
        rig.reopen(state);
        rig.drain();
        assert_eq!(rig.contents(), contents);
    }
}

#[test]
fn a_truncation_that_got_no_descriptor_is_carried_out_later() {
    for skip in 0..12 {
        let mut rig = filled(false);
        write(&mut rig.log);
        let begun = rig.log.begin_truncation(5, rig.now_ms, 86_400_000);
        let mut job = begun.unwrap().unwrap();
        rig.disk
            .fail(Operation::Open, "", skip, 2, Fault::NoDescriptor);
        let mut result = job.execute();
        while let Err(error) = &result {
            assert!(error.may_pass(), "{error}");
            result = job.execute();
        }
        rig.log.complete_truncation(job, result);
        assert_eq!(rig.log.poisoned(), None);
        assert_eq!(rig.log.log_end_offset(), 5);
        rig.drain();
        assert_eq!(rig.contents().len(), 5);
        assert_eq!(rig.put(&["next"]).base_offset, 5);
    }
}

/// With `flush.messages` the opening writes and syncs the block cache's content, and is retried
/// with the same blocks.
#[test]
fn an_opening_that_got_no_descriptor_is_tried_again() {
    let mut skip = 0;
    loop {
        let mut rig = filled(true);
        let acknowledged = rig.log.durable_end_offset();
        assert!(acknowledged > 0);
        rig.config.flush_messages = 1;
        rig.memory.kill_process();
        let state = rig.state(false);
        let env = LogEnv::new(Arc::new(rig.disk.clone()), 16);
        rig.cache.as_mut().unwrap().give(&env, Life::Again);
        rig.disk
            .fail(Operation::Open, "", skip, 1, Fault::NoDescriptor);
        let before = rig.disk.count(Operation::Open);
        let first = open_in(Arc::clone(&env), &rig.config, state, rig.now_ms);
        rig.disk.heal();
        let opened = rig.disk.count(Operation::Open) - before;
        let (log, _) = first.unwrap_or_else(|error| {
            assert!(error.may_pass(), "{skip}: {error}");
            open_in(Arc::clone(&env), &rig.config, state, rig.now_ms).unwrap()
        });
        rig.log = log;
        assert_eq!((env.poisoned(), env.unclaimed_unwritten()), (None, 0));
        assert_eq!(rig.log.synced_end(), rig.log.log_end_offset());
        rig.drain();
        assert!(rig.contents().len() >= acknowledged as usize, "{skip}");
        if opened <= skip {
            assert!(skip > 10, "nothing failed");
            break;
        }
        skip += 1;
    }
}

/// Each unsynced segment has an open file, and a directory has many logs.
#[test]
fn rolling_of_a_directorys_logs_is_bounded_by_synced_segments() {
    let open_segments_max = 16;
    let rig = Rig::new(LogConfig::default());
    let env = LogEnv::new(Arc::new(rig.disk.clone()), open_segments_max);
    let config = Arc::new(LogConfig {
        segment_ms: 1_000,
        ..LogConfig::default()
    });
    let open = |partition| {
        let request = OpenRequest {
            env: Arc::clone(&env),
            log_dir: Path::new(crate::common::DIR),
            topic: "many",
            partition,
            topic_id: None,
            config: Arc::clone(&config),
            state: OpenState::default(),
            now_ms: 1_000,
            producer_id_expiration_ms: 86_400_000,
        };
        Log::open(request).unwrap().0
    };
    let mut logs: Vec<Log> = (0..20).map(open).collect();
    let segments = |logs: &[Log]| logs.iter().map(Log::segment_count).sum::<usize>();
    let mut now_ms = 1_000;
    let mut leap = |logs: &mut [Log]| {
        for _ in 0..10 {
            now_ms += 10_000;
            for log in &mut *logs {
                let mut records = batch(now_ms, &["leaps"]);
                let info = pyrklog_log::BatchInfo::parse(&records).unwrap();
                let origin = pyrklog_log::Origin::Client;
                log.append(&mut records, &info, origin, 0, now_ms).unwrap();
                write(log);
            }
        }
    };
    leap(&mut logs);
    let first = segments(&logs);
    assert_eq!(first, logs.len() + open_segments_max);
    // Synced segments make room for others, and so does a closed log.
    for log in &mut logs {
        while let Some(mut job) = log.take_sync(SyncScope::ClosedSegments) {
            let result = job.execute();
            log.complete_sync(job, result);
        }
    }
    leap(&mut logs);
    assert_eq!(segments(&logs), first + open_segments_max);
    let closed = logs.split_off(10);
    drop(closed);
    let before = segments(&logs);
    leap(&mut logs);
    assert!(segments(&logs) > before);
    leap(&mut logs);
    assert!(segments(&logs) <= before + open_segments_max);
}

/// Tiny segments would take all descriptors.
#[test]
fn small_segments_grow_while_too_many_are_not_synced() {
    let mut rig = Rig::new(LogConfig {
        segment_bytes: 100,
        segment_index_bytes: 12,
        index_interval_bytes: 0,
        ..LogConfig::default()
    });
    for turn in 1..4 {
        for _ in 0..200 {
            rig.put(&["small"]);
        }
        assert_eq!(rig.log.segment_count(), turn * 16 + 1);
        rig.sync(SyncScope::ClosedSegments);
    }
    assert_eq!(rig.contents().len(), 600);
}

/// The same for one log.
#[test]
fn rolling_by_leaping_timestamps_is_bounded_by_synced_segments() {
    let mut rig = Rig::new(LogConfig {
        segment_ms: 1_000,
        ..LogConfig::default()
    });
    for turn in 1..4 {
        for _ in 0..100 {
            rig.now_ms += 10_000;
            rig.put(&["leaps"]);
        }
        assert!(rig.log.segment_count() <= turn * 17);
        assert!(rig.log.segment_count() > turn * 8);
        rig.sync(SyncScope::ClosedSegments);
    }
    assert_eq!(rig.contents().len(), 300);
}
