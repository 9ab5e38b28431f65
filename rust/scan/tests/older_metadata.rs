//! Brokers whose metadata is older than what was read.

mod common;

use std::sync::Arc;
use std::time::{Duration, Instant};

use common::{FakeBroker, Reply, TOPIC, batch, offsets_of, read, start};
use pyrklog_client::Cancel;
use pyrklog_scan::{
    ErrorKind, Position, ScanError, ScanOptions, ScanReader, TopicPartitions, plan,
};
use pyrklog_wire::ErrorCode;
use pyrklog_wire::api::key;

fn all(from: i64, to: i64) -> Vec<i64> {
    (from..to).collect()
}

fn at(offset: i64, leader_epoch: i32) -> Position {
    Position::Offset {
        offset,
        leader_epoch,
    }
}

/// One batch of epoch 5 an answer.
fn piecewise(offset: i64) -> Reply {
    Reply::Records(batch(offset / 10 * 10, 10, 20, 5))
}

/// It names broker 1 as the leader, with epoch 4, as broker 1 does before it is cut off.
fn cut_off(old: &FakeBroker) {
    let mut state = old.state();
    (state.leaders, state.leader_epoch) = (vec![1], 4);
    state.epoch_end = (-1, -1);
}

/// Broker 1, which led in epoch 4 and is asked first, and broker 2, which leads in epoch 5 and says
/// so. Broker 1 knows that, until the fifth Fetch of broker 2.
fn old_and_new() -> (Arc<FakeBroker>, FakeBroker) {
    let old = Arc::new(FakeBroker::start(|_, _| Reply::Log));
    let other = Arc::clone(&old);
    let new = FakeBroker::start(move |number, offset| match number {
        5 => {
            cut_off(&other);
            Reply::Error(ErrorCode::KAFKA_STORAGE_ERROR)
        }
        _ => piecewise(offset),
    });
    new.state().id = 2;
    for (broker, another) in [(&*old, (2, new.port)), (&new, (1, old.port))] {
        let mut state = broker.state();
        (state.others, state.leaders) = (vec![another], vec![2]);
        (state.leader_epoch, state.epoch_end) = (5, (5, 100));
    }
    (old, new)
}

#[test]
fn a_scan_does_not_go_back_to_an_older_leader() {
    let (old, _new) = old_and_new();
    let mut options = old.options();
    (options.start, options.end) = (at(0, -1), at(100, -1));
    let (offsets, status) = read(options).unwrap();
    assert_eq!(offsets, all(0, 100));
    assert_eq!(status.progress()[0].leader_epoch, 5);
    assert_eq!(old.state().fetches, 0, "the old leader was read from");
}

#[test]
fn a_start_in_a_newer_epoch_than_the_metadata_is_no_truncation() {
    let (old, _new) = old_and_new();
    cut_off(&old);
    let mut options = old.options();
    (options.start, options.end) = (at(50, 5), at(100, -1));
    assert_eq!(read(options).unwrap().0, all(50, 100));
    assert_eq!(old.state().fetches, 0, "the old leader was read from");
}

/// Of a topic without an id, which was read up to 50 in epoch 5 and is in epoch 0 then.
fn read_what_was_created_anew(is_within: bool, others: Vec<(i32, u16)>) -> (Vec<i64>, ScanError) {
    let broker = FakeBroker::start(move |number, offset| match (number, is_within) {
        (0..5, true) => piecewise(offset),
        (5, true) => Reply::Fenced(0),
        _ => panic!("it is read on"),
    });
    {
        let mut state = broker.state();
        (state.topic_id, state.others) = (Some([0; 16]), others);
        state.leader_epoch = if is_within { 5 } else { 0 };
        state.epoch_end = (-1, -1);
    }
    let start_at = if is_within { at(0, -1) } else { at(50, 5) };
    let options = ScanOptions {
        start: start_at,
        end: at(100, -1),
        timeout: Duration::from_secs(6),
        ..broker.options()
    };
    let mut reader = start(options).unwrap();
    let mut offsets = Vec::new();
    loop {
        match reader.next_batch() {
            Ok(batch) => offsets.extend(offsets_of(&batch.expect("no end"))),
            Err(error) => return (offsets, error),
        }
    }
}

