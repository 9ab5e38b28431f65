//! The rows of the small files: snapshots, checkpoints, properties.

use std::io;

use super::{Row, RowSource, Source, Value, damage, flipped_bit, read_whole};
use crate::checkpoint::{self, CheckpointError};
use crate::leader_epochs;
use crate::meta_properties::{MetaProperties, parse_properties};
use crate::names::FileKind;
use crate::partition_metadata::{PartitionMetadata, encode_uuid};
use crate::snapshot::{self, ProducerEntry, SnapshotError};

/// Position of a snapshot's checksum, and of the first byte it covers.
const SNAPSHOT_CRC_AT: u64 = 2;
const SNAPSHOT_CRC_START: usize = 6;

pub(super) fn open(
    kind: FileKind,
    path: &str,
    file: &dyn Source,
) -> io::Result<Box<dyn RowSource>> {
    let bytes = read_whole(file)?;
    let rows = match kind {
        FileKind::Snapshot => snapshot_rows(&bytes),
        FileKind::LeaderEpochs => epoch_rows(path, &bytes),
        FileKind::OffsetCheckpoint => offset_rows(path, &bytes),
        FileKind::MetaProperties => meta_rows(path, &bytes),
        FileKind::PartitionMetadata => metadata_rows(path, &bytes),
        FileKind::CleanShutdown => clean_shutdown_rows(&bytes),
        FileKind::Log
        | FileKind::OffsetIndex
        | FileKind::TimeIndex
        | FileKind::TransactionIndex
        | FileKind::Lock => Vec::new(),
    };
    Ok(Box::new(rows))
}

fn property(key: impl Into<String>, value: Value) -> Row {
    vec![
        ("kind", Value::text("property")),
        ("key", Value::text(key)),
        ("value", value),
    ]
}

fn snapshot_rows(bytes: &[u8]) -> Vec<Row> {
    match snapshot::decode(bytes) {
        Ok(entries) => entries.iter().map(producer_row).collect(),
        Err(SnapshotError::CrcMismatch { stored, computed }) => {
            let where_it_is = flipped_bit::explain(
                stored,
                computed,
                SNAPSHOT_CRC_START as u64,
                bytes.len() - SNAPSHOT_CRC_START,
                SNAPSHOT_CRC_AT,
            );
            let error = SnapshotError::CrcMismatch { stored, computed };
            vec![damage(
                SNAPSHOT_CRC_AT,
                None,
                format!("{error}; {where_it_is}"),
            )]
        }
        Err(error) => vec![damage(0, None, error.to_string())],
    }
}

fn producer_row(entry: &ProducerEntry) -> Row {
    let open = (entry.current_txn_first_offset >= 0).then_some(entry.current_txn_first_offset);
    vec![
        ("kind", Value::text("producer")),
        ("producer_id", Value::Int(entry.producer_id)),
        ("producer_epoch", Value::Int(entry.epoch.into())),
        ("last_sequence", Value::Int(entry.last_sequence.into())),
        ("last_offset", Value::Int(entry.last_offset)),
        ("offset_delta", Value::Int(entry.offset_delta.into())),
        ("timestamp_ms", Value::Int(entry.timestamp)),
        (
            "coordinator_epoch",
            Value::Int(entry.coordinator_epoch.into()),
        ),
        ("current_txn_first_offset", Value::int(open)),
    ]
}

/// Byte position of a line, from 1.
fn line_start(bytes: &[u8], line: usize) -> u64 {
    let lines = bytes.split_inclusive(|byte| *byte == b'\n');
    lines
        .take(line.saturating_sub(1))
        .map(|line| line.len() as u64)
        .sum()
}

fn checkpoint_damage(bytes: &[u8], error: &CheckpointError) -> Row {
    let message = format!("line {}: {}", error.line, error.reason);
    damage(line_start(bytes, error.line), None, message)
}

fn epoch_rows(path: &str, bytes: &[u8]) -> Vec<Row> {
    let entries = match leader_epochs::parse_entries(path, bytes) {
        Ok(entries) => entries,
        Err(error) => return vec![checkpoint_damage(bytes, &error)],
    };
    let mut rows = Vec::new();
    for (i, entry) in entries.iter().enumerate() {
        rows.push(vec![
            ("kind", Value::text("epoch")),
            ("epoch", Value::Int(entry.epoch.into())),
            ("start_offset", Value::Int(entry.start_offset)),
        ]);
        let contradicted = i.checked_sub(1).map(|i| entries[i]).filter(|before| {
            entry.epoch <= before.epoch || entry.start_offset <= before.start_offset
        });
        if let Some(before) = contradicted {
            let message = format!(
                "epoch {} at offset {} does not rise above epoch {} at offset {}",
                entry.epoch, entry.start_offset, before.epoch, before.start_offset
            );
            let position = line_start(bytes, i + 3);
            rows.push(damage(position, Some(entry.start_offset), message));
        }
    }
    rows
}

fn offset_rows(path: &str, bytes: &[u8]) -> Vec<Row> {
    match checkpoint::parse_offsets(path, bytes) {
        Err(error) => vec![checkpoint_damage(bytes, &error)],
        Ok(entries) => entries
            .into_iter()
            .map(|entry| {
                vec![
                    ("kind", Value::text("checkpoint_entry")),
                    ("topic", Value::Text(entry.topic)),
                    ("partition", Value::Int(entry.partition.into())),
                    ("offset", Value::Int(entry.offset)),
                ]
            })
            .collect(),
    }
}

fn meta_rows(path: &str, bytes: &[u8]) -> Vec<Row> {
    let mut rows: Vec<Row> = match parse_properties(bytes) {
        Ok(properties) => properties
            .into_iter()
            .map(|(key, value)| property(key, Value::Text(value)))
            .collect(),
        Err(reason) => return vec![damage(0, None, reason)],
    };
    if let Err(error) = MetaProperties::parse(path, bytes) {
        rows.push(damage(0, None, error.reason));
    }
    rows
}

fn metadata_rows(path: &str, bytes: &[u8]) -> Vec<Row> {
    match PartitionMetadata::parse(path, bytes) {
        Ok(metadata) => vec![
            property("version", Value::Int(metadata.version.into())),
            property("topic_id", Value::Text(encode_uuid(&metadata.topic_id))),
        ],
        Err(error) => {
            let message = format!("line {}: {}", error.line, error.reason);
            vec![damage(line_start(bytes, error.line), None, message)]
        }
    }
}

fn clean_shutdown_rows(bytes: &[u8]) -> Vec<Row> {
    let epoch = checkpoint::parse_clean_shutdown(bytes);
    vec![property("broker_epoch", Value::int(epoch))]
}
