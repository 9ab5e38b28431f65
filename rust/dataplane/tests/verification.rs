//! A transaction's first batches wait until its coordinator was asked about their partitions.

use crate::harness::transactions::*;
use crate::harness::*;
use pyrklog_dataplane::seam::*;
use pyrklog_wire::ErrorCode;
use pyrklog_wire::api::key;

const NONE: ErrorCode = ErrorCode::NONE;

fn start(dir: &std::path::Path) -> (TestPlane, Client) {
    let mut test = TestPlane::start(dir);
    test.create("t", 2);
    let client = test.client();
    (test, client)
}

/// No question waits to be answered.
fn assert_unasked(test: &mut TestPlane) {
    test.events.extend(test.plane.drain_events(100));
    let questions = test.events.iter();
    let mut questions = questions.filter(|event| matches!(event, Event::VerifyTransaction(_)));
    assert!(questions.next().is_none());
}

#[test]
fn the_first_batch_waits_for_the_coordinator_and_the_others_do_not() {
    let dir = tempfile::tempdir().unwrap();
    let (mut test, mut client) = start(dir.path());
    send(&mut client, ADDS, &[(0, record(PRODUCER, 0))]);
    let asked = wait_for_question(&mut test);
    let expected = VerifyTransaction {
        id: asked.id,
        transactional_id: "txn".into(),
        producer_id: 7,
        producer_epoch: 3,
        partitions: vec![("t".into(), 0)],
        enrols: false,
    };
    assert_eq!(asked, expected);
    assert_eq!(test.client().fetch_one("t", 0, 0).high_watermark, 0);
    assert_eq!(test.statistic("transaction_verifications"), 1);
    test.plane.transaction_verified(asked.id, &[0]);
    assert_eq!(receive(&mut client, ADDS), [(NONE, 0)]);
    assert_eq!(test.statistic("transaction_verifications"), 0);
    // Also on another connection.
    let mut other = test.client();
    for (client, sequence) in [(&mut client, 1), (&mut other, 2)] {
        send(client, ADDS, &[(0, record(PRODUCER, sequence))]);
        assert_eq!(receive(client, ADDS), [(NONE, i64::from(sequence))]);
    }
    // A duplicate of an ended transaction needs no question either.
    assert_eq!(
        write_now(&mut test, &[marker(0, PRODUCER, true)]),
        [(NONE, 3)]
    );
    send(&mut client, ADDS, &[(0, record(PRODUCER, 2))]);
    assert_eq!(receive(&mut client, ADDS), [(NONE, 2)]);
    assert_unasked(&mut test);
    assert_eq!(verified(&mut test, &mut client, ADDS, 3, NONE), (NONE, 4));
}

#[test]
fn the_client_is_told_what_the_coordinator_says() {
    let dir = tempfile::tempdir().unwrap();
    let (mut test, mut client) = start(dir.path());
    let unknown = ErrorCode::TRANSACTION_ABORTABLE;
    for (version, code, told) in [
        (ADDS, unknown, unknown),
        (10, unknown, ErrorCode::INVALID_TXN_STATE),
        (
            ADDS,
            ErrorCode::PRODUCER_FENCED,
            ErrorCode::INVALID_PRODUCER_EPOCH,
        ),
        (
            ADDS,
            ErrorCode::NOT_COORDINATOR,
            ErrorCode::NOT_ENOUGH_REPLICAS,
        ),
        (
            ENROLS,
            ErrorCode::CONCURRENT_TRANSACTIONS,
            ErrorCode::CONCURRENT_TRANSACTIONS,
        ),
    ] {
        let answer = verified(&mut test, &mut client, version, 0, code);
        assert_eq!(answer, (told, -1), "{version} {code:?}");
    }
    assert_eq!(verified(&mut test, &mut client, ADDS, 0, NONE), (NONE, 0));
}

#[test]
fn a_request_asks_once_for_all_its_partitions() {
    let dir = tempfile::tempdir().unwrap();
    let (mut test, mut client) = start(dir.path());
    let both = [(0, record(PRODUCER, 0)), (1, record(PRODUCER, 0))];
    send(&mut client, ENROLS, &both);
    let asked = wait_for_question(&mut test);
    assert!(asked.enrols);
    assert_eq!(asked.partitions, [("t".into(), 0), ("t".into(), 1)]);
    let codes = [NONE.0, ErrorCode::INVALID_TXN_STATE.0];
    test.plane.transaction_verified(asked.id, &codes);
    let told = receive(&mut client, ENROLS);
    assert_eq!(told, [(NONE, 0), (ErrorCode::INVALID_TXN_STATE, -1)]);
    // Now only the other one is asked about.
    let both = [(0, record(PRODUCER, 1)), (1, record(PRODUCER, 0))];
    send(&mut client, ENROLS, &both);
    let asked = wait_for_question(&mut test);
    assert_eq!(asked.partitions, [("t".into(), 1)]);
    test.plane.transaction_verified(asked.id, &[0]);
    assert_eq!(receive(&mut client, ENROLS), [(NONE, 1), (NONE, 0)]);
}

