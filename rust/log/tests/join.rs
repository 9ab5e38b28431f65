//! Older records are put before a log that began at another one's end (`expansion.md`, section 6).

use std::path::Path;
use std::sync::Arc;

use crate::common::killed_disk::KilledDisk;
use crate::common::*;
use pyrklog_arena::Fuse;
use pyrklog_log::disk::Disk;
use pyrklog_log::disk::testing::{Fault, MemDisk, Operation};
use pyrklog_log::snapshot::encode_sorted;
use pyrklog_log::{
    AbortedTxn, Fill, FillError, Isolation, Log, LogConfig, LogEnv, OpenMode, OpenState, Origin,
    StartAtEnd, Wait,
};
use pyrklog_wire::batch::{self, Batches};

const EXPIRATION_MS: i64 = 86_400_000;
const EPOCHS: [i32; 3] = [0, 3, 4];

/// A leader with several segments of three leader epochs, an idempotent producer, and transactions
/// that are committed, aborted and open.
pub fn leader() -> Rig {
    let mut rig = Rig::new(small());
    let mut sequences = [0; 3];
    let mut next = |producer: usize| {
        sequences[producer] += 1;
        sequences[producer] - 1
    };
    for epoch in EPOCHS {
        rig.epoch = epoch;
        for round in 0..4 {
            rig.append(&mut produced(7, next(0), &["idempotent"; 1]))
                .unwrap();
            rig.append(&mut transactional(8, next(1), &["aborted"]))
                .unwrap();
            rig.append(&mut transactional(9, next(2), &["committed"]))
                .unwrap();
            rig.put(&["plain"; 8]);
            if round % 2 == 1 {
                end_transaction(&mut rig, 8, false);
                end_transaction(&mut rig, 9, true);
            }
        }
    }
    rig.append(&mut transactional(8, next(1), &["open"]))
        .unwrap();
    rig.drain();
    rig
}

fn end_transaction(rig: &mut Rig, producer_id: i64, commit: bool) {
    let mut marker = pyrklog_wire::builder::transaction_marker(producer_id, 0, commit, 0, 1_000);
    rig.append_as(&mut marker, Origin::Coordinator).unwrap();
    rig.drain();
}

pub fn start_of(leader: &Log) -> StartAtEnd {
    let state = leader.end_state();
    let epochs = state.epochs.iter();
    let epochs = epochs.map(|entry| (entry.epoch, entry.start_offset));
    let producers = encode_sorted(state.producers.clone());
    StartAtEnd::received(state.offset, epochs, &producers).unwrap()
}

/// A replica that began at the leader's end, and has what came after.
pub fn replica(leader: &mut Rig) -> Rig {
    let start = start_of(&leader.log);
    replica_from(leader, &start)
}

pub fn replica_from(leader: &mut Rig, start: &StartAtEnd) -> Rig {
    let mut rig = Rig::new(small());
    let mut job = rig.log.begin_at_end(start, 1_000, EXPIRATION_MS).unwrap();
    let result = job.execute();
    rig.log.complete_truncation(job, result);
    leader.epoch = 6;
    for _ in 0..4 {
        leader.put(&["new"; 8]);
    }
    end_transaction(leader, 8, false);
    rig.epoch = 6;
    for mut one in batches(&raw(leader, start.offset(), leader.log.log_end_offset())) {
        rig.append_as(&mut one, Origin::Replication).unwrap();
        rig.drain();
    }
    assert!(rig.log.is_partial());
    rig
}

/// The bytes of the batches from an offset on, below `end`.
pub fn raw(rig: &Rig, begin: i64, end: i64) -> Vec<u8> {
    let mut found = Vec::new();
    let mut next = begin;
    while next < end {
        let bytes = rig
            .read_as(next, 1 << 20, Isolation::HighWatermark)
            .unwrap();
        for view in Batches::new(&bytes) {
            let view = view.unwrap();
            if view.header.base_offset < end {
                found.extend_from_slice(view.bytes);
            }
            next = view.header.next_offset();
        }
    }
    found
}

