//! Connections move to the thread that serves them best.

use std::io::Write;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use crate::harness::*;
use pyrklog_wire::ErrorCode;
use pyrklog_wire::api::key;

const IN_FLIGHT: usize = 4;

/// Large records: their checksums are the broker's work.
const RECORD_BYTES: usize = 200_000;

#[test]
fn a_consumer_goes_where_its_records_come_in() {
    let dir = tempfile::tempdir().unwrap();
    let mut test = TestPlane::start(dir.path());
    test.create("t", 1);
    let (mut producer, mut consumer) = (test.client(), test.client());
    let mut next = 0;
    eventually("a move", || {
        let ask = Ask::one("t", 0, next).wait(60_000, 1);
        consumer.send(key::FETCH, ask.version, &ask.encode());
        let done = producer.produce("t", 0, &batch(&[b"news"]));
        assert_eq!(done, (ErrorCode::NONE, next));
        let (_, body) = consumer.receive(key::FETCH, ask.version);
        assert_eq!(fetched(&body, &ask).partitions[0].batches(), [next]);
        next += 1;
        (test.statistic("connections_moved") > 0).then_some(())
    });
    let moved = test.statistic("connections_moved");
    for _ in 0..200 {
        producer.produce("t", 0, &batch(&[b"news"]));
        assert_eq!(consumer.fetch_one("t", 0, next).batches(), [next]);
        next += 1;
    }
    assert_eq!(moved, 1, "they have come together");
}

#[test]
fn a_busy_thread_gives_a_connection_away() {
    let dir = tempfile::tempdir().unwrap();
    let mut test = TestPlane::start(dir.path());
    test.create("t", 2);
    // Dealt out in turn: the two busy ones are on one thread, the idle one on the other.
    let (first, _idle, second) = (test.client(), test.client(), test.client());
    let busy = [first, second];
    let is_over = Arc::new(AtomicBool::new(false));
    let workers: Vec<_> = busy
        .into_iter()
        .enumerate()
        .map(|(index, client)| {
            let is_over = Arc::clone(&is_over);
            std::thread::spawn(move || keep_busy(client, index as i32, &is_over))
        })
        .collect();
    eventually("a move", || {
        (test.statistic("connections_moved") > 0).then_some(())
    });
    is_over.store(true, Ordering::Relaxed);
    for (index, worker) in workers.into_iter().enumerate() {
        let produced = worker.join().unwrap();
        let mut client = test.client();
        let end = client.list_offset("t", index as i32, -1).offset;
        assert_eq!(end, produced, "all of it, once");
    }
}

/// Produces until it is over, with little work besides the broker's; returns the number of records.
fn keep_busy(mut client: Client, index: i32, is_over: &AtomicBool) -> i64 {
    let record = large_batch(RECORD_BYTES);
    let body = produce_body(PRODUCE_VERSION, 1, 10_000, "t", &[(index, Some(&record))]);
    let frame = client.frame(key::PRODUCE, PRODUCE_VERSION, &body);
    let mut next = 0;
    for _ in 0..IN_FLIGHT {
        client.stream.write_all(&frame).unwrap();
    }
    let mut under_way = IN_FLIGHT;
    while under_way > 0 {
        let (_, answer) = client.receive(key::PRODUCE, PRODUCE_VERSION);
        assert_eq!(produced(&answer, PRODUCE_VERSION), (ErrorCode::NONE, next));
        next += 1;
        if is_over.load(Ordering::Relaxed) {
            under_way -= 1;
        } else {
            client.stream.write_all(&frame).unwrap();
        }
    }
    next
}
