//! The time without progress of a split: what counts and what does not.

use pyrklog_client::{Cancel, Client, ClientConfig};
use pyrklog_wire::fetch::{FetchPartitionHead, FetchPartitionTail};

use super::*;
use crate::coordinator::tests::{broker, cursor};

const TIMEOUT: Duration = Duration::from_secs(30);
const SECOND: Duration = Duration::from_secs(1);
const HELD_UP: Duration = Duration::from_secs(40);

fn lane() -> Lane {
    let config = ClientConfig {
        bootstrap: Vec::new(),
        client_id: "test".into(),
        connect_timeout: TIMEOUT,
        request_timeout: TIMEOUT,
        security: Default::default(),
    };
    let client = Client::new(config, Cancel::new().unwrap());
    let terms = FetchTerms {
        isolation: Isolation::ReadUncommitted,
        rack: String::new(),
        bytes: 1,
        timeout: TIMEOUT,
        request_timeout: TIMEOUT,
    };
    let id = LaneId {
        broker: 1,
        shard: 0,
        number: 0,
    };
    let connection = client.opener().open(&broker()).unwrap();
    Lane::new(id, connection, Arc::new(terms))
}

/// A split up to offset 10 that makes no progress from now on.
fn stalled(since: Instant) -> Cursor {
    let mut cursor = cursor(0);
    assert_eq!(cursor.stalled_for(since), Duration::ZERO);
    cursor
}

/// The lane takes an answer without records for its only split. Whether that stays.
fn answer(lane: &mut Lane, visible: i64, is_first: bool, now: Instant) -> bool {
    let asked = lane.asked.pop();
    let cursor = asked.or_else(|| lane.cursors.pop_front()).unwrap();
    let one = FetchPartitionResponse {
        head: FetchPartitionHead {
            high_watermark: visible,
            ..FetchPartitionHead::failed(0, ErrorCode::NONE)
        },
        records: None,
        tail: FetchPartitionTail::default(),
    };
    let mut answer = Answer::default();
    lane.sort_out(cursor, one, is_first, now, &mut answer)
        .unwrap();
    match answer.released.pop() {
        None => true,
        Some((_, Why::Stalled(_))) => false,
        Some(other) => panic!("{other:?}"),
    }
}

/// An end that is not there yet is given up once the time is over, and not before.
fn assert_fails_in(lane: &mut Lane, left: Duration, now: Instant) {
    assert!(answer(lane, 5, true, now));
    assert!(answer(lane, 5, true, now + left - SECOND));
    assert!(!answer(lane, 5, true, now + left));
}

#[test]
fn a_split_for_which_there_was_no_room_has_all_its_time() {
    let (mut lane, start) = (lane(), Instant::now());
    lane.add(stalled(start), start);
    assert!(answer(&mut lane, 10, false, start + SECOND));
    assert_fails_in(&mut lane, TIMEOUT, start + HELD_UP);
}

#[test]
fn time_in_which_the_worker_did_not_look_does_not_count() {
    let (mut lane, start) = (lane(), Instant::now());
    lane.add(stalled(start), start);
    lane.was_left_alone(start + SECOND, start + HELD_UP);
    assert_fails_in(&mut lane, TIMEOUT - SECOND, start + HELD_UP);
}

#[test]
fn time_on_the_way_to_a_worker_does_not_count() {
    let (mut lane, start) = (lane(), Instant::now());
    let mut cursor = stalled(start);
    cursor.handed_over(start + SECOND);
    lane.add(cursor, start + HELD_UP);
    assert_fails_in(&mut lane, TIMEOUT - SECOND, start + HELD_UP);
}

fn throttle(lane: &mut Lane, since: Instant, until: Instant) {
    lane.sent_at = None;
    (lane.throttled_since, lane.resume_at) = (Some(since), Some(until));
    lane.ask(until).unwrap();
    assert_eq!(lane.asked.len(), 1, "it was not asked for");
}

#[test]
fn throttling_does_not_count_unless_it_never_ends() {
    let (mut lane, start) = (lane(), Instant::now());
    lane.add(stalled(start), start);
    let mut now = start;
    for _ in 0..THROTTLED_TIMEOUTS_MAX {
        throttle(&mut lane, now, now + TIMEOUT);
        now += TIMEOUT;
        assert!(answer(&mut lane, 5, true, now));
    }
    throttle(&mut lane, now, now + TIMEOUT);
    assert!(!answer(&mut lane, 5, true, now + TIMEOUT));
}
