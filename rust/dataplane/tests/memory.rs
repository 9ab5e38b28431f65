//! A whole plane's memory for produced records.

use std::path::Path;

use crate::harness::*;
use pyrklog_dataplane::seam::PlaneConfig;
use pyrklog_log::disk::RealDisk;
use pyrklog_wire::ErrorCode;
use std::sync::Arc;

const MIB: u64 = 1 << 20;
const BATCH_BYTES: usize = 500_000;

fn cached(dir: &Path, max_bytes: u64) -> PlaneConfig {
    let mut config = config(vec![dir.join("logs")]);
    config.cache = cache(&config.log_dirs);
    config.cache.max_bytes = Some(max_bytes);
    config
}

/// Produces `count` batches as fast as one client can; returns their bytes.
fn fill(test: &TestPlane, topic: &str, from: i64, count: i64) -> u64 {
    let mut client = test.client();
    let batch = large_batch(BATCH_BYTES);
    for offset in from..from + count {
        let produced = client.produce(topic, 0, &batch);
        assert_eq!(produced, (ErrorCode::NONE, offset));
    }
    count as u64 * batch.len() as u64
}

fn read_all(test: &TestPlane, topic: &str, end: i64) {
    let mut client = test.client();
    for offset in 0..end {
        assert_eq!(client.fetch_one(topic, 0, offset).error, ErrorCode::NONE);
    }
}

#[test]
fn records_stay_in_memory_from_the_first_on() {
    let dir = tempfile::tempdir().unwrap();
    let test_config = cached(dir.path(), 512 * MIB);
    let mut test = TestPlane::start_with(test_config, Arc::new(RealDisk));
    test.create("t", 1);
    let bytes = fill(&test, "t", 0, 300);
    eventually("writing all", || {
        (test.statistic("unwritten_bytes") == 0).then_some(())
    });
    assert_eq!(test.statistic("cache_appended_bytes"), bytes);
    assert_eq!(test.statistic("cache_held_bytes"), bytes);
    assert_eq!(test.statistic("cache_chunks_reclaimed"), 0);
    let populated = test.statistic("cache_populated_bytes");
    assert!(populated <= bytes * 115 / 100 + 16 * MIB, "{populated}");
    let cached = test.statistic("fetched_bytes.cached");
    read_all(&test, "t", 300);
    let read = test.statistic("fetched_bytes.cached") - cached;
    assert!(read >= bytes, "{read} of {bytes}");
}

#[test]
fn topics_that_come_and_go_take_no_more_memory_each_time() {
    let dir = tempfile::tempdir().unwrap();
    let test_config = cached(dir.path(), 512 * MIB);
    let mut test = TestPlane::start_with(test_config, Arc::new(RealDisk));
    let mut populated = Vec::new();
    for run in 0..8 {
        let topics: Vec<String> = (0..4).map(|number| format!("t{run}-{number}")).collect();
        for topic in &topics {
            test.create(topic, 1);
            fill(&test, topic, 0, 20);
        }
        for topic in &topics {
            assert_eq!(test.delete(topic, 1), [0]);
        }
        eventually("nothing of them is held", || {
            (test.statistic("cache_held_bytes") == 0).then_some(())
        });
        populated.push(test.statistic("cache_populated_bytes"));
    }
    // How much of one run is still unwritten when the next begins is a matter of time. If nothing
    // were reused, the last would have eight times the first.
    assert!(populated[7] <= populated[0] * 3 / 2, "{populated:?}");
}
