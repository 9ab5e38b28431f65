//! Slow disks, failing disks, orderly ends and kills.

mod harness;

use std::path::{Path, PathBuf};
use std::sync::Arc;

use harness::*;
use pyrklog_dataplane::OpenError;
use pyrklog_dataplane::seam::{Event, ReadPath, StopSpec, TicketOutcome};
use pyrklog_dataplane::testing::fix_kept_pages_max_bytes;
use pyrklog_log::disk::RealDisk;
use pyrklog_log::disk::testing::{Fault, FaultyDisk, Operation};
use pyrklog_wire::ErrorCode;
use pyrklog_wire::api::key;

#[test]
fn acknowledgements_wait_for_the_disk_and_time_out() {
    let dir = tempfile::tempdir().unwrap();
    let disk = SlowDisk::default();
    let mut test = TestPlane::start_with(
        config(vec![dir.path().join("logs")]),
        Arc::new(disk.clone()),
    );
    test.create("t", 1);
    let mut client = test.client();
    disk.freeze();
    let record = batch(&[b"v"]);
    let body = produce_body(PRODUCE_VERSION, -1, 10, "t", &[(0, Some(&record))]);
    let answer = client.call(key::PRODUCE, PRODUCE_VERSION, &body);
    assert_eq!(
        produced(&answer, PRODUCE_VERSION),
        (ErrorCode::REQUEST_TIMED_OUT, -1)
    );
    assert_eq!(client.fetch_one("t", 0, 0).high_watermark, 0);
    disk.thaw();
    eventually("the write", || {
        (client.fetch_one("t", 0, 0).high_watermark == 1).then_some(())
    });
}

#[test]
fn a_directory_with_too_much_unwritten_holds_back_its_producers_only() {
    let dir = tempfile::tempdir().unwrap();
    let disk = SlowDisk::default();
    let mut config = config(vec![dir.path().join("logs")]);
    config.unwritten_max_bytes = Some(200_000);
    let mut test = TestPlane::start_with(config, Arc::new(disk.clone()));
    test.create("t", 1);
    disk.freeze();
    let mut producer = test.client();
    let record = large_batch(50_000);
    let body = produce_body(PRODUCE_VERSION, 1, 30_000, "t", &[(0, Some(&record))]);
    let mut sender = producer.stream.try_clone().unwrap();
    let frames: Vec<Vec<u8>> = (0..20)
        .map(|_| producer.frame(key::PRODUCE, PRODUCE_VERSION, &body))
        .collect();
    let sending = std::thread::spawn(move || {
        for frame in frames {
            std::io::Write::write_all(&mut sender, &frame).unwrap();
        }
    });
    eventually("a muted connection", || {
        (test.statistic("connections_muted_for_room") == 1).then_some(())
    });
    let unwritten = test.statistic("unwritten_bytes");
    assert!((200_000..300_000).contains(&unwritten), "{unwritten}");
    let mut other = test.client();
    assert_eq!(other.fetch_one("t", 0, 0).error, ErrorCode::NONE);
    disk.thaw();
    sending.join().unwrap();
    for offset in 0..20 {
        let (_, answer) = producer.receive(key::PRODUCE, PRODUCE_VERSION);
        assert_eq!(
            produced(&answer, PRODUCE_VERSION),
            (ErrorCode::NONE, offset)
        );
    }
    assert_eq!(test.statistic("unwritten_bytes"), 0);
}

/// A stored batch: base offset and leader epoch (0 here) filled in.
fn stored(record: &[u8], base_offset: i64) -> Vec<u8> {
    let mut stored = record.to_vec();
    stored[..8].copy_from_slice(&base_offset.to_be_bytes());
    stored[12..16].copy_from_slice(&0i32.to_be_bytes());
    stored
}

