//! The control plane's appends to internal topics, and its reads of them.

use std::fs::{self, OpenOptions};
use std::path::Path;
use std::sync::Arc;

use crate::harness::internal::*;
use crate::harness::moving::{alter, is_in, two};
use crate::harness::*;
use pyrklog_dataplane::seam::*;
use pyrklog_log::disk::RealDisk;
use pyrklog_log::disk::testing::{Fault, FaultyDisk, Operation, StallingDisk};
use pyrklog_wire::ErrorCode;
use pyrklog_wire::batch::{self, Batches};
use pyrklog_wire::builder::transaction_marker;

fn start_slow(dir: &Path) -> (TestPlane, SlowDisk) {
    let disk = SlowDisk::default();
    let config = config(vec![dir.join("logs")]);
    let mut test = TestPlane::start_with(config, Arc::new(disk.clone()));
    test.create(TOPIC, 1);
    (test, disk)
}

#[test]
fn batches_lie_in_the_log_in_the_order_of_the_calls() {
    let dir = tempfile::tempdir().unwrap();
    let mut test = start(dir.path());
    let tickets: Vec<TicketId> = (0..1000)
        .map(|number: i32| {
            let key = number.to_string();
            append(&test, &terms(), &[(&key, Some("a")), (&key, None)])
        })
        .collect();
    for (number, ticket) in (0..).zip(tickets) {
        assert_eq!(appended(&mut test, ticket), (NONE, 2 * number));
    }
    let read = read(&mut test, 0, 1 << 20);
    assert_eq!(
        (read.error_code, read.next_offset, read.end_offset),
        (NONE, 2000, 2000)
    );
    for (number, batch) in read.batches.iter().enumerate() {
        let key = number.to_string();
        let base = 2 * number as i64;
        let found: Vec<_> = batch.records().collect();
        let key = Some(key.as_bytes());
        assert_eq!(found, [(base, key, Some(&b"a"[..])), (base + 1, key, None)]);
    }
    assert_eq!(read.batches.len(), 1000);
    assert_eq!(test.statistic("internal_appends"), 1000);
    assert_eq!(test.statistic("purgatory_internal"), 0);
    eventually("writing them", || {
        (test.statistic("unwritten_bytes") == 0).then_some(())
    });
    let size = fs::metadata(segment(dir.path())).unwrap().len();
    assert_eq!(test.statistic("internal_appended_bytes"), size);
}

#[test]
fn consumers_see_a_batch_as_any_other() {
    let dir = tempfile::tempdir().unwrap();
    let mut test = start(dir.path());
    for codec in 0..=4 {
        let value = "v".repeat(5_000);
        let terms = InternalAppend { codec, ..terms() };
        let outcome = append_now(&mut test, &terms, &[("k", Some(&value))]);
        assert_eq!(outcome, (NONE, i64::from(codec)));
    }
    let fetched = test.client().fetch_one(TOPIC, 0, 0);
    assert_eq!(fetched.high_watermark, 5);
    for (codec, view) in Batches::new(&fetched.records).enumerate() {
        let view = view.unwrap();
        batch::verify_crc(view.bytes).unwrap();
        assert_eq!(view.header.compression().unwrap() as usize, codec);
        assert_eq!(view.header.base_timestamp, 1_700_000_000_000);
        assert_eq!(view.bytes.len() < 1000, codec > 0);
    }
    let read = read(&mut test, 0, 1 << 20);
    assert_eq!(read.batches.len(), 5);
    for batch in &read.batches {
        let (_, key, value) = batch.records().next().unwrap();
        assert_eq!((key, value.unwrap().len()), (Some(&b"k"[..]), 5_000));
    }
}

