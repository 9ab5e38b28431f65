//! Transactions in a log: the last stable offset, markers, the list of aborted ones.

use crate::common::{Rig, batch, records_in, small, transactional};
use pyrklog_log::{
    AbortedSearch, AbortedStep, AbortedTxn, AppendError, Appended, BatchInfo, Isolation, LogConfig,
    Origin, Slice, Wait,
};
use pyrklog_wire::ErrorCode;
use pyrklog_wire::builder::transaction_marker;

fn end(rig: &mut Rig, producer_id: i64, commit: bool) -> Result<Appended, AppendError> {
    end_by(rig, producer_id, commit, 0)
}

fn end_by(
    rig: &mut Rig,
    producer_id: i64,
    commit: bool,
    coordinator_epoch: i32,
) -> Result<Appended, AppendError> {
    let mut marker = transaction_marker(producer_id, 0, commit, coordinator_epoch, 1_000);
    let info = BatchInfo::parse(&marker).unwrap();
    rig.log
        .append(&mut marker, &info, Origin::Coordinator, 0, 1_000)
}

fn aborted(rig: &Rig, slice: &Slice) -> Vec<AbortedTxn> {
    rig.log.aborted_transactions(slice).unwrap().unwrap()
}

fn committed(rig: &Rig, offset: i64) -> (Vec<i64>, Vec<AbortedTxn>) {
    let location = rig.log.locate(offset, Isolation::Committed).unwrap();
    let slice = location.resolve(1 << 20, true, Wait::Blocking).unwrap();
    let offsets = records_in(&crate::common::bytes(&slice))
        .iter()
        .map(|record| record.0)
        .collect();
    (offsets, aborted(rig, &slice))
}

#[test]
fn an_open_transaction_holds_committed_readers_back() {
    let mut rig = Rig::new(LogConfig::default());
    rig.put(&["plain"]);
    rig.append(&mut transactional(7, 0, &["a", "b"])).unwrap();
    rig.put(&["behind"]);
    assert_eq!(
        (rig.log.high_watermark(), rig.log.last_stable_offset()),
        (4, 1)
    );
    assert_eq!(committed(&rig, 0).0, [0]);
    assert_eq!(committed(&rig, 1).0, [] as [i64; 0]);
    assert_eq!(committed(&rig, 3).0, [] as [i64; 0]);
    assert_eq!(rig.contents().len(), 4, "others see everything");

    end(&mut rig, 7, true).unwrap();
    rig.write();
    assert_eq!(
        rig.log.last_stable_offset(),
        1,
        "the marker is not replicated yet"
    );
    rig.log.advance_high_watermark(5);
    assert_eq!(rig.log.last_stable_offset(), 5);
    assert_eq!(committed(&rig, 0), (vec![0, 1, 2, 3, 4], vec![]));
}

#[test]
fn aborted_transactions_are_named_where_they_matter() {
    let mut rig = Rig::new(small());
    let mut expected = Vec::new();
    for i in 0..30 {
        let sequence = i * 2;
        let first = rig
            .append(&mut transactional(7, sequence, &["a", "b"]))
            .unwrap()
            .base_offset;
        rig.append(&mut transactional(8, i, &["other"])).unwrap();
        let marker = end(&mut rig, 7, i % 3 != 0).unwrap();
        end(&mut rig, 8, true).unwrap();
        rig.drain();
        if i % 3 == 0 {
            expected.push((first, marker.last_offset));
        }
    }
    assert!(rig.log.segment_count() > 3);
    for restart in 0..3 {
        match restart {
            1 => drop(rig.restart_clean()),
            2 => drop(rig.restart_killed()),
            _ => {}
        }
        rig.drain();
        for offset in 0..rig.log.high_watermark() {
            let (offsets, aborted) = committed(&rig, offset);
            let last = *offsets.last().unwrap();
            let aborted: Vec<_> = aborted
                .iter()
                .map(|txn| (txn.first_offset, txn.last_offset))
                .collect();
            for txn in &expected {
                let touches = txn.1 >= offset && txn.0 <= last;
                assert!(
                    !touches || aborted.contains(txn),
                    "{txn:?} from {offset} to {last}"
                );
            }
            assert!(
                aborted
                    .iter()
                    .all(|txn| txn.1 >= offset && expected.contains(txn))
            );
            assert!(aborted.is_sorted());
        }
    }
}

