//! One plane follows another: copying, truncation, the ISR.

use std::sync::Arc;

use crate::harness::*;
use pyrklog_dataplane::seam::{
    Behind, CacheConfig, CaughtUp, Event, LeaderSpec, PlaneConfig, StopSpec,
};
use pyrklog_log::disk::RealDisk;
use pyrklog_wire::ErrorCode;
use pyrklog_wire::api::key;
use pyrklog_wire::metadata::MetadataResponse;

#[test]
fn follower_copies_the_leaders_log() {
    let mut pair = Pair::start();
    pair.lead(1, 0, &BOTH);
    pair.produce(1, b"before");
    pair.follow(2, 1, 0);
    pair.produce(1, b"after");
    pair.wait_visible(1, 2);
    // acks=all is answered once the follower has it.
    let record = batch(&[b"to all"]);
    let body = produce_body(PRODUCE_VERSION, -1, 30_000, "t", &[(0, Some(&record))]);
    let mut client = pair.plane(1).client();
    let answer = client.call(key::PRODUCE, PRODUCE_VERSION, &body);
    assert_eq!(produced(&answer, PRODUCE_VERSION), (ErrorCode::NONE, 2));
    // Clients are sent to the leader.
    assert_eq!(
        pair.plane(2).client().produce("t", 0, &record).0,
        ErrorCode::NOT_LEADER_OR_FOLLOWER
    );
    let first = pair.values(1, 1);
    assert_eq!(pair.values(2, 2), first);
}

#[test]
fn a_tool_that_compares_replicas_reads_any_of_them() {
    let mut pair = Pair::start();
    pair.lead(1, 0, &[1]);
    pair.follow(2, 1, 0);
    pair.produce(1, b"value");
    pair.wait_copied();
    let read = |pair: &mut Pair, broker: i32, replica_id: i32| {
        let mut ask = Ask::one("t", 0, 0).version(11);
        ask.replica_id = replica_id;
        let mut reply = pair.plane(broker).client().fetch(&ask);
        let found = reply.partitions.remove(0);
        (found.error, found.records)
    };
    let (error, records) = read(&mut pair, 1, -2);
    assert_eq!(error, ErrorCode::NONE);
    assert!(!records.is_empty());
    // A follower shows records once it has heard that the leader does.
    let copy = eventually("a copy that can be read", || {
        let (error, records) = read(&mut pair, 2, -2);
        (error != ErrorCode::NONE || !records.is_empty()).then_some((error, records))
    });
    assert_eq!(copy, (error, records));
    // A fetch of another replica's id is sent to the leader.
    for replica_id in [1, 7] {
        let found = read(&mut pair, 2, replica_id);
        assert_eq!(found, (ErrorCode::NOT_LEADER_OR_FOLLOWER, vec![]));
    }
    // As in Kafka, older versions read from the leader only.
    let mut ask = Ask::one("t", 0, 0).version(10);
    ask.replica_id = -2;
    let older = pair.plane(2).client().fetch(&ask);
    assert_eq!(
        errors(&older.partitions),
        [(0, ErrorCode::NOT_LEADER_OR_FOLLOWER)]
    );
    assert_eq!(pair.plane(2).delete("t", 1), [0]);
    assert_ne!(read(&mut pair, 2, -2).0, ErrorCode::NONE);
}

#[test]
fn followed_records_leave_the_cache_after_the_write() {
    let mut pair = Pair::start();
    pair.lead(1, 0, &BOTH);
    pair.follow(2, 1, 0);
    let tenth = pair.plane(2).statistic("cache_limit_bytes") / 10;
    let mut client = pair.plane(1).client();
    for _ in 0..100 {
        let (error, _) = client.produce("t", 0, &large_batch(200_000));
        assert_eq!(error, ErrorCode::NONE);
        let transient = pair.plane(2).statistic("cache_transient_bytes");
        assert!(transient <= tenth, "{transient}");
    }
    pair.wait_visible(1, 100);
    eventually("everything written", || {
        let plane = pair.plane(2);
        let left = plane.statistic("unwritten_bytes") + plane.statistic("cache_transient_bytes");
        (left == 0).then_some(())
    });
    assert!(pair.plane(2).statistic("cache_appended_bytes") > 0);
    assert_eq!(pair.plane(2).statistic("cache_chunks_reclaimed"), 0);
    // The leader keeps produced records in its cache for readers.
    let leader = pair.plane(1);
    assert_eq!(leader.statistic("cache_transient_bytes"), 0);
    let populated = leader.statistic("cache_populated_bytes");
    assert!(populated - leader.statistic("cache_free_bytes") > tenth);
    let first = pair.values(1, 1);
    assert_eq!(pair.values(2, 2), first);
}

