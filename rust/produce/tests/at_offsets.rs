//! A producer whose rows bring their offsets.

mod common;

use std::sync::Arc;

use arrow_array::{ArrayRef, BinaryArray, Int32Array, Int64Array, RecordBatch};
use common::{FakeCluster, Reply, TOPIC};
use pyrklog_produce::{ErrorKind, ProduceOptions, Producer};
use pyrklog_wire::ErrorCode;
use pyrklog_wire::api::key;

fn options(cluster: &FakeCluster) -> ProduceOptions {
    ProduceOptions {
        columns: ["value", "partition", "offset"].map(String::from).to_vec(),
        keeps_offsets: true,
        ..cluster.options()
    }
}

/// Rows of a partition.
fn rows(partition: i32, offsets: &[i64]) -> RecordBatch {
    let values: BinaryArray = offsets
        .iter()
        .map(|_| Some(b"twenty bytes a value"))
        .collect();
    let columns: [(&str, ArrayRef); 3] = [
        ("value", Arc::new(values)),
        (
            "partition",
            Arc::new(Int32Array::from(vec![partition; offsets.len()])),
        ),
        ("offset", Arc::new(Int64Array::from(offsets.to_vec()))),
    ];
    RecordBatch::try_from_iter(columns).unwrap()
}

fn offsets(cluster: &FakeCluster, partition: i32) -> Vec<i64> {
    cluster
        .state()
        .offsets
        .get(&partition)
        .cloned()
        .unwrap_or_default()
}

#[test]
fn rows_get_their_offsets_in_the_order_of_their_batches() {
    let cluster = FakeCluster::start(2, 3, |_, _| Reply::Serve);
    cluster.state().log_ends.insert(1, 40);
    let mut producer = Producer::open(options(&cluster)).unwrap();
    // Several batches; one is halved.
    let first: Vec<i64> = (0..100).map(|at| 3 * at).collect();
    let second = [50, 51, 1 << 40, (1 << 40) + 7];
    producer.follow(TOPIC, 0, 0).unwrap();
    producer.follow(TOPIC, 1, 40).unwrap();
    cluster.state().batch_bytes_max = 300;
    producer.send(&rows(0, &first)).unwrap();
    producer.send(&rows(1, &second)).unwrap();
    producer.flush().unwrap();
    assert_eq!(offsets(&cluster, 0), first);
    assert_eq!(offsets(&cluster, 1), second);
    producer.send(&rows(0, &[300])).unwrap();
    producer.flush().unwrap();
    assert_eq!(cluster.state().log_ends[&0], 301);
    let asked = &cluster.state().requests;
    assert!(!asked.contains_key(&key::INIT_PRODUCER_ID) && !asked.contains_key(&key::PRODUCE));
}

#[test]
fn a_log_that_ends_elsewhere_is_told() {
    let cluster = FakeCluster::start(1, 1, |_, _| Reply::Serve);
    let mut producer = Producer::open(options(&cluster)).unwrap();
    producer.follow(TOPIC, 0, 0).unwrap();
    cluster.state().log_ends.insert(0, 1);
    producer.send(&rows(0, &[0, 1])).unwrap();
    let error = producer.flush().unwrap_err();
    assert_eq!(error.kind, ErrorKind::Elsewhere, "{error}");
    assert_eq!(offsets(&cluster, 0), [0_i64; 0]);
}

#[test]
fn a_batch_whose_answer_is_lost_is_not_there_twice() {
    // The first request of ProduceAt asks whether the broker has it.
    let cluster = FakeCluster::start(1, 1, |api, number| match (api, number) {
        (key::PRODUCE_AT, 1) => Reply::Lose,
        _ => Reply::Serve,
    });
    let mut producer = Producer::open(options(&cluster)).unwrap();
    producer.follow(TOPIC, 0, 0).unwrap();
    producer.send(&rows(0, &[0, 1])).unwrap();
    let error = producer.flush().unwrap_err();
    assert_eq!(error.kind, ErrorKind::Elsewhere, "{error}");
    assert_eq!(offsets(&cluster, 0), [0, 1]);
}

#[test]
fn passing_errors_are_waited_for() {
    for code in [
        ErrorCode::NOT_LEADER_OR_FOLLOWER,
        ErrorCode::NOT_ENOUGH_REPLICAS,
        ErrorCode::REQUEST_TIMED_OUT,
    ] {
        let cluster = FakeCluster::start(1, 1, move |api, number| match (api, number) {
            (key::PRODUCE_AT, 1 | 2) => Reply::Error(code),
            _ => Reply::Serve,
        });
        let mut producer = Producer::open(options(&cluster)).unwrap();
        producer.follow(TOPIC, 0, 0).unwrap();
        producer.send(&rows(0, &[5])).unwrap();
        producer.flush().unwrap();
        assert_eq!(offsets(&cluster, 0), [5], "{code}");
    }
}

#[test]
fn brokers_that_do_not_know_the_api_are_named() {
    let cluster = FakeCluster::start(1, 1, |api, _| match api {
        key::PRODUCE_AT => Reply::Close,
        _ => Reply::Serve,
    });
    let error = Producer::open(options(&cluster)).unwrap_err();
    assert_eq!(error.kind, ErrorKind::Unsupported);
    assert!(
        error
            .text
            .contains("does not take records at offsets of their own"),
        "{error}"
    );
    assert_eq!(cluster.state().requests[&key::PRODUCE_AT], 2);
}

#[test]
fn a_broker_that_hangs_up_once_is_asked_again() {
    let cluster = FakeCluster::start(1, 1, |api, number| match (api, number) {
        (key::PRODUCE_AT, 0) => Reply::Close,
        _ => Reply::Serve,
    });
    assert!(Producer::open(options(&cluster)).is_ok());
}

#[test]
fn rows_that_go_back_or_have_no_place_are_refused() {
    let cluster = FakeCluster::start(1, 2, |_, _| Reply::Serve);
    let open = || {
        let mut producer = Producer::open(options(&cluster)).unwrap();
        producer.follow(TOPIC, 0, 10).unwrap();
        producer
    };
    for (partition, some) in [(0, &[9][..]), (0, &[10, 10]), (0, &[12, 11]), (1, &[0])] {
        let error = open().send(&rows(partition, some)).unwrap_err();
        assert_eq!(error.kind, ErrorKind::Argument, "{some:?}");
    }
    let transactional = ProduceOptions {
        transactional_id: Some("id".into()),
        ..options(&cluster)
    };
    assert_eq!(
        Producer::open(transactional).unwrap_err().kind,
        ErrorKind::Argument
    );
}
