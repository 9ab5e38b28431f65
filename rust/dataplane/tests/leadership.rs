//! Epochs, followers, the high watermark, and what readers may see of it.

use std::path::Path;

use crate::harness::*;
use pyrklog_dataplane::seam::{LeaderSpec, TicketOutcome, TopicConfig};
use pyrklog_wire::ErrorCode;
use pyrklog_wire::api::key;
use pyrklog_wire::builder::BatchBuilder;
use pyrklog_wire::offset_for_leader_epoch::{
    EpochPartition, EpochRequest, EpochResponse, EpochTopic, NO_REPLICA,
};

fn replicated(leader_epoch: i32) -> LeaderSpec {
    LeaderSpec {
        replicas: vec![1, 2],
        isr: vec![1, 2],
        ..TestPlane::leader_spec("t", 0, leader_epoch)
    }
}

fn follower(offset: i64) -> Ask {
    let mut ask = Ask::one("t", 0, offset);
    ask.replica_id = 2;
    ask.partitions[0].1.current_leader_epoch = 0;
    ask
}

#[test]
fn acks_all_waits_for_the_followers_and_readers_wait_with_it() {
    let dir = tempfile::tempdir().unwrap();
    let mut test = TestPlane::start(dir.path());
    test.describe_topic("t", 1, &topic_config());
    assert_eq!(test.become_leaders(vec![replicated(0)]), [0]);
    let (mut producer, mut replica) = (test.client(), test.client());
    let record = batch(&[b"v"]);
    assert_eq!(producer.produce("t", 0, &record), (ErrorCode::NONE, 0));
    let seen = test.client().fetch_one("t", 0, 0);
    assert_eq!(
        (seen.error, seen.high_watermark, seen.batches()),
        (ErrorCode::NONE, 0, vec![])
    );
    // The follower reads to the log's end.
    assert_eq!(replica.fetch(&follower(0)).partitions[0].batches(), [0]);
    let body = produce_body(PRODUCE_VERSION, -1, 30_000, "t", &[(0, Some(&record))]);
    producer.send(key::PRODUCE, PRODUCE_VERSION, &body);
    let mut consumer = test.client();
    let waiting = Ask::one("t", 0, 0).wait(30_000, 1);
    consumer.send(key::FETCH, waiting.version, &waiting.encode());
    eventually("both waiting", || {
        let waiting = (
            test.statistic("purgatory_produce"),
            test.statistic("purgatory_fetch"),
        );
        (waiting == (1, 1)).then_some(())
    });
    let next = follower(1).wait(30_000, 1);
    assert_eq!(replica.fetch(&next).partitions[0].batches(), [1]);
    let (_, answer) = consumer.receive(key::FETCH, waiting.version);
    assert_eq!(fetched(&answer, &waiting).partitions[0].high_watermark, 1);
    assert_eq!(
        test.statistic("purgatory_produce"),
        1,
        "the second record is not there yet"
    );
    replica.fetch(&follower(2));
    let (_, answer) = producer.receive(key::PRODUCE, PRODUCE_VERSION);
    assert_eq!(produced(&answer, PRODUCE_VERSION), (ErrorCode::NONE, 1));
    assert_eq!(test.client().fetch_one("t", 0, 0).high_watermark, 2);
}

#[test]
fn acks_all_waits_on_in_the_epochs_that_its_leader_stays_one() {
    let dir = tempfile::tempdir().unwrap();
    let mut test = TestPlane::start(dir.path());
    test.describe_topic("t", 1, &topic_config());
    assert_eq!(test.become_leaders(vec![replicated(0)]), [0]);
    let mut producer = test.client();
    let record = batch(&[b"v"]);
    let body = produce_body(PRODUCE_VERSION, -1, 30_000, "t", &[(0, Some(&record))]);
    producer.send(key::PRODUCE, PRODUCE_VERSION, &body);
    let waits = |test: &TestPlane| test.statistic("purgatory_produce") == 1;
    eventually("a waiting produce", || waits(&test).then_some(()));
    assert_eq!(test.become_leaders(vec![replicated(1)]), [0]);
    assert!(waits(&test));
    let mut ask = follower(1);
    ask.partitions[0].1.current_leader_epoch = 1;
    test.client().fetch(&ask);
    let (_, answer) = producer.receive(key::PRODUCE, PRODUCE_VERSION);
    assert_eq!(produced(&answer, PRODUCE_VERSION), (ErrorCode::NONE, 0));
}

