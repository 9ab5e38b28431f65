//! A full volume: acknowledged records are written and served, new ones refused, and the directory
//! recovers by itself.

use std::path::{Path, PathBuf};

use crate::harness::full_disk::*;
use crate::harness::*;
use pyrklog_dataplane::seam::{CacheConfig, Event, PlaneConfig, TicketOutcome};
use pyrklog_log::disk::testing::{Fault, FaultyDisk, Operation};
use pyrklog_wire::ErrorCode;

const ENOUGH: Option<usize> = Some(1 << 30);

fn reserve(dir: &Path) -> PathBuf {
    dir.join("logs/.pyrklog-reserve")
}

/// Produces until it is refused; returns how many were acknowledged.
fn fill(test: &TestPlane, topic: &str, size_bytes: usize) -> i64 {
    let mut client = test.client();
    let record = large_batch(size_bytes);
    for acknowledged in 0..10_000 {
        let (error, _) = client.produce(topic, 0, &record);
        if error != ErrorCode::NONE {
            assert_eq!(error, ErrorCode::KAFKA_STORAGE_ERROR);
            return acknowledged;
        }
    }
    panic!("the disk never filled up");
}

/// A topic with one written record, on a volume that takes no more bytes.
fn filled_up(config: &PlaneConfig, disk: &FaultyDisk) -> TestPlane {
    disk.set_free_bytes(ENOUGH);
    let mut test = start(config, disk);
    test.create("t", 1);
    let first = test.client().produce("t", 0, &batch(&[b"first"]));
    assert_eq!(first, (ErrorCode::NONE, 0));
    becomes(&test, "unwritten_bytes", 0);
    disk.set_free_bytes(Some(0));
    test
}

/// The same, and a second topic whose log finds no space to be opened.
fn with_a_log_that_waits(config: &PlaneConfig, disk: &FaultyDisk) -> TestPlane {
    let mut test = filled_up(config, disk);
    let no_space = Fault::NoSpaceAfter(0);
    disk.fail(Operation::Open, "u-0", 0, usize::MAX, no_space);
    test.create("u", 1);
    test
}

/// From DescribeLogDirs, of the only directory, which has not failed.
fn usable_bytes(test: &mut TestPlane) -> i64 {
    let ticket = test.plane.describe_log_dirs().unwrap();
    let TicketOutcome::LogDirs(described) = test.ticket(ticket) else {
        panic!()
    };
    assert_eq!(described[0].error_code, 0);
    described[0].usable_bytes
}

#[test]
fn acknowledged_records_are_written_into_the_reserve() {
    let dir = tempfile::tempdir().unwrap();
    let (config, disk) = (cached(dir.path()), faulty());
    let mut test = filled_up(&config, &disk);
    assert!(reserve(dir.path()).exists());
    let acknowledged = fill(&test, "t", 50_000);
    let told = test.wait_for_notice("log_dir_full");
    assert_eq!(told[0].1, dir.path().join("logs").display().to_string());
    becomes(&test, "unwritten_bytes", 0);
    assert!(!reserve(dir.path()).exists(), "it was used");
    assert_eq!(test.statistic("log_dir_read_only.0"), 1);
    assert_eq!(usable_bytes(&mut test), 0);
    assert_eq!(high_watermark(&test, "t"), 1 + acknowledged);
    let listed = test.client().list_offset("t", 0, -1);
    assert_eq!(
        (listed.error_code, listed.offset),
        (ErrorCode::NONE, 1 + acknowledged)
    );
    test.events.extend(test.plane.drain_events(100));
    let has_failed = |event: &Event| matches!(event, Event::LogDirFailed { .. });
    assert!(!test.events.iter().any(has_failed));

    disk.set_free_bytes(ENOUGH);
    test.wait_for_notice("log_dir_has_space");
    assert!(
        reserve(dir.path()).exists(),
        "made before records are taken"
    );
    assert_ne!(usable_bytes(&mut test), 0);
    let next = test.client().produce("t", 0, &batch(&[b"next"]));
    assert_eq!(next, (ErrorCode::NONE, 1 + acknowledged));
    assert!(test.shutdown());
    assert!(!reserve(dir.path()).exists());
    let mut test = start(&config, &disk);
    test.create("t", 1);
    assert_eq!(high_watermark(&test, "t"), 2 + acknowledged);
}

