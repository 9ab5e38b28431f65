//! After a loss of power, a broker that ends before it is registered, or before all logs are
//! opened. The next one, in the same boot, knows what is left to be done.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use crate::harness::*;
use pyrklog_dataplane::seam::{PlaneConfig, StopSpec};
use pyrklog_log::Left;
use pyrklog_log::disk::RealDisk;
use pyrklog_wire::ErrorCode;

const RECORDS: i64 = 50;
const EPOCH: i64 = 7;
const WHOLE: Left = Left {
    closed_at_epoch: None,
    is_reattached: true,
};
const UNKNOWN: Left = Left {
    closed_at_epoch: None,
    is_reattached: false,
};

fn start(config: &PlaneConfig) -> TestPlane {
    TestPlane::start_with(config.clone(), Arc::new(RealDisk))
}

fn cached(dir: &Path) -> PlaneConfig {
    let mut config = config(vec![dir.join("logs")]);
    config.cache = cache(&config.log_dirs);
    config
}

/// Registers, and waits until that is noted in the directory.
fn register(test: &TestPlane, dir: &Path) {
    test.plane.set_broker_epoch(EPOCH);
    let marker = dir.join("logs/.pyrklog-arena");
    eventually("the registration", || {
        let text = fs::read_to_string(&marker).unwrap();
        (!text.contains("unregistered")).then_some(())
    });
}

fn killed(config: &PlaneConfig, dir: &Path) {
    let mut test = start(config);
    let mut client = test.client();
    for topic in ["t", "u"] {
        test.create(topic, 1);
        for offset in 0..RECORDS {
            let sent = client.produce(topic, 0, &large_batch(3_000));
            assert_eq!(sent, (ErrorCode::NONE, offset));
        }
    }
    register(&test, dir);
    eventually("writing them", || {
        (test.statistic("unwritten_bytes") == 0).then_some(())
    });
}

/// The machine goes down: its memory is gone, and a page of the log of `u` was never written.
fn lose_power(dir: &Path) {
    let marker = dir.join("logs/.pyrklog-arena");
    let text = fs::read_to_string(&marker).unwrap();
    let (head, rest) = text.split_once("boot=").unwrap();
    fs::write(
        &marker,
        format!("{head}boot={}{}", "0".repeat(32), &rest[32..]),
    )
    .unwrap();
    let path = dir.join(format!("logs/u-0/{:020}.log", 0));
    let mut content = fs::read(&path).unwrap_or_default();
    if let Some(page) = content.get_mut(1_000..2_000) {
        page.fill(0);
    }
    if path.exists() {
        fs::write(&path, content).unwrap();
    }
}

fn recovering(dir: &Path) -> PathBuf {
    dir.join("logs/.pyrklog-recovering")
}

fn end_of(test: &TestPlane, topic: &str) -> i64 {
    test.client().list_offset(topic, 0, -1).offset
}

/// `u` was not opened since: it is recovered now, and cut at the missing page.
fn check_recovered(config: &PlaneConfig, dir: &Path) {
    assert!(recovering(dir).exists());
    let mut test = start(config);
    assert_eq!(test.lead("t", 1, &topic_config()), [0]);
    assert_eq!(end_of(&test, "t"), RECORDS);
    assert!(recovering(dir).exists(), "u is left");
    assert_eq!(test.lead("u", 1, &topic_config()), [0]);
    assert_eq!(end_of(&test, "u"), 0);
    assert!(!recovering(dir).exists());
}

/// After an orderly start, logs are trusted. Closing one meanwhile does not sync it; when its
/// partition comes back, unsynced records must not count as synced.
#[test]
fn a_log_that_is_closed_and_opened_again_is_not_taken_for_synced() {
    let dir = tempfile::tempdir().unwrap();
    let config = cached(dir.path());
    let mut test = start(&config);
    test.create("t", 1);
    register(&test, dir.path());
    assert!(test.shutdown());
    let mut test = start(&config);
    test.create("t", 1);
    assert_eq!(
        test.client().produce("t", 0, &large_batch(3_000)),
        (ErrorCode::NONE, 0)
    );
    let stop = StopSpec {
        topic: "t".into(),
        partition: 0,
        delete: false,
    };
    let ticket = test.plane.stop_partitions(vec![stop]).unwrap();
    test.ticket(ticket);
    test.create("t", 1);
    let fields = test.wait_for_notice("log_recovered");
    assert!(fields.contains(&("recovered_segments", "1".to_owned())));
    assert_eq!(end_of(&test, "t"), 1);
    // Another orderly end syncs all.
    register(&test, dir.path());
    assert!(test.shutdown());
    let mut test = start(&config);
    test.create("t", 1);
    assert_eq!(end_of(&test, "t"), 1);
}