#[test]
fn follower_with_a_diverging_log_counts_as_empty() {
    let dir = tempfile::tempdir().unwrap();
    let mut test = TestPlane::start(dir.path());
    test.describe_topic("t", 1, &topic_config());
    // Broker 1 has led in epoch 0, another one in epoch 1, and now it leads in epoch 2.
    assert_eq!(
        test.become_leaders(vec![TestPlane::leader_spec("t", 0, 0)]),
        [0]
    );
    let (mut producer, mut replica) = (test.client(), test.client());
    producer.produce("t", 0, &batch(&[b"a"]));
    assert_eq!(test.become_leaders(vec![replicated(2)]), [0]);
    producer.produce("t", 0, &batch(&[b"b"]));
    let ask = |offset: i64, last_epoch: i32| {
        let mut ask = follower(offset);
        ask.partitions[0].1.current_leader_epoch = 2;
        ask.partitions[0].1.last_fetched_epoch = last_epoch;
        ask
    };
    let high_watermark = |test: &TestPlane| test.client().fetch_one("t", 0, 0).high_watermark;
    for offset in [2, 3, 100] {
        replica.fetch(&ask(offset, 1));
        assert_eq!(high_watermark(&test), 1, "{offset}");
    }
    // More of epoch 0 than there is.
    replica.fetch(&ask(2, 0));
    assert_eq!(high_watermark(&test), 1);
    replica.fetch(&ask(1, 0));
    replica.fetch(&ask(2, 2));
    assert_eq!(high_watermark(&test), 2);
}

#[test]
fn follower_that_has_fallen_back_does_not_join_the_isr() {
    let dir = tempfile::tempdir().unwrap();
    let mut test = TestPlane::start(dir.path());
    test.describe_topic("t", 1, &topic_config());
    let alone = LeaderSpec {
        isr: vec![1],
        ..replicated(0)
    };
    assert_eq!(test.become_leaders(vec![alone]), [0]);
    let (mut producer, mut replica) = (test.client(), test.client());
    producer.produce("t", 0, &batch(&[b"a"]));
    replica.fetch(&follower(1).wait(0, 1));
    producer.produce("t", 0, &batch(&[b"b"]));
    assert_eq!(test.client().fetch_one("t", 0, 0).high_watermark, 2);
    assert!(
        !test.plane.set_isr("t", 0, 0, &[1, 2], &[1], false),
        "it lacks one"
    );
    producer.produce("t", 0, &batch(&[b"c"]));
    let seen = test.client().fetch_one("t", 0, 0).high_watermark;
    assert_eq!(seen, 3, "it is not waited for");
    replica.fetch(&follower(3).wait(0, 1));
    assert!(test.plane.set_isr("t", 0, 0, &[1, 2], &[1], false));
    producer.produce("t", 0, &batch(&[b"d"]));
    assert_eq!(test.client().fetch_one("t", 0, 0).high_watermark, 3);
}

#[test]
fn held_high_watermark_does_not_move() {
    let dir = tempfile::tempdir().unwrap();
    let mut test = TestPlane::start(dir.path());
    // The leader would go on alone; the controller decided by an earlier `min.insync.replicas`.
    test.describe_topic("t", 1, &topic_config());
    let held = LeaderSpec {
        isr: vec![1],
        is_held: true,
        ..replicated(0)
    };
    assert_eq!(test.become_leaders(vec![held.clone()]), [0]);
    let mut producer = test.client();
    producer.produce("t", 0, &batch(&[b"a"]));
    assert_eq!(test.client().fetch_one("t", 0, 0).high_watermark, 0);
    assert!(test.plane.set_isr("t", 0, 0, &[1], &[1], false));
    assert_eq!(test.client().fetch_one("t", 0, 0).high_watermark, 1);
    assert!(test.plane.set_isr("t", 0, 0, &[1], &[1], true));
    producer.produce("t", 0, &batch(&[b"b"]));
    assert_eq!(test.client().fetch_one("t", 0, 0).high_watermark, 1);
    // No replica is eligible any more, which a new epoch tells every broker.
    let released = LeaderSpec {
        leader_epoch: 1,
        is_held: false,
        ..held
    };
    assert_eq!(test.become_leaders(vec![released]), [0]);
    assert_eq!(test.client().fetch_one("t", 0, 0).high_watermark, 2);
}

