//! Brokers that fail, move or lose records: each row comes once, or the scan fails.

mod common;

use std::time::Duration;

use common::{FakeBroker, Reply, batch, read, start};
use pyrklog_client::Isolation;
use pyrklog_scan::{ErrorKind, Missing, Position, ScanError};
use pyrklog_wire::ErrorCode;

fn all(from: i64, to: i64) -> Vec<i64> {
    (from..to).collect()
}

/// One batch an answer.
fn piecewise(offset: i64) -> Reply {
    let base = offset / 10 * 10;
    Reply::Records(batch(base, 10, 20, 1))
}

#[test]
fn a_range_is_read_from_its_start_to_its_end() {
    let broker = FakeBroker::start(|_, offset| piecewise(offset));
    let mut options = broker.options();
    options.start = Position::Offset {
        offset: 13,
        leader_epoch: -1,
    };
    options.end = Position::Offset {
        offset: 87,
        leader_epoch: -1,
    };
    let (offsets, status) = read(options).unwrap();
    assert_eq!(offsets, all(13, 87));
    let progress = status.progress()[0];
    assert_eq!((progress.position, progress.records), (87, 74));
    assert_eq!((progress.leader_epoch, progress.skipped), (1, 0));
    assert!(progress.bytes > 0);
}

#[test]
fn an_empty_range_is_read_without_a_question() {
    let broker = FakeBroker::start(|_, _| panic!("a Fetch"));
    let mut options = broker.options();
    options.start = Position::Latest;
    assert_eq!(read(options).unwrap().0, all(0, 0));
}

#[test]
fn lost_connections_and_moved_leaders_neither_lose_nor_double_a_row() {
    let whole = batch(30, 10, 20, 1);
    let broker = FakeBroker::start(move |number, offset| match number {
        2 => Reply::Bytes(Vec::new()),
        // A frame that ends in its middle.
        4 => Reply::Bytes([&500_i32.to_be_bytes()[..], &whole[..40]].concat()),
        5 => Reply::Error(ErrorCode::NOT_LEADER_OR_FOLLOWER),
        7 => Reply::Error(ErrorCode::FENCED_LEADER_EPOCH),
        8 => Reply::Error(ErrorCode::UNKNOWN_TOPIC_OR_PARTITION),
        9 => Reply::Error(ErrorCode::KAFKA_STORAGE_ERROR),
        _ => piecewise(offset),
    });
    assert_eq!(read(broker.options()).unwrap().0, all(0, 100));
}

#[test]
fn what_was_read_before_comes_once_if_a_broker_sends_it_again() {
    let broker = FakeBroker::start(|_, _| Reply::Log);
    // From the first batch on, whatever is asked for.
    let everything: Vec<u8> = broker
        .state()
        .log
        .iter()
        .flat_map(|one| one.1.clone())
        .collect();
    let broker = FakeBroker::start(move |number, offset| match number {
        0 => piecewise(offset),
        _ => Reply::Records(everything.clone()),
    });
    assert_eq!(read(broker.options()).unwrap().0, all(0, 100));
}

/// Reads up to 50, then the leader changes.
fn with_new_leader(epoch_end: (i32, i64)) -> (FakeBroker, pyrklog_scan::ScanOptions) {
    let broker = FakeBroker::start(|number, offset| match number {
        0..5 => piecewise(offset),
        5 => Reply::Error(ErrorCode::FENCED_LEADER_EPOCH),
        _ => Reply::Log,
    });
    let options = broker.options();
    {
        let mut state = broker.state();
        state.epoch_end = epoch_end;
    }
    (broker, options)
}

#[test]
fn a_new_leader_that_lost_what_was_read_is_noticed() {
    for (epoch_end, reason) in [
        ((1, 40), "the leader's log has it up to offset 40 only"),
        ((-1, -1), "the leader does not know that epoch"),
    ] {
        let (broker, options) = with_new_leader(epoch_end);
        // The plan has the old epoch, the next metadata the new one.
        let mut reader = start(options).unwrap();
        broker.state().leader_epoch = 2;
        let mut rows = 0;
        let error = loop {
            match reader.next_batch() {
                Ok(Some(batch)) => rows += batch.num_rows(),
                Ok(None) => panic!("it ended after {rows} rows"),
                Err(error) => break error,
            }
        };
        assert_eq!((error.kind, rows), (ErrorKind::LogTruncated, 50));
        assert!(error.text.ends_with(reason), "{error}");
        assert_eq!(reader.status().failure(), Some(error));
    }
}

