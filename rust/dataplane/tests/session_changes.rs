//! What happens to a partition of a session between its fetches, or while one waits: another
//! nearest replica, a replication quota, the end of a transaction, another topic of the same name,
//! and leaving the session.

use std::path::Path;
use std::sync::Arc;

use crate::harness::*;
use pyrklog_dataplane::seam::{LeaderSpec, StopSpec, Throttled, ThrottledReplicas, TopicConfig};
use pyrklog_log::disk::RealDisk;
use pyrklog_wire::ErrorCode;
use pyrklog_wire::batch::{set_base_offset, set_partition_leader_epoch};
use pyrklog_wire::builder::{BatchBuilder, transaction_marker};

#[test]
fn another_nearest_replica_is_told_and_told_again() {
    let mut pair = Pair::start_with(topic_config(), |config| {
        config.cluster.as_mut().unwrap().reads_by_rack = true;
    });
    let brokers = [(1, pair.planes[0].port, "a"), (2, pair.planes[1].port, "b")];
    for plane in &mut pair.planes {
        plane.know_in_racks(&brokers);
    }
    pair.lead(1, 0, &[1]);
    pair.produce(1, b"a");
    pair.follow(2, 1, 0);
    pair.wait_copied();
    let test = pair.plane(1);
    let in_rack = |ask: &mut Ask| ask.rack = "b";
    let (mut session, first) = SessionClient::open(test, &[partition(0, 1)], in_rack);
    assert_eq!(first[0].preferred_replica, -1, "it is not in sync");
    assert!(session.fetch(&[]).is_empty());
    let plane = &test.plane;
    eventually("the leader's knowledge of its end", || {
        plane.set_isr("t", 0, 0, &BOTH, &BOTH, false).then_some(())
    });
    // As in Kafka: as long as there is one, each answer names it.
    for _ in 0..2 {
        let told = session.fetch(&[]);
        let preferred: Vec<i32> = told.iter().map(|one| one.preferred_replica).collect();
        assert_eq!(preferred, [2]);
    }
    assert!(plane.set_isr("t", 0, 0, &[1], &[1], false));
    assert!(session.fetch(&[]).is_empty(), "it stays with the leader");
    test.client().produce("t", 0, &batch(&[b"b"]));
    assert_eq!(found(&session.fetch(&[])), [(0, vec![1])]);
}

/// Broker 1 leads two partitions of `t`, of which replicas of the first are throttled; replica 2
/// is in sync, replica 3 is not. Both have a record.
fn throttled(dir: &Path) -> TestPlane {
    let mut test = TestPlane::start_with(cluster_config(dir, 1), Arc::new(RealDisk));
    let options = TopicConfig {
        throttled: Throttled {
            leading: ThrottledReplicas::these(vec![(0, 1)]),
            following: ThrottledReplicas::these(vec![]),
        },
        ..topic_config()
    };
    test.describe_topic("t", 2, &options);
    let spec = |index| LeaderSpec {
        replicas: vec![1, 2, 3],
        isr: vec![1, 2],
        ..TestPlane::leader_spec("t", index, 0)
    };
    assert_eq!(test.become_leaders(vec![spec(0), spec(1)]), [0, 0]);
    for index in 0..2 {
        let (error, _) = test.client().produce("t", index, &batch(&[b"v"]));
        assert_eq!(error, ErrorCode::NONE);
    }
    test
}

#[test]
fn what_a_quota_held_back_comes_with_the_next_fetch_after_it() {
    let dir = tempfile::tempdir().unwrap();
    let test = throttled(dir.path());
    test.plane.set_replication_rates(Some(0), None);
    let wanted = [partition(0, 0), partition(1, 0)];
    let as_replica = |ask: &mut Ask| ask.replica_id = 3;
    let (mut session, first) = SessionClient::open(&test, &wanted, as_replica);
    assert_eq!(found(&first), [(0, vec![]), (1, vec![0])]);
    // It is still due, without news.
    assert_eq!(found(&session.fetch(&[partition(1, 1)])), []);
    test.client().produce("t", 1, &batch(&[b"w"]));
    assert_eq!(found(&session.fetch(&[])), [(1, vec![1])]);
    test.client().produce("t", 0, &batch(&[b"w"]));
    assert_eq!(found(&session.fetch(&[partition(1, 2)])), []);
    test.plane.set_replication_rates(None, None);
    assert_eq!(found(&session.fetch(&[])), [(0, vec![0, 1])]);
    assert_eq!(found(&session.fetch(&[partition(0, 2)])), []);
}

/// A committed transaction: two batches of one record, and the marker.
fn write_transaction(folder: &Path) {
    std::fs::create_dir_all(folder).unwrap();
    let mut bytes = Vec::new();
    for offset in 0..2 {
        let mut batch = BatchBuilder::new()
            .base_offset(offset)
            .leader_epoch(0)
            .producer(7, 0, offset as i32)
            .transactional();
        batch.append(1_000, None, Some(b"v"));
        bytes.extend(batch.build());
    }
    let mut marker = transaction_marker(7, 0, true, 0, 1_000);
    set_base_offset(&mut marker, 2);
    set_partition_leader_epoch(&mut marker, 0);
    bytes.extend(marker);
    std::fs::write(folder.join(format!("{:020}.log", 0)), bytes).unwrap();
}