#[test]
fn broker_that_ends_unregistered_keeps_the_report_of_a_crash() {
    let dir = tempfile::tempdir().unwrap();
    let config = cached(dir.path());
    killed(&config, dir.path());
    lose_power(dir.path());
    for _ in 0..3 {
        assert_eq!(start(&config).plane.pasts(), [UNKNOWN]);
    }
    register(&start(&config), dir.path());
    assert_eq!(
        start(&config).plane.pasts(),
        [WHOLE],
        "a kill loses nothing"
    );
}

#[test]
fn broker_that_ends_unregistered_keeps_the_report_of_an_orderly_end() {
    let dir = tempfile::tempdir().unwrap();
    let config = cached(dir.path());
    let test = start(&config);
    register(&test, dir.path());
    assert!(test.shutdown());
    let orderly = Left {
        closed_at_epoch: Some(EPOCH),
        is_reattached: false,
    };
    for _ in 0..3 {
        assert_eq!(start(&config).plane.pasts(), [orderly]);
    }
    register(&start(&config), dir.path());
    assert_eq!(start(&config).plane.pasts(), [WHOLE]);
}

#[test]
fn log_left_unopened_before_a_kill_is_recovered_later() {
    let dir = tempfile::tempdir().unwrap();
    let config = cached(dir.path());
    killed(&config, dir.path());
    lose_power(dir.path());
    let mut test = start(&config);
    assert_eq!(test.lead("t", 1, &topic_config()), [0]);
    register(&test, dir.path());
    drop(test);
    check_recovered(&config, dir.path());
}

#[test]
fn log_left_unopened_before_an_orderly_end_is_recovered_later() {
    let dir = tempfile::tempdir().unwrap();
    let mut config = cached(dir.path());
    killed(&config, dir.path());
    lose_power(dir.path());
    for is_cached in [true, false] {
        if !is_cached {
            config.cache.dir = None;
        }
        let mut test = start(&config);
        assert_eq!(test.lead("t", 1, &topic_config()), [0]);
        assert!(test.shutdown());
    }
    check_recovered(&config, dir.path());
}

#[test]
fn deleted_log_needs_no_recovery() {
    let dir = tempfile::tempdir().unwrap();
    let config = cached(dir.path());
    killed(&config, dir.path());
    lose_power(dir.path());
    let mut test = start(&config);
    assert_eq!(test.lead("u", 1, &topic_config()), [0]);
    assert!(recovering(dir.path()).exists());
    assert_eq!(test.lead("t", 1, &topic_config()), [0]);
    assert!(!recovering(dir.path()).exists());
    drop(test);
    lose_power(dir.path());
    let mut test = start(&config);
    assert_eq!(test.lead("t", 1, &topic_config()), [0]);
    assert_eq!(test.delete("u", 1), [0]);
    assert!(!recovering(dir.path()).exists());
}

#[test]
fn a_kill_without_a_loss_of_power_leaves_nothing_to_recover() {
    let dir = tempfile::tempdir().unwrap();
    let config = cached(dir.path());
    killed(&config, dir.path());
    let mut test = start(&config);
    assert!(!recovering(dir.path()).exists());
    assert_eq!(test.lead("u", 1, &topic_config()), [0]);
    assert_eq!(end_of(&test, "u"), RECORDS);
}

fn killed_behind(dir: &Path) -> PlaneConfig {
    let config = cached(dir);
    let mut behind = config.clone();
    behind.cache.flush_ms = 3_600_000;
    behind.cache.flush_bytes = usize::MAX;
    let mut test = start(&behind);
    let mut client = test.client();
    for topic in ["t", "u"] {
        test.create(topic, 1);
        let before = test.statistic("unwritten_bytes");
        eventually("records that the cache alone has", || {
            let sent = client.produce(topic, 0, &large_batch(3_000));
            assert_eq!(sent.0, ErrorCode::NONE);
            (test.statistic("unwritten_bytes") > before + 30_000).then_some(())
        });
    }
    register(&test, dir);
    config
}