#[test]
fn a_new_leader_that_has_all_is_read_on_from() {
    let (broker, options) = with_new_leader((1, 50));
    let mut reader = start(options).unwrap();
    broker.state().leader_epoch = 2;
    let mut offsets = Vec::new();
    while let Some(batch) = reader.next_batch().unwrap() {
        offsets.extend(common::offsets_of(&batch));
    }
    assert_eq!(offsets, all(0, 100));
}

#[test]
fn progress_has_the_epoch_of_the_last_record_taken_also_amid_a_batch() {
    let broker = FakeBroker::start(|_, _| Reply::Log);
    {
        let mut state = broker.state();
        state.log = vec![(0, batch(0, 10, 20, 4)), (10, batch(10, 90, 20, 5))];
        state.leader_epoch = 5;
        state.epoch_end = (4, 10);
    }
    for (first, start_epoch, expected) in [
        (0, -1, [(25, 5), (50, 5), (75, 5), (100, 5)]),
        (5, 4, [(30, 5), (55, 5), (80, 5), (100, 5)]),
    ] {
        let mut options = broker.options();
        options.batch_rows = 25;
        options.start = at(first, start_epoch);
        assert_eq!(progress_by_batch(options), expected, "{first}");
    }
    let mut options = broker.options();
    options.batch_rows = 10;
    options.end = at(30, -1);
    // The tenth record is of epoch 4, the one behind it not taken.
    let expected = [(10, 4), (20, 5), (30, 5)];
    assert_eq!(progress_by_batch(options), expected);
}

fn at(offset: i64, leader_epoch: i32) -> Position {
    Position::Offset {
        offset,
        leader_epoch,
    }
}

/// (position, leader epoch) after each batch.
fn progress_by_batch(options: pyrklog_scan::ScanOptions) -> Vec<(i64, i32)> {
    let mut reader = start(options).unwrap();
    let mut found = Vec::new();
    while reader.next_batch().unwrap().is_some() {
        let progress = reader.status().progress()[0];
        found.push((progress.position, progress.leader_epoch));
    }
    found
}

/// Batches of this epoch, from `first` on.
fn log_of(first: i64, epoch: i32) -> Vec<(i64, Vec<u8>)> {
    let bases = (first..100).step_by(10);
    bases
        .map(|base| (base, batch(base, 10, 20, epoch)))
        .collect()
}

/// Of a leader that has records up to 60 of an older epoch than those read, and none of theirs.
fn with_older_epoch(log: Vec<(i64, Vec<u8>)>) -> (usize, Result<Vec<i64>, ScanError>) {
    let (broker, options) = with_new_leader((0, 60));
    let mut reader = start(options).unwrap();
    {
        let mut state = broker.state();
        state.leader_epoch = 2;
        state.log = log;
    }
    let mut offsets = Vec::new();
    loop {
        match reader.next_batch() {
            Ok(Some(batch)) => offsets.extend(common::offsets_of(&batch)),
            Ok(None) => return (offsets.len(), Ok(offsets)),
            Err(error) => return (offsets.len(), Err(error)),
        }
    }
}

#[test]
fn another_record_where_the_last_one_was_read_is_noticed() {
    let (rows, read) = with_older_epoch(log_of(0, 0));
    let error = read.unwrap_err();
    assert_eq!((error.kind, rows), (ErrorKind::LogTruncated, 50));
    let text = "partition t-0 was truncated: it was read up to offset 50 in leader epoch 1, and \
                the leader's log has epoch 0 there";
    assert_eq!(error.text, text);
}

#[test]
fn an_epoch_that_was_compacted_away_is_no_truncation() {
    let (_, read) = with_older_epoch(log_of(60, 2));
    assert_eq!(read.unwrap(), [all(0, 50), all(60, 100)].concat());
}

