//! Produce and fetch over real sockets: what went in comes out, in order, by every version.

use std::io::Write;
use std::sync::Arc;
use std::time::UNIX_EPOCH;

use crate::harness::*;
use pyrklog_dataplane::seam::{CacheConfig, ReadPath};
use pyrklog_log::{Compression, RealDisk};
use pyrklog_wire::ErrorCode;
use pyrklog_wire::api::key;
use pyrklog_wire::builder::BatchBuilder;
use pyrklog_wire::produce::ProduceResponse;

#[test]
fn produced_records_are_fetched() {
    let dir = tempfile::tempdir().unwrap();
    let mut test = TestPlane::start(dir.path());
    test.create("orders", 3);
    let mut client = test.client();
    for round in 0..5 {
        let values = [
            format!("a{round}").into_bytes(),
            format!("b{round}").into_bytes(),
        ];
        let batch = batch(&[&values[0], &values[1]]);
        assert_eq!(
            client.produce("orders", 1, &batch),
            (ErrorCode::NONE, round * 2)
        );
    }
    let all = client.fetch_one("orders", 1, 0);
    assert_eq!(all.error, ErrorCode::NONE);
    assert_eq!((all.high_watermark, all.log_start_offset), (10, 0));
    assert_eq!(all.batches(), [0, 2, 4, 6, 8]);
    // An offset within a batch gives the batch from its start.
    assert_eq!(client.fetch_one("orders", 1, 3).batches(), [2, 4, 6, 8]);
    assert_eq!(client.fetch_one("orders", 1, 10).batches(), [0i64; 0]);
    assert_eq!(client.fetch_one("orders", 0, 0).batches(), [0i64; 0]);
}

#[test]
fn every_version_of_produce_and_fetch_is_served() {
    let dir = tempfile::tempdir().unwrap();
    let mut test = TestPlane::start(dir.path());
    test.create("t", 1);
    let mut client = test.client();
    for (offset, version) in (3..=12).enumerate() {
        let record = batch(&[b"value"]);
        let body = produce_body(version, -1, 1000, "t", &[(0, Some(&record))]);
        let answer = client.call(key::PRODUCE, version, &body);
        assert_eq!(
            produced(&answer, version),
            (ErrorCode::NONE, offset as i64),
            "v{version}"
        );
    }
    for version in 4..=17 {
        let reply = client.fetch(&Ask::one("t", 0, 4).version(version));
        assert_eq!(reply.error, ErrorCode::NONE, "v{version}");
        assert_eq!(reply.partitions[0].error, ErrorCode::NONE, "v{version}");
        assert_eq!(
            reply.partitions[0].batches(),
            [4, 5, 6, 7, 8, 9],
            "v{version}"
        );
    }
}

#[test]
fn acks_0_gets_no_reply_and_its_error_closes_the_connection() {
    let dir = tempfile::tempdir().unwrap();
    let mut test = TestPlane::start(dir.path());
    test.create("t", 1);
    let mut client = test.client();
    let record = batch(&[b"value"]);
    let body = produce_body(PRODUCE_VERSION, 0, 1000, "t", &[(0, Some(&record))]);
    client.send(key::PRODUCE, PRODUCE_VERSION, &body);
    // The next reply belongs to the next request, so the first had none.
    assert_eq!(client.produce("t", 0, &record), (ErrorCode::NONE, 1));
    let body = produce_body(PRODUCE_VERSION, 0, 1000, "missing", &[(0, Some(&record))]);
    client.send(key::PRODUCE, PRODUCE_VERSION, &body);
    assert!(client.is_closed());
}

