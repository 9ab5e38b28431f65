//! The rows of one batch: its header, its records, and their damage.

use std::collections::VecDeque;

use pyrklog_wire::DecodeError;
use pyrklog_wire::batch::{
    BatchHeader, CRC_START, HEADER_LEN, NO_TIMESTAMP, TimestampType, compute_crc,
};
use pyrklog_wire::records::{Record, Records};

use super::{Options, Row, Value, damage, flipped_bit};
use crate::compression::with_decompressed;
use crate::producer_state::marker::{ControlType, EndTxnMarker};

const CRC_AT: u64 = 17;
const EXPANDED_BYTES_MAX: usize = 256 << 20;

/// Adds the rows of a whole batch at `position`; true if its checksum is right.
pub(super) fn add(
    rows: &mut VecDeque<Row>,
    position: u64,
    header: &BatchHeader,
    batch: &[u8],
    options: Options,
) -> bool {
    let computed = compute_crc(batch);
    rows.push_back(batch_row(position, header, computed));
    if computed != header.crc {
        rows.push_back(crc_damage(position, header, computed, batch.len()));
        // The rest would be guesswork.
        return false;
    }
    if header.last_offset_delta < 0 {
        let message = format!("the last offset delta is {}", header.last_offset_delta);
        rows.push_back(damage(position, Some(header.base_offset), message));
    }
    if options.records || options.verify {
        add_records(rows, position, header, batch, options);
    }
    true
}

fn batch_row(position: u64, header: &BatchHeader, computed: u32) -> Row {
    let codec = header
        .compression()
        .map_or("undefined", |codec| codec.name());
    let timestamp_type = match header.timestamp_type() {
        TimestampType::CreateTime => "CreateTime",
        TimestampType::LogAppendTime => "LogAppendTime",
    };
    vec![
        ("kind", Value::text("batch")),
        ("position", Value::Int(position as i64)),
        ("base_offset", Value::Int(header.base_offset)),
        ("last_offset", Value::Int(header.last_offset())),
        ("count", Value::Int(header.record_count.into())),
        ("size_bytes", Value::Int(header.total_len() as i64)),
        (
            "leader_epoch",
            Value::Int(header.partition_leader_epoch.into()),
        ),
        ("compression", Value::text(codec)),
        ("timestamp_type", Value::text(timestamp_type)),
        ("base_timestamp_ms", Value::Int(header.base_timestamp)),
        ("max_timestamp_ms", Value::Int(header.max_timestamp)),
        ("producer_id", Value::Int(header.producer_id)),
        ("producer_epoch", Value::Int(header.producer_epoch.into())),
        ("base_sequence", Value::Int(header.base_sequence.into())),
        ("last_sequence", Value::Int(header.last_sequence().into())),
        ("transactional", Value::Bool(header.is_transactional())),
        ("control", Value::Bool(header.is_control())),
        ("delete_horizon_ms", Value::int(header.delete_horizon())),
        ("crc", Value::Int(header.crc.into())),
        ("valid", Value::Bool(computed == header.crc)),
    ]
}

fn crc_damage(position: u64, header: &BatchHeader, computed: u32, len: usize) -> Row {
    let where_it_is = flipped_bit::explain(
        header.crc,
        computed,
        position + CRC_START as u64,
        len - CRC_START,
        position + CRC_AT,
    );
    let message = format!(
        "the batch's CRC is {:#010x}, but its bytes give {computed:#010x}; {where_it_is}",
        header.crc
    );
    damage(position, Some(header.base_offset), message)
}

fn add_records(
    rows: &mut VecDeque<Row>,
    position: u64,
    header: &BatchHeader,
    batch: &[u8],
    options: Options,
) {
    let offset = Some(header.base_offset);
    let codec = match header.compression() {
        Ok(codec) => codec,
        Err(error) => return rows.push_back(damage(position, offset, error.to_string())),
    };
    let body = &batch[HEADER_LEN..];
    let walked = with_decompressed(codec, body, EXPANDED_BYTES_MAX, |records| {
        walk(rows, header, records, options)
    });
    let found = match walked {
        Ok(Ok(found)) => found,
        Ok(Err(error)) => return rows.push_back(damage(position, offset, error.to_string())),
        Err(error) => return rows.push_back(damage(position, offset, error.to_string())),
    };
    if options.verify {
        let faults = check(header, &found);
        rows.extend(
            faults
                .into_iter()
                .map(|message| damage(position, offset, message)),
        );
    }
}

