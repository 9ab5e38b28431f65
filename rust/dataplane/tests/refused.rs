//! What a producer with several batches under way is told after a refused one.

use std::time::UNIX_EPOCH;

use crate::harness::*;
use pyrklog_dataplane::seam::{LeaderSpec, TopicConfig};
use pyrklog_wire::ErrorCode;
use pyrklog_wire::api::key;
use pyrklog_wire::builder::BatchBuilder;
use pyrklog_wire::produce::ProduceResponse;

const REFUSED: ErrorCode = ErrorCode::NOT_ENOUGH_REPLICAS;
const OUT_OF_ORDER: ErrorCode = ErrorCode::OUT_OF_ORDER_SEQUENCE_NUMBER;

fn sequenced(sequence: i32) -> Vec<u8> {
    let now = UNIX_EPOCH.elapsed().unwrap();
    let mut builder = BatchBuilder::new().producer(9, 0, sequence);
    builder.append(now.as_millis() as i64, None, Some(b"value"));
    builder.build()
}

fn send(client: &mut Client, sequence: i32) -> (ErrorCode, i64) {
    client.produce_acks(-1, "t", 0, &sequenced(sequence))
}

fn strict() -> TopicConfig {
    TopicConfig {
        min_insync_replicas: 2,
        ..topic_config()
    }
}

fn alone(partition: i32) -> LeaderSpec {
    LeaderSpec {
        replicas: BOTH.to_vec(),
        isr: vec![1],
        ..TestPlane::leader_spec("t", partition, 0)
    }
}

/// A producer's batches under way after a refused one get the same error, even if this broker's
/// role has changed meanwhile: the first comes again, before them.
#[test]
fn batches_behind_a_refused_one_are_refused_alike() {
    let dir = tempfile::tempdir().unwrap();
    let mut test = TestPlane::start(dir.path());
    let (mut producer, mut other) = (test.client(), test.client());
    test.describe_topic("t", 1, &strict());
    let early = send(&mut producer, 0).0;
    assert_eq!(early, ErrorCode::NOT_LEADER_OR_FOLLOWER);
    assert_eq!(test.become_leaders(vec![alone(0)]), [0]);
    test.describe_topic("t", 1, &topic_config());
    // The log does not know the producer, and would take them.
    for sequence in 1..5 {
        assert_eq!(send(&mut producer, sequence).0, early);
    }
    for sequence in 0..5 {
        let taken = send(&mut producer, sequence);
        assert_eq!(taken, (ErrorCode::NONE, i64::from(sequence)));
    }
    test.describe_topic("t", 1, &strict());
    assert_eq!(send(&mut producer, 5).0, REFUSED);
    test.describe_topic("t", 1, &topic_config());
    // Out of order for the log.
    assert_eq!(send(&mut producer, 6).0, REFUSED);
    assert_eq!(send(&mut producer, 6).0, OUT_OF_ORDER, "it did not wait");
    assert_eq!(send(&mut other, 7).0, OUT_OF_ORDER, "it was told nothing");
    for sequence in 7..10 {
        assert_eq!(send(&mut producer, sequence).0, REFUSED);
    }
    assert_eq!(
        send(&mut producer, 10).0,
        OUT_OF_ORDER,
        "too many under way"
    );
    assert_eq!(send(&mut other, 5), (ErrorCode::NONE, 5));
    assert_eq!(send(&mut producer, 6), (ErrorCode::NONE, 6));
    assert_eq!(send(&mut producer, 10).0, OUT_OF_ORDER);
}

/// A producer may have batches of more partitions under way than a connection remembers at first.
#[test]
fn refused_batches_of_many_partitions_are_remembered() {
    const PARTITIONS: i32 = 1_000;
    let dir = tempfile::tempdir().unwrap();
    let mut test = TestPlane::start(dir.path());
    let mut producer = test.client();
    test.describe_topic("t", PARTITIONS, &strict());
    let codes = test.become_leaders((0..PARTITIONS).map(alone).collect());
    assert!(codes.iter().all(|code| *code == 0));
    let send_all = |producer: &mut Client, sequence: i32| {
        let batch = sequenced(sequence);
        let partitions: Vec<_> = (0..PARTITIONS)
            .map(|index| (index, Some(&batch[..])))
            .collect();
        let body = produce_body(PRODUCE_VERSION, -1, 10_000, "t", &partitions);
        let answer = producer.call(key::PRODUCE, PRODUCE_VERSION, &body);
        let response = ProduceResponse::decode(&answer, PRODUCE_VERSION).unwrap();
        let answered = response.topics.iter().flat_map(|topic| &topic.partitions);
        let mut codes: Vec<_> = answered.map(|partition| partition.error_code).collect();
        assert_eq!(codes.len(), PARTITIONS as usize);
        codes.dedup();
        codes
    };
    assert_eq!(send_all(&mut producer, 0), [REFUSED]);
    assert_eq!(send_all(&mut producer, 1), [REFUSED]);
    test.describe_topic("t", PARTITIONS, &topic_config());
    for sequence in 2..5 {
        assert_eq!(send_all(&mut producer, sequence), [REFUSED]);
    }
    for sequence in 0..6 {
        assert_eq!(send_all(&mut producer, sequence), [ErrorCode::NONE]);
    }
}

/// Batches after one that was appended, and refused when this broker led no more.
#[test]
fn batches_behind_a_late_refusal_are_refused_alike() {
    let mut pair = Pair::start();
    pair.lead(1, 0, &BOTH);
    let mut producer = pair.plane(1).client();
    let partitions = sequenced(0);
    let body = produce_body(PRODUCE_VERSION, -1, 30_000, "t", &[(0, Some(&partitions))]);
    producer.send(key::PRODUCE, PRODUCE_VERSION, &body);
    let waits = |test: &TestPlane| test.statistic("purgatory_produce") == 1;
    eventually("it waits", || waits(&pair.planes[0]).then_some(()));
    pair.lead(2, 1, &[2]);
    pair.follow(1, 2, 1);
    let (_, answer) = producer.receive(key::PRODUCE, PRODUCE_VERSION);
    let late = ErrorCode::NOT_LEADER_OR_FOLLOWER;
    assert_eq!(produced(&answer, PRODUCE_VERSION).0, late);
    eventually("it is cut", || (pair.size_bytes(1) == 0).then_some(()));
    pair.lead(1, 2, &[1]);
    for sequence in 1..5 {
        assert_eq!(send(&mut producer, sequence).0, late);
    }
    for sequence in 0..6 {
        let taken = send(&mut producer, sequence);
        assert_eq!(taken, (ErrorCode::NONE, i64::from(sequence)));
    }
}

/// After a change of leader a producer's batches may come in another order: some are missing at the
/// new leader, others were replicated.
#[test]
fn a_new_leader_waits_for_batches_under_way_at_the_old_one() {
    let mut pair = Pair::start();
    pair.lead(1, 0, &BOTH);
    pair.follow(2, 1, 0);
    let mut producer = pair.plane(1).client();
    assert_eq!(send(&mut producer, 0), (ErrorCode::NONE, 0));
    pair.lead(2, 1, &[2]);
    pair.follow(1, 2, 1);
    let mut producer = pair.plane(2).client();
    assert_eq!(send(&mut producer, 2).0, REFUSED);
    for sequence in 1..7 {
        let taken = send(&mut producer, sequence);
        assert_eq!(taken, (ErrorCode::NONE, i64::from(sequence)));
    }
    let repeated = send(&mut producer, 0).0;
    assert_eq!(repeated, ErrorCode::DUPLICATE_SEQUENCE_NUMBER);
}
