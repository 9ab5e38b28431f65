//! Brokers that keep their cache; numbered batches; how much is read from memory.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;

use pyrklog_dataplane::seam::PlaneConfig;
use pyrklog_log::disk::{Disk, RealDisk};
use pyrklog_wire::ErrorCode;

use super::*;

pub const MIB: u64 = 1 << 20;
pub const BATCH_BYTES: usize = 20_000;

/// A broker that keeps its cache, with log directory `dir/NAME`.
pub fn config_of(dir: &Path, name: &str) -> PlaneConfig {
    let mut config = config(vec![dir.join(name)]);
    config.cache = cache(&config.log_dirs);
    config.cache.keeps = true;
    config
}

pub fn keeping(dir: &Path) -> PlaneConfig {
    config_of(dir, "logs")
}

pub fn start(config: &PlaneConfig) -> TestPlane {
    start_on(config, Arc::new(RealDisk))
}

pub fn start_on(config: &PlaneConfig, disk: Arc<dyn Disk>) -> TestPlane {
    TestPlane::start_with(config.clone(), disk)
}

pub fn arenas(dir: &Path) -> Vec<PathBuf> {
    let entries = fs::read_dir(dir)
        .unwrap()
        .map(|entry| entry.unwrap().path());
    entries
        .filter(|path| path.extension().is_some_and(|kind| kind == "arena"))
        .collect()
}

pub fn marker(dir: &Path) -> String {
    fs::read_to_string(dir.join("logs/.pyrklog-arena")).unwrap_or_default()
}

pub fn is_kept(dir: &Path) -> bool {
    marker(dir).starts_with("version=2\n")
}

pub fn append(test: &TestPlane, topic: &str, from: i64, count: i64) {
    let mut client = test.client();
    for offset in from..from + count {
        let value = vec![offset as u8; BATCH_BYTES];
        let produced = client.produce(topic, 0, &batch(&[&value]));
        assert_eq!(produced, (ErrorCode::NONE, offset));
    }
}

/// Reads a topic from its first offset to the end: each batch must have its number.
pub fn read_all(test: &TestPlane, topic: &str, end: i64) {
    let mut client = test.client();
    let mut offset = 0;
    while offset < end {
        let fetched = client.fetch_one(topic, 0, offset);
        assert_eq!(
            (fetched.error, fetched.high_watermark),
            (ErrorCode::NONE, end)
        );
        let records = &fetched.records;
        let mut at = 0;
        while at + 12 <= records.len() {
            let size = i32::from_be_bytes(records[at + 8..at + 12].try_into().unwrap());
            let next = at + 12 + size as usize;
            if next > records.len() {
                break;
            }
            let base = i64::from_be_bytes(records[at..at + 8].try_into().unwrap());
            assert_eq!(base, offset);
            assert_eq!(records[next - 100], offset as u8, "{topic} at {offset}");
            offset += 1;
            at = next;
        }
        assert!(at > 0, "no progress at {offset}");
    }
}

/// Reads all of a topic; returns the bytes from the cache, and all bytes.
pub fn read_counted(test: &TestPlane, topic: &str, end: i64) -> (u64, u64) {
    let counts = || {
        let all = test.plane.statistics();
        let fetched = all
            .iter()
            .filter(|(name, _)| name.starts_with("fetched_bytes."));
        let sum: u64 = fetched.map(|(_, bytes)| bytes).sum();
        (test.statistic("fetched_bytes.cached"), sum)
    };
    let before = counts();
    read_all(test, topic, end);
    // A reply is counted after it was sent.
    let after = eventually("counting what was fetched", || {
        let after = counts();
        let least = end as u64 * BATCH_BYTES as u64;
        (after.1 - before.1 >= least).then_some(after)
    });
    (after.0 - before.0, after.1 - before.1)
}

pub fn is_all_cached(test: &TestPlane, topic: &str, end: i64) -> bool {
    let (cached, all) = read_counted(test, topic, end);
    cached == all
}

/// A broker that ended in order; returns the number of batches in each topic.
pub fn ended(config: &PlaneConfig, topics: &[&str]) -> i64 {
    let mut test = start(config);
    for topic in topics {
        test.create(topic, 1);
        append(&test, topic, 0, 40);
    }
    assert!(test.shutdown());
    40
}

pub fn again(config: &PlaneConfig, topics: &[&str]) -> TestPlane {
    let mut test = start(config);
    for topic in topics {
        assert_eq!(test.lead(topic, 1, &topic_config()), [0]);
    }
    test
}

pub fn is_unclean(dir: &Path) -> bool {
    dir.join("logs/.pyrklog-unclean").exists()
}

/// Changes bytes of a file, but neither its length nor its `mtime`.
pub fn forge(path: &Path) {
    let mut content = fs::read(path).unwrap();
    let first = i32::from_be_bytes(content[8..12].try_into().unwrap()) as usize + 12;
    let mut head = batch(&[&vec![77; BATCH_BYTES]]);
    head[12..16].copy_from_slice(&content[12..16]);
    assert_eq!(head.len(), first);
    content[..first].copy_from_slice(&head);
    let times = fs::metadata(path).unwrap().modified().unwrap();
    let file = fs::File::options().write(true).open(path).unwrap();
    std::os::unix::fs::FileExt::write_all_at(&file, &content, 0).unwrap();
    file.set_modified(times).unwrap();
}

pub fn copy(dir: &Path, from: &str, to: &str) {
    let copied = Command::new("cp")
        .arg("-a")
        .arg(dir.join(from))
        .arg(dir.join(to))
        .status();
    assert!(copied.unwrap().success());
}
