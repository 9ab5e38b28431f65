//! Moves of replicas between log directories.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use crate::harness::moving::*;
use crate::harness::*;
use pyrklog_dataplane::seam::*;
use pyrklog_dataplane::{DataPlane, OpenError};
use pyrklog_log::LogConfig;
use pyrklog_wire::ErrorCode;
use pyrklog_wire::builder::BatchBuilder;

#[test]
fn a_replica_moves_with_all_its_records() {
    let dir = tempfile::tempdir().unwrap();
    let (a, b) = (dir.path().join("a"), dir.path().join("b"));
    for config in [two(dir.path()), two_cached(dir.path())] {
        let mut test = start(&config);
        test.create("t", 1);
        let before = read(&test).len();
        append(&test, 100);
        let from = place(dir.path());
        let (source, to) = match from {
            "a" => (&a, &b),
            _ => (&b, &a),
        };
        assert_eq!(alter(&test, "t", 0, to), 0);
        let told = test.wait_for_notice("replica_moved");
        assert!(told.contains(&("to", to.display().to_string())), "{told:?}");
        append(&test, 10);
        let found = read(&test);
        let end = (before + 110) as i64;
        assert_eq!(offsets(&found), (0..end).collect::<Vec<_>>());
        let dirs = described(&mut test);
        let here = dirs.iter().find(|(path, _)| path == to).unwrap();
        assert_eq!(here.1.len(), 1);
        assert!(!here.1[0].4, "it is the log");
        eventually("its removal", || (!is_in(source, "t-0")).then_some(()));
        assert!(test.shutdown());
        assert!(!source.join(".pyrklog-leaving").exists());
        let mut test = start(&config);
        test.create("t", 1);
        assert_eq!(read(&test), found);
        append(&test, 1);
        assert!(test.shutdown());
    }
}

#[test]
fn requests_are_answered_as_kafka_does() {
    let dir = tempfile::tempdir().unwrap();
    let mut test = start(&two(dir.path()));
    test.create("t", 1);
    let a = dir.path().join("a");
    let code = |error: ErrorCode| error.0;
    assert_eq!(
        alter(&test, "t", 0, Path::new("/nowhere")),
        code(ErrorCode::LOG_DIR_NOT_FOUND)
    );
    assert_eq!(
        alter(&test, "t", 0, Path::new("")),
        code(ErrorCode::LOG_DIR_NOT_FOUND)
    );
    for (topic, index) in [("t", 1), ("t", -1), ("none", 0)] {
        assert_eq!(
            alter(&test, topic, index, &a),
            code(ErrorCode::UNKNOWN_TOPIC_OR_PARTITION)
        );
    }
    test.describe_topic_led_by("elsewhere", 1, &topic_config(), 2);
    assert_eq!(
        alter(&test, "elsewhere", 0, &a),
        code(ErrorCode::REPLICA_NOT_AVAILABLE)
    );
    let long = "x".repeat(214);
    assert_eq!(
        alter(&test, &long, 0, &a),
        code(ErrorCode::INVALID_TOPIC_EXCEPTION)
    );
    assert_eq!(alter(&test, "t", 0, &dir.path().join(place(dir.path()))), 0);
    assert!(test.shutdown());
}

#[test]
fn a_partition_begins_in_the_directory_that_was_asked_for() {
    let dir = tempfile::tempdir().unwrap();
    let b = dir.path().join("b");
    let mut test = start(&two(dir.path()));
    test.describe_topic("t", 4, &topic_config());
    for index in 0..4 {
        let refused = ErrorCode::REPLICA_NOT_AVAILABLE.0;
        assert_eq!(alter(&test, "t", index, &b), refused);
    }
    test.create("t", 4);
    assert_eq!(folders(&b), ["t-0", "t-1", "t-2", "t-3"]);
    assert!(test.shutdown());
}

/// Its log may be in the directory that cannot be read.
#[test]
fn a_replica_that_was_not_found_in_a_readable_directory_does_not_move() {
    let dir = tempfile::tempdir().unwrap();
    let config = two(dir.path());
    let mut test = start(&config);
    test.create("t", 1);
    assert!(test.shutdown());
    let (here, there) = match place(dir.path()) {
        "a" => (dir.path().join("a"), dir.path().join("b")),
        _ => (dir.path().join("b"), dir.path().join("a")),
    };
    fs::write(here.join(".pyrklog-leaving"), b"damaged").unwrap();
    let mut test = start(&config);
    test.describe_topic("t", 1, &topic_config());
    let offline = ErrorCode::KAFKA_STORAGE_ERROR.0;
    assert_eq!(alter(&test, "t", 0, &there), offline);
    assert_eq!(
        test.become_leaders(vec![TestPlane::leader_spec("t", 0, 1)]),
        [offline]
    );
    assert_eq!(alter(&test, "t", 0, &there), offline);
    assert!(!test.shutdown());
}

