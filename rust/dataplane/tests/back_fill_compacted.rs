//! A partial replica of a compacted topic is back-filled (`expansion.md`, section 6): broker 1 leads
//! and compacts, broker 2 begins at its end.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use crate::harness::*;
use pyrklog_dataplane::seam::*;
use pyrklog_log::LogConfig;
use pyrklog_log::disk::RealDisk;
use pyrklog_wire::ErrorCode;
use pyrklog_wire::api::key;
use pyrklog_wire::batch::{Batches, HEADER_LEN};
use pyrklog_wire::builder::BatchBuilder;
use pyrklog_wire::records::Records;
use pyrklog_wire::replica_segments::{ReplicaSegmentsRequest, ReplicaSegmentsResponse};

/// Records of the leader before the replica comes: several segments.
const BEFORE: i64 = 200;
const END: i64 = BEFORE + 5;
const FAST: u64 = 1 << 30;
/// A second's worth is there at once; then nothing more for long.
const SLOW: u64 = 1_000;

fn compacted() -> TopicConfig {
    TopicConfig {
        log: LogConfig {
            cleanup_compact: true,
            cleanup_delete: false,
            segment_bytes: 2_000,
            min_cleanable_dirty_ratio: 0.01,
            delete_retention_ms: 0,
            ..LogConfig::default()
        },
        ..topic_config()
    }
}