#[test]
fn cold_reads_go_to_the_readers_by_either_path() {
    // No memory for old data: reads go through windows.
    fix_kept_pages_max_bytes(0);
    for read_path in [ReadPath::Auto, ReadPath::Copy, ReadPath::Sendfile] {
        let dir = tempfile::tempdir().unwrap();
        let disk = SlowDisk::default();
        let mut config = config(vec![dir.path().join("logs")]);
        config.fetch_read_path = read_path;
        let mut test = TestPlane::start_with(config, Arc::new(disk.clone()));
        test.create("t", 2);
        let mut client = test.client();
        let records: Vec<Vec<u8>> = [100, 70_000, 3_000, 900_000].map(large_batch).to_vec();
        for record in &records {
            client.produce("t", 0, record);
        }
        disk.set_cold(true);
        for (offset, record) in records.iter().enumerate() {
            let fetched = client.fetch_one("t", 0, offset as i64);
            assert_eq!(
                fetched.records[61..record.len()],
                record[61..],
                "{read_path:?} {offset}"
            );
        }
        let mut ask = Ask::one("t", 0, 0).wait(5_000, 1);
        ask.partitions.push(("t".into(), partition(1, 0)));
        let all = client.fetch(&ask);
        assert_eq!(all.partitions[0].batches(), [0, 1, 2, 3]);
        // Too little for sendfile, and not resident: for a reader. Bytes read just now lie in a
        // window, unless the option says sendfile.
        assert!(disk.blocking_reads() > 0, "{read_path:?}");
        let mut little = Ask::one("t", 0, 0);
        little.max_bytes = 1;
        let before = disk.blocking_reads();
        assert_eq!(
            client.fetch(&little).partitions[0].records,
            stored(&records[0], 0)
        );
        if read_path != ReadPath::Sendfile {
            assert_eq!(disk.blocking_reads(), before, "{read_path:?}");
        }
        assert_eq!(client.list_offset("t", 0, 1_700_000_000_000).offset, 0);
        assert_eq!(client.list_offset("t", 0, 1_700_000_000_001).offset, -1);
    }
}

/// Two directories, a partition in each, the disk failing under the first. Returns the plane and
/// (partition in the failing directory, partition in the other).
fn one_of_two_fails(dirs: &[PathBuf; 2], disk: &FaultyDisk) -> (TestPlane, i32, i32) {
    let mut test = TestPlane::start_with(config(dirs.to_vec()), Arc::new(disk.clone()));
    test.create("t", 2);
    let mut client = test.client();
    for index in 0..2 {
        let produced = client.produce("t", index, &batch(&[b"v"]));
        assert_eq!(produced, (ErrorCode::NONE, 0));
    }
    disk.fail(
        Operation::Write,
        "one/t-",
        0,
        usize::MAX,
        Fault::InputOutput,
    );
    let broken = i32::from(!dirs[0].join("t-0").exists());
    (test, broken, 1 - broken)
}

fn two_dirs(dir: &Path) -> [PathBuf; 2] {
    [dir.join("one"), dir.join("two")]
}

#[test]
fn a_failed_write_takes_its_directory_offline_and_others_serve() {
    let dir = tempfile::tempdir().unwrap();
    let disk = FaultyDisk::new(Arc::new(RealDisk));
    let dirs = two_dirs(dir.path());
    let (mut test, broken, served) = one_of_two_fails(&dirs, &disk);
    let waiting = Ask::one("t", broken, 1).wait(60_000, 1);
    let mut consumer = test.client();
    consumer.send(key::FETCH, waiting.version, &waiting.encode());
    eventually("a waiting fetch", || {
        (test.statistic("purgatory_fetch") == 1).then_some(())
    });
    let mut client = test.client();
    let record = batch(&[b"v"]);
    assert_eq!(
        client.produce("t", broken, &record).0,
        ErrorCode::KAFKA_STORAGE_ERROR
    );
    let event = test.wait_for("the failure", |event| {
        matches!(event, Event::LogDirFailed { .. })
    });
    let Event::LogDirFailed {
        path,
        partitions,
        reason,
    } = event
    else {
        panic!()
    };
    assert_eq!(
        (path, partitions),
        (dirs[0].clone(), vec![("t".to_owned(), broken)])
    );
    assert!(reason.contains("t-"), "{reason}");
    let (_, answer) = consumer.receive(key::FETCH, waiting.version);
    assert_eq!(
        fetched(&answer, &waiting).partitions[0].error,
        ErrorCode::KAFKA_STORAGE_ERROR
    );
    // The disk works again, but the directory is not served until a restart.
    disk.heal();
    assert_eq!(
        client.produce("t", broken, &record).0,
        ErrorCode::KAFKA_STORAGE_ERROR
    );
    assert_eq!(
        client.fetch_one("t", broken, 0).error,
        ErrorCode::KAFKA_STORAGE_ERROR
    );
    for (version, told) in [
        (5, ErrorCode::NOT_LEADER_OR_FOLLOWER),
        (6, ErrorCode::KAFKA_STORAGE_ERROR),
    ] {
        let reply = client.fetch(&Ask::one("t", broken, 0).version(version));
        assert_eq!(reply.partitions[0].error, told, "{version}");
    }
    let listed = client.list_offset("t", broken, -1);
    assert_eq!(listed.error_code, ErrorCode::KAFKA_STORAGE_ERROR);
    assert_eq!(client.produce("t", served, &record), (ErrorCode::NONE, 1));
}

