//! Eviction from a full cache, and sessions that end during a request.

use pyrklog_wire::reader::REQUEST_ELEMENTS_MAX;

use super::super::shard::EVICTION_MS;
use super::*;

#[test]
fn a_full_cache_makes_no_session_and_says_so() {
    let mut client = Client::new(2, BY_ID);
    for expected in [100, 101, NO_SESSION_ID] {
        let (id, answer) = client.fetch((0, INITIAL_EPOCH), AB, &[], quiet).unwrap();
        assert_eq!((id, answer.len()), (expected, 3));
    }
    let mut none = Client::new(0, BY_ID);
    assert_eq!(
        none.fetch((0, INITIAL_EPOCH), AB, &[], quiet).unwrap().0,
        NO_SESSION_ID
    );
}

#[test]
fn the_stale_session_goes_first() {
    let mut client = Client::new(2, BY_ID);
    let (one, _) = client.fetch((0, INITIAL_EPOCH), AB, &[], quiet).unwrap();
    let (two, _) = client.fetch((0, INITIAL_EPOCH), AB, &[], quiet).unwrap();
    client.now_ms = EVICTION_MS;
    client.fetch((one, 1), &[], &[], quiet).unwrap();
    assert_eq!(
        client.fetch((0, INITIAL_EPOCH), AB, &[], quiet).unwrap().0,
        NO_SESSION_ID
    );
    client.now_ms += 1;
    let (three, _) = client.fetch((0, INITIAL_EPOCH), AB, &[], quiet).unwrap();
    assert_eq!(three, 102);
    let gone = client.fetch((two, 1), &[], &[], quiet);
    assert_eq!(gone, Err(ErrorCode::FETCH_SESSION_ID_NOT_FOUND));
    assert!(client.fetch((one, 2), &[], &[], quiet).is_ok());
    assert_eq!(client.cache.statistics().evictions, 1);
}