#[test]
fn open_transactions_survive_restarts() {
    let mut rig = Rig::new(LogConfig::default());
    rig.put(&["plain"]);
    rig.append(&mut transactional(7, 0, &["open"])).unwrap();
    rig.append(&mut transactional(8, 0, &["open too"])).unwrap();
    rig.drain();
    rig.restart_clean();
    rig.drain();
    assert_eq!(rig.log.last_stable_offset(), 1);
    assert_eq!(committed(&rig, 0).0, [0]);
    end(&mut rig, 7, false).unwrap();
    rig.drain();
    assert_eq!(rig.log.last_stable_offset(), 2);
    rig.restart_killed();
    rig.drain();
    assert_eq!(rig.log.last_stable_offset(), 2);
    end(&mut rig, 8, true).unwrap();
    rig.drain();
    assert_eq!(rig.log.last_stable_offset(), rig.log.high_watermark());
    let (_, aborted) = committed(&rig, 0);
    assert_eq!(aborted.len(), 1);
    assert_eq!(
        (
            aborted[0].producer_id,
            aborted[0].first_offset,
            aborted[0].last_offset
        ),
        (7, 1, 3)
    );
    assert_eq!(committed(&rig, 4).1, []);
}

#[test]
fn a_marker_of_an_older_coordinator_is_fenced() {
    let mut rig = Rig::new(LogConfig::default());
    rig.append(&mut transactional(7, 0, &["a"])).unwrap();
    end_by(&mut rig, 7, true, 5).unwrap();
    rig.append(&mut transactional(7, 1, &["b"])).unwrap();
    let error = end_by(&mut rig, 7, true, 4).unwrap_err();
    assert_eq!(error.code(), ErrorCode::TRANSACTION_COORDINATOR_FENCED);
    end_by(&mut rig, 7, true, 6).unwrap();
}

#[test]
fn deleting_records_moves_past_an_open_transaction() {
    let mut rig = Rig::new(LogConfig::default());
    rig.append(&mut transactional(7, 0, &["a", "b"])).unwrap();
    rig.append(&mut batch(1_000, &["c", "d"])).unwrap();
    rig.drain();
    assert_eq!(rig.log.last_stable_offset(), 0);
    rig.log.advance_log_start(3).unwrap();
    assert_eq!(rig.log.last_stable_offset(), 3, "never below the log start");
    assert_eq!(committed(&rig, 3).0, [] as [i64; 0]);
}

#[test]
fn truncation_takes_back_markers_and_their_entries() {
    let mut rig = Rig::new(LogConfig::default());
    rig.append(&mut transactional(7, 0, &["a"])).unwrap();
    rig.drain();
    end(&mut rig, 7, false).unwrap();
    rig.drain();
    assert_eq!(committed(&rig, 0).1.len(), 1);
    let mut job = rig
        .log
        .begin_truncation(1, 1_000, i64::MAX)
        .unwrap()
        .unwrap();
    let result = job.execute();
    rig.log.complete_truncation(job, result);
    assert_eq!(
        (rig.log.log_end_offset(), rig.log.last_stable_offset()),
        (1, 0)
    );
    assert!(rig.file("00000000000000000000.txnindex").is_empty());
    end(&mut rig, 7, true).unwrap();
    rig.drain();
    assert_eq!(committed(&rig, 0), (vec![0, 1], vec![]));
}

/// A closed segment of transactions that were aborted at once, each two offsets long; another one
/// follows.
fn aborted_one_after_another(segment_bytes: u32) -> (Rig, i64) {
    let mut rig = Rig::new(LogConfig {
        segment_bytes,
        ..small()
    });
    let mut sequence = 0;
    while rig.log.segment_count() == 1 {
        rig.append(&mut transactional(7, sequence, &["a"])).unwrap();
        end(&mut rig, 7, false).unwrap();
        rig.drain();
        sequence += 1;
    }
    let next_base = rig.log.next_segment_base(0).unwrap();
    (rig, next_base)
}

fn named(rig: &Rig, offset: i64, max_bytes: usize) -> (i64, Vec<i64>) {
    let location = rig.log.locate(offset, Isolation::Committed).unwrap();
    let slice = location.resolve(max_bytes, true, Wait::Blocking).unwrap();
    let bytes = crate::common::bytes(&slice);
    let whole = pyrklog_wire::batch::Batches::new(&bytes).map_while(Result::ok);
    let last = whole.last().unwrap().header.last_offset();
    let aborted = aborted(rig, &slice);
    (last, aborted.iter().map(|txn| txn.first_offset).collect())
}

