//! Consumers that read from followers (KIP-392).

use crate::harness::*;
use pyrklog_wire::ErrorCode;

/// Brokers 1 and 2, in racks `a` and `b`, which send consumers to their own rack if `by_rack`.
fn racks(by_rack: bool) -> Pair {
    let mut pair = Pair::start_with(topic_config(), |config| {
        let cluster = config.cluster.as_mut().unwrap();
        cluster.reads_by_rack = by_rack;
        // Nothing below waits for the end of a long poll.
        cluster.fetch_wait_max_ms = 60_000;
    });
    let brokers = [(1, pair.planes[0].port, "a"), (2, pair.planes[1].port, "b")];
    for plane in &mut pair.planes {
        plane.know_in_racks(&brokers);
    }
    pair
}

fn lead_and_follow(pair: &mut Pair) {
    pair.lead(1, 0, &BOTH);
    pair.follow(2, 1, 0);
}

fn ask(offset: i64) -> Ask {
    Ask::one("t", 0, offset)
}

fn fetch(pair: &mut Pair, broker: i32, ask: &Ask) -> Fetched {
    pair.plane(broker).client().fetch(ask).partitions.remove(0)
}

#[test]
fn the_leader_sends_consumers_to_a_replica_in_their_rack() {
    let mut pair = racks(true);
    lead_and_follow(&mut pair);
    pair.produce(1, b"a");
    pair.wait_visible(1, 1);
    let sent = eventually("a replica that is nearer", || {
        let found = fetch(&mut pair, 1, &ask(0).rack("b"));
        (found.preferred_replica == 2).then_some(found)
    });
    assert_eq!(sent.error, ErrorCode::NONE);
    assert_eq!((sent.high_watermark, sent.log_start_offset), (1, 0));
    assert!(sent.records.is_empty(), "no data with the hint");
    // At once, however long the consumer would wait, even with nothing to read yet.
    let waiting = ask(1).rack("b").wait(10_000, 1);
    assert_eq!(fetch(&mut pair, 1, &waiting).preferred_replica, 2);
    // Consumers in the leader's rack, in an unknown one, or without one stay.
    for rack in ["a", "c", ""] {
        let found = fetch(&mut pair, 1, &ask(0).rack(rack));
        assert_eq!((found.preferred_replica, found.batches()), (-1, vec![0]));
    }
    // So does a consumer of a version before racks.
    let old = fetch(&mut pair, 1, &ask(0).rack("b").version(10));
    assert_eq!((old.preferred_replica, old.batches()), (-1, vec![0]));
    // A follower redirects no consumer.
    let found = fetch(&mut pair, 2, &ask(0).rack("a"));
    assert_eq!(found.preferred_replica, -1);
}

#[test]
fn without_a_replica_selector_consumers_stay_at_the_leader() {
    let mut pair = racks(false);
    lead_and_follow(&mut pair);
    pair.produce(1, b"a");
    pair.wait_visible(1, 1);
    let found = fetch(&mut pair, 1, &ask(0).rack("b"));
    assert_eq!((found.preferred_replica, found.batches()), (-1, vec![0]));
}

#[test]
fn replica_selector_skips_replicas_out_of_sync_or_without_the_offset() {
    let mut pair = racks(true);
    pair.lead(1, 0, &[1]);
    pair.produce(1, b"a");
    pair.follow(2, 1, 0);
    pair.wait_copied();
    let stays = |pair: &mut Pair, offset| {
        let found = fetch(pair, 1, &ask(offset).rack("b"));
        assert_eq!(
            (found.error, found.preferred_replica),
            (ErrorCode::NONE, -1)
        );
    };
    stays(&mut pair, 0);
    eventually("the leader's knowledge of its end", || {
        let plane = &pair.plane(1).plane;
        plane.set_isr("t", 0, 0, &BOTH, &BOTH, false).then_some(())
    });
    let nearest =
        |pair: &mut Pair, offset| fetch(pair, 1, &ask(offset).rack("b")).preferred_replica;
    eventually("an in-sync replica", || {
        (nearest(&mut pair, 1) == 2).then_some(())
    });
    // It stays away and misses the next records.
    pair.follow(2, -1, 1);
    pair.produce(1, b"b");
    assert_eq!(nearest(&mut pair, 1), 2, "it has all before");
    stays(&mut pair, 2);
}

