//! Replicas that are copied at a bounded rate (KIP-73).

use crate::harness::*;
use pyrklog_dataplane::seam::{
    FollowerSpec, LeaderSpec, Throttled, ThrottledReplicas, TopicConfig,
};
use pyrklog_wire::ErrorCode;

const RECORD_BYTES: usize = 100_000;

fn throttled(leading: &[(i32, i32)], following: &[(i32, i32)]) -> TopicConfig {
    TopicConfig {
        throttled: Throttled {
            leading: ThrottledReplicas::these(leading.to_vec()),
            following: ThrottledReplicas::these(following.to_vec()),
        },
        ..topic_config()
    }
}

fn throttled_everywhere() -> TopicConfig {
    TopicConfig {
        throttled: Throttled {
            leading: ThrottledReplicas::All,
            following: ThrottledReplicas::All,
        },
        ..topic_config()
    }
}

/// Broker 1 alone, which leads `t` for replicas 1, 2 (in sync) and 3 (not), with `records` in it.
fn leader(config: &TopicConfig, records: usize) -> (tempfile::TempDir, TestPlane) {
    let dir = tempfile::tempdir().unwrap();
    let mut options = cluster_config(dir.path(), 1);
    options.cluster.as_mut().unwrap().fetch_wait_max_ms = 60_000;
    let mut test = TestPlane::start_with(options, std::sync::Arc::new(pyrklog_log::disk::RealDisk));
    test.describe_topic("t", 1, config);
    let spec = LeaderSpec {
        replicas: vec![1, 2, 3],
        isr: vec![1, 2],
        ..TestPlane::leader_spec("t", 0, 0)
    };
    assert_eq!(test.become_leaders(vec![spec]), [0]);
    let mut client = test.client();
    for _ in 0..records {
        let (error, _) = client.produce("t", 0, &large_batch(RECORD_BYTES));
        assert_eq!(error, ErrorCode::NONE);
    }
    (dir, test)
}

/// What an empty replica gets; -1 for a consumer.
fn fetch(test: &TestPlane, replica_id: i32) -> Fetched {
    let mut ask = Ask::one("t", 0, 0);
    ask.replica_id = replica_id;
    let mut reply = test.client().fetch(&ask);
    assert_eq!(reply.error, ErrorCode::NONE);
    let found = reply.partitions.remove(0);
    assert_eq!(found.error, ErrorCode::NONE);
    found
}

fn has_records(test: &TestPlane, replica_id: i32) -> bool {
    !fetch(test, replica_id).records.is_empty()
}

#[test]
fn leader_throttles_followers_out_of_sync_beyond_the_rate() {
    let (_dir, test) = leader(&throttled_everywhere(), 3);
    assert!(has_records(&test, 3), "no rate, no throttle");
    // A byte a second: what is sent now is owed for days.
    test.plane.set_replication_rates(Some(1), None);
    assert!(
        has_records(&test, 3),
        "a second of the rate is there at once"
    );
    let held = fetch(&test, 3);
    assert!(held.records.is_empty());
    assert_eq!(
        (held.log_start_offset, held.high_watermark),
        (0, 0),
        "its marks it gets"
    );
    assert!(has_records(&test, 2), "in sync");
    let counted = test.statistic("throttled_replication_bytes.leader");
    assert!(
        counted >= 6 * RECORD_BYTES as u64,
        "both replicas count: {counted}"
    );
    test.plane.set_replication_rates(None, None);
    assert!(has_records(&test, 3));
}

#[test]
fn traffic_of_replicas_in_sync_uses_the_rate_up_too() {
    let (_dir, test) = leader(&throttled_everywhere(), 1);
    test.plane.set_replication_rates(Some(1), None);
    assert!(has_records(&test, 2));
    assert!(!has_records(&test, 3));
    // Consumers neither count nor wait.
    let counted = test.statistic("throttled_replication_bytes.leader");
    let mut consumer = test.client();
    let mut ask = Ask::one("t", 0, 0);
    ask.replica_id = 2;
    ask.partitions[0].1.fetch_offset = 1;
    consumer.fetch(&ask);
    assert!(!consumer.fetch_one("t", 0, 0).records.is_empty());
    assert_eq!(
        test.statistic("throttled_replication_bytes.leader"),
        counted
    );
}