/// The reserve is given up, and that is not enough.
#[test]
fn records_without_space_are_served_from_the_cache_and_survive_kills() {
    for is_killed in [true, false] {
        let dir = tempfile::tempdir().unwrap();
        let (config, disk) = (cached(dir.path()), faulty());
        let test = filled_up(&config, &disk);
        let no_space = Fault::NoSpaceAfter(1_000);
        disk.fail(Operation::Write, "t-0/", 0, usize::MAX, no_space);
        let acknowledged = fill(&test, "t", 50_000);
        assert_eq!(high_watermark(&test, "t"), 1 + acknowledged);
        assert!(test.statistic("unwritten_bytes") > 0 || acknowledged == 0);
        if is_killed {
            drop(test);
        } else {
            assert!(!test.shutdown(), "not everything is written");
        }
        // Another process took the reserve's space.
        disk.set_free_bytes(Some(0));

        let mut test = start(&config, &disk);
        test.wait_for_notice("log_dir_full");
        test.create("t", 1);
        assert_eq!(high_watermark(&test, "t"), 1 + acknowledged);
        let refused = test.client().produce("t", 0, &batch(&[b"no"])).0;
        assert_eq!(refused, ErrorCode::KAFKA_STORAGE_ERROR);

        disk.heal();
        test.wait_for_notice("log_dir_has_space");
        becomes(&test, "unwritten_bytes", 0);
        let next = test.client().produce("t", 0, &batch(&[b"next"]));
        assert_eq!(next, (ErrorCode::NONE, 1 + acknowledged));
        assert!(test.shutdown());
    }
}

#[test]
fn requests_that_wait_for_the_file_are_refused_and_their_records_are_written_later() {
    let dir = tempfile::tempdir().unwrap();
    let (mut config, disk) = (cached(dir.path()), faulty());
    config.cache = CacheConfig::off();
    let mut test = filled_up(&config, &disk);
    let no_space = Fault::NoSpaceAfter(10);
    disk.fail(Operation::Write, "t-0/", 0, usize::MAX, no_space);
    assert_eq!(fill(&test, "t", 1_000), 0);
    assert_eq!(high_watermark(&test, "t"), 1, "never acknowledged");
    disk.heal();
    test.wait_for_notice("log_dir_has_space");
    assert_eq!(high_watermark(&test, "t"), 2, "appended all the same");
}

/// Several writers find the volume full at the same time, and space comes while they do. Counts
/// what follows the last acknowledged record: (its offset + 1, how often it was refused since).
fn produce(client: &mut Client, index: i32, end: &mut (i64, i64), record: &[u8]) {
    match client.produce("many", index, record) {
        (ErrorCode::NONE, offset) => *end = (offset + 1, 0),
        (error, _) => {
            assert_eq!(error, ErrorCode::KAFKA_STORAGE_ERROR);
            end.1 += 1;
        }
    }
}

#[test]
fn many_partitions_that_find_no_space_together_are_all_written_later() {
    const PARTITIONS: i32 = 60;
    for round in 0..5 {
        let dir = tempfile::tempdir().unwrap();
        let (mut config, disk) = (cached(dir.path()), faulty());
        config.unwritten_max_bytes = Some(16 << 20);
        disk.set_free_bytes(ENOUGH);
        let mut test = start(&config, &disk);
        test.create("many", PARTITIONS);
        let mut client = test.client();
        let record = large_batch(20_000);
        for index in 0..PARTITIONS {
            assert_eq!(client.produce("many", index, &record).0, ErrorCode::NONE);
        }
        becomes(&test, "unwritten_bytes", 0);
        let no_space = Fault::NoSpaceAfter(5_000);
        // Every time, or so seldom that the reserve is enough.
        let times = if round % 2 == 0 { usize::MAX } else { 2 };
        disk.fail(Operation::Write, "many-", 0, times, no_space);
        let mut ends = vec![(1, 0); PARTITIONS as usize];
        'refused: loop {
            for (index, end) in (0..).zip(&mut ends) {
                produce(&mut client, index, end, &record);
                if end.1 > 0 {
                    break 'refused;
                }
            }
        }
        for _ in 0..round * 20 {
            // More of them have found no space by then, unless there is some already.
            produce(&mut client, 0, &mut ends[0], &record);
        }
        disk.heal();
        becomes(&test, "unwritten_bytes", 0);
        becomes(&test, "log_dir_read_only.0", 0);
        assert!(
            reserve(dir.path()).exists(),
            "made before records are taken"
        );
        for (index, (end, refused)) in (0..).zip(ends) {
            // The producer that waited for the write was refused; its record is still written
            // later.
            let there = test.client().list_offset("many", index, -1).offset;
            let may_be = end..=end + refused;
            assert!(may_be.contains(&there), "{there} of {index}, round {round}");
        }
        assert!(test.shutdown());
    }
}

