//! Moves of replicas between log directories: disks that hang, and files that go while they are read.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use crate::harness::moving::*;
use crate::harness::*;
use pyrklog_dataplane::seam::*;
use pyrklog_log::LogConfig;
use pyrklog_log::disk::RealDisk;
use pyrklog_log::disk::testing::{Fault, FaultyDisk, Operation, StallingDisk};
use pyrklog_wire::ErrorCode;
use pyrklog_wire::builder::BatchBuilder;

const FIRST: &str = "00000000000000000000.log";

/// The directory that holds the partition, and the other one.
fn here_and_there(dir: &Path) -> (PathBuf, PathBuf) {
    match place(dir) {
        "a" => (dir.join("a"), dir.join("b")),
        _ => (dir.join("b"), dir.join("a")),
    }
}

fn has_copy(dir: &Path) -> bool {
    folders(dir).iter().any(|name| name.ends_with("-future"))
}

/// A topic with segments of ten large records.
fn segmented() -> TopicConfig {
    TopicConfig {
        log: LogConfig {
            segment_bytes: 100_000,
            file_delete_delay_ms: 1,
            ..LogConfig::default()
        },
        ..topic_config()
    }
}

/// The same, compacted as soon as anything is dirty.
fn compacted() -> TopicConfig {
    TopicConfig {
        log: LogConfig {
            cleanup_compact: true,
            cleanup_delete: false,
            min_cleanable_dirty_ratio: 0.01,
            ..segmented().log
        },
        ..topic_config()
    }
}

/// Large records with one of seven keys each.
fn append_keys(test: &TestPlane, count: u32) {
    let mut client = test.client();
    for number in 0..count {
        let mut builder = BatchBuilder::new();
        let key = (number % 7).to_be_bytes();
        builder.append(1_700_000_000_000, Some(&key), Some(&[b'v'; 10_000]));
        let (error, _) = client.produce("t", 0, &builder.build());
        assert_eq!(error, ErrorCode::NONE);
    }
}

fn append_large(test: &TestPlane, count: usize) {
    let value = vec![b'v'; 10_000];
    let mut client = test.client();
    for _ in 0..count {
        let (error, _) = client.produce("t", 0, &batch(&[&value]));
        assert_eq!(error, ErrorCode::NONE);
    }
}

/// The destination begins to hang once the log is held: the log takes records again.
#[test]
fn a_destination_that_hangs_does_not_hold_the_log() {
    let dir = tempfile::tempdir().unwrap();
    let disk = StallingDisk::new(Arc::new(RealDisk));
    let mut test = TestPlane::start_with(two(dir.path()), Arc::new(disk.clone()));
    test.plane.set_move_rate(Some(0));
    test.create("t", 1);
    append(&test, 20);
    let (here, there) = here_and_there(dir.path());
    assert_eq!(alter(&test, "t", 0, &there), 0);
    eventually("its folder", || has_copy(&there).then_some(()));
    // The last thing that is written before the line.
    disk.stall(
        there
            .join("replication-offset-checkpoint")
            .to_str()
            .unwrap(),
    );
    test.plane.set_move_rate(None);
    eventually("the last write", || (disk.waiting() > 0).then_some(()));
    append(&test, 5);
    assert!(disk.waiting() > 0 && is_in(&here, "t-0"));
    disk.resume();
    let told = test.wait_for_notice("replica_move_waits");
    assert!(
        told.iter().any(|(_, text)| text.contains("took more than")),
        "{told:?}"
    );
    test.wait_for_notice("replica_moved");
    assert_eq!(read(&test).len(), 25);
    assert!(test.shutdown());
    let mut test = start(&two(dir.path()));
    test.create("t", 1);
    assert_eq!(read(&test).len(), 25);
    assert!(is_in(&there, "t-0"));
    assert!(test.shutdown());
}

/// A long sync of the log itself is waited for before the log is held.
#[test]
fn a_log_is_not_held_while_it_is_synced() {
    let dir = tempfile::tempdir().unwrap();
    let disk = StallingDisk::new(Arc::new(RealDisk));
    let mut test = TestPlane::start_with(two(dir.path()), Arc::new(disk.clone()));
    assert_eq!(test.lead("t", 1, &segmented()), [0]);
    append_large(&test, 5);
    let (here, there) = here_and_there(dir.path());
    // A sync opens it; copying does not.
    let synced = here.join("t-0/leader-epoch-checkpoint");
    disk.stall(synced.to_str().unwrap());
    append_large(&test, 10);
    eventually("a sync", || (disk.waiting() > 0).then_some(()));
    assert_eq!(alter(&test, "t", 0, &there), 0);
    for _ in 0..300 {
        // None is refused.
        append_large(&test, 1);
        std::thread::sleep(Duration::from_millis(10));
    }
    assert!(disk.waiting() > 0 && is_in(&here, "t-0"));
    disk.resume();
    test.wait_for_notice("replica_moved");
    assert_eq!(read(&test).len(), 315);
    assert!(test.shutdown());
}

