//! Records of an uncompressed batch body.
//!
//! ```text
//! length          varint   bytes after this field
//! attributes      i8       unused
//! timestamp delta varlong  to the batch's base timestamp
//! offset delta    varint   to the batch's base offset
//! key             varint length (-1 = null), bytes
//! value           varint length (-1 = null), bytes
//! headers         varint count, then each: varint length, key; varint length (-1 = null), value
//! ```

use crate::error::{DecodeError, Result, first};
use crate::reader::Reader;
use crate::varint::{self, read_varint};

/// One record, borrowed from its batch's uncompressed body.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Record<'a> {
    /// Unused by Kafka so far.
    pub attributes: i8,
    /// Milliseconds to add to the batch's base timestamp.
    pub timestamp_delta: i64,
    /// To add to the batch's base offset.
    pub offset_delta: i32,
    /// Key, `None` = null.
    pub key: Option<&'a [u8]>,
    /// Value, `None` = null (a tombstone in a compacted topic).
    pub value: Option<&'a [u8]>,
    /// Number of headers.
    pub header_count: u32,
    headers: &'a [u8],
    /// Bytes of the record with its length field.
    pub size_bytes: usize,
}

/// A record header.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Header<'a> {
    /// Key; UTF-8 by convention, not checked.
    pub key: &'a [u8],
    /// Value, `None` = null.
    pub value: Option<&'a [u8]>,
}

impl<'a> Record<'a> {
    /// Parses the record at the start of `body`; `index` is for error messages.
    pub fn parse(body: &'a [u8], index: i32) -> Result<Record<'a>> {
        let (length, prefix) = read_varint(body)?;
        let bad_length = DecodeError::BadRecordLength { index };
        let length = usize::try_from(length).map_err(|_| bad_length)?;
        let fields = first(&body[prefix..], length)?;
        // A record that ends within its own length is malformed, not truncated.
        let cut = |error| match error {
            DecodeError::Truncated { .. } => bad_length,
            other => other,
        };
        let mut reader = Reader::new(fields, false);
        let attributes = reader.i8().map_err(cut)?;
        let timestamp_delta = reader.varlong().map_err(cut)?;
        let offset_delta = reader.varint().map_err(cut)?;
        let key = nullable(&mut reader).map_err(cut)?;
        let value = nullable(&mut reader).map_err(cut)?;
        let header_count = reader.varint().map_err(cut)?;
        let header_count = u32::try_from(header_count).map_err(|_| bad_length)?;
        let headers = reader.rest();
        for _ in 0..header_count {
            header(&mut reader).map_err(cut)?;
        }
        if reader.remaining() > 0 {
            return Err(bad_length);
        }
        let size_bytes = prefix + length;
        Ok(Record {
            attributes,
            timestamp_delta,
            offset_delta,
            key,
            value,
            header_count,
            headers,
            size_bytes,
        })
    }

    /// The same as [`Record::parse`], faster for most records.
    #[inline]
    pub fn parse_fast(body: &'a [u8], index: i32) -> Result<Record<'a>> {
        match parse_common(body) {
            Some(record) => Ok(record),
            None => Record::parse(body, index),
        }
    }

    /// The record's headers, in order.
    pub fn headers(&self) -> impl Iterator<Item = Header<'a>> + use<'a> {
        let mut reader = Reader::new(self.headers, false);
        // Parsing has walked them, so the first error is the end.
        (0..self.header_count).map_while(move |_| header(&mut reader).ok())
    }
}

/// Bytes behind their length; any length below zero is null, as in Kafka.
fn nullable<'a>(reader: &mut Reader<'a>) -> Result<Option<&'a [u8]>> {
    match usize::try_from(reader.varint()?) {
        Ok(len) => reader.take(len).map(Some),
        Err(_) => Ok(None),
    }
}

fn header<'a>(reader: &mut Reader<'a>) -> Result<Header<'a>> {
    let len = reader.varint()?;
    let len = usize::try_from(len).map_err(|_| DecodeError::UnexpectedNull(len.into()))?;
    let key = reader.take(len)?;
    let value = nullable(reader)?;
    Ok(Header { key, value })
}

/// Iterates over the records of an uncompressed body; one error ends it. [`walk_records`] checks
/// their number.
#[derive(Clone, Debug)]
pub struct Records<'a> {
    rest: &'a [u8],
    index: i32,
    failed: bool,
}

impl<'a> Records<'a> {
    /// From the start of an uncompressed `body`.
    pub fn new(body: &'a [u8]) -> Self {
        Records {
            rest: body,
            index: 0,
            failed: false,
        }
    }
}

impl<'a> Iterator for Records<'a> {
    type Item = Result<Record<'a>>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.failed || self.rest.is_empty() {
            return None;
        }
        let record = Record::parse(self.rest, self.index);
        match &record {
            Ok(record) => {
                self.rest = &self.rest[record.size_bytes..];
                self.index += 1;
            }
            Err(_) => self.failed = true,
        }
        Some(record)
    }
}

/// What a walk over all records of a batch finds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RecordsSummary {
    /// The greatest timestamp delta.
    pub max_timestamp_delta: i64,
    /// Offset delta of the first record that has it.
    pub max_timestamp_offset_delta: i32,
    /// The least timestamp delta.
    pub min_timestamp_delta: i64,
    /// Offset delta of the last record.
    pub last_offset_delta: i32,
    /// The offset deltas are 0, 1, 2, ...
    pub offsets_consecutive: bool,
    /// Every record has a key (compacted topics demand it).
    pub all_have_keys: bool,
}

