//! Internal topics with damaged files: what is reported, and what is still read.

use std::fs::{self, OpenOptions};
use std::os::unix::fs::FileExt;
use std::path::Path;

use crate::harness::internal::*;
use crate::harness::*;

/// Eight batches of one record, 100 bytes of value each, in one segment; returns where each begins.
fn eight(test: &mut TestPlane, dir: &Path) -> Vec<u64> {
    let value = "v".repeat(100);
    let mut places = Vec::new();
    for number in 0..8 {
        places.push(fs::metadata(segment(dir)).map_or(0, |facts| facts.len()));
        let outcome = append_now(test, &terms(), &[("k", Some(&value))]);
        assert_eq!(outcome, (NONE, number));
    }
    places
}

fn damage(dir: &Path, place: u64, bytes: &[u8]) {
    let file = OpenOptions::new().write(true).open(segment(dir)).unwrap();
    file.write_all_at(bytes, place).unwrap();
}

#[test]
fn a_damaged_batch_is_told_and_the_others_are_read() {
    let dir = tempfile::tempdir().unwrap();
    let mut test = start_through(dir.path());
    let places = eight(&mut test, dir.path());
    damage(dir.path(), places[2] + 80, b"x!");
    damage(dir.path(), places[5] + 57, &99i32.to_be_bytes());
    let found = read(&mut test, 0, 1 << 20);
    let damaged: Vec<_> = outline(&found)
        .iter()
        .filter(|batch| batch.2)
        .copied()
        .collect();
    assert_eq!(damaged, [(2, 2, true), (5, 5, true)]);
    assert_eq!((found.batches.len(), found.next_offset), (8, 8));
    let reason = found.batches[2].damage.as_deref().unwrap();
    assert!(reason.contains("CRC"), "{reason}");
    assert_eq!(found.batches[2].records().count(), 0);
    assert_eq!(outline(&read(&mut test, 2, 1)), [(2, 2, true)]);
    assert_eq!(test.statistic("internal_damaged_batches"), 3);
}

#[test]
fn a_damaged_batch_does_not_say_where_the_next_one_begins() {
    let dir = tempfile::tempdir().unwrap();
    let mut test = start_through(dir.path());
    let places = eight(&mut test, dir.path());
    // It claims four offsets that belong to its successors.
    damage(dir.path(), places[2] + 23, &4i32.to_be_bytes());
    let found = read(&mut test, 0, 1 << 20);
    let good: Vec<i64> = outline(&found)
        .iter()
        .filter(|batch| !batch.2)
        .map(|batch| batch.0)
        .collect();
    assert_eq!(good, [0, 1, 3, 4, 5, 6, 7]);
    assert_eq!((found.batches.len(), found.next_offset), (8, 8));
}

#[test]
fn a_wrong_base_offset_does_not_lead_astray() {
    let dir = tempfile::tempdir().unwrap();
    let mut test = start_through(dir.path());
    let places = eight(&mut test, dir.path());
    damage(dir.path(), places[3], &(1i64 << 40).to_be_bytes());
    damage(dir.path(), places[6], &1i64.to_be_bytes());
    let found = read(&mut test, 0, 1 << 20);
    let good: Vec<i64> = outline(&found)
        .iter()
        .filter(|batch| !batch.2)
        .map(|batch| batch.0)
        .collect();
    assert_eq!(good, [0, 1, 2, 4, 5, 7]);
    assert_eq!((found.batches.len(), found.next_offset), (8, 8));
}

#[test]
fn lengths_that_cannot_be_trusted_cost_their_segment_at_most() {
    for (at, bytes) in [
        (8, i32::MAX.to_be_bytes()),
        (8, 1i32.to_be_bytes()),
        (8, 500i32.to_be_bytes()),
        (16, [9; 4]),
    ] {
        let dir = tempfile::tempdir().unwrap();
        let mut test = start_through(dir.path());
        let places = eight(&mut test, dir.path());
        let mut rolling = topic_config();
        rolling.log.segment_bytes = 1_500;
        test.describe_topic(TOPIC, 1, &rolling);
        let value = "v".repeat(1_000);
        let outcome = append_now(&mut test, &terms(), &[("k", Some(&value))]);
        assert_eq!(outcome, (NONE, 8));
        assert!(
            segment(dir.path())
                .with_file_name(format!("{:020}.log", 8))
                .exists()
        );
        damage(dir.path(), places[4] + at, &bytes);
        for max_bytes in [1, 300, 1 << 20] {
            let (mut offset, mut good, mut damaged) = (0, Vec::new(), Vec::new());
            while offset < 9 {
                let found = read(&mut test, offset, max_bytes);
                assert_eq!((found.error_code, found.end_offset), (NONE, 9));
                assert!(found.next_offset > offset, "{max_bytes} {bytes:?}");
                offset = found.next_offset;
                for batch in outline(&found) {
                    let target = if batch.2 { &mut damaged } else { &mut good };
                    target.extend(batch.0..=batch.1);
                }
            }
            let facts = format!("{max_bytes} {bytes:?}: {good:?} {damaged:?}");
            assert!(
                good.starts_with(&[0, 1, 2, 3]) && good.ends_with(&[8]),
                "{facts}"
            );
            assert!(damaged.contains(&4) && !damaged.contains(&8), "{facts}");
            assert!(
                (0..9).all(|offset| good.contains(&offset) != damaged.contains(&offset)),
                "{facts}"
            );
        }
    }
}
