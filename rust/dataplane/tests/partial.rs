//! Replicas that begin at their leader's end (`expansion.md`): broker 1 leads, broker 2 begins.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::UNIX_EPOCH;

use crate::harness::*;
use pyrklog_dataplane::seam::*;
use pyrklog_log::disk::RealDisk;
use pyrklog_wire::ErrorCode;
use pyrklog_wire::builder::BatchBuilder;
use pyrklog_wire::list_offsets::LOWEST_CONSUMED_TIMESTAMP;

/// Records of the leader before the replica comes.
const BEFORE: i64 = 5;

/// Broker 1 leads, alone in sync; broker 2 may begin at its end.
fn lead(pair: &mut Pair, leader_epoch: i32, partial: &[i32]) {
    let spec = LeaderSpec {
        replicas: BOTH.to_vec(),
        isr: vec![1],
        partial: partial.to_vec(),
        ..TestPlane::leader_spec("t", 0, leader_epoch)
    };
    assert_eq!(pair.plane(1).become_leaders(vec![spec]), [0]);
}

fn follower(leader_epoch: i32, is_partial: bool) -> FollowerSpec {
    FollowerSpec {
        topic: "t".into(),
        partition: 0,
        leader: 1,
        leader_epoch,
        replicas: BOTH.to_vec(),
        isr: vec![1],
        is_new: false,
        is_partial,
    }
}

fn follow(pair: &mut Pair, leader_epoch: i32, is_partial: bool) {
    let spec = follower(leader_epoch, is_partial);
    assert_eq!(pair.plane(2).become_followers(vec![spec]), [0]);
}

