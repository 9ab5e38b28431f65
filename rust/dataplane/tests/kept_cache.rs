//! The block cache kept by an orderly end: what it serves, and what happens if the directory has
//! changed since.

use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

use crate::harness::kept::*;
use crate::harness::*;
use pyrklog_dataplane::arena_tools;

#[test]
fn a_restart_in_order_serves_from_memory_at_once() {
    let dir = tempfile::tempdir().unwrap();
    let config = keeping(dir.path());
    let mut end = ended(&config, &["t", "u"]);
    for _ in 0..3 {
        assert!(is_kept(dir.path()) && arenas(dir.path()).len() == 1);
        let test = again(&config, &["t", "u"]);
        assert!(!is_kept(dir.path()), "it is in use");
        assert!(is_all_cached(&test, "t", end));
        assert!(is_all_cached(&test, "u", 40));
        append(&test, "t", end, 10);
        end += 10;
        assert!(is_all_cached(&test, "t", end));
        assert!(test.shutdown());
    }
    assert!(!is_unclean(dir.path()));
}

#[test]
fn kill_after_a_restart_with_a_kept_cache_loses_nothing() {
    let dir = tempfile::tempdir().unwrap();
    let mut config = keeping(dir.path());
    let end = ended(&config, &["t", "u"]);
    config.cache.flush_ms = 3_600_000;
    config.cache.flush_bytes = usize::MAX;
    let test = again(&config, &["t"]);
    append(&test, "t", end, 10);
    drop(test);
    let test = again(&config, &["t", "u"]);
    assert!(is_all_cached(&test, "t", end + 10));
    read_all(&test, "u", 40);
    assert!(test.shutdown() && is_kept(dir.path()));
    let test = again(&config, &["t", "u"]);
    assert!(is_all_cached(&test, "t", end + 10));
    assert!(!is_unclean(dir.path()));
}

#[test]
fn unopened_logs_stay_in_the_kept_cache_for_another_start() {
    let dir = tempfile::tempdir().unwrap();
    let config = keeping(dir.path());
    let end = ended(&config, &["t", "u"]);
    assert!(again(&config, &["t"]).shutdown());
    assert!(start(&config).shutdown());
    let test = again(&config, &["t", "u"]);
    assert!(is_all_cached(&test, "t", end) && is_all_cached(&test, "u", end));
}

#[test]
fn a_broker_without_the_option_leaves_nothing() {
    let dir = tempfile::tempdir().unwrap();
    let mut config = keeping(dir.path());
    config.cache.keeps = false;
    let end = ended(&config, &["t"]);
    assert!(arenas(dir.path()).is_empty() && marker(dir.path()).is_empty());
    // One that kept nothing also keeps nothing.
    config.cache.keeps = true;
    assert!(start(&config).shutdown());
    assert!(arenas(dir.path()).is_empty() && marker(dir.path()).is_empty());
    read_all(&again(&config, &["t"]), "t", end);
}

#[test]
fn kept_arena_can_be_dropped_at_the_start() {
    let dir = tempfile::tempdir().unwrap();
    let mut config = keeping(dir.path());
    let end = ended(&config, &["t"]);
    let left = arenas(dir.path());
    config.cache.drops = true;
    let test = again(&config, &["t"]);
    assert_eq!(read_counted(&test, "t", end).0, 0);
    assert!(!arenas(dir.path()).contains(&left[0]));
}

#[test]
fn blocks_of_a_file_that_was_written_to_are_not_served() {
    let dir = tempfile::tempdir().unwrap();
    let config = keeping(dir.path());
    let end = ended(&config, &["t", "u"]);
    forge(&dir.path().join("logs/t-0/00000000000000000000.log"));
    let test = again(&config, &["t", "u"]);
    assert!(is_all_cached(&test, "u", end), "nobody touched it");
    let fetched = test.client().fetch_one("t", 0, 0);
    let first = i32::from_be_bytes(fetched.records[8..12].try_into().unwrap()) as usize + 12;
    assert_eq!(fetched.records[first - 100], 77, "what the file says");
    assert_eq!(fetched.high_watermark, end);
}

#[test]
fn a_folder_that_was_cut_removed_or_made_anew_is_read_from_its_files() {
    let dir = tempfile::tempdir().unwrap();
    let config = keeping(dir.path());
    let end = ended(&config, &["cut", "gone", "anew"]);
    let logs = dir.path().join("logs");
    let name = "00000000000000000000.log";
    let file = fs::File::options()
        .write(true)
        .open(logs.join("cut-0").join(name));
    let file = file.unwrap();
    let whole = file.metadata().unwrap().len();
    file.set_len(whole / end as u64 * 10).unwrap();
    fs::remove_dir_all(logs.join("gone-0")).unwrap();
    copy(&logs, "anew-0", "other");
    fs::remove_dir_all(logs.join("anew-0")).unwrap();
    fs::rename(logs.join("other"), logs.join("anew-0")).unwrap();
    let test = again(&config, &["cut", "gone", "anew"]);
    assert_eq!(read_counted(&test, "cut", 10).0, 0);
    assert_eq!(test.client().list_offset("gone", 0, -1).offset, 0);
    assert_eq!(read_counted(&test, "anew", end).0, 0);
    append(&test, "gone", 0, 5);
    read_all(&test, "gone", 5);
}