#[test]
fn a_log_that_cannot_be_opened_for_lack_of_space_is_opened_later() {
    let dir = tempfile::tempdir().unwrap();
    let (config, disk) = (cached(dir.path()), faulty());
    let mut test = with_a_log_that_waits(&config, &disk);
    let mut client = test.client();
    let record = batch(&[b"v"]);
    for topic in ["t", "u"] {
        // While it is being retried, as during any opening, there is no leader.
        eventually(topic, || {
            let refused = client.produce(topic, 0, &record).0;
            assert_ne!(refused, ErrorCode::NONE);
            (refused == ErrorCode::KAFKA_STORAGE_ERROR).then_some(())
        });
    }
    disk.heal();
    test.wait_for_notice("log_dir_has_space");
    eventually("u is served", || {
        (client.produce("u", 0, &record) == (ErrorCode::NONE, 0)).then_some(())
    });
    // Decisions made while it waits take effect when it is open.
    disk.fail(
        Operation::Open,
        "v-0",
        0,
        usize::MAX,
        Fault::NoSpaceAfter(0),
    );
    test.create("v", 1);
    becomes(&test, "log_dir_read_only.0", 1);
    for leader_epoch in 1..4 {
        let codes = test.become_leaders(vec![TestPlane::leader_spec("v", 0, leader_epoch)]);
        assert!(
            codes == [0] || codes == [ErrorCode::NOT_LEADER_OR_FOLLOWER.0],
            "it has not failed: {codes:?}"
        );
    }
    disk.heal();
    test.wait_for_notice("log_dir_has_space");
    eventually("v is served", || {
        (client.produce("v", 0, &record) == (ErrorCode::NONE, 0)).then_some(())
    });
    // A partition deleted while it waits is not opened any more.
    disk.fail(
        Operation::Open,
        "w-0",
        0,
        usize::MAX,
        Fault::NoSpaceAfter(0),
    );
    test.create("w", 1);
    becomes(&test, "log_dir_read_only.0", 1);
    assert_eq!(test.delete("w", 1), [0]);
    test.wait_for_notice("log_dir_has_space");
    assert!(!dir.path().join("logs/w-0").exists());
}

#[test]
fn other_directories_serve_and_get_the_new_partitions() {
    let dir = tempfile::tempdir().unwrap();
    let (mut config, disk) = (cached(dir.path()), faulty());
    config.log_dirs = ["one", "two"].map(|name| dir.path().join(name)).to_vec();
    let mut test = start(&config, &disk);
    test.create("t", 2);
    let in_full = i32::from(!dir.path().join("one/t-0").exists());
    let mut client = test.client();
    let record = batch(&[b"v"]);
    for index in 0..2 {
        assert_eq!(client.produce("t", index, &record), (ErrorCode::NONE, 0));
    }
    let no_space = Fault::NoSpaceAfter(0);
    disk.fail(Operation::Write, "one/", 0, usize::MAX, no_space);
    eventually("the refusal", || {
        let refused = client.produce("t", in_full, &record).0;
        (refused == ErrorCode::KAFKA_STORAGE_ERROR).then_some(())
    });
    let other = client.produce("t", 1 - in_full, &record);
    assert_eq!(other, (ErrorCode::NONE, 1));
    test.create("u", 3);
    for index in 0..3 {
        assert!(dir.path().join(format!("two/u-{index}")).exists());
        assert_eq!(client.produce("u", index, &record), (ErrorCode::NONE, 0));
    }
}

