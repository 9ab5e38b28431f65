//! A partial replica is back-filled (`expansion.md`, section 6): broker 1 leads, broker 2 begins at
//! its end.

use std::ops::Range;
use std::sync::Arc;
use std::time::UNIX_EPOCH;

use crate::harness::*;
use pyrklog_dataplane::seam::*;
use pyrklog_log::disk::RealDisk;
use pyrklog_wire::ErrorCode;
use pyrklog_wire::api::key;
use pyrklog_wire::builder::BatchBuilder;
use pyrklog_wire::replica_segments::{ReplicaSegmentsRequest, ReplicaSegmentsResponse};

/// Records of the leader before the replica comes, several segments.
const BEFORE: i64 = 60;
const FAST: u64 = 1 << 30;
/// A second's worth is there at once; then nothing more for long.
const SLOW: u64 = 1_000;

fn options() -> TopicConfig {
    let mut options = topic_config();
    options.log.segment_bytes = 1_000;
    options
}

fn start(rate_bytes: u64) -> Pair {
    Pair::start_with(options(), |config| set_rate(config, rate_bytes))
}

fn set_rate(config: &mut PlaneConfig, rate_bytes: u64) {
    if let Some(cluster) = &mut config.cluster {
        cluster.back_fill_rate_bytes = rate_bytes;
    }
}

fn lead(pair: &mut Pair, leader_epoch: i32) {
    let spec = LeaderSpec {
        replicas: BOTH.to_vec(),
        isr: vec![1],
        partial: vec![2],
        ..TestPlane::leader_spec("t", 0, leader_epoch)
    };
    assert_eq!(pair.plane(1).become_leaders(vec![spec]), [0]);
}

fn follower(leader_epoch: i32) -> FollowerSpec {
    FollowerSpec {
        topic: "t".into(),
        partition: 0,
        leader: 1,
        leader_epoch,
        replicas: BOTH.to_vec(),
        isr: vec![1],
        is_new: false,
        is_partial: true,
    }
}

/// Records of a producer each.
fn produce(pair: &mut Pair, offsets: Range<i64>) {
    // The broker forgets producers that were idle for long.
    let now_ms = UNIX_EPOCH.elapsed().unwrap().as_millis() as i64;
    for offset in offsets {
        let mut builder = BatchBuilder::new().producer(offset, 3, 0);
        builder.append(now_ms, None, Some(b"value"));
        let produced = pair.plane(1).client().produce("t", 0, &builder.build());
        assert_eq!(produced, (ErrorCode::NONE, offset));
    }
}

fn digest(plane: &mut TestPlane, end: i64) -> ReplicaDigest {
    let range = DigestRange {
        start: 0,
        end,
        max_bytes: 1 << 20,
    };
    let ticket = plane.plane.replica_digest("t", 0, range).unwrap();
    match plane.ticket(ticket) {
        TicketOutcome::ReplicaDigest(found) => found,
        other => panic!("{other:?}"),
    }
}

fn log_start(plane: &mut TestPlane) -> i64 {
    digest(plane, 0).log_start_offset
}

fn is_caught_up(event: &Event) -> bool {
    matches!(event, Event::FollowerCaughtUp(_))
}

/// The leader has records, and the replica has begun behind them and got others.
fn begun(rate_bytes: u64) -> Pair {
    let mut pair = start(rate_bytes);
    lead(&mut pair, 0);
    produce(&mut pair, 0..BEFORE / 2);
    lead(&mut pair, 1);
    produce(&mut pair, BEFORE / 2..BEFORE);
    assert_eq!(pair.plane(2).become_followers(vec![follower(1)]), [0]);
    eventually("the replica's start", || {
        let found = digest(pair.plane(2), 0);
        (found.log_end_offset >= BEFORE).then_some(())
    });
    produce(&mut pair, BEFORE..BEFORE + 5);
    pair
}

fn is_partial(pair: &Pair) -> bool {
    pair.dir.path().join("logs2/t-0/partial").exists()
}

/// Both have the same, and the replica is an ordinary one.
fn assert_whole(pair: &mut Pair) {
    pair.plane(1).wait_for("the replica", is_caught_up);
    assert!(!is_partial(pair));
    let end = BEFORE + 5;
    eventually("the last records", || {
        (digest(pair.plane(2), 0).log_end_offset >= end).then_some(())
    });
    let [one, other] = [1, 2].map(|broker| digest(pair.plane(broker), end));
    assert_eq!((one.log_start_offset, one.batches), (0, end));
    assert_eq!(
        (other.log_start_offset, other.batches, other.digest),
        (0, end, one.digest)
    );
}

#[test]
fn back_filled_replica_is_whole_and_knows_all_producers() {
    let mut pair = begun(FAST);
    assert_whole(&mut pair);
    let spec = LeaderSpec {
        replicas: BOTH.to_vec(),
        isr: vec![2],
        ..TestPlane::leader_spec("t", 0, 2)
    };
    assert_eq!(pair.plane(2).become_leaders(vec![spec]), [0]);
    let now_ms = UNIX_EPOCH.elapsed().unwrap().as_millis() as i64;
    for producer in 0..BEFORE + 5 {
        let mut builder = BatchBuilder::new().producer(producer, 3, 0);
        builder.append(now_ms, None, Some(b"value"));
        let again = pair.plane(2).client().produce("t", 0, &builder.build());
        assert_eq!(again, (ErrorCode::NONE, producer), "its last record");
    }
}