#[test]
fn follower_shows_records_up_to_the_leaders_high_watermark() {
    let mut pair = racks(true);
    lead_and_follow(&mut pair);
    for number in 0..3u8 {
        pair.produce(1, &[number]);
    }
    let found = eventually("the high watermark", || {
        let found = fetch(&mut pair, 2, &ask(0));
        (found.high_watermark == 3).then_some(found)
    });
    assert_eq!(
        (found.error, found.batches()),
        (ErrorCode::NONE, vec![0, 1, 2])
    );
    // Clients that know no followers, and other replicas, want the leader.
    let mut replica = ask(0);
    replica.replica_id = 1;
    for refused in [ask(0).version(10), replica] {
        let found = fetch(&mut pair, 2, &refused);
        assert_eq!(found.error, ErrorCode::NOT_LEADER_OR_FOLLOWER);
    }
    let latest = pair.plane(2).client().list_offset("t", 0, -1);
    assert_eq!(latest.error_code, ErrorCode::NOT_LEADER_OR_FOLLOWER);
    // Beyond its end it cannot tell whether there are records: a client that takes it for the
    // leader is corrected.
    let mut beyond = ask(4);
    assert_eq!(
        fetch(&mut pair, 2, &beyond).error,
        ErrorCode::NOT_LEADER_OR_FOLLOWER
    );
    beyond.partitions[0].1.current_leader_epoch = 0;
    assert_eq!(
        fetch(&mut pair, 2, &beyond).error,
        ErrorCode::OFFSET_OUT_OF_RANGE
    );
    beyond.partitions[0].1.last_fetched_epoch = 0;
    let found = fetch(&mut pair, 2, &beyond);
    assert_eq!(
        (found.error, found.diverging),
        (ErrorCode::OFFSET_OUT_OF_RANGE, None)
    );
}

#[test]
fn a_follower_checks_the_epoch_that_a_consumer_believes_in() {
    let mut pair = racks(true);
    pair.lead(1, 5, &BOTH);
    pair.follow(2, 1, 5);
    let errors = [
        (4, ErrorCode::FENCED_LEADER_EPOCH),
        (5, ErrorCode::NONE),
        (6, ErrorCode::UNKNOWN_LEADER_EPOCH),
    ];
    for (epoch, error) in errors {
        let mut ask = ask(0);
        ask.partitions[0].1.current_leader_epoch = epoch;
        assert_eq!(fetch(&mut pair, 2, &ask).error, error, "epoch {epoch}");
    }
}

#[test]
fn follower_does_not_show_records_it_lacks() {
    // A third replica that has not fetched yet holds the high watermark back.
    let mut pair = racks(true);
    let plane = pair.plane(1);
    let spec = pyrklog_dataplane::seam::LeaderSpec {
        replicas: vec![1, 2, 3],
        isr: vec![1, 2, 3],
        ..TestPlane::leader_spec("t", 0, 0)
    };
    assert_eq!(plane.become_leaders(vec![spec]), [0]);
    pair.produce(1, b"a");
    pair.follow(2, 1, 0);
    pair.wait_copied();
    for offset in [0, 1] {
        let found = fetch(&mut pair, 2, &ask(offset));
        assert_eq!((found.error, found.high_watermark), (ErrorCode::NONE, 0));
        assert!(found.records.is_empty());
    }
    // Only the high watermark wakes a consumer that waits there: nothing more is copied.
    let waiting = ask(0).wait(60_000, 1);
    let mut client = pair.plane(2).client();
    client.send(
        pyrklog_wire::api::key::FETCH,
        waiting.version,
        &waiting.encode(),
    );
    eventually("its wait", || {
        (pair.plane(2).statistic("purgatory_fetch") > 0).then_some(())
    });
    let mut third = ask(1);
    third.replica_id = 3;
    // The other follower's next fetch, which confirms its copy, may still be under way.
    eventually("the high watermark", || {
        (fetch(&mut pair, 1, &third).high_watermark == 1).then_some(())
    });
    let answer = client
        .receive(pyrklog_wire::api::key::FETCH, waiting.version)
        .1;
    let found = fetched(&answer, &waiting).partitions.remove(0);
    assert_eq!((found.high_watermark, found.batches()), (1, vec![0]));
}

#[test]
fn followers_tell_offsets_to_those_only_that_compare_replicas() {
    let mut pair = racks(false);
    pair.lead(1, 5, &BOTH);
    pair.follow(2, 1, 5);
    pair.produce(1, b"a");
    pair.wait_copied();
    let mut client = pair.plane(2).client();
    assert_eq!(client.latest_offset(-2, -1), (ErrorCode::NONE, 1));
    assert_eq!(client.latest_offset(-2, 5), (ErrorCode::NONE, 1));
    assert_eq!(
        client.latest_offset(-2, 4),
        (ErrorCode::FENCED_LEADER_EPOCH, -1)
    );
    // A client is first told that its leader epoch differs (KIP-320).
    let table = [
        (-1, ErrorCode::NOT_LEADER_OR_FOLLOWER),
        (4, ErrorCode::FENCED_LEADER_EPOCH),
        (5, ErrorCode::NOT_LEADER_OR_FOLLOWER),
        (6, ErrorCode::UNKNOWN_LEADER_EPOCH),
    ];
    for (epoch, error) in table {
        assert_eq!(client.latest_offset(-1, epoch), (error, -1));
        assert_eq!(client.end_of_epoch_error(epoch), error);
    }
}
