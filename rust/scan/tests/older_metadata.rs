//! Brokers whose metadata is older than what was read.

mod common;

use std::sync::Arc;
use std::time::Duration;

use common::{FakeBroker, Reply, batch, offsets_of, read, start};
use pyrklog_scan::{ErrorKind, Position, ScanError, ScanOptions};
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