/// Without compaction until it is asked for.
fn start(topic: TopicConfig, rate_bytes: u64) -> Pair {
    Pair::start_with(topic, |config| {
        config.cleaner.backoff_ms = 20;
        config.cleaner.is_enabled = false;
        set_rate(config, rate_bytes);
    })
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

fn follow(pair: &mut Pair, leader_epoch: i32) {
    let spec = follower(leader_epoch);
    assert_eq!(pair.plane(2).become_followers(vec![spec]), [0]);
}

fn produce(pair: &mut Pair, offsets: std::ops::Range<i64>) {
    let mut client = pair.plane(1).client();
    for offset in offsets {
        let mut builder = BatchBuilder::new();
        let key = (offset % 7).to_be_bytes();
        let value = (offset % 3 != 0).then_some([offset as u8; 100]);
        builder.append(
            1_700_000_000_000,
            Some(&key),
            value.as_ref().map(|v| &v[..]),
        );
        let produced = client.produce("t", 0, &builder.build());
        assert_eq!(produced, (ErrorCode::NONE, offset));
    }
}

fn clean(pair: &mut Pair) {
    let mut cleaner = CleanerConfig {
        backoff_ms: 20,
        ..CleanerConfig::default()
    };
    pair.plane(1).plane.set_cleaner(cleaner);
    pair.plane(1).wait_for_notice("log_cleaned");
    // Nothing that comes later is clean.
    cleaner.is_enabled = false;
    cleaner.threads = 0;
    pair.plane(1).plane.set_cleaner(cleaner);
}

fn wait_for_start(pair: &mut Pair) {
    eventually("the replica's start", || {
        (bounds(pair.plane(2)).1 >= BEFORE).then_some(())
    });
}

/// The replica has joined a segment or more, and goes on when it is told to.
fn wait_for_first_segment(pair: &mut Pair) {
    eventually("a segment", || {
        (bounds(pair.plane(2)).0 < BEFORE).then_some(())
    });
    pair.plane(2).plane.set_back_fill_rate(0);
    assert!(bounds(pair.plane(2)).0 > 0);
}

/// The last value of each key, as a consumer from the beginning finds it, and the offsets.
fn contents(plane: &mut TestPlane, end: i64) -> (BTreeMap<Vec<u8>, Vec<u8>>, Vec<i64>) {
    let mut client = plane.client();
    let (mut values, mut offsets) = (BTreeMap::new(), Vec::new());
    let mut next = 0;
    while next < end {
        let found = client.fetch_one("t", 0, next);
        assert_eq!(found.error, ErrorCode::NONE);
        for view in Batches::new(&found.records) {
            let view = view.unwrap();
            next = view.header.next_offset();
            for record in Records::new(&view.bytes[HEADER_LEN..]) {
                let record = record.unwrap();
                offsets.push(view.header.base_offset + i64::from(record.offset_delta));
                let key = record.key.unwrap().to_vec();
                match record.value {
                    Some(value) => drop(values.insert(key, value.to_vec())),
                    None => drop(values.remove(&key)),
                }
            }
        }
    }
    (values, offsets)
}

fn bounds(plane: &mut TestPlane) -> (i64, i64) {
    let range = DigestRange {
        start: 0,
        end: 0,
        max_bytes: 1,
    };
    let ticket = plane.plane.replica_digest("t", 0, range).unwrap();
    match plane.ticket(ticket) {
        TicketOutcome::ReplicaDigest(found) => (found.log_start_offset, found.log_end_offset),
        other => panic!("{other:?}"),
    }
}

fn is_caught_up(event: &Event) -> bool {
    matches!(event, Event::FollowerCaughtUp(_))
}

fn partial_file(pair: &Pair) -> PathBuf {
    pair.dir.path().join("logs2/t-0/partial")
}

/// The leader's log is compacted, and the replica has begun behind it and got others.
fn begun(rate_bytes: u64) -> Pair {
    begun_of(compacted(), rate_bytes)
}

fn begun_of(options: TopicConfig, rate_bytes: u64) -> Pair {
    let mut pair = start(options, rate_bytes);
    lead(&mut pair, 0);
    produce(&mut pair, 0..BEFORE);
    clean(&mut pair);
    follow(&mut pair, 0);
    wait_for_start(&mut pair);
    produce(&mut pair, BEFORE..END);
    pair
}

fn assert_whole(pair: &mut Pair) {
    pair.plane(1).wait_for("the replica", is_caught_up);
    assert!(!partial_file(pair).exists());
    eventually("the last records", || {
        (bounds(pair.plane(2)) == (0, END)).then_some(())
    });
    eventually("its high watermark", || {
        let found = pair.plane(2).client().fetch_one("t", 0, END - 1);
        (!found.records.is_empty()).then_some(())
    });
    let [(leaders, at_leader), (found, at_replica)] =
        [1, 2].map(|broker| contents(pair.plane(broker), END));
    assert_eq!(found, leaders);
    assert!(at_leader.len() < END as usize, "it was compacted");
    assert!(at_replica.len() < END as usize, "the gaps came, too");
}

/// Broker 2 was killed, its file `partial` changed, and it starts again.
fn killed(pair: Pair, change: impl Fn(&Path)) -> Pair {
    let file = partial_file(&pair);
    let leader_port = pair.planes[0].port;
    let Pair {
        dir,
        planes: [leader, killed],
        config,
    } = pair;
    drop(killed);
    change(&file);
    let mut again = TestPlane::start_with(cluster_config(dir.path(), 2), Arc::new(RealDisk));
    again.know(&[(1, leader_port), (2, again.port)]);
    again.describe_topic("t", 1, &config);
    Pair {
        dir,
        planes: [leader, again],
        config,
    }
}

#[test]
fn compacted_replica_is_back_filled() {
    let mut pair = begun(FAST);
    assert_whole(&mut pair);
}

#[test]
fn slow_back_fill_names_the_log_that_it_reads() {
    let mut pair = begun(SLOW);
    let text = eventually("a segment", || {
        let text = std::fs::read_to_string(partial_file(&pair)).unwrap();
        text.starts_with("1\n").then_some(text)
    });
    let lines: Vec<&str> = text.lines().collect();
    assert_eq!(lines[1], BEFORE.to_string());
    assert!(lines[2].starts_with("1 "), "of broker 1: {text}");
    eventually("it is joined", || {
        (bounds(pair.plane(2)).0 < BEFORE).then_some(())
    });
    pair.plane(2).plane.set_back_fill_rate(0);
    pair.plane(2).plane.set_back_fill_rate(FAST);
    assert_whole(&mut pair);
}

/// Its log is another one as far as the replica can tell, and not clean beyond the start.
#[test]
fn replica_begins_anew_when_its_source_was_restarted() {
    let mut pair = begun(SLOW);
    wait_for_first_segment(&mut pair);
    let mut config = cluster_config(pair.dir.path(), 1);
    config.cleaner.is_enabled = false;
    let follower_port = pair.planes[1].port;
    let Pair {
        dir,
        planes: [killed, mut follower],
        config: topic,
    } = pair;
    drop(killed);
    let mut again = TestPlane::start_with(config, Arc::new(RealDisk));
    let brokers = [(1, again.port), (2, follower_port)];
    again.know(&brokers);
    again.describe_topic("t", 1, &topic);
    follower.know(&brokers);
    let mut pair = Pair {
        dir,
        planes: [again, follower],
        config: topic,
    };
    lead(&mut pair, 1);
    follow(&mut pair, 1);
    pair.plane(2).plane.set_back_fill_rate(FAST);
    pair.plane(2).wait_for_notice("back_fill_begins_anew");
    pair.plane(2).wait_for_notice("replica_restarted");
    assert_whole(&mut pair);
}

#[test]
fn without_a_rate_it_is_copied() {
    let mut pair = begun(0);
    assert!(!partial_file(&pair).exists());
    assert_whole(&mut pair);
}

/// What is left behind a kill amid a restart: it ends below the start that its file tells.
#[test]
fn replica_that_ends_before_its_start_is_never_whole() {
    let mut options = compacted();
    options.log.cleanup_delete = true;
    options.log.retention_ms = -1;
    let mut pair = begun_of(options, SLOW);
    wait_for_first_segment(&mut pair);
    let (log_start, _) = bounds(pair.plane(2));
    let mut pair = killed(pair, |file| {
        let text = std::fs::read_to_string(file).unwrap();
        let before = format!("\n{BEFORE}\n");
        std::fs::write(file, text.replacen(&before, &format!("\n{}\n", END + 1), 1)).unwrap();
    });
    // The leader has no more than it, and the controller does not know that it is partial.
    let ticket = pair
        .plane(1)
        .plane
        .delete_records(vec![("t".to_owned(), 0, log_start)]);
    pair.plane(1).ticket(ticket.unwrap());
    let spec = FollowerSpec {
        is_partial: false,
        ..follower(1)
    };
    lead(&mut pair, 1);
    assert_eq!(pair.plane(2).become_followers(vec![spec]), [0]);
    pair.plane(2).wait_for_notice("replica_restarted");
    eventually("a copy", || {
        (bounds(pair.plane(2)) == (log_start, END)).then_some(())
    });
    assert!(!partial_file(&pair).exists());
}

/// What was joined before came from any replica.
#[test]
fn topic_that_becomes_compacted_begins_anew() {
    let mut options = compacted();
    options.log.cleanup_compact = false;
    options.log.cleanup_delete = true;
    options.log.retention_ms = -1;
    let mut pair = start(options, SLOW);
    lead(&mut pair, 0);
    produce(&mut pair, 0..BEFORE);
    follow(&mut pair, 0);
    wait_for_start(&mut pair);
    wait_for_first_segment(&mut pair);
    produce(&mut pair, BEFORE..END);
    pair.describe("t", 1, &compacted());
    clean(&mut pair);
    pair.plane(2).plane.set_back_fill_rate(FAST);
    pair.plane(2).wait_for_notice("back_fill_begins_anew");
    assert_whole(&mut pair);
}

#[test]
fn a_source_tells_which_log_it_is() {
    let mut pair = start(compacted(), FAST);
    lead(&mut pair, 0);
    produce(&mut pair, 0..BEFORE);
    let told = |pair: &mut Pair| {
        let mut body = Vec::new();
        ReplicaSegmentsRequest {
            replica_id: 2,
            topic: "t",
            topic_id: topic_id("t"),
            partition: 0,
            current_leader_epoch: 0,
            end_offset: 10,
            aborted_known: 0,
        }
        .encode(&mut body, 0);
        // It may have to read a time from a file first.
        eventually("an answer", || {
            let answer = pair.plane(1).client().call(key::REPLICA_SEGMENTS, 0, &body);
            let response = ReplicaSegmentsResponse::decode(&answer, 0).unwrap();
            (response.error_code == ErrorCode::NONE).then_some(response.origin)
        })
    };
    let before = told(&mut pair);
    assert_eq!(before, told(&mut pair));
    assert_ne!(before.opening, 0);
    assert_eq!(before.clean_below, 0);
    clean(&mut pair);
    let after = told(&mut pair);
    assert_eq!(after.opening, before.opening);
    assert!(!after.is_segment_of(before), "a cleaned one took its place");
    assert!(after.clean_below > 10 && after.clean_below <= BEFORE);
}
