//! Compaction by the threads of a plane (compaction.md).

use std::fs;
use std::path::Path;

use crate::harness::moving::start;
use crate::harness::*;
use pyrklog_dataplane::seam::TopicConfig;
use pyrklog_log::LogConfig;
use pyrklog_wire::ErrorCode;
use pyrklog_wire::builder::BatchBuilder;

const RECORDS: i64 = 300;

/// Compacted as soon as anything is dirty.
fn compacted() -> TopicConfig {
    TopicConfig {
        log: LogConfig {
            cleanup_compact: true,
            cleanup_delete: false,
            segment_bytes: 16_384,
            min_cleanable_dirty_ratio: 0.01,
            ..LogConfig::default()
        },
        ..topic_config()
    }
}

/// With one of five keys each.
fn append_keys(test: &TestPlane) {
    let mut client = test.client();
    for number in 0..RECORDS {
        let mut builder = BatchBuilder::new();
        let key = (number % 5).to_be_bytes();
        builder.append(1_700_000_000_000, Some(&key), Some(&[b'v'; 200]));
        let (error, _) = client.produce("t", 0, &builder.build());
        assert_eq!(error, ErrorCode::NONE);
    }
}

/// The offset of the partition's row.
fn cleaned_end(checkpoint: &Path) -> i64 {
    let text = fs::read_to_string(checkpoint).unwrap();
    let row = text.lines().find_map(|line| line.strip_prefix("t 0 "));
    row.unwrap().parse().unwrap()
}

/// Such a row is of another log of this name, so everything is dirty. If the row stayed, everything
/// would be after each compaction, too.
#[test]
fn a_row_beyond_the_logs_end_is_lowered() {
    let dir = tempfile::tempdir().unwrap();
    let mut config = config(vec![dir.path().join("logs")]);
    config.cleaner.backoff_ms = 20;
    config.cleaner.is_enabled = false;
    let mut test = start(&config);
    assert_eq!(test.lead("t", 1, &compacted()), [0]);
    append_keys(&test);
    assert!(test.shutdown());
    let checkpoint = dir.path().join("logs/cleaner-offset-checkpoint");
    fs::write(&checkpoint, "0\n1\nt 0 1000000\n").unwrap();
    config.cleaner.is_enabled = true;
    let mut test = start(&config);
    assert_eq!(test.lead("t", 1, &compacted()), [0]);
    test.wait_for_notice("log_cleaned");
    let end = cleaned_end(&checkpoint);
    assert!((1..=RECORDS).contains(&end), "{end}");
    assert!(test.shutdown());
}