pub fn batches(bytes: &[u8]) -> Vec<Vec<u8>> {
    Batches::new(bytes)
        .map(|view| view.unwrap().bytes.to_vec())
        .collect()
}

/// What the leader tells of the segment below the replica's start.
pub fn told(leader: &Rig, end: i64) -> (i64, Vec<AbortedTxn>) {
    let source = leader.log.fill_source(end).unwrap();
    assert!(source.size_bytes() > 0);
    (source.begin(), source.load_aborted(Wait::Blocking).unwrap())
}

/// Receives the next segment, in pieces that cut batches.
pub fn receive(leader: &Rig, log: &Log) -> Result<(Fill, Vec<AbortedTxn>), FillError> {
    let end = log.log_start_offset();
    let (begin, aborted) = told(leader, end);
    let plan = log.plan_fill(begin).ok_or(FillError::Stale)?;
    assert_eq!((plan.begin(), plan.end()), (begin, end));
    let mut fill = plan.open();
    while !fill.is_complete() {
        // What a fetch brings: from the next offset on, behind the end, and cut somewhere.
        let bytes = raw(leader, fill.next_offset(), leader.log.log_end_offset());
        let before = fill.next_offset();
        fill.add(&bytes[..bytes.len().min(400)])?;
        assert!(fill.next_offset() > before);
    }
    Ok((fill, aborted))
}

fn try_join(leader: &Rig, log: &mut Log) -> Result<(), FillError> {
    let (fill, aborted) = receive(leader, log)?;
    let mut job = fill.finish(&aborted, 5_000)?;
    log.begin_join(&mut job)?;
    let result = job.execute();
    log.complete_join(job, result)
}

/// The next segment; false at the leader's log start.
pub fn join(leader: &Rig, log: &mut Log) -> bool {
    if log.log_start_offset() <= leader.log.log_start_offset() {
        return false;
    }
    try_join(leader, log).unwrap();
    assert_eq!(log.check_invariants(), Ok(()));
    true
}

pub fn epochs(log: &Log) -> Vec<(i32, i64)> {
    let state = log.end_state();
    let entries = state.epochs.iter();
    entries.map(|e| (e.epoch, e.start_offset)).collect()
}

/// All aborted transactions, as a reader of committed records is told.
fn aborted(rig: &Rig) -> Vec<AbortedTxn> {
    let start = rig.log.log_start_offset();
    let located = rig.log.locate(start, Isolation::Committed).unwrap();
    let slice = located.resolve(1 << 20, true, Wait::Blocking).unwrap();
    rig.log.aborted_transactions(&slice).unwrap().unwrap()
}

/// Replicas with the same log start hold the same.
pub fn assert_same(replica: &Rig, leader: &Rig) {
    assert_eq!(replica.contents(), leader.contents());
    let (start, end) = (leader.log.log_start_offset(), leader.log.log_end_offset());
    assert_eq!(replica.log.log_start_offset(), start);
    assert_eq!(raw(replica, start, end), raw(leader, start, end));
}

#[test]
fn segment_after_segment_makes_the_log_whole() {
    let mut leader = leader();
    assert!(leader.log.segment_count() > 3);
    let mut replica = replica(&mut leader);
    let producers = encode_sorted(replica.log.end_state().producers);
    let mut joined = 0;
    while join(&leader, &mut replica.log) {
        joined += 1;
        replica.write();
        let start = replica.log.log_start_offset();
        let expected: Vec<_> = leader.contents();
        let expected = expected.into_iter().filter(|(offset, _)| *offset >= start);
        assert_eq!(replica.contents(), expected.collect::<Vec<_>>());
        for restart in [Rig::restart_killed, Rig::restart_clean] {
            restart(&mut replica);
            assert_eq!(replica.log.log_start_offset(), start);
            assert_eq!(
                encode_sorted(replica.log.end_state().producers),
                producers,
                "producers are as they were"
            );
        }
    }
    assert!(joined > 3, "{joined} segments");
    assert_same(&replica, &leader);
    assert_eq!(epochs(&replica.log), epochs(&leader.log));
    assert_eq!(aborted(&replica), aborted(&leader));
    assert!(replica.log.plan_fill(0).is_none(), "it lacks nothing");
    replica.log.whole_job().unwrap().execute().unwrap();
    replica.log.become_whole();
    replica.restart_killed();
    assert_eq!(epochs(&replica.log), epochs(&leader.log));
    assert_eq!(aborted(&replica), aborted(&leader));
    let fills = replica
        .files()
        .into_iter()
        .filter(|name| name.ends_with(".fill"));
    assert_eq!(fills.count(), 0);
}

