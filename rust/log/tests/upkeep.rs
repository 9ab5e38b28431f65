//! The syncer's work on a log: retention, DeleteRecords, truncation, syncing.

use std::path::Path;

use crate::common::{FOLDER, Rig, batch, bytes, produced, records_in, small};
use pyrklog_log::disk::Disk;
use pyrklog_log::disk::testing::{Fault, Operation};
use pyrklog_log::{AppendError, Isolation, LogConfig, ReadError, SyncScope, TruncateError, Wait};

/// Ten batches of about 350 bytes: two a segment.
fn filled(config: LogConfig) -> Rig {
    let mut rig = Rig::new(config);
    for _ in 0..10 {
        rig.now_ms += 100;
        rig.put(&[&"x".repeat(280)]);
    }
    rig
}

fn limited(retention_ms: i64, retention_bytes: i64) -> LogConfig {
    LogConfig {
        retention_ms,
        retention_bytes,
        ..small()
    }
}

#[test]
fn retention_by_time_goes_by_the_newest_record_of_a_segment() {
    let mut rig = filled(limited(500, -1));
    assert_eq!(rig.log.segment_count(), 5);
    rig.now_ms = 1_000 + 200 + 500;
    assert_eq!(
        rig.retain(),
        0,
        "the first segment is exactly as old as may be"
    );
    rig.now_ms += 1;
    assert_eq!(rig.retain(), 1);
    assert_eq!(rig.log.log_start_offset(), 2);
    assert!(matches!(
        rig.read(1, 1),
        Err(ReadError::OffsetOutOfRange { start: 2, .. })
    ));
    assert_eq!(rig.contents().len(), 8);
    assert!(
        !rig.files()
            .iter()
            .any(|name| name.starts_with("00000000000000000000."))
    );
}

#[test]
fn a_wholly_expired_log_rolls_and_is_emptied() {
    let mut rig = filled(limited(500, -1));
    rig.now_ms += 501;
    rig.retain();
    assert_eq!((rig.log.segment_count(), rig.log.size_bytes()), (1, 0));
    assert_eq!(
        (rig.log.log_start_offset(), rig.log.log_end_offset()),
        (10, 10)
    );
    for _ in 0..2 {
        let names = rig.files();
        let logs: Vec<_> = names.iter().filter(|name| name.ends_with(".log")).collect();
        assert_eq!(
            logs,
            ["00000000000000000010.log"],
            "the offset outlives the records"
        );
        rig.restart_killed();
        assert_eq!(
            (rig.log.log_start_offset(), rig.log.log_end_offset()),
            (10, 10)
        );
    }
    assert_eq!(rig.retain(), 0, "an empty segment has nothing to delete");
    assert_eq!(rig.put(&["next"]).base_offset, 10);
}

#[test]
fn retention_by_size_keeps_at_least_the_limit() {
    let mut rig = filled(limited(-1, 1_500));
    let before = rig.log.size_bytes();
    let one = rig.file("00000000000000000000.log").len() as u64;
    let expected = (before - 1_500) / one;
    assert_eq!(rig.retain() as u64, expected);
    assert!(rig.log.size_bytes() >= 1_500 && rig.log.size_bytes() < 1_500 + one);
    assert_eq!(rig.contents().len() as i64, 10 - rig.log.log_start_offset());
}

#[test]
fn retention_stops_at_the_high_watermark() {
    let mut rig = Rig::new(limited(0, 0));
    for _ in 0..10 {
        rig.append(&mut batch(1, &[&"x".repeat(280)])).unwrap();
    }
    rig.write();
    rig.log.advance_high_watermark(5);
    rig.retain();
    assert_eq!(
        rig.log.log_start_offset(),
        4,
        "the segment of offset 5 is needed"
    );
}

#[test]
fn compacted_topics_are_not_deleted_from() {
    let config = LogConfig {
        cleanup_delete: false,
        cleanup_compact: true,
        ..limited(0, 0)
    };
    let mut rig = filled(config);
    rig.now_ms += 1_000_000;
    assert_eq!(rig.retain(), 0);
    rig.log.advance_log_start(5).unwrap();
    assert_eq!(rig.retain(), 2, "but what lies below the log start goes");
}