#[test]
fn pipelined_requests_are_answered_in_order() {
    let dir = tempfile::tempdir().unwrap();
    let mut test = TestPlane::start(dir.path());
    test.create("t", 2);
    let mut client = test.client();
    let mut bytes = Vec::new();
    let mut expected = Vec::new();
    for round in 0..200 {
        let value = vec![b'v'; round * 7];
        let record = batch(&[&value]);
        let body = produce_body(
            PRODUCE_VERSION,
            1,
            1000,
            "t",
            &[(round as i32 % 2, Some(&record))],
        );
        bytes.extend(client.frame(key::PRODUCE, PRODUCE_VERSION, &body));
        expected.push((client.correlation_id, key::PRODUCE, PRODUCE_VERSION));
        if round % 10 == 0 {
            let ask = Ask::one("t", 0, 0);
            bytes.extend(client.frame(key::FETCH, ask.version, &ask.encode()));
            expected.push((client.correlation_id, key::FETCH, ask.version));
        }
        if round % 17 == 0 {
            bytes.extend(client.frame(key::API_VERSIONS, 0, &[]));
            expected.push((client.correlation_id, key::API_VERSIONS, 0));
        }
    }
    let mut sender = client.stream.try_clone().unwrap();
    let sending = std::thread::spawn(move || {
        // In odd pieces, so that frames are cut everywhere.
        for piece in bytes.chunks(1009) {
            sender.write_all(piece).unwrap();
        }
    });
    let mut offsets = [0, 0];
    let mut seen = 0;
    for (correlation_id, api_key, version) in expected {
        let (received, body) = client.receive(api_key, version);
        assert_eq!(received, correlation_id);
        match api_key {
            key::PRODUCE => {
                let response = ProduceResponse::decode(&body, version).unwrap();
                let partition = &response.topics[0].partitions[0];
                assert_eq!(partition.error_code, ErrorCode::NONE);
                let next = &mut offsets[partition.index as usize];
                assert_eq!(partition.base_offset, *next, "in the order sent");
                *next += 1;
            }
            // A fetch starts when everything before it is acknowledged, and so sees it.
            key::FETCH => {
                let ask = Ask::one("t", 0, 0);
                let reply = fetched(&body, &ask);
                seen = reply.partitions[0].batches().len() as i64;
                assert_eq!(seen, offsets[0]);
            }
            _ => {}
        }
    }
    assert!(seen > 90);
    sending.join().unwrap();
}

#[test]
fn large_frames_grow_their_buffer_and_come_back_whole() {
    let dir = tempfile::tempdir().unwrap();
    let mut options = config(vec![dir.path().join("logs")]);
    // Cached records do not go out by sendfile.
    options.cache = CacheConfig::off();
    let mut test = TestPlane::start_with(options, Arc::new(RealDisk));
    let mut config = topic_config();
    config.log.max_message_bytes = 8 << 20;
    assert_eq!(test.lead("t", 1, &config), [0]);
    let mut client = test.client();
    for (round, size) in [900_000, 5_000_000, 100, 300_000].into_iter().enumerate() {
        let record = large_batch(size);
        assert_eq!(
            client.produce("t", 0, &record),
            (ErrorCode::NONE, round as i64)
        );
        let fetched = client.fetch_one("t", 0, round as i64);
        assert_eq!(
            fetched.records.len(),
            record.len(),
            "whole, though over the limit"
        );
        assert_eq!(fetched.records[61..], record[61..]);
    }
    // The reader counts after it has sent.
    eventually("sendfile of the large ones", || {
        (test.statistic("fetched_bytes.sendfile") > 6_000_000).then_some(())
    });
    assert!(test.statistic("fetched_bytes.inline") > 100);
}

#[test]
fn limits_of_a_fetch_hold_and_the_first_batch_is_whole() {
    let dir = tempfile::tempdir().unwrap();
    let mut test = TestPlane::start(dir.path());
    test.create("t", 3);
    let mut client = test.client();
    let record = large_batch(10_000);
    for index in 0..3 {
        for _ in 0..4 {
            client.produce("t", index, &record);
        }
    }
    let mut ask = Ask::one("t", 0, 0);
    ask.partitions = (0..3)
        .map(|index| ("t".into(), partition(index, 0)))
        .collect();
    for (_, partition) in &mut ask.partitions {
        partition.max_bytes = record.len() as i32 * 2;
    }
    let sizes = |reply: &FetchReply| -> Vec<usize> {
        reply
            .partitions
            .iter()
            .map(|part| part.records.len())
            .collect()
    };
    assert_eq!(sizes(&client.fetch(&ask)), [record.len() * 2; 3]);
    ask.max_bytes = record.len() as i32 * 3;
    assert_eq!(
        sizes(&client.fetch(&ask)),
        [record.len() * 2, record.len(), 0]
    );
    ask.max_bytes = 1;
    assert_eq!(
        sizes(&client.fetch(&ask)),
        [record.len(), 0, 0],
        "the first batch is whole"
    );
}