#[test]
fn a_topic_that_was_created_anew_without_an_id_is_noticed() {
    for (is_within, read) in [(true, all(0, 50)), (false, all(0, 0))] {
        let (offsets, error) = read_what_was_created_anew(is_within, Vec::new());
        assert_eq!((error.kind, offsets), (ErrorKind::LogTruncated, read));
        let text = "partition t-0 was truncated or created anew: it was to be read on at offset 50 \
                    in leader epoch 5 or a later one, and all brokers name 0";
        assert_eq!(error.text, text);
    }
}

/// A stream's look for truncations has five seconds.
#[test]
fn many_brokers_are_asked_in_time_whether_a_topic_was_created_anew() {
    let brokers: Vec<FakeBroker> = (0..12)
        .map(|_| FakeBroker::start(|_, _| panic!("it is read")))
        .collect();
    let ports: Vec<u16> = brokers.iter().map(|broker| broker.port).collect();
    for (number, broker) in brokers.iter().enumerate() {
        let others = (1..).zip(&ports).filter(|(id, _)| *id != number as i32 + 1);
        let mut state = broker.state();
        state.others = others.map(|(id, port)| (id, *port)).collect();
        (state.id, state.topic_id) = (number as i32 + 1, Some([0; 16]));
        (state.leader_epoch, state.epoch_end) = (0, (-1, -1));
    }
    let options = ScanOptions {
        start: at(50, 5),
        end: at(51, -1),
        timeout: Duration::from_secs(5),
        ..brokers[0].options()
    };
    assert_eq!(read(options).unwrap_err().kind, ErrorKind::LogTruncated);
}

#[test]
fn a_broker_that_is_away_may_know_better() {
    // Nobody listens on port 1.
    let (offsets, error) = read_what_was_created_anew(true, vec![(2, 1)]);
    assert_eq!(offsets, all(0, 50));
    assert_eq!(error.kind, ErrorKind::LeaderNotAvailable);
    let reason = "the metadata is out of date: it has leader epoch 0, 5 is known";
    assert!(error.text.contains(reason), "{error}");
}

#[test]
fn a_new_epoch_of_brokers_that_cannot_be_asked_about_it_is_read_on_in() {
    let broker = FakeBroker::start(|number, offset| match number {
        5 => Reply::Fenced(6),
        _ => piecewise(offset),
    });
    {
        let mut state = broker.state();
        (state.leader_epoch, state.is_fencing) = (5, true);
        // As Kafka 2.1.
        state.ranges.insert(key::OFFSET_FOR_LEADER_EPOCH, (0, 2));
    }
    let mut options = broker.options();
    options.timeout = Duration::from_secs(3);
    assert_eq!(read(options).unwrap().0, all(0, 100));
}

/// Broker 1 is cut off after the first Fetch, and knows the topic as it was before, or not at all.
#[test]
fn one_broker_does_not_decide_that_a_topic_was_deleted() {
    for id in [None, Some([2; 16])] {
        let leader = FakeBroker::start(|number, offset| match number {
            1 => Reply::Error(ErrorCode::KAFKA_STORAGE_ERROR),
            _ => piecewise(offset),
        });
        let cut_off = FakeBroker::start(|_, _| panic!("the old leader is read"));
        for (broker, another) in [(&leader, (1, cut_off.port)), (&cut_off, (2, leader.port))] {
            let mut state = broker.state();
            (state.others, state.leaders) = (vec![another], vec![2]);
        }
        leader.state().id = 2;
        let mut options = cut_off.options();
        options.start = at(0, -1);
        options.end = at(100, -1);
        let plan = plan(options, Cancel::new().unwrap()).unwrap();
        cut_off.state().topic_id = id;
        let mut reader = ScanReader::start(plan, None, None).unwrap();
        let mut offsets = Vec::new();
        while let Some(batch) = reader.next_batch().unwrap() {
            offsets.extend(offsets_of(&batch));
        }
        assert_eq!(offsets, all(0, 100));
    }
}

/// Nobody listens on port 1: that broker may know the topic.
#[test]
fn a_broker_that_is_away_may_know_a_topic_that_the_others_do_not() {
    let broker = FakeBroker::start(|_, _| Reply::Error(ErrorCode::UNKNOWN_TOPIC_ID));
    broker.state().others = vec![(2, 1)];
    let mut options = broker.options();
    options.timeout = Duration::from_secs(5);
    let mut reader = start(options).unwrap();
    broker.state().topic_id = Some([2; 16]);
    let error = reader.next_batch().unwrap_err();
    assert_eq!(error.kind, ErrorKind::LeaderNotAvailable);
    assert!(error.text.contains("another topic of that name"), "{error}");
}