#[test]
fn a_marker_in_between_voids_the_answer() {
    let dir = tempfile::tempdir().unwrap();
    let (mut test, mut client) = start(dir.path());
    send(&mut client, ADDS, &[(0, record(PRODUCER, 0))]);
    let asked = wait_for_question(&mut test);
    assert_eq!(
        write_now(&mut test, &[marker(0, PRODUCER, false)]),
        [(NONE, 0)]
    );
    test.plane.transaction_verified(asked.id, &[0]);
    assert_eq!(
        receive(&mut client, ADDS),
        [(ErrorCode::INVALID_TXN_STATE, -1)]
    );
    assert_eq!(test.client().fetch_one("t", 0, 0).last_stable_offset, 1);
}

/// With version 2 a marker has the epoch of the next transaction, and may come after its first
/// batch.
#[test]
fn a_marker_of_version_2_does_not_void_the_next_transaction() {
    let dir = tempfile::tempdir().unwrap();
    let (mut test, mut client) = start(dir.path());
    let (id, epoch) = PRODUCER;
    assert_eq!(verified(&mut test, &mut client, ENROLS, 0, NONE), (NONE, 0));
    send(&mut client, ENROLS, &[(0, record((id, epoch + 1), 0))]);
    let asked = wait_for_question(&mut test);
    let ends = [Marker {
        transaction_version: 2,
        ..marker(0, (id, epoch + 1), true)
    }];
    for offset in 1..=2 {
        // The answer to the first one was lost.
        assert_eq!(write_now(&mut test, &ends), [(NONE, offset)]);
    }
    test.plane.transaction_verified(asked.id, &[0]);
    assert_eq!(receive(&mut client, ENROLS), [(NONE, 3)]);
}

#[test]
fn a_new_leader_in_between_voids_the_answer() {
    let dir = tempfile::tempdir().unwrap();
    let (mut test, mut client) = start(dir.path());
    send(&mut client, ADDS, &[(0, record(PRODUCER, 0))]);
    let asked = wait_for_question(&mut test);
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
    let leader = LeaderSpec {
        replicas: vec![1, 2],
        ..TestPlane::leader_spec("t", 0, 2)
    };
    assert_eq!(test.become_leaders(vec![leader]), [0]);
    test.plane.transaction_verified(asked.id, &[0]);
    assert_eq!(
        receive(&mut client, ADDS),
        [(ErrorCode::INVALID_TXN_STATE, -1)]
    );
}

#[test]
fn what_needs_no_coordinator_is_refused_at_once() {
    let dir = tempfile::tempdir().unwrap();
    let (mut test, mut client) = start(dir.path());
    let mixed = [(0, record((7, 3), 0)), (1, record((8, 0), 0))];
    send(&mut client, ADDS, &mixed);
    let told = (ErrorCode::INVALID_PRODUCER_ID_MAPPING, -1);
    assert_eq!(receive(&mut client, ADDS), [told, told]);
    send(&mut client, ADDS, &[(9, record(PRODUCER, 0))]);
    let told = (ErrorCode::UNKNOWN_TOPIC_OR_PARTITION, -1);
    assert_eq!(receive(&mut client, ADDS), [told]);
    // A transactional batch without a transactional id.
    let answer = client.produce("t", 0, &record(PRODUCER, 0));
    assert_eq!(answer.0, ErrorCode::TRANSACTIONAL_ID_AUTHORIZATION_FAILED);
    // A zombie.
    assert_eq!(verified(&mut test, &mut client, ADDS, 0, NONE), (NONE, 0));
    send(&mut client, ADDS, &[(0, record((7, 2), 0))]);
    let told = (ErrorCode::INVALID_PRODUCER_EPOCH, -1);
    assert_eq!(receive(&mut client, ADDS), [told]);
    assert_unasked(&mut test);
}

#[test]
fn switched_off_only_enrolling_requests_ask() {
    let dir = tempfile::tempdir().unwrap();
    let (mut test, mut client) = start(dir.path());
    test.plane.set_transaction_verification(false);
    send(&mut client, ADDS, &[(0, record(PRODUCER, 0))]);
    assert_eq!(receive(&mut client, ADDS), [(NONE, 0)]);
    assert_unasked(&mut test);
    send(&mut client, ENROLS, &[(1, record(PRODUCER, 0))]);
    let asked = wait_for_question(&mut test);
    test.plane.transaction_verified(asked.id, &[0]);
    assert_eq!(receive(&mut client, ENROLS), [(NONE, 0)]);
}

