//! Two log directories, a partition `t-0` that moves between them, and a producer that knows what
//! was acknowledged.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use pyrklog_dataplane::seam::*;
use pyrklog_log::disk::RealDisk;
use pyrklog_wire::ErrorCode;
use pyrklog_wire::batch::Batches;

use super::{Client, TestPlane, batch, cache, config, eventually};

/// Two log directories, `a` and `b`.
pub fn two(dir: &Path) -> PlaneConfig {
    config(vec![dir.join("a"), dir.join("b")])
}

pub fn two_cached(dir: &Path) -> PlaneConfig {
    let mut config = two(dir);
    config.cache = cache(&config.log_dirs);
    config
}

pub fn start(config: &PlaneConfig) -> TestPlane {
    TestPlane::start_with(config.clone(), Arc::new(RealDisk))
}

/// Names of the folders of partitions in a directory.
pub fn folders(dir: &Path) -> Vec<String> {
    let entries = fs::read_dir(dir).unwrap().map(Result::unwrap);
    let folders = entries.filter(|entry| entry.path().is_dir());
    let mut names: Vec<String> = folders
        .map(|entry| entry.file_name().to_string_lossy().into_owned())
        .collect();
    names.sort();
    names
}

pub fn is_in(dir: &Path, name: &str) -> bool {
    folders(dir).iter().any(|folder| folder == name)
}

pub fn alter(test: &TestPlane, topic: &str, index: i32, to: &Path) -> i16 {
    let wanted = [(topic.to_owned(), index, to.to_string_lossy().into_owned())];
    test.plane.alter_log_dirs(&wanted).unwrap()[0]
}

/// Where the partition is, whatever else there is.
pub fn place(dir: &Path) -> &'static str {
    match (is_in(&dir.join("a"), "t-0"), is_in(&dir.join("b"), "t-0")) {
        (true, false) => "a",
        (false, true) => "b",
        both => panic!("{both:?}"),
    }
}

pub fn append(test: &TestPlane, count: usize) {
    let mut client = test.client();
    for _ in 0..count {
        eventually("an append", || {
            match client.produce("t", 0, &batch(&[b"value"])) {
                (ErrorCode::NONE, _) => Some(()),
                // The log is held.
                (ErrorCode::NOT_LEADER_OR_FOLLOWER, _) => None,
                (error, _) => panic!("{error:?}"),
            }
        });
    }
}

/// (offset, bytes) of all batches.
pub fn read(test: &TestPlane) -> Vec<(i64, Vec<u8>)> {
    let mut client = test.client();
    let mut found = Vec::new();
    let mut next = client.fetch_one("t", 0, 0);
    if next.error == ErrorCode::OFFSET_OUT_OF_RANGE {
        next = client.fetch_one("t", 0, next.log_start_offset.max(0));
    }
    loop {
        assert_eq!(
            next.error,
            ErrorCode::NONE,
            "{next:?} behind {:?}",
            offsets(&found).last()
        );
        let before = found.len();
        for view in Batches::new(&next.records).map_while(Result::ok) {
            found.push((view.header.base_offset, view.bytes.to_vec()));
        }
        if found.len() == before {
            return found;
        }
        let (last, bytes) = found.last().unwrap();
        let records = Batches::new(bytes).next().unwrap().unwrap();
        let end = records.header.last_offset() + 1;
        assert!(end > *last);
        next = client.fetch_one("t", 0, end);
    }
}

pub fn offsets(found: &[(i64, Vec<u8>)]) -> Vec<i64> {
    found.iter().map(|(offset, _)| *offset).collect()
}

/// (topic, partition, bytes, lag, whether it is a copy).
pub type Described = (String, i32, i64, i64, bool);

pub fn described(test: &mut TestPlane) -> Vec<(PathBuf, Vec<Described>)> {
    let ticket = test.plane.describe_log_dirs().unwrap();
    match test.ticket(ticket) {
        TicketOutcome::LogDirs(dirs) => dirs
            .into_iter()
            .map(|dir| (dir.path, dir.partitions))
            .collect(),
        other => panic!("{other:?}"),
    }
}

/// Produces until told to stop or the disk is gone; returns the acknowledged batches.
pub fn produce_until(port: u16, stop: &AtomicBool) -> Vec<(i64, Vec<u8>)> {
    let mut acknowledged = Vec::new();
    let mut client = Client::connect(port);
    let mut number = 0_u64;
    while !stop.load(Ordering::Relaxed) {
        let mut value = number.to_be_bytes().to_vec();
        value.resize(500, b'x');
        let sent = batch(&[&value]);
        match client.produce("t", 0, &sent) {
            (ErrorCode::NONE, offset) => {
                acknowledged.push((offset, value));
                number += 1;
            }
            // The log is held.
            (ErrorCode::NOT_LEADER_OR_FOLLOWER, _) => {}
            (ErrorCode::KAFKA_STORAGE_ERROR, _) => break,
            (error, _) => panic!("{error:?}"),
        }
    }
    acknowledged
}

/// Every acknowledged value is where it was said to be.
pub fn check_acknowledged(test: &TestPlane, acknowledged: &[(i64, Vec<u8>)]) {
    let found = read(test);
    for (offset, value) in acknowledged {
        let at = found.binary_search_by_key(offset, |(base, _)| *base);
        let (_, bytes) = &found[at.unwrap_or_else(|_| panic!("{offset} is lost"))];
        let is_it = bytes.windows(value.len()).any(|window| window == value);
        assert!(is_it, "another record is at {offset}");
    }
}
