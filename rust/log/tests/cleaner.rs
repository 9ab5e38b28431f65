//! The rules of compaction, one by one: which records, tombstones, markers and batches stay.

use std::path::Path;

use crate::common::FOLDER;
use crate::common::cleaning::{CleanRig, EAGER, compacted, keyed};
use pyrklog_log::cleaner::{CleanError, CleaningRules};
use pyrklog_log::compression::{compress, decompress};
use pyrklog_log::disk::Disk;
use pyrklog_log::disk::testing::{Fault, Operation};
use pyrklog_log::{Isolation, LogConfig, SyncScope};
use pyrklog_wire::batch::{BatchHeader, Batches, Compression, HEADER_LEN, TimestampType};
use pyrklog_wire::builder::BatchBuilder;
use pyrklog_wire::records::Records;

const FIRST_LOG: &str = "00000000000000000000.log";
const HEADERS: &[(&[u8], Option<&[u8]>)] = &[(b"h", Some(b"v")), (b"n", None)];

fn producer(id: i64, sequence: i32) -> BatchBuilder {
    BatchBuilder::new().producer(id, 0, sequence)
}

/// Offsets, keys and values, without those that fill segments.
fn committed(rig: &CleanRig) -> Vec<(i64, String, Option<String>)> {
    let mut found = rig.committed();
    found.retain(|(_, key, _)| key != "filler");
    found
}

fn found(offset: i64, key: &str, value: Option<&str>) -> (i64, String, Option<String>) {
    (offset, key.to_owned(), value.map(str::to_owned))
}

#[test]
fn the_last_record_of_each_key_stays_at_its_offset() {
    let mut rig = CleanRig::new(compacted(700));
    rig.put(&[("a", Some("1")), ("b", Some("1")), ("a", Some("2"))]);
    rig.put(&[("b", Some("2")), ("c", Some("1"))]);
    rig.roll();
    let end = rig.rig.log.log_end_offset();
    assert!(rig.clean().unwrap());
    assert_eq!(
        committed(&rig),
        [
            found(2, "a", Some("2")),
            found(3, "b", Some("2")),
            found(4, "c", Some("1"))
        ]
    );
    let first = rig.headers()[0];
    assert_eq!(
        (
            first.base_offset,
            first.last_offset_delta,
            first.record_count
        ),
        (0, 2, 1)
    );
    assert_eq!(rig.rig.log.log_end_offset(), end);
    assert!(rig.stats.bytes_after < rig.stats.bytes_before);
    // Nothing is dirty now.
    assert!(!rig.clean().unwrap());
}

#[test]
fn a_batch_of_which_all_stays_keeps_its_bytes() {
    let mut rig = CleanRig::new(compacted(700));
    rig.put(&[("a", Some("1")), ("b", Some("1"))]);
    rig.roll();
    let before = rig.rig.file(FIRST_LOG);
    let len = Batches::new(&before).next().unwrap().unwrap().bytes.len();
    rig.clean().unwrap();
    assert_eq!(rig.rig.file(FIRST_LOG)[..len], before[..len]);
}

#[test]
fn the_active_segment_and_open_transactions_stay() {
    let mut rig = CleanRig::new(compacted(700));
    rig.put(&[("a", Some("1"))]);
    rig.put(&[("a", Some("2"))]);
    rig.rig.sync(SyncScope::Written);
    assert!(rig.begin().is_none(), "the only segment is active");
    rig.put_as(producer(5, 0).transactional(), &[("t", Some("1"))]);
    rig.roll();
    assert!(
        rig.begin().is_none(),
        "a transaction is open in the first segment"
    );
    rig.end(5, 0, true);
    assert!(rig.clean().unwrap());
    assert_eq!(
        committed(&rig),
        [found(1, "a", Some("2")), found(2, "t", Some("1"))]
    );
}

#[test]
fn unsynced_and_unreplicated_segments_wait() {
    let mut rig = CleanRig::new(compacted(300));
    for i in 0..10 {
        let mut batch = keyed(
            BatchBuilder::new(),
            1_000,
            &[("a", Some(&format!("{i:040}")))],
        );
        rig.rig.append(&mut batch).unwrap();
    }
    rig.rig.write();
    rig.rig.sync(SyncScope::Written);
    assert!(rig.begin().is_none(), "the high watermark is 0");
    rig.rig.drain();
    assert!(rig.begin().is_some());
    for i in 0..10 {
        rig.put(&[("b", Some(&format!("{i:040}")))]);
    }
    rig.clean().unwrap();
    assert!(rig.checkpoint.unwrap() <= 10, "what follows is not synced");
}

