//! A set becomes the records of a batch, in the set's own memory.
//!
//! Each record takes fewer bytes than its message, and its key and value begin no later. So records
//! are written over the messages that were read, and the conversion needs no second buffer:
//!
//! | | before the key | before the value | all besides key and value |
//! |-|-|-|-|
//! | message of format 0 | 22 | 26 | 26 |
//! | its record, at most | 17 | 22 | 23 |
//! | message of format 1 | 30 | 34 | 34 |
//! | its record, at most | 26 | 31 | 32 |

use thiserror::Error;

use super::{MAGIC_1, Message, TIMESTAMP_AT};
use crate::batch::{Compression, NO_TIMESTAMP, TimestampType};
use crate::error::DecodeError;
use crate::varint::{varint_len, varlong_len, write_varint, write_varlong};

/// The message around a set.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Wrapper {
    /// Its offset. Zero, as some clients write, says nothing.
    pub offset: i64,
    /// Its timestamp.
    pub timestamp: i64,
    /// With LogAppendTime its timestamp counts for all messages of format 1 in it.
    pub timestamp_type: TimestampType,
}

/// Records in place of a set.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct UpConverted {
    /// The records are the first so many bytes.
    pub len: usize,
    /// Number of records.
    pub count: i32,
    /// The first message's offset, as it stands there.
    pub first_offset: i64,
    /// The last message's offset, as it stands there.
    pub last_offset: i64,
    /// The first record's timestamp: deltas count from it.
    pub base_timestamp: i64,
    /// The greatest timestamp, [`NO_TIMESTAMP`] for none.
    pub max_timestamp: i64,
    /// A message claims that the broker set its timestamp.
    pub claims_append_time: bool,
}

/// A set that cannot become records. The buffer's content is then unspecified.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum UpConvertError {
    /// A message that cannot be read.
    #[error("message {index}: {reason}")]
    Malformed {
        /// Its number in the set, from 0.
        index: i32,
        /// What is wrong with it.
        reason: DecodeError,
    },
    /// A message of a wrapper has a codec of its own.
    #[error("message {index} is compressed within a compressed message")]
    Nested {
        /// Its number in the set, from 0.
        index: i32,
    },
    /// A message has another format than the first one or the wrapper.
    #[error("message {index} has format {found}, the set has format {expected}")]
    MixedFormats {
        /// Its number in the set, from 0.
        index: i32,
        /// Its format.
        found: i8,
        /// The set's.
        expected: i8,
    },
    /// A wrapper's offset is below that of its last message (format 1).
    #[error("the compressed message has offset {offset}, the last message in it {last}")]
    WrapperOffset {
        /// The wrapper's offset.
        offset: i64,
        /// The last message's.
        last: i64,
    },
    /// A message's offset cannot follow the one before in a batch.
    #[error("message {index} has offset {offset} behind {before}")]
    NotRising {
        /// Its number in the set, from 0.
        index: i32,
        /// Its offset.
        offset: i64,
        /// The offset of the message before.
        before: i64,
    },
    /// There is no message.
    #[error("the set has no message")]
    Empty,
}

/// What remains of a message once its bytes may be overwritten.
struct Parts {
    len: usize,
    offset: i64,
    timestamp: i64,
    key_at: usize,
    key_len: Option<usize>,
    value_len: Option<usize>,
}

/// The offset deltas of the records.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OffsetDeltas {
    /// 0, 1, 2, …, whatever the messages say: a broker gives them offsets.
    Anew,
    /// The messages' offsets, which rise strictly, less the first one's: the set lies in a log.
    Kept,
}

/// Turns the set in `buffer`, of format `magic`, into the records of one batch. `wrapper` is the
/// message that it was in; without one the CRCs are taken as checked. Rest bytes that are no whole
/// message are ignored, as by Kafka.
///
/// # Errors
/// [`UpConvertError`].
pub fn up_convert(
    buffer: &mut [u8],
    magic: i8,
    wrapper: Option<Wrapper>,
    deltas: OffsetDeltas,
) -> Result<UpConverted, UpConvertError> {
    let mut converted = UpConverted {
        len: 0,
        count: 0,
        first_offset: 0,
        last_offset: 0,
        base_timestamp: NO_TIMESTAMP,
        max_timestamp: NO_TIMESTAMP,
        claims_append_time: wrapper.is_some_and(|wrapper| {
            magic == MAGIC_1 && wrapper.timestamp_type == TimestampType::LogAppendTime
        }),
    };
    let mut head = Vec::with_capacity(40);
    let mut at = 0;
    while let Some(parts) = read(&buffer[at..], magic, wrapper, &mut converted)? {
        if converted.count == 0 {
            converted.base_timestamp = parts.timestamp;
            converted.first_offset = parts.offset;
        }
        let delta = match deltas {
            OffsetDeltas::Anew => converted.count,
            OffsetDeltas::Kept => kept_delta(&converted, parts.offset)?,
        };
        converted.max_timestamp = converted.max_timestamp.max(parts.timestamp);
        converted.last_offset = parts.offset;
        write(buffer, at, &parts, delta, &mut converted, &mut head);
        at += parts.len;
    }
    if converted.count == 0 {
        return Err(UpConvertError::Empty);
    }
    let last_offset = converted.last_offset;
    match wrapper {
        Some(Wrapper { offset, .. }) if magic == MAGIC_1 && offset != 0 && offset < last_offset => {
            let last = last_offset;
            Err(UpConvertError::WrapperOffset { offset, last })
        }
        _ => Ok(converted),
    }
}

