//! Whole runs against a minimal broker.

mod fake_broker;

use fake_broker::{Broker, Habits, measure, options};
use pyrklog_loadgen::run::run;
use pyrklog_wire::ErrorCode;
use std::time::Duration;

#[test]
fn bytes_bound_a_produce_run_and_every_request_is_counted_once() {
    let broker = Broker::start(Habits::default());
    let outcome = measure(
        &broker,
        "produce --topic t --connections 2 --batch-bytes 1024 --bytes 200k",
    );
    let tally = outcome.tally;
    let state = broker.state.lock().unwrap();
    assert_eq!(tally.requests as usize, state.produced);
    assert_eq!(tally.bytes, tally.requests * outcome.batch_bytes as u64);
    assert_eq!(
        tally.records,
        tally.requests * u64::from(outcome.batch_records)
    );
    assert!((200_000..203_000).contains(&tally.bytes), "{}", tally.bytes);
    assert_eq!(tally.latency.count(), tally.requests);
    let counts: Vec<usize> = state.logs.iter().map(Vec::len).collect();
    assert!(
        counts.iter().max().unwrap() - counts.iter().min().unwrap() <= 3,
        "{counts:?}"
    );
}

#[test]
fn a_number_of_records_is_produced_in_whole_batches_by_all_connections_together() {
    let broker = Broker::start(Habits::default());
    let line = "produce --topic t --connections 3 --batch-bytes 1024 --records 500";
    let outcome = measure(&broker, line);
    let batches = 500_u64.div_ceil(u64::from(outcome.batch_records));
    assert_eq!(outcome.tally.requests, batches);
    assert_eq!(
        outcome.tally.records,
        batches * u64::from(outcome.batch_records)
    );
}

#[test]
fn without_acknowledgement_what_was_sent_is_counted() {
    let broker = Broker::start(Habits::default());
    let tally = measure(&broker, "produce --topic t --acks 0 --bytes 500k").tally;
    assert_eq!(tally.bytes, tally.requests * (tally.bytes / tally.requests));
    let mut state = broker.state.lock().unwrap();
    while state.produced < tally.requests as usize {
        state = broker.appended.wait(state).unwrap();
    }
}

#[test]
fn everything_produced_is_fetched_once() {
    let broker = Broker::start(Habits::default());
    let sent = measure(&broker, "produce --topic t --batch-bytes 2048 --bytes 100k").tally;
    for connections in [1, 2, 5] {
        let line = format!("fetch --topic t --connections {connections} --in-flight 2");
        let read = measure(&broker, &line).tally;
        assert_eq!((read.records, read.bytes), (sent.records, sent.bytes));
        assert!(read.is_clean());
    }
}

#[test]
fn a_repeated_fetch_ends_at_its_bytes() {
    let broker = Broker::start(Habits::default());
    measure(&broker, "produce --topic t --batch-bytes 2048 --bytes 20k");
    let read = measure(&broker, "fetch --topic t --repeat --bytes 300k").tally;
    assert!((300_000..330_000).contains(&read.bytes), "{}", read.bytes);
}

#[test]
fn an_error_code_is_counted_by_name_and_the_run_goes_on() {
    let broker = Broker::start(Habits {
        fail: Some((3, 6)),
        ..Habits::default()
    });
    let tally = measure(&broker, "produce --topic t --batch-bytes 1024 --bytes 20k").tally;
    assert_eq!(
        tally.errors.into_iter().collect::<Vec<_>>(),
        [(ErrorCode(6), 1)]
    );
    assert_eq!(
        tally.requests as usize,
        broker.state.lock().unwrap().produced - 1
    );
}

#[test]
fn waiting_behind_a_stall_is_not_omitted() {
    let stall = Some((20, Duration::from_millis(300)));
    let broker = Broker::start(Habits {
        stall,
        ..Habits::default()
    });
    let line = "produce --topic t --record-bytes 100 --batch-bytes 228 --rate 1000 \
                --seconds 0.5 --in-flight 2";
    let outcome = measure(&broker, line);
    // 300 of the 500 requests were due while one stalled, 200 of them at least 0.1 s before its
    // end: a stop-watch that starts at the sending would show only two.
    let tally = outcome.tally;
    assert_eq!(tally.requests, 500, "what was due is sent, however late");
    let slow_from = 100_000_000;
    assert!(
        tally.latency.max() >= 290_000_000,
        "{}",
        tally.latency.max()
    );
    assert!(
        tally.latency.percentile(70.0) >= slow_from,
        "{}",
        tally.latency.percentile(70.0)
    );
}

#[test]
fn a_rate_beyond_the_broker_is_said_to_be() {
    let broker = Broker::start(Habits {
        pause: Duration::from_millis(10),
        ..Habits::default()
    });
    let line = "produce --topic t --rate 10000 --batch-bytes 228 --record-bytes 100 --in-flight 1 \
                --seconds 0.2 --timeout-seconds 3";
    let error = run(&options(&broker, line)).unwrap_err().to_string();
    assert!(
        error.contains("no reply for") || error.contains("cannot keep up"),
        "{error}"
    );
}

#[test]
fn records_that_never_reach_the_reader_are_lost() {
    let broker = Broker::start(Habits {
        forgetful: true,
        ..Habits::default()
    });
    let line =
        "end-to-end --topic t --rate 100 --seconds 0.1 --max-wait-ms 50 --linger-seconds 0.2";
    let tally = measure(&broker, line).tally;
    assert_eq!((tally.lost, tally.records), (10, 0));
    assert!(!tally.is_clean());
}

#[test]
fn end_to_end_sees_every_record_once() {
    let broker = Broker::start(Habits::default());
    let tally = measure(&broker, "end-to-end --topic t --rate 2000 --seconds 0.3").tally;
    assert!(tally.is_clean());
    assert_eq!(
        tally.records as usize,
        broker.state.lock().unwrap().produced
    );
    assert_eq!(tally.latency.count(), tally.records);
    assert_eq!(tally.records, tally.requests);
}

#[test]
fn replies_out_of_order_end_a_run() {
    let broker = Broker::start(Habits {
        confused: true,
        ..Habits::default()
    });
    let error = run(&options(&broker, "produce --topic t --bytes 1k"))
        .unwrap_err()
        .to_string();
    assert!(error.contains("correlation id -7"), "{error}");
}

#[test]
fn a_broker_that_does_not_answer_is_given_up() {
    let stall = Some((1, Duration::from_secs(10)));
    let broker = Broker::start(Habits {
        stall,
        ..Habits::default()
    });
    let line = "produce --topic t --timeout-seconds 2 --bytes 100k";
    let error = run(&options(&broker, line)).unwrap_err().to_string();
    assert!(
        error.contains("no reply for") && error.contains("5 requests in flight"),
        "{error}"
    );
}

#[test]
fn a_missing_topic_is_named() {
    let broker = Broker::start(Habits::default());
    let error = run(&options(&broker, "fetch --topic absent"))
        .unwrap_err()
        .to_string();
    assert!(
        error.contains("\"absent\": UNKNOWN_TOPIC_OR_PARTITION"),
        "{error}"
    );
}