#[test]
fn a_directory_that_another_broker_opened_and_closed_is_read_from_its_files() {
    let dir = tempfile::tempdir().unwrap();
    let config = keeping(dir.path());
    let end = ended(&config, &["t"]);
    let left = arenas(dir.path());
    let mark = dir.path().join("logs/.kafka_cleanshutdown");
    let content = fs::read(&mark).unwrap();
    fs::remove_file(&mark).unwrap();
    fs::write(&mark, content).unwrap();
    let mut test = again(&config, &["t"]);
    let notice = test.wait_for_notice("block_cache");
    let said = |words: &str| notice.iter().any(|(_, text)| text.contains(words));
    assert!(said("another broker has used the directory"), "{notice:?}");
    assert_eq!(read_counted(&test, "t", end).0, 0);
    assert!(!arenas(dir.path()).contains(&left[0]) && !is_unclean(dir.path()));
}

#[test]
fn a_directory_that_another_broker_did_not_close_is_recovered_without_the_cache() {
    let dir = tempfile::tempdir().unwrap();
    let config = keeping(dir.path());
    let end = ended(&config, &["t"]);
    fs::remove_file(dir.path().join("logs/.kafka_cleanshutdown")).unwrap();
    let test = again(&config, &["t"]);
    assert_eq!(read_counted(&test, "t", end).0, 0);
    assert!(!is_unclean(dir.path()), "as without an arena");
    let left = test.plane.pasts();
    assert_eq!(
        (left[0].closed_at_epoch, left[0].is_reattached),
        (None, false)
    );
}

#[test]
fn the_cluster_hears_of_an_orderly_end_as_of_any_other() {
    let dir = tempfile::tempdir().unwrap();
    let config = keeping(dir.path());
    ended(&config, &["t"]);
    for _ in 0..2 {
        // The second one is killed before it registers.
        let left = start(&config).plane.pasts();
        assert_eq!(
            (left[0].closed_at_epoch, left[0].is_reattached),
            (Some(-1), false)
        );
    }
}

#[test]
fn kept_arena_from_before_a_reboot_is_ignored() {
    let dir = tempfile::tempdir().unwrap();
    let config = keeping(dir.path());
    let end = ended(&config, &["t"]);
    let text = marker(dir.path());
    let (head, rest) = text.split_once("boot=").unwrap();
    let other = format!("{head}boot={}{}", "0".repeat(32), &rest[32..]);
    fs::write(dir.path().join("logs/.pyrklog-arena"), other).unwrap();
    let test = again(&config, &["t"]);
    assert_eq!(read_counted(&test, "t", end).0, 0);
    assert!(!is_unclean(dir.path()));
}

#[test]
fn an_arena_that_is_gone_or_damaged_is_not_missed() {
    for damage in [
        |path: &Path| fs::remove_file(path),
        |path: &Path| fs::write(path, b"nonsense"),
    ] {
        let dir = tempfile::tempdir().unwrap();
        let config = keeping(dir.path());
        let end = ended(&config, &["t"]);
        let left = arenas(dir.path()).remove(0);
        damage(&left).unwrap();
        let test = again(&config, &["t"]);
        assert_eq!(read_counted(&test, "t", end).0, 0);
        assert!(!left.exists(), "nobody else would remove it");
        assert!(!is_unclean(dir.path()));
    }
}

#[test]
fn a_kept_arena_shrinks_and_grows_with_the_cap() {
    let dir = tempfile::tempdir().unwrap();
    let mut config = keeping(dir.path());
    let mut test = start(&config);
    test.create("t", 1);
    append(&test, "t", 0, 1_000);
    assert!(test.shutdown());
    let kept_bytes = fs::metadata(&arenas(dir.path())[0]).unwrap().blocks() * 512;
    assert!(
        kept_bytes <= 1_000 * BATCH_BYTES as u64 * 115 / 100 + 4 * MIB,
        "{kept_bytes}"
    );
    config.cache.max_bytes = Some(8 * MIB);
    let test = again(&config, &["t"]);
    eventually("giving memory back", || {
        (test.statistic("cache_populated_bytes") <= 8 * MIB).then_some(())
    });
    read_all(&test, "t", 1_000);
    assert!(
        test.statistic("cache_held_bytes") > 2 * MIB,
        "the newest stay"
    );
    assert!(test.shutdown());
    config.cache.max_bytes = Some(256 * MIB);
    let test = again(&config, &["t"]);
    assert_eq!(test.statistic("cache_limit_bytes"), 256 * MIB);
    append(&test, "t", 1_000, 4_000);
    eventually("keeping all of it", || {
        (test.statistic("cache_held_bytes") > 80 * 1_000_000).then_some(())
    });
    read_all(&test, "t", 5_000);
}

