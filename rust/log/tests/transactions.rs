//! Transactions in a log: the last stable offset, markers, the list of aborted ones.

mod common;

use common::{Rig, batch, records_in, small, transactional};
use pyrklog_log::{
    AbortedTxn, AppendError, Appended, BatchInfo, Isolation, LogConfig, Origin, Wait,
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

fn committed(rig: &Rig, offset: i64) -> (Vec<i64>, Vec<AbortedTxn>) {
    let location = rig.log.locate(offset, Isolation::Committed).unwrap();
    let slice = location.resolve(1 << 20, true, Wait::Blocking).unwrap();
    let offsets = records_in(&common::bytes(&slice))
        .iter()
        .map(|record| record.0)
        .collect();
    (offsets, rig.log.aborted_transactions(&slice).unwrap())
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
