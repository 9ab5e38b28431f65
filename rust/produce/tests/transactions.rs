//! Transactions: of a producer, and those that others have left open.

mod common;

use std::sync::{Arc, Mutex};
use std::time::Duration;

use common::{FakeCluster, PRODUCER, Reply, TOPIC, expected, rows, write};
use pyrklog_produce::{ErrorKind, LeftOpen, Outcome, Producer, Transactions};
use pyrklog_wire::ErrorCode;
use pyrklog_wire::api::key;

fn producer(cluster: &FakeCluster) -> Producer {
    let mut options = cluster.options();
    options.transactional_id = Some("id".into());
    Producer::open(options).unwrap()
}

fn transactions(cluster: &FakeCluster) -> Transactions {
    Transactions::new(cluster.client(), Duration::from_secs(20)).unwrap()
}

fn left_open(id: &str) -> LeftOpen {
    LeftOpen {
        id: id.into(),
        producer_id: PRODUCER.0,
        producer_epoch: PRODUCER.1,
        partitions: vec![(TOPIC.into(), vec![0, 1])],
    }
}

#[test]
fn partitions_are_added_before_they_are_written() {
    let cluster = FakeCluster::start(2, 4, |_, _| Reply::Serve);
    let mut producer = producer(&cluster);
    assert_eq!(cluster.state().timeout_ms, 60_000);
    // Refused by the cluster if a partition was not added.
    write(&mut producer, 500).unwrap();
    let mut added = cluster.state().added.clone();
    added.sort();
    assert_eq!(added, [0, 1, 2, 3], "each once");
    assert_eq!(cluster.values().len(), 500);
    producer.end(true).unwrap();
    producer.end(true).unwrap();
    assert_eq!(cluster.state().ends, [("id".to_owned(), PRODUCER, true)]);
}

#[test]
fn an_empty_transaction_is_not_ended() {
    let cluster = FakeCluster::start(1, 1, |_, _| Reply::Serve);
    let mut producer = producer(&cluster);
    producer.flush().unwrap();
    producer.end(true).unwrap();
    assert_eq!(cluster.state().ends, []);
}

/// Batches that are on their way when a transaction is aborted.
fn with_batches_on_their_way(cluster: &FakeCluster, gate: &Mutex<()>) -> Producer {
    let mut options = cluster.options();
    options.transactional_id = Some("id".into());
    options.client.request_timeout = Duration::from_secs(2);
    let mut producer = Producer::open(options).unwrap();
    let closed = gate.lock().unwrap();
    // A batch is full with about ten rows, and is sent then.
    producer.send(&rows(0..30, true)).unwrap();
    drop(closed);
    assert!(cluster.values().len() < 30, "some were not sent");
    producer
}

#[test]
fn an_abort_comes_behind_what_is_on_its_way() {
    let gate = Arc::new(Mutex::new(()));
    let passed = Arc::clone(&gate);
    let cluster = FakeCluster::start(1, 1, move |api, _| {
        if api == key::PRODUCE {
            drop(passed.lock().unwrap());
        }
        Reply::Serve
    });
    let mut producer = with_batches_on_their_way(&cluster, &gate);
    producer.end(false).unwrap();
    assert_eq!(cluster.state().ends, [("id".to_owned(), PRODUCER, false)]);
    let state = cluster.state();
    let last_of = |api| {
        state
            .asked
            .iter()
            .rposition(|asked| asked.0 == api)
            .unwrap()
    };
    assert!(last_of(key::PRODUCE) < last_of(key::END_TXN));
    assert!(!state.log.is_empty(), "nothing was on its way");
    drop(state);
    // What was not sent is not of the next transaction.
    let error = producer.send(&rows(0..1, true)).unwrap_err();
    assert_eq!(error.kind, ErrorKind::Refused);
    assert!(cluster.values().len() < 30);
}

#[test]
fn a_transaction_is_left_open_when_a_batch_may_still_arrive() {
    for reply in [Reply::Lose, Reply::Close, Reply::Silence] {
        let gate = Arc::new(Mutex::new(()));
        let passed = Arc::clone(&gate);
        let cluster = FakeCluster::start(1, 1, move |api, _| match api {
            key::PRODUCE => {
                drop(passed.lock().unwrap());
                reply
            }
            _ => Reply::Serve,
        });
        let mut producer = with_batches_on_their_way(&cluster, &gate);
        let error = producer.end(false).unwrap_err();
        assert_eq!(error.kind, ErrorKind::Unavailable, "{error}");
        assert_eq!(cluster.state().ends, []);
    }
}

#[test]
fn coordinators_that_move_load_or_lose_an_answer_are_asked_again() {
    let cluster = FakeCluster::start(2, 2, |api, number| match (api, number) {
        (key::FIND_COORDINATOR, 0) => Reply::Error(ErrorCode::COORDINATOR_NOT_AVAILABLE),
        (key::INIT_PRODUCER_ID, 0) => Reply::Error(ErrorCode::CONCURRENT_TRANSACTIONS),
        (key::INIT_PRODUCER_ID, 1) => Reply::Error(ErrorCode::NOT_COORDINATOR),
        (key::ADD_PARTITIONS_TO_TXN, 0) => Reply::Error(ErrorCode::CONCURRENT_TRANSACTIONS),
        (key::ADD_PARTITIONS_TO_TXN, 1) => Reply::Lose,
        (key::END_TXN, 0) => Reply::Error(ErrorCode::COORDINATOR_LOAD_IN_PROGRESS),
        (key::END_TXN, 1) => Reply::Lose,
        _ => Reply::Serve,
    });
    let mut producer = producer(&cluster);
    write(&mut producer, 100).unwrap();
    cluster.state().coordinator = 1;
    producer.end(true).unwrap();
    let mut values = cluster.values();
    values.sort();
    assert_eq!(values, expected(100));
    let ends = cluster.state().ends.clone();
    assert!(!ends.is_empty() && ends.iter().all(|end| end.2), "{ends:?}");
    assert!(cluster.state().asked.contains(&(key::END_TXN, 1)));
}

