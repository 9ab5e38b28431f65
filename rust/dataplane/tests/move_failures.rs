//! Moves of replicas between log directories: what fails, stops or ends in the middle of one.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use crate::harness::moving::*;
use crate::harness::*;
use pyrklog_dataplane::seam::*;
use pyrklog_log::LogConfig;
use pyrklog_log::disk::RealDisk;
use pyrklog_log::disk::testing::{Fault, FaultyDisk, Operation, StallingDisk};
use pyrklog_wire::ErrorCode;
use pyrklog_wire::builder::BatchBuilder;

const LEAVING: &str = ".pyrklog-leaving";

/// The directory that holds the partition, and the other one.
fn here_and_there(dir: &Path) -> (PathBuf, PathBuf) {
    match place(dir) {
        "a" => (dir.join("a"), dir.join("b")),
        _ => (dir.join("b"), dir.join("a")),
    }
}

/// A partition of 20 records on a disk that can fail.
fn faulty(dir: &Path) -> (TestPlane, FaultyDisk) {
    let disk = FaultyDisk::new(Arc::new(RealDisk));
    let mut test = TestPlane::start_with(two(dir), Arc::new(disk.clone()));
    test.create("t", 1);
    append(&test, 20);
    (test, disk)
}

fn has_copy(dir: &Path) -> bool {
    folders(dir).iter().any(|name| name.ends_with("-future"))
}

#[test]
fn a_source_that_fails_does_not_take_the_destination_with_it() {
    let dir = tempfile::tempdir().unwrap();
    let (mut test, disk) = faulty(dir.path());
    let (here, there) = here_and_there(dir.path());
    disk.fail(Operation::Open, LEAVING, 0, usize::MAX, Fault::InputOutput);
    assert_eq!(alter(&test, "t", 0, &there), 0);
    let event = test.wait_for("a failed directory", |event| {
        matches!(event, Event::LogDirFailed { .. })
    });
    let Event::LogDirFailed { path, .. } = event else {
        panic!("{event:?}")
    };
    assert_eq!(path, here);
    // The destination goes on.
    test.describe_topic("other", 1, &topic_config());
    let new = LeaderSpec {
        is_new: true,
        ..TestPlane::leader_spec("other", 0, 0)
    };
    assert_eq!(test.become_leaders(vec![new]), [0]);
    assert!(is_in(&there, "other-0"));
    assert!(!test.shutdown());
    let mut test = start(&two(dir.path()));
    test.create("t", 1);
    test.wait_for_notice("replica_moved");
    assert_eq!(read(&test).len(), 20);
    assert!(test.shutdown());
}

#[test]
fn a_line_that_cannot_be_written_now_is_written_later() {
    let dir = tempfile::tempdir().unwrap();
    let (mut test, disk) = faulty(dir.path());
    let (_, there) = here_and_there(dir.path());
    disk.fail(Operation::Open, LEAVING, 0, 1, Fault::NoDescriptor);
    assert_eq!(alter(&test, "t", 0, &there), 0);
    test.wait_for_notice("replica_move_waits");
    append(&test, 5);
    test.wait_for_notice("replica_moved");
    assert_eq!(read(&test).len(), 25);
    assert!(test.shutdown());
}

/// The partition is stopped, and led again, while the copy takes the log's place.
#[test]
fn a_stop_during_the_swap_leaves_one_log() {
    let dir = tempfile::tempdir().unwrap();
    let disk = StallingDisk::new(Arc::new(RealDisk));
    let mut test = TestPlane::start_with(two(dir.path()), Arc::new(disk.clone()));
    test.create("t", 1);
    append(&test, 20);
    let (_, there) = here_and_there(dir.path());
    disk.stall(LEAVING);
    assert_eq!(alter(&test, "t", 0, &there), 0);
    eventually("the line", || (disk.waiting() > 0).then_some(()));
    let stop = StopSpec {
        topic: "t".into(),
        partition: 0,
        delete: false,
    };
    let stopped = test.plane.stop_partitions(vec![stop]).unwrap();
    let specs = vec![TestPlane::leader_spec("t", 0, 1)];
    let led = test.plane.become_leaders(specs).unwrap();
    disk.resume();
    test.ticket(stopped);
    test.ticket(led);
    assert_eq!(read(&test).len(), 20);
    assert!(is_in(&there, "t-0"));
    append(&test, 1);
    assert!(test.shutdown());
    let mut test = start(&two(dir.path()));
    test.create("t", 1);
    assert_eq!(read(&test).len(), 21);
    assert!(test.shutdown());
}

