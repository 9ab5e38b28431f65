//! Message sets (formats 0 and 1) of Produce 0 to 2: each becomes one batch.
//!
//! Kafka's rules (`UnifiedLog.analyzeAndValidateRecords`, then `LogValidator`): every whole
//! message's size and checksum; one format throughout; a compressed message is alone; the messages
//! in it have its format, good checksums and no codec. Their offsets do not matter, the broker
//! gives new ones. A record batch is judged as in later versions. A set without a whole message is
//! no error: nothing is appended, and the answer has no offset.
//!
//! Memory: a set is expanded into a buffer of its own, within [`Rules::expanded_bytes_max`], and
//! its records are made in that buffer ([`up_convert`]). The batch is a second one, no larger.

use pyrklog_wire::ErrorCode;
use pyrklog_wire::batch::{self, BatchHeader, Compression, NO_PRODUCER_ID, TIMESTAMP_TYPE_BIT};
use pyrklog_wire::error::DecodeError;
use pyrklog_wire::message_set::{
    MAGIC_0, MAGIC_1, Message, OffsetDeltas, UpConvertError, UpConverted, Wrapper, next_len,
    up_convert,
};
use pyrklog_wire::produce::BATCHES_SINCE;

use super::{Result, Rules, Validated, ValidationError, finish, records, rewrite, too_large};
use crate::compression::{Lz4Header, decompress_with};

const MAGIC_AT: usize = 16;

/// The whole messages of a partition's data.
#[derive(Clone, Copy, Debug)]
pub(super) struct MessageSet {
    /// Format of the first one.
    magic: i8,
    /// The last codec among them, as for Kafka.
    codec: Compression,
    count: usize,
    /// Where the last one ends.
    end: usize,
}

/// Looks through a request's data, which is a set if the version allows one and the first message
/// has an old format. `None` for a record batch.
///
/// # Errors
/// A message that is too large or has a wrong checksum or length.
pub(super) fn survey(bytes: &[u8], rules: &Rules) -> Result<Option<MessageSet>> {
    if rules.produce_version >= BATCHES_SINCE {
        return Ok(None);
    }
    let mut set = MessageSet {
        magic: MAGIC_0,
        codec: Compression::None,
        count: 0,
        end: 0,
    };
    while let Some(len) = next_len(&bytes[set.end..]).map_err(refusal)? {
        let Some(entry) = bytes.get(set.end..set.end + len) else {
            break;
        };
        let magic = entry[MAGIC_AT] as i8;
        if set.count == 0 {
            set.magic = magic;
            if !matches!(magic, MAGIC_0 | MAGIC_1) {
                return Ok(None);
            }
        } else if !(MAGIC_0..=batch::MAGIC).contains(&magic) {
            return Err(refusal(DecodeError::NotAMessage(magic)));
        } else if magic != set.magic {
            let (index, found, expected) = (set.count as i32, magic, set.magic);
            return Err(unconvertible(UpConvertError::MixedFormats {
                index,
                found,
                expected,
            }));
        }
        if len > rules.max_message_bytes {
            return Err(too_large(len, rules));
        }
        // It is whole, and its format is known.
        if let Some(message) = Message::parse(entry).map_err(refusal)? {
            message.verify_crc().map_err(refusal)?;
            let codec = message.compression().map_err(refusal)?;
            if codec != Compression::None {
                set.codec = codec;
            }
        }
        set.count += 1;
        set.end += len;
    }
    Ok(Some(set))
}

/// Makes the batch of a set.
///
/// # Errors
/// [`ValidationError`]; with NONE for a set without messages.
pub(super) fn validate(
    bytes: &[u8],
    set: MessageSet,
    rules: &Rules,
    now_ms: i64,
) -> Result<Validated> {
    if set.count == 0 {
        let message = "the partition's data has no whole message";
        return Err(ValidationError::new(ErrorCode::NONE, message));
    }
    let (mut body, wrapper) = expand(&bytes[..set.end], set, rules)?;
    let expanded_bytes = body.len();
    let converted = up_convert(&mut body, set.magic, wrapper, OffsetDeltas::Anew);
    let converted = converted.map_err(unconvertible)?;
    body.truncate(converted.len);
    let header = header_of(&converted);
    let facts = records::check(&header, &body, rules, now_ms)?;
    let stored = rules.stored_codec(set.codec);
    let batch = rewrite::change_codec(&header, &body, stored, rules)?;
    drop(body);
    let mut validated = finish(&mut [], Some(batch), rules, facts, now_ms)?;
    validated.expanded_bytes = expanded_bytes;
    Ok(validated)
}

/// The set's messages without a codec, and the message that they were in.
fn expand(set_bytes: &[u8], set: MessageSet, rules: &Rules) -> Result<(Vec<u8>, Option<Wrapper>)> {
    if set.codec == Compression::None {
        return Ok((set_bytes.to_vec(), None));
    }
    if set.count > 1 {
        return Err(ValidationError::invalid(
            "a compressed message is not alone in its partition's data",
        ));
    }
    if set.codec == Compression::Zstd {
        return Err(ValidationError::invalid(
            "messages of old formats cannot be compressed with zstd",
        ));
    }
    let Some(message) = Message::parse(set_bytes).map_err(refusal)? else {
        return Err(ValidationError::invalid("the message is cut off"));
    };
    let Some(value) = message.value else {
        return Err(ValidationError::invalid(
            "a compressed message has no value",
        ));
    };
    let lz4_header = match set.magic {
        MAGIC_0 => Lz4Header::Format0,
        _ => Lz4Header::Standard,
    };
    let mut body = Vec::new();
    let limit_bytes = rules.expanded_bytes_max;
    decompress_with(set.codec, lz4_header, value, &mut body, limit_bytes)?;
    let wrapper = Wrapper {
        offset: message.offset,
        timestamp: message.timestamp,
        timestamp_type: message.timestamp_type(),
    };
    Ok((body, Some(wrapper)))
}

/// The header of the records, without a codec.
fn header_of(converted: &UpConverted) -> BatchHeader {
    BatchHeader {
        base_offset: 0,
        batch_length: 0,
        partition_leader_epoch: -1,
        crc: 0,
        attributes: match converted.claims_append_time {
            true => TIMESTAMP_TYPE_BIT,
            false => 0,
        },
        last_offset_delta: converted.count - 1,
        base_timestamp: converted.base_timestamp,
        max_timestamp: converted.max_timestamp,
        producer_id: NO_PRODUCER_ID,
        producer_epoch: -1,
        base_sequence: -1,
        record_count: converted.count,
    }
}

fn unconvertible(error: UpConvertError) -> Box<ValidationError> {
    let code = match error {
        UpConvertError::Malformed { reason, .. } => code_of(reason),
        _ => ErrorCode::INVALID_RECORD,
    };
    ValidationError::new(code, error)
}

fn refusal(reason: DecodeError) -> Box<ValidationError> {
    ValidationError::new(code_of(reason), reason)
}

fn code_of(reason: DecodeError) -> ErrorCode {
    match reason {
        DecodeError::BadCompression(_) => ErrorCode::UNSUPPORTED_COMPRESSION_TYPE,
        DecodeError::BadMessageFields => ErrorCode::INVALID_RECORD,
        _ => ErrorCode::CORRUPT_MESSAGE,
    }
}