#[test]
fn only_compacted_logs_are_cleaned() {
    let mut rig = CleanRig::new(LogConfig {
        cleanup_compact: false,
        ..compacted(300)
    });
    for i in 0..10 {
        rig.put(&[("a", Some(&format!("{i:040}")))]);
    }
    rig.rig.sync(SyncScope::Written);
    assert!(rig.begin().is_none());
}

#[test]
fn tombstones_stay_until_their_horizon() {
    let mut rig = CleanRig::new(compacted(700));
    rig.put(&[("a", Some("1")), ("b", Some("1"))]);
    rig.put(&[("a", None)]);
    rig.roll();
    rig.clean().unwrap();
    assert_eq!(
        committed(&rig),
        [found(1, "b", Some("1")), found(2, "a", None)]
    );
    let marked = rig.headers()[1];
    assert_eq!(marked.delete_horizon(), Some(rig.rig.now_ms + 100));
    // The time of the record is what it was.
    let content = rig.rig.file(FIRST_LOG);
    let batch = Batches::new(&content).nth(1).unwrap().unwrap();
    let record = Records::new(&batch.bytes[HEADER_LEN..])
        .next()
        .unwrap()
        .unwrap();
    assert_eq!(marked.base_timestamp + record.timestamp_delta, 1_000);
    assert_eq!(marked.max_timestamp, 1_000);

    rig.rig.now_ms += 99;
    rig.roll();
    rig.clean().unwrap();
    assert_eq!(committed(&rig).last(), Some(&found(2, "a", None)));
    assert_eq!(
        rig.headers()[1].delete_horizon(),
        Some(1_100),
        "the first one counts"
    );
    rig.rig.now_ms += 1;
    rig.roll();
    rig.clean().unwrap();
    assert_eq!(committed(&rig), [found(1, "b", Some("1"))]);
}

#[test]
fn aborted_records_go_and_their_marker_follows_when_its_horizon_has_passed() {
    let mut rig = CleanRig::new(compacted(900));
    rig.put(&[("a", Some("1"))]);
    rig.put_as(producer(5, 0).transactional(), &[("a", Some("2"))]);
    rig.put_as(producer(5, 1).transactional(), &[("b", Some("2"))]);
    rig.end(5, 0, false);
    // The producer goes on, so that nothing before must stay for its sequence.
    rig.put_as(producer(5, 2).transactional(), &[("c", Some("1"))]);
    rig.end(5, 0, true);
    rig.roll();
    let is_abort = |header: &&BatchHeader| header.is_control() && header.base_offset == 3;
    rig.clean().unwrap();
    assert_eq!(
        committed(&rig),
        [found(0, "a", Some("1")), found(4, "c", Some("1"))]
    );
    let headers = rig.headers();
    assert!(
        headers
            .iter()
            .all(|header| ![1, 2].contains(&header.base_offset))
    );
    assert_eq!(
        headers.iter().find(is_abort).unwrap().delete_horizon(),
        None
    );
    assert!(
        rig.rig
            .files()
            .contains(&"00000000000000000000.txnindex".to_owned())
    );

    // No batch of it was met: from now on its horizon runs.
    rig.roll();
    rig.clean().unwrap();
    let horizon = rig
        .headers()
        .iter()
        .find(is_abort)
        .unwrap()
        .delete_horizon();
    assert_eq!(horizon, Some(1_100));
    assert!(
        !rig.rig
            .files()
            .contains(&"00000000000000000000.txnindex".to_owned())
    );
    rig.rig.now_ms += 100;
    rig.roll();
    rig.clean().unwrap();
    assert!(rig.headers().iter().find(is_abort).is_none());
    assert_eq!(
        committed(&rig),
        [found(0, "a", Some("1")), found(4, "c", Some("1"))]
    );
}

#[test]
fn a_commit_stays_while_records_of_its_transaction_do() {
    let mut rig = CleanRig::new(compacted(900));
    rig.put_as(producer(5, 0).transactional(), &[("a", Some("1"))]);
    rig.end(5, 0, true);
    for _ in 0..3 {
        rig.roll();
        rig.clean().unwrap();
        rig.rig.now_ms += 1_000;
    }
    let marker = rig.headers()[1];
    assert_eq!(
        (marker.base_offset, marker.is_control(), marker.record_count),
        (1, true, 1)
    );
    assert_eq!(marker.delete_horizon(), None);
}