#[test]
fn two_logs_of_a_partition_are_refused() {
    let dir = tempfile::tempdir().unwrap();
    let config = two(dir.path());
    let mut test = start(&config);
    test.create("t", 1);
    append(&test, 1);
    assert!(test.shutdown());
    let (here, there) = match place(dir.path()) {
        "a" => ("a", "b"),
        _ => ("b", "a"),
    };
    fs::create_dir(dir.path().join(there).join("t-0")).unwrap();
    let refused = DataPlane::open(config.clone()).unwrap_err();
    assert!(matches!(refused, OpenError::Foreign(_)), "{refused:?}");
    let text = refused.to_string();
    assert!(
        text.contains(&dir.path().join("a").display().to_string()),
        "{text}"
    );
    assert!(dir.path().join(here).join(".kafka_cleanshutdown").exists());
    fs::remove_dir(dir.path().join(there).join("t-0")).unwrap();
    let mut test = start(&config);
    test.create("t", 1);
    assert_eq!(read(&test).len(), 1);
    assert!(test.shutdown());
}

/// A directory that throttles all moves to nothing.
fn standing(dir: &Path) -> (TestPlane, PathBuf) {
    let mut test = start(&two(dir));
    test.plane.set_move_rate(Some(0));
    test.create("t", 1);
    append(&test, 20);
    let to = match place(dir) {
        "a" => dir.join("b"),
        _ => dir.join("a"),
    };
    assert_eq!(alter(&test, "t", 0, &to), 0);
    (test, to)
}

#[test]
fn a_throttled_move_is_described_with_its_lag_and_goes_on_when_the_rate_changes() {
    let dir = tempfile::tempdir().unwrap();
    let (mut test, to) = standing(dir.path());
    let dirs = described(&mut test);
    let there = dirs.iter().find(|(path, _)| *path == to).unwrap();
    assert_eq!(there.1, [("t".to_owned(), 0, 0, 20, true)]);
    test.plane.set_move_rate(None);
    test.wait_for_notice("replica_moved");
    assert_eq!(read(&test).len(), 20);
    assert!(test.shutdown());
}

#[test]
fn a_move_back_ends_it_and_removes_the_copy() {
    let dir = tempfile::tempdir().unwrap();
    let (test, to) = standing(dir.path());
    eventually("its folder", || {
        folders(&to)
            .iter()
            .any(|name| name.ends_with("-future"))
            .then_some(())
    });
    assert_eq!(alter(&test, "t", 0, &dir.path().join(place(dir.path()))), 0);
    eventually("its end", || folders(&to).is_empty().then_some(()));
    append(&test, 1);
    assert_eq!(read(&test).len(), 21);
    assert!(test.shutdown());
}

#[test]
fn a_deleted_topic_leaves_no_copy() {
    let dir = tempfile::tempdir().unwrap();
    let (mut test, _) = standing(dir.path());
    assert_eq!(test.delete("t", 1), [0]);
    eventually("its end", || {
        let (a, b) = (
            folders(&dir.path().join("a")),
            folders(&dir.path().join("b")),
        );
        (a.is_empty() && b.is_empty()).then_some(())
    });
    test.topic_id = Some([0x77; 16]);
    test.create("t", 1);
    append(&test, 1);
    assert_eq!(read(&test).len(), 1);
    assert!(test.shutdown());
}

#[test]
fn a_stopped_replica_goes_on_moving_when_it_is_back() {
    let dir = tempfile::tempdir().unwrap();
    let (mut test, to) = standing(dir.path());
    eventually("its folder", || {
        folders(&to)
            .iter()
            .any(|name| name.ends_with("-future"))
            .then_some(())
    });
    let stop = StopSpec {
        topic: "t".into(),
        partition: 0,
        delete: false,
    };
    let ticket = test.plane.stop_partitions(vec![stop]).unwrap();
    test.ticket(ticket);
    test.plane.set_move_rate(None);
    assert!(folders(&to).iter().any(|name| name.ends_with("-future")));
    assert_eq!(
        test.become_leaders(vec![TestPlane::leader_spec("t", 0, 1)]),
        [0]
    );
    test.wait_for_notice("replica_moved");
    assert_eq!(read(&test).len(), 20);
    assert!(test.shutdown());
}

#[test]
fn a_move_goes_on_after_an_orderly_end() {
    let dir = tempfile::tempdir().unwrap();
    let (test, to) = standing(dir.path());
    assert!(test.shutdown());
    let mut test = start(&two(dir.path()));
    test.create("t", 1);
    test.wait_for_notice("replica_moved");
    assert!(is_in(&to, "t-0"));
    assert_eq!(read(&test).len(), 20);
    assert!(test.shutdown());
}

