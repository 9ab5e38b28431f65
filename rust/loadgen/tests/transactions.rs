//! Producers with sequence numbers against a minimal broker that checks them.

mod fake_broker;

use fake_broker::{Broker, Ended, Habits, measure, options};
use pyrklog_loadgen::run::run;
use std::collections::BTreeMap;

#[test]
fn an_idempotent_producer_counts_its_records_on() {
    let broker = Broker::start(Habits::default());
    let outcome = measure(
        &broker,
        "idempotent --topic t --producers 3 --threads 2 --batch-bytes 1024 --bytes 300k",
    );
    let state = broker.state.lock().unwrap();
    assert_eq!(state.producers.len(), 3);
    assert_eq!(outcome.tally.requests as usize, state.produced);
    assert_eq!(outcome.tally.latency.count(), outcome.tally.requests);
    let counted: i32 = state
        .producers
        .iter()
        .flat_map(|one| one.sequences.values())
        .sum();
    assert_eq!(outcome.tally.records, counted as u64);
    assert!(state.ended.is_empty());
}

fn batches(ended: &[Ended]) -> Vec<usize> {
    ended.iter().map(|one| one.batches).collect()
}

#[test]
fn transactions_of_so_many_batches_end_and_one_is_cut_short_by_the_end() {
    for (version, completes_late) in [(1, 0), (1, 2), (2, 0), (2, 2)] {
        let broker = Broker::start(Habits {
            completes_late,
            ..Habits::default()
        });
        let line = format!(
            "transactions --topic t --commit-batches 10 --in-flight 3 --batch-bytes 1024 \
             --bytes 50k --transaction-version {version} --transactional-id me"
        );
        let outcome = measure(&broker, &line);
        let state = broker.state.lock().unwrap();
        let (cut, whole) = state.ended.split_last().unwrap();
        assert!(batches(whole).iter().all(|count| *count == 10), "{whole:?}");
        assert!(cut.batches <= 10);
        assert!(
            state
                .ended
                .iter()
                .all(|one| one.is_commit && one.transactional_id == "me-0")
        );
        // What the end cut short is no commit that was due.
        let counted = outcome.tally.requests as usize;
        assert!(
            [whole.len(), state.ended.len()].contains(&counted),
            "{counted}"
        );
        let sent: usize = batches(&state.ended).iter().sum();
        assert_eq!(
            outcome.tally.bytes,
            sent as u64 * outcome.batch_bytes as u64
        );
    }
}

#[test]
fn each_producer_aborts_its_part() {
    let broker = Broker::start(Habits::default());
    measure(
        &broker,
        "transactions --topic t --producers 4 --commit-batches 1 --abort-percent 25 \
         --batch-bytes 1024 --bytes 400k",
    );
    let state = broker.state.lock().unwrap();
    let mut aborted: BTreeMap<&str, Vec<bool>> = BTreeMap::new();
    for one in &state.ended {
        aborted
            .entry(&one.transactional_id)
            .or_default()
            .push(!one.is_commit);
    }
    assert_eq!(aborted.len(), 4);
    for all in aborted.values() {
        for four in all.chunks_exact(4) {
            assert_eq!(four.iter().filter(|is_aborted| **is_aborted).count(), 1);
        }
    }
}

#[test]
fn commits_at_fixed_times_come_as_often_as_they_are_due() {
    let broker = Broker::start(Habits::default());
    let outcome = measure(
        &broker,
        "transactions --topic t --producers 5 --commit-ms 100 --commit-batches 1 \
         --batch-bytes 1024 --seconds 1",
    );
    let state = broker.state.lock().unwrap();
    // Nine or ten of each, since their turns are spread over 100 ms; fewer on a slow machine.
    assert!(
        (5..=50).contains(&outcome.tally.requests),
        "{}",
        outcome.tally.requests
    );
    assert!(state.ended.iter().all(|one| one.batches <= 1));
    assert_eq!(state.producers.len(), 5);
}

#[test]
fn transactions_last_as_long_as_they_are_said_to() {
    let broker = Broker::start(Habits::default());
    let outcome = measure(
        &broker,
        "transactions --topic t --commit-ms 50 --batch-bytes 1024 --seconds 0.3 --bytes 1G",
    );
    let count = outcome.tally.requests;
    assert!((1..=6).contains(&count), "{count}");
}

#[test]
fn a_refused_batch_must_not_be_overtaken() {
    let broker = Broker::start(Habits::default());
    let line = "transactions --topic t --transaction-version 2 --in-flight 4";
    let error = run(&options(&broker, line)).unwrap_err().to_string();
    assert!(error.contains("--in-flight 3 or less"), "{error}");
}
