//! Volumes that fill up.

use std::path::Path;
use std::sync::Arc;

use super::*;
use pyrklog_log::disk::RealDisk;
use pyrklog_log::disk::testing::FaultyDisk;
use pyrklog_wire::ErrorCode;

/// With a block cache whose writer leaves records there until asked, and a low limit of unwritten
/// bytes, so that the reserve is small.
pub fn cached(dir: &Path) -> PlaneConfig {
    let mut config = config(vec![dir.join("logs")]);
    config.cache = cache(&config.log_dirs);
    // Longer than a busy machine keeps a network thread from acknowledging.
    config.cache.flush_ms = 300;
    config.unwritten_max_bytes = Some(1 << 20);
    config
}

pub fn faulty() -> FaultyDisk {
    FaultyDisk::new(Arc::new(RealDisk))
}

pub fn start(config: &PlaneConfig, disk: &FaultyDisk) -> TestPlane {
    TestPlane::start_with(config.clone(), Arc::new(disk.clone()))
}

pub fn high_watermark(test: &TestPlane, topic: &str) -> i64 {
    let fetched = test.client().fetch_one(topic, 0, 0);
    assert_eq!(fetched.error, ErrorCode::NONE);
    fetched.high_watermark
}

pub fn becomes(test: &TestPlane, name: &str, value: u64) {
    eventually(name, || (test.statistic(name) == value).then_some(()));
}