#[test]
fn a_larger_session_evicts_a_smaller_one_that_had_its_time() {
    let mut client = Client::new(2, BY_ID);
    let small: &[Wanted<'_>] = &[("a", 1, &[(0, 0)])];
    let (one, _) = client.fetch((0, INITIAL_EPOCH), small, &[], quiet).unwrap();
    let (two, _) = client.fetch((0, INITIAL_EPOCH), AB, &[], quiet).unwrap();
    // Both stay in use and become old.
    client.now_ms = EVICTION_MS + 1;
    client.fetch((one, 1), &[], &[], quiet).unwrap();
    client.fetch((two, 1), &[], &[], quiet).unwrap();
    // Equal size does not suffice: ties go to the existing session.
    let equal = client.fetch((0, INITIAL_EPOCH), small, &[], quiet).unwrap();
    assert_eq!(equal.0, NO_SESSION_ID);
    let two_partitions: &[Wanted<'_>] = &[("a", 1, &[(0, 0), (1, 0)])];
    let (three, _) = client
        .fetch((0, INITIAL_EPOCH), two_partitions, &[], quiet)
        .unwrap();
    assert_ne!(three, NO_SESSION_ID);
    let gone = client.fetch((one, 2), &[], &[], quiet);
    assert_eq!(gone, Err(ErrorCode::FETCH_SESSION_ID_NOT_FOUND));
    assert!(client.fetch((two, 2), &[], &[], quiet).is_ok());
}

#[test]
fn a_follower_evicts_consumers_at_once_and_is_spared_by_them() {
    let mut client = Client::new(1, BY_NAME);
    let small: &[Wanted<'_>] = &[("a", 1, &[(0, 0)])];
    let (consumer, _) = client.fetch((0, INITIAL_EPOCH), AB, &[], quiet).unwrap();
    client.replica_id = 2;
    let (follower, _) = client.fetch((0, INITIAL_EPOCH), small, &[], quiet).unwrap();
    assert_ne!(follower, NO_SESSION_ID);
    let gone = client.fetch((consumer, 1), &[], &[], quiet);
    assert_eq!(gone, Err(ErrorCode::FETCH_SESSION_ID_NOT_FOUND));
    // A consumer cannot evict a follower in use, however old.
    client.now_ms = EVICTION_MS + 1;
    client.fetch((follower, 1), &[], &[], quiet).unwrap();
    client.replica_id = -1;
    assert_eq!(
        client.fetch((0, INITIAL_EPOCH), AB, &[], quiet).unwrap().0,
        NO_SESSION_ID
    );
    // A larger follower can.
    client.replica_id = 3;
    assert_ne!(
        client.fetch((0, INITIAL_EPOCH), AB, &[], quiet).unwrap().0,
        NO_SESSION_ID
    );
}

#[test]
fn a_session_under_way_refuses_a_second_request_and_survives_it() {
    let mut client = Client::new(10, BY_ID);
    let (id, _) = client.fetch((0, INITIAL_EPOCH), AB, &[], quiet).unwrap();
    let waiting = client.begin((id, 1), &[], &[]).unwrap();
    let second = client.fetch((id, 2), &[], &[], quiet);
    assert_eq!(second, Err(ErrorCode::INVALID_FETCH_SESSION_EPOCH));
    client.cache.finish(waiting);
    assert!(client.fetch((id, 2), &[], &[], quiet).is_ok());
}

#[test]
fn an_abandoned_request_ends_its_session() {
    let mut client = Client::new(10, BY_ID);
    let (id, _) = client.fetch((0, INITIAL_EPOCH), AB, &[], quiet).unwrap();
    let context = client.begin((id, 1), &[], &[]).unwrap();
    client.cache.abandon(context);
    assert_eq!(
        (client.sessions(), client.cache.statistics().partitions),
        (0, 0)
    );
    let alone = client.begin((0, FINAL_EPOCH), AB, &[]).unwrap();
    client.cache.abandon(alone);
}

#[test]
fn a_session_evicted_under_way_does_not_come_back() {
    let mut client = Client::new(1, BY_ID);
    let (id, _) = client.fetch((0, INITIAL_EPOCH), AB, &[], quiet).unwrap();
    let waiting = client.begin((id, 1), &[], &[]).unwrap();
    client.now_ms = EVICTION_MS + 1;
    // The newcomer draws the same id.
    client.next_id = id;
    let newcomer = client
        .begin((0, INITIAL_EPOCH), &[("b", 2, &[(0, 0)])], &[])
        .unwrap();
    assert_eq!(newcomer.session_id(), id);
    client.cache.finish(waiting);
    client.cache.finish(newcomer);
    let context = client.begin((id, 1), &[], &[]).unwrap();
    assert_eq!(
        context.targets().map(label).collect::<Vec<_>>(),
        labels(&[("b", 0)])
    );
}

#[test]
fn ids_are_positive_and_unused() {
    let mut client = Client::new(10, BY_ID);
    client.next_id = -2;
    assert_eq!(
        client.fetch((0, INITIAL_EPOCH), AB, &[], quiet).unwrap().0,
        1
    );
    client.next_id = 0;
    assert_eq!(
        client.fetch((0, INITIAL_EPOCH), AB, &[], quiet).unwrap().0,
        2
    );
}

#[test]
fn sessions_are_bounded_by_their_partitions_too() {
    let mut client = Client::new(10, BY_NAME);
    client.cache = SessionCache::with_bounds(10, 5);
    let two: &[Wanted<'_>] = &[("a", 1, &[(0, 0), (1, 0)])];
    let three: &[Wanted<'_>] = &[("a", 1, &[(0, 0), (1, 0), (2, 0)])];
    let (first, _) = client.fetch((0, INITIAL_EPOCH), two, &[], quiet).unwrap();
    let (second, _) = client.fetch((0, INITIAL_EPOCH), two, &[], quiet).unwrap();
    assert!(first > 0 && second > 0);
    // No room for three more: answered without a session.
    let (none, answer) = client.fetch((0, INITIAL_EPOCH), three, &[], quiet).unwrap();
    assert_eq!((none, answer.len()), (NO_SESSION_ID, 3));
    // A session may grow up to the bound and ends beyond it: its client begins anew.
    let one_more: &[Wanted<'_>] = &[("a", 1, &[(2, 0)])];
    client.fetch((first, 1), one_more, &[], quiet).unwrap();
    let refused = client.fetch((second, 1), one_more, &[], quiet);
    assert_eq!(refused, Err(ErrorCode::FETCH_SESSION_ID_NOT_FOUND));
    let statistics = client.cache.statistics();
    assert_eq!((statistics.sessions, statistics.partitions), (1, 3));
    // Unused sessions make room.
    client.now_ms = EVICTION_MS + 1;
    let (third, _) = client.fetch((0, INITIAL_EPOCH), three, &[], quiet).unwrap();
    assert!(third > 0);
    assert_eq!(client.cache.statistics().partitions, 3);
}

#[test]
fn for_partitions_a_follower_evicts_consumers_but_no_follower() {
    let mut client = Client::new(10, BY_NAME);
    client.cache = SessionCache::with_bounds(10, 6);
    let begin = (0, INITIAL_EPOCH);
    let three: &[Wanted<'_>] = &[("a", 1, &[(0, 0), (1, 0), (2, 0)])];
    for _ in 0..2 {
        assert!(client.fetch(begin, three, &[], quiet).unwrap().0 > 0);
    }
    client.replica_id = 2;
    let (follower, _) = client.fetch(begin, three, &[], quiet).unwrap();
    assert!(follower > 0);
    assert_eq!(client.cache.statistics().partitions, 6);
    // It grows at the cost of the other consumer.
    let more: &[Wanted<'_>] = &[("b", 2, &[(0, 0), (1, 0)])];
    client.fetch((follower, 1), more, &[], quiet).unwrap();
    let statistics = client.cache.statistics();
    assert_eq!((statistics.sessions, statistics.partitions), (1, 5));
    // However old, a follower's session in use stays.
    client.now_ms = EVICTION_MS + 1;
    client.fetch((follower, 2), &[], &[], quiet).unwrap();
    let (none, _) = client.fetch(begin, three, &[], quiet).unwrap();
    assert_eq!(none, NO_SESSION_ID);
    // More than there may be evicts nobody.
    let many: Vec<(i32, i64)> = (0..7).map(|index| (index, 0)).collect();
    let too_many: &[Wanted<'_>] = &[("a", 1, &many)];
    let (none, _) = client.fetch(begin, too_many, &[], quiet).unwrap();
    assert_eq!((none, client.sessions()), (NO_SESSION_ID, 1));
}

#[test]
fn an_unknown_name_is_kept_once_and_counts() {
    let mut client = Client::new(10, BY_NAME);
    client.cache = SessionCache::with_bounds(10, 5);
    let unknown: &[Wanted<'_>] = &[("x", 0, &[(0, 0), (1, 0)]), ("y", 0, &[(0, 0)])];
    let (id, _) = client
        .fetch((0, INITIAL_EPOCH), unknown, &[], quiet)
        .unwrap();
    assert!(id > 0);
    assert_eq!(client.cache.statistics().partitions, 5);
    let forgotten: &[(&str, u8, &[i32])] = &[("x", 0, &[0]), ("y", 0, &[0])];
    let again: &[Wanted<'_>] = &[("x", 0, &[(1, 7), (2, 0)])];
    let context = client.begin((id, 1), again, forgotten).unwrap();
    assert_eq!(client.cache.statistics().partitions, 3);
    // Two partitions and the index.
    let name = context.target(0).topic.as_ref().unwrap();
    assert_eq!(std::sync::Arc::strong_count(name), 3);
    client.cache.finish(context);
    let three: &[Wanted<'_>] = &[("y", 0, &[(0, 0)]), ("z", 0, &[(0, 0)])];
    let refused = client.fetch((id, 2), three, &[], quiet);
    assert_eq!(refused, Err(ErrorCode::FETCH_SESSION_ID_NOT_FOUND));
    assert_eq!(client.cache.statistics().partitions, 0);
}

#[test]
fn a_session_grows_no_larger_than_a_request_may_name() {
    let mut client = Client::new(10, BY_ID);
    let most = REQUEST_ELEMENTS_MAX as i32;
    let many: Vec<(i32, i64)> = (1..most).map(|index| (index, 0)).collect();
    let (id, _) = client
        .fetch((0, INITIAL_EPOCH), &[("a", 1, &many)], &[], quiet)
        .unwrap();
    client
        .fetch((id, 1), &[("a", 1, &[(most, 0)])], &[], quiet)
        .unwrap();
    let one_more = client.fetch((id, 2), &[("b", 2, &[(0, 0)])], &[], quiet);
    let refused = one_more.map(|(_, answer)| answer.len());
    assert_eq!(refused, Err(ErrorCode::FETCH_SESSION_ID_NOT_FOUND));
    assert_eq!(client.cache.statistics().partitions, 0);
}