#[test]
fn deleted_records_stay_deleted() {
    let dir = tempfile::tempdir().unwrap();
    let mut test = start(&two(dir.path()));
    test.create("t", 1);
    let mut client = test.client();
    // Records are deleted up to a place within a batch.
    let values: Vec<&[u8]> = vec![b"one"; 10];
    for _ in 0..10 {
        let (error, _) = client.produce("t", 0, &batch(&values));
        assert_eq!(error, ErrorCode::NONE);
    }
    let ticket = test
        .plane
        .delete_records(vec![("t".into(), 0, 35)])
        .unwrap();
    test.ticket(ticket);
    let to = match place(dir.path()) {
        "a" => dir.path().join("b"),
        _ => dir.path().join("a"),
    };
    assert_eq!(alter(&test, "t", 0, &to), 0);
    test.wait_for_notice("replica_moved");
    for round in 0..2 {
        let below = test.client().fetch_one("t", 0, 34);
        assert_eq!(below.error, ErrorCode::OFFSET_OUT_OF_RANGE);
        let first = test.client().fetch_one("t", 0, 35);
        assert_eq!((first.error, first.log_start_offset), (ErrorCode::NONE, 35));
        assert_eq!(first.batches(), [30, 40, 50, 60, 70, 80, 90]);
        if round == 0 {
            assert!(test.shutdown());
            test = start(&two(dir.path()));
            test.create("t", 1);
        }
    }
    assert!(test.shutdown());
}

#[test]
fn a_replica_may_move_back_and_forth_under_load() {
    let dir = tempfile::tempdir().unwrap();
    let mut test = start(&two_cached(dir.path()));
    test.create("t", 1);
    append(&test, 30);
    let stop = AtomicBool::new(false);
    let port = test.port;
    let acknowledged = std::thread::scope(|scope| {
        let producing = scope.spawn(|| produce_until(port, &stop));
        let mut to = match place(dir.path()) {
            "a" => "b",
            _ => "a",
        };
        for _ in 0..12 {
            assert_eq!(alter(&test, "t", 0, &dir.path().join(to)), 0);
            test.wait_for_notice("replica_moved");
            to = match to {
                "a" => "b",
                _ => "a",
            };
        }
        stop.store(true, Ordering::Relaxed);
        producing.join().unwrap()
    });
    check_acknowledged(&test, &acknowledged);
    drop(test);
    let mut test = start(&two_cached(dir.path()));
    test.create("t", 1);
    check_acknowledged(&test, &acknowledged);
    assert!(test.shutdown());
}

/// Five requests on their way at a time, as a producer has them; none may stay unanswered.
#[test]
fn no_request_stays_unanswered() {
    let dir = tempfile::tempdir().unwrap();
    let mut test = start(&two_cached(dir.path()));
    test.create("t", 1);
    let stop = AtomicBool::new(false);
    let port = test.port;
    std::thread::scope(|scope| {
        let producing = scope.spawn(|| {
            let mut client = Client::connect(port);
            let body = produce_body(7, -1, 30_000, "t", &[(0, Some(&batch(&[b"value"])))]);
            let mut waiting = 0;
            let mut answered = 0;
            while !stop.load(Ordering::Relaxed) || waiting > 0 {
                while waiting < 5 && !stop.load(Ordering::Relaxed) {
                    client.send(0, 7, &body);
                    waiting += 1;
                }
                let (_, answer) = client.receive(0, 7);
                let (error, _) = produced(&answer, 7);
                assert!(matches!(
                    error,
                    ErrorCode::NONE | ErrorCode::NOT_LEADER_OR_FOLLOWER
                ));
                waiting -= 1;
                answered += 1;
            }
            answered
        });
        let mut to = match place(dir.path()) {
            "a" => "b",
            _ => "a",
        };
        for _ in 0..30 {
            assert_eq!(alter(&test, "t", 0, &dir.path().join(to)), 0);
            test.wait_for_notice("replica_moved");
            to = match to {
                "a" => "b",
                _ => "a",
            };
        }
        stop.store(true, Ordering::Relaxed);
        let ended = within(Duration::from_secs(10), || {
            producing.is_finished().then_some(())
        });
        if ended.is_none() {
            let names = [
                "purgatory_produce",
                "connections_muted_for_room",
                "unwritten_bytes",
            ];
            panic!("{:?}", names.map(|name| (name, test.statistic(name))));
        }
        assert!(producing.join().unwrap() > 100);
    });
    assert!(test.shutdown());
}

/// Brokers 1 and 2; broker 1 has a second log directory.
fn pair() -> (Pair, PathBuf) {
    let pair = Pair::start_with(topic_config(), |config| {
        if config.node_id == 1 {
            let second = config.log_dirs[0].with_file_name("second");
            config.log_dirs.push(second);
        }
    });
    let second = pair.dir.path().join("second");
    (pair, second)
}

