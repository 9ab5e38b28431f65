//! Messages of a log become record batches, with their offsets, timestamps and codec.

use pyrklog_wire::batch::{
    self, BatchHeader, Compression, HEADER_LEN, LENGTH_PREFIX_LEN, NO_PRODUCER_ID, NO_TIMESTAMP,
    TIMESTAMP_TYPE_BIT, TimestampType,
};
use pyrklog_wire::message_set::{
    MAGIC_0, Message, OffsetDeltas, UpConverted, Wrapper, next_len, up_convert,
};

use super::large;
use crate::compression::{
    CompressionLevels, DecompressError, EXPANDED_BYTES_MAX_DEFAULT, Lz4Header, compress_at,
    decompress_with,
};

/// Uncompressed messages become one batch up to these bytes: Java's `batch.size`.
const GROUP_BYTES: usize = 16 << 10;
/// Nor does a batch reach over a multiple of this offset, so that batches do not depend on where a
/// segment begins, and replicas are equal.
const GROUP_OFFSETS: i64 = 256;

/// Uncompressed messages that follow each other and become one batch.
#[derive(Debug, Default)]
pub(super) struct Group {
    messages: Vec<u8>,
    last: Option<Last>,
}

/// The group's last message.
#[derive(Clone, Copy, Debug)]
struct Last {
    magic: i8,
    offset: i64,
    /// With append time a batch has one timestamp.
    append_time: Option<i64>,
}

impl Last {
    fn of(message: &Message<'_>) -> Self {
        let is_brokers = message.timestamp_type() == TimestampType::LogAppendTime;
        Self {
            magic: message.magic,
            offset: message.offset,
            append_time: is_brokers.then_some(message.timestamp),
        }
    }
}

impl Group {
    /// Whether the batch can have this message as its next one.
    pub fn takes(&self, message: &Message<'_>) -> bool {
        let next = Last::of(message);
        self.last.is_none_or(|last| {
            next.offset > last.offset
                && next.offset.div_euclid(GROUP_OFFSETS) == last.offset.div_euclid(GROUP_OFFSETS)
                && next.magic == last.magic
                && next.append_time == last.append_time
                && self.messages.len() + message.bytes.len() <= GROUP_BYTES
        })
    }

    /// Adds a message whose checksum is right.
    pub fn push(&mut self, message: &Message<'_>) {
        self.messages.extend_from_slice(message.bytes);
        self.last = Some(Last::of(message));
    }

    /// The batch; `None` without messages.
    pub fn take(&mut self, epoch: i32) -> Option<Result<Vec<u8>, String>> {
        let magic = self.last.take()?.magic;
        let converted = up_convert(&mut self.messages, magic, None, OffsetDeltas::Kept);
        let batch = converted
            .map_err(|error| error.to_string())
            .and_then(|found| {
                let records = &self.messages[..found.len];
                let (codec, levels) = (Compression::None, CompressionLevels::default());
                batch_of(&found, found.first_offset, epoch, records, codec, levels)
            });
        self.messages.clear();
        self.messages.shrink_to(GROUP_BYTES);
        Some(batch)
    }
}

/// How wrappers become batches.
#[derive(Clone, Copy, Debug)]
pub(super) struct Wrappers {
    pub levels: CompressionLevels,
    pub epoch: i32,
    /// Where their segment begins.
    pub from: i64,
    /// The caller holds [`large::lock`].
    pub is_alone: bool,
}

/// The batch of a wrapper, in the same codec, without messages below the segment: the ones before it
/// have these.
///
/// # Errors
/// Why its content cannot be one.
pub(super) fn of_wrapper(
    message: &Message<'_>,
    codec: Compression,
    how: Wrappers,
) -> Result<Vec<u8>, String> {
    if codec == Compression::Zstd {
        return Err("messages of old formats cannot be compressed with zstd".to_owned());
    }
    let Some(value) = message.value else {
        return Err("a compressed message has no value".to_owned());
    };
    let lz4_header = match message.magic {
        MAGIC_0 => Lz4Header::Format0,
        _ => Lz4Header::Standard,
    };
    let mut body = Vec::new();
    let mut expand =
        |limit_bytes| decompress_with(codec, lz4_header, value, &mut body, limit_bytes);
    let mut alone = None;
    let expanded = match expand(large::SMALL_BYTES) {
        Err(DecompressError::TooLarge { .. }) => {
            alone = (!how.is_alone).then(large::lock);
            expand(EXPANDED_BYTES_MAX_DEFAULT)
        }
        result => result,
    };
    expanded.map_err(|error| error.to_string())?;
    body.drain(..bytes_below(how.from, &body, message));
    let wrapper = Wrapper {
        offset: message.offset,
        timestamp: message.timestamp,
        timestamp_type: message.timestamp_type(),
    };
    let found = up_convert(&mut body, message.magic, Some(wrapper), OffsetDeltas::Kept)
        .map_err(|error| error.to_string())?;
    let base_offset = base_offset(message, &found).ok_or("its offsets are impossible")?;
    let records = &body[..found.len];
    let batch = batch_of(&found, base_offset, how.epoch, records, codec, how.levels);
    drop(body);
    drop(alone);
    batch
}