/// The topic is deleted, and made anew, while the copy takes the log's place.
#[test]
fn a_deletion_during_the_swap_leaves_nothing() {
    let dir = tempfile::tempdir().unwrap();
    let disk = StallingDisk::new(Arc::new(RealDisk));
    let mut test = TestPlane::start_with(two(dir.path()), Arc::new(disk.clone()));
    test.create("t", 1);
    append(&test, 20);
    let (here, there) = here_and_there(dir.path());
    disk.stall(LEAVING);
    assert_eq!(alter(&test, "t", 0, &there), 0);
    eventually("the line", || (disk.waiting() > 0).then_some(()));
    let delete = StopSpec {
        topic: "t".into(),
        partition: 0,
        delete: true,
    };
    let deleted = test.plane.stop_partitions(vec![delete]).unwrap();
    disk.resume();
    let outcome = test.ticket(deleted);
    assert!(
        matches!(&outcome, TicketOutcome::Partitions(codes) if *codes == [0]),
        "{outcome:?}"
    );
    assert!(!is_in(&here, "t-0") && !is_in(&there, "t-0"));
    eventually("the line's end", || {
        (!here.join(LEAVING).exists()).then_some(())
    });
    test.topic_id = Some([0x77; 16]);
    test.create("t", 1);
    append(&test, 1);
    assert_eq!(read(&test).len(), 1);
    assert!(test.shutdown());
}

/// Two requests while the copy takes the log's place: the last one counts.
#[test]
fn requests_during_a_swap_count_in_order() {
    let dir = tempfile::tempdir().unwrap();
    let disk = StallingDisk::new(Arc::new(RealDisk));
    let mut config = two(dir.path());
    config.log_dirs.push(dir.path().join("c"));
    let mut test = TestPlane::start_with(config, Arc::new(disk.clone()));
    test.describe_topic("t", 1, &topic_config());
    assert_eq!(alter(&test, "t", 0, &dir.path().join("a")), {
        ErrorCode::REPLICA_NOT_AVAILABLE.0
    });
    test.create("t", 1);
    append(&test, 20);
    disk.stall(LEAVING);
    assert_eq!(alter(&test, "t", 0, &dir.path().join("b")), 0);
    eventually("the line", || (disk.waiting() > 0).then_some(()));
    assert_eq!(alter(&test, "t", 0, &dir.path().join("c")), 0);
    assert_eq!(alter(&test, "t", 0, &dir.path().join("a")), 0);
    disk.resume();
    for _ in 0..2 {
        test.wait_for_notice("replica_moved");
    }
    eventually("the other folders' end", || {
        let others = ["b", "c"].map(|name| is_in(&dir.path().join(name), "t-0"));
        (others == [false, false]).then_some(())
    });
    assert!(is_in(&dir.path().join("a"), "t-0"));
    assert_eq!(read(&test).len(), 20);
    assert!(test.shutdown());
}

/// The log that moved away could not be removed: it must not stand in the way of a move back, nor be
/// taken for the copy at a start.
#[test]
fn a_replica_moves_back_to_where_its_former_log_is_left() {
    let dir = tempfile::tempdir().unwrap();
    let (mut test, disk) = faulty(dir.path());
    let (here, there) = here_and_there(dir.path());
    let folder = here.join("t-0");
    let folder = folder.to_str().unwrap();
    disk.fail(Operation::Rename, folder, 0, 1, Fault::NoDescriptor);
    assert_eq!(alter(&test, "t", 0, &there), 0);
    test.wait_for_notice("deletion_failed");
    assert!(is_in(&here, "t-0") && is_in(&there, "t-0"));
    append(&test, 5);
    assert_eq!(alter(&test, "t", 0, &here), 0);
    test.wait_for_notice("replica_moved");
    eventually("the former log's end", || {
        (!is_in(&there, "t-0") && !here.join(LEAVING).exists()).then_some(())
    });
    assert_eq!(read(&test).len(), 25);
    assert!(test.shutdown());
    let mut test = start(&two(dir.path()));
    test.create("t", 1);
    assert_eq!(read(&test).len(), 25);
    assert!(is_in(&here, "t-0"));
    assert!(test.shutdown());
}