#[test]
fn a_transaction_keeps_its_producer_and_its_marker_is_told() {
    let dir = tempfile::tempdir().unwrap();
    let mut test = start(dir.path());
    let with_producer = InternalAppend {
        producer: Some((7, 3)),
        ..terms()
    };
    assert_eq!(
        append_now(&mut test, &with_producer, &[("k", Some("1"))]),
        (NONE, 0)
    );
    assert_eq!(
        append_now(&mut test, &with_producer, &[("k", Some("2"))]),
        (NONE, 1)
    );
    let fenced = InternalAppend {
        producer: Some((7, 2)),
        ..terms()
    };
    let outcome = append_now(&mut test, &fenced, &[("k", Some("3"))]);
    assert_eq!(outcome, (ErrorCode::INVALID_PRODUCER_EPOCH.0, -1));
    assert_eq!(test.client().fetch_one(TOPIC, 0, 0).last_stable_offset, 0);
    let read = read(&mut test, 0, 1 << 20);
    for batch in &read.batches {
        assert_eq!(batch.producer_id, 7);
        assert!(batch.is_transactional && !batch.is_control);
    }
    // Markers are written into the file directly; they are read as markers.
    eventually("all is in the file", || {
        (test.statistic("unwritten_bytes") == 0).then_some(())
    });
    drop(test);
    let mut marker = transaction_marker(7, 3, true, 0, 1_700_000_000_000);
    batch::set_base_offset(&mut marker, 2);
    let file = OpenOptions::new().append(true).open(segment(dir.path()));
    std::io::Write::write_all(&mut file.unwrap(), &marker).unwrap();
    let mut test = start(dir.path());
    let read = self::read(&mut test, 2, 1 << 20);
    assert!(read.batches[0].is_control && read.batches[0].is_transactional);
    let (offset, key, _) = read.batches[0].records().next().unwrap();
    assert_eq!((offset, key), (2, Some(&[0, 0, 0, 1][..])));
}

#[test]
fn append_beyond_the_bounds_is_refused_and_leaves_nothing() {
    let dir = tempfile::tempdir().unwrap();
    let mut test = start(dir.path());
    let limit = topic_config().log.max_message_bytes as usize;
    let large = "x".repeat(limit);
    let refused = |test: &mut TestPlane, terms: InternalAppend<'_>, pairs: Pairs<'_>| {
        let (error_code, base_offset) = append_now(test, &terms, pairs);
        assert_eq!(base_offset, -1);
        ErrorCode(error_code)
    };
    let one: Pairs<'_> = &[("k", Some("v"))];
    let error = refused(&mut test, terms(), &[("k", Some(&large))]);
    assert_eq!(error, ErrorCode::MESSAGE_TOO_LARGE);
    assert_eq!(refused(&mut test, terms(), &[]), ErrorCode::INVALID_RECORD);
    let error = refused(
        &mut test,
        InternalAppend {
            codec: 5,
            ..terms()
        },
        one,
    );
    assert_eq!(error, ErrorCode::UNSUPPORTED_COMPRESSION_TYPE);
    for expected_epoch in [-1, 1] {
        let stale = InternalAppend {
            expected_epoch,
            ..terms()
        };
        let error = refused(&mut test, stale, one);
        assert_eq!(error, ErrorCode::NOT_LEADER_OR_FOLLOWER);
    }
    for (topic, partition) in [(TOPIC, 1), (TOPIC, -1), ("__other", 0)] {
        let elsewhere = InternalAppend {
            topic,
            partition,
            ..terms()
        };
        let error = refused(&mut test, elsewhere, one);
        assert_eq!(error, ErrorCode::NOT_LEADER_OR_FOLLOWER);
    }
    test.create("t", 1);
    let error = refused(
        &mut test,
        InternalAppend {
            topic: "t",
            ..terms()
        },
        one,
    );
    assert_eq!(error, ErrorCode::INVALID_TOPIC_EXCEPTION);
    let mut small = topic_config();
    small.log.segment_bytes = 1000;
    test.describe_topic(TOPIC, 1, &small);
    let medium = "x".repeat(1000);
    let error = refused(&mut test, terms(), &[("k", Some(&medium))]);
    assert_eq!(error, ErrorCode::RECORD_LIST_TOO_LARGE);
    small.min_insync_replicas = 2;
    test.describe_topic(TOPIC, 1, &small);
    let one_of_two = LeaderSpec {
        replicas: vec![1, 2],
        ..TestPlane::leader_spec(TOPIC, 0, 0)
    };
    assert_eq!(test.become_leaders(vec![one_of_two]), [NONE]);
    assert_eq!(
        refused(&mut test, terms(), one),
        ErrorCode::NOT_ENOUGH_REPLICAS
    );
    assert_eq!(test.statistic("internal_appends_refused"), 11);
    assert_eq!(read(&mut test, 0, 1 << 20).end_offset, 0);
}