#[test]
fn a_failed_directory_is_told_and_not_marked_clean() {
    let dir = tempfile::tempdir().unwrap();
    let disk = FaultyDisk::new(Arc::new(RealDisk));
    let dirs = two_dirs(dir.path());
    let (mut test, broken, _) = one_of_two_fails(&dirs, &disk);
    let failed = test.client().produce("t", broken, &batch(&[b"v"]));
    assert_eq!(failed.0, ErrorCode::KAFKA_STORAGE_ERROR);
    let ticket = test.plane.describe_log_dirs().unwrap();
    let TicketOutcome::LogDirs(described) = test.ticket(ticket) else {
        panic!()
    };
    assert_eq!(
        described
            .iter()
            .map(|dir| dir.error_code)
            .collect::<Vec<_>>(),
        [56, 0]
    );
    assert_eq!(described[1].partitions.len(), 1);
    // A partition that may lie in the failed directory is not created elsewhere.
    test.describe_topic("u", 1, &topic_config());
    let mut spec = TestPlane::leader_spec("u", 0, 0);
    assert_eq!(test.become_leaders(vec![spec.clone()]), [56]);
    spec.is_new = true;
    assert_eq!(test.become_leaders(vec![spec]), [0]);
    assert!(dirs[1].join("u-0").exists());
    assert!(!test.shutdown(), "a failed directory is not clean");
    assert!(!dirs[0].join(".kafka_cleanshutdown").exists());
    assert!(dirs[1].join(".kafka_cleanshutdown").exists());
}

#[test]
fn an_orderly_end_answers_everyone_and_leaves_nothing_to_recover() {
    let dir = tempfile::tempdir().unwrap();
    let mut test = TestPlane::start(dir.path());
    test.create("t", 3);
    let mut client = test.client();
    for round in 0..30 {
        client.produce("t", round % 3, &batch(&[b"value"]));
    }
    let mut waiting = test.client();
    let ask = Ask::one("t", 0, 10).wait(600_000, 1);
    waiting.send(key::FETCH, ask.version, &ask.encode());
    eventually("a waiting fetch", || {
        (test.statistic("purgatory_fetch") == 1).then_some(())
    });
    // Waits for neither the fetch's time nor the grace. It may wait for the disk: the end syncs
    // other processes' writes, too.
    let ticket = test.plane.shutdown(600_000);
    assert!(matches!(test.ticket(ticket), TicketOutcome::Shutdown(true)));
    drop(test);
    let (_, answer) = waiting.receive(key::FETCH, ask.version);
    assert_eq!(fetched(&answer, &ask).partitions[0].error, ErrorCode::NONE);
    assert!(waiting.is_closed() && client.is_closed());
    let logs = dir.path().join("logs");
    assert!(logs.join(".kafka_cleanshutdown").exists());

    let mut test = TestPlane::start(dir.path());
    assert!(
        !logs.join(".kafka_cleanshutdown").exists(),
        "taken back while running"
    );
    let found = test.plane.found_partitions();
    assert_eq!(found.len(), 3);
    assert_eq!(found[2].topic_id, Some(topic_id("t")));
    test.create("t", 3);
    let recovered = test.events.iter().any(|event| {
        matches!(
            event,
            Event::Notice {
                event: "log_recovered",
                ..
            }
        )
    });
    assert!(!recovered, "{:?}", test.events);
    for index in 0..3 {
        assert_eq!(test.client().fetch_one("t", index, 0).high_watermark, 10);
    }
    assert_eq!(
        test.client().produce("t", 0, &batch(&[b"next"])),
        (ErrorCode::NONE, 10)
    );
}