/// How many bytes of a wrapper's content are messages below `from`; 0 if all are, or if it is
/// malformed, which is found when it is converted.
fn bytes_below(from: i64, content: &[u8], wrapper: &Message<'_>) -> usize {
    // Up to the message that `until` tells by its offset.
    let walk = |until: &dyn Fn(i64) -> bool| {
        let (mut at, mut last) = (0, None);
        while let Some((offset, len)) = next_message(&content[at..]) {
            if until(offset) {
                break;
            }
            last = Some(offset);
            at += len;
        }
        (at, last)
    };
    let (end, Some(last)) = walk(&|_| false) else {
        return 0;
    };
    let first_kept = match wrapper.magic {
        MAGIC_0 => from,
        _ if wrapper.offset == 0 => from,
        // Relative to the last one, which has the wrapper's offset.
        _ => from.saturating_sub(wrapper.offset.saturating_sub(last)),
    };
    match walk(&|offset| offset >= first_kept) {
        (at, _) if at < end && end == content.len() => at,
        _ => 0,
    }
}

/// Offset and length of the message that begins here, if it is whole.
fn next_message(bytes: &[u8]) -> Option<(i64, usize)> {
    let offset = i64::from_be_bytes(*bytes.first_chunk()?);
    let len = next_len(bytes).ok()??;
    (len <= bytes.len()).then_some((offset, len))
}

/// Of a wrapper's first message. In format 1 the wrapper has the offset of its last one; zero says
/// nothing, and the offsets are as they stand.
fn base_offset(message: &Message<'_>, found: &UpConverted) -> Option<i64> {
    match message.magic {
        MAGIC_0 => Some(found.first_offset),
        _ if message.offset == 0 => Some(found.first_offset),
        _ => message
            .offset
            .checked_sub(found.last_offset - found.first_offset),
    }
}

fn batch_of(
    found: &UpConverted,
    base_offset: i64,
    epoch: i32,
    records: &[u8],
    codec: Compression,
    levels: CompressionLevels,
) -> Result<Vec<u8>, String> {
    let mut bytes = Vec::with_capacity(HEADER_LEN + records.len() / 2);
    bytes.resize(HEADER_LEN, 0);
    compress_at(levels, codec, records, &mut bytes).map_err(|error| error.to_string())?;
    let time = match found.claims_append_time {
        true => TIMESTAMP_TYPE_BIT,
        false => 0,
    };
    let header = BatchHeader {
        attributes: codec as i16 | time,
        // The offsets of a batch were checked to lie so close.
        last_offset_delta: (found.last_offset - found.first_offset) as i32,
        base_timestamp: found.base_timestamp,
        max_timestamp: found.max_timestamp,
        record_count: found.count,
        ..plain_header(base_offset, epoch)
    };
    finish(header, bytes)
}

/// A batch at `offset` that cannot be read, of the bytes of an entry that cannot: `is_intact` says
/// whether its checksum is right, as that of the entry is.
pub(super) fn broken(
    entry: &[u8],
    offset: i64,
    epoch: i32,
    is_intact: bool,
) -> Result<Vec<u8>, String> {
    let mut bytes = vec![0; HEADER_LEN];
    bytes.extend_from_slice(entry);
    let header = plain_header(offset, epoch);
    let mut bytes = finish(header, bytes)?;
    if !is_intact {
        let mut header = BatchHeader::parse(&bytes).map_err(|error| error.to_string())?;
        header.crc = !header.crc;
        bytes[..HEADER_LEN].copy_from_slice(&header.to_bytes());
    }
    Ok(bytes)
}

/// The header of one record without codec and timestamp.
fn plain_header(base_offset: i64, epoch: i32) -> BatchHeader {
    BatchHeader {
        base_offset,
        batch_length: 0,
        partition_leader_epoch: epoch,
        crc: 0,
        attributes: 0,
        last_offset_delta: 0,
        base_timestamp: NO_TIMESTAMP,
        max_timestamp: NO_TIMESTAMP,
        producer_id: NO_PRODUCER_ID,
        producer_epoch: -1,
        base_sequence: -1,
        record_count: 1,
    }
}

/// Puts the header before the body in `bytes`, with length and checksum.
fn finish(mut header: BatchHeader, mut bytes: Vec<u8>) -> Result<Vec<u8>, String> {
    let length = i32::try_from(bytes.len() - LENGTH_PREFIX_LEN);
    header.batch_length = length.map_err(|_| "it grew beyond 2 GiB".to_owned())?;
    bytes[..HEADER_LEN].copy_from_slice(&header.to_bytes());
    batch::refresh_crc(&mut bytes);
    Ok(bytes)
}
