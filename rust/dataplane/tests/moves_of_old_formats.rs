//! Moves of logs whose segments had messages of old formats, and what Kafka left of such moves.

use std::fs;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use crate::harness::moving::*;
use crate::harness::*;
use pyrklog_dataplane::seam::*;
use pyrklog_log::LogConfig;
use pyrklog_wire::batch::Batches;
use pyrklog_wire::message_set::{MAGIC_0, MAGIC_1, write_message};
use pyrklog_wire::records::Records;

/// A copy's folder as Kafka names it.
const COPY: &str = "t-0.0123456789abcdef0123456789abcdef-future";

const END: i64 = 150;

fn messages(offsets: impl IntoIterator<Item = i64>) -> Vec<u8> {
    let mut set = Vec::new();
    for offset in offsets {
        let value = value(offset);
        let key = offset.to_be_bytes();
        let format = (MAGIC_1, 0);
        write_message(&mut set, format, offset, offset, Some(&key), Some(&value));
    }
    set
}

fn value(offset: i64) -> Vec<u8> {
    format!("value {offset}").into_bytes()
}

fn put(folder: &Path, base_offset: i64, content: &[u8]) {
    fs::create_dir_all(folder).unwrap();
    fs::write(folder.join(format!("{base_offset:020}.log")), content).unwrap();
}

/// Directories that a killed Kafka left: `a` has the log, `b` a copy of a part of it.
fn as_kafka_left_it(dir: &Path) {
    put(&dir.join("a/t-0"), 0, &messages(0..100));
    put(&dir.join("a/t-0"), 100, &messages(100..END));
    put(&dir.join("b").join(COPY), 0, &messages(0..60));
}

fn lead(test: &mut TestPlane) -> Vec<i16> {
    let config = TopicConfig {
        log: LogConfig {
            file_delete_delay_ms: 1,
            retention_ms: -1,
            ..LogConfig::default()
        },
        ..topic_config()
    };
    test.lead("t", 1, &config)
}

/// Offsets and values of all records.
fn records(test: &TestPlane) -> Vec<(i64, Vec<u8>)> {
    let mut found = Vec::new();
    for (_, bytes) in read(test) {
        let view = Batches::new(&bytes).next().unwrap().unwrap();
        for record in Records::new(view.body()).map(Result::unwrap) {
            let offset = view.header.base_offset + i64::from(record.offset_delta);
            found.push((offset, record.value.unwrap().to_vec()));
        }
    }
    found
}

fn all() -> Vec<(i64, Vec<u8>)> {
    (0..END).map(|offset| (offset, value(offset))).collect()
}

/// Only in `b`.
fn check_moved(dir: &Path) {
    eventually("the other folders' end", || {
        let found = (folders(&dir.join("a")), folders(&dir.join("b")));
        (found == (vec![], vec!["t-0".to_owned()])).then_some(())
    });
}

#[test]
fn a_copy_that_kafka_left_begins_anew() {
    let dir = tempfile::tempdir().unwrap();
    as_kafka_left_it(dir.path());
    let mut test = start(&two(dir.path()));
    assert_eq!(lead(&mut test), [0]);
    let told = test.wait_for_notice("log_conversion_begins");
    let folder = dir.path().join("a/t-0").display().to_string();
    assert!(told.contains(&("folder", folder)), "{told:?}");
    test.wait_for_notice("replica_moved");
    assert_eq!(records(&test), all());
    check_moved(dir.path());
    test.events.extend(test.plane.drain_events(1_000));
    let is_conversion = |event: &Event| matches!(event, Event::Notice { event, .. } if *event == "log_conversion_begins");
    assert!(!test.events.iter().any(is_conversion), "of the copy");
    append(&test, 1);
    assert!(test.shutdown());
    for name in ["a", "b"] {
        let left = fs::read(dir.path().join(name).join(".pyrklog-unseen"));
        assert_eq!(left.unwrap_or_default(), b"", "{name}");
    }
    let mut test = start(&two(dir.path()));
    assert_eq!(lead(&mut test), [0]);
    let found = read(&test);
    assert_eq!(found.last().unwrap().0, END);
    assert!(test.shutdown());
}

/// Converts and moves, and kills after so many steps of the disk; false if the move was done before.
fn killed_after(steps: i64) -> bool {
    let dir = tempfile::tempdir().unwrap();
    as_kafka_left_it(dir.path());
    let disk = DyingDisk::new();
    let mut test = TestPlane::start_with(two(dir.path()), Arc::new(disk.clone()));
    disk.die_after(steps);
    let led = lead(&mut test);
    let ended = within(Duration::from_secs(20), || {
        let events = test.plane.drain_events(100);
        let is_moved = |event: &Event| matches!(event, Event::Notice { event, .. } if *event == "replica_moved");
        (disk.is_dead() || events.iter().any(is_moved)).then_some(())
    });
    ended.unwrap_or_else(|| panic!("led with {led:?}, it neither moves nor dies"));
    let died = disk.is_dead();
    disk.die_after(0);
    drop(test);
    let mut test = start(&two(dir.path()));
    assert_eq!(lead(&mut test), [0], "{steps}");
    assert_eq!(records(&test), all(), "{steps}");
    eventually("the move's end", || {
        let dirs = described(&mut test);
        let mut partitions = dirs.iter().flat_map(|(_, partitions)| partitions);
        partitions.all(|one| !one.4).then_some(())
    });
    let to = dir.path().join("b");
    if !is_in(&to, "t-0") {
        // The kill came before there was a new copy.
        assert_eq!(alter(&test, "t", 0, &to), 0);
    }
    check_moved(dir.path());
    assert_eq!(records(&test), all(), "{steps}");
    assert!(test.shutdown());
    died
}

#[test]
fn a_kill_at_any_step_of_conversion_and_move_leaves_all_records() {
    for steps in (0..).step_by(2) {
        if !killed_after(steps) {
            assert!(steps > 40, "both have many steps");
            break;
        }
    }
}

#[test]
fn a_log_that_cannot_be_copied_whole_stays() {
    let mut wrong_checksum = messages(0..40);
    let at = messages(0..20).len() + 12;
    wrong_checksum[at] ^= 1;
    let mut not_rising = messages(0..20);
    // Of another format, so that it becomes a batch of its own.
    write_message(&mut not_rising, (MAGIC_0, 0), 5, -1, None, Some(b"late"));
    not_rising.extend(messages(20..40));
    for (what, content) in [("checksum", wrong_checksum), ("order", not_rising)] {
        let dir = tempfile::tempdir().unwrap();
        let (a, b) = (dir.path().join("a"), dir.path().join("b"));
        put(&a.join("t-0"), 0, &content);
        put(&a.join("t-0"), 40, &messages(40..50));
        let clean = br#"{"version":0,"brokerEpoch":-1}"#;
        fs::write(a.join(".kafka_cleanshutdown"), clean).unwrap();
        let mut test = start(&two(dir.path()));
        assert_eq!(lead(&mut test), [0]);
        let before = fs::read(a.join("t-0/00000000000000000000.log")).unwrap();
        assert_eq!(alter(&test, "t", 0, &b), 0);
        let told = test.wait_for_notice("replica_move_failed");
        let is_reason =
            |(name, text): &(&str, String)| *name == "reason" && text.contains("damaged");
        assert!(told.iter().any(is_reason), "{what}: {told:?}");
        eventually("the copy's end", || folders(&b).is_empty().then_some(()));
        let after = fs::read(a.join("t-0/00000000000000000000.log")).unwrap();
        assert_eq!(after, before, "{what}");
        append(&test, 1);
        assert!(test.shutdown());
    }
}