/// What the records show.
struct Found {
    count: i64,
    last_delta: Option<i32>,
    rising: bool,
    max_timestamp: i64,
}

fn walk(
    rows: &mut VecDeque<Row>,
    header: &BatchHeader,
    records: &[u8],
    options: Options,
) -> Result<Found, DecodeError> {
    let mut found = Found {
        count: 0,
        last_delta: None,
        rising: true,
        max_timestamp: NO_TIMESTAMP,
    };
    for record in Records::new(records) {
        let record = record?;
        let timestamp = timestamp_of(header, &record);
        found.rising &= found
            .last_delta
            .is_none_or(|last| record.offset_delta > last);
        found.rising &= (0..=header.last_offset_delta).contains(&record.offset_delta);
        found.last_delta = Some(record.offset_delta);
        found.max_timestamp = found.max_timestamp.max(timestamp);
        found.count += 1;
        if options.records {
            rows.push_back(record_row(header, &record, timestamp));
        }
    }
    Ok(found)
}

fn timestamp_of(header: &BatchHeader, record: &Record<'_>) -> i64 {
    match header.timestamp_type() {
        TimestampType::LogAppendTime => header.max_timestamp,
        TimestampType::CreateTime => header.base_timestamp.wrapping_add(record.timestamp_delta),
    }
}

fn check(header: &BatchHeader, found: &Found) -> Vec<String> {
    let mut faults = Vec::new();
    if found.count != i64::from(header.record_count) {
        faults.push(format!(
            "the header says {} records, the batch holds {}",
            header.record_count, found.count
        ));
    }
    if !found.rising {
        faults.push("the records' offsets do not rise within the batch's range".to_owned());
    }
    // A batch emptied by compaction keeps its records' timestamp.
    if found.count > 0 && found.max_timestamp != header.max_timestamp {
        faults.push(format!(
            "the header's largest timestamp is {}, that of the records {}",
            header.max_timestamp, found.max_timestamp
        ));
    }
    faults
}

fn record_row(header: &BatchHeader, record: &Record<'_>, timestamp: i64) -> Row {
    let headers = record
        .headers()
        .map(|header| {
            let key = Value::text(String::from_utf8_lossy(header.key));
            Value::List(vec![key, Value::bytes(header.value)])
        })
        .collect();
    let offset = header
        .base_offset
        .saturating_add(record.offset_delta.into());
    let mut row = vec![
        ("kind", Value::text("record")),
        ("offset", Value::Int(offset)),
        ("timestamp_ms", Value::Int(timestamp)),
        ("size_bytes", Value::Int(record.size_bytes as i64)),
        ("key", Value::bytes(record.key)),
        ("value", Value::bytes(record.value)),
        ("headers", Value::List(headers)),
    ];
    if header.is_control() {
        add_control(&mut row, record);
    }
    row
}

fn add_control(row: &mut Row, record: &Record<'_>) {
    let (key, value) = (
        record.key.unwrap_or_default(),
        record.value.unwrap_or_default(),
    );
    let kind = match ControlType::parse(key) {
        Ok(ControlType::Abort) => "abort".to_owned(),
        Ok(ControlType::Commit) => "commit".to_owned(),
        Ok(ControlType::Other(other)) => format!("type {other}"),
        Err(error) => error.to_string(),
    };
    let epoch = EndTxnMarker::parse(key, value).ok().flatten();
    row.push(("control_type", Value::text(kind)));
    row.push((
        "coordinator_epoch",
        Value::int(epoch.map(|marker| marker.coordinator_epoch.into())),
    ));
}
