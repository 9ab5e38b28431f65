//! Brokers that break the protocol or want too much memory.

mod common;

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use arrow_array::cast::AsArray;
use common::{FakeBroker, Reply, batch, bomb, offsets_of, read, start};
use pyrklog_compression::compress;
use pyrklog_scan::{ErrorKind, Position, ScanError};
use pyrklog_wire::ErrorCode;
use pyrklog_wire::api::key;
use pyrklog_wire::batch::Compression;
use pyrklog_wire::builder::BatchBuilder;

fn failure(reply: impl Fn() -> Reply + Send + 'static) -> ScanError {
    let broker = FakeBroker::start(move |_, _| reply());
    read(broker.options()).unwrap_err()
}

#[test]
fn frames_that_announce_gigabytes_are_refused_unread() {
    let error = failure(|| Reply::Bytes(0x3fff_0000_i32.to_be_bytes().to_vec()));
    assert_eq!(error.kind, ErrorKind::BatchTooLarge);
    assert!(
        error.text.starts_with("partition t-0 at offset 0: broker "),
        "{error}"
    );
    assert!(
        error.text.contains("sends 1073676288 bytes at once"),
        "{error}"
    );
    assert!(error.text.ends_with("(large_bytes is 33554432)"), "{error}");
}

/// A record of a hundred megabytes, which most limits are set for, behind small ones.
#[test]
fn a_record_of_a_hundred_megabytes_is_read_unless_large_bytes_forbids_it() {
    const BYTES: usize = 100_000_000;
    for codec in [Compression::None, Compression::Zstd] {
        let broker = FakeBroker::start(|_, _| Reply::Log);
        let mut builder = BatchBuilder::new().base_offset(90).leader_epoch(1);
        builder.append(1, None, Some(&vec![7; BYTES]));
        builder.skip_offsets(9);
        broker.state().log[9] = (90, built(builder, codec));
        let mut options = broker.options();
        options.large_bytes = 100 << 20;
        let mut reader = start(options).unwrap();
        let mut rows = Vec::new();
        while let Some(batch) = reader.next_batch().unwrap() {
            let values = batch.column_by_name("value").unwrap().as_binary::<i32>();
            let sizes = values.iter().flatten().map(<[u8]>::len);
            rows.extend(offsets_of(&batch).into_iter().zip(sizes));
        }
        let small = (0..90).map(|offset| (offset, 20));
        assert_eq!(rows, small.chain([(90, BYTES)]).collect::<Vec<_>>());
        let mut options = broker.options();
        options.large_bytes = 64 << 20;
        let error = read(options).unwrap_err();
        assert_eq!(error.kind, ErrorKind::BatchTooLarge);
        let of_offset_90 = error.text.starts_with("partition t-0 at offset 90: ");
        assert!(
            of_offset_90 && error.text.contains("large_bytes"),
            "{error}"
        );
    }
}

