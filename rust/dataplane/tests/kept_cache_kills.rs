//! The block cache kept by an orderly end: kills at every step, copied and moved directories, and
//! failed starts.

use std::fs;
use std::path::Path;
use std::sync::Arc;

use crate::harness::kept::*;
use crate::harness::*;
use pyrklog_dataplane::seam::{Event, PlaneConfig};
use pyrklog_dataplane::{DataPlane, OpenError};

#[test]
fn copied_directory_does_not_take_a_kept_arena() {
    let dir = tempfile::tempdir().unwrap();
    let config = keeping(dir.path());
    let end = ended(&config, &["t"]);
    copy(dir.path(), "logs", "copy");
    let test = again(&config_of(dir.path(), "copy"), &["t"]);
    assert_eq!(read_counted(&test, "t", end).0, 0);
    assert!(test.shutdown());
    let test = again(&config, &["t"]);
    assert!(is_all_cached(&test, "t", end));
}

/// A broker that is killed before it has written any of 40 records.
fn killed_behind(dir: &Path) -> PlaneConfig {
    let mut config = keeping(dir);
    config.cache.flush_ms = 3_600_000;
    config.cache.flush_bytes = usize::MAX;
    let mut test = start(&config);
    test.create("t", 1);
    append(&test, "t", 0, 40);
    config
}

#[test]
fn copied_directory_does_not_take_a_killed_brokers_arena() {
    let dir = tempfile::tempdir().unwrap();
    let config = killed_behind(dir.path());
    copy(dir.path(), "logs", "copy");
    let test = again(&config_of(dir.path(), "copy"), &["t"]);
    assert!(
        dir.path().join("copy/.pyrklog-unclean").exists(),
        "it lacks records"
    );
    assert!(test.shutdown());
    read_all(&again(&config, &["t"]), "t", 40);
    assert!(!is_unclean(dir.path()));
}

#[test]
fn moved_directory_reattaches_a_killed_brokers_arena() {
    let dir = tempfile::tempdir().unwrap();
    killed_behind(dir.path());
    fs::rename(dir.path().join("logs"), dir.path().join("moved")).unwrap();
    let test = again(&config_of(dir.path(), "moved"), &["t"]);
    read_all(&test, "t", 40);
    assert!(test.shutdown());
    assert!(
        arenas(dir.path()).is_empty(),
        "its header names the old path"
    );
}

/// As Kafka would: opens the directory, appends to a log, and closes in order.
fn use_by_kafka(dir: &Path) {
    let mark = dir.join("logs/.kafka_cleanshutdown");
    let content = fs::read(&mark).unwrap();
    fs::remove_file(&mark).unwrap();
    let path = dir.join("logs/t-0/00000000000000000000.log");
    forge(&path);
    fs::write(&mark, content).unwrap();
}

/// Kills at each disk operation of an orderly end in turn, then calls `between` with whether the
/// directory is marked clean, and starts again.
fn kill_at_each_step_of_the_end(between: impl Fn(&Path, bool) -> bool) {
    for steps in 0.. {
        let dir = tempfile::tempdir().unwrap();
        let config = keeping(dir.path());
        let disk = DyingDisk::new();
        let mut test = start_on(&config, Arc::new(disk.clone()));
        for topic in ["t", "u"] {
            test.create(topic, 1);
            append(&test, topic, 0, 3);
        }
        disk.die_after(steps);
        let is_clean = test.shutdown();
        let is_over = !disk.is_dead();
        assert!(is_clean || !is_over, "{steps}");
        let has_mark = dir.path().join("logs/.kafka_cleanshutdown").exists();
        let is_forged = between(dir.path(), has_mark);
        let test = again(&config, &["t", "u"]);
        read_all(&test, "u", 3);
        if is_forged {
            let records = test.client().fetch_one("t", 0, 0).records;
            assert_eq!(records[BATCH_BYTES - 100], 77, "killed at {steps}");
        } else {
            read_all(&test, "t", 3);
        }
        assert!(!is_unclean(dir.path()), "killed at {steps}");
        if is_over {
            assert!(steps > 10, "{steps}");
            return;
        }
    }
}

