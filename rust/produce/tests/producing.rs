//! A producer and brokers that fail, move, refuse and lie.

mod common;

use std::sync::{Arc, Mutex};
use std::thread;
use std::time::{Duration, Instant};

use arrow_array::{ArrayRef, BinaryArray, Int32Array, RecordBatch};
use common::{FakeCluster, PRODUCER, Reply, TOPIC, expected, rows, write};
use pyrklog_client::Cancel;
use pyrklog_produce::{ErrorKind, Producer, partition_of_key};
use pyrklog_wire::ErrorCode;
use pyrklog_wire::api::key;
use pyrklog_wire::batch::Compression;

const ROWS: usize = 2000;

fn sorted(cluster: &FakeCluster) -> Vec<Vec<u8>> {
    let mut values = cluster.values();
    values.sort();
    values
}

#[test]
fn rows_arrive_once_and_in_order_in_the_partitions_of_their_keys() {
    for codec in [
        Compression::None,
        Compression::Gzip,
        Compression::Snappy,
        Compression::Lz4,
        Compression::Zstd,
    ] {
        let cluster = FakeCluster::start(3, 5, |_, _| Reply::Serve);
        let mut options = cluster.options();
        options.codec = codec;
        let mut producer = Producer::open(options).unwrap();
        assert_eq!(producer.id(), PRODUCER);
        write(&mut producer, ROWS).unwrap();
        assert_eq!(sorted(&cluster), expected(ROWS));
        for (partition, records) in &cluster.state().log {
            let values: Vec<&Vec<u8>> = records.iter().map(|one| &one.1).collect();
            assert!(values.is_sorted());
            let placed = |value: &&Vec<u8>| partition_of_key(value, 5) == *partition as usize;
            assert!(values.iter().all(placed));
        }
        let written = producer.written();
        assert_eq!(written.len(), 5);
        let records: u64 = written.iter().map(|one| one.records).sum();
        assert_eq!(records, ROWS as u64);
        assert!(cluster.state().largest_batch <= 400);
    }
}

#[test]
fn what_has_no_answer_is_sent_again_with_the_same_sequence() {
    let cluster = FakeCluster::start(2, 3, |api, number| match (api, number % 7) {
        (key::PRODUCE, 1 | 3) => Reply::Lose,
        (key::PRODUCE, 5) => Reply::Close,
        _ => Reply::Serve,
    });
    let mut producer = Producer::open(cluster.options()).unwrap();
    write(&mut producer, 600).unwrap();
    assert_eq!(sorted(&cluster), expected(600));
}

#[test]
fn passing_errors_are_waited_for() {
    for code in [
        ErrorCode::NOT_LEADER_OR_FOLLOWER,
        ErrorCode::NOT_ENOUGH_REPLICAS,
        ErrorCode::NOT_ENOUGH_REPLICAS_AFTER_APPEND,
        ErrorCode::REQUEST_TIMED_OUT,
        ErrorCode::KAFKA_STORAGE_ERROR,
        ErrorCode::UNKNOWN_TOPIC_OR_PARTITION,
    ] {
        let cluster = FakeCluster::start(1, 2, move |api, number| match (api, number % 4) {
            (key::PRODUCE, 1) => Reply::Error(code),
            _ => Reply::Serve,
        });
        let mut producer = Producer::open(cluster.options()).unwrap();
        write(&mut producer, 200).unwrap();
        assert_eq!(sorted(&cluster), expected(200));
    }
}

#[test]
fn partitions_of_high_numbers_have_their_turn() {
    let gate = Arc::new(Mutex::new(()));
    let passed = Arc::clone(&gate);
    let cluster = FakeCluster::start(1, 8, move |api, _| {
        if api == key::PRODUCE {
            drop(passed.lock().unwrap());
        }
        Reply::Serve
    });
    let mut options = cluster.options();
    options.columns = vec!["partition".into(), "value".into()];
    options.memory_bytes = 100_000;
    options.request_bytes = options.batch_bytes;
    // Of each partition two batches of two rows: the first of five partitions fill the requests.
    let partitions: Vec<i32> = (0..8).flat_map(|index| [index; 4]).collect();
    let rows = rows_of(&partitions);
    let mut producer = Producer::open(options).unwrap();
    let closed = gate.lock().unwrap();
    producer.send(&rows).unwrap();
    drop(closed);
    producer.flush().unwrap();
    let appended = cluster.state().appended.clone();
    assert_eq!(appended.len(), 16);
    assert_eq!(appended[..8], [0, 1, 2, 3, 4, 5, 6, 7]);
}

