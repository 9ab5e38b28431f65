//! Several brokers: connections are opened side by side.

mod common;

use std::net::TcpListener;
use std::sync::{Arc, Barrier};
use std::thread;
use std::time::{Duration, Instant};

use common::{FakeBroker, Reply, read, start};
use pyrklog_scan::{ErrorKind, LeftOut, Position, ScanOptions, TopicPartitions, Unanswered};
use pyrklog_wire::ErrorCode;

const COUNT: usize = 8;

fn at(offset: i64) -> Position {
    Position::Offset {
        offset,
        leader_epoch: -1,
    }
}

/// A broker that leads the last partition, and others, by port, that lead one each.
fn cluster(ports: &[u16]) -> FakeBroker {
    let broker = FakeBroker::start(|_, _| Reply::Log);
    {
        let mut state = broker.state();
        state.others = (2..).zip(ports.iter().copied()).collect();
        let others: Vec<i32> = state.others.iter().map(|one| one.0).collect();
        state.leaders = [others, vec![1]].concat();
    }
    broker
}

/// Of brokers that take connections and never answer.
fn silent() -> (Vec<TcpListener>, Vec<u16>) {
    let listeners: Vec<_> = (0..COUNT)
        .map(|_| TcpListener::bind("127.0.0.1:0").unwrap())
        .collect();
    let port = |listener: &TcpListener| listener.local_addr().unwrap().port();
    let ports = listeners.iter().map(port).collect();
    (listeners, ports)
}

/// Opened one after the other, the first would wait for ever.
#[test]
fn leaders_are_connected_side_by_side() {
    let barrier = Arc::new(Barrier::new(COUNT));
    let brokers: Vec<FakeBroker> = (0..COUNT)
        .map(|_| FakeBroker::start(|_, _| Reply::Log))
        .collect();
    for broker in &brokers {
        broker.state().barrier = Some(Arc::clone(&barrier));
    }
    let ports: Vec<u16> = brokers.iter().map(|broker| broker.port).collect();
    let broker = cluster(&ports);
    let with_questions = broker.options();
    let (offsets, status) = read(with_questions.clone()).unwrap();
    assert_eq!(offsets.len(), 100 * (COUNT + 1));
    assert!(status.progress().iter().all(|one| one.position == 100));
    // Without a question while it is planned: the lanes are opened so, too.
    let options = ScanOptions {
        start: at(0),
        end: at(100),
        ..with_questions
    };
    let (offsets, _) = read(options).unwrap();
    assert_eq!(offsets.len(), 100 * (COUNT + 1));
}

#[test]
fn brokers_that_are_away_hold_up_their_own_partitions_only() {
    let (_listeners, ports) = silent();
    let broker = cluster(&ports);
    let mut options = broker.options();
    (options.start, options.end) = (at(0), at(100));
    // One after the other would take longer than a test waits.
    options.client.connect_timeout = Duration::from_secs(30);
    let mut reader = start(options).unwrap();
    let mut rows = 0;
    while rows < 100 {
        rows += reader.next_batch().unwrap().expect("more rows").num_rows();
    }
    assert_eq!(reader.status().progress()[COUNT].position, 100);
}

#[test]
fn brokers_that_are_away_end_a_scan_in_time() {
    let (_listeners, ports) = silent();
    let broker = cluster(&ports);
    let mut options = broker.options();
    options.client.connect_timeout = Duration::from_millis(300);
    options.timeout = Duration::from_millis(500);
    let error = read(options.clone()).unwrap_err();
    assert_eq!(error.kind, ErrorKind::LeaderNotAvailable);
    assert!(error.text.contains("has no leader that answers"), "{error}");
    (options.start, options.end) = (at(0), at(100));
    let error = read(options.clone()).unwrap_err();
    assert_eq!(error.kind, ErrorKind::LeaderNotAvailable);
    assert!(error.text.contains("no answer to ApiVersions"), "{error}");
    // The partition of the one that is there can be read by itself.
    options.topics = vec![TopicPartitions {
        topic: common::TOPIC.into(),
        partitions: Some(vec![COUNT as i32]),
    }];
    assert_eq!(read(options).unwrap().0.len(), 100);
}

/// Whether it is planned with questions for the leaders or without.
#[test]
fn a_scan_may_go_on_without_brokers_that_are_away() {
    let (_listeners, ports) = silent();
    let broker = cluster(&ports);
    let mut options = broker.options();
    options.unanswered = Unanswered::Leave;
    options.client.connect_timeout = Duration::from_millis(300);
    options.timeout = Duration::from_millis(500);
    let partitions = |left_out: Vec<LeftOut>| {
        let mut found: Vec<i32> = left_out.iter().map(|one| one.partition).collect();
        found.sort_unstable();
        found
    };
    let away: Vec<i32> = (0..COUNT as i32).collect();
    let (offsets, status) = read(options.clone()).unwrap();
    assert_eq!(offsets.len(), 100);
    assert_eq!(partitions(status.left_out()), away);
    let reason = status.left_out()[0].reason.clone();
    assert!(reason.contains("has no leader that answers"), "{reason}");
    let read_ones: Vec<i32> = status.splits().iter().map(|one| one.partition).collect();
    assert_eq!(read_ones, [COUNT as i32]);
    (options.start, options.end) = (at(0), at(100));
    let (offsets, status) = read(options).unwrap();
    assert_eq!(offsets.len(), 100);
    assert_eq!(partitions(status.left_out()), away);
    let positions: Vec<i64> = status.progress().iter().map(|one| one.position).collect();
    assert_eq!(positions, [vec![0; COUNT], vec![100]].concat());
}

/// How a scan of three partitions ends whose topic was created anew: each hears of it from its own
/// leader, one so much later than the other, and asks all three.
fn created_anew(apart: Duration) -> ErrorKind {
    let begin = Instant::now();
    let brokers = [0, 1, 2].map(|number| {
        let pause = Duration::from_millis(300) + number * apart;
        FakeBroker::start(move |_, _| {
            thread::sleep(pause.saturating_sub(begin.elapsed()));
            Reply::Error(ErrorCode::UNKNOWN_TOPIC_ID)
        })
    });
    let ports = [0, 1, 2].map(|number: usize| brokers[number].port);
    for (number, broker) in (1..).zip(&brokers) {
        let mut state = broker.state();
        state.id = number;
        let all = (1..).zip(ports);
        state.others = all.filter(|one| one.0 != number).collect();
        state.leaders = vec![1, 2, 3];
    }
    let options = ScanOptions {
        start: at(0),
        end: at(100),
        timeout: Duration::from_secs(9),
        ..brokers[0].options()
    };
    let mut reader = start(options).unwrap();
    for broker in &brokers {
        broker.state().topic_id = Some([9; 16]);
    }
    reader.next_batch().unwrap_err().kind
}

/// Partitions that ask by turns would each hear the same broker again and again.
#[test]
fn a_topic_that_was_created_anew_is_noticed_by_all_its_partitions() {
    thread::scope(|scope| {
        let scans = (4..12).map(|half_ms| {
            let apart = Duration::from_micros(500 * half_ms);
            scope.spawn(move || created_anew(apart))
        });
        for scan in scans.collect::<Vec<_>>() {
            assert_eq!(scan.join().unwrap(), ErrorKind::TopicDeleted);
        }
    });
}
