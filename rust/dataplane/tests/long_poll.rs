//! Fetches that wait: woken by what they wait for, ended by their time, never lost.

use crate::harness::*;
use pyrklog_wire::ErrorCode;
use pyrklog_wire::api::key;

fn wait_until_purgatory(test: &TestPlane, fetches: u64) {
    eventually("fetches in the purgatory", || {
        (test.statistic("purgatory_fetch") == fetches).then_some(())
    });
}

#[test]
fn a_waiting_fetch_is_woken_by_a_produce() {
    let dir = tempfile::tempdir().unwrap();
    let mut test = TestPlane::start(dir.path());
    test.create("t", 2);
    let (mut consumer, mut producer) = (test.client(), test.client());
    let mut ask = Ask::one("t", 0, 0).wait(60_000, 1);
    ask.partitions.push(("t".into(), partition(1, 0)));
    for round in 0..20 {
        for (_, partition) in &mut ask.partitions {
            partition.fetch_offset = round;
        }
        consumer.send(key::FETCH, ask.version, &ask.encode());
        wait_until_purgatory(&test, 2);
        for index in [1, 0] {
            producer.produce("t", index, &batch(&[b"news"]));
        }
        let (_, body) = consumer.receive(key::FETCH, ask.version);
        let reply = fetched(&body, &ask);
        let batches: Vec<i64> = reply.partitions.iter().flat_map(Fetched::batches).collect();
        assert!(batches.contains(&round), "{reply:?}");
        wait_until_purgatory(&test, 0);
    }
}

#[test]
fn a_fetch_waits_for_min_bytes_over_all_partitions() {
    let dir = tempfile::tempdir().unwrap();
    let mut test = TestPlane::start(dir.path());
    test.create("t", 2);
    let (mut consumer, mut producer) = (test.client(), test.client());
    let record = batch(&[&[7; 1000]]);
    let mut ask = Ask::one("t", 0, 0).wait(60_000, record.len() as i32 * 3);
    ask.partitions.push(("t".into(), partition(1, 0)));
    consumer.send(key::FETCH, ask.version, &ask.encode());
    wait_until_purgatory(&test, 2);
    producer.produce("t", 0, &record);
    producer.produce("t", 1, &record);
    assert!(
        test.statistic("purgatory_fetch") > 0,
        "two of three batches are too few"
    );
    producer.produce("t", 1, &record);
    let (_, body) = consumer.receive(key::FETCH, ask.version);
    let sizes: Vec<usize> = fetched(&body, &ask)
        .partitions
        .iter()
        .map(|part| part.records.len())
        .collect();
    assert_eq!(sizes, [record.len(), record.len() * 2]);
}

#[test]
fn a_fetch_without_news_ends_at_its_time() {
    let dir = tempfile::tempdir().unwrap();
    let mut test = TestPlane::start(dir.path());
    test.create("t", 1);
    let mut client = test.client();
    let ask = Ask::one("t", 0, 0).wait(300, 1);
    client.send(key::FETCH, ask.version, &ask.encode());
    wait_until_purgatory(&test, 1);
    let (_, body) = client.receive(key::FETCH, ask.version);
    let reply = fetched(&body, &ask);
    assert_eq!(reply.partitions[0].error, ErrorCode::NONE);
    assert!(reply.partitions[0].records.is_empty());
    wait_until_purgatory(&test, 0);
}

#[test]
fn errors_and_a_closed_peer_end_the_waiting() {
    let dir = tempfile::tempdir().unwrap();
    let mut test = TestPlane::start(dir.path());
    test.create("t", 1);
    let mut client = test.client();
    let mut ask = Ask::one("t", 0, 0).wait(60_000, 1);
    ask.partitions.push(("missing".into(), partition(0, 0)));
    let reply = client.fetch(&ask);
    assert_eq!(reply.partitions[0].error, ErrorCode::NONE);
    assert_eq!(
        reply.partitions[1].error,
        ErrorCode::UNKNOWN_TOPIC_OR_PARTITION
    );

    let ask = Ask::one("t", 0, 0).wait(60_000, 1);
    let mut gone = test.client();
    gone.send(key::FETCH, ask.version, &ask.encode());
    wait_until_purgatory(&test, 1);
    drop(gone);
    wait_until_purgatory(&test, 0);

    // A deleted topic ends the waiting too.
    client.send(key::FETCH, ask.version, &ask.encode());
    wait_until_purgatory(&test, 1);
    assert_eq!(test.delete("t", 1), [0]);
    let (_, body) = client.receive(key::FETCH, ask.version);
    let error = fetched(&body, &ask).partitions[0].error;
    assert!(
        matches!(
            error,
            ErrorCode::NOT_LEADER_OR_FOLLOWER | ErrorCode::UNKNOWN_TOPIC_OR_PARTITION
        ),
        "{error:?}"
    );
}

#[test]
fn many_waiting_consumers_get_every_record_once() {
    let dir = tempfile::tempdir().unwrap();
    let mut test = TestPlane::start(dir.path());
    test.create("t", 1);
    let consumers: Vec<_> = (0..8)
        .map(|_| {
            let mut client = test.client();
            std::thread::spawn(move || {
                let mut offset = 0;
                while offset < 200 {
                    let reply = client.fetch(&Ask::one("t", 0, offset).wait(10_000, 1));
                    let batches = reply.partitions[0].batches();
                    assert_eq!(batches.first(), Some(&offset), "woken for nothing");
                    offset = batches.last().unwrap() + 1;
                }
            })
        })
        .collect();
    let mut producer = test.client();
    for round in 0..200 {
        assert_eq!(
            producer.produce("t", 0, &batch(&[b"x"])),
            (ErrorCode::NONE, round)
        );
    }
    for consumer in consumers {
        consumer.join().unwrap();
    }
}