#[test]
fn readers_finish_on_a_deleted_segment() {
    let mut rig = filled(limited(-1, 0));
    let slice = |rig: &Rig| {
        let location = rig.log.locate(0, Isolation::HighWatermark).unwrap();
        location.resolve(1 << 20, true, Wait::Blocking).unwrap()
    };
    let held = slice(&rig);
    let located = rig.log.locate(2, Isolation::HighWatermark).unwrap();
    rig.log.retention_candidates(rig.now_ms).load().unwrap();
    let mut removed = rig.log.plan_retention(rig.now_ms).removed.unwrap();
    assert_eq!(removed.due_ms, rig.now_ms + 60_000);
    removed.rename().unwrap();
    assert_eq!(records_in(&bytes(&held)).len(), 2);
    let renamed = located.resolve(1 << 20, true, Wait::Blocking).unwrap();
    assert_eq!(records_in(&bytes(&renamed))[0].0, 2);
    removed.delete().unwrap();
    assert_eq!(records_in(&bytes(&renamed)).len(), 2);
    removed.delete().unwrap();
}

#[test]
fn a_start_after_half_a_deletion_finishes_it() {
    let mut rig = filled(limited(-1, 1_000));
    rig.log.retention_candidates(rig.now_ms).load().unwrap();
    let mut removed = rig.log.plan_retention(rig.now_ms).removed.unwrap();
    rig.disk
        .fail(Operation::Rename, ".log", 1, 9, Fault::InputOutput);
    assert!(removed.rename().is_err());
    rig.disk.heal();
    let start = rig.log.log_start_offset();
    rig.restart_killed();
    rig.drain();
    assert!(!rig.files().iter().any(|name| name.contains(".deleted")));
    assert_eq!(
        rig.log.log_start_offset(),
        start,
        "the checkpoint says where it starts"
    );
    assert_eq!(rig.contents().len() as i64, 10 - start);
    rig.retain();
    assert_eq!(rig.log.log_start_offset(), start);
}

#[test]
fn records_are_deleted_up_to_the_high_watermark() {
    let mut rig = filled(small());
    rig.append(&mut batch(1, &["not visible"])).unwrap();
    rig.write();
    assert_eq!(rig.log.advance_log_start(4).unwrap(), 4);
    assert_eq!(rig.log.advance_log_start(2).unwrap(), 4, "never back");
    assert!(matches!(
        rig.log.advance_log_start(11),
        Err(ReadError::OffsetOutOfRange { .. })
    ));
    assert!(matches!(
        rig.log.advance_log_start(-2),
        Err(ReadError::OffsetOutOfRange { .. })
    ));
    assert_eq!(rig.contents()[0].0, 4);
    assert_eq!(rig.log.advance_log_start(-1).unwrap(), 10);
    assert!(rig.contents().is_empty());
    rig.log.advance_high_watermark(11);
    assert_eq!(rig.contents().len(), 1);
    assert_eq!(rig.retain(), 4);
    rig.restart_killed();
    rig.drain();
    assert_eq!((rig.log.log_start_offset(), rig.contents().len()), (10, 1));
}

#[test]
fn truncation_waits_for_the_writer_and_blocks_appends() {
    let mut rig = filled(small());
    rig.append(&mut batch(1, &["queued"])).unwrap();
    let busy = rig.log.begin_truncation(5, rig.now_ms, i64::MAX);
    assert!(matches!(busy, Err(TruncateError::Busy)));
    assert_eq!(
        rig.append(&mut batch(1, &["refused"])),
        Err(AppendError::Truncating)
    );
    rig.drain();
    let mut job = rig
        .log
        .begin_truncation(5, rig.now_ms, i64::MAX)
        .unwrap()
        .unwrap();
    assert_eq!(
        rig.append(&mut batch(1, &["refused"])),
        Err(AppendError::Truncating)
    );
    let result = job.execute();
    rig.log.complete_truncation(job, result);
    assert_eq!((rig.log.log_end_offset(), rig.log.high_watermark()), (5, 5));
    assert_eq!(rig.contents().len(), 5);
    assert_eq!(rig.put(&["instead"]).base_offset, 5);
    assert!(
        rig.log
            .begin_truncation(6, rig.now_ms, i64::MAX)
            .unwrap()
            .is_none()
    );
    rig.restart_killed();
    rig.drain();
    assert_eq!(rig.contents()[5], (5, "instead".to_owned()));
}

#[test]
fn abandoned_truncation_lets_appends_through() {
    let mut rig = filled(small());
    rig.append(&mut batch(1, &["queued"])).unwrap();
    let busy = rig.log.begin_truncation(5, rig.now_ms, i64::MAX);
    assert!(matches!(busy, Err(TruncateError::Busy)));
    rig.log.give_up_truncation();
    let end = rig.log.log_end_offset();
    assert_eq!(rig.put(&["behind it"]).base_offset, end);
}

