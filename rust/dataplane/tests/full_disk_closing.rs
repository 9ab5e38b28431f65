//! Logs whose end finds no space: stopped, deleted and opened again.

use crate::harness::full_disk::*;
use crate::harness::*;
use pyrklog_dataplane::seam::{Event, PlaneConfig, StopSpec, TicketOutcome};
use pyrklog_log::disk::testing::{Fault, FaultyDisk, Operation};
use pyrklog_wire::ErrorCode;

fn stop(test: &mut TestPlane, topic: &str, delete: bool) -> Vec<i16> {
    let spec = StopSpec {
        topic: topic.into(),
        partition: 0,
        delete,
    };
    let ticket = test.plane.stop_partitions(vec![spec]).unwrap();
    let TicketOutcome::Partitions(codes) = test.ticket(ticket) else {
        panic!()
    };
    codes
}

/// A broker whose `t` has an acknowledged record without space, and was stopped: its log cannot be
/// closed.
fn stopped_with_something_unwritten(config: &PlaneConfig, disk: &FaultyDisk) -> TestPlane {
    let mut test = start(config, disk);
    test.create("t", 1);
    test.create("other", 1);
    let no_space = Fault::NoSpaceAfter(0);
    disk.fail(Operation::Write, "t-0/", 0, usize::MAX, no_space);
    let first = test.client().produce("t", 0, &batch(&[b"first"]));
    assert_eq!(first, (ErrorCode::NONE, 0));
    becomes(&test, "log_dir_read_only.0", 1);
    let codes = stop(&mut test, "t", false);
    assert_eq!(codes, [ErrorCode::KAFKA_STORAGE_ERROR.0]);
    test
}

fn ends_clean(mut test: TestPlane) {
    let other = test.client().produce("other", 0, &batch(&[b"v"]));
    assert_eq!(other, (ErrorCode::NONE, 0));
    test.events.extend(test.plane.drain_events(100));
    let has_failed = |event: &Event| matches!(event, Event::LogDirFailed { .. });
    assert!(!test.events.iter().any(has_failed));
    assert!(test.shutdown(), "clean");
}

/// The story: a partition moved away from a full disk, so it was stopped and then deleted. Once
/// there was space, its unwritten bytes were tried again in the deleted folder: the directory
/// failed.
#[test]
fn a_partition_that_could_not_be_closed_can_be_deleted() {
    let dir = tempfile::tempdir().unwrap();
    let (config, disk) = (cached(dir.path()), faulty());
    let mut test = stopped_with_something_unwritten(&config, &disk);
    assert_eq!(stop(&mut test, "t", true), [0]);
    assert!(!dir.path().join("logs/t-0").exists());
    assert_eq!(test.statistic("unwritten_bytes"), 0);
    disk.heal();
    test.wait_for_notice("log_dir_has_space");
    ends_clean(test);
}

/// Two logs of a partition would write the same files, and the second would lack the record.
#[test]
fn a_partition_that_could_not_be_closed_is_closed_before_it_is_opened_again() {
    let dir = tempfile::tempdir().unwrap();
    let (config, disk) = (cached(dir.path()), faulty());
    let mut test = stopped_with_something_unwritten(&config, &disk);
    let spec = TestPlane::leader_spec("t", 0, 1);
    assert_eq!(test.become_leaders(vec![spec]), [0]);
    disk.heal();
    test.wait_for_notice("log_dir_has_space");
    let mut client = test.client();
    let next = eventually("records are taken", || {
        let (error, offset) = client.produce("t", 0, &batch(&[b"next"]));
        (error == ErrorCode::NONE).then_some(offset)
    });
    assert_eq!(next, 1);
    assert_eq!(client.fetch_one("t", 0, 0).batches(), [0, 1]);
    ends_clean(test);
}

#[test]
fn a_partition_that_could_not_be_closed_is_closed_when_there_is_space() {
    let dir = tempfile::tempdir().unwrap();
    let (config, disk) = (cached(dir.path()), faulty());
    let mut test = stopped_with_something_unwritten(&config, &disk);
    disk.heal();
    test.wait_for_notice("log_dir_has_space");
    // After the closing, which has the same key.
    assert_eq!(stop(&mut test, "t", false), [0]);
    ends_clean(test);
    let mut test = start(&config, &disk);
    test.create("t", 1);
    assert_eq!(high_watermark(&test, "t"), 1);
}

/// All records are in the files, but the files of an orderly close find no space: only that log is
/// recovered when it is next opened.
#[test]
fn a_log_that_finds_no_space_for_its_end_leaves_its_directory_clean() {
    let dir = tempfile::tempdir().unwrap();
    let (config, disk) = (cached(dir.path()), faulty());
    let mut test = start(&config, &disk);
    test.create("t", 1);
    test.create("other", 1);
    let first = test.client().produce("t", 0, &batch(&[b"first"]));
    assert_eq!(first, (ErrorCode::NONE, 0));
    becomes(&test, "unwritten_bytes", 0);
    let is_refused = |test: &mut TestPlane| {
        let no_space = Fault::NoSpaceAfter(0);
        disk.fail(Operation::Write, "t-0/", 0, usize::MAX, no_space);
        let codes = stop(test, "t", false);
        disk.heal();
        codes == [ErrorCode::KAFKA_STORAGE_ERROR.0]
    };
    assert!(is_refused(&mut test));
    // The same life opens it again, and the next one.
    test.create("t", 1);
    assert_eq!(high_watermark(&test, "t"), 1);
    assert!(is_refused(&mut test));
    ends_clean(test);
    let mut test = start(&config, &disk);
    test.create("t", 1);
    assert_eq!(high_watermark(&test, "t"), 1);
}
