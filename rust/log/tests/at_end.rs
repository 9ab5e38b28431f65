//! A log that begins at the end of another one's (`expansion.md`).

use std::path::Path;
use std::sync::Arc;

use crate::common::killed_disk::KilledDisk;
use crate::common::*;
use pyrklog_arena::Fuse;
use pyrklog_log::disk::Disk;
use pyrklog_log::disk::testing::MemDisk;
use pyrklog_log::snapshot::encode_sorted;
use pyrklog_log::{EndState, Log, LogConfig, LogEnv, OpenState, Origin, StartAtEnd};

const EXPIRATION_MS: i64 = 86_400_000;

/// A leader of three epochs, the last one without a record, with two producers: one has an open
/// transaction.
fn leader() -> Rig {
    let mut rig = Rig::new(LogConfig::default());
    for (epoch, sequence) in [(0, 0), (3, 1)] {
        rig.epoch = epoch;
        rig.append(&mut produced(7, sequence, &["value"])).unwrap();
        rig.put(&["a", "b"]);
    }
    rig.append(&mut transactional(9, 0, &["open"])).unwrap();
    rig.drain();
    rig.log.assign_epoch_start(5);
    rig
}

fn start_of(state: &EndState) -> StartAtEnd {
    let epochs = state.epochs.iter();
    let epochs = epochs.map(|entry| (entry.epoch, entry.start_offset));
    let producers = encode_sorted(state.producers.clone());
    StartAtEnd::received(state.offset, epochs, &producers).unwrap()
}

fn begin(log: &mut Log, start: &StartAtEnd) {
    let mut job = log.begin_at_end(start, 1_000, EXPIRATION_MS).unwrap();
    let result = job.execute();
    log.complete_truncation(job, result);
    assert_eq!(log.poisoned(), None);
}

/// The producers, as a snapshot.
fn producers(log: &Log) -> Vec<u8> {
    encode_sorted(log.end_state().producers)
}

#[test]
fn log_begins_as_if_it_had_what_it_lacks() {
    let leader = leader();
    let state = leader.log.end_state();
    assert_eq!((state.offset, state.log_start), (7, 0));
    let starts: Vec<_> = state
        .epochs
        .iter()
        .map(|e| (e.epoch, e.start_offset))
        .collect();
    assert_eq!(starts, [(0, 0), (3, 3)], "no epoch without a record");
    let mut replica = Rig::new(small());
    replica.put(&["of an earlier life"]);
    assert!(!replica.log.is_partial());
    begin(&mut replica.log, &start_of(&state));
    replica.check_invariants();
    let log = &replica.log;
    assert!(log.is_partial() && log.is_empty());
    assert_eq!((log.log_start_offset(), log.log_end_offset()), (7, 7));
    assert_eq!(log.high_watermark(), 7);
    assert_eq!(
        log.latest_epoch(),
        Some(3),
        "the follower's first fetch names it"
    );
    assert_eq!(producers(log), producers(&leader.log));
    assert_eq!(replica.file("partial"), b"0\n7\n0\n2\n0 0\n3 3\n");
    // The marker of a transaction that began in what it lacks.
    let mut marker = pyrklog_wire::builder::transaction_marker(9, 0, false, 0, 1_000);
    pyrklog_wire::batch::set_base_offset(&mut marker, 7);
    pyrklog_wire::batch::set_partition_leader_epoch(&mut marker, 5);
    replica.append_as(&mut marker, Origin::Replication).unwrap();
    replica.drain();
    assert_eq!(replica.log.last_stable_offset(), 8);
    assert!(replica.log.producers().first_open().is_none());
    for restart in [Rig::restart_killed, Rig::restart_clean] {
        let before = producers(&replica.log);
        restart(&mut replica);
        assert!(replica.log.is_partial());
        assert_eq!(replica.log.log_start_offset(), 7);
        assert_eq!(replica.log.log_end_offset(), 8);
        assert_eq!(producers(&replica.log), before);
    }
}

#[test]
fn whole_log_is_an_ordinary_one_also_after_a_restart() {
    let mut replica = Rig::new(small());
    assert!(replica.log.whole_job().is_none());
    begin(&mut replica.log, &start_of(&leader().log.end_state()));
    replica.log.whole_job().unwrap().execute().unwrap();
    assert!(replica.log.is_partial(), "until its owner is told");
    replica.log.become_whole();
    assert!(!replica.log.is_partial());
    replica.memory.reboot(1);
    replica.restart_clean();
    assert!(!replica.log.is_partial());
    assert_eq!(replica.log.log_start_offset(), 7);
}