#[test]
fn a_producers_last_batch_stays_without_records() {
    let mut rig = CleanRig::new(compacted(900));
    rig.put_as(producer(5, 0), &[("a", Some("1"))]);
    rig.put_as(producer(5, 1), &[("a", Some("2")), ("b", Some("2"))]);
    rig.put(&[("a", Some("3")), ("b", Some("3"))]);
    rig.roll();
    rig.clean().unwrap();
    let kept = rig.headers()[0];
    assert_eq!(
        (kept.base_offset, kept.last_offset(), kept.record_count),
        (1, 2, 0)
    );
    assert_eq!(
        (kept.producer_id, kept.base_sequence, kept.last_sequence()),
        (5, 1, 2)
    );
    // From the log alone the next start knows the sequence.
    rig.rig.restart_killed();
    rig.rig.drain();
    let appended = rig.put_as(producer(5, 3), &[("c", Some("1"))]);
    assert!(!appended.duplicate);
    let mut skipped = keyed(producer(5, 9), 1_000, &[("c", Some("2"))]);
    assert!(rig.rig.append(&mut skipped).is_err());
}

#[test]
fn a_log_that_is_compacted_no_more_keeps_its_segments() {
    let mut rig = CleanRig::new(compacted(400));
    for i in 0..16 {
        rig.put(&[("a", Some(&format!("{i:040}")))]);
    }
    rig.roll();
    let before = rig.committed();
    let mut job = rig.begin().unwrap();
    let config = LogConfig {
        cleanup_compact: false,
        cleanup_delete: true,
        ..compacted(400)
    };
    rig.rig.log.set_config(config.into());
    assert!(matches!(rig.clean_with(&mut job), Err(CleanError::Stale)));
    assert_eq!(rig.committed(), before);
}

#[test]
fn lags_and_ratio_decide_when() {
    let mut rig = CleanRig::new(compacted(400));
    let put = |rig: &mut CleanRig| {
        for i in 0..8 {
            rig.put(&[("a", Some(&format!("{i:040}")))]);
        }
        rig.roll();
    };
    put(&mut rig);
    rig.rules = CleaningRules {
        min_lag_ms: 50,
        ..EAGER
    };
    rig.rig.now_ms += 49;
    assert!(rig.begin().is_none(), "all of it is too young");
    rig.rig.now_ms += 1;
    assert!(rig.clean().unwrap());
    rig.rules = CleaningRules {
        min_dirty_ratio: 1.0,
        max_lag_ms: 500,
        ..EAGER
    };
    put(&mut rig);
    // The oldest dirty record came first of all.
    rig.rig.now_ms += 450;
    assert!(rig.begin().is_none(), "not dirty enough");
    rig.rig.now_ms += 1;
    assert!(rig.begin().is_some(), "dirty for too long");
}

#[test]
fn small_segments_become_one() {
    let mut rig = CleanRig::new(compacted(400));
    for i in 0..30 {
        rig.put(&[("a", Some(&format!("{i:040}")))]);
    }
    rig.roll();
    let before = rig.rig.log.segment_count();
    assert!(before > 5);
    rig.clean().unwrap();
    // Known before the checkpoint is.
    assert!(rig.swapped_ends.len() > 1 && rig.swapped_ends[0] > 0);
    assert_eq!(rig.swapped_ends.last().copied(), rig.checkpoint);
    rig.roll();
    rig.clean().unwrap();
    assert!(rig.rig.log.segment_count() < before);
    let left: Vec<_> = rig.rig.files();
    let others = [".cleaned", ".swap", ".deleted"];
    assert!(
        !left
            .iter()
            .any(|name| others.iter().any(|end| name.ends_with(end))),
        "{left:?}"
    );
    // Every snapshot but the newest starts a segment.
    let snapshots = left
        .iter()
        .filter(|name| name.ends_with(".snapshot"))
        .count();
    assert!(snapshots <= rig.rig.log.segment_count(), "{left:?}");
    rig.rig.restart_clean();
    assert_eq!(rig.rig.report.recovered_segments, 0);
    assert_eq!(committed(&rig).len(), 1);
}

