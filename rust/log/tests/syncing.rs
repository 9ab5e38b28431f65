//! Syncs that take time (`flush.ms`): concurrent appends, and kills.

use crate::common::{Life, Rig, batch, small};
use pyrklog_log::{LogConfig, SyncScope};

/// Records that arrived during the sync keep their age.
#[test]
fn flush_ms_covers_records_written_during_a_sync() {
    let mut rig = Rig::new(LogConfig {
        flush_ms: 500,
        ..LogConfig::default()
    });
    rig.put(&["a"]);
    rig.now_ms = 1_300;
    rig.append(&mut batch(1, &["not written"])).unwrap();
    let mut job = rig.log.take_sync(SyncScope::Written).unwrap();
    rig.now_ms = 1_400;
    rig.put(&["written meanwhile"]);
    let result = job.execute();
    rig.log.complete_sync(job, result);
    assert_eq!(rig.log.synced_end(), 1);
    assert_eq!(rig.log.next_flush_due_ms(), Some(1_800));
    rig.sync(SyncScope::Written);
    assert_eq!(rig.log.next_flush_due_ms(), None);
}

/// The age of unsynced records of a killed broker is unknown.
#[test]
fn flush_ms_syncs_records_left_by_a_kill_at_once() {
    let mut rig = Rig::new(LogConfig {
        flush_ms: 500,
        ..LogConfig::default()
    });
    rig.put(&["a"]);
    rig.restart_killed();
    let due_ms = rig.log.next_flush_due_ms();
    assert!(due_ms.is_some_and(|due_ms| due_ms <= rig.now_ms));
}

/// The sync saw the segment open: its last bytes and its indexes came later.
#[test]
fn a_segment_that_is_closed_during_a_sync_is_synced_again() {
    for seed in 0..100 {
        let mut rig = Rig::new(small());
        for _ in 0..10 {
            rig.put(&[&"x".repeat(280)]);
        }
        rig.sync(SyncScope::ClosedSegments);
        let before = rig.log.segment_count();
        rig.put(&["short"]);
        let mut job = rig.log.take_sync(SyncScope::Written).unwrap();
        let result = job.execute();
        rig.put(&["came later"]);
        rig.put(&[&"y".repeat(280)]);
        assert!(rig.log.segment_count() > before);
        assert!(
            rig.log.complete_sync(job, result),
            "it is still to be synced"
        );
        rig.sync(SyncScope::ClosedSegments);
        let (state, contents) = (rig.state(false), rig.contents());
        rig.memory.reboot(seed);
        rig.reopen(state);
        assert!(rig.log.log_end_offset() >= state.recovery_point);
        rig.drain();
        assert!(contents.starts_with(&rig.contents()));
    }
}

/// A write closes segments one after the other; the syncer comes before it is taken back.
#[test]
fn recovery_point_reaches_segments_that_were_synced_during_their_write() {
    let mut rig = Rig::new(small());
    rig.put(&["written before"]);
    for _ in 0..10 {
        rig.append(&mut batch(1, &[&"x".repeat(280)])).unwrap();
    }
    let mut write = rig.log.take_writes().unwrap();
    let written = write.execute();
    let mut sync = rig.log.take_sync(SyncScope::ClosedSegments).unwrap();
    let synced = sync.execute();
    assert!(!rig.log.complete_sync(sync, synced), "all are synced");
    assert_eq!(rig.log.recovery_point(), 1);
    assert!(rig.log.complete_writes(write, written).rolled);
    rig.sync(SyncScope::ClosedSegments);
    let (point, end) = (rig.log.recovery_point(), rig.log.log_end_offset());
    assert!(
        point < end && point >= end - 3,
        "at the active segment: {point} of {end}"
    );
    assert!(rig.log.take_sync(SyncScope::ClosedSegments).is_none());
}

/// The block cache keeps partial pages for later, so the log is never written whole.
#[test]
fn recovery_point_reaches_closed_segments_while_a_page_is_held_back() {
    let mut rig = Rig::with_cache(LogConfig {
        segment_bytes: 100_000,
        ..LogConfig::default()
    });
    for turn in 1..=40 {
        rig.cache.as_ref().unwrap().tend();
        rig.append(&mut batch(1, &[&"x".repeat(7_000)])).unwrap();
        rig.write_pages();
        rig.sync(SyncScope::ClosedSegments);
        assert!(rig.log.has_unwritten(), "a page is held back");
        let (point, end) = (rig.log.recovery_point(), rig.log.log_end_offset());
        assert_eq!(end, turn);
        assert!(point >= end - 15, "at the active segment: {point} of {end}");
    }
    assert!(rig.log.segment_count() >= 3);
    let state = rig.state(false);
    rig.memory.reboot(0);
    rig.reopen_in(state, Life::Fresh);
    assert!(rig.log.log_end_offset() >= 25);
}

/// The syncer had taken the folder's entry and the epochs' file. The writer's sync of the last
/// record (`flush.messages`) ended first, which acknowledged the records.
#[test]
fn sync_by_the_writer_covers_a_pending_sync_of_the_syncer() {
    for seed in 0..50 {
        let mut rig = Rig::new(LogConfig {
            flush_messages: 5,
            ..LogConfig::default()
        });
        rig.put(&["a"]);
        let job = rig.log.take_sync(SyncScope::Written).unwrap();
        for _ in 0..4 {
            rig.put(&["b"]);
        }
        assert_eq!(rig.log.synced_end(), 5);
        let state = rig.state(false);
        rig.memory.reboot(seed);
        drop(job);
        rig.reopen(state);
        assert_eq!(rig.log.log_end_offset(), 5, "seed {seed}");
        assert_eq!(rig.log.end_offset_for_epoch(0), (0, 5), "seed {seed}");
    }
}

/// Its records were acknowledged, so they are made durable as if its owner were sound.
#[test]
fn a_sealed_log_is_synced() {
    let mut rig = Rig::new(LogConfig {
        flush_ms: 500,
        ..small()
    });
    for _ in 0..10 {
        rig.put(&[&"x".repeat(280)]);
    }
    rig.log.seal("its owner broke an invariant");
    assert_eq!(rig.log.next_flush_due_ms(), Some(rig.now_ms + 500));
    rig.sync(SyncScope::ClosedSegments);
    assert!(rig.log.synced_end() > 0);
    rig.sync(SyncScope::Written);
    assert_eq!(rig.log.synced_end(), 10);
    assert_eq!(rig.log.next_flush_due_ms(), None);
}

/// The syncer must not find it overdue again and again.
#[test]
fn a_poisoned_log_is_not_due_for_a_sync() {
    let mut rig = Rig::new(LogConfig {
        flush_ms: 500,
        ..LogConfig::default()
    });
    rig.put(&["a"]);
    rig.log.poison("its offsets contradict each other");
    assert_eq!(rig.log.next_flush_due_ms(), None);
    assert!(rig.log.take_sync(SyncScope::Written).is_none());
}