#[test]
fn tools_show_and_drop_a_kept_arena() {
    let dir = tempfile::tempdir().unwrap();
    let config = keeping(dir.path());
    let end = ended(&config, &["t"]);
    for _ in 0..2 {
        let rows = arena_tools::list(dir.path()).unwrap();
        let log_dir = dir.path().join("logs").display().to_string();
        assert_eq!((rows[0].state, &rows[0].log_dir), ("kept", &log_dir));
        assert_eq!(rows[0].unwritten_bytes, Some(0));
        assert!(rows[0].held_bytes.unwrap() >= end as u64 * BATCH_BYTES as u64);
        assert!(rows[0].kept_since_ms.unwrap() > 1_600_000_000_000);
    }
    // Looking changes nothing.
    let test = again(&config, &["t"]);
    assert!(is_all_cached(&test, "t", end));
    let other = dir.path().join("other");
    assert!(test.shutdown());
    assert_eq!(
        arena_tools::drop_kept(dir.path(), Some(&other))
            .unwrap()
            .arenas,
        0
    );
    let dropped = arena_tools::drop_kept(dir.path(), None).unwrap();
    assert!(dropped.arenas == 1 && dropped.bytes > 0, "{dropped:?}");
    assert!(arenas(dir.path()).is_empty());
    read_all(&again(&config, &["t"]), "t", end);
}

#[test]
fn an_arena_is_dropped_by_any_name_of_its_directory() {
    for name in ["link", "logs/../logs"] {
        let dir = tempfile::tempdir().unwrap();
        ended(&keeping(dir.path()), &["t"]);
        std::os::unix::fs::symlink(dir.path().join("logs"), dir.path().join("link")).unwrap();
        let dropped = arena_tools::drop_kept(dir.path(), Some(&dir.path().join(name))).unwrap();
        assert_eq!(dropped.arenas, 1, "{name}");
        assert!(arenas(dir.path()).is_empty());
    }
}

#[test]
fn draining_a_directory_that_ended_in_order_leaves_it_clean() {
    let dir = tempfile::tempdir().unwrap();
    let config = keeping(dir.path());
    let end = ended(&config, &["t"]);
    let drained = arena_tools::drain(&dir.path().join("logs")).unwrap();
    assert_eq!((drained.partitions, drained.bytes), (0, 0));
    assert!(arenas(dir.path()).is_empty() && marker(dir.path()).is_empty());
    let test = again(&config, &["t"]);
    assert_eq!(test.plane.pasts()[0].closed_at_epoch, Some(-1));
    read_all(&test, "t", end);
}

fn keep_since(dir: &Path, ms: i64) {
    let path = dir.join("logs/.pyrklog-arena");
    let text = fs::read_to_string(&path).unwrap();
    let lines = text.lines().map(|line| match line.starts_with("kept=") {
        true => format!("kept={ms}\n"),
        false => format!("{line}\n"),
    });
    fs::write(path, lines.collect::<String>()).unwrap();
}

#[test]
fn kept_arena_is_removed_by_another_broker_after_an_hour() {
    let dir = tempfile::tempdir().unwrap();
    let config = keeping(dir.path());
    let end = ended(&config, &["t"]);
    let left = arenas(dir.path()).remove(0);
    let other = config_of(dir.path(), "other");
    drop(start(&other));
    assert!(left.exists(), "it was left just now");
    keep_since(dir.path(), 1_600_000_000_000);
    let test = start(&other);
    eventually("sweeping", || (!left.exists()).then_some(()));
    drop(test);
    read_all(&again(&config, &["t"]), "t", end);
    assert!(!is_unclean(dir.path()));
}

#[test]
fn kept_arena_with_a_future_time_is_removed() {
    let dir = tempfile::tempdir().unwrap();
    let config = keeping(dir.path());
    ended(&config, &["t"]);
    let left = arenas(dir.path()).remove(0);
    keep_since(dir.path(), 5_000_000_000_000);
    let _other = start(&config_of(dir.path(), "other"));
    eventually("sweeping", || (!left.exists()).then_some(()));
}

#[test]
fn old_kept_arena_is_still_used_by_its_own_broker() {
    let dir = tempfile::tempdir().unwrap();
    let config = keeping(dir.path());
    let end = ended(&config, &["t"]);
    keep_since(dir.path(), 1_600_000_000_000);
    let test = again(&config, &["t"]);
    assert!(is_all_cached(&test, "t", end));
}