/// A leader of the transaction of [`write_transaction`], which its follower confirms bit by bit; a
/// session of committed records.
fn transaction(dir: &Path) -> (TestPlane, SessionClient) {
    write_transaction(&dir.join("logs1/t-0"));
    let mut test = TestPlane::start_with(cluster_config(dir, 1), Arc::new(RealDisk));
    let mut options = topic_config();
    options.log.retention_ms = -1;
    test.describe_topic("t", 1, &options);
    let spec = LeaderSpec {
        replicas: BOTH.to_vec(),
        isr: BOTH.to_vec(),
        ..TestPlane::leader_spec("t", 0, 0)
    };
    assert_eq!(test.become_leaders(vec![spec]), [0]);
    let of_committed = |ask: &mut Ask| ask.isolation_level = 1;
    let (session, first) = SessionClient::open(&test, &[partition(0, 0)], of_committed);
    assert_eq!(marks(&first), [(0, 0)]);
    (test, session)
}

/// (High watermark, last stable offset) of each partition.
fn marks(partitions: &[Fetched]) -> Vec<(i64, i64)> {
    let pair = |one: &Fetched| (one.high_watermark, one.last_stable_offset);
    partitions.iter().map(pair).collect()
}

/// The follower has all below the offset.
fn replicate(test: &TestPlane, offset: i64) {
    let mut ask = Ask::one("t", 0, offset);
    ask.replica_id = 2;
    let reply = test.client().fetch(&ask);
    assert_eq!(reply.partitions[0].error, ErrorCode::NONE);
}

#[test]
fn the_end_of_a_transaction_is_told_to_a_session_of_committed_records() {
    let dir = tempfile::tempdir().unwrap();
    let (test, mut session) = transaction(dir.path());
    replicate(&test, 2);
    let told = session.fetch(&[]);
    assert_eq!(
        (marks(&told), found(&told)),
        (vec![(2, 0)], vec![(0, vec![])])
    );
    assert!(session.fetch(&[]).is_empty());
    replicate(&test, 3);
    let told = session.fetch(&[]);
    assert_eq!(marks(&told), [(3, 3)]);
    assert_eq!(found(&told), [(0, vec![0, 1, 2])]);
}

#[test]
fn the_end_of_a_transaction_wakes_a_session_of_committed_records() {
    let dir = tempfile::tempdir().unwrap();
    let (test, mut session) = transaction(dir.path());
    session.begin_to_wait(&test);
    let looks = test.statistic("fetch_looks");
    replicate(&test, 2);
    eventually("a look in vain", || {
        // One look is the replica's.
        let has_looked = test.statistic("fetch_looks") > looks + 1;
        (has_looked && test.statistic("purgatory_fetch") == 1).then_some(())
    });
    replicate(&test, 3);
    let told = session.receive();
    assert_eq!(marks(&told), [(3, 3)]);
    assert_eq!(found(&told), [(0, vec![0, 1, 2])]);
}

const OLD_ID: [u8; 16] = [1; 16];
const NEW_ID: [u8; 16] = [2; 16];

/// A topic with a record, and a session that has read it.
fn of_old_topic(dir: &Path, version: i16) -> (TestPlane, SessionClient) {
    let mut test = TestPlane::start(dir);
    test.topic_id = Some(OLD_ID);
    test.create("t", 1);
    test.client().produce("t", 0, &batch(&[b"old"]));
    let asks = |ask: &mut Ask| {
        ask.version = version;
        ask.topic_ids = Some(|_| OLD_ID);
    };
    let mut session = SessionClient::open(&test, &[partition(0, 1)], asks).0;
    assert!(session.fetch(&[]).is_empty());
    (test, session)
}

fn recreate(test: &mut TestPlane) {
    let stop = StopSpec {
        topic: "t".into(),
        partition: 0,
        delete: true,
    };
    let ticket = test.plane.stop_partitions(vec![stop]).unwrap();
    test.ticket(ticket);
    test.topic_id = Some(NEW_ID);
    test.create("t", 1);
}

#[test]
fn by_name_a_session_goes_on_with_the_topic_that_has_its_name_by_now() {
    let dir = tempfile::tempdir().unwrap();
    let (mut test, mut session) = of_old_topic(dir.path(), 12);
    recreate(&mut test);
    // The new log has no such offset: the client resets it.
    for _ in 0..2 {
        let told = errors(&session.fetch(&[]));
        assert_eq!(told, [(0, ErrorCode::OFFSET_OUT_OF_RANGE)]);
    }
    assert_eq!(
        errors(&session.fetch(&[partition(0, 0)])),
        [(0, ErrorCode::NONE)]
    );
    assert!(session.fetch(&[]).is_empty());
    session.begin_to_wait(&test);
    test.client().produce("t", 0, &batch(&[b"new"]));
    assert_eq!(found(&session.receive()), [(0, vec![0])]);
}