#[test]
fn a_log_that_begins_anew_is_empty_and_goes_on_elsewhere() {
    for is_behind in [true, false] {
        let mut rig = filled(small());
        let offset = if is_behind { 1_000 } else { 3 };
        rig.drain();
        let mut job = rig.log.begin_restart(offset, rig.now_ms, i64::MAX).unwrap();
        let result = job.execute();
        rig.log.complete_truncation(job, result);
        let log = &rig.log;
        let ends = (log.log_start_offset(), log.log_end_offset());
        assert_eq!(ends, (offset, offset));
        assert_eq!(
            (log.high_watermark(), log.durable_end_offset()),
            (offset, offset)
        );
        assert_eq!((log.latest_epoch(), log.producer_count()), (None, 0));
        assert_eq!(log.recovery_point(), offset);
        assert_eq!(rig.put(&["first"]).base_offset, offset);
        rig.drain();
        rig.restart_killed();
        rig.drain();
        assert_eq!(rig.log.log_start_offset(), offset);
        assert_eq!(rig.contents(), [(offset, "first".to_owned())]);
    }
}

#[test]
fn an_epoch_without_records_can_be_forgotten() {
    let mut rig = filled(small());
    let before = rig.log.latest_epoch();
    rig.log.assign_epoch_start(99);
    assert_eq!(rig.log.latest_epoch(), Some(99));
    rig.log.forget_empty_epochs();
    assert_eq!(rig.log.latest_epoch(), before);
    rig.drain();
    rig.log.forget_empty_epochs();
    assert!(!rig.log.has_unwritten(), "nothing has changed");
}

#[test]
fn a_failed_truncation_poisons() {
    let mut rig = filled(small());
    let mut job = rig
        .log
        .begin_truncation(3, rig.now_ms, i64::MAX)
        .unwrap()
        .unwrap();
    rig.disk.fail(Operation::Sync, "", 0, 1, Fault::InputOutput);
    let result = job.execute();
    assert!(result.is_err());
    rig.log.complete_truncation(job, result);
    assert!(matches!(
        rig.append(&mut batch(1, &["x"])),
        Err(AppendError::Poisoned(_))
    ));
}

#[test]
fn epochs_follow_the_log_at_both_ends() {
    let mut rig = Rig::new(small());
    for epoch in 0..10 {
        rig.epoch = epoch * 2;
        rig.put(&[&"x".repeat(280), "y"]);
    }
    assert_eq!(rig.log.end_offset_for_epoch(6), (6, 8));
    assert_eq!(rig.log.end_offset_for_epoch(7), (6, 8));
    assert_eq!(
        rig.log.end_offset_for_epoch(18),
        (18, 20),
        "the current epoch ends at the log end"
    );
    assert_eq!(rig.log.end_offset_for_epoch(19), (-1, -1));
    rig.log.advance_log_start(9).unwrap();
    let before_all = rig.log.end_offset_for_epoch(2);
    assert_eq!(
        before_all,
        (2, 9),
        "older than all known: it ended before they began"
    );
    rig.write();
    let mut job = rig
        .log
        .begin_truncation(14, rig.now_ms, i64::MAX)
        .unwrap()
        .unwrap();
    let result = job.execute();
    rig.log.complete_truncation(job, result);
    assert_eq!(rig.log.latest_epoch(), Some(12));
    rig.drain();
    let text = String::from_utf8(rig.file("leader-epoch-checkpoint")).unwrap();
    assert_eq!(text, "0\n3\n8 9\n10 10\n12 12\n");
}

#[test]
fn an_epoch_reaches_its_file_with_its_first_batch() {
    const NAME: &str = "leader-epoch-checkpoint";
    let text = |rig: &Rig| String::from_utf8(rig.file(NAME)).unwrap();
    let mut rig = Rig::new(small());
    assert!(rig.log.assign_epoch_start(0), "a new folder gets its file");
    rig.drain();
    assert_eq!(text(&rig), "0\n1\n0 0\n");
    rig.put(&["a"]);
    rig.drain();
    rig.restart_clean();
    assert!(!rig.log.assign_epoch_start(1), "nothing to write yet");
    assert_eq!(rig.log.end_offset_for_epoch(0), (0, 1));
    assert_eq!(rig.log.end_offset_for_epoch(1), (1, 1));
    rig.restart_clean();
    assert_eq!(text(&rig), "0\n1\n0 0\n");
    assert_eq!(rig.log.latest_epoch(), Some(0));
    assert!(!rig.log.assign_epoch_start(2));
    rig.epoch = 2;
    rig.put(&["b"]);
    rig.drain();
    assert_eq!(text(&rig), "0\n2\n0 0\n2 1\n");
}

