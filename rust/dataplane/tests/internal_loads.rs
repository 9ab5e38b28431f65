//! Loads of internal topics: what counts of all their records.

use crate::harness::internal::*;
use crate::harness::transactions::{marker, write_now};
use crate::harness::*;
use pyrklog_dataplane::seam::*;
use pyrklog_wire::ErrorCode;

fn load(test: &mut TestPlane) -> Result<LiveRecords, i16> {
    let ticket = test.plane.load_internal(TOPIC, 0, 1 << 20).unwrap();
    loaded(test, ticket)
}

fn loaded(test: &mut TestPlane, ticket: TicketId) -> Result<LiveRecords, i16> {
    match test.ticket(ticket) {
        TicketOutcome::InternalLoaded(outcome) => outcome,
        other => panic!("{other:?}"),
    }
}

/// (offset, key, value) of what is left.
fn taken(found: &LiveRecords) -> Vec<(i64, String, String)> {
    let text = |bytes: Box<[u8]>| String::from_utf8(bytes.into_vec()).unwrap();
    let all = found.take(usize::MAX).into_iter();
    all.map(|(offset, key, value)| (offset, text(key), text(value)))
        .collect()
}

fn in_transaction(id: i64) -> InternalAppend<'static> {
    InternalAppend {
        producer: Some((id, 0)),
        ..terms()
    }
}

fn end(id: i64, is_commit: bool) -> Marker {
    Marker {
        topic: TOPIC.into(),
        ..marker(0, (id, 0), is_commit)
    }
}

#[test]
fn of_many_batches_the_last_value_of_each_key_is_loaded() {
    let dir = tempfile::tempdir().unwrap();
    let mut test = start(dir.path());
    // More than a load reads at a time.
    let filler = "x".repeat(10_000);
    let mut expected = Vec::new();
    for number in 0..300_i64 {
        let key = format!("k{}", number % 7);
        let outcome = append_now(&mut test, &terms(), &[(&key, Some(&filler)), (&key, None)]);
        assert_eq!(outcome, (NONE, 2 * number));
    }
    for number in 0..5_i64 {
        let key = format!("k{number}");
        let codec = number as u8;
        let terms = InternalAppend { codec, ..terms() };
        let (_, offset) = append_now(&mut test, &terms, &[(&key, Some("v"))]);
        expected.push((offset, key, "v".to_owned()));
    }
    let found = load(&mut test).unwrap();
    assert_eq!((found.end_offset, found.read, found.count()), (605, 605, 5));
    assert_eq!(taken(&found), expected);
    assert_eq!((found.count(), found.damaged_count), (0, 0));
}

#[test]
fn transactions_count_once_they_are_committed() {
    let dir = tempfile::tempdir().unwrap();
    let mut test = start(dir.path());
    append_now(
        &mut test,
        &in_transaction(1),
        &[("a", Some("1")), ("b", Some("1"))],
    );
    append_now(&mut test, &in_transaction(2), &[("c", Some("2"))]);
    append_now(
        &mut test,
        &in_transaction(3),
        &[("d", Some("3")), ("e", None)],
    );
    append_now(&mut test, &terms(), &[("b", Some("newer"))]);
    write_now(&mut test, &[end(1, true), end(2, false)]);
    let found = load(&mut test).unwrap();
    let expected = [(0, "a".into(), "1".into()), (5, "b".into(), "newer".into())];
    assert_eq!(taken(&found), expected);
    assert_eq!(found.end_offset, 8);
    assert_eq!(found.open_transactions(), [(3, 0, 2)]);
    let open = found.take_open(3, 10);
    let outline: Vec<_> = open
        .iter()
        .map(|(offset, key, value)| (*offset, key[0], value.is_some()))
        .collect();
    assert_eq!(outline, [(3, b'd', true), (4, b'e', false)]);
}

#[test]
fn a_load_waits_until_everything_is_written() {
    let dir = tempfile::tempdir().unwrap();
    let disk = SlowDisk::default();
    let config = config(vec![dir.path().join("logs")]);
    let mut test = TestPlane::start_with(config, std::sync::Arc::new(disk.clone()));
    test.create(TOPIC, 1);
    disk.freeze();
    append(&test, &terms(), &[("k", Some("v"))]);
    let ticket = test.plane.load_internal(TOPIC, 0, 1 << 20).unwrap();
    assert_eq!(test.statistic("purgatory_internal"), 2);
    disk.thaw();
    let found = loaded(&mut test, ticket).unwrap();
    assert_eq!(taken(&found), [(0, "k".into(), "v".into())]);
}

#[test]
fn loads_of_other_partitions_are_refused() {
    let dir = tempfile::tempdir().unwrap();
    let mut test = start(dir.path());
    assert_eq!(load(&mut test).unwrap().count(), 0, "an empty one");
    test.create("t", 1);
    for (topic, partition, error) in [
        ("t", 0, ErrorCode::INVALID_TOPIC_EXCEPTION),
        (TOPIC, 1, ErrorCode::NOT_LEADER_OR_FOLLOWER),
    ] {
        let ticket = test.plane.load_internal(topic, partition, 1).unwrap();
        assert_eq!(loaded(&mut test, ticket).unwrap_err(), error.0);
    }
}