#[test]
fn a_fenced_producer_is_told() {
    for code in [
        ErrorCode::PRODUCER_FENCED,
        ErrorCode::INVALID_PRODUCER_EPOCH,
    ] {
        let cluster = FakeCluster::start(1, 1, move |api, _| match api {
            key::ADD_PARTITIONS_TO_TXN => Reply::Error(code),
            _ => Reply::Serve,
        });
        let error = write(&mut producer(&cluster), 1).unwrap_err();
        assert_eq!(error.kind, ErrorKind::Fenced);
        assert!(cluster.values().is_empty());
    }
}

#[test]
fn a_time_out_that_brokers_do_not_allow_is_told() {
    let cluster = FakeCluster::start(1, 1, |api, _| match api {
        key::INIT_PRODUCER_ID => Reply::Error(ErrorCode::INVALID_TRANSACTION_TIMEOUT),
        _ => Reply::Serve,
    });
    let mut options = cluster.options();
    options.transactional_id = Some("id".into());
    let error = Producer::open(options).unwrap_err();
    assert_eq!(error.kind, ErrorKind::Argument);
    assert!(error.text.contains("transaction.max.timeout.ms"), "{error}");
}

#[test]
fn all_are_ended_also_side_by_side() {
    for count in [1, 7, 40] {
        let cluster = FakeCluster::start(2, 2, |api, number| match (api, number % 5) {
            (key::END_TXN, 3) => Reply::Lose,
            (key::END_TXN, 4) => Reply::Error(ErrorCode::CONCURRENT_TRANSACTIONS),
            _ => Reply::Serve,
        });
        let all: Vec<LeftOpen> = (0..count).map(|at| left_open(&format!("id{at}"))).collect();
        let outcomes = transactions(&cluster).end(&all, true).unwrap();
        assert_eq!(outcomes, vec![Outcome::Done; count]);
        let mut ended: Vec<String> = cluster
            .state()
            .ends
            .iter()
            .map(|end| end.0.clone())
            .collect();
        ended.sort();
        ended.dedup();
        assert_eq!(ended.len(), count);
    }
}

#[test]
fn one_that_is_over_is_found() {
    let cluster = FakeCluster::start(1, 2, |api, number| match (api, number) {
        (key::ADD_PARTITIONS_TO_TXN, 1) => Reply::Error(ErrorCode::PRODUCER_FENCED),
        (key::END_TXN, 0) => Reply::Error(ErrorCode::INVALID_PRODUCER_ID_MAPPING),
        _ => Reply::Serve,
    });
    let mut ends = transactions(&cluster);
    let all = [left_open("a"), left_open("b"), left_open("c")];
    let fenced = |code: &str| Outcome::Fenced(code.to_owned());
    let outcomes = ends.check(&all).unwrap();
    assert_eq!(
        outcomes,
        [Outcome::Done, fenced("PRODUCER_FENCED"), Outcome::Done]
    );
    assert_eq!(cluster.state().added, [0, 1, 0, 1]);
    let outcomes = ends.end(&all, true).unwrap();
    assert_eq!(outcomes[0], fenced("INVALID_PRODUCER_ID_MAPPING"));
    assert_eq!(outcomes[1..], [Outcome::Done, Outcome::Done]);
}

#[test]
fn a_coordinator_that_is_away_is_told() {
    let cluster = FakeCluster::start(1, 1, |api, _| match api {
        key::END_TXN => Reply::Close,
        _ => Reply::Serve,
    });
    let timeout = Duration::from_millis(300);
    let mut ends = Transactions::new(cluster.client(), timeout).unwrap();
    let error = ends.end(&[left_open("a")], true).unwrap_err();
    assert_eq!(error.kind, ErrorKind::Unavailable);
    assert!(
        error.text.starts_with("not answered within 0.3 s"),
        "{error}"
    );
}

#[test]
fn open_ones_are_listed_by_their_prefix() {
    let cluster = FakeCluster::start(1, 1, |_, _| Reply::Serve);
    cluster.state().open = vec!["a/b/1", "a/bc/1", "a/b/2"];
    // Nobody listens there.
    cluster.state().ports.push(1);
    let mut ends = transactions(&cluster);
    assert_eq!(ends.open_with_prefix("a/b/").unwrap(), ["a/b/1", "a/b/2"]);
    assert_eq!(ends.init("a/b/1", 1000).unwrap(), PRODUCER);
    assert_eq!(cluster.state().timeout_ms, 1000);
    cluster
        .state()
        .ranges
        .insert(key::LIST_TRANSACTIONS, (1, 0));
    let error = transactions(&cluster).open_with_prefix("a/").unwrap_err();
    assert_eq!(error.kind, ErrorKind::Unsupported);
}