/// Copies all of `t-0` to the other directory, which is returned, but does not swap it.
fn copy_all(test: &mut TestPlane, dir: &Path) -> PathBuf {
    let (_, there) = here_and_there(dir);
    // One piece is copied, then nothing for a long time.
    test.plane.set_move_rate(Some(1));
    assert_eq!(alter(test, "t", 0, &there), 0);
    eventually("the first piece", || {
        let dirs = described(test);
        let copies = dirs.iter().flat_map(|(_, partitions)| partitions);
        let mut copies = copies.filter(|one| one.4);
        copies.any(|one| one.2 > 0 && one.3 == 0).then_some(())
    });
    there
}

/// Ended in order while a copy was made that has all but a swap.
fn ended_with_a_copy(dir: &Path, config: &TopicConfig, fill: impl Fn(&TestPlane)) -> PathBuf {
    let mut test = start(&two(dir));
    assert_eq!(test.lead("t", 1, config), [0]);
    fill(&test);
    let there = copy_all(&mut test, dir);
    assert!(test.shutdown());
    there
}

fn stop(test: &TestPlane, index: i32, delete: bool) -> TicketId {
    let spec = StopSpec {
        topic: "t".into(),
        partition: index,
        delete,
    };
    test.plane.stop_partitions(vec![spec]).unwrap()
}

/// As where a replica that moves is reassigned to another broker. Its copy is being closed when the
/// deletion comes.
#[test]
fn a_replica_that_is_stopped_and_then_deleted_leaves_no_copy() {
    let dir = tempfile::tempdir().unwrap();
    let disk = StallingDisk::new(Arc::new(RealDisk));
    let mut test = TestPlane::start_with(two(dir.path()), Arc::new(disk.clone()));
    test.create("t", 1);
    fill(&test);
    let (here, _) = here_and_there(dir.path());
    let there = copy_all(&mut test, dir.path());
    disk.stall("-future");
    let stopped = stop(&test, 0, false);
    eventually("the copy's end", || (disk.waiting() > 0).then_some(()));
    let deleted = stop(&test, 0, true);
    disk.resume();
    test.ticket(stopped);
    test.ticket(deleted);
    eventually("its removal", || {
        (folders(&here).is_empty() && folders(&there).is_empty()).then_some(())
    });
    assert!(test.shutdown());
}

/// A copy cannot be closed, since its disk hangs: other partitions of the log's directory can.
#[test]
fn a_copy_that_hangs_holds_up_no_other_partition() {
    let dir = tempfile::tempdir().unwrap();
    let disk = StallingDisk::new(Arc::new(RealDisk));
    let mut config = two(dir.path());
    config.recovery_threads_per_dir = 1;
    let mut test = TestPlane::start_with(config, Arc::new(disk.clone()));
    test.create("t", 3);
    fill(&test);
    let (here, _) = here_and_there(dir.path());
    assert_eq!(folders(&here), ["t-0", "t-2"]);
    copy_all(&mut test, dir.path());
    disk.stall("-future");
    let hangs = stop(&test, 0, false);
    eventually("the copy's end", || (disk.waiting() > 0).then_some(()));
    let other = stop(&test, 2, false);
    test.ticket(other);
    assert!(disk.waiting() > 0);
    disk.resume();
    test.ticket(hangs);
    assert!(test.shutdown());
}

/// With no thread that would carry moves on or end them.
fn without_threads(dir: &Path) -> PlaneConfig {
    PlaneConfig {
        move_threads: 0,
        ..two(dir)
    }
}