/// Clients count DUPLICATE_SEQUENCE_NUMBER as an acknowledgement.
#[test]
fn retry_unknown_to_the_snapshot_waits_for_the_followers() {
    let dir = tempfile::tempdir().unwrap();
    let now = std::time::UNIX_EPOCH.elapsed().unwrap();
    let record = |sequence| {
        let mut builder = BatchBuilder::new().producer(9, 0, sequence);
        builder.append(now.as_millis() as i64, None, Some(b"value"));
        builder.build()
    };
    let mut test = TestPlane::start(dir.path());
    test.describe_topic("t", 1, &topic_config());
    assert_eq!(test.become_leaders(vec![replicated(0)]), [0]);
    for sequence in 0..3 {
        let taken = test.client().produce("t", 0, &record(sequence));
        assert_eq!(taken, (ErrorCode::NONE, i64::from(sequence)));
    }
    assert!(test.shutdown());
    // The snapshot of the orderly end names the last batch alone.
    let mut test = TestPlane::start(dir.path());
    test.describe_topic("t", 1, &topic_config());
    assert_eq!(test.become_leaders(vec![replicated(0)]), [0]);
    let mut producer = test.client();
    let mut send = |sequence, acks| {
        let body = produce_body(
            PRODUCE_VERSION,
            acks,
            30_000,
            "t",
            &[(0, Some(&record(sequence)))],
        );
        producer.send(key::PRODUCE, PRODUCE_VERSION, &body);
        let (_, answer) = producer.receive(key::PRODUCE, PRODUCE_VERSION);
        produced(&answer, PRODUCE_VERSION).0
    };
    for sequence in 0..2 {
        let early = send(sequence, -1);
        assert_eq!(early, ErrorCode::NOT_ENOUGH_REPLICAS_AFTER_APPEND);
        assert_eq!(send(sequence, 1), ErrorCode::DUPLICATE_SEQUENCE_NUMBER);
    }
    // The follower has two of the three.
    let mut replica = test.client();
    replica.fetch(&follower(0));
    replica.fetch(&follower(2));
    for sequence in 0..2 {
        let late = send(sequence, -1);
        assert_eq!(late, ErrorCode::DUPLICATE_SEQUENCE_NUMBER);
    }
}

#[test]
fn a_follower_that_stays_away_makes_acks_all_time_out() {
    let dir = tempfile::tempdir().unwrap();
    let mut test = TestPlane::start(dir.path());
    test.describe_topic("t", 1, &topic_config());
    assert_eq!(test.become_leaders(vec![replicated(0)]), [0]);
    let record = batch(&[b"v"]);
    let body = produce_body(PRODUCE_VERSION, -1, 1, "t", &[(0, Some(&record))]);
    let answer = test.client().call(key::PRODUCE, PRODUCE_VERSION, &body);
    assert_eq!(
        produced(&answer, PRODUCE_VERSION),
        (ErrorCode::REQUEST_TIMED_OUT, -1)
    );
    // A smaller ISR releases what it held.
    assert_eq!(
        test.become_leaders(vec![TestPlane::leader_spec("t", 0, 0)]),
        [0]
    );
    assert_eq!(test.client().fetch_one("t", 0, 0).high_watermark, 1);
}

