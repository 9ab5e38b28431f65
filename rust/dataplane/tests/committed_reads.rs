//! Reads of committed records that wait for the disk while the log changes: if the aborted
//! transactions are no longer known, no records are returned.

use std::path::Path;
use std::sync::Arc;

use crate::harness::*;
use pyrklog_dataplane::seam::StopSpec;
use pyrklog_log::disk::RealDisk;
use pyrklog_wire::ErrorCode;
use pyrklog_wire::api::key;
use pyrklog_wire::batch::{set_base_offset, set_partition_leader_epoch};
use pyrklog_wire::builder::{BatchBuilder, transaction_marker};

const PRODUCER_ID: i64 = 7;
/// Batches of one record each of the aborted transaction.
const ABORTED: i64 = 20;
/// The next segment's base offset; the abort marker lies before it.
const NEXT_BASE: i64 = ABORTED + 1;

/// More transactions than one answer names.
const MANY: i64 = 70_000;
/// What one answer names at most (`ABORTED_MAX`).
const NAMED_MAX: usize = 65_536;

/// A partition as an unclean end leaves it: a segment with an aborted transaction, and one behind
/// it.
fn write_segments(folder: &Path) {
    let mut first = Vec::new();
    for offset in 0..ABORTED {
        first.extend(data(offset, offset as i32, &[b'a'; 1_000]));
    }
    first.extend(abort(ABORTED));
    write(folder, &first, NEXT_BASE);
}

fn data(offset: i64, sequence: i32, value: &[u8]) -> Vec<u8> {
    let mut batch = BatchBuilder::new()
        .base_offset(offset)
        .leader_epoch(0)
        .producer(PRODUCER_ID, 0, sequence)
        .transactional();
    batch.append(1_000, None, Some(value));
    batch.build()
}

fn abort(offset: i64) -> Vec<u8> {
    let mut marker = transaction_marker(PRODUCER_ID, 0, false, 0, 1_000);
    set_base_offset(&mut marker, offset);
    set_partition_leader_epoch(&mut marker, 0);
    marker
}

/// `first` as the first segment, and one behind it that begins with `next_base`.
fn write(folder: &Path, first: &[u8], next_base: i64) {
    std::fs::create_dir_all(folder).unwrap();
    let mut plain = BatchBuilder::new().base_offset(next_base).leader_epoch(0);
    plain.append(1_000, None, Some(b"plain"));
    std::fs::write(folder.join("00000000000000000000.log"), first).unwrap();
    let next = folder.join(format!("{next_base:020}.log"));
    std::fs::write(next, plain.build()).unwrap();
}

/// The answer to a read of committed records during which `change` happens.
fn read_across(change: impl Fn(&mut TestPlane, &Stalling)) -> Fetched {
    let dir = tempfile::tempdir().unwrap();
    let logs = dir.path().join("logs");
    write_segments(&logs.join("t-0"));
    let disk = Stalling::new();
    let mut config = config(vec![logs]);
    config.retention_check_interval_ms = 20;
    let mut test = TestPlane::start_with(config, Arc::new(disk.0.clone()));
    let mut options = topic_config();
    options.log.retention_ms = -1;
    assert_eq!(test.lead("t", 1, &options), [0]);
    let mut client = test.client();
    disk.set_cold(Some("/t-0/"));
    disk.stall("/t-0/");
    // Finding the middle record reads the disk.
    let mut ask = Ask::one("t", 0, 3);
    ask.isolation_level = 1;
    client.send(key::FETCH, ask.version, &ask.encode());
    eventually("a read that waits", || (disk.waiting() > 0).then_some(()));
    change(&mut test, &disk);
    disk.resume();
    let (_, body) = client.receive(key::FETCH, ask.version);
    fetched(&body, &ask).partitions.remove(0)
}

#[test]
fn committed_reads_name_aborted_transactions() {
    let found = read_across(|_, _| {});
    assert_eq!(found.error, ErrorCode::NONE);
    assert_eq!(found.aborted, Some(vec![(PRODUCER_ID, 0)]));
    assert_eq!(found.batches()[0], 3);
}

#[test]
fn committed_reads_skip_records_removed_by_retention() {
    let found = read_across(|test, disk| {
        let ticket = test.plane.delete_records(vec![("t".into(), 0, NEXT_BASE)]);
        test.ticket(ticket.unwrap());
        // The segment is out of the log, and its files are about to be renamed.
        eventually("retention", || (disk.waiting() > 1).then_some(()));
    });
    assert_eq!(found.error, ErrorCode::OFFSET_OUT_OF_RANGE);
    assert_eq!(found.records.len(), 0);
}

#[test]
fn committed_reads_stop_when_another_broker_leads() {
    let found = read_across(|test, _| {
        let stop = StopSpec {
            topic: "t".into(),
            partition: 0,
            delete: false,
        };
        test.plane.stop_partitions(vec![stop]).unwrap();
        let mut client = test.client();
        eventually("the stop", || {
            let found = client.fetch_one("t", 0, 0);
            (found.error == ErrorCode::NOT_LEADER_OR_FOLLOWER).then_some(())
        });
    });
    assert_eq!(found.error, ErrorCode::NOT_LEADER_OR_FOLLOWER);
    assert_eq!(found.records.len(), 0);
}

/// What a fetch names is bounded: it returns less instead.
#[test]
fn many_aborted_transactions_come_in_several_answers() {
    let dir = tempfile::tempdir().unwrap();
    let logs = dir.path().join("logs");
    let mut first = Vec::new();
    for i in 0..MANY {
        first.extend(data(2 * i, i as i32, b"a"));
        first.extend(abort(2 * i + 1));
    }
    write(&logs.join("t-0"), &first, 2 * MANY);
    let mut test = TestPlane::start_with(config(vec![logs]), Arc::new(RealDisk));
    let mut options = topic_config();
    options.log.retention_ms = -1;
    assert_eq!(test.lead("t", 1, &options), [0]);
    let mut client = test.client();
    let (mut next, mut named, mut answers) = (0, 0, 0);
    while next < 2 * MANY {
        let mut ask = Ask::one("t", 0, next).wait(10_000, 1);
        ask.isolation_level = 1;
        ask.partitions[0].1.max_bytes = 50 << 20;
        client.send(key::FETCH, ask.version, &ask.encode());
        let (_, body) = client.receive(key::FETCH, ask.version);
        let found = fetched(&body, &ask).partitions.remove(0);
        assert_eq!(found.error, ErrorCode::NONE);
        let aborted = found.aborted.clone().unwrap();
        assert!(aborted.len() <= NAMED_MAX, "{}", aborted.len());
        let last = *found.batches().last().unwrap();
        assert_eq!(aborted[0].1, next & !1);
        assert!(aborted.last().unwrap().1 >= last & !1);
        named += aborted.len();
        next = last + 1;
        answers += 1;
    }
    assert!(named >= MANY as usize);
    assert!(answers > 1);
}