#[test]
fn requests_behind_a_large_fetch_are_answered_after_it() {
    let dir = tempfile::tempdir().unwrap();
    for read_path in [ReadPath::Auto, ReadPath::Copy] {
        let mut config = config(vec![dir.path().join(format!("{read_path:?}"))]);
        config.fetch_read_path = read_path;
        let mut test = TestPlane::start_with(config, Arc::new(RealDisk));
        test.create("t", 1);
        let mut client = test.client();
        let record = large_batch(900_000);
        client.produce("t", 0, &record);
        let ask = Ask::one("t", 0, 0);
        for round in 0..50 {
            // Several of each at once, while replies far larger than any socket buffer wait.
            let mut bytes = Vec::new();
            for _ in 0..3 {
                bytes.extend(client.frame(key::FETCH, ask.version, &ask.encode()));
                bytes.extend(client.frame(key::API_VERSIONS, 0, &[]));
                let body = produce_body(PRODUCE_VERSION, 1, 1000, "none", &[(0, Some(&record))]);
                bytes.extend(client.frame(key::PRODUCE, PRODUCE_VERSION, &body));
            }
            let first = client.correlation_id - 8;
            let mut sender = client.stream.try_clone().unwrap();
            let sending = std::thread::spawn(move || sender.write_all(&bytes).unwrap());
            for step in 0..3 {
                let (id, body) = client.receive(key::FETCH, ask.version);
                assert_eq!(id, first + step * 3, "round {round}");
                assert_eq!(
                    fetched(&body, &ask).partitions[0].records.len(),
                    record.len()
                );
                assert_eq!(client.receive(key::API_VERSIONS, 0).0, id + 1);
                assert_eq!(client.receive(key::PRODUCE, PRODUCE_VERSION).0, id + 2);
            }
            sending.join().unwrap();
        }
    }
}

/// A producer has two batches under way; the first is refused, so it is sent again, and the second
/// is taken.
#[test]
fn unwritten_batch_is_not_taken_for_a_retry_after_a_restart() {
    let dir = tempfile::tempdir().unwrap();
    // Producers whose last record is old are forgotten.
    let now = UNIX_EPOCH.elapsed().unwrap();
    let record = |sequence| {
        let mut builder = BatchBuilder::new().producer(9, 0, sequence);
        builder.append(now.as_millis() as i64, None, Some(b"value"));
        builder.build()
    };
    let mut test = TestPlane::start(dir.path());
    test.create("t", 1);
    for (offset, sequence) in [(0, 1), (1, 2)] {
        let taken = test.client().produce("t", 0, &record(sequence));
        assert_eq!(taken, (ErrorCode::NONE, offset));
    }
    assert!(test.shutdown());
    let mut test = TestPlane::start(dir.path());
    test.create("t", 1);
    let mut client = test.client();
    let (error, _) = client.produce("t", 0, &record(0));
    assert_eq!(error, ErrorCode::OUT_OF_ORDER_SEQUENCE_NUMBER);
    let (error, _) = client.produce("t", 0, &record(1));
    assert_eq!(error, ErrorCode::DUPLICATE_SEQUENCE_NUMBER);
    assert_eq!(client.produce("t", 0, &record(2)), (ErrorCode::NONE, 1));
    assert_eq!(client.produce("t", 0, &record(3)), (ErrorCode::NONE, 2));
}

/// KIP-110: clients before version 10 do not know the codec.
#[test]
fn topics_that_are_stored_as_zstd_are_refused_to_old_consumers() {
    let dir = tempfile::tempdir().unwrap();
    let mut test = TestPlane::start(dir.path());
    let mut config = topic_config();
    config.log.compression_type = Some(Compression::Zstd);
    test.describe_topic("t", 1, &config);
    test.lead("t", 1, &config);
    let mut client = test.client();
    assert_eq!(
        client.produce("t", 0, &batch(&[b"v"])),
        (ErrorCode::NONE, 0)
    );
    for (version, error) in [
        (4, ErrorCode::UNSUPPORTED_COMPRESSION_TYPE),
        (9, ErrorCode::UNSUPPORTED_COMPRESSION_TYPE),
        (10, ErrorCode::NONE),
        (12, ErrorCode::NONE),
    ] {
        let found = client.fetch(&Ask::one("t", 0, 0).version(version));
        let found = &found.partitions[0];
        assert_eq!(
            (found.error, found.records.is_empty()),
            (error, error != ErrorCode::NONE)
        );
    }
}