#[test]
fn only_listed_replicas_are_throttled() {
    // This broker's replica of another partition, and another broker's of this one.
    let (_dir, mut test) = leader(&throttled(&[(1, 1), (0, 3)], &[(0, 1)]), 1);
    test.plane.set_replication_rates(Some(0), Some(0));
    assert!(has_records(&test, 3));
    assert_eq!(test.statistic("throttled_replication_bytes.leader"), 0);
    test.describe_topic("t", 1, &throttled(&[(0, 1)], &[]));
    assert!(!has_records(&test, 3));
}

#[test]
fn throttled_fetch_waits_as_if_without_records() {
    let (_dir, test) = leader(&throttled_everywhere(), 1);
    test.plane.set_replication_rates(Some(0), None);
    let mut ask = Ask::one("t", 0, 0).wait(60_000, 1);
    ask.replica_id = 3;
    let mut replica = test.client();
    replica.send(pyrklog_wire::api::key::FETCH, ask.version, &ask.encode());
    eventually("its wait", || {
        (test.statistic("purgatory_fetch") == 1).then_some(())
    });
    test.client().produce("t", 0, &large_batch(10));
    test.plane.set_replication_rates(None, None);
    test.client().produce("t", 0, &large_batch(10));
    let (_, body) = replica.receive(pyrklog_wire::api::key::FETCH, ask.version);
    let found = fetched(&body, &ask).partitions[0].batches();
    assert_eq!(
        found[0], 0,
        "answered when there was something for it: {found:?}"
    );
}

/// Makes 1 the leader of `topic`, alone in sync, and 2 its follower.
fn begin(pair: &mut Pair, topic: &str) {
    let spec = LeaderSpec {
        replicas: BOTH.to_vec(),
        ..TestPlane::leader_spec(topic, 0, 0)
    };
    assert_eq!(pair.plane(1).become_leaders(vec![spec]), [0]);
    let (error, _) = pair.plane(1).client().produce(topic, 0, &batch(&[b"v"]));
    assert_eq!(error, ErrorCode::NONE);
}

fn follow(pair: &mut Pair, topics: &[&str], isr: &[i32]) {
    let spec = |topic: &&str| FollowerSpec {
        topic: (*topic).into(),
        partition: 0,
        leader: 1,
        leader_epoch: 0,
        replicas: BOTH.to_vec(),
        isr: isr.to_vec(),
        is_new: false,
        is_partial: false,
    };
    let specs: Vec<FollowerSpec> = topics.iter().map(spec).collect();
    assert!(
        pair.plane(2)
            .become_followers(specs)
            .iter()
            .all(|code| *code == 0)
    );
}

/// Batches of a topic that broker 2 shows.
fn copied(pair: &mut Pair, topic: &str) -> usize {
    pair.plane(2)
        .client()
        .fetch_one(topic, 0, 0)
        .batches()
        .len()
}

fn wait_copied(pair: &mut Pair, topic: &str, count: usize) {
    eventually("a copy", || (copied(pair, topic) == count).then_some(()));
}

#[test]
fn throttled_follower_fetches_only_in_sync_partitions() {
    let mut pair = Pair::start();
    pair.describe("held", 1, &throttled_everywhere());
    pair.describe("free", 1, &topic_config());
    for topic in ["held", "free"] {
        begin(&mut pair, topic);
    }
    pair.plane(2).plane.set_replication_rates(None, Some(0));
    follow(&mut pair, &["held", "free"], &[1]);
    wait_copied(&mut pair, "free", 1);
    assert_eq!(copied(&mut pair, "held"), 0, "fetched by the same thread");
    pair.plane(2)
        .plane
        .set_replication_rates(None, Some(1_000_000));
    wait_copied(&mut pair, "held", 1);
    assert!(
        pair.plane(2)
            .statistic("throttled_replication_bytes.follower")
            > 0
    );
    // It has everything now: as far as the follower knows it is in sync, and goes on.
    pair.plane(2).plane.set_replication_rates(None, Some(0));
    let (error, _) = pair.plane(1).client().produce("held", 0, &batch(&[b"v"]));
    assert_eq!(error, ErrorCode::NONE);
    eventually("the second record", || {
        let size = pair.size_of(2, "held");
        (size == pair.size_of(1, "held")).then_some(())
    });
}

#[test]
fn in_sync_follower_is_not_throttled_before_its_first_response() {
    let mut pair = Pair::start();
    pair.describe("held", 1, &throttled_everywhere());
    begin(&mut pair, "held");
    pair.plane(2).plane.set_replication_rates(None, Some(0));
    follow(&mut pair, &["held"], &BOTH);
    wait_copied(&mut pair, "held", 1);
}
