//! An older copy of a log directory at its path beside the boot's arena: each pair of states that
//! block-cache.md, section 3, lists.

use std::fs;
use std::path::Path;

use crate::harness::kept::*;
use crate::harness::*;
use pyrklog_arena::Arena;
use pyrklog_dataplane::arena_tools;
use pyrklog_dataplane::seam::{PlaneConfig, StopSpec, TicketOutcome};
use pyrklog_log::{ArenaMarker, Left};
use pyrklog_wire::ErrorCode;

const UNKNOWN: Left = Left {
    closed_at_epoch: None,
    is_reattached: false,
};

/// Without writing behind.
fn behind(config: &PlaneConfig) -> PlaneConfig {
    let mut config = config.clone();
    config.cache.flush_ms = 3_600_000;
    config.cache.flush_bytes = usize::MAX;
    config
}

fn wait_until_written(test: &TestPlane) {
    eventually("writing", || {
        (test.statistic("unwritten_bytes") == 0).then_some(())
    });
}

fn put_back(dir: &Path) {
    fs::remove_dir_all(dir.join("logs")).unwrap();
    fs::rename(dir.join("copy"), dir.join("logs")).unwrap();
}

/// A registered broker with ten written batches in `t` and `u`; its directory was copied then.
fn copied_while_running(dir: &Path, config: &PlaneConfig) -> TestPlane {
    let mut test = start(config);
    for topic in ["t", "u"] {
        test.create(topic, 1);
        append(&test, topic, 0, 10);
    }
    wait_until_written(&test);
    test.plane.set_broker_epoch(7);
    eventually("the registration", || {
        (!marker(dir).contains("unregistered")).then_some(())
    });
    copy(dir, "logs", "copy");
    test
}

fn state(dir: &Path, path: &Path) -> &'static str {
    let rows = arena_tools::list(dir).unwrap();
    let row = rows.iter().find(|row| row.path == path);
    row.map_or("gone", |row| row.state)
}

fn has_alarm(test: &mut TestPlane) -> bool {
    let notice = test.wait_for_notice("block_cache");
    notice.iter().any(|(_, text)| text.contains("may be lost"))
}

/// In use, though an orderly end left the arena; not clean.
#[test]
fn copy_of_a_running_broker_is_unclean_beside_the_kept_arena() {
    let dir = tempfile::tempdir().unwrap();
    let config = keeping(dir.path());
    let test = copied_while_running(dir.path(), &config);
    append(&test, "t", 10, 30);
    assert!(test.shutdown() && is_kept(dir.path()));
    let left = arenas(dir.path()).remove(0);
    put_back(dir.path());
    for _ in 0..2 {
        // The first one is killed before it registers.
        let mut test = start(&config);
        assert!(is_unclean(dir.path()));
        assert_eq!(test.plane.pasts(), [UNKNOWN]);
        assert_eq!(state(dir.path(), &left), "gone");
        test.events.clear();
    }
    let test = again(&config, &["t", "u"]);
    for topic in ["t", "u"] {
        assert_eq!(read_counted(&test, topic, 10).0, 0, "{topic}");
        append(&test, topic, 10, 5);
        read_all(&test, topic, 15);
    }
}

/// In use, both; not clean.
#[test]
fn copy_older_than_a_killed_brokers_arena_is_unclean() {
    let dir = tempfile::tempdir().unwrap();
    let config = keeping(dir.path());
    let test = copied_while_running(dir.path(), &config);
    append(&test, "t", 10, 30);
    wait_until_written(&test);
    drop(test);
    put_back(dir.path());
    let refused = arena_tools::drain(&dir.path().join("logs")).unwrap_err();
    assert!(refused.to_string().contains("older copy"), "{refused}");
    for _ in 0..2 {
        let test = start(&config);
        assert!(is_unclean(dir.path()));
        assert_eq!(test.plane.pasts(), [UNKNOWN], "until it is registered");
    }
    let test = again(&config, &["t", "u"]);
    for topic in ["t", "u"] {
        read_all(&test, topic, 10);
        append(&test, topic, 10, 5);
        read_all(&test, topic, 15);
    }
}

/// In use, both; not clean; the arena has records that follow on those which the copy lacks.
#[test]
fn records_behind_a_hole_are_not_served_and_not_lost() {
    let dir = tempfile::tempdir().unwrap();
    let config = keeping(dir.path());
    let test = copied_while_running(dir.path(), &config);
    append(&test, "t", 10, 10);
    wait_until_written(&test);
    drop(test);
    let test = again(&behind(&config), &["t", "u"]);
    append(&test, "t", 20, 10);
    append(&test, "u", 10, 10);
    drop(test);
    put_back(dir.path());
    let mut test = start(&config);
    assert!(is_unclean(dir.path()));
    let storage = ErrorCode::KAFKA_STORAGE_ERROR.0;
    assert_eq!(test.lead("t", 1, &topic_config()), [storage]);
    assert_eq!(test.lead("u", 1, &topic_config()), [0]);
    read_all(&test, "u", 20);
    assert!(!test.shutdown(), "the arena alone has some of t");
    assert_eq!(state(dir.path(), &arenas(dir.path())[0]), "left over");
}

