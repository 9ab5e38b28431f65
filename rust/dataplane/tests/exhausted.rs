//! Calls that find no descriptor or no memory. That says nothing of the disk: its directory stays as
//! it is and takes records, and nothing is lost.

use std::path::Path;

use crate::harness::full_disk::*;
use crate::harness::*;
use pyrklog_dataplane::seam::{CacheConfig, Event, PlaneConfig, StopSpec, TicketOutcome};
use pyrklog_log::disk::testing::{Fault, FaultyDisk, Operation};
use pyrklog_wire::ErrorCode;
use pyrklog_wire::api::key;

const IMPATIENT_MS: i32 = 300;
const RECORD_BYTES: usize = 2_000;

/// A topic with one written record, whose segments take one more each.
fn started(config: &PlaneConfig, disk: &FaultyDisk) -> TestPlane {
    let mut test = start(config, disk);
    let mut options = topic_config();
    options.log.segment_bytes = 3_000;
    assert_eq!(test.lead("t", 1, &options), [0]);
    let first = test.client().produce("t", 0, &large_batch(RECORD_BYTES));
    assert_eq!(first, (ErrorCode::NONE, 0));
    becomes(&test, "unwritten_bytes", 0);
    test
}

fn uncached(dir: &Path) -> PlaneConfig {
    let mut config = cached(dir);
    config.cache = CacheConfig::off();
    config
}

fn stop(test: &mut TestPlane, topic: &str) -> Vec<i16> {
    let spec = StopSpec {
        topic: topic.into(),
        partition: 0,
        delete: false,
    };
    let ticket = test.plane.stop_partitions(vec![spec]).unwrap();
    let TicketOutcome::Partitions(codes) = test.ticket(ticket) else {
        panic!()
    };
    codes
}

#[test]
fn a_directory_takes_records_while_its_writer_waits() {
    let faults = [
        (Operation::Open, Fault::NoDescriptor),
        (Operation::Write, Fault::NoDescriptor),
        (Operation::Write, Fault::NoMemory),
    ];
    for (operation, fault) in faults {
        let dir = tempfile::tempdir().unwrap();
        let (config, disk) = (cached(dir.path()), faulty());
        let mut test = started(&config, &disk);
        disk.fail(operation, "t-0/", 0, usize::MAX, fault);
        let (mut client, record) = (test.client(), large_batch(RECORD_BYTES));
        for offset in 1..4 {
            assert_eq!(client.produce("t", 0, &record), (ErrorCode::NONE, offset));
        }
        let told = test.wait_for_notice("log_dir_waits");
        assert_eq!(told[0].1, dir.path().join("logs").display().to_string());
        assert_eq!(client.produce("t", 0, &record), (ErrorCode::NONE, 4));
        assert_eq!(high_watermark(&test, "t"), 5);
        assert_eq!(test.statistic("log_dir_read_only.0"), 0);
        assert!(test.statistic("unwritten_bytes") > 0);
        let ticket = test.plane.describe_log_dirs().unwrap();
        let TicketOutcome::LogDirs(described) = test.ticket(ticket) else {
            panic!()
        };
        assert_eq!(described[0].error_code, 0);
        assert!(described[0].usable_bytes > 0);

        disk.heal();
        test.wait_for_notice("log_dir_goes_on");
        becomes(&test, "unwritten_bytes", 0);
        assert!(!test.has_told_of_a_disk());
        assert!(test.shutdown(), "clean");
        let mut test = start(&config, &disk);
        test.create("t", 1);
        assert_eq!(high_watermark(&test, "t"), 5);
    }
}

#[test]
fn requests_wait_for_the_file_until_they_time_out() {
    let dir = tempfile::tempdir().unwrap();
    let (config, disk) = (uncached(dir.path()), faulty());
    let mut test = started(&config, &disk);
    disk.fail(Operation::Write, "t-0/", 0, usize::MAX, Fault::NoDescriptor);
    let (mut impatient, mut patient) = (test.client(), test.client());
    let record = large_batch(RECORD_BYTES);
    let (error, _) = impatient.produce_within(IMPATIENT_MS, "t", 0, &record);
    assert_eq!(error, ErrorCode::REQUEST_TIMED_OUT);
    test.wait_for_notice("log_dir_waits");
    let body = produce_body(PRODUCE_VERSION, 1, 60_000, "t", &[(0, Some(&record))]);
    let unwritten = test.statistic("unwritten_bytes");
    patient.send(key::PRODUCE, PRODUCE_VERSION, &body);
    eventually("its record waits", || {
        (test.statistic("unwritten_bytes") > unwritten).then_some(())
    });
    assert_eq!(high_watermark(&test, "t"), 1);
    disk.heal();
    let (_, answer) = patient.receive(key::PRODUCE, PRODUCE_VERSION);
    let (error, offset) = produced(&answer, PRODUCE_VERSION);
    assert_eq!((error, offset), (ErrorCode::NONE, 2));
    assert_eq!(high_watermark(&test, "t"), 3, "also that of the impatient");
    assert!(!test.has_told_of_a_disk());
    assert!(test.shutdown(), "clean");
}

