//! A write job that finds no space is kept and executed again: at each of its operations, and what
//! comes of it is what would have come without.

mod common;

use common::{Rig, batch, small};
use pyrklog_log::disk::is_full;
use pyrklog_log::disk::testing::{Fault, Operation};
use pyrklog_log::{Log, LogConfig};

/// Several segments, one of them the first, with indexes and epochs to be written.
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

/// Writes everything, trying again after each failure; how many there were.
fn write(log: &mut Log) -> usize {
    let mut failures = 0;
    while let Some(mut job) = log.take_writes() {
        while let Err(error) = job.execute() {
            assert!(is_full(&error), "{error}");
            failures += 1;
            assert!(log.take_writes().is_none(), "one job at a time");
        }
        log.complete_writes(job, Ok(()));
    }
    log.advance_high_watermark(log.gated_end());
    failures
}

#[test]
fn a_job_goes_on_where_it_found_no_space() {
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
        let acknowledged = rig.log.gated_end();
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
        assert!(rig.log.gated_end() >= acknowledged, "{skip}");
        write(&mut rig.log);
        let records = rig.contents();
        assert!(records.len() >= acknowledged as usize, "{failed:?}");
    }
}

#[test]
fn a_full_log_takes_nothing_and_says_so() {
    let mut rig = filled(true);
    rig.log.env().set_full(true);
    let mut records = batch(rig.now_ms, &["no"]);
    let end = rig.log.log_end_offset();
    let refused = rig.append(&mut records).unwrap_err();
    assert_eq!(refused, pyrklog_log::AppendError::Full);
    write(&mut rig.log);
    rig.log.env().set_full(false);
    assert_eq!(rig.append(&mut records).unwrap().base_offset, end);
}
