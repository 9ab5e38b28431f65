//! A fetch of a session looks at the partitions that have changed, and misses none of them
//! (reads.md, "Fetch sessions").

mod harness;

use std::sync::Arc;
use std::time::{Duration, Instant};

use harness::*;
use pyrklog_dataplane::api::{Behind, LeaderSpec, StopSpec, TopicConfig};
use pyrklog_log::Compression;
use pyrklog_log::disk::RealDisk;
use pyrklog_wire::ErrorCode;
use pyrklog_wire::api::key;
use pyrklog_wire::fetch::FetchPartition;

struct Session {
    client: Client,
    ask: Ask,
}

impl Session {
    /// Opens a session of partitions of `t`; returns its first answer.
    fn open(
        test: &TestPlane,
        wanted: &[FetchPartition],
        change: impl Fn(&mut Ask),
    ) -> (Session, Vec<Fetched>) {
        let mut ask = Ask::one("t", 0, 0).session(0, 0);
        ask.partitions = named(wanted);
        change(&mut ask);
        let mut client = test.client();
        let reply = client.fetch(&ask);
        assert!(reply.session_id > 0, "{reply:?}");
        ask.session = (reply.session_id, 1);
        (Session { client, ask }, reply.partitions)
    }

    /// The next fetch names these partitions; returns its answer.
    fn fetch(&mut self, wanted: &[FetchPartition]) -> Vec<Fetched> {
        self.ask.partitions = named(wanted);
        let reply = self.client.fetch(&self.ask);
        self.ask.session.1 += 1;
        assert_eq!(reply.error, ErrorCode::NONE);
        reply.partitions
    }

    fn send(&mut self, wanted: &[FetchPartition], wait_ms: i32) {
        self.ask.partitions = named(wanted);
        let ask = self.ask.clone().wait(wait_ms, 1);
        self.client.send(key::FETCH, ask.version, &ask.encode());
    }

    /// Sends the only fetch that names nothing and waits for long.
    fn begin_to_wait(&mut self, test: &TestPlane) {
        self.send(&[], 60_000);
        eventually("a fetch that waits", || {
            (test.statistic("purgatory_fetch") > 0).then_some(())
        });
    }

    fn receive(&mut self) -> Vec<Fetched> {
        let (_, body) = self.client.receive(key::FETCH, self.ask.version);
        self.ask.session.1 += 1;
        fetched(&body, &self.ask).partitions
    }
}

fn named(wanted: &[FetchPartition]) -> Vec<(String, FetchPartition)> {
    let with_topic = |partition: &FetchPartition| ("t".to_owned(), *partition);
    wanted.iter().map(with_topic).collect()
}

/// (Index, batches) of each partition.
fn found(partitions: &[Fetched]) -> Vec<(i32, Vec<i64>)> {
    let pair = |one: &Fetched| (one.index, one.batches());
    partitions.iter().map(pair).collect()
}

fn errors(partitions: &[Fetched]) -> Vec<(i32, ErrorCode)> {
    let pair = |one: &Fetched| (one.index, one.error);
    partitions.iter().map(pair).collect()
}

/// A broker that leads partitions of `t`, each with one record; a session that has read them and
/// believes in leader epoch 0.
fn settled(change: impl Fn(&mut Ask)) -> (tempfile::TempDir, TestPlane, Session) {
    let dir = tempfile::tempdir().unwrap();
    let mut test = TestPlane::start(dir.path());
    test.create("t", 3);
    let mut producer = test.client();
    for index in 0..3 {
        producer.produce("t", index, &batch(&[b"old"]));
    }
    let wanted = [0, 1, 2].map(|index| FetchPartition {
        current_leader_epoch: 0,
        ..partition(index, 1)
    });
    let (mut session, first) = Session::open(&test, &wanted, change);
    assert_eq!(first.len(), 3);
    assert!(session.fetch(&[]).is_empty(), "nothing is new");
    (dir, test, session)
}

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
fn whatever_changes_between_two_fetches_the_next_one_tells() {
    for (what, cause, error) in CAUSES {
        let (_dir, mut test, mut session) = settled(|_| {});
        cause(&mut test);
        assert_eq!(errors(&session.fetch(&[])), [(1, error)], "{what}");
    }
}

#[test]
fn whatever_changes_is_told_by_a_fetch_that_waits() {
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
fn an_error_is_told_until_it_is_gone_and_then_once_more() {
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
fn another_image_alone_tells_nothing() {
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
fn what_did_not_fit_into_an_answer_is_in_the_next_one() {
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
fn nothing_is_missed_while_a_fetch_begins_to_wait() {
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
fn a_fetch_looks_at_what_changed_of_ten_thousand_partitions() {
    const ALL: i32 = 10_000;
    const ROUNDS: i32 = 20;
    let dir = tempfile::tempdir().unwrap();
    let test = replicated(dir.path(), ALL, &topic_config());
    let wanted: Vec<FetchPartition> = (0..ALL).map(|index| partition(index, 0)).collect();
    let mut replica = Session::open(&test, &wanted, as_replica).0;
    let mut consumer = Session::open(&test, &wanted, |_| {}).0;
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
    let mut session = Session::open(&test, &wanted, as_replica).0;
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
fn a_smaller_minimum_shows_what_an_idle_replica_has() {
    let dir = tempfile::tempdir().unwrap();
    let mut options = topic_config();
    options.min_insync_replicas = 2;
    let mut test = replicated(dir.path(), 1, &options);
    assert!(test.plane.set_isr("t", 0, 0, &[1], &[1], false));
    let mut consumer = Session::open(&test, &[partition(0, 0)], |_| {}).0;
    test.client().produce("t", 0, &batch(&[b"new"]));
    assert_eq!(found(&consumer.fetch(&[])), [], "too few are in sync");
    consumer.begin_to_wait(&test);
    options.min_insync_replicas = 1;
    test.describe_topic("t", 1, &options);
    assert_eq!(found(&consumer.receive()), [(0, vec![0])]);
}