#[test]
fn an_append_waits_for_every_replica_in_sync() {
    let dir = tempfile::tempdir().unwrap();
    let mut test = TestPlane::start(dir.path());
    test.describe_topic(TOPIC, 1, &topic_config());
    let with_follower = LeaderSpec {
        replicas: vec![1, 2],
        isr: vec![1, 2],
        ..TestPlane::leader_spec(TOPIC, 0, 0)
    };
    assert_eq!(test.become_leaders(vec![with_follower.clone()]), [NONE]);
    let ticket = append(&test, &terms(), &[("k", Some("v"))]);
    // Written, and not acknowledged: the follower has not fetched it.
    assert_eq!(read(&mut test, 0, 1000).end_offset, 1);
    assert_eq!(test.statistic("purgatory_internal"), 1);
    let alone = LeaderSpec {
        isr: vec![1],
        ..with_follower
    };
    assert_eq!(test.become_leaders(vec![alone]), [NONE]);
    assert_eq!(appended(&mut test, ticket), (NONE, 0));
}

#[test]
fn replicas_lost_after_the_append_are_waited_for() {
    let dir = tempfile::tempdir().unwrap();
    let mut test = TestPlane::start(dir.path());
    let mut options = topic_config();
    options.min_insync_replicas = 2;
    test.describe_topic(TOPIC, 1, &options);
    let with_follower = LeaderSpec {
        replicas: vec![1, 2],
        isr: vec![1, 2],
        ..TestPlane::leader_spec(TOPIC, 0, 0)
    };
    assert_eq!(test.become_leaders(vec![with_follower]), [NONE]);
    let ticket = append(&test, &terms(), &[("k", Some("v"))]);
    assert!(test.plane.set_isr(TOPIC, 0, 0, &[1], &[1], false));
    assert_eq!(test.statistic("purgatory_internal"), 1, "one is too few");
    options.min_insync_replicas = 1;
    test.describe_topic(TOPIC, 1, &options);
    assert!(test.plane.set_isr(TOPIC, 0, 0, &[1], &[1], false));
    assert_eq!(appended(&mut test, ticket), (ErrorCode::NONE.0, 0));
}

#[test]
fn an_append_waits_on_in_the_epochs_that_its_leader_stays_one() {
    let dir = tempfile::tempdir().unwrap();
    let mut test = TestPlane::start(dir.path());
    test.describe_topic(TOPIC, 1, &topic_config());
    let with_follower = |leader_epoch| LeaderSpec {
        replicas: vec![1, 2],
        isr: vec![1, 2],
        ..TestPlane::leader_spec(TOPIC, 0, leader_epoch)
    };
    assert_eq!(test.become_leaders(vec![with_follower(0)]), [NONE]);
    let first = append(&test, &terms(), &[("k", Some("0"))]);
    assert_eq!(test.become_leaders(vec![with_follower(1)]), [NONE]);
    let current = InternalAppend {
        expected_epoch: 1,
        ..terms()
    };
    let second = append(&test, &current, &[("k", Some("1"))]);
    assert_eq!(test.statistic("purgatory_internal"), 2);
    // The follower died: nothing in the log has to be sent again.
    let alone = LeaderSpec {
        isr: vec![1],
        ..with_follower(2)
    };
    assert_eq!(test.become_leaders(vec![alone]), [NONE]);
    assert_eq!(appended(&mut test, first), (NONE, 0));
    assert_eq!(appended(&mut test, second), (NONE, 1));
    // A leader that follows may lose what it appended.
    assert_eq!(test.become_leaders(vec![with_follower(3)]), [NONE]);
    let last = InternalAppend {
        expected_epoch: 3,
        ..terms()
    };
    let lost = append(&test, &last, &[("k", Some("2"))]);
    let follower = FollowerSpec {
        topic: TOPIC.into(),
        partition: 0,
        leader: 2,
        leader_epoch: 4,
        replicas: vec![1, 2],
        isr: vec![2],
        is_new: false,
        is_partial: false,
    };
    assert_eq!(test.become_followers(vec![follower]), [NONE]);
    let error = ErrorCode::NOT_LEADER_OR_FOLLOWER.0;
    assert_eq!(appended(&mut test, lost), (error, -1));
}