fn offsets(plane: &mut TestPlane) -> (i64, i64) {
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

fn wait_offsets(plane: &mut TestPlane, log_start: i64, log_end: i64) {
    eventually("the replica's offsets", || {
        (offsets(plane) == (log_start, log_end)).then_some(())
    });
}

/// A record of an idempotent producer.
fn of_producer(id: i64, epoch: i16, sequence: i32) -> Vec<u8> {
    let mut builder = BatchBuilder::new().producer(id, epoch, sequence);
    // The broker forgets producers that were idle for long.
    let now_ms = UNIX_EPOCH.elapsed().unwrap().as_millis() as i64;
    builder.append(now_ms, None, Some(b"value"));
    builder.build()
}

/// A record for each of these offsets, of a producer each, so that each is the last of its own.
fn produce(pair: &mut Pair, offsets: std::ops::Range<i64>) {
    for offset in offsets {
        let record = of_producer(offset, 3, 0);
        let produced = pair.plane(1).client().produce("t", 0, &record);
        assert_eq!(produced, (ErrorCode::NONE, offset));
    }
}

/// The leader has records, and the replica has begun behind them and got another one.
fn begun() -> Pair {
    let mut pair = Pair::start();
    begin(&mut pair);
    pair
}

fn begin(pair: &mut Pair) {
    lead(pair, 0, &[2]);
    produce(pair, 0..BEFORE);
    follow(pair, 0, true);
    wait_offsets(pair.plane(2), BEFORE, BEFORE);
    produce(pair, BEFORE..BEFORE + 1);
    wait_offsets(pair.plane(2), BEFORE, BEFORE + 1);
}

fn partial_file(pair: &Pair) -> PathBuf {
    pair.dir.path().join("logs2/t-0/partial")
}

fn is_caught_up(event: &Event) -> bool {
    matches!(event, Event::FollowerCaughtUp(_))
}

fn delete_records(pair: &mut Pair, offset: i64) {
    let wanted = vec![("t".to_owned(), 0, offset)];
    let ticket = pair.plane(1).plane.delete_records(wanted).unwrap();
    let outcome = pair.plane(1).ticket(ticket);
    assert!(matches!(outcome, TicketOutcome::DeleteRecords(found) if found == [(0, offset)]));
}

#[test]
fn a_partial_replica_has_new_records_and_all_producers() {
    let mut pair = begun();
    let text = std::fs::read_to_string(partial_file(&pair)).unwrap();
    assert_eq!(text, "0\n5\n0\n1\n0 0\n");
    // Broker 2 knows the producer as of its start: it leads after it is whole.
    delete_records(&mut pair, BEFORE);
    pair.plane(1).wait_for("the replica", is_caught_up);
    assert!(!partial_file(&pair).exists());
    let spec = LeaderSpec {
        replicas: BOTH.to_vec(),
        isr: vec![2],
        ..TestPlane::leader_spec("t", 0, 1)
    };
    assert_eq!(pair.plane(2).become_leaders(vec![spec]), [0]);
    for producer in 0..=BEFORE {
        let mut client = pair.plane(2).client();
        let again = client.produce("t", 0, &of_producer(producer, 3, 0));
        assert_eq!(again, (ErrorCode::NONE, producer), "its last record");
        let (error, _) = client.produce("t", 0, &of_producer(producer, 2, 1));
        assert_eq!(error, ErrorCode::INVALID_PRODUCER_EPOCH, "{producer}");
    }
}

#[test]
fn a_partial_replica_counts_for_no_minimum() {
    let options = TopicConfig {
        min_insync_replicas: 2,
        ..topic_config()
    };
    let mut pair = Pair::start_with(options, |_| {});
    lead(&mut pair, 0, &[2]);
    let record = batch(&[b"v"]);
    let mut client = pair.plane(1).client();
    // Two of one whole replica is one, as before the reassignment.
    assert_eq!(client.produce_acks(-1, "t", 0, &record).0, ErrorCode::NONE);
    // A copy counts, as with Kafka.
    lead(&mut pair, 1, &[]);
    let refused = client.produce_acks(-1, "t", 0, &record).0;
    assert_eq!(refused, ErrorCode::NOT_ENOUGH_REPLICAS);
}

#[test]
fn a_partial_replica_is_not_reported_before_it_is_whole() {
    let mut pair = begun();
    delete_records(&mut pair, BEFORE - 1);
    produce(&mut pair, 6..9);
    wait_offsets(pair.plane(2), BEFORE, BEFORE + 4);
    let told = pair.plane(1).plane.drain_events(100);
    assert!(!told.iter().any(is_caught_up));
    assert!(
        !pair.plane(1).plane.set_isr("t", 0, 0, &BOTH, &[1], false),
        "it lacks what the leader has"
    );
    delete_records(&mut pair, BEFORE);
    pair.plane(1).wait_for("the replica", is_caught_up);
    assert!(pair.plane(1).plane.set_isr("t", 0, 0, &BOTH, &[1], false));
}

#[test]
fn consumers_are_sent_back_for_what_a_partial_replica_lacks() {
    let mut pair = begun();
    let fetch = |pair: &mut Pair, offset| pair.plane(2).client().fetch_one("t", 0, offset);
    for offset in 0..BEFORE {
        assert_eq!(
            fetch(&mut pair, offset).error,
            ErrorCode::OFFSET_NOT_AVAILABLE
        );
    }
    let found = eventually("a new record", || {
        let found = fetch(&mut pair, BEFORE);
        (!found.records.is_empty()).then_some(found)
    });
    assert_eq!(
        (found.error, found.batches()),
        (ErrorCode::NONE, vec![BEFORE])
    );
    // A whole replica answers as any other.
    delete_records(&mut pair, BEFORE);
    pair.plane(1).wait_for("the replica", is_caught_up);
    assert_eq!(fetch(&mut pair, 0).error, ErrorCode::OFFSET_OUT_OF_RANGE);
}

#[test]
fn a_partial_replica_does_not_lead() {
    let mut pair = begun();
    let spec = LeaderSpec {
        replicas: BOTH.to_vec(),
        isr: vec![2],
        ..TestPlane::leader_spec("t", 0, 1)
    };
    let codes = pair.plane(2).become_leaders(vec![spec]);
    assert_eq!(codes, [ErrorCode::KAFKA_STORAGE_ERROR.0]);
}

#[test]
fn a_replica_that_nobody_lists_discards_its_log_and_copies() {
    let mut pair = begun();
    lead(&mut pair, 1, &[]);
    follow(&mut pair, 1, false);
    wait_offsets(pair.plane(2), 0, BEFORE + 1);
    assert!(!partial_file(&pair).exists());
    pair.plane(1).wait_for("the replica", is_caught_up);
}

/// A kill at any step: what it lacked is copied after the next start.
#[test]
fn a_replica_that_is_killed_while_it_discards_its_log_copies_all() {
    for steps in 0.. {
        let disk = DyingDisk::new();
        let mut pair = Pair::start_on(topic_config(), |_| {}, Arc::new(disk.clone()));
        begin(&mut pair);
        lead(&mut pair, 1, &[]);
        disk.die_after(steps);
        pair.plane(2).become_followers(vec![follower(1, false)]);
        eventually("it copies, or the disk dies", || {
            (disk.is_dead() || offsets(pair.plane(2)) == (0, BEFORE + 1)).then_some(())
        });
        let died = disk.is_dead();
        disk.die_after(0);
        let mut pair = killed(pair);
        assert_eq!(
            pair.plane(2).become_followers(vec![follower(1, false)]),
            [0]
        );
        wait_offsets(pair.plane(2), 0, BEFORE + 1);
        if !died {
            assert!(steps > 10, "it has many steps");
            break;
        }
    }
}

/// Broker 2 was killed, and starts again.
fn killed(pair: Pair) -> Pair {
    let config = cluster_config(pair.dir.path(), 2);
    let brokers = [(1, pair.planes[0].port)];
    let Pair {
        dir,
        planes: [leader, killed],
        config: options,
    } = pair;
    drop(killed);
    let mut again = TestPlane::start_with(config, Arc::new(RealDisk));
    again.know(&[brokers[0], (2, again.port)]);
    again.describe_topic("t", 1, &options);
    Pair {
        dir,
        planes: [leader, again],
        config: options,
    }
}

/// KIP-73 holds copies back: not what comes new, but a replica that copies after all.
#[test]
fn throttle_holds_a_replica_back_only_where_it_copies() {
    let all = TopicConfig {
        throttled: Throttled {
            leading: ThrottledReplicas::All,
            following: ThrottledReplicas::All,
        },
        ..topic_config()
    };
    for (leading, following) in [(Some(0), None), (None, Some(0))] {
        let mut pair = Pair::start_with(all.clone(), |_| {});
        for broker in BOTH {
            let plane = &pair.plane(broker).plane;
            plane.set_replication_rates(leading, following);
        }
        begin(&mut pair);
        let counted = |pair: &mut Pair| {
            let bytes = |side| format!("throttled_replication_bytes.{side}");
            let leader = pair.plane(1).statistic(&bytes("leader"));
            leader + pair.plane(2).statistic(&bytes("follower"))
        };
        assert_eq!(counted(&mut pair), 0);
        lead(&mut pair, 1, &[]);
        follow(&mut pair, 1, false);
        wait_offsets(pair.plane(2), 0, 0);
        assert_eq!(counted(&mut pair), 0);
        for broker in BOTH {
            let fast = Some(1 << 30);
            let plane = &pair.plane(broker).plane;
            plane.set_replication_rates(fast, fast);
        }
        wait_offsets(pair.plane(2), 0, BEFORE + 1);
        assert!(counted(&mut pair) > 0);
    }
}

#[test]
fn a_replica_that_is_listed_still_goes_on_in_the_next_epoch() {
    let mut pair = begun();
    lead(&mut pair, 1, &[2]);
    follow(&mut pair, 1, true);
    produce(&mut pair, 6..7);
    wait_offsets(pair.plane(2), BEFORE, BEFORE + 2);
    assert!(partial_file(&pair).exists());
}

#[test]
fn without_a_record_it_begins_anew_in_each_epoch() {
    let mut pair = Pair::start();
    lead(&mut pair, 0, &[2]);
    produce(&mut pair, 0..5);
    follow(&mut pair, 0, true);
    wait_offsets(pair.plane(2), 5, 5);
    lead(&mut pair, 1, &[]);
    produce(&mut pair, 5..8);
    lead(&mut pair, 2, &[2]);
    follow(&mut pair, 2, true);
    wait_offsets(pair.plane(2), 8, 8);
}

#[test]
fn a_compacted_topic_is_copied() {
    let mut options = topic_config();
    options.log.cleanup_delete = false;
    options.log.cleanup_compact = true;
    let mut pair = Pair::start_with(options, |_| {});
    lead(&mut pair, 0, &[2]);
    for value in [b"a", b"b"] {
        let mut builder = BatchBuilder::new();
        builder.append(1_000, Some(value), Some(value));
        let (error, _) = pair.plane(1).client().produce("t", 0, &builder.build());
        assert_eq!(error, ErrorCode::NONE);
    }
    follow(&mut pair, 0, true);
    wait_offsets(pair.plane(2), 0, 2);
    pair.plane(1).wait_for("the replica", is_caught_up);
}

#[test]
fn an_empty_log_is_whole_at_once() {
    let mut pair = Pair::start();
    lead(&mut pair, 0, &[2]);
    follow(&mut pair, 0, true);
    pair.plane(1).wait_for("the replica", is_caught_up);
    assert!(!partial_file(&pair).exists());
}

#[test]
fn a_killed_replica_goes_on_where_it_was() {
    let mut pair = killed(begun());
    follow(&mut pair, 0, true);
    wait_offsets(pair.plane(2), BEFORE, BEFORE + 1);
    produce(&mut pair, 6..7);
    wait_offsets(pair.plane(2), BEFORE, BEFORE + 2);
    assert!(partial_file(&pair).exists());
    delete_records(&mut pair, BEFORE);
    pair.plane(1).wait_for("the replica", is_caught_up);
    assert!(!partial_file(&pair).exists());
}

#[test]
fn only_replicas_that_the_controller_lists_get_a_start() {
    let mut pair = Pair::start();
    lead(&mut pair, 0, &[3]);
    produce(&mut pair, 0..5);
    follow(&mut pair, 0, true);
    wait_offsets(pair.plane(2), 0, 5);
}

/// The lowest offset that consumers have fetched from broker 1.
fn lowest_consumed(pair: &mut Pair) -> (ErrorCode, i64) {
    let found = pair
        .plane(1)
        .client()
        .list_offset("t", 0, LOWEST_CONSUMED_TIMESTAMP);
    (found.error_code, found.offset)
}

#[test]
fn a_leader_tells_where_consumers_read_but_not_where_replicas_do() {
    let mut pair = begun();
    let nobody = eventually("a whole window", || {
        let (error, offset) = lowest_consumed(&mut pair);
        (error == ErrorCode::NONE).then_some(offset)
    });
    assert_eq!(nobody, i64::MAX, "the replica reads, and nobody else");
    pair.plane(1).client().fetch_one("t", 0, BEFORE);
    assert_eq!(lowest_consumed(&mut pair), (ErrorCode::NONE, BEFORE));
    pair.plane(1).client().fetch_one("t", 0, 1);
    assert_eq!(lowest_consumed(&mut pair), (ErrorCode::NONE, 1));
    // A new leader epoch knows nothing of before.
    lead(&mut pair, 1, &[2]);
    assert_ne!(lowest_consumed(&mut pair), (ErrorCode::NONE, 1));
}
