//! A fetch of a session looks at the partitions that have changed, and misses none of them
//! (reads.md, "Fetch sessions").

mod harness;

use std::sync::Arc;
use std::time::{Duration, Instant};

use harness::*;
use pyrklog_dataplane::seam::{Behind, LeaderSpec, StopSpec, TopicConfig};
use pyrklog_log::Compression;
use pyrklog_log::disk::RealDisk;
use pyrklog_wire::ErrorCode;
use pyrklog_wire::fetch::FetchPartition;

fn stop(test: &mut TestPlane, index: i32) {
    let stop = StopSpec {
        topic: "t".into(),
        partition: index,
        delete: false,
    };
    let ticket = test.plane.stop_partitions(vec![stop]).unwrap();
    test.ticket(ticket);
}

fn delete_records(test: &mut TestPlane, index: i32, up_to: i64) {
    let targets = vec![("t".into(), index, up_to)];
    let ticket = test.plane.delete_records(targets).unwrap();
    test.ticket(ticket);
}

type Cause = fn(&mut TestPlane);

/// What happens to partition 1, and what its reader is told.
const CAUSES: [(&str, Cause, ErrorCode); 4] = [
    (
        "records",
        |test| {
            test.client().produce("t", 1, &batch(&[b"new"]));
        },
        ErrorCode::NONE,
    ),
    (
        "another log start",
        |test| delete_records(test, 1, 1),
        ErrorCode::NONE,
    ),
    (
        "another epoch",
        |test| {
            let codes = test.become_leaders(vec![TestPlane::leader_spec("t", 1, 1)]);
            assert_eq!(codes, [0]);
        },
        ErrorCode::FENCED_LEADER_EPOCH,
    ),
    (
        "a stop",
        |test| stop(test, 1),
        ErrorCode::NOT_LEADER_OR_FOLLOWER,
    ),
];

#[test]
fn next_fetch_reports_every_change_since_the_last() {
    for (what, cause, error) in CAUSES {
        let (_dir, mut test, mut session) = settled(|_| {});
        cause(&mut test);
        assert_eq!(errors(&session.fetch(&[])), [(1, error)], "{what}");
    }
}

#[test]
fn waiting_fetch_reports_every_change() {
    // A moved log start offset is no reason to answer.
    let causes = CAUSES
        .iter()
        .filter(|(what, ..)| *what != "another log start");
    for (what, cause, error) in causes {
        let (_dir, mut test, mut session) = settled(|_| {});
        session.begin_to_wait(&test);
        cause(&mut test);
        assert_eq!(errors(&session.receive()), [(1, *error)], "{what}");
    }
}

#[test]
fn error_is_reported_until_it_ends_and_once_more() {
    let (_dir, mut test, mut session) = settled(|_| {});
    stop(&mut test, 1);
    for _ in 0..3 {
        let told = errors(&session.fetch(&[]));
        assert_eq!(told, [(1, ErrorCode::NOT_LEADER_OR_FOLLOWER)]);
    }
    let codes = test.become_leaders(vec![TestPlane::leader_spec("t", 1, 0)]);
    assert_eq!(codes, [0]);
    assert_eq!(errors(&session.fetch(&[])), [(1, ErrorCode::NONE)]);
    assert!(session.fetch(&[]).is_empty());
}

#[test]
fn a_deleted_topic_is_told_of() {
    let (_dir, mut test, mut session) = settled(|_| {});
    assert_eq!(test.delete("t", 3), [0, 0, 0]);
    let gone = ErrorCode::UNKNOWN_TOPIC_OR_PARTITION;
    let all = [(0, gone), (1, gone), (2, gone)];
    assert_eq!(errors(&session.fetch(&[])), all);
    assert_eq!(errors(&session.fetch(&[])), all);
}

#[test]
fn an_option_that_matters_to_the_client_is_told_of() {
    let (_dir, mut test, mut session) = settled(|ask| ask.version = 9);
    let mut options = topic_config();
    options.log.compression_type = Some(Compression::Zstd);
    test.describe_topic("t", 3, &options);
    let told = errors(&session.fetch(&[]));
    assert_eq!(told.len(), 3);
    assert_eq!(told[0].1, ErrorCode::UNSUPPORTED_COMPRESSION_TYPE);
}

#[test]
fn unchanged_partitions_are_not_reported_after_a_new_image() {
    let (_dir, mut test, mut session) = settled(|_| {});
    test.describe_topic("t", 3, &topic_config());
    assert!(session.fetch(&[]).is_empty());
}

#[test]
fn a_client_that_goes_back_reads_again() {
    let (_dir, _test, mut session) = settled(|_| {});
    let back = session.fetch(&[partition(2, 0)]);
    assert_eq!(found(&back), [(2, vec![0])]);
    // The client has not confirmed them: they are sent again.
    assert_eq!(found(&session.fetch(&[])), [(2, vec![0])]);
    assert_eq!(found(&session.fetch(&[partition(2, 1)])), []);
}

#[test]
fn records_beyond_a_full_response_are_in_the_next() {
    let (_dir, test, mut session) = settled(|ask| ask.max_bytes = 1);
    let mut producer = test.client();
    for index in [2, 0, 1] {
        producer.produce("t", index, &batch(&[b"new"]));
    }
    // One by one, in the session's order, though nothing else happens.
    assert_eq!(found(&session.fetch(&[]))[0], (0, vec![1]));
    producer.produce("t", 0, &batch(&[b"newer"]));
    let next = session.fetch(&[partition(0, 2)]);
    let served = |fetched: &[Fetched]| {
        let with_records = fetched.iter().filter(|one| !one.records.is_empty());
        with_records.map(|one| one.index).collect::<Vec<i32>>()
    };
    assert_eq!(served(&next), [1]);
    assert_eq!(served(&session.fetch(&[partition(1, 2)])), [2]);
    // Partitions that had records come after those that had none.
    assert_eq!(served(&session.fetch(&[partition(2, 2)])), [0]);
}