/// The bound of unwritten bytes holds; nothing acknowledged is lost.
#[test]
fn producers_wait_for_room_once_much_is_unwritten() {
    let dir = tempfile::tempdir().unwrap();
    let (config, disk) = (cached(dir.path()), faulty());
    let mut test = start(&config, &disk);
    test.create("t", 1);
    disk.fail(Operation::Write, "t-0/", 0, usize::MAX, Fault::NoDescriptor);
    let (mut client, record) = (test.client(), large_batch(50_000));
    let mut end = 0;
    let refused = loop {
        match client.produce_within(IMPATIENT_MS, "t", 0, &record) {
            (ErrorCode::NONE, offset) => end = offset + 1,
            (error, _) => break error,
        }
        assert!(end < 1_000, "no bound");
    };
    assert_eq!(refused, ErrorCode::REQUEST_TIMED_OUT);
    assert_eq!(test.statistic("produce_muted_timed_out.0"), 1);
    assert_eq!(test.statistic("log_dir_read_only.0"), 0);
    disk.heal();
    becomes(&test, "unwritten_bytes", 0);
    assert_eq!(high_watermark(&test, "t"), end, "it was not appended");
    let next = test.client().produce("t", 0, &record);
    assert_eq!(next, (ErrorCode::NONE, end));
    assert!(!test.has_told_of_a_disk());
    assert!(test.shutdown(), "clean");
}

/// It would wait for the writer for as long as there is no descriptor.
#[test]
fn a_log_with_unwritten_records_is_closed_later() {
    let dir = tempfile::tempdir().unwrap();
    let (config, disk) = (cached(dir.path()), faulty());
    let mut test = started(&config, &disk);
    disk.fail(Operation::Write, "t-0/", 0, usize::MAX, Fault::NoDescriptor);
    let next = test.client().produce("t", 0, &large_batch(RECORD_BYTES));
    assert_eq!(next, (ErrorCode::NONE, 1));
    test.wait_for_notice("log_dir_waits");
    assert_eq!(stop(&mut test, "t"), [ErrorCode::KAFKA_STORAGE_ERROR.0]);
    disk.heal();
    test.wait_for_notice("log_dir_goes_on");
    // After the closing, which has the same key.
    assert_eq!(stop(&mut test, "t"), [0]);
    assert!(!test.has_told_of_a_disk());
    assert!(test.shutdown(), "clean");
    let mut test = start(&config, &disk);
    test.create("t", 1);
    assert_eq!(high_watermark(&test, "t"), 2);
}

/// One notice, however often the writer tries, and the end of it is told only once files can be
/// opened.
#[test]
fn a_shortage_is_told_once() {
    let dir = tempfile::tempdir().unwrap();
    let (config, disk) = (uncached(dir.path()), faulty());
    let mut test = started(&config, &disk);
    disk.fail(Operation::Open, "", 0, usize::MAX, Fault::NoDescriptor);
    let record = large_batch(RECORD_BYTES);
    let mut client = test.client();
    let (error, _) = client.produce_within(IMPATIENT_MS, "t", 0, &record);
    assert_eq!(error, ErrorCode::REQUEST_TIMED_OUT);
    test.wait_for_notice("log_dir_waits");
    let tried = disk.count(Operation::Open);
    eventually("further tries", || {
        (disk.count(Operation::Open) > tried + 4).then_some(())
    });
    test.events.extend(test.plane.drain_events(1_000));
    let is_one = |event: &Event| {
        let of_dir = ["log_dir_waits", "log_dir_goes_on"];
        matches!(event, Event::Notice { event, .. } if of_dir.contains(event))
    };
    assert!(!test.events.iter().any(is_one), "{:?}", test.events);
    disk.heal();
    test.wait_for_notice("log_dir_goes_on");
    assert_eq!(client.produce("t", 0, &record), (ErrorCode::NONE, 2));
}