#[test]
fn a_cancelled_move_does_not_go_on_after_an_orderly_end() {
    let dir = tempfile::tempdir().unwrap();
    let there = ended_with_a_copy(dir.path(), &topic_config(), fill);
    assert!(has_copy(&there));
    let mut test = start(&without_threads(dir.path()));
    test.create("t", 1);
    let (here, _) = here_and_there(dir.path());
    assert_eq!(alter(&test, "t", 0, &here), 0);
    assert!(test.shutdown());
    assert!(!has_copy(&there));
    let mut test = start(&two(dir.path()));
    test.create("t", 1);
    assert_eq!(read(&test).len(), 40);
    assert!(is_in(&here, "t-0"));
    assert!(test.shutdown());
}

#[test]
fn a_move_ends_while_all_threads_wait_for_the_rate() {
    let dir = tempfile::tempdir().unwrap();
    let mut test = start(&two(dir.path()));
    test.plane.set_move_rate(Some(0));
    test.create("t", 2);
    let (here, there) = here_and_there(dir.path());
    // The partitions are spread over the directories.
    assert_eq!(folders(&there), ["t-1"]);
    assert_eq!(alter(&test, "t", 0, &there), 0);
    eventually("the copy of t-0", || has_copy(&there).then_some(()));
    for _ in 0..3 {
        assert_eq!(alter(&test, "t", 1, &here), 0);
        eventually("the copy of t-1", || has_copy(&here).then_some(()));
        assert_eq!(alter(&test, "t", 1, &there), 0);
        eventually("its end", || (folders(&here) == ["t-0"]).then_some(()));
    }
    assert!(has_copy(&there), "the other one goes on");
    assert!(test.shutdown());
}

fn put(test: &TestPlane, key: &[u8], value: Option<&[u8]>) {
    let mut builder = BatchBuilder::new();
    builder.append(1_700_000_000_000, Some(key), value);
    let (error, _) = test.client().produce("t", 0, &builder.build());
    assert_eq!(error, ErrorCode::NONE);
}

/// More than is left to a swap, each with a key of its own.
fn fill(test: &TestPlane) {
    for number in 0..40_u32 {
        put(test, &number.to_be_bytes(), Some(&[b'v'; 10_000]));
    }
}

/// The log was cleaned while its move rested: the copy has a record whose tombstone is gone.
#[test]
fn a_deleted_key_does_not_come_back() {
    let dir = tempfile::tempdir().unwrap();
    let compacted = TopicConfig {
        log: LogConfig {
            cleanup_compact: true,
            cleanup_delete: false,
            segment_bytes: 500_000,
            min_cleanable_dirty_ratio: 0.01,
            delete_retention_ms: 0,
            ..LogConfig::default()
        },
        ..topic_config()
    };
    let large = vec![b'v'; 100_000];
    let there = ended_with_a_copy(dir.path(), &compacted, |test| {
        put(test, b"deleted", Some(b"comes back"));
        fill(test);
        put(test, b"last of the copy", Some(b"stays"));
    });
    let mut config = without_threads(dir.path());
    config.cleaner.backoff_ms = 20;
    let mut test = start(&config);
    assert_eq!(test.lead("t", 1, &compacted), [0]);
    put(&test, b"deleted", None);
    let is_gone = |test: &TestPlane| {
        let found = read(test);
        let has = |bytes: &[u8]| bytes.windows(7).any(|window| window == b"deleted");
        !found.iter().any(|(_, bytes)| has(bytes))
    };
    eventually("its removal", || {
        put(&test, b"other", Some(&large));
        is_gone(&test).then_some(())
    });
    assert!(has_copy(&there));
    assert!(test.shutdown());
    let mut test = start(&two(dir.path()));
    assert_eq!(test.lead("t", 1, &compacted), [0]);
    test.wait_for_notice("replica_moved");
    assert!(is_gone(&test));
    assert!(fs::exists(there.join("t-0")).unwrap());
    assert!(test.shutdown());
}