#[test]
fn a_part_of_a_closed_segment_names_what_touches_it_and_little_more() {
    let (mut rig, next_base) = aborted_one_after_another(5_000);
    for restart in [false, true] {
        if restart {
            rig.restart_clean();
            rig.drain();
        }
        for offset in 0..next_base {
            let (last, found) = named(&rig, offset, 400);
            let touching = (0..next_base).step_by(2);
            let touching: Vec<_> = touching
                .filter(|first| first + 1 >= offset && *first <= last)
                .collect();
            assert!(found.starts_with(&touching), "{touching:?} {found:?}");
            // An entry of the index is at most 200 bytes and a batch away.
            assert!(found.len() <= touching.len() + 4, "{touching:?} {found:?}");
        }
    }
}

#[test]
fn a_wrong_index_hides_no_aborted_transaction() {
    let (mut rig, next_base) = aborted_one_after_another(5_000);
    rig.restart_clean();
    let name = "00000000000000000000.index";
    let mut index = rig.file(name);
    let last = index.len() - 8;
    for (i, entry) in index[..last].chunks_exact_mut(8).enumerate() {
        entry[..4].copy_from_slice(&(i as u32 + 1).to_be_bytes());
    }
    rig.put_file(name, &index);
    rig.drain();
    for max_bytes in (200..4_000).step_by(100) {
        let (last, found) = named(&rig, 0, max_bytes);
        let touching = (0..next_base).step_by(2).filter(|first| *first <= last);
        let touching: Vec<_> = touching.collect();
        assert!(found.starts_with(&touching), "{touching:?} {found:?}");
    }
}

/// As Kafka's follower leaves it, which appends a whole fetch answer at once.
#[test]
fn an_index_of_several_batches_an_entry_bounds_what_is_named() {
    let (mut rig, next_base) = aborted_one_after_another(5_000);
    rig.restart_clean();
    let name = "00000000000000000000.index";
    let before = rig.file(name);
    let mut index = before.clone();
    for at in (8..index.len()).step_by(8) {
        let next = u32::from_be_bytes(before[at..at + 4].try_into().unwrap());
        index[at - 8..at - 4].copy_from_slice(&(next - 1).to_be_bytes());
    }
    assert_ne!(index, before);
    rig.put_file(name, &index);
    rig.drain();
    for offset in 0..next_base - 20 {
        let (last, found) = named(&rig, offset, 400);
        let touching = (0..next_base).step_by(2);
        let touching: Vec<_> = touching
            .filter(|first| first + 1 >= offset && *first <= last)
            .collect();
        assert!(found.starts_with(&touching), "{touching:?} {found:?}");
        // An entry is at most 200 bytes and a batch away, and ends as far behind.
        assert!(found.len() <= touching.len() + 8, "{touching:?} {found:?}");
    }
}

#[test]
fn one_too_many_says_that_there_are_more() {
    let (rig, _) = aborted_one_after_another(5_000);
    let location = rig.log.locate(0, Isolation::Committed).unwrap();
    let slice = location.resolve(1_000, true, Wait::Blocking).unwrap();
    let all = aborted(&rig, &slice);
    assert!(all.len() > 4);
    match rig.log.find_aborted(&slice, &AbortedSearch::new(3)) {
        AbortedStep::Found(some) => assert_eq!(some, all[..4]),
        other => panic!("{other:?}"),
    }
}