#[test]
fn minimum_counts_no_more_replicas_than_assigned() {
    let dir = tempfile::tempdir().unwrap();
    let mut test = TestPlane::start(dir.path());
    let strict = TopicConfig {
        min_insync_replicas: 2,
        ..topic_config()
    };
    test.describe_topic("t", 1, &strict);
    assert_eq!(test.become_leaders(vec![replicated(0)]), [0]);
    let mut client = test.client();
    let record = batch(&[b"v"]);
    let body = produce_body(PRODUCE_VERSION, -1, 30_000, "t", &[(0, Some(&record))]);
    client.send(key::PRODUCE, PRODUCE_VERSION, &body);
    eventually("a waiting produce", || {
        (test.statistic("purgatory_produce") == 1).then_some(())
    });
    let alone = LeaderSpec {
        isr: vec![1],
        ..replicated(0)
    };
    assert_eq!(test.become_leaders(vec![alone]), [0]);
    assert_eq!(test.statistic("purgatory_produce"), 1, "one is too few");
    // The follower's replica is given up: one replica is left.
    let without = TestPlane::leader_spec("t", 0, 0);
    assert_eq!(test.become_leaders(vec![without]), [0]);
    let (_, answer) = client.receive(key::PRODUCE, PRODUCE_VERSION);
    assert_eq!(produced(&answer, PRODUCE_VERSION), (ErrorCode::NONE, 0));
    // Two of one replica is one, as with Kafka.
    assert_eq!(client.produce_acks(-1, "t", 0, &record).0, ErrorCode::NONE);
}

#[test]
fn epochs_tell_where_logs_diverge() {
    let dir = tempfile::tempdir().unwrap();
    let mut test = TestPlane::start(dir.path());
    test.create("t", 1);
    let mut client = test.client();
    client.produce("t", 0, &batch(&[b"a", b"b"]));
    assert_eq!(
        test.become_leaders(vec![TestPlane::leader_spec("t", 0, 5)]),
        [0]
    );
    client.produce("t", 0, &batch(&[b"c"]));

    let mut ends = Vec::new();
    for leader_epoch in [0, 2, 5, 9] {
        let wanted = EpochPartition {
            index: 0,
            current_leader_epoch: 5,
            leader_epoch,
        };
        let topics = vec![EpochTopic {
            name: "t",
            partitions: vec![wanted],
        }];
        let mut body = Vec::new();
        EpochRequest {
            replica_id: NO_REPLICA,
            topics,
        }
        .encode(&mut body, 4);
        let answer = client.call(key::OFFSET_FOR_LEADER_EPOCH, 4, &body);
        let response = EpochResponse::decode(&answer, 4).unwrap();
        let found = response.topics[0].partitions[0];
        assert_eq!(found.error_code, ErrorCode::NONE);
        ends.push((found.leader_epoch, found.end_offset));
    }
    assert_eq!(ends, [(0, 2), (0, 2), (5, 3), (-1, -1)]);

    let mut diverging = |last_fetched_epoch, offset| {
        let mut ask = Ask::one("t", 0, offset);
        ask.partitions[0].1.last_fetched_epoch = last_fetched_epoch;
        let found = client.fetch(&ask).partitions.remove(0);
        (found.diverging, found.batches())
    };
    assert_eq!(diverging(0, 2), (None, vec![2]));
    assert_eq!(diverging(0, 3), (Some((0, 2)), vec![]));
    assert_eq!(diverging(2, 2), (Some((0, 2)), vec![]));
    assert_eq!(diverging(5, 3), (None, vec![]));
}

/// Copies a folder that Kafka 3.9.1 wrote (two producers' transactions, some aborted).
fn adopt(log_dir: &Path) {
    let fixture =
        Path::new(env!("CARGO_MANIFEST_DIR")).join("../log/tests/fixtures/kafka-3.9.1/adopted-0");
    let folder = log_dir.join("adopted-0");
    std::fs::create_dir_all(&folder).unwrap();
    for entry in std::fs::read_dir(fixture).unwrap() {
        let path = entry.unwrap().path();
        std::fs::copy(&path, folder.join(path.file_name().unwrap())).unwrap();
    }
}