/// A row for each of these partitions.
fn rows_of(partitions: &[i32]) -> RecordBatch {
    let values = BinaryArray::from_iter_values(partitions.iter().map(|_| [7; 100]));
    let partitions: ArrayRef = Arc::new(Int32Array::from(partitions.to_vec()));
    let columns = [("partition", partitions), ("value", Arc::new(values) as _)];
    RecordBatch::try_from_iter(columns).unwrap()
}

#[test]
fn a_partition_that_was_added_is_found() {
    let cluster = FakeCluster::start(1, 1, |_, _| Reply::Serve);
    let mut options = cluster.options();
    options.columns = vec!["partition".into(), "value".into()];
    let mut producer = Producer::open(options).unwrap();
    producer.send(&rows_of(&[0])).unwrap();
    cluster.state().leaders = vec![0, 0, 0];
    producer.send(&rows_of(&[2, 0])).unwrap();
    producer.flush().unwrap();
    assert_eq!(cluster.values().len(), 3);
    let error = producer.send(&rows_of(&[3])).unwrap_err();
    assert_eq!(error.kind, ErrorKind::Argument);
    let text = "a row is for partition 3 of topic t, which has 3";
    assert_eq!(error.text, text);
}

#[test]
fn a_leader_that_moves_is_followed() {
    let cluster = FakeCluster::start(3, 1, |_, _| Reply::Serve);
    let mut producer = Producer::open(cluster.options()).unwrap();
    for leader in [1, 2, 0, 1] {
        cluster.state().leaders = vec![leader];
        let before = cluster.state().log.get(&0).map_or(0, Vec::len);
        producer.send(&rows(before..before + 50, true)).unwrap();
        producer.flush().unwrap();
    }
    assert_eq!(sorted(&cluster), expected(200));
}

#[test]
fn a_partition_without_a_leader_is_waited_for_and_told() {
    let cluster = FakeCluster::start(1, 1, |_, _| Reply::Serve);
    cluster.state().leaders = vec![-1];
    let mut options = cluster.options();
    options.delivery_timeout = Duration::from_millis(300);
    let error = write(&mut Producer::open(options).unwrap(), 10).unwrap_err();
    assert_eq!(error.kind, ErrorKind::Unavailable);
    assert!(
        error
            .text
            .starts_with("partition 0 of topic t was not written within 0.3 s: it has no"),
        "{error}"
    );
}

#[test]
fn a_broker_that_does_not_answer_is_given_up() {
    let cluster = FakeCluster::start(1, 1, |api, _| match api {
        key::PRODUCE => Reply::Silence,
        _ => Reply::Serve,
    });
    let mut options = cluster.options();
    options.client.request_timeout = Duration::from_millis(200);
    options.delivery_timeout = Duration::from_millis(500);
    let error = write(&mut Producer::open(options).unwrap(), 10).unwrap_err();
    assert_eq!(error.kind, ErrorKind::Unavailable);
    assert!(error.text.contains("no answer to Produce"), "{error}");
}

/// Whatever it is that they do instead: the task of a sink must not hang.
#[test]
fn a_flush_ends_in_time_where_nothing_is_taken() {
    let few_replicas = Reply::Error(ErrorCode::NOT_ENOUGH_REPLICAS);
    for (api, reply) in [
        (key::PRODUCE, Reply::Silence),
        (key::PRODUCE, Reply::Close),
        (key::PRODUCE, Reply::Lose),
        (key::PRODUCE, few_replicas),
        (
            key::PRODUCE,
            Reply::Error(ErrorCode::NOT_LEADER_OR_FOLLOWER),
        ),
        (key::ADD_PARTITIONS_TO_TXN, Reply::Silence),
        (key::ADD_PARTITIONS_TO_TXN, Reply::Close),
        (key::ADD_PARTITIONS_TO_TXN, few_replicas),
    ] {
        let cluster = FakeCluster::start(2, 8, move |asked, _| match asked == api {
            true => reply,
            false => Reply::Serve,
        });
        let mut options = cluster.options();
        options.client.request_timeout = Duration::from_millis(200);
        options.delivery_timeout = Duration::from_millis(400);
        options.transactional_id = Some("id".into());
        options.memory_bytes = 1 << 20;
        let mut producer = Producer::open(options).unwrap();
        let started = Instant::now();
        // Many batches a partition: they do not fail one after the other.
        let error = write(&mut producer, ROWS).unwrap_err();
        assert_eq!(error.kind, ErrorKind::Unavailable, "{reply:?}: {error}");
        producer.end(false).ok();
        // A second, and much more for a busy machine.
        let took = started.elapsed();
        assert!(took < Duration::from_secs(10), "{reply:?}: {took:?}");
    }
}