#[test]
fn a_last_record_that_retention_has_taken_is_no_truncation() {
    let broker = FakeBroker::start(|number, offset| match (number, offset) {
        (..5, _) => piecewise(offset),
        (5, _) => Reply::Error(ErrorCode::FENCED_LEADER_EPOCH),
        (_, ..50) => Reply::Error(ErrorCode::OFFSET_OUT_OF_RANGE),
        _ => Reply::Log,
    });
    broker.state().epoch_end = (0, 60);
    let mut reader = start(broker.options()).unwrap();
    broker.state().leader_epoch = 2;
    let mut offsets = Vec::new();
    while let Some(batch) = reader.next_batch().unwrap() {
        offsets.extend(common::offsets_of(&batch));
    }
    assert_eq!(offsets, all(0, 100));
}

#[test]
fn a_start_with_its_leader_epoch_is_checked_before_anything_is_read() {
    let broker = FakeBroker::start(|_, _| Reply::Log);
    broker.state().leader_epoch = 3;
    broker.state().epoch_end = (1, 20);
    let mut options = broker.options();
    options.start = Position::Offset {
        offset: 30,
        leader_epoch: 1,
    };
    assert_eq!(read(options).unwrap_err().kind, ErrorKind::LogTruncated);
    assert_eq!(broker.state().fetches, 0);
}

/// A leader names its own epoch with an offset, also if it wrote no record in it; another leader
/// then does not know the epoch.
#[test]
fn a_listed_start_is_checked_by_where_its_epoch_ends() {
    let broker = FakeBroker::start(|_, _| Reply::Log);
    let mut options = broker.options();
    let mut read_from = |offset, leader_epoch, epoch_end| {
        {
            let mut state = broker.state();
            state.leader_epoch = 5;
            state.epoch_end = epoch_end;
        }
        options.start = Position::Listed {
            offset,
            leader_epoch,
        };
        read(options.clone())
    };
    // The log has epoch 1 alone.
    let (offsets, status) = read_from(30, 4, (1, 100)).unwrap();
    assert_eq!(offsets, all(30, 100));
    assert_eq!(status.progress()[0].leader_epoch, 1);
    let error = read_from(30, 4, (1, 20)).unwrap_err();
    assert_eq!(error.kind, ErrorKind::LogTruncated);
}

fn without_the_first_forty() -> FakeBroker {
    let broker = FakeBroker::start(|_, offset| match offset {
        ..40 => Reply::Error(ErrorCode::OFFSET_OUT_OF_RANGE),
        offset => piecewise(offset),
    });
    broker.state().log_start = 40;
    broker
}

#[test]
fn deleted_records_fail_a_scan_or_are_skipped() {
    let start_at = Position::Offset {
        offset: 5,
        leader_epoch: -1,
    };
    let broker = without_the_first_forty();
    let mut options = broker.options();
    options.start = start_at;
    let error = read(options.clone()).unwrap_err();
    assert_eq!(error.kind, ErrorKind::OffsetOutOfRange);
    let text = "offset 5 of partition t-0 is out of range: the log has 40 to 100";
    assert_eq!(error.text, text);
    options.missing = Missing::Skip;
    let (offsets, status) = read(options.clone()).unwrap();
    assert_eq!(offsets, all(40, 100));
    assert_eq!(status.progress()[0].skipped, 35);
    // All of the range is gone.
    options.end = Position::Offset {
        offset: 20,
        leader_epoch: -1,
    };
    let (offsets, status) = read(options).unwrap();
    assert_eq!((offsets, status.progress()[0].skipped), (all(0, 0), 15));
}

#[test]
fn a_start_behind_the_end_fails_the_scan_in_time() {
    let broker = FakeBroker::start(|_, _| Reply::Log);
    let mut options = broker.options();
    options.timeout = Duration::from_secs(1);
    let at = |offset| Position::Offset {
        offset,
        leader_epoch: -1,
    };
    options.start = at(100);
    let (offsets, _) = read(options.clone()).unwrap();
    assert_eq!(offsets, all(0, 0));
    options.start = at(101);
    let error = read(options.clone()).unwrap_err();
    assert_eq!(error.kind, ErrorKind::OffsetOutOfRange);
    let text = "partition t-0 ends at offset 100, before 101";
    assert_eq!(error.text, text);
    options.end = at(101);
    let (offsets, _) = read(options).unwrap();
    assert_eq!(offsets, all(0, 0));
}

