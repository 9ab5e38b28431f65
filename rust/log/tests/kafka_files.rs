//! Files that Apache Kafka 3.9.1 wrote, decoded and encoded to the same bytes.
//!
//! `fixtures/kafka-3.9.1/adopted-0` is one partition's folder after an orderly shutdown, with
//! `index.interval.bytes=200` and `segment.index.bytes=1200`, so that its log rolled once.
//! librdkafka wrote four records in each codec, then two transactional producers took turns: x
//! aborts while y's transaction is open, x aborts again, y commits, y aborts, x commits. The roll
//! falls between the first records of the two and their markers.

use std::path::{Path, PathBuf};

use pyrklog_log::LogConfig;
use pyrklog_log::batch_info::BatchInfo;
use pyrklog_log::dump::{self, Options, Value};
use pyrklog_log::leader_epochs::LeaderEpochs;
use pyrklog_log::names::{FileKind, file_name};
use pyrklog_log::offset_index::OffsetIndex;
use pyrklog_log::partition_metadata::PartitionMetadata;
use pyrklog_log::producer_state::{Check, Origin, ProducerStates};
use pyrklog_log::record_search::{first_at_or_after, first_with_max_timestamp};
use pyrklog_log::snapshot::{self, ProducerEntry};
use pyrklog_log::time_index::TimeIndex;
use pyrklog_log::transaction_index::{AbortedTxn, TransactionIndex};
use pyrklog_log::validate::{Rules, validate_produce, validate_replica};
use pyrklog_wire::batch::{self, BatchView, Batches, Compression};

const SEGMENTS: [i64; 2] = [0, 22];
const END_OFFSET: i64 = 32;
const INDEX_INTERVAL_BYTES: usize = 200;
const INDEX_BYTES_MAX: usize = 1200;

fn path(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("tests/fixtures/kafka-3.9.1/adopted-0")
        .join(name)
}

fn read(name: &str) -> Vec<u8> {
    std::fs::read(path(name)).unwrap_or_else(|error| panic!("{name}: {error}"))
}

fn segment(base_offset: i64) -> Vec<u8> {
    read(&file_name(base_offset, FileKind::Log))
}

fn batches(bytes: &[u8]) -> Vec<BatchView<'_>> {
    Batches::new(bytes)
        .map(|batch| batch.expect("whole batches"))
        .collect()
}

#[test]
fn dump_finds_no_damage_in_kafkas_files() {
    let mut files = 0;
    for entry in std::fs::read_dir(path("")).expect("the fixture") {
        let path = entry.expect("the fixture").path();
        let options = Options {
            records: true,
            verify: true,
        };
        for row in dump::open(&path, options).expect("a known file") {
            let row = row.expect("readable");
            let fine = row[0].1 != Value::Text("damage".to_owned());
            assert!(fine, "{}: {row:?}", path.display());
        }
        files += 1;
    }
    assert_eq!(files, 11);
}

#[test]
fn indexes_are_rebuilt_to_the_byte() {
    for base_offset in SEGMENTS {
        let bytes = segment(base_offset);
        let mut offsets = OffsetIndex::new(base_offset, INDEX_BYTES_MAX);
        let mut times = TimeIndex::new(base_offset, INDEX_BYTES_MAX);
        let (mut since_entry, mut largest) = (0, (-1, base_offset));
        for view in batches(&bytes) {
            let header = view.header;
            if header.max_timestamp > largest.0 {
                largest = (header.max_timestamp, header.last_offset());
            }
            if since_entry > INDEX_INTERVAL_BYTES {
                offsets
                    .append(header.last_offset(), view.position as u32)
                    .expect("rises");
                times
                    .maybe_append(largest.0, largest.1, false)
                    .expect("rises");
                since_entry = 0;
            }
            since_entry += view.bytes.len();
        }
        times
            .maybe_append(largest.0, largest.1, true)
            .expect("rises");
        assert_eq!(
            offsets.as_bytes(),
            read(&file_name(base_offset, FileKind::OffsetIndex))
        );
        assert_eq!(
            times.as_bytes(),
            read(&file_name(base_offset, FileKind::TimeIndex))
        );
        let loaded =
            OffsetIndex::load(base_offset, 1 << 20, offsets.as_bytes(), bytes.len() as u64);
        assert_eq!(loaded.expect("passes the check").len(), offsets.len());
    }
}

/// Without what Kafka does not write.
fn as_kafka(states: &ProducerStates) -> Vec<ProducerEntry> {
    let mut entries = states.snapshot_entries();
    for entry in &mut entries {
        entry.first_sequence = -1;
    }
    entries
}