#[test]
fn killed_follower_recovers_unwritten_records() {
    let slow = |config: &mut PlaneConfig| {
        config.cache.flush_bytes = 1 << 30;
        config.cache.flush_ms = 600_000;
    };
    let mut pair = Pair::start_with(topic_config(), slow);
    pair.lead(1, 0, &BOTH);
    pair.follow(2, 1, 0);
    // The first ones go to the file, until there is memory.
    eventually("copies in the cache alone", || {
        pair.produce(1, b"v");
        let copied = pair.plane(2).statistic("cache_transient_bytes");
        (copied > 0 && pair.plane(2).statistic("unwritten_bytes") > 0).then_some(())
    });
    for number in 0..20u8 {
        pair.produce(1, &[number]);
    }
    pair.wait_copied();
    let first = pair.values(1, 1);
    let Pair {
        dir,
        planes: [leader, follower],
        config: options,
    } = pair;
    drop((leader, follower));
    let mut config = cluster_config(dir.path(), 2);
    slow(&mut config);
    let mut again = TestPlane::start_with(config, Arc::new(RealDisk));
    again.describe_topic("t", 1, &options);
    let spec = LeaderSpec {
        isr: vec![2],
        ..TestPlane::leader_spec("t", 0, 2)
    };
    assert_eq!(again.become_leaders(vec![spec]), [0]);
    let found = again.client().fetch_one("t", 0, 0);
    assert_eq!(found.records, first);
}

#[test]
fn without_a_block_cache_the_next_fetch_waits_for_the_file() {
    let mut pair = Pair::start_with(topic_config(), |config| config.cache = CacheConfig::off());
    pair.lead(1, 0, &BOTH);
    pair.follow(2, 1, 0);
    for number in 0..200u8 {
        pair.produce(1, &[number]);
    }
    pair.wait_visible(1, 200);
    let first = pair.values(1, 1);
    assert_eq!(pair.values(2, 2), first);
}

#[test]
fn caught_up_follower_is_reported_once() {
    let mut pair = Pair::start();
    pair.plane(2).plane.set_broker_epoch(77);
    pair.lead(1, 3, &[1]);
    pair.produce(1, b"a");
    pair.follow(2, 1, 3);
    let is_it = |event: &Event| matches!(event, Event::FollowerCaughtUp(_));
    let Event::FollowerCaughtUp(told) = pair.plane(1).wait_for("a follower", is_it) else {
        panic!()
    };
    let expected = CaughtUp {
        topic: "t".into(),
        partition: 0,
        leader_epoch: 3,
        broker: 2,
        broker_epoch: 77,
    };
    assert_eq!(told, expected);
    pair.produce(1, b"b");
    pair.wait_copied();
    let plane = pair.plane(1);
    assert!(!plane.plane.drain_events(100).iter().any(is_it), "once");
    // The control plane refuses to let it join; it asks again.
    assert!(plane.plane.set_isr("t", 0, 3, &[1], &[1], false));
    plane.wait_for("the follower again", is_it);
    assert!(
        !plane.plane.set_isr("t", 0, 2, &BOTH, &BOTH, false),
        "an older epoch"
    );
    assert!(plane.plane.set_isr("t", 0, 3, &BOTH, &[1], false));
    pair.produce(1, b"c");
    pair.wait_visible(1, 3);
}

#[test]
fn an_in_sync_follower_that_stays_away_is_behind() {
    let mut pair = Pair::start();
    pair.lead(1, 0, &BOTH);
    pair.produce(1, b"a");
    assert_eq!(pair.plane(1).plane.lagging_followers(60_000), []);
    let plane = pair.plane(1);
    let found = eventually("a laggard", || {
        let found = plane.plane.lagging_followers(20);
        (!found.is_empty()).then_some(found)
    });
    let expected = Behind {
        topic: "t".into(),
        partition: 0,
        leader_epoch: 0,
        brokers: vec![2],
    };
    assert_eq!(found, [expected]);
    pair.follow(2, 1, 0);
    pair.wait_visible(1, 1);
    assert_eq!(pair.plane(1).plane.lagging_followers(20), []);
}