#[test]
fn log_without_new_records_keeps_its_producers() {
    let leader = leader();
    let mut replica = Rig::new(small());
    let start = start_of(&leader.log);
    let mut job = replica
        .log
        .begin_at_end(&start, 1_000, EXPIRATION_MS)
        .unwrap();
    let result = job.execute();
    replica.log.complete_truncation(job, result);
    let producers = encode_sorted(replica.log.end_state().producers);
    assert!(join(&leader, &mut replica.log));
    for round in 0..3 {
        match round {
            0 => {
                replica.restart_killed();
            }
            1 => {
                replica.restart_clean();
            }
            _ => {
                replica.memory.reboot(3);
                let state = replica.state(false);
                replica.reopen(state);
            }
        }
        assert_eq!(replica.log.log_end_offset(), start.offset());
        assert_eq!(encode_sorted(replica.log.end_state().producers), producers);
    }
}

/// The first batch holds the leader's log start.
#[test]
fn leaders_log_may_start_within_a_batch() {
    let mut leader = leader();
    let mut replica = replica(&mut leader);
    let within = leader.contents()[16].0;
    leader.log.advance_log_start(within).unwrap();
    while join(&leader, &mut replica.log) {}
    assert_eq!(replica.log.log_start_offset(), within);
    assert_same(&replica, &leader);
}

/// Changes the batches of the next segment and expects them to be refused.
fn refused(change: impl Fn(&mut Vec<Vec<u8>>, &mut Vec<AbortedTxn>), expected: &str) {
    let mut leader = leader();
    let mut replica = replica(&mut leader);
    assert!(join(&leader, &mut replica.log));
    let end = replica.log.log_start_offset();
    let (begin, mut aborted) = told(&leader, end);
    let mut wrong = batches(&raw(&leader, begin, end));
    change(&mut wrong, &mut aborted);
    let mut fill = replica.log.plan_fill(begin).unwrap().open();
    let before = replica.files();
    assert!(replica.log.plan_fill(begin).is_none(), "one at a time");
    let outcome = match fill.add(&wrong.concat()) {
        Ok(()) => fill.finish(&aborted, 5_000).map(drop),
        Err(error) => {
            fill.discard().unwrap();
            drop(fill);
            Err(error)
        }
    };
    match outcome {
        Err(FillError::Unfit(reason)) => assert!(reason.contains(expected), "{reason}"),
        other => panic!("{expected}: {other:?}"),
    }
    assert_eq!(replica.files(), before, "nothing is left of it");
    assert!(join(&leader, &mut replica.log), "a right one is taken");
}

#[test]
fn what_is_not_the_leaders_is_refused() {
    // Of an epoch that was truncated on the leader, or of a later one.
    for epoch in [1, 9] {
        let change = move |wrong: &mut Vec<Vec<u8>>, _: &mut Vec<AbortedTxn>| {
            batch::set_partition_leader_epoch(&mut wrong[1], epoch);
        };
        refused(change, "a batch of epoch");
    }
    // Gaps at the beginning, within, and at the end.
    refused(|wrong, _| drop(wrong.remove(0)), "a batch of");
    refused(|wrong, _| drop(wrong.remove(1)), "a batch of");
    refused(|wrong, _| drop(wrong.pop()), "goes on to");
    refused(|wrong, _| wrong.swap(1, 2), "a batch of");
    refused(|wrong, _| *wrong[1].last_mut().unwrap() ^= 1, "CRC");
}

