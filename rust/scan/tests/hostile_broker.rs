//! Brokers that break the protocol or want too much memory.

mod common;

use std::time::{Duration, Instant};

use common::{FakeBroker, Reply, batch, read, start};
use pyrklog_scan::{ErrorKind, Position, ScanError};
use pyrklog_wire::api::key;

fn failure(reply: impl Fn() -> Reply + Send + 'static) -> ScanError {
    let broker = FakeBroker::start(move |_, _| reply());
    read(broker.options()).unwrap_err()
}

#[test]
fn frames_that_announce_gigabytes_are_refused_unread() {
    let error = failure(|| Reply::Bytes(0x3fff_0000_i32.to_be_bytes().to_vec()));
    assert_eq!(error.kind, ErrorKind::BatchTooLarge);
    assert!(
        error.text.contains("sends 1073676288 bytes at once"),
        "{error}"
    );
}

#[test]
fn other_protocols_are_named() {
    let error = failure(|| Reply::Bytes(b"HTTP/1.1 400 Bad Request\r\n\r\n".to_vec()));
    assert_eq!(error.kind, ErrorKind::Protocol);
    assert!(
        error.text.contains("does not follow Kafka's protocol"),
        "{error}"
    );
}

#[test]
fn answers_that_do_not_fit_the_question_are_refused() {
    let error = failure(|| Reply::Twice);
    assert_eq!(error.kind, ErrorKind::Protocol);
    assert!(
        error.text.ends_with("a partition is answered twice"),
        "{error}"
    );
    let error = failure(|| Reply::Other);
    assert_eq!(error.kind, ErrorKind::Protocol);
    assert!(
        error.text.ends_with("answered that was not asked for"),
        "{error}"
    );
    // Another correlation id.
    let error = failure(|| Reply::Bytes([8_i32, 77, 0].map(i32::to_be_bytes).concat()));
    assert_eq!(error.kind, ErrorKind::Protocol);
    assert!(
        error.text.ends_with("an answer to another request"),
        "{error}"
    );
}

#[test]
fn records_that_are_none_are_refused() {
    let error = failure(|| Reply::Records(vec![0xff; 100]));
    assert_eq!(error.kind, ErrorKind::CorruptBatch);
    let error = failure(|| {
        let mut bad = batch(0, 10, 20, 1);
        bad[70] ^= 1;
        Reply::Records(bad)
    });
    assert_eq!(error.kind, ErrorKind::CorruptBatch);
    assert!(error.text.contains("CRC"), "{error}");
}

#[test]
fn a_broker_that_sends_a_part_of_a_batch_only_is_refused() {
    let error = failure(|| {
        let whole = batch(0, 10, 20, 1);
        Reply::Records(whole[..whole.len() - 1].to_vec())
    });
    assert_eq!(error.kind, ErrorKind::CorruptBatch);
    assert!(error.text.ends_with("a part of a batch only"), "{error}");
}

#[test]
fn brokers_that_are_too_old_are_named() {
    let broker = FakeBroker::start(|_, _| Reply::Log);
    broker.state().ranges.insert(key::FETCH, (0, 3));
    let error = read(broker.options()).unwrap_err();
    assert_eq!(error.kind, ErrorKind::UnsupportedBroker);
    assert!(
        error.text.contains("has no Fetch of version 4 to"),
        "{error}"
    );
}

#[test]
fn brokers_of_every_version_since_0_11_are_read() {
    for (fetch, metadata, offsets, epochs) in [
        (5, 4, 2, 0),
        (8, 7, 3, 2),
        (11, 9, 5, 3),
        (12, 9, 7, 4),
        (17, 12, 9, 4),
    ] {
        let broker = FakeBroker::start(|_, _| Reply::Log);
        {
            let ranges = &mut broker.state().ranges;
            ranges.insert(key::FETCH, (0, fetch));
            ranges.insert(key::METADATA, (0, metadata));
            ranges.insert(key::LIST_OFFSETS, (0, offsets));
            ranges.insert(key::OFFSET_FOR_LEADER_EPOCH, (0, epochs));
        }
        let (offsets, _) = read(broker.options()).unwrap();
        assert_eq!(offsets, (0..100).collect::<Vec<i64>>(), "Fetch {fetch}");
    }
}

#[test]
fn a_batch_larger_than_a_lane_is_read() {
    let broker = FakeBroker::start(|_, _| Reply::Log);
    {
        let mut state = broker.state();
        state.log[9] = (90, batch(90, 10, 2 << 20, 1));
    }
    let (offsets, _) = read(broker.options()).unwrap();
    assert_eq!(offsets, (0..100).collect::<Vec<i64>>());
}

#[test]
fn a_reader_that_is_dropped_ends_its_connections() {
    let broker = FakeBroker::start(|_, _| Reply::Log);
    let mut options = broker.options();
    options.end = Position::Offset {
        offset: 1000,
        leader_epoch: -1,
    };
    let mut reader = start(options).unwrap();
    assert!(reader.next_batch().unwrap().is_some());
    assert!(broker.state().connections > 0);
    drop(reader);
    let until = Instant::now() + Duration::from_secs(20);
    while broker.state().connections > 0 {
        assert!(Instant::now() < until, "connections are left");
        std::thread::sleep(Duration::from_millis(5));
    }
}

#[test]
fn an_interrupt_ends_the_wait() {
    let broker = FakeBroker::start(|_, _| Reply::Silence);
    let plan = pyrklog_scan::plan(broker.options(), pyrklog_client::Cancel::new().unwrap());
    let interrupt = Box::new(|| true);
    let mut reader = pyrklog_scan::ScanReader::start(plan.unwrap(), Some(interrupt)).unwrap();
    assert_eq!(
        reader.next_batch().unwrap_err().kind,
        ErrorKind::Interrupted
    );
    assert_eq!(
        reader.next_batch().unwrap_err().kind,
        ErrorKind::Interrupted
    );
}
