//! Following many partitions takes no more requests than there are leaders.

use std::sync::Arc;

use crate::harness::*;
use pyrklog_dataplane::seam::{FollowerSpec, LeaderSpec};
use pyrklog_log::disk::RealDisk;
use pyrklog_wire::ErrorCode;
use pyrklog_wire::api::key;

const PARTITIONS: i32 = 1_000;
const LEADERS: [i32; 2] = [1, 2];
const FOLLOWER: i32 = 3;

fn leader_of(partition: i32) -> i32 {
    LEADERS[partition as usize % LEADERS.len()]
}

fn partitions_of(leader: i32) -> impl Iterator<Item = i32> {
    (0..PARTITIONS).filter(move |partition| leader_of(*partition) == leader)
}

fn brokers(dir: &std::path::Path) -> [TestPlane; 3] {
    let mut planes = [1, 2, 3].map(|node_id| {
        let mut config = cluster_config(dir, node_id);
        // A request that finds nothing waits until the end of the test.
        config.cluster.as_mut().unwrap().fetch_wait_max_ms = 600_000;
        TestPlane::start_with(config, Arc::new(RealDisk))
    });
    let ports = [1, 2, 3].map(|node_id| (node_id, planes[node_id as usize - 1].port));
    for plane in &mut planes {
        plane.know(&ports);
        plane.describe_topic("t", PARTITIONS, &topic_config());
    }
    planes
}

fn lead(plane: &mut TestPlane, leader: i32) {
    let replicas = vec![leader, FOLLOWER];
    let spec = |partition| LeaderSpec {
        replicas: replicas.clone(),
        isr: replicas.clone(),
        ..TestPlane::leader_spec("t", partition, 0)
    };
    let codes = plane.become_leaders(partitions_of(leader).map(spec).collect());
    assert!(codes.iter().all(|code| *code == 0));
}

fn follow(plane: &mut TestPlane) {
    let spec = |partition| FollowerSpec {
        topic: "t".into(),
        partition,
        leader: leader_of(partition),
        leader_epoch: 0,
        replicas: vec![leader_of(partition), FOLLOWER],
        isr: vec![leader_of(partition), FOLLOWER],
        is_new: false,
        is_partial: false,
    };
    let codes = plane.become_followers((0..PARTITIONS).map(spec).collect());
    assert!(codes.iter().all(|code| *code == 0));
}

/// Waits until one request waits at the leader for all of its partitions; returns how many there
/// were.
fn wait_quiet(leader: &TestPlane) -> u64 {
    let each = u64::try_from(PARTITIONS as usize / LEADERS.len()).unwrap();
    eventually("one request for all", || {
        (leader.statistic("purgatory_fetch") == each).then_some(())
    });
    // A follower that is given more partitions while it waits for an answer uses another
    // connection, and leaves a session of fewer partitions behind.
    assert!(leader.statistic("fetch_sessions") >= 1);
    assert!(leader.statistic("fetch_session_partitions") >= each);
    leader.statistic("requests.Fetch")
}

fn produce(leader: &TestPlane, partitions: &[i32]) {
    let record = batch(&[b"v"]);
    let wanted: Vec<_> = partitions
        .iter()
        .map(|index| (*index, Some(&record[..])))
        .collect();
    let body = produce_body(PRODUCE_VERSION, -1, 60_000, "t", &wanted);
    let answer = leader.client().call(key::PRODUCE, PRODUCE_VERSION, &body);
    assert_eq!(produced(&answer, PRODUCE_VERSION).0, ErrorCode::NONE);
}

#[test]
fn a_thousand_partitions_cost_a_request_a_leader() {
    let dir = tempfile::tempdir().unwrap();
    let [mut first, mut second, mut follower] = brokers(dir.path());
    lead(&mut first, 1);
    lead(&mut second, 2);
    follow(&mut follower);
    let leaders = [first, second];
    let before = leaders.each_ref().map(wait_quiet);
    // Each record is answered once and then confirmed once: by the next request, which then waits
    // for all partitions again.
    for partition in [0, 2, 400, 998] {
        produce(&leaders[0], &[partition]);
    }
    let after = leaders.each_ref().map(wait_quiet);
    assert_eq!(after, [before[0] + 4, before[1]]);
    // Many at once share requests: far fewer than partitions, however they meet.
    let all: Vec<i32> = partitions_of(2).collect();
    produce(&leaders[1], &all);
    let at_once = wait_quiet(&leaders[1]) - after[1];
    assert!(
        at_once <= all.len() as u64 / 4,
        "{at_once} requests for {}",
        all.len()
    );
    assert_eq!(wait_quiet(&leaders[0]), after[0]);
}
