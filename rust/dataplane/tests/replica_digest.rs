//! Digests of a replica: of whole batches, the same in one piece or several, and changed by any
//! byte.

use std::os::unix::fs::FileExt;
use std::path::Path;
use std::sync::Arc;

use crate::harness::*;
use pyrklog_dataplane::seam::*;
use pyrklog_log::disk::RealDisk;
use pyrklog_wire::ErrorCode;
use pyrklog_wire::batch::{self, Batches};

const NONE: i16 = ErrorCode::NONE.0;
const BATCHES: i64 = 8;
const RECORDS: i64 = 3;
const END: i64 = BATCHES * RECORDS;
const ALL: usize = usize::MAX;

fn start(dir: &Path) -> TestPlane {
    let config = config(vec![dir.join("logs")]);
    let mut test = TestPlane::start_with(config, Arc::new(RealDisk));
    test.create("t", 1);
    for number in 0..BATCHES {
        let value = [number as u8; 40];
        let produced = test
            .client()
            .produce("t", 0, &batch(&[&value, &value, &value]));
        assert_eq!(produced, (ErrorCode::NONE, number * RECORDS));
    }
    test
}

fn digest(test: &mut TestPlane, start: i64, end: i64, max_bytes: usize) -> ReplicaDigest {
    let range = DigestRange {
        start,
        end,
        max_bytes,
    };
    let ticket = test.plane.replica_digest("t", 0, range).unwrap();
    match test.ticket(ticket) {
        TicketOutcome::ReplicaDigest(digest) => digest,
        other => panic!("{other:?}"),
    }
}

/// Changes the file; the second argument is where each batch begins.
fn spoil(dir: &Path, change: impl FnOnce(&mut Vec<u8>, &[usize])) {
    let path = dir.join(format!("logs/t-0/{:020}.log", 0));
    let mut bytes = std::fs::read(&path).unwrap();
    let starts: Vec<usize> = Batches::new(&bytes)
        .map(|view| view.unwrap().position)
        .collect();
    assert_eq!(starts.len() as i64, BATCHES);
    change(&mut bytes, &starts);
    let file = std::fs::File::options().write(true).open(path).unwrap();
    file.write_all_at(&bytes, 0).unwrap();
}

#[test]
fn an_empty_range_tells_the_offsets() {
    let dir = tempfile::tempdir().unwrap();
    let found = digest(&mut start(dir.path()), 0, 0, ALL);
    assert_eq!(
        (found.error_code, found.batches, found.digest),
        (NONE, 0, 0)
    );
    let offsets = (
        found.log_start_offset,
        found.high_watermark,
        found.log_end_offset,
    );
    assert_eq!(offsets, (0, END, END));
    assert_eq!((found.leader_epoch, found.first), (0, None));
}

#[test]
fn two_replicas_with_the_same_batches_have_the_same_digests() {
    let (one, other) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let (mut one, mut other) = (start(one.path()), start(other.path()));
    let mut seen = Vec::new();
    for end in 1..=END {
        let (left, right) = (
            digest(&mut one, 0, end, ALL),
            digest(&mut other, 0, end, ALL),
        );
        assert_eq!((left.digest, left.batches), (right.digest, right.batches));
        assert_eq!((left.batches, left.next_offset), (end / RECORDS, end));
        assert_eq!(left.damaged_offset, -1);
        seen.push(left.digest);
    }
    seen.dedup();
    assert_eq!(seen.len() as i64, BATCHES + 1, "each batch changes it");
}

#[test]
fn a_piece_ends_with_the_batch_that_reaches_its_size() {
    let dir = tempfile::tempdir().unwrap();
    let mut test = start(dir.path());
    let one = digest(&mut test, RECORDS, END, 1);
    assert_eq!((one.next_offset, one.batches), (2 * RECORDS, 1));
    let first = one.first.unwrap();
    assert_eq!(
        (first.base_offset, first.last_offset),
        (RECORDS, 2 * RECORDS - 1)
    );
    let within = digest(&mut test, RECORDS + 1, END, 1);
    assert_eq!((within.digest, within.first), (one.digest, one.first));
}

#[test]
fn a_byte_that_decayed_is_damage_and_another_digest() {
    let dir = tempfile::tempdir().unwrap();
    let mut test = start(dir.path());
    let before = digest(&mut test, 0, END, ALL);
    spoil(dir.path(), |bytes, starts| bytes[starts[5] - 1] ^= 1);
    let after = digest(&mut test, 0, END, ALL);
    assert_eq!(after.damaged_offset, 4 * RECORDS);
    assert_eq!((after.next_offset, after.batches), (END, BATCHES));
    assert_ne!(after.digest, before.digest);
    assert_eq!(digest(&mut test, 0, 4 * RECORDS, ALL).damaged_offset, -1);
}

#[test]
fn digest_differs_for_other_content_or_another_epoch() {
    let dir = tempfile::tempdir().unwrap();
    let mut test = start(dir.path());
    let mut seen = vec![digest(&mut test, 0, END, ALL).digest];
    spoil(dir.path(), |bytes, starts| {
        let one = &mut bytes[starts[2]..starts[3]];
        *one.last_mut().unwrap() ^= 1;
        batch::refresh_crc(one);
    });
    let changed = digest(&mut test, 0, END, ALL);
    assert_eq!(changed.damaged_offset, -1);
    seen.push(changed.digest);
    // The checksum does not cover the epoch.
    spoil(dir.path(), |bytes, starts| bytes[starts[6] + 15] ^= 1);
    let changed = digest(&mut test, 0, END, ALL);
    assert_eq!(changed.damaged_offset, -1);
    assert!(!seen.contains(&changed.digest) && seen[0] != seen[1]);
}

#[test]
fn digest_ends_where_the_next_batch_is_not_found() {
    let dir = tempfile::tempdir().unwrap();
    let mut test = start(dir.path());
    let before = digest(&mut test, 0, 3 * RECORDS, ALL);
    spoil(dir.path(), |bytes, starts| bytes[starts[3] + 8] = 0xff);
    let found = digest(&mut test, 0, END, ALL);
    let ended = 3 * RECORDS;
    assert_eq!((found.next_offset, found.damaged_offset), (ended, ended));
    assert_eq!(found.digest, before.digest);
}

#[test]
fn digest_of_a_missing_partition_is_refused() {
    let dir = tempfile::tempdir().unwrap();
    let mut test = start(dir.path());
    let beyond = digest(&mut test, 0, END + 1, ALL);
    assert_eq!(beyond.error_code, ErrorCode::OFFSET_OUT_OF_RANGE.0);
    let deleting = test
        .plane
        .delete_records(vec![("t".into(), 0, 2 * RECORDS)]);
    test.ticket(deleting.unwrap());
    let gone = digest(&mut test, 0, END, ALL);
    assert_eq!(gone.error_code, ErrorCode::OFFSET_OUT_OF_RANGE.0);
    assert_eq!(digest(&mut test, 0, 0, ALL).log_start_offset, 2 * RECORDS);
    let range = DigestRange {
        start: 0,
        end: 0,
        max_bytes: 1,
    };
    let nowhere = test.plane.replica_digest("none", 0, range).unwrap();
    match test.ticket(nowhere) {
        TicketOutcome::ReplicaDigest(found) => {
            assert_eq!(found.error_code, ErrorCode::NOT_LEADER_OR_FOLLOWER.0);
        }
        other => panic!("{other:?}"),
    }
}