#[test]
fn checkpoints_that_find_no_space_are_written_later() {
    let dir = tempfile::tempdir().unwrap();
    let (mut config, disk) = (cached(dir.path()), faulty());
    config.high_watermark_checkpoint_interval_ms = 20;
    let mut test = start(&config, &disk);
    test.create("t", 1);
    let no_space = Fault::NoSpaceAfter(3);
    disk.fail(Operation::Write, "replication-offset", 0, 2, no_space);
    // The first checkpoint may come before the record: then the directory is full for a while.
    eventually("the record", || {
        let produced = test.client().produce("t", 0, &batch(&[b"v"]));
        (produced == (ErrorCode::NONE, 0)).then_some(())
    });
    test.wait_for_notice("log_dir_full");
    test.wait_for_notice("log_dir_has_space");
    let checkpoint = dir.path().join("logs/replication-offset-checkpoint");
    eventually("the checkpoint", || {
        let content = std::fs::read_to_string(&checkpoint).unwrap_or_default();
        content.contains("t 0 1").then_some(())
    });
}

#[test]
fn topics_can_be_deleted_on_a_full_disk() {
    let dir = tempfile::tempdir().unwrap();
    let (config, disk) = (cached(dir.path()), faulty());
    let mut test = filled_up(&config, &disk);
    fill(&test, "t", 50_000);
    let no_space = Fault::NoSpaceAfter(0);
    disk.fail(Operation::Write, "checkpoint", 0, 1, no_space);
    disk.set_free_bytes(ENOUGH);
    assert_eq!(test.delete("t", 1), [0]);
    assert!(!dir.path().join("logs/t-0").exists());
    test.wait_for_notice("log_dir_has_space");
    test.create("t", 1);
    assert_eq!(high_watermark(&test, "t"), 0);
}

const POINTS_ANEW: &str = "recovery-point-offset-checkpoint.tmp";

/// Ends a plane as a crash does that lost the end of `t`; returns the file of recovery points,
/// which the next start has to write.
fn crash_below_its_recovery_point(test: TestPlane, logs: &Path) -> PathBuf {
    assert!(test.shutdown());
    std::fs::remove_file(logs.join(".kafka_cleanshutdown")).unwrap();
    let points = logs.join("recovery-point-offset-checkpoint");
    std::fs::write(&points, "0\n1\nt 0 100\n").unwrap();
    points
}

/// After damage the recovery point has to be written while a log is opened.
#[test]
fn an_opening_that_gets_no_descriptor_for_the_recovery_point_waits() {
    let dir = tempfile::tempdir().unwrap();
    let logs = dir.path().join("logs");
    let (config, disk) = (config(vec![logs.clone()]), faulty());
    let mut test = start(&config, &disk);
    test.create("t", 1);
    test.client().produce("t", 0, &batch(&[b"first"]));
    let points = crash_below_its_recovery_point(test, &logs);
    disk.fail(Operation::Open, POINTS_ANEW, 0, 3, Fault::NoDescriptor);
    let mut test = start(&config, &disk);
    test.create("t", 1);
    // Until then the directory is retried regularly.
    let mut client = test.client();
    let next = eventually("records are taken", || {
        let (error, offset) = client.produce("t", 0, &batch(&[b"next"]));
        (error == ErrorCode::NONE).then_some(offset)
    });
    assert_eq!(next, 1);
    test.events.extend(test.plane.drain_events(100));
    let has_failed = |event: &Event| matches!(event, Event::LogDirFailed { .. });
    assert!(!test.events.iter().any(has_failed));
    assert!(!std::fs::read_to_string(&points).unwrap().contains("100"));
}

