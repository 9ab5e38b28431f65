//! Record batches become messages of formats 0 and 1, for Fetch 0 to 3.
//!
//! As Kafka's `RecordsUtil.downConvert`: an uncompressed batch becomes a message for each record, a
//! compressed one a wrapper with the same codec. Headers, producers and epochs have no place in the
//! old formats and are lost. Control batches are left out. Messages keep their offsets, so gaps
//! remain. zstd cannot be converted: what stands before is returned, and the next fetch gets the
//! error.
//!
//! Records below the requested offset are left out of uncompressed batches, on which some clients
//! rely; from a wrapper a client drops them itself. A wrapper with none but these is left out: Kafka
//! sends it.
//!
//! Memory: one stored batch, its expansion, and the result, which stays within the caller's room: small
//! records grow by half a dozen times, and checksums do not compress. Messages go to the encoder one
//! by one.
//! A batch that expands to more than [`SMALL_BYTES`] is *large*. The caller says whether it may be
//! expanded here; it then waits until no other one is expanded in the process.

use std::io;
use std::time::Duration;

use parking_lot::{Mutex, MutexGuard};
use pyrklog_wire::batch::{
    BatchHeader, COMPRESSION_MASK, Compression, HEADER_LEN, NO_TIMESTAMP, TIMESTAMP_TYPE_BIT,
};
use pyrklog_wire::error::DecodeError;
use pyrklog_wire::message_set::{
    MAGIC_0, begin_wrapper, end_wrapper, message_len, next_len, write_message,
};
use pyrklog_wire::records::{Record, Records};
use thiserror::Error;

use crate::compression::{self, CompressedStream, DecompressError, Lz4Header};
use crate::read::Slice;
use crate::scan::{BatchScanner, ScanError};
use crate::wait::Wait;

/// What each thread may expand at any time, and what it expands before it returns.
pub const SMALL_BYTES: usize = 4 << 20;

/// Messages of a wrapper after which the next step begins.
const STEP_BYTES: usize = 1 << 20;

/// How long a thread waits for another's large batch before its next step begins.
const LOCK_STEP: Duration = Duration::from_millis(100);

/// What a codec adds at most to bytes that do not compress: one part of so many, and its frame.
const INCOMPRESSIBLE_SHARE: usize = 16;
const INCOMPRESSIBLE_BYTES: usize = 1 << 10;

/// Bytes of the log read at once.
const CHUNK_BYTES: usize = 128 << 10;

/// Held while a large batch is expanded.
static LARGE: Mutex<()> = Mutex::new(());

/// Keeps large batches from being expanded until it is dropped.
#[cfg(feature = "testing")]
pub fn hold_large() -> MutexGuard<'static, ()> {
    LARGE.lock()
}

/// What a client wants.
#[derive(Clone, Copy, Debug)]
pub struct DownConvert {
    /// Format, 0 or 1.
    pub magic: i8,
    /// The requested offset.
    pub first_offset: i64,
    /// Limit of the messages, except for a larger first one.
    pub max_bytes: usize,
    /// Limit of a batch's expansion.
    pub expanded_bytes_max: usize,
    /// Whether large batches may be expanded.
    pub may_be_large: bool,
    /// Limit of a compressed message, a first one, too.
    pub room_bytes: usize,
}

/// Messages made of a slice.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DownConverted {
    /// The set; its last message may be cut off.
    pub messages: Vec<u8>,
    /// Where the last batch that was looked at ends.
    pub next_offset: i64,
    /// What its batches were expanded to. From [`SMALL_BYTES`] on it ended because of them.
    pub expanded_bytes: usize,
}