#[test]
fn read_committed_fetch_names_aborted_transactions() {
    let dir = tempfile::tempdir().unwrap();
    adopt(&dir.path().join("logs"));
    let mut test = TestPlane::start(dir.path());
    let found = test.plane.found_partitions();
    assert_eq!((found.len(), found[0].topic.as_str()), (1, "adopted"));
    test.topic_id = found[0].topic_id;
    test.create("adopted", 1);
    let mut client = test.client();
    let mut ask = Ask::one("adopted", 0, 0);
    ask.isolation_level = 1;
    let mut aborted = Vec::new();
    let mut offset = 0;
    while offset < 32 {
        ask.partitions[0].1.fetch_offset = offset;
        let part = client.fetch(&ask).partitions.remove(0);
        assert_eq!((part.error, part.high_watermark), (ErrorCode::NONE, 32));
        assert_eq!(part.last_stable_offset, 32);
        aborted.extend(part.aborted.clone().unwrap());
        let last = part.batches().last().copied().unwrap();
        offset = client_next_offset(&part.records, last);
    }
    let mut first_offsets: Vec<i64> = aborted.iter().map(|(_, first)| *first).collect();
    first_offsets.sort_unstable();
    first_offsets.dedup();
    assert_eq!(first_offsets, [20, 23, 27]);
    // read_uncommitted is told nothing.
    ask.isolation_level = 0;
    ask.partitions[0].1.fetch_offset = 0;
    assert_eq!(client.fetch(&ask).partitions[0].aborted, None);
}

/// The offset after the last whole batch.
fn client_next_offset(records: &[u8], last_base_offset: i64) -> i64 {
    pyrklog_wire::batch::Batches::new(records)
        .map_while(Result::ok)
        .find(|batch| batch.header.base_offset == last_base_offset)
        .map(|batch| batch.header.last_offset() + 1)
        .unwrap()
}

#[test]
fn retention_takes_old_segments_and_moves_the_log_start() {
    let dir = tempfile::tempdir().unwrap();
    let mut config = config(vec![dir.path().join("logs")]);
    config.retention_check_interval_ms = 20;
    let mut test = TestPlane::start_with(config, std::sync::Arc::new(pyrklog_log::RealDisk));
    let mut options = topic_config();
    options.log.segment_bytes = 20_000;
    options.log.retention_ms = -1;
    options.log.retention_bytes = 45_000;
    options.log.file_delete_delay_ms = 30;
    assert_eq!(test.lead("t", 1, &options), [0]);
    let mut client = test.client();
    for _ in 0..30 {
        assert_eq!(
            client.produce("t", 0, &large_batch(5_000)).0,
            ErrorCode::NONE
        );
    }
    let start = eventually("a later log start", || {
        let start = client.list_offset("t", 0, -2).offset;
        // Its end: three segments of three batches are kept.
        (start >= 21).then_some(start)
    });
    assert!(start < 30);
    assert_eq!(
        client.fetch_one("t", 0, start - 1).error,
        ErrorCode::OFFSET_OUT_OF_RANGE
    );
    assert_eq!(client.fetch_one("t", 0, start).batches()[0], start);
    eventually("the files gone", || {
        let names = std::fs::read_dir(dir.path().join("logs/t-0")).unwrap();
        let left = names.filter(|entry| {
            let name = entry.as_ref().unwrap().file_name().into_string().unwrap();
            name.ends_with(".deleted") || name.starts_with("00000000000000000000.")
        });
        (left.count() == 0).then_some(())
    });
}

#[test]
fn many_partitions_open_in_one_go_and_close_in_order() {
    let dir = tempfile::tempdir().unwrap();
    let mut test = TestPlane::start(dir.path());
    test.create("wide", 300);
    let mut client = test.client();
    for index in [0, 150, 299] {
        assert_eq!(
            client.produce("wide", index, &batch(&[b"v"])),
            (ErrorCode::NONE, 0)
        );
    }
    let ticket = test.plane.describe_log_dirs().unwrap();
    let TicketOutcome::LogDirs(dirs) = test.ticket(ticket) else {
        panic!()
    };
    assert_eq!(dirs[0].partitions.len(), 300);
    assert_eq!(dirs[0].partitions.iter().filter(|row| row.2 > 0).count(), 3);
    assert!(dirs[0].total_bytes >= dirs[0].usable_bytes && dirs[0].usable_bytes > 0);
    assert!(test.shutdown());
    let mut test = TestPlane::start(dir.path());
    assert_eq!(test.plane.found_partitions().len(), 300);
    test.create("wide", 300);
    assert_eq!(test.client().fetch_one("wide", 150, 0).batches(), [0]);
}