/// Records are deleted while the copy takes the log's place, and the log's disk hangs afterwards:
/// what the log would have written is never taken for the copy's.
#[test]
fn records_that_are_deleted_during_the_swap_are_no_write_of_the_copy() {
    let dir = tempfile::tempdir().unwrap();
    let disk = StallingDisk::new(Arc::new(RealDisk));
    let mut test = TestPlane::start_with(two(dir.path()), Arc::new(disk.clone()));
    test.create("t", 1);
    append(&test, 10);
    assert_eq!(
        test.become_leaders(vec![TestPlane::leader_spec("t", 0, 2)]),
        [0]
    );
    append(&test, 10);
    let (here, there) = here_and_there(dir.path());
    disk.stall(".pyrklog-leaving");
    assert_eq!(alter(&test, "t", 0, &there), 0);
    eventually("the line", || (disk.waiting() > 0).then_some(()));
    disk.stall(here.to_str().unwrap());
    // It ends the first leader's epoch, which the log's writer would note.
    let ticket = test
        .plane
        .delete_records(vec![("t".into(), 0, 15)])
        .unwrap();
    test.ticket(ticket);
    let _if_it_does = within(Duration::from_millis(500), || {
        (disk.waiting() > 1).then_some(())
    });
    disk.stall(here.join("t-0/leader-epoch").to_str().unwrap());
    test.wait_for_notice("replica_moved");
    disk.resume();
    append(&test, 5);
    let found = test.client().fetch_one("t", 0, 15);
    assert_eq!((found.error, found.log_start_offset), (ErrorCode::NONE, 15));
    let has_failed = |event: &Event| matches!(event, Event::LogDirFailed { .. });
    assert!(!test.events.iter().any(has_failed), "{:?}", test.events);
    assert!(test.shutdown());
    let mut test = start(&two(dir.path()));
    test.create("t", 1);
    let found = test.client().fetch_one("t", 0, 15);
    assert_eq!(found.batches(), (15..25).collect::<Vec<_>>());
    assert!(test.shutdown());
}

/// Ended in order, with four segments that are closed, and led again on `disk`.
fn reopened(dir: &Path, disk: Arc<dyn pyrklog_log::disk::Disk>) -> TestPlane {
    let mut test = start(&two(dir));
    assert_eq!(test.lead("t", 1, &segmented()), [0]);
    append_large(&test, 45);
    assert!(test.shutdown());
    let mut test = TestPlane::start_with(two(dir), disk);
    assert_eq!(test.lead("t", 1, &segmented()), [0]);
    test
}

/// Others keep the little space that is left, and a copy that waits has no files.
#[test]
fn a_move_waits_for_space() {
    let dir = tempfile::tempdir().unwrap();
    let disk = FaultyDisk::new(Arc::new(RealDisk));
    let mut test = TestPlane::start_with(two(dir.path()), Arc::new(disk.clone()));
    test.create("t", 1);
    append(&test, 20);
    let (_, there) = here_and_there(dir.path());
    disk.set_free_bytes(Some(4 << 20));
    assert_eq!(alter(&test, "t", 0, &there), 0);
    let told = test.wait_for_notice("replica_move_waits");
    assert!(
        told.contains(&("reason", "the disk is full".to_owned())),
        "{told:?}"
    );
    append(&test, 5);
    let copies = folders(&there);
    let [copy] = &copies[..] else {
        panic!("{copies:?}")
    };
    let files = fs::read_dir(there.join(copy)).unwrap().map(Result::unwrap);
    let names: Vec<_> = files.map(|file| file.file_name()).collect();
    assert_eq!(names, ["partition.metadata"]);
    disk.set_free_bytes(None);
    test.wait_for_notice("replica_moved");
    assert_eq!(read(&test).len(), 25);
    assert!(test.shutdown());
}

#[test]
fn a_log_that_cannot_be_read_now_is_copied_later() {
    let dir = tempfile::tempdir().unwrap();
    let disk = FaultyDisk::new(Arc::new(RealDisk));
    let mut test = reopened(dir.path(), Arc::new(disk.clone()));
    let (here, there) = here_and_there(dir.path());
    let segment = here.join("t-0").join(FIRST);
    let segment = segment.to_str().unwrap();
    disk.fail(Operation::Open, segment, 0, 1, Fault::NoDescriptor);
    assert_eq!(alter(&test, "t", 0, &there), 0);
    test.wait_for_notice("replica_move_waits");
    test.wait_for_notice("replica_moved");
    assert_eq!(read(&test).len(), 45);
    assert!(test.shutdown());
}