#[test]
fn slow_back_fill_goes_on_after_a_kill() {
    let mut pair = begun(SLOW);
    let reached = eventually("a segment", || {
        let found = log_start(pair.plane(2));
        (found < BEFORE).then_some(found)
    });
    assert!(reached > 0 && is_partial(&pair), "it goes by the rate");
    let mut config = cluster_config(pair.dir.path(), 2);
    set_rate(&mut config, FAST);
    let leader_port = pair.planes[0].port;
    let Pair {
        dir,
        planes: [leader, killed],
        config: topic,
    } = pair;
    drop(killed);
    let mut again = TestPlane::start_with(config, Arc::new(RealDisk));
    again.know(&[(1, leader_port), (2, again.port)]);
    again.describe_topic("t", 1, &topic);
    assert_eq!(again.become_followers(vec![follower(1)]), [0]);
    let kept = log_start(&mut again);
    assert!(kept <= reached, "{kept}: what was joined stays");
    let mut pair = Pair {
        dir,
        planes: [leader, again],
        config: topic,
    };
    assert_whole(&mut pair);
}

#[test]
fn rate_is_changed_while_it_runs() {
    let mut pair = begun(0);
    let start = log_start(pair.plane(2));
    assert_eq!(start, BEFORE);
    pair.plane(2).plane.set_back_fill_rate(SLOW);
    eventually("a segment", || {
        (log_start(pair.plane(2)) < start).then_some(())
    });
    assert!(is_partial(&pair), "it goes by the rate");
    pair.plane(2).plane.set_back_fill_rate(0);
    pair.plane(2).plane.set_back_fill_rate(FAST);
    assert_whole(&mut pair);
}

#[test]
fn back_fill_goes_on_in_the_next_leader_epoch() {
    let mut pair = begun(SLOW);
    eventually("a segment", || {
        (log_start(pair.plane(2)) < BEFORE).then_some(())
    });
    lead(&mut pair, 2);
    assert_eq!(pair.plane(2).become_followers(vec![follower(2)]), [0]);
    let before = log_start(pair.plane(2));
    eventually("another segment", || {
        (log_start(pair.plane(2)) < before).then_some(())
    });
    assert!(is_partial(&pair));
}

#[test]
fn consumer_is_served_by_the_back_filled_replica() {
    let mut pair = begun(FAST);
    assert_whole(&mut pair);
    let found = eventually("the first records", || {
        let found = pair.plane(2).client().fetch_one("t", 0, 0);
        (!found.records.is_empty()).then_some(found)
    });
    assert_eq!(found.error, ErrorCode::NONE);
    assert_eq!(found.batches()[0], 0);
}

#[test]
fn what_retention_has_deleted_is_not_fetched() {
    let mut pair = begun(SLOW);
    let wanted = vec![("t".to_owned(), 0, BEFORE / 2)];
    let ticket = pair.plane(1).plane.delete_records(wanted).unwrap();
    pair.plane(1).ticket(ticket);
    eventually("it is whole", || {
        (log_start(pair.plane(2)) == BEFORE / 2).then_some(())
    });
    pair.plane(1).wait_for("the replica", is_caught_up);
    assert!(!is_partial(&pair));
}

/// Asks broker 1 as broker 2 does.
fn segment_below(pair: &mut Pair, end_offset: i64, leader_epoch: i32) -> ReplicaSegmentsResponse {
    let topic_id = topic_id("t");
    let mut body = Vec::new();
    ReplicaSegmentsRequest {
        replica_id: 2,
        topic: "t",
        topic_id,
        partition: 0,
        current_leader_epoch: leader_epoch,
        end_offset,
        aborted_known: 0,
    }
    .encode(&mut body, 0);
    let answer = pair.plane(1).client().call(key::REPLICA_SEGMENTS, 0, &body);
    ReplicaSegmentsResponse::decode(&answer, 0).unwrap()
}

#[test]
fn a_source_tells_of_committed_records_in_its_leader_epoch() {
    let mut pair = start(FAST);
    lead(&mut pair, 0);
    produce(&mut pair, 0..BEFORE);
    let newest = segment_below(&mut pair, BEFORE, 0);
    assert_eq!(
        (newest.error_code, newest.log_start_offset),
        (ErrorCode::NONE, 0)
    );
    assert!(newest.begin_offset > 0 && newest.size_bytes > 0);
    let before = segment_below(&mut pair, newest.begin_offset, 0);
    assert!(before.begin_offset < newest.begin_offset);
    for (end, leader_epoch, expected) in [
        (0, 0, ErrorCode::OFFSET_OUT_OF_RANGE),
        (BEFORE + 1, 0, ErrorCode::OFFSET_NOT_AVAILABLE),
        (BEFORE, 1, ErrorCode::UNKNOWN_LEADER_EPOCH),
    ] {
        assert_eq!(
            segment_below(&mut pair, end, leader_epoch).error_code,
            expected
        );
    }
    lead(&mut pair, 1);
    let fenced = segment_below(&mut pair, BEFORE, 0).error_code;
    assert_eq!(fenced, ErrorCode::FENCED_LEADER_EPOCH);
}
