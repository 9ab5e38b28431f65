//! The rows of messages of formats 0 and 1, as old Kafka wrote them.

use std::collections::VecDeque;
use std::io;

use pyrklog_wire::batch::{Compression, TimestampType};
use pyrklog_wire::message_set::{MAGIC_0, Message, Messages};

use super::{Options, RECORD_BYTES_MAX, RECORDS_MAX, Row, RowSource, Value, damage};
use crate::compression::{Lz4Header, decompress_with};

const EXPANDED_BYTES_MAX: usize = 256 << 20;

/// Messages of a row at most.
const RUN_MAX: i64 = 1000;

/// Uncompressed messages with right checksums and rising offsets, in one row.
#[derive(Debug)]
pub(super) struct Run {
    position: u64,
    magic: i8,
    timestamp_type: TimestampType,
    base_offset: i64,
    last_offset: i64,
    max_timestamp: i64,
    count: i64,
    size_bytes: usize,
    records: Vec<Row>,
}

impl Run {
    /// Of the first message, at `position`.
    pub fn new(position: u64, message: &Message<'_>) -> Self {
        Self {
            position,
            magic: message.magic,
            timestamp_type: message.timestamp_type(),
            base_offset: message.offset,
            last_offset: message.offset,
            max_timestamp: message.timestamp,
            count: 0,
            size_bytes: 0,
            records: Vec::new(),
        }
    }

    /// Whether a message may be a part of a run.
    pub fn may_have(message: &Message<'_>) -> bool {
        message.compression() == Ok(Compression::None) && message.verify_crc().is_ok()
    }

    /// Whether this one may be the next.
    pub fn takes(&self, message: &Message<'_>) -> bool {
        self.count < RUN_MAX
            && message.magic == self.magic
            && message.timestamp_type() == self.timestamp_type
            && message.offset > self.last_offset
    }

    /// Adds it.
    pub fn push(&mut self, message: &Message<'_>, options: Options) {
        self.count += 1;
        self.size_bytes += message.bytes.len();
        self.last_offset = message.offset;
        self.max_timestamp = self.max_timestamp.max(message.timestamp);
        if options.records {
            let row = record_row(message, message.offset, message.timestamp);
            self.records.push(row);
        }
    }

    /// Adds its rows; returns its last offset.
    pub fn end(self, rows: &mut VecDeque<Row>) -> i64 {
        rows.push_back(vec![
            ("kind", Value::text("messages")),
            ("position", Value::Int(self.position as i64)),
            ("base_offset", Value::Int(self.base_offset)),
            ("last_offset", Value::Int(self.last_offset)),
            ("count", Value::Int(self.count)),
            ("size_bytes", Value::Int(self.size_bytes as i64)),
            ("format", Value::Int(self.magic.into())),
            ("compression", Value::text(Compression::None.name())),
            ("timestamp_type", Value::text(name(self.timestamp_type))),
            ("max_timestamp_ms", Value::Int(self.max_timestamp)),
            ("valid", Value::Bool(true)),
        ]);
        rows.extend(self.records);
        self.last_offset
    }
}

/// Adds the row of a compressed message, or of a damaged one, and its damage. Returns whether its
/// checksum is right, and what has the rows of the messages in it.
pub(super) fn add(
    rows: &mut VecDeque<Row>,
    position: u64,
    message: &Message<'_>,
    options: Options,
) -> (bool, Option<InnerMessages>) {
    let checked = message.verify_crc();
    rows.push_back(single_row(position, message, checked.is_ok()));
    let offset = Some(message.offset);
    if let Err(error) = checked {
        rows.push_back(damage(position, offset, error.to_string()));
        return (false, None);
    }
    let result = match message.compression() {
        Err(error) => Err(error.to_string()),
        Ok(codec) if options.records || options.verify => InnerMessages::new(message, codec),
        Ok(_) => return (true, None),
    };
    match result {
        Ok(inner) => (true, Some(inner).filter(|_| options.records)),
        Err(reason) => {
            rows.push_back(damage(position, offset, reason));
            (true, None)
        }
    }
}