fn is_marked_clean(dir: &Path) -> bool {
    dir.join("logs/.kafka_cleanshutdown").exists()
}

/// The machine goes down, and with it the arena's records: the next start says so.
fn check_loss_is_told(config: &PlaneConfig, dir: &Path) {
    lose_power(dir);
    let mut test = start(config);
    test.wait_for_notice("block_cache");
    assert_eq!(test.plane.pasts(), [UNKNOWN]);
    let unclean = fs::read_to_string(dir.join("logs/.pyrklog-unclean")).unwrap();
    assert!(
        unclean.contains("the machine crashed or was rebooted"),
        "{unclean}"
    );
}

#[test]
fn directory_is_not_clean_while_the_cache_alone_has_records_of_an_unopened_log() {
    let dir = tempfile::tempdir().unwrap();
    let config = killed_behind(dir.path());
    for _ in 0..2 {
        let mut test = start(&config);
        assert_eq!(test.plane.pasts(), [WHOLE]);
        assert_eq!(test.lead("t", 1, &topic_config()), [0]);
        assert!(!test.shutdown(), "u is not written");
        assert!(!is_marked_clean(dir.path()));
    }
    check_loss_is_told(&config, dir.path());
}

#[test]
fn directory_is_not_clean_while_the_cache_alone_has_records_of_an_unopenable_log() {
    let dir = tempfile::tempdir().unwrap();
    let config = killed_behind(dir.path());
    let path = dir.path().join(format!("logs/u-0/{:020}.log", 0));
    let content = fs::read(&path).unwrap_or_default();
    fs::write(&path, [&content[..], &[0; 100_000]].concat()).unwrap();
    let mut test = start(&config);
    let storage = ErrorCode::KAFKA_STORAGE_ERROR.0;
    assert_eq!(test.lead("t", 1, &topic_config()), [0]);
    assert_eq!(test.lead("u", 1, &topic_config()), [storage]);
    assert!(!test.shutdown(), "u is not written");
    assert!(!is_marked_clean(dir.path()));
    check_loss_is_told(&config, dir.path());
}

#[test]
fn directory_is_clean_after_all_logs_are_written() {
    let dir = tempfile::tempdir().unwrap();
    let config = killed_behind(dir.path());
    let mut test = start(&config);
    assert_eq!(test.lead("u", 1, &topic_config()), [0]);
    let end = end_of(&test, "u");
    assert!(!test.shutdown(), "t is not written");
    let mut test = start(&config);
    for topic in ["t", "u"] {
        assert_eq!(test.lead(topic, 1, &topic_config()), [0]);
    }
    assert!(test.shutdown());
    assert!(is_marked_clean(dir.path()));
    let mut test = start(&config);
    assert_eq!(test.lead("u", 1, &topic_config()), [0]);
    assert_eq!(end_of(&test, "u"), end);
}

/// All is written, but `u` was not closed by the killed life, nor by the next, which never opened
/// it: its index files and snapshots may lack what its `.log` has.
#[test]
fn orderly_end_does_not_clean_a_log_unopened_since_a_kill() {
    let dir = tempfile::tempdir().unwrap();
    let config = cached(dir.path());
    killed(&config, dir.path());
    for _ in 0..2 {
        let mut test = start(&config);
        assert_eq!(test.lead("t", 1, &topic_config()), [0]);
        assert!(test.shutdown());
        let left = fs::read_to_string(recovering(dir.path())).unwrap();
        assert_eq!(left, "u-0\n");
    }
    let mut test = start(&config);
    assert_eq!(test.lead("t", 1, &topic_config()), [0]);
    assert_eq!(test.lead("u", 1, &topic_config()), [0]);
    let recovered = test.wait_for_notice("log_recovered");
    assert!(
        recovered.contains(&("topic", "u".to_owned())),
        "{recovered:?}"
    );
    assert_eq!(end_of(&test, "u"), RECORDS);
    assert!(!recovering(dir.path()).exists());
    assert!(test.shutdown());
    assert!(!recovering(dir.path()).exists());
}