#[test]
fn an_epoch_that_never_got_a_batch_leaves_the_file_before_the_next_batch() {
    const NAME: &str = "leader-epoch-checkpoint";
    let mut rig = Rig::new(small());
    rig.epoch = 3;
    rig.put(&["a", "b"]);
    rig.drain();
    rig.log.close_cleanly().unwrap();
    rig.put_file(NAME, b"0\n2\n3 0\n7 2\n");
    rig.restart_clean();
    assert_eq!(rig.log.latest_epoch(), Some(3));
    rig.put(&["still in epoch 3"]);
    rig.drain();
    rig.restart_clean();
    assert_eq!(rig.log.end_offset_for_epoch(3), (3, 3));
    assert_eq!(rig.log.end_offset_for_epoch(7), (-1, -1));
    assert_eq!(rig.file(NAME), b"0\n1\n3 0\n");
}

#[test]
fn many_closed_segments_are_synced_a_few_at_a_time() {
    let mut rig = Rig::with_open_segments(small(), 100);
    let value = "x".repeat(900);
    for _ in 0..50 {
        rig.put(&[&value]);
    }
    let mut points = vec![rig.log.recovery_point()];
    let mut more = true;
    while more {
        let mut job = rig.log.take_sync(SyncScope::ClosedSegments).unwrap();
        let result = job.execute();
        more = rig.log.complete_sync(job, result);
        points.push(rig.log.recovery_point());
    }
    assert_eq!(points, [0, 16, 32, 48, 49]);
    rig.memory.reboot(7);
    let state = rig.state(false);
    rig.reopen(state);
    assert!(rig.log.log_end_offset() >= 49, "what was synced is there");
}

#[test]
fn syncing_moves_the_recovery_point_and_never_tries_twice() {
    let mut rig = filled(small());
    assert_eq!(rig.log.synced_end(), 0);
    rig.sync(SyncScope::ClosedSegments);
    assert_eq!(rig.log.recovery_point(), 8);
    rig.append(&mut batch(1, &["not written"])).unwrap();
    rig.sync(SyncScope::Written);
    assert_eq!(rig.log.synced_end(), 10);
    assert!(rig.log.take_sync(SyncScope::Written).is_none_or(|job| {
        rig.log.complete_sync(job, Ok(()));
        true
    }));
    rig.drain();
    rig.disk
        .fail(Operation::Sync, ".log", 0, 1, Fault::InputOutput);
    rig.sync(SyncScope::Written);
    assert!(rig.log.poisoned().unwrap().contains("syncing"));
    assert!(rig.log.take_sync(SyncScope::Written).is_none());
    assert_eq!(rig.log.synced_end(), 10);
}

#[test]
fn flush_messages_moves_the_durable_end_only_after_a_sync() {
    let mut rig = Rig::new(LogConfig {
        flush_messages: 1,
        ..small()
    });
    for i in 0..10 {
        rig.append(&mut batch(1, &[&"x".repeat(280)])).unwrap();
        rig.write();
        assert_eq!(
            (rig.log.durable_end_offset(), rig.log.synced_end()),
            (i + 1, i + 1)
        );
    }
    let before = rig.log.log_end_offset();
    rig.memory.reboot(17);
    let state = rig.state(false);
    rig.reopen(state);
    assert_eq!(rig.log.log_end_offset(), before);
    rig.append(&mut batch(1, &["refused"])).unwrap();
    rig.disk
        .fail(Operation::Sync, ".log", 0, 1, Fault::InputOutput);
    rig.write();
    assert_eq!(
        rig.log.durable_end_offset(),
        before,
        "the record is in the file, but not promised"
    );

    let mut rig = Rig::new(LogConfig {
        flush_messages: 3,
        ..LogConfig::default()
    });
    for (written, synced) in [(1, 0), (2, 0), (3, 3), (4, 3)] {
        rig.append(&mut batch(1, &["x"])).unwrap();
        rig.write();
        assert_eq!(
            (rig.log.durable_end_offset(), rig.log.synced_end()),
            (written, synced)
        );
    }
}