#[test]
fn codecs_headers_and_append_time_stay() {
    for codec in [
        Compression::Gzip,
        Compression::Snappy,
        Compression::Lz4,
        Compression::Zstd,
    ] {
        let mut rig = CleanRig::new(compacted(900));
        let mut builder = BatchBuilder::new().timestamp_type(TimestampType::LogAppendTime);
        builder.append(5, Some(b"a"), Some(b"1"));
        builder.append_with_headers(7, Some(b"b"), None, HEADERS);
        let mut batch = builder.build_compressed(codec, |records| {
            let mut out = Vec::new();
            compress(codec, records, &mut out).unwrap();
            out
        });
        pyrklog_wire::batch::set_max_timestamp(&mut batch, 900);
        pyrklog_wire::batch::refresh_crc(&mut batch);
        rig.rig.append(&mut batch).unwrap();
        rig.rig.drain();
        rig.put(&[("a", Some("2"))]);
        rig.roll();
        rig.clean().unwrap();
        let content = rig.rig.file(FIRST_LOG);
        let cleaned = Batches::new(&content).next().unwrap().unwrap();
        assert_eq!(cleaned.header.compression(), Ok(codec));
        assert_eq!(cleaned.header.max_timestamp, 900);
        assert!(cleaned.header.is_log_append_time());
        let mut body = Vec::new();
        decompress(codec, cleaned.body(), &mut body, 1 << 20).unwrap();
        let records: Vec<_> = Records::new(&body).map(Result::unwrap).collect();
        let [record] = records[..] else {
            panic!("{records:?}")
        };
        assert_eq!(
            (record.offset_delta, record.key, record.value),
            (1, Some(&b"b"[..]), None)
        );
        let headers: Vec<_> = record.headers().map(|h| (h.key, h.value)).collect();
        assert_eq!(headers, HEADERS);
    }
}

#[test]
fn retention_goes_on_beside_it() {
    let config = LogConfig {
        cleanup_delete: true,
        retention_ms: 10,
        ..compacted(400)
    };
    let mut rig = CleanRig::new(config);
    for i in 0..20 {
        rig.put(&[("a", Some(&format!("{i:040}")))]);
    }
    rig.roll();
    let mut job = rig.begin().unwrap();
    rig.rig.now_ms += 11;
    assert!(rig.rig.retain() > 0);
    assert!(matches!(rig.clean_with(&mut job), Err(CleanError::Stale)));
    assert!(rig.rig.log.poisoned().is_none());
    rig.put(&[("b", Some("1"))]);
    rig.roll();
    rig.clean().unwrap();
    rig.rig.now_ms += 11;
    assert!(rig.rig.retain() > 0, "cleaned segments expire as others do");
}

#[test]
fn a_reader_of_a_replaced_segment_goes_on() {
    let mut rig = CleanRig::with_cache(compacted(600));
    rig.keeps_files = true;
    for i in 0..10 {
        rig.put(&[("a", Some(&format!("{i:040}")))]);
    }
    rig.roll();
    let location = rig.rig.log.locate(0, Isolation::HighWatermark).unwrap();
    let slice = location
        .resolve(1 << 20, true, pyrklog_log::Wait::Blocking)
        .unwrap();
    let before = crate::common::bytes(&slice);
    rig.clean().unwrap();
    assert_eq!(crate::common::bytes(&slice), before);
    assert_eq!(rig.rig.log.aborted_transactions(&slice).unwrap(), None);
    assert_eq!(committed(&rig).len(), 1);
    rig.rig.restart_killed();
    rig.rig.drain();
    assert_eq!(committed(&rig).len(), 1, "no old block came back");
}

#[test]
fn damage_ends_it_and_changes_nothing() {
    let mut rig = CleanRig::new(compacted(400));
    for i in 0..10 {
        rig.put(&[("a", Some(&format!("{i:040}")))]);
    }
    rig.roll();
    let mut content = rig.rig.file(FIRST_LOG);
    content[HEADER_LEN + 3] ^= 1;
    rig.rig.put_file(FIRST_LOG, &content);
    rig.rig.restart_clean();
    rig.rig.drain();
    let files = rig.rig.files();
    assert!(matches!(rig.clean(), Err(CleanError::Corrupt(_))));
    assert_eq!(rig.rig.files(), files);
    assert!(rig.rig.log.poisoned().is_none());
}

#[test]
fn a_full_disk_leaves_nothing_behind() {
    let mut rig = CleanRig::new(compacted(400));
    for i in 0..10 {
        rig.put(&[("a", Some(&format!("{i:040}")))]);
    }
    rig.roll();
    let files = rig.rig.files();
    rig.rig
        .break_disk(Operation::Write, 0, Fault::NoSpaceAfter(10));
    let error = rig.clean().unwrap_err();
    assert!(error.may_pass(), "{error}");
    assert_eq!(rig.rig.files(), files);
    rig.rig.disk.heal();
    assert!(rig.clean().unwrap());
}