#[test]
fn follower_truncates_records_the_new_leader_lacks() {
    let mut pair = Pair::start();
    pair.lead(1, 0, &BOTH);
    pair.follow(2, 1, 0);
    pair.produce(1, b"on both");
    pair.wait_visible(1, 1);
    // Broker 2 leads while 1 does not know it, and takes records that 2 will never see.
    pair.lead(2, 1, &[2]);
    for value in [&b"lost 1"[..], b"lost 2", b"lost 3"] {
        pair.produce(1, value);
    }
    pair.produce(2, b"kept");
    pair.follow(1, 2, 1);
    let cut = pair.plane(1).wait_for_notice("replica_truncated");
    let field = |name: &str| cut.iter().find(|(n, _)| *n == name).unwrap().1.clone();
    assert_eq!((field("from"), field("to")), ("4".into(), "1".into()));
    pair.wait_copied();
    let kept = pair.values(2, 2);
    assert_eq!(pair.values(1, 3), kept);
}

#[test]
fn epoch_without_records_does_not_loop_the_truncation() {
    let mut pair = Pair::start();
    pair.lead(1, 0, &BOTH);
    pair.follow(2, 1, 0);
    pair.produce(1, b"a");
    pair.wait_visible(1, 1);
    // 2 leads in an epoch that 1 never learns of, and appends nothing.
    pair.lead(2, 1, &[2]);
    pair.lead(1, 2, &BOTH);
    pair.follow(2, 1, 2);
    pair.produce(1, b"b");
    pair.wait_visible(1, 2);
    let first = pair.values(1, 3);
    assert_eq!(pair.values(2, 4), first);
}

#[test]
fn a_log_that_ends_below_the_leaders_first_offset_begins_anew() {
    let mut pair = Pair::start();
    pair.lead(1, 0, &[1]);
    for _ in 0..5 {
        pair.produce(1, b"gone");
    }
    pair.follow(2, 1, 0);
    pair.wait_copied();
    // While 2 is away, all of its records are deleted.
    pair.follow(2, -1, 1);
    pair.lead(1, 2, &[1]);
    for _ in 0..5 {
        pair.produce(1, b"kept");
    }
    let plane = pair.plane(1);
    let ticket = plane
        .plane
        .delete_records(vec![("t".into(), 0, 8)])
        .unwrap();
    plane.ticket(ticket);
    pair.follow(2, 1, 3);
    pair.lead(1, 3, &BOTH);
    let restarted = pair.plane(2).wait_for_notice("replica_restarted");
    assert!(restarted.contains(&("to", "8".into())), "{restarted:?}");
    pair.produce(1, b"new");
    pair.wait_visible(1, 11);
    pair.lead(2, 4, &[2]);
    assert_eq!(pair.plane(2).client().list_offset("t", 0, -2).offset, 8);
    assert_eq!(
        pair.plane(2).client().fetch_one("t", 0, 8).batches(),
        [8, 9, 10]
    );
}

#[test]
fn a_log_may_begin_within_a_batch() {
    let mut pair = Pair::start();
    pair.lead(1, 0, &[1]);
    let mut client = pair.plane(1).client();
    let values: [&[u8]; 6] = [b"0", b"1", b"2", b"3", b"4", b"5"];
    let (error, _) = client.produce("t", 0, &batch(&values));
    assert_eq!(error, ErrorCode::NONE);
    let plane = pair.plane(1);
    let ticket = plane
        .plane
        .delete_records(vec![("t".into(), 0, 4)])
        .unwrap();
    plane.ticket(ticket);
    pair.follow(2, 1, 1);
    pair.lead(1, 1, &BOTH);
    pair.produce(1, b"6");
    pair.wait_visible(1, 7);
    pair.lead(2, 2, &[2]);
    let client = &mut pair.plane(2).client();
    assert_eq!(client.fetch_one("t", 0, 4).batches(), [0, 6]);
    assert_eq!(client.list_offset("t", 0, -2).offset, 4);
}

#[test]
fn followers_log_start_is_reported_once_to_those_who_asked() {
    let mut pair = Pair::start();
    pair.lead(1, 0, &BOTH);
    pair.follow(2, 1, 0);
    for _ in 0..5 {
        pair.produce(1, b"v");
    }
    pair.wait_visible(1, 5);
    let of_t = [("t".to_owned(), 0)];
    let looks = |pair: &mut Pair| pair.plane(1).plane.log_starts(&of_t).remove(0);
    assert_eq!(looks(&mut pair), Ok((0, vec![(2, 0)])));
    let at_follower = pair.plane(2).plane.log_starts(&of_t).remove(0);
    assert_eq!(at_follower, Err(ErrorCode::NOT_LEADER_OR_FOLLOWER));
    let is_it = |event: &Event| matches!(event, Event::FollowerLogStart(_, 0));
    for offset in [3, 5] {
        let plane = pair.plane(1);
        let ticket = plane.plane.delete_records(vec![("t".into(), 0, offset)]);
        plane.ticket(ticket.unwrap());
        plane.wait_for("the follower's log start", is_it);
        assert_eq!(looks(&mut pair), Ok((offset, vec![(2, offset)])));
    }
    pair.lead(1, 1, &[1]);
    assert_eq!(looks(&mut pair), Ok((5, vec![(2, -1)])), "a new epoch");
}