#[test]
fn wrong_transactions_are_refused() {
    refused_transactions(|aborted| aborted.truncate(aborted.len() - 1));
    refused_transactions(|aborted| aborted[0].producer_id = 9);
    refused_transactions(|aborted| aborted[0].last_offset -= 1);
    refused_transactions(|aborted| aborted[0].first_offset = aborted[0].last_offset);
}

/// Of the newest segment that has an aborted transaction which began in it.
fn refused_transactions(change: impl Fn(&mut Vec<AbortedTxn>)) {
    let mut leader = leader();
    let mut replica = replica(&mut leader);
    loop {
        let end = replica.log.log_start_offset();
        let (begin, _) = told(&leader, end);
        let (fill, mut aborted) = receive(&leader, &replica.log).unwrap();
        if aborted.first().is_none_or(|txn| txn.first_offset < begin) {
            fill.discard().unwrap();
            drop(fill);
            assert!(join(&leader, &mut replica.log), "there is such a segment");
            continue;
        }
        change(&mut aborted);
        let finished = fill.finish(&aborted, 5_000);
        assert!(
            matches!(finished, Err(FillError::Unfit(_))),
            "{finished:?} {aborted:?}"
        );
        return;
    }
}

#[test]
fn decayed_file_is_not_joined() {
    let mut leader = Rig::new(LogConfig::default());
    let large = "x".repeat(600_000);
    for _ in 0..3 {
        leader.put(&[&large]);
    }
    let replica = replica(&mut leader);
    let (fill, aborted) = receive_whole(&leader, &replica.log);
    let path = Path::new(FOLDER).join(format!("{:020}.log.fill", 0));
    let file = replica.memory.open(&path, OpenMode::Write).unwrap();
    file.write_all_at(b"y", 300_000).unwrap();
    let finished = fill.finish(&aborted, 5_000);
    assert!(matches!(finished, Err(FillError::Unfit(_))), "{finished:?}");
    assert!(replica.files().iter().all(|name| !name.ends_with(".fill")));
}

fn receive_whole(leader: &Rig, log: &Log) -> (Fill, Vec<AbortedTxn>) {
    let end = log.log_start_offset();
    let (begin, aborted) = told(leader, end);
    let mut fill = log.plan_fill(begin).unwrap().open();
    fill.add(&raw(leader, begin, end)).unwrap();
    (fill, aborted)
}

#[test]
fn a_log_that_has_changed_takes_no_segment() {
    let mut leader = leader();
    let mut replica = replica(&mut leader);
    let (first, aborted) = receive(&leader, &replica.log).unwrap();
    let mut first = first.finish(&aborted, 5_000).unwrap();
    // It begins anew at the leader's present end.
    let start = start_of(&leader.log);
    let mut job = replica
        .log
        .begin_at_end(&start, 1_000, EXPIRATION_MS)
        .unwrap();
    let result = job.execute();
    replica.log.complete_truncation(job, result);
    let refused = replica.log.begin_join(&mut first);
    assert!(matches!(refused, Err(FillError::Stale)), "{refused:?}");
    first.discard().unwrap();
    assert_eq!(replica.log.log_start_offset(), start.offset());
}