#[test]
fn an_end_that_does_not_come_fails_the_scan_in_time() {
    let broker = FakeBroker::start(|_, _| Reply::Log);
    let mut options = broker.options();
    options.timeout = Duration::from_secs(1);
    options.end = Position::Offset {
        offset: 101,
        leader_epoch: -1,
    };
    broker.state().log.push((100, Vec::new()));
    let error = read(options).unwrap_err();
    // It may come yet: only an offset that a leader refuses is out of range.
    assert_eq!(error.kind, ErrorKind::LeaderNotAvailable);
    let text = "partition t-0 is to be read up to offset 101, but ends at 100";
    assert_eq!(error.text, text);
}

/// Broker 1 sends its readers to broker 2 once; that one shows nothing from 60 on, or shows it and
/// does not send it.
#[test]
fn a_replica_that_is_stuck_is_left_for_the_leader() {
    for visible in [60, 100] {
        let replica = FakeBroker::start(|_, offset| match offset {
            ..60 => piecewise(offset),
            _ => Reply::Records(Vec::new()),
        });
        let leader = FakeBroker::start(|number, _| match number {
            0 => Reply::Preferred(2),
            _ => Reply::Log,
        });
        leader.state().others = vec![(2, replica.port)];
        {
            let mut state = replica.state();
            (state.id, state.others) = (2, vec![(1, leader.port)]);
            state.high_watermark = visible;
        }
        let mut options = leader.options();
        options.timeout = Duration::from_secs(6);
        let (offsets, _) = read(options).unwrap();
        assert_eq!(offsets, all(0, 100), "{visible}");
        assert!(replica.state().fetches > 6, "the replica was not read");
    }
}

#[test]
fn an_end_that_comes_is_waited_for() {
    let broker = FakeBroker::start(|_, _| Reply::Log);
    broker.state().high_watermark = 60;
    let mut options = broker.options();
    options.end = Position::Offset {
        offset: 100,
        leader_epoch: -1,
    };
    let mut reader = start(options).unwrap();
    let mut offsets = Vec::new();
    while let Some(batch) = reader.next_batch().unwrap() {
        offsets.extend(common::offsets_of(&batch));
        broker.state().high_watermark = 100;
    }
    assert_eq!(offsets, all(0, 100));
}

/// Nothing from 90 on.
fn without_the_last_ten(offset: i64) -> Reply {
    match offset {
        ..90 => piecewise(offset),
        _ => Reply::Records(Vec::new()),
    }
}

#[test]
fn answers_without_records_do_not_end_a_range() {
    let broker = FakeBroker::start(|number, offset| match (number, offset) {
        (..12, 50..) => Reply::Records(Vec::new()),
        _ => piecewise(offset),
    });
    assert_eq!(read(broker.options()).unwrap().0, all(0, 100));
    assert!(broker.state().longest_wait_ms > 500, "it had no more time");
}

#[test]
fn a_range_of_which_a_broker_sends_nothing_fails_in_time() {
    for isolation in [Isolation::ReadCommitted, Isolation::ReadUncommitted] {
        let broker = FakeBroker::start(|_, offset| without_the_last_ten(offset));
        let mut options = broker.options();
        options.isolation = isolation;
        options.timeout = Duration::from_secs(1);
        let error = read(options).unwrap_err();
        assert_eq!(error.kind, ErrorKind::LeaderNotAvailable);
        let text = format!(
            "partition t-0 could not be read for 1 s: broker 127.0.0.1:{} sends nothing of offsets \
             90 to 100, and nothing that follows them",
            broker.port
        );
        assert_eq!(error.text, text);
    }
}

#[test]
fn a_range_whose_end_was_compacted_away_ends_where_the_next_batch_begins() {
    let broker = FakeBroker::start(|_, offset| match offset {
        ..90 => piecewise(offset),
        _ => Reply::Records(batch(104, 10, 20, 2)),
    });
    let (offsets, status) = read(broker.options()).unwrap();
    assert_eq!(offsets, all(0, 90));
    let progress = status.progress()[0];
    assert_eq!((progress.position, progress.leader_epoch), (100, 1));
}