/// Broker 1, which is asked first, and broker 2, which leads all partitions.
fn two_brokers() -> (FakeBroker, FakeBroker) {
    let first = FakeBroker::start(|_, _| panic!("it is read"));
    let leader = FakeBroker::start(|_, offset| piecewise(offset));
    leader.state().id = 2;
    for (broker, another) in [(&first, (2, leader.port)), (&leader, (1, first.port))] {
        let mut state = broker.state();
        (state.others, state.leaders) = (vec![another], vec![2, 2]);
    }
    (first, leader)
}

fn of_partition(broker: &FakeBroker, partition: i32) -> ScanOptions {
    ScanOptions {
        topics: vec![TopicPartitions {
            topic: TOPIC.into(),
            partitions: Some(vec![partition]),
        }],
        ..broker.options()
    }
}

#[test]
fn a_plan_does_not_believe_one_broker_that_does_not_know_the_topic() {
    let (blind, _leader) = two_brokers();
    blind.state().topic_id = None;
    assert_eq!(read(of_partition(&blind, 1)).unwrap().0, all(0, 100));
}

#[test]
fn a_plan_does_not_believe_one_broker_that_does_not_know_a_partition() {
    let (blind, _leader) = two_brokers();
    blind.state().leaders = vec![2];
    assert_eq!(read(of_partition(&blind, 1)).unwrap().0, all(0, 100));
    let mut options = blind.options();
    options.starts.insert((TOPIC.into(), 1), at(90, -1));
    assert_eq!(read(options).unwrap().0.len(), 110);
}

#[test]
fn a_plan_does_not_believe_one_broker_that_knows_the_topic_before() {
    let (blind, leader) = two_brokers();
    blind.state().topic_id = Some([2; 16]);
    let mut options = of_partition(&blind, 1);
    options.topic_ids.insert(TOPIC.into(), [1; 16]);
    assert_eq!(read(options.clone()).unwrap().0, all(0, 100));
    // Of brokers before Kafka 2.8 any is that topic.
    for broker in [&blind, &leader] {
        broker.state().topic_id = Some([0; 16]);
    }
    assert_eq!(read(options.clone()).unwrap().0, all(0, 100));
    for broker in [&blind, &leader] {
        broker.state().topic_id = Some([2; 16]);
    }
    let error = read(options).unwrap_err();
    assert_eq!(error.kind, ErrorKind::TopicDeleted);
    assert!(error.text.contains("it has another id"), "{error}");
}

#[test]
fn a_plan_believes_all_brokers_within_a_second_or_two() {
    let (first, second) = two_brokers();
    let begin = Instant::now();
    let error = read(of_partition(&first, 7)).unwrap_err();
    assert_eq!(error.kind, ErrorKind::UnknownTopic);
    assert_eq!(error.text, "topic t has no partition 7, but 2 of them");
    (first.state().topic_id, second.state().topic_id) = (None, None);
    let error = read(of_partition(&first, 0)).unwrap_err();
    assert_eq!(error.kind, ErrorKind::UnknownTopic);
    assert_eq!(error.text, "topic t does not exist");
    assert!(begin.elapsed() < Duration::from_secs(5));
}

/// Nobody listens on port 1: that broker may know the topic.
#[test]
fn a_plan_waits_for_a_broker_that_is_away() {
    let broker = FakeBroker::start(|_, _| panic!("it is read"));
    (broker.state().topic_id, broker.state().others) = (None, vec![(2, 1)]);
    let mut options = broker.options();
    options.timeout = Duration::from_secs(2);
    let error = read(options).unwrap_err();
    assert_eq!(error.kind, ErrorKind::LeaderNotAvailable);
    let text = "topic t does not exist; not all brokers have said so";
    assert_eq!(error.text, text);
}

#[test]
fn what_all_brokers_lack_is_told_and_not_what_one_does() {
    let (first, _leader) = two_brokers();
    first.state().topic_id = None;
    let mut options = of_partition(&first, 1);
    options.topics.push(TopicPartitions {
        topic: "other".into(),
        partitions: None,
    });
    let error = read(options).unwrap_err();
    assert_eq!(error.text, "topic other does not exist");
}
