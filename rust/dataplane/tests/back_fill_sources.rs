//! What a broker bears that others back-fill from (`expansion.md`, section 6). Any client may ask.

use std::sync::Arc;

use crate::harness::transactions::*;
use crate::harness::*;
use pyrklog_dataplane::seam::*;
use pyrklog_log::ABORTED_PAGE;
use pyrklog_log::transaction_index::ENTRY_BYTES;
use pyrklog_wire::ErrorCode;
use pyrklog_wire::api::key;
use pyrklog_wire::replica_segments::{ReplicaSegmentsRequest, ReplicaSegmentsResponse};

const NONE: ErrorCode = ErrorCode::NONE;
/// More than a page, and more than a closed segment keeps in memory.
const ABORTED: usize = ABORTED_PAGE + 44;
const SEGMENT_BYTES: u32 = 100_000;

fn options() -> TopicConfig {
    let mut options = topic_config();
    options.log.segment_bytes = SEGMENT_BYTES;
    // The records of transactions are of 2023.
    options.log.retention_ms = -1;
    options
}

/// A segment full of aborted transactions, each a record and its marker, and another segment.
fn abort_many(test: &mut TestPlane) {
    let mut client = test.client();
    for sequence in 0..ABORTED {
        let produced = verified(test, &mut client, ADDS, sequence as i32, NONE);
        assert_eq!(produced, (NONE, 2 * sequence as i64));
        let [(NONE, _)] = write_now(test, &[marker(0, PRODUCER, false)])[..] else {
            panic!("no marker")
        };
    }
    let large = large_batch(SEGMENT_BYTES as usize - 1_000);
    assert_eq!(client.produce("t", 0, &large).0, NONE);
}

fn question(aborted_known: usize, leader_epoch: i32) -> Vec<u8> {
    let mut body = Vec::new();
    ReplicaSegmentsRequest {
        replica_id: 2,
        topic: "t",
        topic_id: topic_id("t"),
        partition: 0,
        current_leader_epoch: leader_epoch,
        end_offset: 2 * ABORTED as i64,
        aborted_known: aborted_known as i32,
    }
    .encode(&mut body, 0);
    body
}

fn decoded(body: &[u8]) -> ReplicaSegmentsResponse {
    ReplicaSegmentsResponse::decode(body, 0).unwrap()
}

/// Markers of a page; waits until a reader has read it.
fn page(test: &TestPlane, known: usize, leader_epoch: i32) -> Vec<i64> {
    let mut client = test.client();
    let asked = question(known, leader_epoch);
    eventually("a page", || {
        let answer = decoded(&client.call(key::REPLICA_SEGMENTS, 0, &asked));
        match answer.error_code {
            NONE => Some(answer.aborted.iter().map(|txn| txn.last_offset).collect()),
            ErrorCode::OFFSET_NOT_AVAILABLE => None,
            error => panic!("{error:?}"),
        }
    })
}

#[test]
fn aborted_transactions_come_page_by_page() {
    let mut pair = Pair::start_with(options(), |config| {
        if let Some(cluster) = &mut config.cluster {
            cluster.back_fill_rate_bytes = 1 << 30;
        }
    });
    let spec = LeaderSpec {
        replicas: BOTH.to_vec(),
        isr: vec![1],
        partial: vec![2],
        ..TestPlane::leader_spec("t", 0, 0)
    };
    assert_eq!(pair.plane(1).become_leaders(vec![spec]), [0]);
    abort_many(pair.plane(1));
    let mut markers = page(pair.plane(1), 0, 0);
    assert_eq!(markers.len(), ABORTED_PAGE);
    markers.extend(page(pair.plane(1), ABORTED_PAGE, 0));
    let all: Vec<i64> = (0..ABORTED as i64).map(|txn| 2 * txn + 1).collect();
    assert_eq!(markers, all);
    for known in [ABORTED, ABORTED + 1, i32::MAX as usize] {
        assert!(page(pair.plane(1), known, 0).is_empty(), "{known}");
    }
    // A replica that misses one refuses the segment.
    let follower = FollowerSpec {
        topic: "t".into(),
        partition: 0,
        leader: 1,
        leader_epoch: 0,
        replicas: BOTH.to_vec(),
        isr: vec![1],
        is_new: false,
        is_partial: true,
    };
    assert_eq!(pair.plane(2).become_followers(vec![follower]), [0]);
    let partial = pair.dir.path().join("logs2/t-0/partial");
    eventually("its start", || partial.exists().then_some(()));
    pair.produce(1, b"new");
    pair.plane(1).wait_for("the replica", |event| {
        matches!(event, Event::FollowerCaughtUp(_))
    });
    let mut ask = Ask::one("t", 0, 0);
    ask.isolation_level = 1;
    let told = eventually("committed records", || {
        let reader = pair.plane(2).client().fetch(&ask).partitions.remove(0);
        (!reader.records.is_empty()).then(|| reader.aborted.map_or(0, |found| found.len()))
    });
    assert_eq!(told, ABORTED);
}

#[test]
fn questions_of_a_partition_wait_for_one_read_of_a_slow_disk() {
    let dir = tempfile::tempdir().unwrap();
    let disk = Stalling::new();
    let mut test = TestPlane::start_with(cluster_config(dir.path(), 1), Arc::new(disk.0.clone()));
    // Declared behind the plane, it resumes before that ends.
    let disk = Stalling(disk.0.clone());
    test.describe_topic("t", 1, &options());
    let leader = |leader_epoch| TestPlane::leader_spec("t", 0, leader_epoch);
    assert_eq!(test.become_leaders(vec![leader(0)]), [0]);
    abort_many(&mut test);
    let mut client = test.client();
    let file = dir.path().join("logs1/t-0/00000000000000000000.txnindex");
    let bytes = (ABORTED * ENTRY_BYTES) as u64;
    eventually("its file", || {
        file.metadata()
            .is_ok_and(|file| file.len() == bytes)
            .then_some(())
    });
    disk.set_cold(Some(".txnindex"));
    eventually("a closed segment's in its file alone", || {
        let answer = decoded(&client.call(key::REPLICA_SEGMENTS, 0, &question(0, 0)));
        (answer.error_code == ErrorCode::OFFSET_NOT_AVAILABLE).then_some(())
    });
    disk.stall(".txnindex");
    let depth = |test: &TestPlane| {
        ["waiting", "running"].map(|what| test.statistic(&format!("reader_queue_{what}.0.lookup")))
    };
    eventually("a read that waits", || {
        client.call(key::REPLICA_SEGMENTS, 0, &question(0, 0));
        (disk.waiting() > 0 && depth(&test) == [0, 1]).then_some(())
    });
    for known in 0..50 {
        client.send(key::REPLICA_SEGMENTS, 0, &question(known, 0));
    }
    for _ in 0..50 {
        let (_, body) = client.receive(key::REPLICA_SEGMENTS, 0);
        let error = decoded(&body).error_code;
        assert_eq!(error, ErrorCode::OFFSET_NOT_AVAILABLE);
    }
    assert_eq!(depth(&test), [0, 1]);
    assert_eq!(test.statistic("command_queue_depth"), 0);
    // The controller's commands do not wait.
    assert_eq!(test.become_leaders(vec![leader(1)]), [0]);
    disk.set_cold(None);
    disk.resume();
    assert_eq!(page(&test, 0, 1).len(), ABORTED_PAGE);
}
