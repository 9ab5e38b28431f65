//! Replicas that catch up or are new delay no replica in sync, for which producers wait.

use std::sync::Arc;

use crate::harness::*;
use pyrklog_dataplane::seam::*;
use pyrklog_log::RealDisk;
use pyrklog_log::disk::Disk;
use pyrklog_wire::ErrorCode;
use pyrklog_wire::api::key;

const TOPICS: [&str; 2] = ["old", "new"];

/// Brokers 1 and 2 with these disks and two topics, a partition of each on both brokers. A fetch
/// that waits for records, or for the leader's disk, does so until the end of the test.
fn brokers(dir: &std::path::Path, disks: [Arc<dyn Disk>; 2]) -> [TestPlane; 2] {
    let mut node_id = 0;
    let mut planes = disks.map(|disk| {
        node_id += 1;
        let mut config = cluster_config(dir, node_id);
        if node_id == 1 {
            // What it leads is read from its disk.
            config.cache = CacheConfig::off();
        }
        config.recovery_threads_per_dir = 1;
        config.cluster.as_mut().unwrap().fetch_wait_max_ms = 600_000;
        TestPlane::start_with(config, disk)
    });
    let ports = [(1, planes[0].port), (2, planes[1].port)];
    for plane in &mut planes {
        plane.know(&ports);
        for topic in TOPICS {
            plane.describe_topic(topic, 1, &topic_config());
        }
    }
    planes
}

fn leader(topic: &str, leader_epoch: i32, isr: &[i32]) -> LeaderSpec {
    LeaderSpec {
        replicas: BOTH.to_vec(),
        isr: isr.to_vec(),
        ..TestPlane::leader_spec(topic, 0, leader_epoch)
    }
}

fn follower(topic: &str, leader_epoch: i32, isr: &[i32]) -> FollowerSpec {
    FollowerSpec {
        topic: topic.into(),
        partition: 0,
        leader: 1,
        leader_epoch,
        replicas: BOTH.to_vec(),
        isr: isr.to_vec(),
        is_new: false,
        is_partial: false,
    }
}

fn produce(plane: &TestPlane, topic: &str, acks: i16) {
    let record = batch(&[b"value"]);
    let body = produce_body(PRODUCE_VERSION, acks, 600_000, topic, &[(0, Some(&record))]);
    let answer = plane.client().call(key::PRODUCE, PRODUCE_VERSION, &body);
    assert_eq!(produced(&answer, PRODUCE_VERSION).0, ErrorCode::NONE);
}

fn size_bytes(plane: &mut TestPlane, topic: &str) -> i64 {
    let ticket = plane.plane.describe_log_dirs().unwrap();
    let TicketOutcome::LogDirs(dirs) = plane.ticket(ticket) else {
        panic!()
    };
    let mut partitions = dirs.iter().flat_map(|dir| &dir.partitions);
    let own = partitions.find(|(name, ..)| name == topic);
    own.map_or(0, |(_, _, size, ..)| *size)
}

#[test]
fn old_records_on_a_disk_that_hangs_delay_no_replica_in_sync() {
    let dir = tempfile::tempdir().unwrap();
    let disk = SlowDisk::default();
    let disks: [Arc<dyn Disk>; 2] = [Arc::new(disk.clone()), Arc::new(RealDisk)];
    let [mut first, mut second] = brokers(dir.path(), disks);
    let specs = vec![leader("old", 0, &[1]), leader("new", 0, &BOTH)];
    assert_eq!(first.become_leaders(specs), [0, 0]);
    for _ in 0..3 {
        produce(&first, "old", 1);
    }
    disk.hold("old-0");
    let specs = vec![follower("old", 0, &[1]), follower("new", 0, &BOTH)];
    assert_eq!(second.become_followers(specs), [0, 0]);
    eventually("a read of old records", || {
        (disk.held_up() > 0).then_some(())
    });
    for _ in 0..3 {
        produce(&first, "new", -1);
    }
    assert!(disk.held_up() > 0, "it still waits for them");
    disk.release();
    eventually("the old records", || {
        (size_bytes(&mut second, "old") == size_bytes(&mut first, "old")).then_some(())
    });
}

#[test]
fn what_has_caught_up_has_one_fetcher_that_of_those_in_sync() {
    let dir = tempfile::tempdir().unwrap();
    let disks: [Arc<dyn Disk>; 2] = [Arc::new(RealDisk), Arc::new(RealDisk)];
    let [mut first, mut second] = brokers(dir.path(), disks);
    let specs = vec![leader("old", 0, &[1]), leader("new", 0, &BOTH)];
    assert_eq!(first.become_leaders(specs), [0, 0]);
    produce(&first, "old", 1);
    let specs = vec![follower("old", 0, &[1]), follower("new", 0, &BOTH)];
    assert_eq!(second.become_followers(specs), [0, 0]);
    // One request for both, which waits for records.
    eventually("both in one session", || {
        let is_whole = first.statistic("purgatory_fetch") == 2;
        let sizes = (
            size_bytes(&mut first, "old"),
            size_bytes(&mut second, "old"),
        );
        (is_whole && sizes.0 == sizes.1).then_some(())
    });
    let before = first.statistic("requests.Fetch");
    for (count, topic) in (1..).zip(["old", "new", "old"]) {
        produce(&first, topic, 1);
        // Answered once, and asked again once, for both.
        eventually("the next request", || {
            let asked = first.statistic("requests.Fetch") - before;
            (asked == count && first.statistic("purgatory_fetch") == 2).then_some(())
        });
    }
    let sizes = (
        size_bytes(&mut first, "old"),
        size_bytes(&mut second, "old"),
    );
    assert_eq!(sizes.0, sizes.1);
}

#[test]
fn logs_that_are_made_on_a_disk_that_hangs_delay_no_decision_about_open_ones() {
    let dir = tempfile::tempdir().unwrap();
    let disk = SlowDisk::default();
    let disks: [Arc<dyn Disk>; 2] = [Arc::new(RealDisk), Arc::new(disk.clone())];
    let [mut first, mut second] = brokers(dir.path(), disks);
    let specs = vec![leader("old", 0, &[1]), leader("new", 0, &BOTH)];
    assert_eq!(first.become_leaders(specs), [0, 0]);
    assert_eq!(
        second.become_followers(vec![follower("new", 0, &BOTH)]),
        [0]
    );
    produce(&first, "new", -1);
    disk.hold("old-0");
    let ticket = second
        .plane
        .become_followers(vec![follower("old", 0, &[1])]);
    eventually("a log to be made", || (disk.held_up() > 0).then_some(()));
    // A new epoch: producers wait until the follower has heard of it, and fetches in it.
    assert_eq!(first.become_leaders(vec![leader("new", 1, &BOTH)]), [0]);
    assert_eq!(
        second.become_followers(vec![follower("new", 1, &BOTH)]),
        [0]
    );
    produce(&first, "new", -1);
    // Another leader: producers wait until it leads.
    let elected = LeaderSpec {
        isr: vec![2],
        ..leader("new", 2, &[2])
    };
    assert_eq!(second.become_leaders(vec![elected]), [0]);
    produce(&second, "new", -1);
    assert!(disk.held_up() > 0, "it still waits for its log");
    disk.release();
    let codes = match second.ticket(ticket.unwrap()) {
        TicketOutcome::Partitions(codes) => codes,
        other => panic!("{other:?}"),
    };
    assert_eq!(codes, [0]);
}
