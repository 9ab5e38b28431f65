//! Back-fills of logs whose sources and leaders begin at different offsets (`expansion.md`, section
//! 6).

use std::path::Path;

use crate::common::*;
use crate::join::{
    assert_same, batches, epochs, join, leader, raw, receive, replica, replica_from, start_of, told,
};
use pyrklog_log::disk::Disk;
use pyrklog_log::snapshot::encode_sorted;
use pyrklog_log::{FillError, StartAtEnd, Wait};
use pyrklog_wire::batch::{self, Batches};

/// The start that a leader gives whose own log begins later: it knows no epochs before that.
fn start_given_from(leader: &Rig, log_start: i64) -> StartAtEnd {
    let state = leader.log.end_state();
    let known = state.epochs.iter().filter(|e| e.start_offset >= log_start);
    let known = known.map(|e| (e.epoch, e.start_offset));
    let producers = encode_sorted(state.producers.clone());
    StartAtEnd::received(state.offset, known, &producers).unwrap()
}

/// The epochs of a log that begins there.
fn epochs_from(leader: &Rig, start: i64) -> Vec<(i32, i64)> {
    let all = epochs(&leader.log);
    let first = all.partition_point(|(_, begin)| *begin <= start) - 1;
    let kept = all[first..].iter();
    kept.map(|(epoch, begin)| (*epoch, start.max(*begin)))
        .collect()
}

/// The leader that gave the start had deleted more than its successor.
#[test]
fn epochs_that_nobody_told_are_those_of_the_batches() {
    for is_unread in [false, true] {
        let mut leader = leader();
        let (_, second) = epochs(&leader.log)[1];
        let start = match is_unread {
            false => start_given_from(&leader, second + 1),
            true => start_given_from(&leader, i64::MAX),
        };
        let mut replica = replica_from(&mut leader, &start);
        while join(&leader, &mut replica.log) {
            let expected = epochs_from(&leader, replica.log.log_start_offset());
            assert_eq!(epochs(&replica.log), expected);
            // The file with the epochs is not written yet.
            replica.restart_killed();
            assert_eq!(epochs(&replica.log), expected);
        }
        assert_same(&replica, &leader);
        assert_eq!(epochs(&replica.log), epochs(&leader.log));
    }
}

#[test]
fn epochs_that_nobody_told_rise() {
    for (first, second) in [(3, 2), (5, 5), (2, 6)] {
        let mut leader = leader();
        let (known, begin) = epochs(&leader.log)[2];
        assert_eq!(known, 4);
        let start = start_given_from(&leader, begin);
        let mut replica = replica_from(&mut leader, &start);
        while replica.log.log_start_offset() > begin {
            assert!(join(&leader, &mut replica.log));
        }
        let end = replica.log.log_start_offset();
        let (begin, _) = told(&leader, end);
        let mut wrong = batches(&raw(&leader, begin, end));
        batch::set_partition_leader_epoch(&mut wrong[0], first);
        batch::set_partition_leader_epoch(&mut wrong[1], second);
        let mut fill = replica.log.plan_fill(begin).unwrap().open();
        let refused = fill.add(&wrong.concat());
        assert!(matches!(refused, Err(FillError::Unfit(_))), "{refused:?}");
        fill.discard().unwrap();
        drop(fill);
        assert!(join(&leader, &mut replica.log), "right ones are taken");
    }
}

/// A source that has deleted more than the leader begins within a batch. The whole batch has come.
#[test]
fn batch_that_holds_the_sources_start_is_taken_back() {
    let mut source = leader();
    let mut leader = leader();
    let mut rig = replica(&mut leader);
    let within = leader.contents()[16].0;
    source.log.advance_log_start(within).unwrap();
    while join(&source, &mut rig.log) {}
    assert_eq!(rig.log.log_start_offset(), within);
    let first = raw(&leader, within, within + 1);
    let begin = Batches::new(&first).next().unwrap().unwrap();
    let begin = begin.header.base_offset;
    assert!(begin < within);
    assert!(!rig.log.take_back(within), "the leader has no more");
    assert!(rig.log.take_back(begin + 1), "it has another record");
    assert_eq!(rig.log.log_start_offset(), begin + 1);
    assert!(rig.log.take_back(0) && !rig.log.take_back(0));
    assert_eq!(rig.log.log_start_offset(), begin);
    rig.check_invariants();
    assert_eq!(epochs(&rig.log), epochs_from(&leader, begin));
    while join(&leader, &mut rig.log) {}
    assert_same(&rig, &leader);
    assert_eq!(epochs(&rig.log), epochs(&leader.log));
}

#[test]
fn ordinary_log_takes_nothing_back() {
    let mut rig = leader();
    let within = rig.contents()[16].0;
    rig.log.advance_log_start(within).unwrap();
    assert!(!rig.log.take_back(0));
    assert_eq!(rig.log.log_start_offset(), within);
}

/// Retention deletes a segment of records without timestamps by the age of its file.
#[test]
fn joined_segment_is_as_old_as_its_source() {
    let mut leader = Rig::new(small());
    for _ in 0..20 {
        leader
            .append(&mut batch(-1, &["without a time"; 4]))
            .unwrap();
        leader.drain();
    }
    leader.restart_clean();
    let start = start_of(&leader.log);
    let mut rig = replica_from(&mut leader, &start);
    assert!(join(&leader, &mut rig.log), "the one that is written to");
    let end = rig.log.log_start_offset();
    let source = leader.log.fill_source(end).unwrap();
    assert!(
        source.load_newest_ms(Wait::Nowait).is_err(),
        "it is in a file"
    );
    let path = |begin| Path::new(FOLDER).join(format!("{begin:020}.log"));
    leader
        .memory
        .set_modified_ms(&path(source.begin()), 77_000)
        .unwrap();
    assert_eq!(source.load_newest_ms(Wait::Blocking).unwrap(), 77_000);
    assert_eq!(source.load_newest_ms(Wait::Nowait).unwrap(), 77_000);
    let (fill, aborted) = receive(&leader, &rig.log).unwrap();
    let mut job = fill.finish(&aborted, 77_000).unwrap();
    rig.log.begin_join(&mut job).unwrap();
    let result = job.execute();
    rig.log.complete_join(job, result).unwrap();
    assert_eq!(
        rig.memory.modified_ms(&path(source.begin())).unwrap(),
        77_000
    );
}