/// The first two lines are all that a broker reads that does not know partial logs.
fn is_hidden_from_older_brokers(rig: &Rig) -> bool {
    let text = String::from_utf8(rig.file("partition.metadata")).unwrap();
    let mut lines = text.lines();
    let id = lines.nth(1).unwrap();
    let is_marked = lines.next() == Some("partial: true");
    assert_eq!(is_marked, id != "topic_id: BwcHBwcHBwcHBwcHBwcHBw");
    is_marked
}

#[test]
fn older_brokers_refuse_a_partial_log() {
    let mut replica = Rig::new(small());
    assert!(!is_hidden_from_older_brokers(&replica));
    begin(&mut replica.log, &start_of(&leader().log.end_state()));
    assert!(is_hidden_from_older_brokers(&replica));
    replica.restart_killed();
    assert!(replica.log.is_partial() && is_hidden_from_older_brokers(&replica));
    // As in a copy that was moved from another directory.
    replica.put_file(
        "partition.metadata",
        b"version: 0\ntopic_id: BwcHBwcHBwcHBwcHBwcHBw",
    );
    replica.restart_clean();
    assert!(is_hidden_from_older_brokers(&replica));
    replica.log.whole_job().unwrap().execute().unwrap();
    assert!(!is_hidden_from_older_brokers(&replica));
    replica.restart_clean();
    assert!(!replica.log.is_partial() && !is_hidden_from_older_brokers(&replica));
}

#[test]
fn log_that_restarts_otherwise_is_not_partial() {
    let mut replica = Rig::new(small());
    begin(&mut replica.log, &start_of(&leader().log.end_state()));
    let mut job = replica.log.begin_restart(3, 1_000, EXPIRATION_MS).unwrap();
    let result = job.execute();
    replica.log.complete_truncation(job, result);
    assert!(!replica.log.is_partial() && !is_hidden_from_older_brokers(&replica));
    assert_eq!(replica.log.producer_count(), 0);
    assert!(!replica.files().contains(&"partial".to_owned()));
}

/// A kill, or a loss of power, at any step: the log is a part of what was there, or it is empty, and
/// its owner asks for a start.
#[test]
fn an_interrupted_start_leaves_the_old_log_or_an_empty_one() {
    let start = start_of(&leader().log.end_state());
    let mut seen = (false, false);
    for steps in 0..200 {
        for seed in [None, Some(steps as u64), Some(steps as u64 + 1_000)] {
            let mut rig = Rig::new(small());
            for _ in 0..12 {
                rig.put(&["value"; 10]);
            }
            let before = rig.contents();
            let state = rig.state(true);
            rig.log.close_cleanly().unwrap();
            rig.memory.sync_file_system(Path::new(DIR)).unwrap();
            let ended = interrupt(&rig.memory, state, &start, steps, seed);
            let env = LogEnv::new(Arc::new(rig.memory.clone()), 16);
            let unclean = OpenState {
                clean: false,
                recovery_point: 0,
                ..state
            };
            let (mut log, _) = open_in(env, &rig.config, unclean, 1_000).unwrap();
            assert_eq!(log.check_invariants(), Ok(()));
            if log.is_empty() {
                seen.0 = true;
            } else {
                seen.1 = true;
                assert!(!ended && !log.is_partial(), "{steps} {seed:?}");
                rig.log = log;
                assert!(before.starts_with(&rig.contents()), "{steps} {seed:?}");
            }
        }
    }
    assert_eq!(seen, (true, true));
}

/// Begins the log anew; after some steps the process dies, or with a seed the machine. True if it
/// came to its end.
fn interrupt(
    memory: &MemDisk,
    state: OpenState,
    start: &StartAtEnd,
    steps: i64,
    seed: Option<u64>,
) -> bool {
    let fuse = Fuse::default();
    let disk = KilledDisk {
        inner: Arc::new(memory.clone()),
        fuse: fuse.clone(),
    };
    let env = LogEnv::new(Arc::new(disk), 16);
    let (mut log, _) = open_in(env, &small(), state, 1_000).unwrap();
    fuse.burn_after(steps);
    let mut job = log.begin_at_end(start, 1_000, EXPIRATION_MS).unwrap();
    let ended = job.execute().is_ok();
    drop((job, log));
    match seed {
        Some(seed) => memory.reboot(seed),
        None => memory.kill_process(),
    }
    ended
}