#[test]
fn a_new_epoch_takes_appends_of_its_own_and_its_reader_sees_those_before() {
    let dir = tempfile::tempdir().unwrap();
    let (mut test, disk) = start_slow(dir.path());
    disk.freeze();
    let old = append(&test, &terms(), &[("k", Some("old"))]);
    let codes = test.become_leaders(vec![TestPlane::leader_spec(TOPIC, 0, 1)]);
    assert_eq!(codes, [NONE]);
    let reading = test.plane.read_internal(TOPIC, 0, 0, 1000).unwrap();
    assert_eq!(test.statistic("purgatory_internal"), 2);
    disk.thaw();
    assert_eq!(appended(&mut test, old), (NONE, 0));
    let TicketOutcome::InternalRead(read) = test.ticket(reading) else {
        panic!()
    };
    assert_eq!(outline(&read), [(0, 0, false)]);
    let current = InternalAppend {
        expected_epoch: 1,
        ..terms()
    };
    assert_eq!(
        append_now(&mut test, &current, &[("k", Some("new"))]),
        (NONE, 1)
    );
    // No other broker has led: the owner of the log in the epoch before goes on.
    let late = append_now(&mut test, &terms(), &[("k", Some("late"))]);
    assert_eq!(late, (NONE, 2));
}

#[test]
fn append_with_an_epoch_before_following_is_refused() {
    let dir = tempfile::tempdir().unwrap();
    let mut test = start(dir.path());
    let follower = FollowerSpec {
        topic: TOPIC.into(),
        partition: 0,
        leader: 2,
        leader_epoch: 1,
        replicas: vec![1, 2],
        isr: vec![2],
        is_new: false,
        is_partial: false,
    };
    assert_eq!(test.become_followers(vec![follower]), [NONE]);
    let codes = test.become_leaders(vec![TestPlane::leader_spec(TOPIC, 0, 2)]);
    assert_eq!(codes, [NONE]);
    for (expected_epoch, code) in [
        (0, ErrorCode::NOT_LEADER_OR_FOLLOWER.0),
        (1, ErrorCode::NOT_LEADER_OR_FOLLOWER.0),
        (2, NONE),
        (3, ErrorCode::NOT_LEADER_OR_FOLLOWER.0),
    ] {
        let asked = InternalAppend {
            expected_epoch,
            ..terms()
        };
        assert_eq!(append_now(&mut test, &asked, &[("k", Some("v"))]).0, code);
    }
}

#[test]
fn a_partition_that_is_stopped_ends_all_waiting() {
    let dir = tempfile::tempdir().unwrap();
    let (mut test, disk) = start_slow(dir.path());
    disk.freeze();
    let append = append(&test, &terms(), &[("k", Some("v"))]);
    let reading = test.plane.read_internal(TOPIC, 0, 0, 1000).unwrap();
    let stop = StopSpec {
        topic: TOPIC.into(),
        partition: 0,
        delete: false,
    };
    let stopping = test.plane.stop_partitions(vec![stop]).unwrap();
    let error = ErrorCode::NOT_LEADER_OR_FOLLOWER.0;
    assert_eq!(appended(&mut test, append), (error, -1));
    match test.ticket(reading) {
        TicketOutcome::InternalRead(read) => assert_eq!(read.error_code, error),
        other => panic!("{other:?}"),
    }
    disk.thaw();
    test.ticket(stopping);
    assert_eq!(read(&mut test, 0, 1000).error_code, error);
}