/// It was answered when it began to wait, so the control plane hears of it by an event.
#[test]
fn a_log_that_waited_for_space_and_cannot_be_opened_is_told_of() {
    let dir = tempfile::tempdir().unwrap();
    let (config, disk) = (cached(dir.path()), faulty());
    let mut test = start(&config, &disk);
    let no_space = Fault::NoSpaceAfter(0);
    disk.fail(Operation::Open, "u-0", 0, usize::MAX, no_space);
    test.create("u", 1);
    let folder = dir.path().join("logs/u-0");
    std::fs::create_dir_all(&folder).unwrap();
    let foreign = "version: 0\ntopic_id: 7RqaGhHrS1uLcTJQWsVTsA\n";
    std::fs::write(folder.join("partition.metadata"), foreign).unwrap();
    disk.heal();
    let has_failed = |event: &Event| matches!(event, Event::PartitionFailed(_));
    let Event::PartitionFailed(failed) = test.wait_for("the failure", has_failed) else {
        unreachable!()
    };
    assert_eq!((&failed.topic[..], failed.partition), ("u", 0));
    assert_eq!(failed.topic_id, topic_id("u"));
    assert!(
        failed.reason.starts_with("opening u-0"),
        "{}",
        failed.reason
    );
}

/// The directory has space again while the openings that found none still report it.
#[test]
fn logs_that_begin_to_wait_while_space_returns_are_opened() {
    const PARTITIONS: i32 = 100;
    let dir = tempfile::tempdir().unwrap();
    let (config, disk) = (cached(dir.path()), faulty());
    let mut test = start(&config, &disk);
    let no_space = Fault::NoSpaceAfter(0);
    for index in 0..PARTITIONS {
        disk.fail(Operation::Open, &format!("/u-{index}"), 0, 1, no_space);
    }
    test.create("u", PARTITIONS);
    let mut client = test.client();
    let record = batch(&[b"v"]);
    for index in 0..PARTITIONS {
        eventually("the log is served", || {
            (client.produce("u", index, &record).0 == ErrorCode::NONE).then_some(())
        });
    }
}

/// A partition that breaks an invariant stays offline until the next start.
#[test]
fn a_log_that_waits_for_space_is_not_opened_after_its_partition_failed() {
    let dir = tempfile::tempdir().unwrap();
    let (config, disk) = (cached(dir.path()), faulty());
    let mut test = with_a_log_that_waits(&config, &disk);
    let mut client = test.client();
    let record = batch(&[b"v"]);
    // While it is being retried there is no leader.
    eventually("its wait", || {
        let refused = client.produce("u", 0, &record).0;
        (refused == ErrorCode::KAFKA_STORAGE_ERROR).then_some(())
    });
    test.plane.break_invariant("u", 0);
    test.wait_for("the broken invariant", |event| {
        matches!(event, Event::PartitionFailed(_))
    });
    disk.heal();
    test.wait_for_notice("log_dir_has_space");
    test.create("other", 1);
    let refused = client.produce("u", 0, &record).0;
    assert_eq!(refused, ErrorCode::KAFKA_STORAGE_ERROR);
    test.shutdown();
    assert!(!dir.path().join("logs/u-0/partition.metadata").exists());
}

/// Its place is lent to others meanwhile, also to deletions, which make space.
#[test]
fn other_logs_open_while_one_waits_for_space() {
    let dir = tempfile::tempdir().unwrap();
    let logs = dir.path().join("logs");
    let (mut config, disk) = (config(vec![logs.clone()]), faulty());
    config.recovery_threads_per_dir = 1;
    let mut test = start(&config, &disk);
    test.create("t", 1);
    test.client().produce("t", 0, &batch(&[b"first"]));
    crash_below_its_recovery_point(test, &logs);
    disk.fail(
        Operation::Open,
        POINTS_ANEW,
        0,
        1_000_000,
        Fault::NoDescriptor,
    );
    let mut test = start(&config, &disk);
    test.describe_topic("t", 1, &topic_config());
    let spec = TestPlane::leader_spec("t", 0, 0);
    let waiting = test.plane.become_leaders(vec![spec]).unwrap();
    test.wait_for_notice("log_dir_waits");
    test.create("other", 1);
    disk.heal();
    let TicketOutcome::Partitions(codes) = test.ticket(waiting) else {
        panic!()
    };
    assert_eq!(codes, [0]);
    assert_eq!(high_watermark(&test, "t"), 1);
}