#[test]
fn an_open_transaction_behind_such_an_end_tells_it_too() {
    for (next, is_end) in [(100, true), (104, true), (99, false), (90, false)] {
        let broker = FakeBroker::start(|_, offset| without_the_last_ten(offset));
        broker.state().uncommitted = Some(batch(next, 10, 20, 2));
        let mut options = broker.options();
        options.timeout = Duration::from_secs(1);
        match read(options) {
            Ok((offsets, status)) => {
                assert!(is_end, "{next}");
                assert_eq!(offsets, all(0, 90));
                let progress = status.progress()[0];
                assert_eq!((progress.position, progress.leader_epoch), (100, 1));
            }
            Err(error) => {
                assert!(!is_end, "{next}");
                assert_eq!(error.kind, ErrorKind::LeaderNotAvailable);
            }
        }
    }
}

#[test]
fn a_deleted_topic_and_one_created_anew_fail_the_scan() {
    for (id, text) in [
        (None, "partition t-0 is gone: the topic was deleted"),
        (
            Some([2; 16]),
            "topic t was deleted and created anew during the scan",
        ),
    ] {
        let broker = FakeBroker::start(|number, offset| match number {
            0 => piecewise(offset),
            _ => Reply::Error(ErrorCode::UNKNOWN_TOPIC_ID),
        });
        let mut reader = start(broker.options()).unwrap();
        broker.state().topic_id = id;
        let error = loop {
            match reader.next_batch() {
                Ok(batch) => assert!(batch.is_some(), "the scan ended"),
                Err(error) => break error,
            }
        };
        assert_eq!((error.kind, &*error.text), (ErrorKind::TopicDeleted, text));
    }
}

#[test]
fn a_broker_that_never_answers_fails_the_scan_in_time() {
    let broker = FakeBroker::start(|_, _| Reply::Silence);
    let mut options = broker.options();
    options.client.request_timeout = Duration::from_millis(300);
    options.timeout = Duration::from_secs(2);
    let error = read(options).unwrap_err();
    assert_eq!(error.kind, ErrorKind::LeaderNotAvailable);
    assert!(
        error
            .text
            .starts_with("partition t-0 could not be read for 2 s"),
        "{error}"
    );
}

#[test]
fn an_answer_that_never_ends_fails_the_scan_in_time() {
    let broker = FakeBroker::start(|_, _| Reply::Drip {
        bytes: 1_000_000,
        piece: 1,
    });
    let mut options = broker.options();
    options.client.request_timeout = Duration::from_millis(300);
    options.timeout = Duration::from_secs(2);
    let error = read(options).unwrap_err();
    assert_eq!(error.kind, ErrorKind::LeaderNotAvailable);
    assert!(error.text.contains("no answer to Fetch"), "{error}");
}

#[test]
fn a_large_answer_may_take_longer_than_a_request() {
    let broker = FakeBroker::start(|_, _| Reply::Log);
    {
        let mut state = broker.state();
        let bases = (0..100).step_by(10);
        state.log = bases.map(|base| (base, batch(base, 10, 4000, 1))).collect();
        state.pieces = 50;
    }
    let mut options = broker.options();
    options.client.request_timeout = Duration::from_millis(300);
    options.timeout = Duration::from_secs(5);
    assert_eq!(read(options).unwrap().0, all(0, 100));
}

#[test]
fn a_topic_that_does_not_exist_is_named() {
    let broker = FakeBroker::start(|_, _| Reply::Log);
    broker.state().topic_id = None;
    let error = read(broker.options()).unwrap_err();
    assert_eq!(error.kind, ErrorKind::UnknownTopic);
    assert_eq!(error.text, "topic t does not exist");
}

#[test]
fn a_cluster_that_is_away_is_named() {
    let broker = FakeBroker::start(|_, _| Reply::Log);
    let mut options = broker.options();
    // Nobody listens on port 1.
    options.client.bootstrap[0].port = 1;
    options.timeout = Duration::from_millis(300);
    let error = read(options).unwrap_err();
    assert_eq!(error.kind, ErrorKind::BrokerNotAvailable);
    assert!(
        error.text.starts_with("broker 127.0.0.1:1: cannot connect"),
        "{error}"
    );
}