#[test]
fn flush_ms_names_the_time_of_the_next_sync() {
    let mut rig = Rig::new(LogConfig {
        flush_ms: 500,
        ..LogConfig::default()
    });
    assert_eq!(rig.log.next_flush_due_ms(), None);
    rig.put(&["a"]);
    rig.now_ms += 100;
    rig.put(&["b"]);
    assert_eq!(rig.log.next_flush_due_ms(), Some(1_500));
    rig.sync(SyncScope::Written);
    assert_eq!(rig.log.next_flush_due_ms(), None);
    assert_eq!(rig.log.synced_end(), 2);
}

#[test]
fn expired_producers_are_forgotten_but_not_those_in_a_transaction() {
    let mut rig = Rig::new(LogConfig::default());
    rig.append(&mut crate::common::produced(7, 0, &["a"]))
        .unwrap();
    rig.append(&mut crate::common::transactional(8, 0, &["a"]))
        .unwrap();
    assert_eq!(rig.log.expire_producers(1_000 + 499, 500), 0);
    assert_eq!(rig.log.expire_producers(1_000 + 86_400_001, 86_400_000), 1);
    assert_eq!(rig.log.producer_count(), 1);
    rig.append(&mut crate::common::produced(7, 5, &["goes on"]))
        .unwrap();
}

#[test]
fn a_moved_folder_is_found() {
    let mut rig = filled(small());
    rig.restart_clean();
    let location = rig.log.locate(0, Isolation::HighWatermark).unwrap();
    let moved = Path::new("/data/t-0.0123-delete");
    rig.memory.rename(Path::new(FOLDER), moved).unwrap();
    rig.log.folder_moved(moved);
    let slice = location.resolve(1 << 20, true, Wait::Blocking).unwrap();
    assert_eq!(records_in(&bytes(&slice)).len(), 2);
}

#[test]
fn few_files_are_open_however_many_segments_are_read() {
    let mut rig = Rig::new(LogConfig {
        segment_bytes: 200,
        ..LogConfig::default()
    });
    for i in 0..200 {
        rig.put(&[&format!("{i}"), "0123456789"]);
        rig.sync(SyncScope::ClosedSegments);
    }
    assert!(rig.log.segment_count() > 90);
    for _ in 0..2 {
        assert_eq!(rig.contents().len(), 400);
        for offset in (0..400).rev().step_by(7) {
            assert_eq!(
                records_in(&rig.read(offset, 1).unwrap())[0].0,
                offset / 2 * 2
            );
        }
    }
}

#[test]
fn producers_are_saved_again_and_again_within_a_segment() {
    let mut rig = Rig::new(LogConfig::default());
    let value = "x".repeat(500_000);
    let mut sequence = 0;
    let mut put = |rig: &mut Rig, batches: i32| {
        for _ in 0..batches {
            rig.append(&mut produced(7, sequence, &[&value])).unwrap();
            sequence += 1;
            rig.drain();
        }
    };
    let snapshots = |rig: &Rig| {
        let is_snapshot = |name: &String| name.ends_with(".snapshot");
        rig.files()
            .into_iter()
            .filter(is_snapshot)
            .collect::<Vec<_>>()
    };
    put(&mut rig, 8);
    assert_eq!(snapshots(&rig), [""; 0], "4 MB are not there yet");
    put(&mut rig, 1);
    assert_eq!(snapshots(&rig), ["00000000000000000009.snapshot"]);
    put(&mut rig, 9);
    assert_eq!(
        snapshots(&rig),
        ["00000000000000000018.snapshot"],
        "only the newest is kept"
    );
    rig.restart_killed();
    assert_eq!(rig.log.producer_count(), 1);
    put(&mut rig, 9);
    assert_eq!(snapshots(&rig), ["00000000000000000027.snapshot"]);
}

#[test]
fn snapshots_that_wait_are_counted() {
    let mut rig = Rig::with_open_segments(small(), 100);
    let value = "x".repeat(600);
    for producer_id in 0..100 {
        rig.append(&mut produced(producer_id, 0, &[&value]))
            .unwrap();
    }
    // 99 rolls, of 1 to 99 producers: as many entries of more than 50 bytes.
    let waiting = rig.log.unwritten();
    assert!(waiting.snapshot_bytes > 50 * 99 * 100 / 2, "{waiting:?}");
    let job = rig.log.take_writes().unwrap();
    assert_eq!(rig.log.unwritten(), waiting, "they are on their way");
    rig.log.complete_writes(job, Ok(()));
    rig.drain();
    assert_eq!(rig.log.unwritten(), Default::default());
}