/// The copy has records that its log loses, since the next leader never had them.
#[test]
fn a_copy_is_cut_with_its_log() {
    let (mut pair, second) = pair();
    pair.lead(1, 0, &BOTH);
    pair.follow(2, 1, 0);
    pair.produce(1, b"on both");
    pair.wait_visible(1, 1);
    // Broker 2 leads while 1 does not know it.
    pair.lead(2, 1, &[2]);
    let large = vec![b'x'; 200_000];
    for _ in 0..3 {
        pair.produce(1, &large);
    }
    let to = match is_in(&second, "t-0") {
        true => second.with_file_name("logs1"),
        false => second.clone(),
    };
    // One piece is copied, then nothing for a long time.
    pair.plane(1).plane.set_move_rate(Some(1));
    assert_eq!(alter(pair.plane(1), "t", 0, &to), 0);
    eventually("the first piece", || {
        let dirs = described(pair.plane(1));
        let copies = dirs.iter().flat_map(|(_, partitions)| partitions);
        let mut sizes = copies.filter(|one| one.4).map(|one| one.2);
        sizes.any(|size| size > 600_000).then_some(())
    });
    pair.produce(2, b"kept");
    pair.follow(1, 2, 1);
    pair.plane(1).wait_for_notice("replica_truncated");
    pair.plane(1).plane.set_move_rate(None);
    pair.plane(1).wait_for_notice("replica_moved");
    for _ in 0..3 {
        pair.produce(2, b"behind it");
    }
    pair.wait_copied();
    let kept = pair.values(2, 2);
    assert_eq!(pair.values(1, 3), kept);
    assert!(is_in(&to, "t-0"));
}

/// A follower moves back and forth, and leads afterwards.
#[test]
fn a_follower_moves_while_it_follows() {
    let (mut pair, second) = pair();
    pair.lead(2, 0, &BOTH);
    pair.follow(1, 2, 0);
    let first = second.with_file_name("logs1");
    for round in 0..6_u8 {
        for number in 0..20 {
            pair.produce(2, &[round, number]);
        }
        let to = match is_in(&first, "t-0") {
            true => &second,
            false => &first,
        };
        assert_eq!(alter(pair.plane(1), "t", 0, to), 0);
        pair.plane(1).wait_for_notice("replica_moved");
    }
    pair.wait_visible(2, 120);
    pair.wait_copied();
    let kept = pair.values(2, 1);
    assert_eq!(pair.values(1, 2), kept);
}

/// Produces so many rounds of five keys; returns the last value.
fn append_keys(test: &TestPlane, rounds: std::ops::Range<u32>) -> Vec<u8> {
    let mut client = test.client();
    let mut value = Vec::new();
    for round in rounds {
        value = vec![b'v'; 200];
        value.extend(round.to_be_bytes());
        for key in [&b"a"[..], b"b", b"c", b"d", b"e"] {
            let mut builder = BatchBuilder::new();
            builder.append(1_700_000_000_000, Some(key), Some(&value));
            let (error, _) = client.produce("t", 0, &builder.build());
            assert_eq!(error, ErrorCode::NONE);
        }
    }
    value
}

/// How far a log is compacted moves with it.
#[test]
fn a_compacted_log_stays_compacted() {
    let dir = tempfile::tempdir().unwrap();
    let mut config = two(dir.path());
    config.cleaner.backoff_ms = 20;
    let compacted = TopicConfig {
        log: LogConfig {
            cleanup_compact: true,
            cleanup_delete: false,
            segment_bytes: 16_384,
            min_cleanable_dirty_ratio: 0.01,
            ..LogConfig::default()
        },
        ..topic_config()
    };
    let mut test = start(&config);
    assert_eq!(test.lead("t", 1, &compacted), [0]);
    append_keys(&test, 0..60);
    test.wait_for_notice("log_cleaned");
    let to = match place(dir.path()) {
        "a" => dir.path().join("b"),
        _ => dir.path().join("a"),
    };
    assert_eq!(alter(&test, "t", 0, &to), 0);
    test.wait_for_notice("replica_moved");
    let row = fs::read_to_string(to.join("cleaner-offset-checkpoint")).unwrap();
    assert!(row.contains("\nt 0 "), "{row}");
    let last = append_keys(&test, 60..120);
    eventually("the next compaction", || {
        let count = read(&test).len();
        (count < 200).then_some(())
    });
    for _ in 0..2 {
        let found = read(&test);
        let newest = &found[found.len() - 5..];
        assert!(newest.iter().all(|(_, bytes)| bytes.ends_with(&{
            let mut end = last.clone();
            end.push(0);
            end
        })));
        assert!(test.shutdown());
        test = start(&config);
        assert_eq!(test.lead("t", 1, &compacted), [0]);
    }
    assert!(test.shutdown());
}
