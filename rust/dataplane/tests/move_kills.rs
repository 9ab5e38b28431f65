//! Moves of replicas between log directories: kills and losses of power at any step.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use crate::harness::moving::*;
use crate::harness::*;
use pyrklog_dataplane::seam::*;
use pyrklog_log::LogConfig;
use pyrklog_log::disk::testing::MemDisk;

/// Led, and what is removed from it goes at once.
fn create(test: &mut TestPlane) {
    let config = TopicConfig {
        log: LogConfig {
            file_delete_delay_ms: 1,
            retention_ms: -1,
            ..LogConfig::default()
        },
        ..topic_config()
    };
    assert_eq!(test.lead("t", 1, &config), [0]);
}

/// Moves under load until the disk dies or the move is done. Returns what was acknowledged.
fn until_dead(test: &TestPlane, disk: &DyingDisk, to: &Path, steps: i64) -> Vec<(i64, Vec<u8>)> {
    let stop = AtomicBool::new(false);
    let port = test.port;
    std::thread::scope(|scope| {
        let producing = scope.spawn(|| produce_until(port, &stop));
        // Before it is asked for: else it may have begun by then.
        disk.die_after(steps);
        let asked = alter(test, "t", 0, to);
        assert!(asked == 0 || disk.is_dead(), "{asked}");
        let moved = within(Duration::from_secs(20), || {
            let events = test.plane.drain_events(100);
            let is_moved = |event: &Event| matches!(event, Event::Notice { event, .. } if *event == "replica_moved");
            (disk.is_dead() || events.iter().any(is_moved)).then_some(())
        });
        moved.expect("it moves, or the disk dies");
        stop.store(true, Ordering::Relaxed);
        producing.join().unwrap()
    })
}

/// Moves under load, and kills after so many steps of the disk; false if the move was done before.
fn killed_after(dir: &Path, config: &PlaneConfig, steps: i64) -> bool {
    let disk = DyingDisk::new();
    let mut test = TestPlane::start_with(config.clone(), Arc::new(disk.clone()));
    create(&mut test);
    append(&test, 30);
    let to = match place(dir) {
        "a" => dir.join("b"),
        _ => dir.join("a"),
    };
    let acknowledged = until_dead(&test, &disk, &to, steps);
    let died = disk.is_dead();
    disk.die_after(0);
    drop(test);
    let mut test = start(config);
    create(&mut test);
    check_acknowledged(&test, &acknowledged);
    append(&test, 3);
    let found = read(&test);
    eventually("the other folders' end", || {
        let (a, b) = (folders(&dir.join("a")), folders(&dir.join("b")));
        (a.len() + b.len() == 1).then_some(())
    });
    let first = place(dir);
    assert!(test.shutdown());
    let mut test = start(config);
    create(&mut test);
    assert_eq!(read(&test), found, "moved from {first}");
    assert!(test.shutdown());
    died
}

fn kill_at_each_step(config: impl Fn(&Path) -> PlaneConfig) {
    let mut places = BTreeSet::new();
    // The load takes steps too, so that each run ends at other ones.
    for steps in (0..).step_by(3) {
        let dir = tempfile::tempdir().unwrap();
        let died = killed_after(dir.path(), &config(dir.path()), steps);
        places.insert(place(dir.path()));
        if !died {
            assert!(steps > 20, "a move has many steps");
            break;
        }
    }
    assert_eq!(places.len(), 2);
}

#[test]
fn a_kill_at_any_step_leaves_one_log_with_all_that_was_acknowledged() {
    kill_at_each_step(two);
}

#[test]
fn so_it_does_with_a_block_cache() {
    kill_at_each_step(two_cached);
}

/// The directory of two that the partition is not in.
fn other(test: &mut TestPlane) -> PathBuf {
    let dirs = described(test);
    let empty = dirs
        .iter()
        .find(|(_, partitions)| partitions.iter().all(|one| one.4));
    empty.unwrap().0.clone()
}

/// Moves under load, and cuts the power after so many steps of the disk; false if the move was done
/// before. Every record is synced before it is acknowledged.
fn without_power_after(steps: i64) -> bool {
    let config = two(Path::new("/data"));
    let synced = TopicConfig {
        log: LogConfig {
            flush_messages: 1,
            segment_bytes: 16_384,
            retention_ms: -1,
            ..LogConfig::default()
        },
        ..topic_config()
    };
    let memory = MemDisk::default();
    let disk = DyingDisk::over(Arc::new(memory.clone()));
    let mut test = TestPlane::start_with(config.clone(), Arc::new(disk.clone()));
    assert_eq!(test.lead("t", 1, &synced), [0]);
    append(&test, 40);
    let to = other(&mut test);
    let acknowledged = until_dead(&test, &disk, &to, steps);
    let died = disk.is_dead();
    disk.die_after(0);
    drop(test);
    memory.reboot(steps.cast_unsigned() + 1);
    let mut test = TestPlane::start_with(config, Arc::new(memory));
    assert_eq!(test.lead("t", 1, &synced), [0]);
    check_acknowledged(&test, &acknowledged);
    append(&test, 3);
    let found = read(&test);
    eventually("the move's end", || {
        let dirs = described(&mut test);
        let mut partitions = dirs.iter().flat_map(|(_, partitions)| partitions);
        partitions.all(|one| !one.4).then_some(())
    });
    assert_eq!(read(&test), found);
    assert!(test.shutdown());
    died
}

#[test]
fn a_loss_of_power_at_any_step_loses_nothing_that_was_synced() {
    assert!(without_power_after(1));
    for steps in (0..).step_by(5) {
        if !without_power_after(steps) {
            assert!(steps > 20, "a move has many steps");
            break;
        }
    }
}