/// Checks a whole uncompressed body: exactly `expected_count` records, each filling its announced
/// length. Allocates nothing.
///
/// # Errors
/// `RecordCount` for another number or a count below 1, and those of [`Record::parse`].
pub fn walk_records(body: &[u8], expected_count: i32) -> Result<RecordsSummary> {
    let wrong = |found| DecodeError::RecordCount {
        expected: expected_count,
        found,
    };
    let mut summary = RecordsSummary {
        max_timestamp_delta: i64::MIN,
        max_timestamp_offset_delta: 0,
        min_timestamp_delta: i64::MAX,
        last_offset_delta: -1,
        offsets_consecutive: true,
        all_have_keys: true,
    };
    if expected_count < 1 {
        return Err(wrong(0));
    }
    let mut rest = body;
    for index in 0..expected_count {
        if rest.is_empty() {
            return Err(wrong(index));
        }
        let step = match step_fast(rest) {
            Some(step) => step,
            None => step_slow(rest, index)?,
        };
        if step.timestamp_delta > summary.max_timestamp_delta {
            summary.max_timestamp_delta = step.timestamp_delta;
            summary.max_timestamp_offset_delta = step.offset_delta;
        }
        summary.min_timestamp_delta = summary.min_timestamp_delta.min(step.timestamp_delta);
        summary.offsets_consecutive &= step.offset_delta == index;
        summary.all_have_keys &= step.has_key;
        summary.last_offset_delta = step.offset_delta;
        rest = &rest[step.size_bytes..];
    }
    if !rest.is_empty() {
        return Err(wrong(expected_count.saturating_add(1)));
    }
    Ok(summary)
}

struct Step {
    size_bytes: usize,
    timestamp_delta: i64,
    offset_delta: i32,
    has_key: bool,
}

/// A varint of one to three bytes with its length; the slow path handles longer ones. Free of
/// bounds checks: the window has room behind `at`.
#[inline(always)]
fn short_varint(window: &[u8; WINDOW], at: usize) -> Option<(u32, usize)> {
    let a = u32::from(window[at & (WINDOW - 1)]);
    if a < 0x80 {
        return Some((a, at + 1));
    }
    let b = u32::from(window[(at + 1) & (WINDOW - 1)]);
    if b < 0x80 {
        return Some((a & 0x7f | b << 7, at + 2));
    }
    let c = u32::from(window[(at + 2) & (WINDOW - 1)]);
    if c < 0x80 {
        return Some((a & 0x7f | (b & 0x7f) << 7 | c << 14, at + 3));
    }
    None
}

/// Bytes for the fast path: length, attributes, both deltas and the key's length take 13 with
/// varints of up to three bytes.
const WINDOW: usize = 16;

/// The common record: no headers, short integers, not among the body's last bytes. `None` only
/// means that [`Record::parse`] must look.
#[inline(always)]
fn parse_common(rest: &[u8]) -> Option<Record<'_>> {
    let window = rest.first_chunk::<WINDOW>()?;
    let (length, start) = short_varint(window, 0)?;
    // Even means not negative; half of it is the length.
    let size_bytes = start + (length >> 1) as usize;
    if length & 1 != 0 || size_bytes > rest.len() {
        return None;
    }
    let (timestamp, at) = short_varint(window, start + 1)?;
    let (offset, at) = short_varint(window, at)?;
    let (key_len, key_at) = short_varint(window, at)?;
    let key_len = varint::unzigzag(key_len);
    let value_len_at = key_at + key_len.max(0) as usize;
    let (value_len, value_len_bytes) = match rest.get(value_len_at..)? {
        [a, ..] if *a < 0x80 => (u32::from(*a), 1),
        [a, b, ..] if *b < 0x80 => (u32::from(*a & 0x7f) | u32::from(*b) << 7, 2),
        _ => return None,
    };
    let value_at = value_len_at + value_len_bytes;
    let value_len = varint::unzigzag(value_len);
    let value_end = value_at + value_len.max(0) as usize;
    // No headers: one zero byte, the record's last.
    if value_end + 1 != size_bytes || rest[value_end] != 0 {
        return None;
    }
    Some(Record {
        attributes: window[start & (WINDOW - 1)] as i8,
        timestamp_delta: i64::from(varint::unzigzag(timestamp)),
        offset_delta: varint::unzigzag(offset),
        key: (key_len >= 0).then(|| &rest[key_at..value_len_at]),
        value: (value_len >= 0).then(|| &rest[value_at..value_end]),
        header_count: 0,
        headers: &[],
        size_bytes,
    })
}

#[inline(always)]
fn step_fast(rest: &[u8]) -> Option<Step> {
    let record = parse_common(rest)?;
    Some(Step {
        size_bytes: record.size_bytes,
        timestamp_delta: record.timestamp_delta,
        offset_delta: record.offset_delta,
        has_key: record.key.is_some(),
    })
}

#[inline(never)]
fn step_slow(rest: &[u8], index: i32) -> Result<Step> {
    let record = Record::parse(rest, index)?;
    Ok(Step {
        size_bytes: record.size_bytes,
        timestamp_delta: record.timestamp_delta,
        offset_delta: record.offset_delta,
        has_key: record.key.is_some(),
    })
}