#[test]
fn retention_and_truncation_wait_for_a_join() {
    let mut leader = leader();
    let mut replica = replica(&mut leader);
    let (fill, aborted) = receive(&leader, &replica.log).unwrap();
    let mut job = fill.finish(&aborted, 5_000).unwrap();
    replica.log.begin_join(&mut job).unwrap();
    let end = replica.log.log_end_offset();
    assert!(
        replica
            .log
            .begin_truncation(end - 1, 1_000, EXPIRATION_MS)
            .is_err()
    );
    replica.log.give_up_truncation();
    let start = replica.log.log_start_offset();
    replica.log.advance_log_start(start + 3).unwrap();
    assert!(replica.log.plan_retention(1 << 50).removed.is_none());
    let result = job.execute();
    replica.log.complete_join(job, result).unwrap();
    assert_eq!(
        replica.log.log_start_offset(),
        start + 3,
        "what the leader deleted meanwhile stays deleted"
    );
    replica.check_invariants();
}

#[test]
fn failed_names_leave_the_log_as_it_was() {
    let mut leader = leader();
    let mut replica = replica(&mut leader);
    let before = replica.contents();
    for skip in 0..8 {
        let (fill, aborted) = receive(&leader, &replica.log).unwrap();
        let mut job = fill.finish(&aborted, 5_000).unwrap();
        replica.log.begin_join(&mut job).unwrap();
        replica
            .disk
            .fail(Operation::Rename, "", skip, 1, Fault::NoDescriptor);
        let result = job.execute();
        let failed = result.is_err();
        let completed = replica.log.complete_join(job, result);
        assert_eq!(completed.is_err(), failed);
        replica.check_invariants();
        assert_eq!(replica.log.poisoned(), None);
        if !failed {
            assert!(skip > 0);
            return;
        }
        assert_eq!(replica.contents(), before);
    }
    panic!("no join has come through");
}

/// A kill, or a loss of power, at any step of a back-fill: the log has what it had, and perhaps the
/// segment; nothing else is left, and the back-fill goes on.
#[test]
fn an_interrupted_back_fill_goes_on() {
    let mut seen = (false, false);
    for steps in 0..60 {
        for seed in [None, Some(steps as u64), Some(steps as u64 + 1_000)] {
            let mut leader = leader();
            let mut rig = replica(&mut leader);
            assert!(join(&leader, &mut rig.log));
            rig.write();
            let producers = encode_sorted(rig.log.end_state().producers);
            let before = rig.log.log_start_offset();
            let state = rig.state(true);
            rig.log.close_cleanly().unwrap();
            rig.memory.sync_file_system(Path::new(DIR)).unwrap();
            interrupt(&leader, &rig.memory, state, steps, seed);
            let env = LogEnv::new(Arc::new(rig.memory.clone()), 16);
            // The checkpoint of the log start does not know the segment yet.
            let unclean = OpenState {
                clean: false,
                ..state
            };
            let (log, _) = open_in(env, &rig.config, unclean, 1_000).unwrap();
            rig.log = log;
            rig.check_invariants();
            assert!(rig.log.is_partial());
            match rig.log.log_start_offset() < before {
                true => seen.1 = true,
                false => seen.0 = true,
            }
            assert_eq!(encode_sorted(rig.log.end_state().producers), producers);
            let left = rig.files();
            assert!(left.iter().all(|one| !one.ends_with(".fill")), "{left:?}");
            while join(&leader, &mut rig.log) {}
            rig.drain();
            assert_same(&rig, &leader);
            assert_eq!(epochs(&rig.log), epochs(&leader.log));
            assert_eq!(aborted(&rig), aborted(&leader));
        }
    }
    assert_eq!(seen, (true, true));
}

/// Joins a segment; after some steps the process dies, or with a seed the machine.
fn interrupt(leader: &Rig, memory: &MemDisk, state: OpenState, steps: i64, seed: Option<u64>) {
    let fuse = Fuse::default();
    let disk = KilledDisk {
        inner: Arc::new(memory.clone()),
        fuse: fuse.clone(),
    };
    let env = LogEnv::new(Arc::new(disk), 16);
    let (mut log, _) = open_in(env, &small(), state, 1_000).unwrap();
    fuse.burn_after(steps);
    let _interrupted = try_join(leader, &mut log);
    drop(log);
    match seed {
        Some(seed) => memory.reboot(seed),
        None => memory.kill_process(),
    }
}
