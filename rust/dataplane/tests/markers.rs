//! Markers that end transactions, and the producers of a partition.

use crate::harness::internal::{append_now, terms};
use crate::harness::transactions::*;
use crate::harness::*;
use pyrklog_dataplane::seam::*;
use pyrklog_wire::ErrorCode;

const NONE: ErrorCode = ErrorCode::NONE;
const FOLLOWED: &str = "__consumer_offsets";

fn start(dir: &std::path::Path) -> (TestPlane, Client) {
    let mut test = TestPlane::start(dir);
    test.create("t", 2);
    let client = test.client();
    (test, client)
}

/// Last stable offset and aborted transactions of `t`-0.
fn committed(test: &TestPlane) -> (i64, Vec<(i64, i64)>) {
    let mut ask = Ask::one("t", 0, 0);
    ask.isolation_level = 1;
    let found = test.client().fetch(&ask).partitions.remove(0);
    (found.last_stable_offset, found.aborted.unwrap_or_default())
}

/// From now on another broker leads `t`-0.
fn follow(test: &mut TestPlane) {
    let follower = FollowerSpec {
        topic: "t".into(),
        partition: 0,
        leader: 2,
        leader_epoch: 1,
        replicas: vec![1, 2],
        isr: vec![1, 2],
        is_new: false,
        is_partial: false,
    };
    assert_eq!(test.become_followers(vec![follower]), [0]);
}

#[test]
fn markers_end_transactions_in_the_order_of_the_calls() {
    let dir = tempfile::tempdir().unwrap();
    let (mut test, mut client) = start(dir.path());
    assert_eq!(verified(&mut test, &mut client, ADDS, 0, NONE), (NONE, 0));
    assert_eq!(committed(&test), (0, vec![]));
    let first = write(
        &test,
        &[marker(0, PRODUCER, false), marker(1, PRODUCER, false)],
    );
    let second = write(&test, &[marker(0, (9, 0), true)]);
    assert_eq!(written(&mut test, second), [(NONE, 2)]);
    assert_eq!(written(&mut test, first), [(NONE, 1), (NONE, 0)]);
    assert_eq!(committed(&test), (3, vec![(7, 0)]));
    assert_eq!(verified(&mut test, &mut client, ADDS, 1, NONE), (NONE, 3));
    assert_eq!(
        write_now(&mut test, &[marker(0, PRODUCER, true)]),
        [(NONE, 4)]
    );
    assert_eq!(committed(&test), (5, vec![(7, 0)]));
    assert_eq!(write_now(&mut test, &[]), []);
}

#[test]
fn a_marker_waits_for_every_replica_in_sync() {
    let dir = tempfile::tempdir().unwrap();
    let mut test = TestPlane::start(dir.path());
    test.describe_topic("t", 1, &topic_config());
    let with_follower = LeaderSpec {
        replicas: vec![1, 2],
        isr: vec![1, 2],
        ..TestPlane::leader_spec("t", 0, 0)
    };
    assert_eq!(test.become_leaders(vec![with_follower.clone()]), [0]);
    let ticket = write(
        &test,
        &[marker(0, PRODUCER, true), marker(9, PRODUCER, true)],
    );
    assert_eq!(test.statistic("purgatory_internal"), 1);
    let alone = LeaderSpec {
        isr: vec![1],
        ..with_follower.clone()
    };
    assert_eq!(test.become_leaders(vec![alone]), [0]);
    let unknown = (ErrorCode::UNKNOWN_TOPIC_OR_PARTITION, -1);
    assert_eq!(written(&mut test, ticket), [(NONE, 0), unknown]);
    // A leader that follows may lose what it wrote.
    assert_eq!(test.become_leaders(vec![with_follower]), [0]);
    let lost = write(&test, &[marker(0, PRODUCER, true)]);
    follow(&mut test);
    let elsewhere = (ErrorCode::NOT_LEADER_OR_FOLLOWER, -1);
    assert_eq!(written(&mut test, lost), [elsewhere]);
    assert_eq!(
        write_now(&mut test, &[marker(0, PRODUCER, true)]),
        [elsewhere]
    );
}

#[test]
fn markers_of_old_coordinators_and_old_epochs_are_refused() {
    let dir = tempfile::tempdir().unwrap();
    let (mut test, mut client) = start(dir.path());
    assert_eq!(verified(&mut test, &mut client, ADDS, 0, NONE), (NONE, 0));
    let refused = |test: &mut TestPlane, marker: Marker| {
        let [(error, -1)] = write_now(test, &[marker])[..] else {
            panic!("it was written")
        };
        error
    };
    let old = marker(0, (7, 2), true);
    assert_eq!(refused(&mut test, old), ErrorCode::INVALID_PRODUCER_EPOCH);
    // Version 2 bumps the epoch: this one ends an earlier transaction.
    let in_version_2 = |epoch| Marker {
        transaction_version: 2,
        coordinator_epoch: 5,
        ..marker(0, (7, epoch), true)
    };
    let late = refused(&mut test, in_version_2(3));
    assert_eq!(late, ErrorCode::INVALID_PRODUCER_EPOCH);
    assert_eq!(committed(&test).0, 0);
    assert_eq!(write_now(&mut test, &[in_version_2(4)]), [(NONE, 1)]);
    let again = write_now(&mut test, &[in_version_2(4)]);
    assert_eq!(again, [(NONE, 2)], "its answer was lost");
    let fenced = Marker {
        coordinator_epoch: 4,
        ..in_version_2(4)
    };
    let error = refused(&mut test, fenced);
    assert_eq!(error, ErrorCode::TRANSACTION_COORDINATOR_FENCED);
    assert_eq!(committed(&test).0, 3);
}