/// In use, both; not clean; a segment was begun since.
#[test]
fn copy_that_lacks_a_segment_is_unclean() {
    let dir = tempfile::tempdir().unwrap();
    let config = keeping(dir.path());
    let mut options = topic_config();
    options.log.segment_bytes = 10 * BATCH_BYTES as u32;
    let mut test = start(&config);
    assert_eq!(test.lead("t", 1, &options), [0]);
    append(&test, "t", 0, 9);
    wait_until_written(&test);
    copy(dir.path(), "logs", "copy");
    append(&test, "t", 9, 1);
    append(&test, "t", 10, 10);
    wait_until_written(&test);
    drop(test);
    // All of the first segment is there.
    let name = "logs/t-0/00000000000000000000.log";
    let first = dir.path().join("first");
    fs::copy(dir.path().join(name), &first).unwrap();
    put_back(dir.path());
    fs::copy(&first, dir.path().join(name)).unwrap();
    drop(start(&config));
    assert!(is_unclean(dir.path()));
}

/// Kept, though the arena was used since; clean.
#[test]
fn copy_of_an_orderly_end_is_unclean_after_the_arena_was_used() {
    for is_written in [true, false] {
        let dir = tempfile::tempdir().unwrap();
        let config = keeping(dir.path());
        let end = ended(&config, &["t"]);
        copy(dir.path(), "logs", "copy");
        let used = match is_written {
            true => config.clone(),
            false => behind(&config),
        };
        let test = again(&used, &["t"]);
        append(&test, "t", end, 10);
        if is_written {
            wait_until_written(&test);
        }
        drop(test);
        let left = arenas(dir.path()).remove(0);
        put_back(dir.path());
        let mut test = start(&config);
        assert!(has_alarm(&mut test) && is_unclean(dir.path()));
        assert_eq!(test.lead("t", 1, &topic_config()), [0]);
        assert_eq!(read_counted(&test, "t", end).0, 0);
        if is_written {
            eventually("sweeping", || (!left.exists()).then_some(()));
        } else {
            assert_eq!(state(dir.path(), &left), "abandoned", "it alone has them");
        }
    }
}

/// Kept, both, but not by the same end; clean.
#[test]
fn copy_of_an_earlier_orderly_end_is_read_from_its_files() {
    let dir = tempfile::tempdir().unwrap();
    let config = keeping(dir.path());
    let end = ended(&config, &["t"]);
    copy(dir.path(), "logs", "copy");
    let test = again(&config, &["t"]);
    append(&test, "t", end, 10);
    assert!(test.shutdown());
    let left = arenas(dir.path()).remove(0);
    put_back(dir.path());
    let test = again(&config, &["t"]);
    assert_eq!(read_counted(&test, "t", end).0, 0);
    assert!(!left.exists());
    append(&test, "t", end, 5);
    read_all(&test, "t", end + 5);
}

/// None, though an arena was used here; clean.
#[test]
fn a_copy_from_before_there_was_an_arena_is_read_from_its_files() {
    let dir = tempfile::tempdir().unwrap();
    let config = keeping(dir.path());
    let mut without = config.clone();
    without.cache.keeps = false;
    let end = ended(&without, &["t"]);
    copy(dir.path(), "logs", "copy");
    let test = again(&behind(&config), &["t"]);
    append(&test, "t", end, 10);
    drop(test);
    let left = arenas(dir.path()).remove(0);
    put_back(dir.path());
    let test = again(&config, &["t"]);
    assert_eq!(read_counted(&test, "t", end).0, 0);
    assert_eq!(state(dir.path(), &left), "abandoned", "it alone has them");
}

fn stop(test: &mut TestPlane, delete: bool) {
    let stop = StopSpec {
        topic: "t".into(),
        partition: 0,
        delete,
    };
    let ticket = test.plane.stop_partitions(vec![stop]).unwrap();
    let stopped = test.ticket(ticket);
    assert!(
        matches!(&stopped, TicketOutcome::Partitions(codes) if *codes == [0]),
        "{stopped:?}"
    );
}

/// No copy: the partition went to another broker, and its topic was created anew.
#[test]
fn removed_replica_leaves_no_claim_on_a_later_topic() {
    let dir = tempfile::tempdir().unwrap();
    let config = keeping(dir.path());
    let mut test = start(&config);
    test.topic_id = Some([1; 16]);
    test.create("t", 1);
    append(&test, "t", 0, 10);
    stop(&mut test, false);
    stop(&mut test, true);
    test.topic_id = Some([2; 16]);
    test.create("t", 1);
    append(&test, "t", 0, 1);
    wait_until_written(&test);
    drop(test);
    let marker = ArenaMarker::parse(&marker(dir.path())).unwrap();
    let (arena, found) = Arena::attach(&marker.path, marker.identity, u64::MAX).unwrap();
    let ids: Vec<_> = found.keys().map(|name| name.topic_id).collect();
    assert_eq!(ids, [[2; 16]], "the other's place is free");
    drop((arena, found));
    drop(start(&config));
    assert!(!is_unclean(dir.path()));
}

/// No copy: the folder was removed, and its topic was created anew.
#[test]
fn later_topic_is_whole_without_records_of_an_earlier_one() {
    let dir = tempfile::tempdir().unwrap();
    let config = keeping(dir.path());
    let test = copied_while_running(dir.path(), &config);
    append(&test, "t", 10, 10);
    wait_until_written(&test);
    drop(test);
    put_back(dir.path());
    let metadata = "version: 0\ntopic_id: AAAAAAAAAAAAAAAAAAAAAQ\n";
    fs::write(dir.path().join("logs/t-0/partition.metadata"), metadata).unwrap();
    let test = start(&config);
    assert!(!is_unclean(dir.path()));
    assert!(test.plane.pasts()[0].is_reattached);
}