/// The delta of the next message's offset.
fn kept_delta(converted: &UpConverted, offset: i64) -> Result<i32, UpConvertError> {
    let (index, before) = (converted.count, converted.last_offset);
    let delta = offset.checked_sub(converted.first_offset);
    let delta = delta.and_then(|delta| i32::try_from(delta).ok());
    delta
        .filter(|_| index == 0 || offset > before)
        .ok_or(UpConvertError::NotRising {
            index,
            offset,
            before,
        })
}

/// Reads the next message; `None` at the end.
fn read(
    rest: &[u8],
    magic: i8,
    wrapper: Option<Wrapper>,
    converted: &mut UpConverted,
) -> Result<Option<Parts>, UpConvertError> {
    let index = converted.count;
    let malformed = |reason| match reason {
        DecodeError::NotAMessage(found) => UpConvertError::MixedFormats {
            index,
            found,
            expected: magic,
        },
        reason => UpConvertError::Malformed { index, reason },
    };
    let Some(message) = Message::parse(rest).map_err(malformed)? else {
        return Ok(None);
    };
    if message.magic != magic {
        return Err(malformed(DecodeError::NotAMessage(message.magic)));
    }
    if message.compression() != Ok(Compression::None) {
        return Err(UpConvertError::Nested { index });
    }
    let mut timestamp = message.timestamp;
    match wrapper {
        Some(wrapper) => {
            message.verify_crc().map_err(malformed)?;
            if converted.claims_append_time {
                timestamp = wrapper.timestamp;
            }
        }
        None => {
            let is_brokers = message.timestamp_type() == TimestampType::LogAppendTime;
            converted.claims_append_time |= is_brokers;
        }
    }
    let timestamp_len = if magic == MAGIC_1 { 8 } else { 0 };
    Ok(Some(Parts {
        len: message.bytes.len(),
        offset: message.offset,
        timestamp,
        key_at: TIMESTAMP_AT + timestamp_len + size_of::<i32>(),
        key_len: message.key.map(<[u8]>::len),
        value_len: message.value.map(<[u8]>::len),
    }))
}

/// Writes the record of the message at `at` behind the records so far. `head` is scratch.
fn write(
    buffer: &mut [u8],
    at: usize,
    parts: &Parts,
    offset_delta: i32,
    converted: &mut UpConverted,
    head: &mut Vec<u8>,
) {
    // Lengths of a message fit into i32, as its size does.
    let stored = |len: Option<usize>| len.map_or(-1, |len| len as i32);
    let (key_stored, value_stored) = (stored(parts.key_len), stored(parts.value_len));
    let (key_len, value_len) = (parts.key_len.unwrap_or(0), parts.value_len.unwrap_or(0));
    let timestamp_delta = parts.timestamp.wrapping_sub(converted.base_timestamp);
    let length = 1
        + varlong_len(timestamp_delta)
        + varint_len(offset_delta)
        + varint_len(key_stored)
        + key_len
        + varint_len(value_stored)
        + value_len
        + 1;
    head.clear();
    write_varint(head, length as i32);
    head.push(0);
    write_varlong(head, timestamp_delta);
    write_varint(head, offset_delta);
    write_varint(head, key_stored);
    let (key_from, mut to) = (at + parts.key_at, converted.len);
    let value_from = key_from + key_len + size_of::<i32>();
    put(buffer, &mut to, head);
    debug_assert!(to <= key_from, "a record's key begins behind its message's");
    move_down(buffer, &mut to, key_from, key_len);
    head.clear();
    write_varint(head, value_stored);
    put(buffer, &mut to, head);
    debug_assert!(
        to <= value_from,
        "a record's value begins behind its message's"
    );
    move_down(buffer, &mut to, value_from, value_len);
    // No headers.
    put(buffer, &mut to, &[0]);
    converted.len = to;
    converted.count += 1;
}

fn put(buffer: &mut [u8], to: &mut usize, bytes: &[u8]) {
    buffer[*to..*to + bytes.len()].copy_from_slice(bytes);
    *to += bytes.len();
}

fn move_down(buffer: &mut [u8], to: &mut usize, from: usize, len: usize) {
    buffer.copy_within(from..from + len, *to);
    *to += len;
}
