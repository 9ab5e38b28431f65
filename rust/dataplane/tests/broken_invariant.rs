//! A partition that breaks an invariant is taken out of service. All others go on, and its records
//! are there after the next start.

use std::path::Path;
use std::sync::Arc;

use crate::harness::*;
use pyrklog_dataplane::seam::{Event, LeaderSpec, PlaneConfig, StopSpec};
use pyrklog_log::disk::RealDisk;
use pyrklog_wire::ErrorCode;
use pyrklog_wire::api::key;

/// The broken invariant that the control plane is told of t-0.
fn broken(test: &mut TestPlane) -> String {
    let is_it = |event: &Event| matches!(event, Event::PartitionFailed(_));
    let Event::PartitionFailed(failed) = test.wait_for("the broken invariant", is_it) else {
        unreachable!()
    };
    assert_eq!((&failed.topic[..], failed.partition), ("t", 0));
    assert_eq!(failed.topic_id, topic_id("t"));
    failed.reason
}

#[test]
fn broken_invariant_takes_one_partition_offline_and_loses_nothing() {
    let dir = tempfile::tempdir().unwrap();
    let mut test = TestPlane::start(dir.path());
    test.create("t", 2);
    let mut client = test.client();
    for partition in [0, 1] {
        let first = client.produce("t", partition, &batch(&[b"before"]));
        assert_eq!(first, (ErrorCode::NONE, 0));
    }
    // The other replica does not fetch, so this record is not acknowledged.
    let spec = LeaderSpec {
        replicas: BOTH.to_vec(),
        isr: BOTH.to_vec(),
        ..TestPlane::leader_spec("t", 0, 1)
    };
    assert_eq!(test.become_leaders(vec![spec]), [0]);
    let mut waiting = test.client();
    let records = batch(&[b"waits"]);
    let partitions = [(0, Some(&records[..]))];
    let body = produce_body(PRODUCE_VERSION, -1, 10_000, "t", &partitions);
    waiting.send(key::PRODUCE, PRODUCE_VERSION, &body);
    eventually("its wait", || {
        (test.statistic("purgatory_produce") > 0).then_some(())
    });

    test.plane.break_invariant("t", 0);
    let (_, answer) = waiting.receive(key::PRODUCE, PRODUCE_VERSION);
    let told = produced(&answer, PRODUCE_VERSION).0;
    assert_eq!(told, ErrorCode::KAFKA_STORAGE_ERROR);
    let reason = broken(&mut test);
    assert!(
        reason.contains("the leader epoch fell from 1 to 0"),
        "{reason}"
    );
    assert!(reason.contains("high watermark 1"), "{reason}");

    let refused = client.produce("t", 0, &batch(&[b"after"])).0;
    assert_eq!(refused, ErrorCode::KAFKA_STORAGE_ERROR);
    let found = client.fetch_one("t", 0, 0);
    assert_eq!(found.error, ErrorCode::KAFKA_STORAGE_ERROR);
    let described = test.plane.active_producers("t", 0, 1).err();
    assert_eq!(described, Some(ErrorCode::KAFKA_STORAGE_ERROR));
    for current_leader_epoch in [0, 9] {
        let mut ask = Ask::one("t", 0, 0);
        ask.partitions[0].1.current_leader_epoch = current_leader_epoch;
        let told = client.fetch(&ask).partitions[0].error;
        assert_eq!(told, ErrorCode::KAFKA_STORAGE_ERROR, "as in Kafka, first");
    }
    let second = client.produce("t", 1, &batch(&[b"after"]));
    assert_eq!(second, (ErrorCode::NONE, 1), "the others go on");
    assert!(test.shutdown(), "its records are in its files");

    let mut test = TestPlane::start(dir.path());
    test.create("t", 2);
    let mut client = test.client();
    for partition in [0, 1] {
        let found = client.fetch_one("t", partition, 1);
        assert_eq!((found.error, found.high_watermark), (ErrorCode::NONE, 2));
    }
}

/// A cache whose records are written when something asks for it only.
fn never_written(dir: &Path) -> PlaneConfig {
    let mut config = config(vec![dir.join("logs")]);
    config.cache = cache(&config.log_dirs);
    config.cache.flush_ms = 3_600_000;
    config.cache.flush_bytes = usize::MAX;
    config
}

