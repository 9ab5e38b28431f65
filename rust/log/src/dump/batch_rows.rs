//! The rows of one batch: its header, its records, and their damage.

use std::collections::VecDeque;
use std::io;

use pyrklog_wire::DecodeError;
use pyrklog_wire::batch::{
    BatchHeader, CRC_START, Compression, HEADER_LEN, NO_TIMESTAMP, TimestampType, compute_crc,
};
use pyrklog_wire::records::Record;

use super::{Options, RECORD_BYTES_MAX, RECORDS_MAX, Row, RowSource, Value, damage, flipped_bit};
use crate::compression::decompress;
use crate::producer_state::marker::{ControlType, EndTxnMarker};

const CRC_AT: u64 = 17;
const EXPANDED_BYTES_MAX: usize = 256 << 20;

/// Adds the row of a whole batch at `position`, and its damage. Returns whether its checksum is
/// right, and what has the rows of its records.
pub(super) fn add(
    rows: &mut VecDeque<Row>,
    position: u64,
    header: &BatchHeader,
    batch: Vec<u8>,
    options: Options,
) -> (bool, Option<BatchRecords>) {
    let computed = compute_crc(&batch);
    rows.push_back(batch_row(position, header, computed));
    if computed != header.crc {
        rows.push_back(crc_damage(position, header, computed, batch.len()));
        // The rest would be guesswork.
        return (false, None);
    }
    if header.last_offset_delta < 0 {
        let message = format!("the last offset delta is {}", header.last_offset_delta);
        rows.push_back(damage(position, Some(header.base_offset), message));
    }
    if !(options.records || options.verify) {
        return (true, None);
    }
    match BatchRecords::new(position, header, batch, options) {
        Ok(records) => (true, Some(records)),
        Err(reason) => {
            rows.push_back(damage(position, Some(header.base_offset), reason));
            (true, None)
        }
    }
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

/// The records of a batch that is expanded, as far as their rows have not been made.
pub(super) struct BatchRecords {
    position: u64,
    header: BatchHeader,
    options: Options,
    bytes: Vec<u8>,
    /// Where in `bytes` the next record begins.
    next: usize,
    found: Found,
}

/// What the records show.
struct Found {
    count: i32,
    last_delta: Option<i32>,
    rising: bool,
    max_timestamp: i64,
}

impl BatchRecords {
    fn new(
        position: u64,
        header: &BatchHeader,
        batch: Vec<u8>,
        options: Options,
    ) -> Result<Self, String> {
        let codec = header.compression().map_err(|error| error.to_string())?;
        let (bytes, next) = if codec == Compression::None {
            (batch, HEADER_LEN)
        } else {
            let mut bytes = Vec::new();
            decompress(codec, &batch[HEADER_LEN..], &mut bytes, EXPANDED_BYTES_MAX)
                .map_err(|error| error.to_string())?;
            (bytes, 0)
        };
        Ok(Self {
            position,
            header: *header,
            options,
            bytes,
            next,
            found: Found {
                count: 0,
                last_delta: None,
                rising: true,
                max_timestamp: NO_TIMESTAMP,
            },
        })
    }

    /// Adds the rows of some records; true if there may be more.
    fn add_some(&mut self, rows: &mut VecDeque<Row>) -> Result<bool, DecodeError> {
        let first = self.next;
        for _ in 0..RECORDS_MAX {
            if self.next == self.bytes.len() {
                return Ok(false);
            }
            if self.next - first >= RECORD_BYTES_MAX {
                break;
            }
            let record = Record::parse(&self.bytes[self.next..], self.found.count)?;
            let timestamp = timestamp_of(&self.header, &record);
            self.found.take(&self.header, &record, timestamp);
            self.next += record.size_bytes;
            if self.options.records {
                rows.push_back(record_row(&self.header, &record, timestamp));
            }
        }
        Ok(true)
    }
}

impl RowSource for BatchRecords {
    fn next_rows(&mut self, rows: &mut VecDeque<Row>) -> io::Result<bool> {
        let faults = match self.add_some(rows) {
            Ok(true) => return Ok(true),
            Ok(false) if self.options.verify => check(&self.header, &self.found),
            Ok(false) => Vec::new(),
            Err(error) => vec![error.to_string()],
        };
        let offset = Some(self.header.base_offset);
        rows.extend(
            faults
                .into_iter()
                .map(|fault| damage(self.position, offset, fault)),
        );
        Ok(false)
    }
}

impl Found {
    fn take(&mut self, header: &BatchHeader, record: &Record<'_>, timestamp: i64) {
        self.rising &= self
            .last_delta
            .is_none_or(|last| record.offset_delta > last);
        self.rising &= (0..=header.last_offset_delta).contains(&record.offset_delta);
        self.last_delta = Some(record.offset_delta);
        self.max_timestamp = self.max_timestamp.max(timestamp);
        self.count += 1;
    }
}

fn timestamp_of(header: &BatchHeader, record: &Record<'_>) -> i64 {
    match header.timestamp_type() {
        TimestampType::LogAppendTime => header.max_timestamp,
        TimestampType::CreateTime => header.base_timestamp.wrapping_add(record.timestamp_delta),
    }
}

fn check(header: &BatchHeader, found: &Found) -> Vec<String> {
    let mut faults = Vec::new();
    if found.count != header.record_count {
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