/// A consumer of old records reads the file of its segment.
#[test]
fn many_aborted_transactions_of_a_closed_segment_are_in_its_file_alone() {
    let (mut rig, next_base) = aborted_one_after_another(40_000);
    assert!(next_base > 400);
    for restart in 0..3 {
        match restart {
            1 => drop(rig.restart_clean()),
            2 => drop(rig.restart_killed()),
            _ => {}
        }
        rig.drain();
        let (in_files, on_the_heap) = rig.log.aborted_memory();
        assert_eq!(in_files, 1, "{restart}");
        assert!(on_the_heap < 3, "{on_the_heap}");
        assert!(waits_for_file(&rig), "{restart}");
        for offset in (0..next_base).step_by(7) {
            for max_bytes in [200, 3_000, 100_000] {
                let (last, found) = named(&rig, offset, max_bytes);
                let touching = (0..next_base).step_by(2);
                let touching: Vec<_> = touching
                    .filter(|first| first + 1 >= offset && *first <= last)
                    .collect();
                assert!(found.starts_with(&touching), "{touching:?} {found:?}");
                assert!(found.len() <= touching.len() + 4, "{touching:?} {found:?}");
            }
        }
    }
    let slice = first_records(&rig);
    let mut search = AbortedSearch::new(10);
    let AbortedStep::Read(file) = rig.log.find_aborted(&slice, &search) else {
        panic!("it is on the heap");
    };
    // Open by now, and in memory.
    search.read(&file, Wait::Nowait).unwrap();
    match rig.log.find_aborted(&slice, &search) {
        AbortedStep::Found(found) => assert_eq!(found.len(), 11),
        other => panic!("{other:?}"),
    }
}

fn first_records(rig: &Rig) -> Slice {
    let location = rig.log.locate(0, Isolation::Committed).unwrap();
    location.resolve(100_000, true, Wait::Blocking).unwrap()
}

/// Whether a reader that may not wait is refused; the next one is not, once another has waited.
fn waits_for_file(rig: &Rig) -> bool {
    let mut search = AbortedSearch::new(10);
    let AbortedStep::Read(file) = rig.log.find_aborted(&first_records(rig), &search) else {
        panic!("it is on the heap");
    };
    match search.read(&file, Wait::Nowait) {
        Ok(()) => false,
        Err(error) => {
            assert_eq!(error.kind(), std::io::ErrorKind::WouldBlock);
            search.read(&file, Wait::Blocking).unwrap();
            search.read(&file, Wait::Nowait).unwrap();
            true
        }
    }
}

/// A group that has read everything commits the offset behind the last record, before the marker.
#[test]
fn markers_lie_behind_the_end_of_the_data() {
    for (config, is_exact) in [(LogConfig::default(), true), (small(), false)] {
        let mut rig = Rig::new(config);
        assert_eq!(rig.log.data_end_offset(), 0);
        for i in 0..30 {
            let appended = rig.append(&mut transactional(7, i, &["a"])).unwrap();
            let data_end = appended.last_offset + 1;
            assert_eq!(rig.log.data_end_offset(), data_end);
            end(&mut rig, 7, true).unwrap();
            end(&mut rig, 8, false).unwrap();
            rig.drain();
            assert_eq!(rig.log.data_end_offset(), data_end);
            match i % 3 {
                1 => drop(rig.restart_clean()),
                2 => drop(rig.restart_killed()),
                _ => {}
            }
            // A segment that begins with a marker does not tell of what lies before it.
            let known = rig.log.data_end_offset();
            assert!(known == data_end || !is_exact && known == data_end + 1);
            assert_eq!(rig.log.log_end_offset(), data_end + 2);
        }
    }
}

/// A batch longer than the interval of the index has the marker's entry behind it.
#[test]
fn markers_with_index_entries_hide_no_data() {
    let long = "x".repeat(10_000);
    for markers in [1, 120] {
        let mut rig = Rig::new(LogConfig::default());
        let data_end = rig
            .append(&mut transactional(7, 0, &[&long]))
            .unwrap()
            .last_offset
            + 1;
        for _ in 0..markers {
            end(&mut rig, 7, true).unwrap();
        }
        rig.drain();
        rig.restart_clean();
        assert_eq!(rig.log.data_end_offset(), data_end);
        rig.restart_killed();
        assert_eq!(rig.log.data_end_offset(), data_end);
    }
}

#[test]
fn a_truncation_takes_back_the_end_of_the_data() {
    let mut rig = Rig::new(LogConfig::default());
    rig.append(&mut transactional(7, 0, &["a"])).unwrap();
    end(&mut rig, 7, true).unwrap();
    rig.put(&["plain", "plain"]);
    rig.drain();
    assert_eq!(rig.log.data_end_offset(), 4);
    let mut job = rig
        .log
        .begin_truncation(2, 1_000, i64::MAX)
        .unwrap()
        .unwrap();
    let result = job.execute();
    rig.log.complete_truncation(job, result);
    assert_eq!(rig.log.log_end_offset(), 2);
    assert_eq!(rig.log.data_end_offset(), 1);
}