#[test]
fn append_while_a_fetch_begins_to_wait_is_not_missed() {
    let (_dir, test, mut session) = settled(|_| {});
    let mut producer = test.client();
    for round in 1..500 {
        session.send(&[partition(1, round)], 60_000);
        producer.produce("t", 1, &batch(&[b"new"]));
        assert_eq!(found(&session.receive()), [(1, vec![round])]);
    }
}

/// Broker 1 leads partitions of `t`, with broker 2 in sync.
fn replicated(dir: &std::path::Path, partitions: i32, config: &TopicConfig) -> TestPlane {
    let mut test = TestPlane::start_with(cluster_config(dir, 1), Arc::new(RealDisk));
    test.describe_topic("t", partitions, config);
    let spec = |index| LeaderSpec {
        replicas: BOTH.to_vec(),
        isr: BOTH.to_vec(),
        ..TestPlane::leader_spec("t", index, 0)
    };
    let codes = test.become_leaders((0..partitions).map(spec).collect());
    assert!(codes.iter().all(|code| *code == 0), "{codes:?}");
    test
}

fn as_replica(ask: &mut Ask) {
    ask.replica_id = 2;
}

#[test]
fn fetch_reads_only_changed_ones_of_ten_thousand_partitions() {
    const ALL: i32 = 10_000;
    const ROUNDS: i32 = 20;
    let dir = tempfile::tempdir().unwrap();
    let test = replicated(dir.path(), ALL, &topic_config());
    let wanted: Vec<FetchPartition> = (0..ALL).map(|index| partition(index, 0)).collect();
    let mut replica = SessionClient::open(&test, &wanted, as_replica).0;
    let mut consumer = SessionClient::open(&test, &wanted, |_| {}).0;
    assert!(replica.fetch(&[]).is_empty() && consumer.fetch(&[]).is_empty());
    let looks = test.statistic("fetch_looks");
    let mut producer = test.client();
    for round in 0..ROUNDS {
        let index = 17 + ALL / ROUNDS * round;
        replica.begin_to_wait(&test);
        consumer.send(&[], 60_000);
        producer.produce("t", index, &batch(&[b"new"]));
        assert_eq!(found(&replica.receive()), [(index, vec![0])]);
        // The consumer sees what the replica confirms.
        replica.fetch(&[partition(index, 1)]);
        assert_eq!(found(&consumer.receive()), [(index, vec![0])]);
        consumer.fetch(&[partition(index, 1)]);
    }
    let each = (test.statistic("fetch_looks") - looks) / ROUNDS as u64;
    assert!(each < 12, "{each} looks a round");
}

#[test]
fn a_replica_that_names_one_partition_is_in_sync_with_all() {
    const LAG_MS: i64 = 1_500;
    let dir = tempfile::tempdir().unwrap();
    let test = replicated(dir.path(), 3, &topic_config());
    let mut producer = test.client();
    let wanted = [0, 1, 2].map(|index| partition(index, 0));
    let mut session = SessionClient::open(&test, &wanted, as_replica).0;
    let behind = || {
        let behind = test.plane.lagging_followers(LAG_MS);
        let pair = |one: &Behind| (one.partition, one.brokers.clone());
        behind.iter().map(pair).collect::<Vec<_>>()
    };
    // For longer than the lag it does not fetch partitions 1 and 2.
    let began = Instant::now();
    let mut offset = 0;
    while began.elapsed() < Duration::from_millis(2 * LAG_MS as u64) {
        producer.produce("t", 0, &batch(&[b"busy"]));
        offset += 1;
        assert!(!session.fetch(&[]).is_empty());
        session.fetch(&[partition(0, offset)]);
        std::thread::sleep(Duration::from_millis(20));
    }
    let high_watermark = producer.fetch_one("t", 0, offset).high_watermark;
    assert_eq!(
        high_watermark, offset,
        "it rises with what the session names"
    );
    producer.produce("t", 2, &batch(&[b"late"]));
    assert_eq!(behind(), [], "it was caught up just now");
    // It goes on without what was appended.
    let began = Instant::now();
    while behind().is_empty() {
        assert!(began.elapsed() < Duration::from_secs(20));
        session.fetch(&[]);
        std::thread::sleep(Duration::from_millis(20));
    }
    assert!(began.elapsed() > Duration::from_millis(LAG_MS as u64 / 2));
    assert_eq!(behind(), [(2, vec![2])]);
    assert_eq!(producer.fetch_one("t", 2, 0).high_watermark, 0);
    session.fetch(&[partition(2, 1)]);
    assert_eq!(behind(), []);
    assert_eq!(producer.fetch_one("t", 2, 1).high_watermark, 1);
}

#[test]
fn lower_min_insync_replicas_shows_held_records() {
    let dir = tempfile::tempdir().unwrap();
    let mut options = topic_config();
    options.min_insync_replicas = 2;
    let mut test = replicated(dir.path(), 1, &options);
    assert!(test.plane.set_isr("t", 0, 0, &[1], &[1], false));
    let mut consumer = SessionClient::open(&test, &[partition(0, 0)], |_| {}).0;
    test.client().produce("t", 0, &batch(&[b"new"]));
    assert_eq!(found(&consumer.fetch(&[])), [], "too few are in sync");
    consumer.begin_to_wait(&test);
    options.min_insync_replicas = 1;
    test.describe_topic("t", 1, &options);
    assert_eq!(found(&consumer.receive()), [(0, vec![0])]);
}