#[test]
fn a_kill_loses_nothing_that_was_acknowledged() {
    let dir = tempfile::tempdir().unwrap();
    let mut acknowledged = [0i64; 2];
    for round in 0..5 {
        let mut test = TestPlane::start(dir.path());
        test.create("t", 2);
        for index in 0..2 {
            let all = test.client().fetch_one("t", index, 0);
            assert!(
                all.high_watermark >= acknowledged[index as usize],
                "round {round}"
            );
            assert_eq!(all.batches(), (0..all.high_watermark).collect::<Vec<_>>());
        }
        let producers: Vec<_> = (0..2)
            .map(|index| {
                let mut client = test.client();
                std::thread::spawn(move || {
                    let mut end = 0;
                    for _ in 0..50 {
                        let (error, offset) = client.produce("t", index, &batch(&[b"value"]));
                        assert_eq!(error, ErrorCode::NONE);
                        end = offset + 1;
                    }
                    // More under way, whose answers are not awaited.
                    for _ in 0..50 {
                        let record = batch(&[b"value"]);
                        let body =
                            produce_body(PRODUCE_VERSION, 1, 1000, "t", &[(index, Some(&record))]);
                        client.send(key::PRODUCE, PRODUCE_VERSION, &body);
                    }
                    end
                })
            })
            .collect();
        for (end, producer) in acknowledged.iter_mut().zip(producers) {
            *end = producer.join().unwrap();
        }
        // Dropped, not shut down: unwritten bytes are gone.
        drop(test);
    }
}

#[test]
fn directories_in_use_or_of_others_are_refused() {
    let dir = tempfile::tempdir().unwrap();
    let logs = dir.path().join("logs");
    let test = TestPlane::start(dir.path());
    let again = TestPlane::try_start(config(vec![logs.clone()]), Arc::new(RealDisk))
        .err()
        .unwrap();
    assert!(
        matches!(&again, OpenError::Locked(reason) if reason.contains("in use")),
        "{again}"
    );
    drop(test);
    let mut other = config(vec![logs]);
    other.cluster_id = "another".into();
    let foreign = TestPlane::try_start(other, Arc::new(RealDisk))
        .err()
        .unwrap();
    assert!(matches!(&foreign, OpenError::OtherCluster(reason) if reason.contains("another")));
    // The refusal left nothing locked.
    drop(TestPlane::start(dir.path()));
}

#[test]
fn topic_can_be_created_again_after_its_deletion() {
    let dir = tempfile::tempdir().unwrap();
    let mut test = TestPlane::start(dir.path());
    for _ in 0..3 {
        test.create("t", 2);
        let mut client = test.client();
        assert_eq!(
            client.produce("t", 0, &batch(&[b"v"])),
            (ErrorCode::NONE, 0)
        );
        assert_eq!(test.delete("t", 2), [0, 0]);
        assert_eq!(
            client.produce("t", 0, &batch(&[b"v"])).0,
            ErrorCode::UNKNOWN_TOPIC_OR_PARTITION
        );
        assert!(!dir.path().join("logs/t-0").exists());
    }
    eventually("the folders gone", || {
        let names = std::fs::read_dir(dir.path().join("logs")).unwrap();
        let left = names
            .filter(|entry| entry.as_ref().unwrap().path().is_dir())
            .count();
        (left == 0).then_some(())
    });
}