#[test]
fn a_peer_that_ends_with_its_request_is_answered_at_once() {
    let dir = tempfile::tempdir().unwrap();
    let mut test = TestPlane::start(dir.path());
    test.create("t", 1);
    let ask = Ask::one("t", 0, 0).wait(600_000, 1);
    for _ in 0..50 {
        let mut client = test.client();
        client.send(key::FETCH, ask.version, &ask.encode());
        client.stream.shutdown(std::net::Shutdown::Write).unwrap();
        let (_, body) = client.receive(key::FETCH, ask.version);
        assert!(fetched(&body, &ask).partitions[0].records.is_empty());
        assert!(client.is_closed());
    }
    wait_until_purgatory(&test, 0);
}

#[test]
fn fetch_waits_for_no_more_than_its_max_bytes() {
    let dir = tempfile::tempdir().unwrap();
    let mut test = TestPlane::start(dir.path());
    test.create("t", 1);
    let mut client = test.client();
    client.produce("t", 0, &large_batch(10_000));
    let hour_ms = 3_600_000;
    let mut ask = Ask::one("t", 0, 0).wait(hour_ms, 1 << 20);
    ask.max_bytes = 5_000;
    assert_eq!(client.fetch(&ask).partitions[0].batches(), [0]);
}

const HOUR_MS: i32 = 3_600_000;

/// A topic whose second batch is in its second segment.
fn small_segments(test: &mut TestPlane) {
    let mut options = topic_config();
    options.log.segment_bytes = 3_000;
    assert_eq!(test.lead("t", 1, &options), [0]);
}

#[test]
fn fetch_does_not_wait_at_the_end_of_a_closed_segment() {
    let dir = tempfile::tempdir().unwrap();
    let mut test = TestPlane::start(dir.path());
    small_segments(&mut test);
    let (mut consumer, mut producer) = (test.client(), test.client());
    let ask = Ask::one("t", 0, 0).wait(HOUR_MS, 1 << 20);
    producer.produce("t", 0, &large_batch(2_000));
    consumer.send(key::FETCH, ask.version, &ask.encode());
    wait_until_purgatory(&test, 1);
    producer.produce("t", 0, &large_batch(2_000));
    let (_, body) = consumer.receive(key::FETCH, ask.version);
    assert_eq!(fetched(&body, &ask).partitions[0].batches(), [0]);
    // Available records are returned at once.
    assert_eq!(consumer.fetch(&ask).partitions[0].batches(), [0]);
    let last = Ask::one("t", 0, 1).wait(HOUR_MS, 1 << 20);
    consumer.send(key::FETCH, last.version, &last.encode());
    wait_until_purgatory(&test, 1);
}

/// It has everything, and the roll alone is nothing to read.
#[test]
fn segment_roll_does_not_wake_a_fetch_at_the_end() {
    let dir = tempfile::tempdir().unwrap();
    let mut test = TestPlane::start(dir.path());
    small_segments(&mut test);
    let (mut consumer, mut producer) = (test.client(), test.client());
    producer.produce("t", 0, &large_batch(2_000));
    let ask = Ask::one("t", 0, 1).wait(HOUR_MS, 3_000);
    consumer.send(key::FETCH, ask.version, &ask.encode());
    wait_until_purgatory(&test, 1);
    producer.produce("t", 0, &large_batch(2_000));
    // It looks, and waits again, until the next roll.
    producer.produce("t", 0, &large_batch(500));
    wait_until_purgatory(&test, 1);
    producer.produce("t", 0, &large_batch(2_000));
    let (_, body) = consumer.receive(key::FETCH, ask.version);
    assert_eq!(fetched(&body, &ask).partitions[0].batches(), [1, 2]);
}

#[test]
fn batch_beyond_max_bytes_counts_towards_min_bytes() {
    let dir = tempfile::tempdir().unwrap();
    let mut test = TestPlane::start(dir.path());
    test.create("t", 2);
    let (mut consumer, mut producer) = (test.client(), test.client());
    let mut ask = Ask::one("t", 0, 0).wait(HOUR_MS, 100_000);
    ask.partitions.push(("t".into(), partition(1, 0)));
    ask.max_bytes = 100_000;
    producer.produce("t", 0, &large_batch(60_000));
    consumer.send(key::FETCH, ask.version, &ask.encode());
    wait_until_purgatory(&test, 2);
    producer.produce("t", 1, &large_batch(70_000));
    let (_, body) = consumer.receive(key::FETCH, ask.version);
    for reply in [fetched(&body, &ask), consumer.fetch(&ask)] {
        let batches: Vec<_> = reply.partitions.iter().map(Fetched::batches).collect();
        assert_eq!(batches, [vec![0], vec![]]);
    }
    // Each partition counts only up to its own limit.
    ask.partitions[1].1.max_bytes = 30_000;
    consumer.send(key::FETCH, ask.version, &ask.encode());
    wait_until_purgatory(&test, 2);
}