#[test]
fn a_fetch_that_waits_hears_of_the_old_topic_s_end_and_the_next_one_of_the_new() {
    let dir = tempfile::tempdir().unwrap();
    let (mut test, mut session) = of_old_topic(dir.path(), 12);
    session.begin_to_wait(&test);
    recreate(&mut test);
    let told = session.receive();
    assert!(
        told.len() == 1 && told[0].error != ErrorCode::NONE,
        "{told:?}"
    );
    let told = errors(&session.fetch(&[]));
    assert_eq!(told, [(0, ErrorCode::OFFSET_OUT_OF_RANGE)]);
}

#[test]
fn by_id_a_session_tells_of_another_topic_until_its_client_forgets_the_old_one() {
    let dir = tempfile::tempdir().unwrap();
    let (mut test, mut session) = of_old_topic(dir.path(), 13);
    recreate(&mut test);
    test.client().produce("t", 0, &batch(&[b"new"]));
    for _ in 0..2 {
        let told = errors(&session.fetch(&[]));
        assert_eq!(told, [(0, ErrorCode::INCONSISTENT_TOPIC_ID)]);
    }
    session.ask.topic_ids = Some(|name| if name == "old" { OLD_ID } else { NEW_ID });
    session.ask.forgotten = vec![("old".into(), 0)];
    assert_eq!(found(&session.fetch(&[partition(0, 0)])), [(0, vec![0])]);
    session.ask.forgotten.clear();
    assert!(session.fetch(&[partition(0, 1)]).is_empty());
}

#[test]
fn a_forgotten_partition_is_neither_looked_at_nor_waited_for() {
    let (_dir, test, mut session) = settled(|_| {});
    assert!(session.forget(&[1]).is_empty());
    let mut producer = test.client();
    let looks = test.statistic("fetch_looks");
    producer.produce("t", 1, &batch(&[b"new"]));
    assert!(session.fetch(&[]).is_empty());
    session.begin_to_wait(&test);
    producer.produce("t", 1, &batch(&[b"newer"]));
    assert_eq!(test.statistic("fetch_looks"), looks, "it is not marked");
    producer.produce("t", 2, &batch(&[b"new"]));
    assert_eq!(found(&session.receive()), [(2, vec![1])]);
    // Named again, it is in the session again.
    let back = session.fetch(&[in_epoch_0(1, 1), in_epoch_0(2, 2)]);
    assert_eq!(found(&back), [(1, vec![1, 2])]);
    assert!(session.fetch(&[in_epoch_0(1, 3)]).is_empty());
    producer.produce("t", 1, &batch(&[b"newest"]));
    assert_eq!(found(&session.fetch(&[])), [(1, vec![3])]);
}

#[test]
fn a_session_misses_nothing_of_several_producers() {
    const EACH: i64 = 400;
    let dir = tempfile::tempdir().unwrap();
    let mut test = TestPlane::start(dir.path());
    test.create("t", 3);
    let wanted = [0, 1, 2].map(|index| partition(index, 0));
    let mut session = SessionClient::open(&test, &wanted, |_| {}).0;
    std::thread::scope(|scope| {
        // Two producers share partition 0.
        for index in [0, 0, 1, 2] {
            let mut producer = test.client();
            scope.spawn(move || {
                for number in 0..EACH {
                    producer.produce("t", index, &batch(&[b"v"]));
                    if number % 16 == 0 {
                        std::thread::sleep(std::time::Duration::from_millis(1));
                    }
                }
            });
        }
        let ends = [2 * EACH, EACH, EACH];
        let mut next = [0; 3];
        let mut moved: Vec<usize> = Vec::new();
        while next != ends {
            let named: Vec<_> = moved
                .drain(..)
                .map(|at| partition(at as i32, next[at]))
                .collect();
            // A lost wake would let it wait for longer than the client does.
            session.send(&named, 3_600_000);
            for one in session.receive() {
                let (at, batches) = (one.index as usize, one.batches());
                let expected: Vec<i64> = (next[at]..).take(batches.len()).collect();
                assert_eq!((one.error, &batches), (ErrorCode::NONE, &expected));
                next[at] += batches.len() as i64;
                moved.push(at);
            }
        }
    });
}

#[test]
fn a_debugging_consumer_sees_what_a_consumer_sees() {
    let dir = tempfile::tempdir().unwrap();
    let (test, _) = transaction(dir.path());
    replicate(&test, 2);
    for replica_id in [-1, -2] {
        for (isolation_level, batches) in [(0, vec![0, 1]), (1, vec![])] {
            let mut ask = Ask::one("t", 0, 0);
            (ask.replica_id, ask.isolation_level) = (replica_id, isolation_level);
            let reply = test.client().fetch(&ask);
            assert_eq!(found(&reply.partitions), [(0, batches)], "{replica_id}");
        }
    }
}