#[test]
fn delete_records_moves_the_log_start() {
    let dir = tempfile::tempdir().unwrap();
    let mut test = TestPlane::start(dir.path());
    test.create("t", 1);
    let mut client = test.client();
    for _ in 0..10 {
        client.produce("t", 0, &batch(&[b"v"]));
    }
    let mut delete = |offset| {
        let ticket = test
            .plane
            .delete_records(vec![("t".into(), 0, offset)])
            .unwrap();
        match test.ticket(ticket) {
            TicketOutcome::DeleteRecords(results) => results[0],
            other => panic!("{other:?}"),
        }
    };
    assert_eq!(delete(4), (0, 4));
    assert_eq!(delete(2), (0, 4), "never back");
    assert_eq!(delete(11), (1, -1));
    assert_eq!(
        client.fetch_one("t", 0, 3).error,
        ErrorCode::OFFSET_OUT_OF_RANGE
    );
    assert_eq!(client.fetch_one("t", 0, 4).log_start_offset, 4);
    assert_eq!(client.list_offset("t", 0, -2).offset, 4);
    assert_eq!(delete(-1), (0, 10));
    let logs = dir.path().join("logs");
    eventually("the checkpoint", || {
        let content = std::fs::read_to_string(logs.join("log-start-offset-checkpoint")).ok()?;
        content.contains("t 0 10").then_some(())
    });
    drop(test);
    let mut test = TestPlane::start(dir.path());
    test.create("t", 1);
    assert_eq!(
        test.client().list_offset("t", 0, -2).offset,
        10,
        "a kill does not bring it back"
    );
}

#[test]
fn requests_that_append_nothing_do_not_gather_without_end() {
    let dir = tempfile::tempdir().unwrap();
    let disk = SlowDisk::default();
    let mut test = TestPlane::start_with(
        config(vec![dir.path().join("logs")]),
        Arc::new(disk.clone()),
    );
    test.create("t", 1);
    disk.freeze();
    let mut producer = test.client();
    let record = batch(&[b"v"]);
    let body = |index| produce_body(PRODUCE_VERSION, 1, 30_000, "t", &[(index, Some(&record))]);
    producer.send(key::PRODUCE, PRODUCE_VERSION, &body(0));
    let mut sender = producer.stream.try_clone().unwrap();
    let count = 5000;
    let frames: Vec<u8> = (0..count)
        .flat_map(|_| producer.frame(key::PRODUCE, PRODUCE_VERSION, &body(1)))
        .collect();
    let sending = std::thread::spawn(move || {
        std::io::Write::write_all(&mut sender, &frames).unwrap();
    });
    eventually("the bound", || {
        (test.statistic("requests.Produce") >= 1000).then_some(())
    });
    // Another connection of the same thread is served, so this one has had its turns.
    for _ in 0..4 {
        assert_eq!(test.client().fetch_one("t", 0, 0).error, ErrorCode::NONE);
    }
    let begun = test.statistic("requests.Produce");
    disk.thaw();
    assert_eq!(begun, 1000);
    sending.join().unwrap();
    let (_, answer) = producer.receive(key::PRODUCE, PRODUCE_VERSION);
    assert_eq!(produced(&answer, PRODUCE_VERSION), (ErrorCode::NONE, 0));
    for _ in 0..count {
        let (_, answer) = producer.receive(key::PRODUCE, PRODUCE_VERSION);
        let (error, _) = produced(&answer, PRODUCE_VERSION);
        assert_eq!(error, ErrorCode::UNKNOWN_TOPIC_OR_PARTITION);
    }
}

#[test]
fn a_log_that_was_being_closed_at_the_end_keeps_its_directory_from_being_clean() {
    let dir = tempfile::tempdir().unwrap();
    let disk = SlowDisk::default();
    let logs = dir.path().join("logs");
    let mut test = TestPlane::start_with(config(vec![logs.clone()]), Arc::new(disk.clone()));
    test.create("t", 1);
    disk.freeze();
    let mut client = test.client();
    let record = batch(&[b"v"]);
    let body = produce_body(PRODUCE_VERSION, 1, 30_000, "t", &[(0, Some(&record))]);
    client.send(key::PRODUCE, PRODUCE_VERSION, &body);
    eventually("a write that waits", || {
        (disk.waiting_writes() == 1).then_some(())
    });
    let stop = StopSpec {
        topic: "t".into(),
        partition: 0,
        delete: false,
    };
    test.plane.stop_partitions(vec![stop]).unwrap();
    let ticket = test.plane.shutdown(0);
    // The loader gives up; only then does the write end.
    eventually("the end of the closing", || {
        (test.statistic("command_queue_depth") == 0).then_some(())
    });
    disk.thaw();
    let TicketOutcome::Shutdown(is_clean) = test.ticket(ticket) else {
        panic!("not a shutdown");
    };
    assert!(!is_clean);
    assert!(!logs.join(".kafka_cleanshutdown").exists());
}