#[test]
fn a_stopped_cleaning_leaves_nothing_behind() {
    let mut rig = CleanRig::new(compacted(400));
    for i in 0..10 {
        rig.put(&[("a", Some(&format!("{i:040}")))]);
    }
    rig.roll();
    let files = rig.rig.files();
    let mut job = rig.begin().unwrap();
    job.build_map(rig.limits, &mut |_: u64| true).unwrap();
    let stopped = job.next_group(&mut |_: u64| false);
    assert!(matches!(stopped, Err(CleanError::Stopped)));
    assert_eq!(rig.rig.files(), files);
}

/// Names of the `.log` files with the times of their last changes.
fn ages(rig: &CleanRig) -> Vec<(String, i64)> {
    let mut names = rig.rig.files();
    names.retain(|name| name.ends_with(".log"));
    let age = |name: &String| rig.rig.disk.modified_ms(&Path::new(FOLDER).join(name));
    let aged = names.into_iter().map(|name| {
        let age = age(&name).unwrap();
        (name, age)
    });
    aged.collect()
}

/// Without timestamps retention goes by the files' times.
#[test]
fn a_cleaned_segment_is_as_old_as_the_last_of_its_sources() {
    let mut rig = CleanRig::new(compacted(700));
    for value in ["1", "2", "3"] {
        rig.put(&[("a", Some(value))]);
        rig.roll();
    }
    for ((name, _), modified_ms) in ages(&rig).iter().zip(1_000..) {
        let path = Path::new(FOLDER).join(name);
        rig.rig.disk.set_modified_ms(&path, modified_ms).unwrap();
    }
    let before = ages(&rig);
    assert!(rig.clean().unwrap());
    assert!(rig.stats.bytes_after < rig.stats.bytes_before);
    assert_eq!(ages(&rig), before);
    // They fit into one now.
    rig.put(&[("a", Some("4"))]);
    rig.roll();
    assert!(rig.clean().unwrap());
    let after = ages(&rig);
    assert_eq!(before[0].0, after[0].0);
    let behind = before.iter().position(|(name, _)| *name == after[1].0);
    let behind = behind.unwrap_or(before.len());
    assert!(behind > 1, "{before:?} {after:?}");
    assert_eq!(after[0].1, before[behind - 1].1);
}

/// More transactions than stay on the heap: the cleaner reads the file.
#[test]
fn aborted_records_go_whose_transactions_are_in_a_file() {
    let mut rig = CleanRig::new(compacted(40_000));
    for sequence in 0..200 {
        let pair = [("a", Some("aborted"))];
        rig.put_as(producer(5, sequence).transactional(), &pair);
        rig.end(5, 0, false);
    }
    rig.put(&[("b", Some("1"))]);
    rig.roll();
    assert_eq!(rig.rig.log.aborted_memory().0, 1);
    assert!(rig.clean().unwrap());
    assert_eq!(committed(&rig).len(), 1);
    // What stays of them: their markers, and the producer's last batch without its record.
    let data = |header: &&BatchHeader| header.producer_id == 5 && !header.is_control();
    let headers = rig.headers();
    let left: Vec<_> = headers.iter().filter(data).collect();
    assert_eq!(left.len(), 1);
    assert_eq!(left[0].record_count, 0);
}

/// Compaction leaves segments without batches.
#[test]
fn an_empty_segment_does_not_end_retention_by_size() {
    for (kept_bytes, removed) in [(1, true), (1_000_000, false)] {
        let mut rig = CleanRig::new(LogConfig {
            cleanup_delete: true,
            retention_ms: -1,
            retention_bytes: kept_bytes,
            ..compacted(200)
        });
        for value in 0..6 {
            rig.put(&[("a", Some(&format!("{value:050}")))]);
        }
        rig.roll();
        rig.clean().unwrap();
        assert!(rig.rig.file("00000000000000000000.log").is_empty());
        rig.rig.retain();
        let first = rig
            .rig
            .files()
            .into_iter()
            .find(|name| name.ends_with(".log"));
        let is_left = first.as_deref() == Some("00000000000000000000.log");
        assert_eq!(is_left, !removed, "{first:?}");
        assert_eq!(rig.rig.log.log_start_offset() > 0, removed);
    }
}