#[test]
fn records_that_are_deleted_at_the_leader_are_deleted_here() {
    let mut pair = Pair::start();
    pair.lead(1, 0, &BOTH);
    pair.follow(2, 1, 0);
    for _ in 0..5 {
        pair.produce(1, b"v");
    }
    pair.wait_visible(1, 5);
    let plane = pair.plane(1);
    let ticket = plane
        .plane
        .delete_records(vec![("t".into(), 0, 3)])
        .unwrap();
    plane.ticket(ticket);
    pair.produce(1, b"v");
    pair.wait_visible(1, 6);
    // The follower learns of it with an answer, and acts once the high watermark allows it. It
    // leads to be asked, and follows again if it has not learnt of it yet.
    let mut epoch = 0;
    eventually("the log start", || {
        pair.produce(1, b"v");
        pair.lead(2, epoch + 1, &[2]);
        let start = pair.plane(2).client().list_offset("t", 0, -2).offset;
        epoch += 2;
        pair.lead(1, epoch, &BOTH);
        pair.follow(2, 1, epoch);
        (start == 3).then_some(())
    });
}

#[test]
fn a_leader_that_goes_away_is_waited_for() {
    let mut pair = Pair::start();
    pair.lead(1, 0, &BOTH);
    let port = pair.plane(1).port;
    pair.plane(2).know(&[(1, 1), (2, 2)]);
    pair.follow(2, 1, 0);
    pair.plane(2).wait_for_notice("leader_unreachable");
    pair.produce(1, b"v");
    pair.plane(2).know(&[(1, port), (2, 2)]);
    pair.plane(2).wait_for_notice("leader_reached_again");
    pair.wait_visible(1, 1);
}

#[test]
fn a_leader_that_has_just_gone_is_not_told_to_clients() {
    let mut pair = Pair::start();
    pair.lead(1, 0, &BOTH);
    let mut client = pair.plane(2).client();
    let mut leader = move || {
        let answer = client.call(key::METADATA, 12, &metadata_body("t"));
        let response = MetadataResponse::decode(&answer, 12).unwrap();
        let partition = &response.topics[0].partitions[0];
        assert_eq!(response.head.brokers.len(), 2);
        (partition.error_code, partition.leader_id)
    };
    assert_eq!(leader(), (ErrorCode::NONE, 1));
    let port = pair.plane(1).port;
    pair.plane(2).know(&[(1, 1), (2, 2)]);
    pair.follow(2, 1, 0);
    eventually("no leader is named", || {
        (leader() == (ErrorCode::LEADER_NOT_AVAILABLE, -1)).then_some(())
    });
    // It is still the controller's leader: named again after a moment, or when it can be reached.
    eventually("it is named", || {
        (leader() == (ErrorCode::NONE, 1)).then_some(())
    });
    pair.plane(2).know(&[(1, port), (2, 2)]);
    pair.plane(2).wait_for_notice("leader_reached_again");
    assert_eq!(leader(), (ErrorCode::NONE, 1));
}

#[test]
fn a_leader_that_has_left_the_cluster_is_told_when_it_is_back() {
    let mut pair = Pair::start();
    pair.lead(1, 0, &BOTH);
    let mut client = pair.plane(2).client();
    let mut leader = move || {
        let answer = client.call(key::METADATA, 12, &metadata_body("t"));
        let response = MetadataResponse::decode(&answer, 12).unwrap();
        response.topics[0].partitions[0].leader_id
    };
    pair.plane(2).know(&[(1, 1), (2, 2)]);
    pair.follow(2, 1, 0);
    eventually("no leader is named", || (leader() == -1).then_some(()));
    // No longer followed, so that its return goes unnoticed.
    let stop = StopSpec {
        topic: "t".into(),
        partition: 0,
        delete: false,
    };
    let ticket = pair.plane(2).plane.stop_partitions(vec![stop]).unwrap();
    pair.plane(2).ticket(ticket);
    pair.plane(2).know(&[(2, 2)]);
    pair.plane(2).know(&[(1, 1), (2, 2)]);
    assert_eq!(leader(), 1);
}