#[test]
fn a_failing_disk_ends_all_waiting() {
    let dir = tempfile::tempdir().unwrap();
    let disk = FaultyDisk::new(Arc::new(RealDisk));
    let config = config(vec![dir.path().join("logs")]);
    let mut test = TestPlane::start_with(config, Arc::new(disk.clone()));
    test.create(TOPIC, 1);
    assert_eq!(
        append_now(&mut test, &terms(), &[("k", Some("v"))]),
        (NONE, 0)
    );
    disk.fail(
        Operation::Write,
        TOPIC,
        0,
        usize::MAX,
        Fault::NoSpaceAfter(10),
    );
    let tickets = [(); 3].map(|()| append(&test, &terms(), &[("k", Some("v"))]));
    let reading = test.plane.read_internal(TOPIC, 0, 0, 1000).unwrap();
    let error = ErrorCode::KAFKA_STORAGE_ERROR.0;
    for ticket in tickets {
        assert_eq!(appended(&mut test, ticket), (error, -1));
    }
    match test.ticket(reading) {
        TicketOutcome::InternalRead(read) => assert_eq!(read.error_code, error),
        other => panic!("{other:?}"),
    }
    assert_eq!(append_now(&mut test, &terms(), &[("k", None)]), (error, -1));
}

#[test]
fn appends_are_bounded_while_the_disk_hangs() {
    let dir = tempfile::tempdir().unwrap();
    let disk = SlowDisk::default();
    let mut config = config(vec![dir.path().join("logs")]);
    config.unwritten_max_bytes = Some(10_000);
    let mut test = TestPlane::start_with(config, Arc::new(disk.clone()));
    test.create(TOPIC, 1);
    disk.freeze();
    let value = "v".repeat(1_000);
    let tickets: Vec<TicketId> = (0..100)
        .map(|_| append(&test, &terms(), &[("k", Some(&value))]))
        .collect();
    let unwritten = test.statistic("unwritten_bytes");
    assert!((20_000..22_000).contains(&unwritten), "{unwritten}");
    disk.thaw();
    let outcomes: Vec<i16> = tickets
        .into_iter()
        .map(|ticket| appended(&mut test, ticket).0)
        .collect();
    let done = outcomes.iter().take_while(|code| **code == NONE).count();
    assert!((18..=20).contains(&done), "{done}");
    let late = ErrorCode::REQUEST_TIMED_OUT.0;
    assert!(outcomes[done..].iter().all(|code| *code == late));
    assert_eq!(
        append_now(&mut test, &terms(), &[("k", None)]),
        (NONE, done as i64)
    );
}

/// The broker stays the leader: a coordinator has nothing to load anew.
#[test]
fn an_append_while_a_copy_takes_the_logs_place_is_tried_again_later() {
    let dir = tempfile::tempdir().unwrap();
    let disk = StallingDisk::new(Arc::new(RealDisk));
    let mut test = TestPlane::start_with(two(dir.path()), Arc::new(disk.clone()));
    test.create(TOPIC, 1);
    assert_eq!(append_now(&mut test, &terms(), &[("k", None)]), (NONE, 0));
    let folder = format!("{TOPIC}-0");
    let places = [dir.path().join("a"), dir.path().join("b")];
    let there = places.iter().find(|dir| !is_in(dir, &folder)).unwrap();
    disk.stall(".pyrklog-leaving");
    assert_eq!(alter(&test, TOPIC, 0, there), 0);
    eventually("the swap", || (disk.waiting() > 0).then_some(()));
    let later = ErrorCode::COORDINATOR_LOAD_IN_PROGRESS.0;
    assert_eq!(append_now(&mut test, &terms(), &[("k", None)]), (later, -1));
    disk.resume();
    test.wait_for_notice("replica_moved");
    assert_eq!(append_now(&mut test, &terms(), &[("k", None)]), (NONE, 1));
    assert!(test.shutdown());
}