/// Two acknowledged records of t-0 and t-1 each, the second one in the cache only.
fn acknowledged(config: &PlaneConfig) -> TestPlane {
    let mut test = TestPlane::start_with(config.clone(), Arc::new(RealDisk));
    test.create("t", 2);
    for partition in [0, 1] {
        let logs = &config.log_dirs[0];
        let epochs = logs.join(format!("t-{partition}/leader-epoch-checkpoint"));
        // The writer takes it at once, and would take records that are there by then as well.
        eventually("the leader epoch in its file", || {
            epochs.exists().then_some(())
        });
    }
    let mut client = test.client();
    for partition in [0, 1] {
        for offset in 0..2 {
            let told = client.produce("t", partition, &batch(&[b"acknowledged"]));
            assert_eq!(told, (ErrorCode::NONE, offset));
        }
    }
    assert!(test.statistic("cache_appended_bytes") > 0);
    test
}

fn has_all(config: &PlaneConfig, ends: [i64; 2]) {
    let mut test = TestPlane::start_with(config.clone(), Arc::new(RealDisk));
    assert_eq!(test.lead("t", 2, &topic_config()), [0, 0]);
    let mut client = test.client();
    for (partition, end) in ends.into_iter().enumerate() {
        let found = client.fetch_one("t", partition as i32, 1);
        assert_eq!(found.error, ErrorCode::NONE);
        assert_eq!(found.high_watermark, end);
    }
}

#[test]
fn an_orderly_end_writes_what_is_in_the_cache_only() {
    let dir = tempfile::tempdir().unwrap();
    let config = never_written(dir.path());
    let mut test = acknowledged(&config);
    test.plane.break_invariant("t", 0);
    broken(&mut test);
    assert!(test.shutdown(), "the directory is clean");
    remove_arenas(dir.path());
    has_all(&config, [2, 2]);
}

#[test]
fn writer_writes_the_rest_of_a_sealed_log() {
    let dir = tempfile::tempdir().unwrap();
    let mut config = never_written(dir.path());
    config.cache.flush_ms = 1_000;
    let mut test = acknowledged(&config);
    test.plane.break_invariant("t", 0);
    broken(&mut test);
    eventually("the writes", || {
        (test.statistic("unwritten_bytes") == 0).then_some(())
    });
    drop(test); // as by a kill
    remove_arenas(dir.path());
    has_all(&config, [2, 2]);
}

#[test]
fn a_log_whose_own_offsets_contradict_each_other_stays_in_the_cache_until_the_next_start() {
    let dir = tempfile::tempdir().unwrap();
    let config = never_written(dir.path());
    let mut test = acknowledged(&config);
    test.plane.break_log_invariant("t", 0);
    let reason = broken(&mut test);
    assert!(reason.contains("the log start is behind"), "{reason}");
    assert!(!test.shutdown(), "its records are in the cache alone");
    has_all(&config, [2, 2]);
}

/// The controller stopped it and asked for it anew before it heard of the broken invariant.
#[test]
fn records_that_the_cache_alone_has_outlive_another_opening_in_the_same_run() {
    let dir = tempfile::tempdir().unwrap();
    let config = never_written(dir.path());
    let mut test = acknowledged(&config);
    test.plane.break_log_invariant("t", 0);
    let stop = StopSpec {
        topic: "t".into(),
        partition: 0,
        delete: false,
    };
    let stopped = test.plane.stop_partitions(vec![stop]).unwrap();
    let codes = test.become_leaders(vec![TestPlane::leader_spec("t", 0, 1)]);
    assert_eq!(codes, [ErrorCode::KAFKA_STORAGE_ERROR.0]);
    test.ticket(stopped);
    let third = test.client().produce("t", 1, &batch(&[b"after"]));
    assert_eq!(third, (ErrorCode::NONE, 2), "its directory serves on");
    assert!(!test.shutdown(), "its records are in the cache alone");
    has_all(&config, [2, 3]);
}

/// The machine goes down.
fn remove_arenas(dir: &Path) {
    for entry in std::fs::read_dir(dir).unwrap() {
        let path = entry.unwrap().path();
        if path.extension().is_some_and(|kind| kind == "arena") {
            std::fs::remove_file(path).unwrap();
        }
    }
}