#[test]
fn a_new_leader_does_not_show_less_than_the_old_one() {
    // The leader sends its high watermark only with the next records.
    let mut pair = Pair::start_with(topic_config(), |config| {
        config.cluster.as_mut().unwrap().fetch_wait_max_ms = 600_000;
    });
    pair.lead(1, 0, &BOTH);
    pair.follow(2, 1, 0);
    pair.produce(1, b"a");
    pair.wait_visible(1, 1);
    pair.wait_copied();
    // Its high watermark is the one last sent by the old leader, perhaps below the one shown.
    pair.lead(2, 1, &BOTH);
    // By time (0, -3), too: a record not found may only be invisible yet.
    for timestamp in [-1, 0, -3] {
        let latest = pair.plane(2).client().list_offset("t", 0, timestamp);
        assert_eq!(latest.error_code, ErrorCode::OFFSET_NOT_AVAILABLE);
    }
    let mut older = |version, timestamp| {
        let mut client = pair.plane(2).client();
        client.list_offset_error(version, timestamp)
    };
    assert_eq!(older(4, -1), ErrorCode::LEADER_NOT_AVAILABLE);
    assert_eq!(older(4, 0), ErrorCode::LEADER_NOT_AVAILABLE);
    assert_eq!(older(4, -2), ErrorCode::NONE);
    assert_eq!(older(5, -1), ErrorCode::OFFSET_NOT_AVAILABLE);
    pair.follow(1, 2, 1);
    pair.wait_visible(2, 1);
    for (timestamp, offset) in [(-1, 1), (0, 0), (-3, 0)] {
        let found = pair.plane(2).client().list_offset("t", 0, timestamp);
        assert_eq!((found.error_code, found.offset), (ErrorCode::NONE, offset));
    }
    let later = pair.plane(2).client().list_offset("t", 0, i64::MAX);
    assert_eq!((later.error_code, later.offset), (ErrorCode::NONE, -1));
}

#[test]
fn plane_shuts_down_in_order_while_following() {
    let mut pair = Pair::start();
    pair.lead(1, 0, &BOTH);
    pair.follow(2, 1, 0);
    pair.produce(1, b"v");
    pair.wait_visible(1, 1);
    let Pair {
        planes: [leader, follower],
        ..
    } = pair;
    assert!(follower.shutdown());
    assert!(leader.shutdown());
}

#[test]
fn a_leader_says_that_nothing_is_there_while_its_followers_follow() {
    let mut pair = Pair::start();
    pair.lead(1, 0, &BOTH);
    pair.follow(2, 1, 0);
    pair.produce(1, b"value");
    pair.wait_visible(1, 1);
    let beyond = |pair: &mut Pair, wait_ms| {
        let ask = Ask::one("t", 0, 5).wait(wait_ms, 1);
        let mut found = pair.plane(1).client().fetch(&ask);
        found.partitions.remove(0)
    };
    for wait_ms in [0, 60_000] {
        // The follower has no news, and waits itself.
        eventually("its wait", || {
            (pair.plane(1).statistic("purgatory_fetch") > 0).then_some(())
        });
        // Its confirmation has expired.
        std::thread::sleep(std::time::Duration::from_millis(200));
        let found = beyond(&mut pair, wait_ms);
        assert_eq!(found.error, ErrorCode::OFFSET_OUT_OF_RANGE, "{wait_ms}");
        std::thread::sleep(std::time::Duration::from_millis(200));
        let latest = pair.plane(1).client().list_offset("t", 0, -1);
        assert_eq!((latest.error_code, latest.offset), (ErrorCode::NONE, 1));
    }
    // It is gone, or knows another leader: that cannot be told.
    pair.follow(2, -1, 1);
    eventually("its last confirmation", || {
        let found = beyond(&mut pair, 0);
        (found.error == ErrorCode::NONE).then_some(found)
    });
    let found = beyond(&mut pair, 0);
    assert_eq!((found.error, found.high_watermark), (ErrorCode::NONE, 1));
    assert!(found.records.is_empty());
    let latest = pair.plane(1).client().list_offset("t", 0, -1);
    assert_eq!(latest.error_code, ErrorCode::OFFSET_NOT_AVAILABLE);
    assert_eq!(pair.plane(1).client().list_offset("t", 0, -2).offset, 0);
    // Alone it is certain.
    pair.lead(1, 2, &[1]);
    let found = beyond(&mut pair, 0);
    assert_eq!(found.error, ErrorCode::OFFSET_OUT_OF_RANGE);
    let latest = pair.plane(1).client().list_offset("t", 0, -1);
    assert_eq!((latest.error_code, latest.offset), (ErrorCode::NONE, 1));
}