/// Retention takes the segment that is about to be copied.
#[test]
fn a_segment_that_goes_while_it_is_copied_does_not_end_the_move() {
    let dir = tempfile::tempdir().unwrap();
    let faulty = FaultyDisk::new(Arc::new(RealDisk));
    let disk = StallingDisk::new(Arc::new(faulty.clone()));
    let mut test = reopened(dir.path(), Arc::new(disk.clone()));
    let (here, there) = here_and_there(dir.path());
    let segment = here.join("t-0").join(FIRST);
    let segment = segment.to_str().unwrap();
    disk.stall(segment);
    assert_eq!(alter(&test, "t", 0, &there), 0);
    eventually("its opening", || (disk.waiting() > 0).then_some(()));
    let target = vec![("t".into(), 0, 35)];
    let ticket = test.plane.delete_records(target).unwrap();
    test.ticket(ticket);
    faulty.fail(Operation::Open, segment, 0, 1, Fault::Missing);
    disk.resume();
    test.wait_for_notice("replica_moved");
    for (offset, error) in [
        (34, ErrorCode::OFFSET_OUT_OF_RANGE),
        (35, ErrorCode::NONE),
        (44, ErrorCode::NONE),
    ] {
        let found = test.client().fetch_one("t", 0, offset);
        assert_eq!(found.error, error, "{offset}");
        let first = found.batches().first().copied();
        assert_eq!(first, (error == ErrorCode::NONE).then_some(offset));
    }
    assert!(test.shutdown());
}

/// A cleaning reads a log that moves, and whose folder is gone by then: that says nothing of the
/// directory to which it moved.
#[test]
fn a_cleaning_of_a_log_that_has_moved_fails_no_directory() {
    let dir = tempfile::tempdir().unwrap();
    let mut config = two(dir.path());
    config.cleaner.backoff_ms = 20;
    // Too little for the keys of one segment.
    config.cleaner.io_max_bytes_per_second = 1_000.0;
    let disk = StallingDisk::new(Arc::new(RealDisk));
    disk.watch_threads("cleaner");
    let mut test = TestPlane::start_with(config.clone(), Arc::new(disk.clone()));
    assert_eq!(test.lead("t", 1, &compacted()), [0]);
    append_keys(&test, 60);
    // It reads for minutes then.
    eventually("the cleaner's first read", || {
        let seen = disk.waited_for();
        let mut reads = seen.iter().filter(|one| one.contains(": read "));
        reads.any(|one| one.contains(".log")).then_some(())
    });
    let (here, there) = here_and_there(dir.path());
    assert_eq!(alter(&test, "t", 0, &there), 0);
    test.wait_for_notice("replica_moved");
    eventually("the former log's end", || {
        folders(&here).is_empty().then_some(())
    });
    let unlimited = CleanerConfig {
        io_max_bytes_per_second: f64::MAX,
        ..config.cleaner
    };
    test.plane.set_cleaner(unlimited);
    test.wait_for_notice("log_cleaned");
    let events = &test.events;
    let has_failed = |event: &Event| matches!(event, Event::LogDirFailed { .. });
    assert!(!events.iter().any(has_failed), "{events:?}");
    append_keys(&test, 1);
    assert!(test.shutdown());
}

/// A cleaned segment takes the place of another while a move begins: the copy gets none of the
/// records that went, since it counts as cleaned where the log does.
#[test]
fn a_move_that_begins_during_a_cleaning_copies_what_is_left() {
    let dir = tempfile::tempdir().unwrap();
    let disk = StallingDisk::new(Arc::new(RealDisk));
    let mut config = two(dir.path());
    config.cleaner.backoff_ms = 20;
    let mut test = TestPlane::start_with(config.clone(), Arc::new(disk.clone()));
    assert_eq!(test.lead("t", 1, &compacted()), [0]);
    disk.stall("00000000000000000000.log.swap");
    append_keys(&test, 60);
    eventually("the new segment", || (disk.waiting() > 0).then_some(()));
    // None follows.
    test.plane.set_cleaner(CleanerConfig {
        threads: 0,
        ..config.cleaner
    });
    let (_, there) = here_and_there(dir.path());
    // One piece may be copied, and nothing more.
    test.plane.set_move_rate(Some(1));
    assert_eq!(alter(&test, "t", 0, &there), 0);
    let _if_it_is = within(Duration::from_millis(500), || {
        let dirs = described(&mut test);
        let mut found = dirs.iter().flat_map(|(_, partitions)| partitions);
        found.any(|one| one.4 && one.2 > 0).then_some(())
    });
    disk.resume();
    let has_gone = |test: &TestPlane| !offsets(&read(test)).contains(&0);
    eventually("the cleaning", || has_gone(&test).then_some(()));
    test.plane.set_move_rate(None);
    test.wait_for_notice("replica_moved");
    assert!(has_gone(&test));
    assert!(test.shutdown());
}