#[test]
fn a_kill_at_any_step_of_the_end_loses_nothing() {
    kill_at_each_step_of_the_end(|_, _| false);
}

#[test]
fn after_a_kill_at_any_step_of_the_end_files_that_kafka_changed_are_right() {
    kill_at_each_step_of_the_end(|dir, has_mark| {
        if has_mark {
            use_by_kafka(dir);
        }
        has_mark
    });
}

#[test]
fn a_kill_at_any_step_of_the_start_loses_nothing() {
    for steps in 0.. {
        let dir = tempfile::tempdir().unwrap();
        let config = keeping(dir.path());
        let end = ended(&config, &["t", "u"]);
        forge(&dir.path().join("logs/u-0/00000000000000000000.log"));
        let disk = DyingDisk::new();
        disk.die_after(steps);
        if let Ok(mut test) = TestPlane::try_start(config.clone(), Arc::new(disk.clone())) {
            let _led_or_dead = test.lead("t", 1, &topic_config());
        }
        let is_over = !disk.is_dead();
        let mut test = again(&config, &["t", "u"]);
        read_all(&test, "t", end);
        let records = test.client().fetch_one("u", 0, 0).records;
        assert_eq!(records[BATCH_BYTES - 100], 77, "killed at {steps}");
        let events = test.plane.drain_events(1_000);
        let is_lost = |event: &Event| format!("{event:?}").contains("may be lost");
        assert!(
            !events.iter().chain(&test.events).any(is_lost),
            "{steps}: {events:?}"
        );
        test.events.clear();
        if is_over {
            assert!(steps > 4, "{steps}");
            return;
        }
    }
}

/// As a start that finds its port taken.
fn fail(config: &PlaneConfig) {
    let plane = DataPlane::open(config.clone()).unwrap();
    plane.abandon();
}

#[test]
fn a_start_that_fails_leaves_a_directory_as_it_had_been() {
    let dir = tempfile::tempdir().unwrap();
    let config = keeping(dir.path());
    fail(&config);
    assert!(arenas(dir.path()).is_empty() && marker(dir.path()).is_empty());
    let mut test = start(&config);
    test.plane.set_broker_epoch(77);
    test.create("t", 1);
    append(&test, "t", 0, 40);
    assert!(test.shutdown());
    for _ in 0..2 {
        fail(&config);
        assert!(is_kept(dir.path()));
    }
    let test = again(&config, &["t"]);
    assert_eq!(test.plane.pasts()[0].closed_at_epoch, Some(77));
    assert!(is_all_cached(&test, "t", 40));
}

#[test]
fn failed_start_keeps_a_killed_brokers_arena() {
    let dir = tempfile::tempdir().unwrap();
    let config = killed_behind(dir.path());
    let left = marker(dir.path());
    fail(&config);
    assert_eq!(marker(dir.path()), left);
    let test = again(&config, &["t"]);
    read_all(&test, "t", 40);
}

#[test]
fn a_start_that_fails_at_its_second_directory_leaves_the_first_as_it_had_been() {
    let dir = tempfile::tempdir().unwrap();
    let config = keeping(dir.path());
    let end = ended(&config, &["t"]);
    let holder = start(&config_of(dir.path(), "held"));
    let mut both = config.clone();
    both.log_dirs.push(dir.path().join("held"));
    let refused = DataPlane::open(both).err();
    assert!(matches!(refused, Some(OpenError::Locked(_))), "{refused:?}");
    drop(holder);
    let test = again(&config, &["t"]);
    assert_eq!(test.plane.pasts()[0].closed_at_epoch, Some(-1));
    read_all(&test, "t", end);
}
