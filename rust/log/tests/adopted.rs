//! Opens a folder that Kafka 3.9.1 wrote: nothing is lost, and every rewritten file is one that
//! Kafka recognises. `tests/fixtures/kafka-3.9.1` says how it was made.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use crate::common::batch;
use pyrklog_log::snapshot;
use pyrklog_log::{
    BatchInfo, Isolation, Log, LogConfig, LogEnv, OpenReport, OpenRequest, OpenState, Origin,
    RealDisk, TimeSpec, Wait,
};
use pyrklog_wire::batch::Batches;

fn config() -> LogConfig {
    LogConfig {
        segment_bytes: 1_200,
        index_interval_bytes: 200,
        segment_index_bytes: 1_200,
        ..LogConfig::default()
    }
}

/// A writable copy of the fixture.
struct Adopted {
    directory: tempfile::TempDir,
}

impl Adopted {
    fn new() -> Self {
        let fixture =
            Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures/kafka-3.9.1/adopted-0");
        let directory = tempfile::tempdir().unwrap();
        let folder = directory.path().join("adopted-0");
        std::fs::create_dir(&folder).unwrap();
        for entry in std::fs::read_dir(fixture).unwrap() {
            let entry = entry.unwrap();
            std::fs::copy(entry.path(), folder.join(entry.file_name())).unwrap();
        }
        Self { directory }
    }

    fn folder(&self) -> PathBuf {
        self.directory.path().join("adopted-0")
    }

    fn open(&self, clean: bool) -> (Log, OpenReport) {
        Log::open(OpenRequest {
            env: LogEnv::new(Arc::new(RealDisk), 16),
            log_dir: self.directory.path(),
            topic: "adopted",
            partition: 0,
            topic_id: None,
            config: Arc::new(config()),
            state: OpenState {
                clean,
                high_watermark: 32,
                ..OpenState::default()
            },
            now_ms: 1_700_000_000_000,
            producer_id_expiration_ms: i64::MAX,
        })
        .unwrap()
    }

    fn files(&self) -> BTreeMap<String, Vec<u8>> {
        let entries = std::fs::read_dir(self.folder())
            .unwrap()
            .map(Result::unwrap);
        entries
            .map(|entry| {
                let name = entry.file_name().into_string().unwrap();
                (name, std::fs::read(entry.path()).unwrap())
            })
            .collect()
    }
}

fn offsets(log: &Log, isolation: Isolation) -> Vec<(i64, i64)> {
    let mut found = Vec::new();
    let mut offset = log.log_start_offset();
    loop {
        let location = log.locate(offset, isolation).unwrap();
        let slice = location.resolve(1 << 20, true, Wait::Blocking).unwrap();
        let bytes = crate::common::bytes(&slice);
        let before = found.len();
        for view in Batches::new(&bytes) {
            let header = view.unwrap().header;
            found.push((header.base_offset, header.last_offset()));
            offset = header.next_offset();
        }
        if found.len() == before {
            return found;
        }
    }
}

#[test]
fn a_clean_folder_is_opened_and_left_as_it_was() {
    let adopted = Adopted::new();
    let before = adopted.files();
    let (mut log, report) = adopted.open(true);
    assert_eq!(report, OpenReport::default());
    assert_eq!((log.log_start_offset(), log.log_end_offset()), (0, 32));
    assert_eq!((log.high_watermark(), log.last_stable_offset()), (32, 32));
    let found = offsets(&log, Isolation::Committed);
    assert_eq!((found[0].0, found.last().unwrap().1), (0, 31));
    assert!(found.windows(2).all(|pair| pair[1].0 == pair[0].1 + 1));
    log.close_cleanly().unwrap();
    assert_eq!(adopted.files(), before);
}

#[test]
fn recovery_rebuilds_kafkas_indexes_and_snapshots() {
    let adopted = Adopted::new();
    let before = adopted.files();
    for name in before.keys() {
        if name.ends_with("index") || name.ends_with("snapshot") {
            std::fs::write(adopted.folder().join(name), b"damaged").unwrap();
        }
    }
    let (mut log, report) = adopted.open(false);
    assert_eq!((report.recovered_segments, report.truncated_bytes), (2, 0));
    assert_eq!((log.log_end_offset(), log.last_stable_offset()), (32, 32));
    log.close_cleanly().unwrap();
    let mut after = adopted.files();
    let snapshot = after.get_mut("00000000000000000032.snapshot").unwrap();
    let mut entries = snapshot::decode(snapshot).unwrap();
    assert_eq!(entries.last().unwrap().first_sequence, 0, "all were walked");
    for entry in &mut entries {
        entry.first_sequence = -1;
    }
    *snapshot = snapshot::encode(&entries);
    assert!(
        after == before,
        "to the byte, but for what Kafka does not write"
    );
}

#[test]
fn aborted_transactions_are_known_and_the_log_goes_on() {
    let adopted = Adopted::new();
    let (mut log, _) = adopted.open(true);
    let aborted = |log: &Log, offset| {
        let location = log.locate(offset, Isolation::Committed).unwrap();
        let slice = location.resolve(1 << 20, true, Wait::Blocking).unwrap();
        let found = log.aborted_transactions(&slice).unwrap().unwrap();
        found.iter().map(|txn| txn.first_offset).collect::<Vec<_>>()
    };
    assert_eq!(aborted(&log, 20), [20], "the first segment ends at 22");
    assert_eq!(aborted(&log, 22), [20, 23, 27]);
    assert_eq!(aborted(&log, 26), [27]);
    assert_eq!(aborted(&log, 29), [] as [i64; 0]);
    let mut sent = batch(1_700_000_000_001, &["ours"]);
    let info = BatchInfo::parse(&sent).unwrap();
    let appended = log
        .append(&mut sent, &info, Origin::Client, 1, 1_700_000_000_001)
        .unwrap();
    assert_eq!(appended.base_offset, 32);
    let mut job = log.take_writes().unwrap();
    let result = job.execute();
    log.complete_writes(job, result);
    drop(log);
    let (log, report) = adopted.open(false);
    assert_eq!(report.truncated_bytes, 0);
    assert_eq!(log.log_end_offset(), 33);
    assert_eq!(log.end_offset_for_epoch(0), (0, 32));
    assert_eq!(aborted(&log, 22), [20, 23, 27]);
}

#[test]
fn times_are_found_in_kafkas_indexes() {
    let adopted = Adopted::new();
    let (log, _) = adopted.open(true);
    let ask = |spec| {
        let query = log.offset_for_time(spec, Isolation::HighWatermark);
        query.resolve(Wait::Blocking).unwrap()
    };
    assert_eq!(ask(TimeSpec::At(0)).unwrap().offset, 0);
    let largest = ask(TimeSpec::MaxTimestamp).unwrap();
    assert_eq!(ask(TimeSpec::At(largest.timestamp)).unwrap(), largest);
    assert_eq!(ask(TimeSpec::At(largest.timestamp + 1)), None);
}