#[test]
fn shutdown_writes_waiting_appends_and_fails_the_others() {
    let dir = tempfile::tempdir().unwrap();
    let mut test = start(dir.path());
    test.describe_topic("__lagging", 1, &topic_config());
    let with_follower = LeaderSpec {
        replicas: vec![1, 2],
        isr: vec![1, 2],
        ..TestPlane::leader_spec("__lagging", 0, 0)
    };
    test.become_leaders(vec![with_follower]);
    let lagging = InternalAppend {
        topic: "__lagging",
        ..terms()
    };
    let written = append(&test, &terms(), &[("k", Some("v"))]);
    let waiting = append(&test, &lagging, &[("k", Some("v"))]);
    let end = test.plane.shutdown(10_000);
    assert_eq!(appended(&mut test, written), (NONE, 0));
    let error = ErrorCode::NOT_LEADER_OR_FOLLOWER.0;
    assert_eq!(appended(&mut test, waiting), (error, -1));
    assert!(matches!(test.ticket(end), TicketOutcome::Shutdown(true)));
    let no_records: [(&[u8], Option<&[u8]>); 0] = [];
    assert!(test.plane.append_internal(&terms(), no_records).is_err());
    assert!(test.plane.read_internal(TOPIC, 0, 0, 1).is_err());
}

#[test]
fn reads_begin_at_the_log_start_and_go_on_by_whole_batches_to_the_end() {
    let dir = tempfile::tempdir().unwrap();
    let mut test = TestPlane::start(dir.path());
    let mut options = topic_config();
    options.log.segment_bytes = 2_000;
    options.log.retention_ms = -1;
    assert_eq!(test.lead(TOPIC, 1, &options), [NONE]);
    let value = "v".repeat(400);
    for number in 0..20 {
        let pairs: Pairs<'_> = &[("a", Some(&value)), ("b", None)];
        assert_eq!(append_now(&mut test, &terms(), pairs), (NONE, 2 * number));
    }
    let one = read(&mut test, 0, 1);
    assert_eq!(
        (outline(&one), one.next_offset, one.end_offset),
        (vec![(0, 1, false)], 2, 40)
    );
    let within = read(&mut test, 7, 1);
    assert_eq!(
        (outline(&within), within.next_offset),
        (vec![(6, 7, false)], 8)
    );
    assert_eq!(read(&mut test, -5, 1).next_offset, 2);
    // Segment after segment, nothing twice and nothing left out.
    let (mut offset, mut seen) = (0, Vec::new());
    while offset < 40 {
        let read = read(&mut test, offset, 900);
        assert!(read.next_offset > offset && read.batches.len() <= 3);
        seen.extend(outline(&read));
        offset = read.next_offset;
    }
    let all: Vec<_> = (0..20)
        .map(|number| (2 * number, 2 * number + 1, false))
        .collect();
    assert_eq!(seen, all);
    let end = read(&mut test, 40, 1000);
    let facts = (
        end.error_code,
        end.batches.len(),
        end.next_offset,
        end.end_offset,
    );
    assert_eq!(facts, (NONE, 0, 40, 40));
    let beyond = read(&mut test, 41, 1000);
    assert_eq!(beyond.error_code, ErrorCode::OFFSET_OUT_OF_RANGE.0);
    let reading = test.plane.read_internal("t", 0, 0, 1).unwrap();
    let error = ErrorCode::NOT_LEADER_OR_FOLLOWER.0;
    assert!(
        matches!(test.ticket(reading), TicketOutcome::InternalRead(read) if read.error_code == error)
    );
}