#[test]
fn what_the_caller_does_between_two_calls_takes_no_time_from_a_batch() {
    for reply in [
        Reply::Error(ErrorCode::NOT_LEADER_OR_FOLLOWER),
        Reply::Close,
        Reply::Silence,
    ] {
        let cluster = FakeCluster::start(1, 1, move |api, number| match (api, number) {
            (key::PRODUCE, 0) => reply,
            _ => Reply::Serve,
        });
        let mut options = cluster.options();
        options.client.request_timeout = Duration::from_millis(500);
        options.delivery_timeout = Duration::from_secs(2);
        let mut producer = Producer::open(options).unwrap();
        // Full batches, of which the first is on its way.
        producer.send(&rows(0..50, true)).unwrap();
        thread::sleep(Duration::from_millis(2500));
        producer.send(&rows(50..100, true)).unwrap();
        producer.flush().unwrap();
        assert_eq!(sorted(&cluster), expected(100), "{reply:?}");
    }
}

#[test]
fn batches_that_are_too_large_are_halved() {
    let cluster = FakeCluster::start(1, 2, |_, _| Reply::Serve);
    cluster.state().batch_bytes_max = 150;
    let mut producer = Producer::open(cluster.options()).unwrap();
    write(&mut producer, 300).unwrap();
    assert_eq!(sorted(&cluster), expected(300));
    assert!(cluster.state().largest_batch <= 150);
    cluster.state().batch_bytes_max = 50;
    let error = write(&mut producer, 1).unwrap_err();
    assert_eq!(error.kind, ErrorKind::TooLarge);
    let text = " of topic t takes no record so large (max.message.bytes): a record takes ";
    assert!(error.text.contains(text), "{error}");
}

/// Beyond the limits of a batch, a request and the memory: alone, one after the other.
#[test]
fn records_of_a_hundred_megabytes_are_written() {
    for codec in [Compression::None, Compression::Zstd] {
        let cluster = FakeCluster::start(1, 1, |_, _| Reply::Serve);
        let mut options = cluster.options();
        (options.codec, options.columns) = (codec, vec!["value".into()]);
        let mut producer = Producer::open(options).unwrap();
        let sizes = [10, 100_000_000, 20];
        for size in sizes {
            let values = BinaryArray::from_iter_values([vec![7_u8; size]]);
            let columns: [(&str, ArrayRef); 1] = [("value", Arc::new(values))];
            let batch = RecordBatch::try_from_iter(columns).unwrap();
            producer.send(&batch).unwrap();
        }
        producer.flush().unwrap();
        let found: Vec<usize> = cluster.values().iter().map(Vec::len).collect();
        assert_eq!(found, sizes);
    }
}

#[test]
fn a_batch_that_brokers_hang_up_on_is_told_with_its_size() {
    let cluster = FakeCluster::start(1, 1, |api, _| match api {
        key::PRODUCE => Reply::Close,
        _ => Reply::Serve,
    });
    let mut options = cluster.options();
    options.columns = vec!["value".into()];
    options.delivery_timeout = Duration::from_millis(300);
    let values = BinaryArray::from_iter_values([vec![7_u8; 101 << 20]]);
    let columns: [(&str, ArrayRef); 1] = [("value", Arc::new(values))];
    let batch = RecordBatch::try_from_iter(columns).unwrap();
    let mut producer = Producer::open(options).unwrap();
    let error = producer
        .send(&batch)
        .and_then(|()| producer.flush())
        .unwrap_err();
    assert_eq!(error.kind, ErrorKind::Unavailable);
    let hint = "brokers take no longer requests than socket.request.max.bytes";
    assert!(error.text.ends_with(hint), "{error}");
}

#[test]
fn what_is_refused_for_good_is_told() {
    for (code, kind) in [
        (ErrorCode::OUT_OF_ORDER_SEQUENCE_NUMBER, ErrorKind::Refused),
        (ErrorCode::INVALID_PRODUCER_EPOCH, ErrorKind::Fenced),
        (ErrorCode::UNKNOWN_PRODUCER_ID, ErrorKind::Unavailable),
        (
            ErrorCode::TOPIC_AUTHORIZATION_FAILED,
            ErrorKind::NotAuthorized,
        ),
        (ErrorCode::INVALID_RECORD, ErrorKind::Refused),
    ] {
        let cluster = FakeCluster::start(1, 1, move |api, _| match api {
            key::PRODUCE => Reply::Error(code),
            _ => Reply::Serve,
        });
        let error = write(&mut Producer::open(cluster.options()).unwrap(), 1).unwrap_err();
        assert_eq!(error.kind, kind);
        assert_eq!(
            error.text,
            format!("partition 0 of topic {TOPIC} is not written: {code}")
        );
    }
}