/// Why a slice cannot be converted. Only what stands before its first message counts.
#[derive(Debug, Error)]
pub enum DownConvertError {
    /// The disk.
    #[error(transparent)]
    Io(#[from] io::Error),
    /// The codec has no place in old formats.
    #[error("batches compressed with zstd cannot be converted to old message formats")]
    Zstd,
    /// The batch is large, and it may not be.
    #[error("the batch at offset {offset} expands to much")]
    Large {
        /// Its offset.
        offset: i64,
    },
    /// The batch becomes a compressed message larger than the room.
    #[error("the batch at offset {offset} becomes a message of up to {bytes} bytes")]
    NoRoom {
        /// Its offset.
        offset: i64,
        /// Room that suffices.
        bytes: usize,
    },
    /// The caller wants no more.
    #[error("the conversion was given up")]
    GivenUp,
    /// The batch expands to more than the limit.
    #[error("the batch at offset {offset} expands to too much")]
    TooLarge {
        /// Its offset.
        offset: i64,
    },
    /// The batch cannot be read.
    #[error("the batch at offset {offset} is damaged: {reason}")]
    Corrupt {
        /// Its offset.
        offset: i64,
        /// What is wrong with it.
        reason: String,
    },
}

type Result<T> = std::result::Result<T, DownConvertError>;

/// Converts a slice, which begins with a batch and may end within one; ends early once its batches
/// were expanded to [`SMALL_BYTES`]. `on_step` is called before each batch, each mebibyte of a
/// wrapper, and each tenth of a second that a large batch waits; if it returns false, the
/// conversion is given up.
///
/// # Errors
/// [`DownConvertError`], if there is no message before the problem.
pub fn down_convert(
    slice: &Slice,
    wanted: DownConvert,
    wait: Wait,
    mut on_step: impl FnMut() -> bool,
) -> Result<DownConverted> {
    let mut converted = DownConverted {
        messages: Vec::new(),
        next_offset: wanted.first_offset,
        expanded_bytes: 0,
    };
    let Some(bytes) = slice.bytes() else {
        return Ok(converted);
    };
    let start = slice.file_position();
    let end = start + slice.len() as u64;
    let mut scanner = BatchScanner::new(bytes, start, end, CHUNK_BYTES, wait);
    let mut limit_bytes = wanted.max_bytes;
    while converted.expanded_bytes < SMALL_BYTES
        && (converted.messages.is_empty() || converted.messages.len() < limit_bytes)
    {
        go_on(&mut on_step)?;
        let (header, batch) = match scanner.next_whole() {
            Ok(Some((met, batch))) => (met.header, batch),
            Ok(None) => break,
            Err(error) => match problem(error, converted.next_offset) {
                Some(problem) => return or_what_there_is(converted, problem),
                None => break,
            },
        };
        if !header.is_control() {
            let before = converted.messages.len();
            match convert(
                &header,
                batch,
                wanted,
                &mut converted.messages,
                &mut on_step,
            ) {
                Ok(expanded_bytes) => converted.expanded_bytes += expanded_bytes,
                Err(problem) => {
                    converted.messages.truncate(before);
                    return or_what_there_is(converted, problem);
                }
            }
            if before == 0 {
                limit_bytes = limit_bytes.max(first_len(&converted.messages));
            }
        }
        converted.next_offset = header.last_offset() + 1;
    }
    converted.messages.truncate(limit_bytes);
    Ok(converted)
}

fn go_on(on_step: &mut dyn FnMut() -> bool) -> Result<()> {
    match on_step() {
        true => Ok(()),
        false => Err(DownConvertError::GivenUp),
    }
}

/// A problem behind messages is told by the next fetch.
fn or_what_there_is(converted: DownConverted, problem: DownConvertError) -> Result<DownConverted> {
    match converted.messages.is_empty() {
        true => Err(problem),
        false => Ok(converted),
    }
}

/// `None` for a batch that is cut off, with which a slice may end.
fn problem(error: ScanError, offset: i64) -> Option<DownConvertError> {
    match error {
        ScanError::Io(error) => Some(error.into()),
        ScanError::NotABatch {
            reason: DecodeError::Truncated { .. },
            ..
        } => None,
        ScanError::NotABatch { reason, .. } => Some(DownConvertError::Corrupt {
            offset,
            reason: reason.to_string(),
        }),
    }
}

/// Length of the first message of a set.
fn first_len(set: &[u8]) -> usize {
    next_len(set).ok().flatten().unwrap_or(0)
}

/// Appends a batch's messages; returns what it was expanded to.
fn convert(
    header: &BatchHeader,
    batch: &[u8],
    wanted: DownConvert,
    out: &mut Vec<u8>,
    on_step: &mut dyn FnMut() -> bool,
) -> Result<usize> {
    let offset = header.base_offset;
    let corrupt = |reason: DecodeError| DownConvertError::Corrupt {
        offset,
        reason: reason.to_string(),
    };
    let codec = header.compression().map_err(corrupt)?;
    let body = &batch[HEADER_LEN..];
    match codec {
        Compression::Zstd => return Err(DownConvertError::Zstd),
        Compression::None => {
            put_messages(header, body, wanted, out).map_err(corrupt)?;
            return Ok(0);
        }
        _ => {}
    }
    let mut wrap = |records: &[u8], on_step: &mut dyn FnMut() -> bool| {
        put_wrapper(header, codec, records, wanted, out, on_step).map(|()| records.len())
    };
    let most_bytes = wanted.expanded_bytes_max;
    let small_bytes = SMALL_BYTES.min(most_bytes);
    let small =
        compression::with_decompressed(codec, body, small_bytes, |records| wrap(records, on_step));
    let wrapped = match small {
        Err(DecompressError::TooLarge { .. }) if small_bytes < most_bytes => {
            if !wanted.may_be_large {
                return Err(DownConvertError::Large { offset });
            }
            let _only_one = lock_large(on_step)?;
            compression::with_decompressed(codec, body, most_bytes, |records| {
                wrap(records, on_step)
            })
        }
        wrapped => wrapped,
    };
    wrapped.map_err(|error| match error {
        DecompressError::TooLarge { .. } => DownConvertError::TooLarge { offset },
        error @ DecompressError::Corrupt { .. } => DownConvertError::Corrupt {
            offset,
            reason: error.to_string(),
        },
    })?
}

/// Waits for another thread's large batch. The disk is not waited for while it is held.
fn lock_large(on_step: &mut dyn FnMut() -> bool) -> Result<MutexGuard<'static, ()>> {
    loop {
        go_on(on_step)?;
        if let Some(only_one) = LARGE.try_lock_for(LOCK_STEP) {
            go_on(on_step)?;
            return Ok(only_one);
        }
    }
}