fn built(builder: BatchBuilder, codec: Compression) -> Vec<u8> {
    if codec == Compression::None {
        return builder.build();
    }
    builder.build_compressed(codec, |records| {
        let mut out = Vec::new();
        compress(codec, records, &mut out).unwrap();
        out
    })
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
fn answers_about_more_than_was_asked_are_refused() {
    let broker = FakeBroker::start(|_, _| panic!("a Fetch"));
    broker.state().more_partitions = 1;
    let error = read(broker.options()).unwrap_err();
    assert_eq!(error.kind, ErrorKind::Protocol);
    assert!(error.text.contains("more than 2"), "{error}");
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
fn offsets_that_go_backwards_are_refused() {
    let error = failure(|| Reply::Records([batch(10, 10, 20, 1), batch(0, 10, 20, 1)].concat()));
    assert_eq!(error.kind, ErrorKind::CorruptBatch);
    let text = "partition t-0 at offset 0: the offsets of batches do not rise";
    assert_eq!(error.text, text);
}

#[test]
fn a_log_without_an_end_is_refused() {
    let broker = FakeBroker::start(|_, _| Reply::Log);
    broker.state().high_watermark = -1;
    let error = read(broker.options()).unwrap_err();
    assert_eq!(error.kind, ErrorKind::Protocol);
    let text = "the leader of partition t-0 answers with offset -1";
    assert_eq!(error.text, text);
}

/// Of a reader in some rack, with a second broker that is the first one.
fn with_replica(reply: impl FnMut(usize, i64) -> Reply + Send + 'static) -> (usize, ScanError) {
    let broker = FakeBroker::start(reply);
    broker.state().others = vec![(2, 0)];
    let mut options = broker.options();
    options.rack = "a".into();
    options.timeout = Duration::from_secs(1);
    let error = read(options).unwrap_err();
    (broker.state().fetches, error)
}

#[test]
fn leaders_and_replicas_that_send_a_reader_to_and_fro_end_the_scan() {
    for (refusal, reason) in [
        (
            ErrorCode::OFFSET_OUT_OF_RANGE,
            "replica 2 refused the offset",
        ),
        (ErrorCode::NOT_LEADER_OR_FOLLOWER, "NOT_LEADER_OR_FOLLOWER"),
    ] {
        let (fetches, error) = with_replica(move |number, _| match number % 2 {
            0 => Reply::Preferred(2),
            _ => Reply::Error(refusal),
        });
        assert_eq!(error.kind, ErrorKind::LeaderNotAvailable);
        assert!(error.text.contains(reason), "{error}");
        assert!(fetches < 50, "{fetches}");
    }
    // A replica that does not exist.
    let (fetches, error) = with_replica(|_, _| Reply::Preferred(7));
    assert_eq!(error.kind, ErrorKind::LeaderNotAvailable);
    assert!(error.text.contains("names replica 7"), "{error}");
    assert!(fetches < 50, "{fetches}");
}

#[test]
fn a_replica_is_read_as_its_leader_says() {
    let broker = FakeBroker::start(|number, _| match number {
        0 => Reply::Preferred(2),
        _ => Reply::Log,
    });
    broker.state().others = vec![(2, 0)];
    let (offsets, _) = read(broker.options()).unwrap();
    assert_eq!(offsets, (0..100).collect::<Vec<i64>>());
}

#[test]
fn a_throttling_is_waited_for_unless_it_never_ends() {
    let broker = FakeBroker::start(|number, _| match number {
        0..3 => Reply::Throttled(20),
        _ => Reply::Log,
    });
    let (offsets, _) = read(broker.options()).unwrap();
    assert_eq!(offsets, (0..100).collect::<Vec<i64>>());
    let broker = FakeBroker::start(|_, _| Reply::Throttled(100));
    let mut options = broker.options();
    options.timeout = Duration::from_secs(1);
    let error = read(options).unwrap_err();
    assert_eq!(error.kind, ErrorKind::LeaderNotAvailable);
    assert!(error.text.contains("says nothing of it"), "{error}");
}

#[test]
fn bombs_of_every_codec_are_refused() {
    for codec in [
        Compression::Gzip,
        Compression::Snappy,
        Compression::Lz4,
        Compression::Zstd,
    ] {
        let broker = FakeBroker::start(move |_, _| Reply::Records(bomb(codec, 8 << 20)));
        let mut options = broker.options();
        options.large_bytes = 4 << 20;
        let error = read(options).unwrap_err();
        assert_eq!(error.kind, ErrorKind::BatchTooLarge, "{codec:?}");
        assert!(
            error.text.starts_with("partition t-0 at offset 0"),
            "{error}"
        );
        // The same is no bomb where so much is allowed.
        let broker = FakeBroker::start(move |_, offset| match offset {
            0 => Reply::Records(bomb(codec, 8 << 20)),
            _ => Reply::Log,
        });
        assert_eq!(read(broker.options()).unwrap().0.len(), 100, "{codec:?}");
    }
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
fn a_large_batch_may_come_slowly_while_no_other_waits() {
    let broker = FakeBroker::start(|_, _| Reply::Log);
    {
        let mut state = broker.state();
        state.log = vec![(0, batch(0, 100, 6400, 1))];
        // About 400 KiB a second.
        state.pieces = 80;
    }
    let mut options = broker.options();
    // For a lane's share of 256 KiB.
    options.threads = 32;
    options.client.request_timeout = Duration::from_millis(300);
    assert_eq!(read(options).unwrap().0, (0..100).collect::<Vec<i64>>());
}

/// Reads partition 1, whose broker sends these records first, beside partition 0, whose broker has
/// begun to send a large frame that takes longer than a test waits.
fn read_beside_a_slow_frame(records: Vec<u8>) {
    let slow = Arc::new(FakeBroker::start(|_, _| Reply::Drip {
        bytes: 20 << 20,
        piece: 4096,
    }));
    let begun = Arc::clone(&slow);
    let other = FakeBroker::start(move |_, offset| {
        while begun.state().dripped < 16 << 10 {
            std::thread::sleep(Duration::from_millis(5));
        }
        match offset {
            0 => Reply::Records(records.clone()),
            _ => Reply::Log,
        }
    });
    other.state().id = 2;
    for (broker, another) in [(&*slow, (2, other.port)), (&other, (1, slow.port))] {
        let mut state = broker.state();
        (state.others, state.leaders) = (vec![another], vec![1, 2]);
    }
    let mut options = slow.options();
    options.client.request_timeout = Duration::from_secs(1);
    let place = |offset| Position::Offset {
        offset,
        leader_epoch: -1,
    };
    (options.start, options.end) = (place(0), place(100));
    let mut reader = start(options).unwrap();
    let mut rows = 0;
    while rows < 100 {
        rows += reader.next_batch().unwrap().expect("more rows").num_rows();
    }
    assert_eq!(reader.status().progress()[1].position, 100);
}

#[test]
fn a_slow_large_frame_makes_way_for_another() {
    read_beside_a_slow_frame(batch(0, 10, 600 << 10, 1));
}

#[test]
fn a_slow_large_frame_does_not_hold_up_an_expansion() {
    read_beside_a_slow_frame(bomb(Compression::Lz4, 8 << 20));
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
fn an_interrupt_ends_a_scan_whose_batches_are_there_already() {
    let many = 1_i64 << 40;
    let broker = FakeBroker::start(|_, offset| Reply::Records(batch(offset, 1000, 20, 1)));
    broker.state().high_watermark = many;
    let plan = pyrklog_scan::plan(broker.options(), pyrklog_client::Cancel::new().unwrap());
    let asked = Arc::new(AtomicUsize::new(0));
    let count = Arc::clone(&asked);
    let interrupt = Box::new(move || count.fetch_add(1, Ordering::SeqCst) >= 2);
    let mut reader = pyrklog_scan::ScanReader::start(plan.unwrap(), None, Some(interrupt)).unwrap();
    let until = Instant::now() + Duration::from_secs(60);
    let mut batches = 0;
    let error = loop {
        assert!(Instant::now() < until, "{batches} batches, and no end");
        match reader.next_batch() {
            Ok(batch) => batches += usize::from(batch.is_some()),
            Err(error) => break error,
        }
    };
    assert_eq!(error.kind, ErrorKind::Interrupted);
    assert!(batches > 0);
}

#[test]
fn an_interrupt_ends_the_wait() {
    let broker = FakeBroker::start(|_, _| Reply::Silence);
    let plan = pyrklog_scan::plan(broker.options(), pyrklog_client::Cancel::new().unwrap());
    let interrupt = Box::new(|| true);
    let mut reader = pyrklog_scan::ScanReader::start(plan.unwrap(), None, Some(interrupt)).unwrap();
    assert_eq!(
        reader.next_batch().unwrap_err().kind,
        ErrorKind::Interrupted
    );
    assert_eq!(
        reader.next_batch().unwrap_err().kind,
        ErrorKind::Interrupted
    );
}