#[test]
fn too_few_replicas_take_no_marker() {
    let dir = tempfile::tempdir().unwrap();
    let mut test = TestPlane::start(dir.path());
    let mut options = topic_config();
    options.min_insync_replicas = 2;
    test.describe_topic("t", 1, &options);
    let one_of_two = LeaderSpec {
        replicas: vec![1, 2],
        ..TestPlane::leader_spec("t", 0, 0)
    };
    assert_eq!(test.become_leaders(vec![one_of_two]), [0]);
    let told = write_now(&mut test, &[marker(0, PRODUCER, true)]);
    assert_eq!(told, [(ErrorCode::NOT_ENOUGH_REPLICAS, -1)]);
}

#[test]
fn producers_of_a_partition_are_described() {
    let dir = tempfile::tempdir().unwrap();
    let (mut test, mut client) = start(dir.path());
    assert_eq!(verified(&mut test, &mut client, ADDS, 0, NONE), (NONE, 0));
    write_now(&mut test, &[marker(0, (2, 1), true)]);
    let open = ActiveProducer {
        id: 7,
        epoch: 3,
        last_sequence: 0,
        last_timestamp: 1_700_000_000_000,
        coordinator_epoch: -1,
        txn_start_offset: 0,
    };
    let ended = ActiveProducer {
        id: 2,
        epoch: 1,
        last_sequence: -1,
        last_timestamp: 1_700_000_000_000,
        coordinator_epoch: 0,
        txn_start_offset: -1,
    };
    let described = |test: &TestPlane, max| test.plane.active_producers("t", 0, max);
    assert_eq!(described(&test, 10), Ok(vec![open, ended]));
    assert_eq!(described(&test, 1), Ok(vec![open]));
    follow(&mut test);
    assert_eq!(described(&test, 10), Ok(vec![open, ended]), "by a follower");
    let elsewhere = test.plane.active_producers("t", 5, 10);
    assert_eq!(elsewhere, Err(ErrorCode::NOT_LEADER_OR_FOLLOWER));
}

#[test]
fn offsets_of_a_transaction_need_its_guard() {
    let dir = tempfile::tempdir().unwrap();
    let mut test = TestPlane::start(dir.path());
    test.create(FOLLOWED, 1);
    let begin = |test: &TestPlane, epoch| test.plane.begin_verification(FOLLOWED, 0, (7, epoch));
    let with = |guard| InternalAppend {
        producer: Some(PRODUCER),
        guard: Some(guard),
        ..terms()
    };
    let invalid = (ErrorCode::INVALID_TXN_STATE.0, -1);
    let one = [("k", Some("v"))];
    assert_eq!(append_now(&mut test, &with(0), &one), invalid);
    let guard = begin(&test, 3).unwrap();
    assert_eq!(append_now(&mut test, &with(guard + 1), &one), invalid);
    let end = Marker {
        topic: FOLLOWED.into(),
        ..marker(0, PRODUCER, true)
    };
    assert_eq!(
        write_now(&mut test, std::slice::from_ref(&end)),
        [(NONE, 0)]
    );
    assert_eq!(append_now(&mut test, &with(guard), &one), invalid, "void");
    let refused = begin(&test, 3).unwrap();
    test.plane.end_verification(FOLLOWED, 0, PRODUCER, refused);
    assert_eq!(append_now(&mut test, &with(refused), &one), invalid);
    let guard = begin(&test, 3).unwrap();
    test.plane.end_verification(FOLLOWED, 0, PRODUCER, refused);
    assert_eq!(append_now(&mut test, &with(guard), &one), (0, 1));
    test.plane.end_verification(FOLLOWED, 0, PRODUCER, guard);
    assert_eq!(begin(&test, 3), Ok(0), "it is open");
    assert_eq!(append_now(&mut test, &with(0), &one), (0, 2));
    assert_eq!(begin(&test, 2), Err(ErrorCode::INVALID_PRODUCER_EPOCH));
    let elsewhere = test.plane.begin_verification(FOLLOWED, 5, PRODUCER);
    assert_eq!(elsewhere, Err(ErrorCode::NOT_LEADER_OR_FOLLOWER));
}