#[test]
fn snapshots_and_aborted_transactions_are_rebuilt_to_the_byte() {
    let mut states = ProducerStates::new();
    let mut aborted = TransactionIndex::new(SEGMENTS[1]);
    let mut stable = Vec::new();
    for base_offset in SEGMENTS {
        if base_offset > 0 {
            let name = file_name(base_offset, FileKind::Snapshot);
            assert_eq!(snapshot::encode(&as_kafka(&states)), read(&name));
        }
        for view in batches(&segment(base_offset)) {
            let info = BatchInfo::parse(view.bytes).expect("a good batch");
            assert_eq!(states.check(&info, Origin::Coordinator).map(drop), Ok(()));
            if let Some(txn) = states.update(&info, info.base_offset, None) {
                aborted.append(txn).expect("rises");
            }
            stable.push(states.first_open().map(|start| start.first_offset));
        }
    }
    let name = file_name(END_OFFSET, FileKind::Snapshot);
    assert_eq!(snapshot::encode(&as_kafka(&states)), read(&name));
    assert_eq!(
        aborted.to_bytes(),
        read(&file_name(SEGMENTS[1], FileKind::TransactionIndex))
    );
    // Five plain batches; x, y; x aborts, begins, aborts again; y goes on, commits; then one by one.
    let (x, y) = (Some(20), Some(21));
    let expected = [
        None,
        None,
        None,
        None,
        None,
        x,
        x,
        y,
        y,
        y,
        y,
        None,
        Some(27),
        None,
    ];
    assert_eq!(stable[..expected.len()], expected);
    assert_eq!(stable.last(), Some(&None));
}

#[test]
fn a_consumer_of_committed_data_learns_of_the_aborted() {
    let bytes = read(&file_name(SEGMENTS[1], FileKind::TransactionIndex));
    let index = TransactionIndex::load(SEGMENTS[1], &bytes).expect("as Kafka wrote it");
    let first_offsets = |from, to| {
        let mut found = Vec::new();
        index.collect(from, to, usize::MAX, &mut found);
        found
            .iter()
            .map(|txn: &AbortedTxn| txn.first_offset)
            .collect::<Vec<_>>()
    };
    assert_eq!(first_offsets(0, END_OFFSET), [20, 23, 27]);
    assert_eq!(first_offsets(0, 21), [20]);
    assert_eq!(first_offsets(23, 27), [23]);
    assert_eq!(first_offsets(26, 27), Vec::<i64>::new());
    assert_eq!(first_offsets(28, END_OFFSET), [27]);
}

#[test]
fn a_snapshot_recognises_the_last_batch_of_each_producer() {
    let entries = snapshot::decode(&read(&file_name(SEGMENTS[1], FileKind::Snapshot)));
    let mut states = ProducerStates::new();
    states.load(
        &entries.expect("as Kafka wrote it"),
        1_700_000_100_000,
        86_400_000,
    );
    assert_eq!(
        states.first_unstable().map(|start| start.first_offset),
        Some(20)
    );
    for view in batches(&segment(SEGMENTS[0])) {
        let info = BatchInfo::parse(view.bytes).expect("a good batch");
        match states.check(&info, Origin::Client) {
            Ok(Check::Duplicate(original)) => assert_eq!(original.base_offset, info.base_offset),
            other => panic!("{other:?}"),
        }
    }
}

#[test]
fn batches_that_kafka_stored_pass_validation() {
    let mut codecs = Vec::new();
    for base_offset in SEGMENTS {
        for view in batches(&segment(base_offset)) {
            assert!(validate_replica(view.bytes).is_ok());
            if view.header.is_control() {
                continue;
            }
            codecs.push(view.header.compression().expect("known"));
            let mut sent = view.bytes.to_vec();
            batch::set_base_offset(&mut sent, 0);
            batch::set_partition_leader_epoch(&mut sent, -1);
            let before = sent.clone();
            let rules = Rules::new(&LogConfig::default(), 11);
            let validated = validate_produce(&mut sent, &rules, 0).expect("a good batch");
            assert_eq!(validated.info.max_timestamp, view.header.max_timestamp);
            assert_eq!((validated.rewritten, sent), (None, before));
        }
    }
    let all = [
        Compression::None,
        Compression::Gzip,
        Compression::Snappy,
        Compression::Lz4,
        Compression::Zstd,
    ];
    assert_eq!(codecs[..5], all);
}

#[test]
fn times_are_found_inside_compressed_batches() {
    let bytes = segment(0);
    for (i, view) in (0..5).zip(batches(&bytes)) {
        let start = 1_700_000_000_000 + i * 1000;
        let found = first_at_or_after(view.bytes, start + 2, 0);
        assert_eq!(found, Ok(Some((i * 4 + 2, start + 2))));
        let found = first_with_max_timestamp(view.bytes);
        assert_eq!(found, Ok(Some((i * 4 + 3, start + 3))));
    }
}

#[test]
fn the_folders_own_files_are_written_to_the_byte() {
    let bytes = read("leader-epoch-checkpoint");
    let epochs = LeaderEpochs::parse("leader-epoch-checkpoint", &bytes).expect("as written");
    assert_eq!(epochs.encode().as_bytes(), bytes);
    assert_eq!(epochs.end_offset_for(0, END_OFFSET), (0, END_OFFSET));
    let bytes = read("partition.metadata");
    let metadata = PartitionMetadata::parse("partition.metadata", &bytes).expect("as written");
    assert_eq!(metadata.encode().as_bytes(), bytes);
}