fn single_row(position: u64, message: &Message<'_>, is_valid: bool) -> Row {
    let codec = message
        .compression()
        .map_or("undefined", |codec| codec.name());
    vec![
        ("kind", Value::text("messages")),
        ("position", Value::Int(position as i64)),
        ("base_offset", Value::Null),
        ("last_offset", Value::Int(message.offset)),
        ("count", Value::Null),
        ("size_bytes", Value::Int(message.bytes.len() as i64)),
        ("format", Value::Int(message.magic.into())),
        ("compression", Value::text(codec)),
        (
            "timestamp_type",
            Value::text(name(message.timestamp_type())),
        ),
        ("max_timestamp_ms", Value::Int(message.timestamp)),
        ("valid", Value::Bool(is_valid)),
    ]
}

fn name(timestamp_type: TimestampType) -> &'static str {
    match timestamp_type {
        TimestampType::CreateTime => "CreateTime",
        TimestampType::LogAppendTime => "LogAppendTime",
    }
}

/// The messages of a wrapper, checked, as far as their rows have not been made.
pub(super) struct InnerMessages {
    bytes: Vec<u8>,
    /// Where in `bytes` the next one begins.
    next: usize,
    /// What their offsets lack.
    shift: i64,
    /// Of all of them, where they take the wrapper's.
    timestamp: Option<i64>,
}

impl InnerMessages {
    fn new(wrapper: &Message<'_>, codec: Compression) -> Result<Self, String> {
        let lz4_header = match wrapper.magic {
            MAGIC_0 => Lz4Header::Format0,
            _ => Lz4Header::Standard,
        };
        let value = wrapper.value.ok_or("a compressed message has no value")?;
        let mut bytes = Vec::new();
        decompress_with(codec, lz4_header, value, &mut bytes, EXPANDED_BYTES_MAX)
            .map_err(|error| error.to_string())?;
        let last = last_offset(&bytes)?;
        // In format 1 they count from the first one, and the wrapper has the last one's.
        let shift = match wrapper.magic {
            MAGIC_0 => 0,
            _ if wrapper.offset == 0 => 0,
            _ => wrapper.offset.saturating_sub(last),
        };
        let takes_wrappers_time = wrapper.timestamp_type() == TimestampType::LogAppendTime;
        Ok(Self {
            bytes,
            next: 0,
            shift,
            timestamp: takes_wrappers_time.then_some(wrapper.timestamp),
        })
    }
}

/// Of messages that were compressed together, or why they are damaged.
fn last_offset(bytes: &[u8]) -> Result<i64, String> {
    let mut last = None;
    for message in Messages::new(bytes) {
        let message = message.map_err(|error| error.to_string())?;
        message.verify_crc().map_err(|error| error.to_string())?;
        if last.is_some_and(|last| message.offset <= last) {
            return Err(format!(
                "offset {} in a compressed message does not rise",
                message.offset
            ));
        }
        last = Some(message.offset);
    }
    last.ok_or_else(|| "a compressed message is empty".to_owned())
}

impl RowSource for InnerMessages {
    fn next_rows(&mut self, rows: &mut VecDeque<Row>) -> io::Result<bool> {
        let first = self.next;
        for message in Messages::new(&self.bytes[first..])
            .flatten()
            .take(RECORDS_MAX)
        {
            let offset = message.offset.saturating_add(self.shift);
            let timestamp = self.timestamp.unwrap_or(message.timestamp);
            rows.push_back(record_row(&message, offset, timestamp));
            self.next += message.bytes.len();
            if self.next - first >= RECORD_BYTES_MAX {
                break;
            }
        }
        Ok(self.next > first)
    }
}

fn record_row(message: &Message<'_>, offset: i64, timestamp: i64) -> Row {
    vec![
        ("kind", Value::text("record")),
        ("offset", Value::Int(offset)),
        ("timestamp_ms", Value::Int(timestamp)),
        ("size_bytes", Value::Int(message.bytes.len() as i64)),
        ("key", Value::bytes(message.key)),
        ("value", Value::bytes(message.value)),
        ("headers", Value::List(Vec::new())),
    ]
}
