//! A process without descriptors: its log directories wait for some and stay as they are, and
//! nothing is lost.
//!
//! The limit is the process's, so this is the only test of its binary.

mod harness;

use std::fs::File;
use std::net::{Ipv4Addr, SocketAddrV4};

use harness::*;
use pyrklog_dataplane::seam::{Event, TicketOutcome};
use pyrklog_wire::ErrorCode;
use rustix::net::{AddressFamily, SocketType, connect, socket};
use rustix::process::{Resource, Rlimit, setrlimit};

const DESCRIPTORS: u64 = 300;
const IMPATIENT_MS: i32 = 500;

fn limit_descriptors() {
    let limit = Rlimit {
        current: Some(DESCRIPTORS),
        maximum: Some(DESCRIPTORS),
    };
    setrlimit(Resource::Nofile, limit).unwrap();
}

#[test]
fn a_log_directory_waits_for_descriptors_and_takes_records_again() {
    limit_descriptors();
    let dir = tempfile::tempdir().unwrap();
    let mut config = config(vec![dir.path().join("logs")]);
    config.max_connections = 20;
    let mut test = TestPlane::start_with(config, std::sync::Arc::new(pyrklog_log::RealDisk));
    let mut options = topic_config();
    options.log.segment_bytes = 3_000;
    assert_eq!(test.lead("t", 1, &options), [0]);
    let mut client = test.client();
    let mut acknowledged = 0;
    for _ in 0..3 {
        assert_eq!(
            client.produce("t", 0, &large_batch(2_000)).0,
            ErrorCode::NONE
        );
        acknowledged += 1;
    }
    let waiting = socket(AddressFamily::INET, SocketType::STREAM, None).unwrap();
    let address = SocketAddrV4::new(Ipv4Addr::LOCALHOST, test.port);
    let mut taken: Vec<File> = Vec::new();
    while let Ok(file) = File::open("/dev/null") {
        taken.push(file);
    }
    // A client that connects now is not accepted; accepting is retried ten times a second and
    // reported once.
    connect(&waiting, &address).unwrap();
    eventually("failures to accept", || {
        (test.statistic("accepts_failed") >= 20).then_some(())
    });
    test.events.extend(test.plane.drain_events(1_000));
    let is_failure =
        |event: &&Event| matches!(event, Event::Notice { event, .. } if *event == "accept_failed");
    let told = test.events.iter().filter(is_failure).count();
    assert!((1..5).contains(&told), "{told}");
    // Each of them needs a new segment, and so new files.
    let record = large_batch(2_000);
    let mut timed_out = 0;
    while timed_out == 0 {
        match client.produce_within(IMPATIENT_MS, "t", 0, &record).0 {
            ErrorCode::NONE => acknowledged += 1,
            error => {
                assert_eq!(error, ErrorCode::REQUEST_TIMED_OUT);
                timed_out += 1;
            }
        }
    }
    let told = test.wait_for_notice("log_dir_waits");
    assert!(told[1].1.contains("open files"), "{told:?}");
    assert_eq!(test.statistic("log_dir_read_only.0"), 0);
    // The volume has as much as before.
    let ticket = test.plane.describe_log_dirs().unwrap();
    match test.ticket(ticket) {
        TicketOutcome::LogDirs(dirs) => {
            assert!(dirs[0].usable_bytes > 0, "{dirs:?}");
            assert!(dirs[0].total_bytes >= dirs[0].usable_bytes);
        }
        other => panic!("{other:?}"),
    }
    drop(taken);
    test.wait_for_notice("log_dir_goes_on");
    // The records of the one that timed out are there as well.
    assert_eq!(
        client.produce("t", 0, &record),
        (ErrorCode::NONE, acknowledged + timed_out)
    );
    assert!(!test.has_told_of_a_disk());
    assert!(test.shutdown(), "the directory is clean");
}