#[test]
fn answers_that_do_not_fit_are_refused() {
    for reply in [Reply::Nothing, Reply::Twice] {
        let cluster = FakeCluster::start(1, 1, move |api, _| match api {
            key::PRODUCE => reply,
            _ => Reply::Serve,
        });
        let error = write(&mut Producer::open(cluster.options()).unwrap(), 1).unwrap_err();
        assert_eq!(error.kind, ErrorKind::Protocol, "{error}");
    }
}

#[test]
fn memory_is_bounded_while_a_broker_does_not_answer() {
    let cluster = FakeCluster::start(1, 8, |api, _| match api {
        key::PRODUCE => Reply::Silence,
        _ => Reply::Serve,
    });
    let mut options = cluster.options();
    options.client.request_timeout = Duration::from_millis(300);
    options.delivery_timeout = Duration::from_millis(300);
    let mut producer = Producer::open(options).unwrap();
    let mut sent = 0;
    let error = loop {
        match producer.send(&rows(sent..sent + 10, true)) {
            Ok(()) => sent += 10,
            Err(error) => break error,
        }
    };
    assert_eq!(error.kind, ErrorKind::Unavailable);
    // Of 4000 bytes; a record takes more than 16.
    assert!((10..250).contains(&sent), "{sent} rows");
}

#[test]
fn a_topic_that_does_not_exist_is_told() {
    let cluster = FakeCluster::start(1, 1, |_, _| Reply::Serve);
    cluster.state().topic_error = ErrorCode::UNKNOWN_TOPIC_OR_PARTITION;
    let mut options = cluster.options();
    options.delivery_timeout = Duration::from_millis(200);
    let error = write(&mut Producer::open(options).unwrap(), 1).unwrap_err();
    assert_eq!(error.kind, ErrorKind::UnknownTopic);
    assert_eq!(error.text, "there is no topic t: create it first");
    cluster.state().topic_error = ErrorCode::TOPIC_AUTHORIZATION_FAILED;
    let error = write(&mut Producer::open(cluster.options()).unwrap(), 1).unwrap_err();
    assert_eq!(error.kind, ErrorKind::NotAuthorized);
}

#[test]
fn a_topic_is_found_before_there_is_a_row() {
    let cluster = FakeCluster::start(1, 3, |_, _| Reply::Serve);
    let mut producer = Producer::open(cluster.options()).unwrap();
    producer.find().unwrap();
    cluster.state().topic_error = ErrorCode::UNKNOWN_TOPIC_OR_PARTITION;
    write(&mut producer, 30).unwrap();
    assert_eq!(sorted(&cluster), expected(30));
    let mut options = cluster.options();
    options.delivery_timeout = Duration::from_millis(200);
    let error = Producer::open(options).unwrap().find().unwrap_err();
    assert_eq!(error.text, "there is no topic t: create it first");
}

#[test]
fn a_cancel_ends_a_flush() {
    let cancel = Cancel::new().unwrap();
    let of_broker = cancel.clone();
    let cluster = FakeCluster::start(1, 1, move |api, _| match api {
        key::PRODUCE => {
            of_broker.cancel();
            Reply::Silence
        }
        _ => Reply::Serve,
    });
    let mut options = cluster.options();
    options.client.request_timeout = Duration::from_secs(600);
    options.delivery_timeout = Duration::from_secs(600);
    let mut producer = Producer::open_until(options, cancel).unwrap();
    let error = write(&mut producer, 10).unwrap_err();
    assert_eq!(error.kind, ErrorKind::Resources, "{error}");
}

#[test]
fn kafka_0_11_is_written_to() {
    let cluster = FakeCluster::start(1, 2, |_, _| Reply::Serve);
    cluster.state().ranges = [
        (key::PRODUCE, (0, 3)),
        (key::METADATA, (0, 4)),
        (key::FIND_COORDINATOR, (0, 1)),
        (key::INIT_PRODUCER_ID, (0, 0)),
        (key::ADD_PARTITIONS_TO_TXN, (0, 0)),
        (key::END_TXN, (0, 0)),
    ]
    .into();
    let mut options = cluster.options();
    options.transactional_id = Some("id".into());
    let mut producer = Producer::open(options).unwrap();
    write(&mut producer, 100).unwrap();
    producer.end(true).unwrap();
    assert_eq!(sorted(&cluster), expected(100));
    assert_eq!(cluster.state().ends, [("id".to_owned(), PRODUCER, true)]);
    cluster.state().ranges.insert(key::PRODUCE, (0, 2));
    let error = write(&mut Producer::open(cluster.options()).unwrap(), 1).unwrap_err();
    assert_eq!(error.kind, ErrorKind::Unsupported);
}