/// A record as a message has it: offset, timestamp.
fn placed(header: &BatchHeader, record: &Record<'_>) -> (i64, i64) {
    let timestamp = match header.is_log_append_time() {
        true => header.max_timestamp,
        false => header.base_timestamp.wrapping_add(record.timestamp_delta),
    };
    (
        header.base_offset + i64::from(record.offset_delta),
        timestamp,
    )
}

/// Attributes besides the codec; format 0 has none.
fn plain_attributes(header: &BatchHeader, magic: i8) -> i8 {
    match magic {
        MAGIC_0 => 0,
        _ => (header.attributes & TIMESTAMP_TYPE_BIT) as i8,
    }
}

/// Appends a message for each record of an uncompressed batch, until there are enough bytes.
fn put_messages(
    header: &BatchHeader,
    body: &[u8],
    wanted: DownConvert,
    out: &mut Vec<u8>,
) -> std::result::Result<(), DecodeError> {
    let format = (wanted.magic, plain_attributes(header, wanted.magic));
    for record in Records::new(body) {
        let record = record?;
        let (offset, timestamp) = placed(header, &record);
        if offset < wanted.first_offset {
            continue;
        }
        write_message(out, format, offset, timestamp, record.key, record.value);
        if out.len() >= wanted.max_bytes {
            break;
        }
    }
    Ok(())
}

/// What a compressed message of expanded `records` has at most, also if they do not compress.
fn wrapper_bytes_max(records: &[u8], magic: i8) -> usize {
    // The batch's own count may be wrong.
    let count = Records::new(records).count();
    let messages = records.len() + (count + 1) * message_len(magic, None, None);
    messages + messages / INCOMPRESSIBLE_SHARE + INCOMPRESSIBLE_BYTES
}

/// Appends a compressed message with those of all records.
fn put_wrapper(
    header: &BatchHeader,
    codec: Compression,
    records: &[u8],
    wanted: DownConvert,
    out: &mut Vec<u8>,
    on_step: &mut dyn FnMut() -> bool,
) -> Result<()> {
    let magic = wanted.magic;
    let plain = plain_attributes(header, magic);
    let attributes = plain | (codec as i16 & COMPRESSION_MASK) as i8;
    let lz4_header = match magic {
        MAGIC_0 => Lz4Header::Format0,
        _ => Lz4Header::Standard,
    };
    let start = out.len();
    let wrapper = begin_wrapper(out, (magic, attributes));
    let mut stream = CompressedStream::new(codec, lz4_header, std::mem::take(out))?;
    let end = start.saturating_add(wanted.room_bytes);
    let inner = put_inner(header, records, (magic, plain), (&mut stream, end), on_step);
    *out = stream.finish()?;
    let inner = match inner {
        Ok(Inner::Whole(last)) if out.len() <= end => Ok(last),
        Ok(_) => Err(DownConvertError::NoRoom {
            offset: header.base_offset,
            bytes: wrapper_bytes_max(records, magic),
        }),
        Err(error) => Err(error),
    };
    match inner? {
        Some((last_offset, max_timestamp)) if last_offset >= wanted.first_offset => {
            end_wrapper(out, wrapper, last_offset, max_timestamp);
        }
        // Compaction leaves batches without records, and batches that end behind their last one. A
        // client that gets nothing but records below its position asks again, for ever.
        _ => out.truncate(start),
    }
    Ok(())
}

/// What became of the messages of a wrapper.
enum Inner {
    /// All are written: the last offset and the greatest timestamp.
    Whole(Option<(i64, i64)>),
    /// There is no room for all.
    CutOff,
}

/// Writes the messages of a wrapper, until the compressed bytes are beyond `end`.
fn put_inner(
    header: &BatchHeader,
    records: &[u8],
    format: (i8, i8),
    (stream, end): (&mut CompressedStream, usize),
    on_step: &mut dyn FnMut() -> bool,
) -> Result<Inner> {
    let mut message = Vec::new();
    let mut step_bytes = 0;
    let (mut first_offset, mut last) = (None, None);
    for record in Records::new(records) {
        let record = record.map_err(|reason| DownConvertError::Corrupt {
            offset: header.base_offset,
            reason: reason.to_string(),
        })?;
        let (offset, timestamp) = placed(header, &record);
        let first_offset = *first_offset.get_or_insert(offset);
        let inner_offset = match format.0 {
            MAGIC_0 => offset,
            _ => offset - first_offset,
        };
        message.clear();
        let (key, value) = (record.key, record.value);
        write_message(&mut message, format, inner_offset, timestamp, key, value);
        stream.write(&message)?;
        if stream.len() > end {
            return Ok(Inner::CutOff);
        }
        step_bytes += message.len();
        if step_bytes >= STEP_BYTES {
            step_bytes = 0;
            go_on(on_step)?;
        }
        let max_timestamp = last.map_or(NO_TIMESTAMP, |(_, max)| max).max(timestamp);
        last = Some((offset, max_timestamp));
    }
    Ok(Inner::Whole(last))
}