#[test]
fn a_waiting_request_holds_back_its_connection_alone() {
    let dir = tempfile::tempdir().unwrap();
    let (mut test, mut client) = start(dir.path());
    let before = test.statistic("receive_memory_bytes");
    send(&mut client, ADDS, &[(0, record(PRODUCER, 0))]);
    send(&mut client, ADDS, &[(0, record(PRODUCER, 1))]);
    let asked = wait_for_question(&mut test);
    assert!(test.statistic("receive_memory_bytes") > before);
    assert_eq!(
        test.client().produce("t", 0, &batch(&[b"plain"])),
        (NONE, 0)
    );
    test.plane.transaction_verified(asked.id, &[0]);
    assert_eq!(receive(&mut client, ADDS), [(NONE, 1)]);
    assert_eq!(receive(&mut client, ADDS), [(NONE, 2)]);
}

#[test]
fn nothing_is_left_of_a_client_that_is_gone() {
    let dir = tempfile::tempdir().unwrap();
    let (mut test, mut client) = start(dir.path());
    let before = test.statistic("receive_memory_bytes");
    send(&mut client, ADDS, &[(0, record(PRODUCER, 0))]);
    let asked = wait_for_question(&mut test);
    hang_up(client);
    eventually("its memory is free", || {
        (test.statistic("receive_memory_bytes") == before).then_some(())
    });
    assert_eq!(test.statistic("transaction_verifications"), 1);
    test.plane.transaction_verified(asked.id, &[0]);
    test.plane.transaction_verified(asked.id, &[0]);
    assert_eq!(test.statistic("transaction_verifications"), 0);
    let mut client = test.client();
    assert_eq!(verified(&mut test, &mut client, ADDS, 0, NONE), (NONE, 0));
}

#[test]
fn a_late_answer_is_no_answer() {
    let dir = tempfile::tempdir().unwrap();
    let (mut test, mut client) = start(dir.path());
    let batches = [(0, record(PRODUCER, 0))];
    client.send(key::PRODUCE, ADDS, &request(ADDS, 1, &batches));
    let asked = wait_for_question(&mut test);
    let told = (ErrorCode::NOT_ENOUGH_REPLICAS, -1);
    assert_eq!(receive(&mut client, ADDS), [told]);
    test.plane.transaction_verified(asked.id, &[0]);
    // The second batch came behind it, and waits for the first one to be sent again.
    let answer = verified(&mut test, &mut client, ADDS, 1, NONE);
    assert_eq!(answer, told);
    assert_eq!(verified(&mut test, &mut client, ADDS, 0, NONE), (NONE, 0));
}

#[test]
fn a_refused_question_leaves_no_guard() {
    let dir = tempfile::tempdir().unwrap();
    let (mut test, mut client) = start(dir.path());
    let refused = ErrorCode::INVALID_PRODUCER_ID_MAPPING;
    let told = verified(&mut test, &mut client, ADDS, 0, refused);
    assert_eq!(told, (refused, -1));
    // Nor does one whose client is gone.
    let mut gone = test.client();
    send(&mut gone, ADDS, &[(0, record(PRODUCER, 1))]);
    wait_for_question(&mut test);
    let before = test.statistic("receive_memory_bytes");
    hang_up(gone);
    eventually("its request is forgotten", || {
        (test.statistic("receive_memory_bytes") < before).then_some(())
    });
    assert_eq!(verified(&mut test, &mut client, ADDS, 5, NONE), (NONE, 0));
}

#[test]
fn a_stranger_does_not_hold_back_a_producer() {
    let dir = tempfile::tempdir().unwrap();
    let (mut test, mut client) = start(dir.path());
    let mut stranger = test.client();
    let batches = [(0, record(PRODUCER, 0))];
    let body = request_of("bogus", ADDS, 30_000, &batches);
    stranger.send(key::PRODUCE, ADDS, &body);
    let asked = wait_for_question(&mut test);
    assert_eq!(asked.transactional_id, "bogus");
    assert_eq!(verified(&mut test, &mut client, ADDS, 5, NONE), (NONE, 0));
    // Even if its coordinator cannot tell.
    let code = ErrorCode::COORDINATOR_NOT_AVAILABLE;
    test.plane.transaction_verified(asked.id, &[code.0]);
    let told = (ErrorCode::NOT_ENOUGH_REPLICAS, -1);
    assert_eq!(receive(&mut stranger, ADDS), [told]);
}
