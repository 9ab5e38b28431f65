//! What a broker demands of a batch before it takes it, as Kafka 3.9 does.
//!
//! Runs outside every lock, on the bytes as they were received, and patches them in place; it
//! allocates only to report an error or to change the codec. Offsets and leader epoch are left as
//! they came: the append patches them, outside the checksum.
//!
//! Order of the rules, which decides which error a batch with several faults gets: framing, one
//! batch only, format v2, codec allowed by the version; base offset, size, checksum, codec; counts,
//! flags, sequence; the records' structure, offsets, keys, timestamps; size after a change of codec.
//!
//! Departures from Kafka, all of them stricter where it would store or answer nonsense: offset deltas
//! must be 0, 1, 2, …; compressed records fill their announced length; an undefined codec or a body
//! that cannot be expanded is the client's fault (Kafka answers UNKNOWN_SERVER_ERROR); the expansion
//! is bounded.

mod framing;
mod records;
mod rewrite;

use pyrklog_wire::ErrorCode;
use pyrklog_wire::batch::{self, BatchHeader, Compression, HEADER_LEN, TimestampType};
use thiserror::Error;

use self::records::RecordFacts;
use crate::batch_info::BatchInfo;
use crate::compression::{self, DecompressError, EXPANDED_BYTES_MAX_DEFAULT};
use crate::config::{CompressionType, LogConfig};
use crate::producer_state::marker::MarkerError;

/// Record errors reported of one request at most, so that bad batches cannot ask for a large reply.
pub const RECORD_ERRORS_MAX: usize = 1000;

/// What a topic, and the version of the request, allow.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Rules {
    /// `max.message.bytes`: of the whole batch, as received and as stored.
    pub max_message_bytes: usize,
    /// `segment.bytes`: a batch must fit into a segment.
    pub segment_bytes: usize,
    /// `message.timestamp.type`.
    pub timestamp_type: TimestampType,
    /// `message.timestamp.before.max.ms`.
    pub timestamp_before_max_ms: i64,
    /// `message.timestamp.after.max.ms`.
    pub timestamp_after_max_ms: i64,
    /// `cleanup.policy` contains "compact": records need keys.
    pub compacted: bool,
    /// `compression.type`.
    pub compression: CompressionType,
    /// Version of the Produce request: zstd came with 7.
    pub produce_version: i16,
    /// What a compressed batch may expand to.
    pub expanded_bytes_max: usize,
    /// Record errors that may be reported of the batch: what its request has left of
    /// [`RECORD_ERRORS_MAX`].
    pub record_errors_max: usize,
}

impl Rules {
    /// The rules of a topic for a Produce request of this version.
    pub fn new(config: &LogConfig, produce_version: i16) -> Self {
        Self {
            max_message_bytes: config.max_message_bytes as usize,
            segment_bytes: config.segment_bytes as usize,
            timestamp_type: config.message_timestamp_type,
            timestamp_before_max_ms: config.message_timestamp_before_max_ms,
            timestamp_after_max_ms: config.message_timestamp_after_max_ms,
            compacted: config.cleanup_compact,
            compression: config.compression_type,
            produce_version,
            expanded_bytes_max: EXPANDED_BYTES_MAX_DEFAULT,
            record_errors_max: RECORD_ERRORS_MAX,
        }
    }

    /// The codec in which a batch that was sent in `sent` is stored.
    pub fn stored_codec(&self, sent: Compression) -> Compression {
        match self.compression {
            CompressionType::Producer => sent,
            CompressionType::Uncompressed => Compression::None,
            CompressionType::Gzip => Compression::Gzip,
            CompressionType::Snappy => Compression::Snappy,
            CompressionType::Lz4 => Compression::Lz4,
            CompressionType::Zstd => Compression::Zstd,
        }
    }
}

/// A batch that may be appended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Validated {
    /// The batch as it is to be appended.
    pub info: BatchInfo,
    /// Its bytes if the topic asks for another codec; else the first `info.size_bytes` of what was
    /// validated, patched in place.
    pub rewritten: Option<Vec<u8>>,
    /// Length of its records, expanded.
    pub expanded_bytes: usize,
}

impl Validated {
    /// The batch is appended at a later time than it was validated: where the broker sets
    /// timestamps it gets that of `now_ms`. `batch` is the one to be appended.
    pub fn set_time(&mut self, batch: &mut [u8], now_ms: i64) {
        if self.info.log_append_time {
            batch::set_max_timestamp(batch, now_ms);
            batch::refresh_crc(batch);
            self.info.max_timestamp = now_ms;
        }
    }
}

/// A batch that is refused.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[error("{message}")]
pub struct ValidationError {
    /// The protocol's error code.
    pub code: ErrorCode,
    /// Why, in one sentence, for the client's log.
    pub message: String,
    /// Index in the batch and reason, of the records that are at fault by themselves; at most
    /// [`Rules::record_errors_max`].
    pub record_errors: Vec<(i32, String)>,
    /// Its records expand to more than [`Rules::expanded_bytes_max`].
    pub expands_beyond: bool,
}

impl ValidationError {
    #[cold]
    fn new(code: ErrorCode, message: impl ToString) -> Box<Self> {
        Box::new(Self {
            code,
            message: message.to_string(),
            record_errors: Vec::new(),
            expands_beyond: false,
        })
    }

    fn invalid(message: impl ToString) -> Box<Self> {
        Self::new(ErrorCode::INVALID_RECORD, message)
    }
}

impl From<DecompressError> for Box<ValidationError> {
    fn from(error: DecompressError) -> Self {
        let code = match error {
            DecompressError::TooLarge { .. } => ErrorCode::MESSAGE_TOO_LARGE,
            DecompressError::Corrupt { .. } => ErrorCode::INVALID_RECORD,
        };
        let mut refused = ValidationError::new(code, &error);
        refused.expands_beyond = matches!(error, DecompressError::TooLarge { .. });
        refused
    }
}

type Result<T> = std::result::Result<T, Box<ValidationError>>;

/// Checks what a client wants to append to one partition, and fits it for the log: the largest
/// timestamp is recomputed (some clients leave it out), timestamps become the broker's where the
/// topic says so, the checksum follows. `bytes` is the partition's whole record data; what little
/// may follow the batch is ignored, as Kafka does.
///
/// # Errors
/// [`ValidationError`]; `bytes` is then unchanged.
pub fn validate_produce(bytes: &mut [u8], rules: &Rules, now_ms: i64) -> Result<Validated> {
    let total_len = framing::single_batch(bytes, rules.produce_version)?;
    let batch = &mut bytes[..total_len];
    let header = check_envelope(batch, rules)?;
    let sent = header
        .compression()
        .map_err(|error| ValidationError::new(ErrorCode::UNSUPPORTED_COMPRESSION_TYPE, error))?;
    check_header(&header)?;
    let stored = rules.stored_codec(sent);
    let body = &batch[HEADER_LEN..];
    let limit_bytes = rules.expanded_bytes_max;
    let (facts, rewritten, expanded_bytes) =
        compression::with_decompressed(sent, body, limit_bytes, |records| -> Result<_> {
            let facts = records::check(&header, records, rules, now_ms)?;
            let rewritten = match stored == sent {
                true => None,
                false => Some(rewrite::change_codec(&header, records, stored)?),
            };
            Ok((facts, rewritten, records.len()))
        })??;
    let mut validated = finish(batch, rewritten, rules, facts, now_ms)?;
    validated.expanded_bytes = expanded_bytes;
    Ok(validated)
}

/// Checks a batch that a leader has validated: size, checksum, and what an append relies on.
///
/// # Errors
/// CORRUPT_MESSAGE or INVALID_RECORD.
pub fn validate_replica(batch: &[u8]) -> Result<BatchInfo> {
    let corrupt = |error: MarkerError| ValidationError::new(ErrorCode::CORRUPT_MESSAGE, error);
    batch::verify_crc(batch).map_err(|error| corrupt(error.into()))?;
    let info = BatchInfo::parse(batch).map_err(corrupt)?;
    if info.last_offset_delta < 0 || info.base_offset < 0 || info.record_count < 0 {
        return Err(ValidationError::invalid(format!(
            "a batch at offset {} has {} records and ends {} offsets later",
            info.base_offset, info.record_count, info.last_offset_delta
        )));
    }
    Ok(info)
}

/// Base offset, size, checksum: what Kafka checks before it looks at the header's meaning.
fn check_envelope(batch: &[u8], rules: &Rules) -> Result<BatchHeader> {
    if batch[..8] != [0; 8] {
        return Err(ValidationError::invalid(
            "the base offset of a produced batch must be 0",
        ));
    }
    if batch.len() > rules.max_message_bytes {
        return Err(too_large(batch.len(), rules));
    }
    let corrupt = |error| ValidationError::new(ErrorCode::CORRUPT_MESSAGE, error);
    let header = BatchHeader::parse(batch).map_err(corrupt)?;
    batch::verify_crc(batch).map_err(corrupt)?;
    Ok(header)
}

fn too_large(len: usize, rules: &Rules) -> Box<ValidationError> {
    let message = format!(
        "the batch has {len} bytes, max.message.bytes of the topic is {}",
        rules.max_message_bytes
    );
    ValidationError::new(ErrorCode::MESSAGE_TOO_LARGE, message)
}

/// Counts, flags and sequence.
fn check_header(header: &BatchHeader) -> Result<()> {
    let (delta, count) = (header.last_offset_delta, header.record_count);
    if delta < 0 || count <= 0 || i64::from(delta) + 1 != i64::from(count) {
        return Err(ValidationError::invalid(format!(
            "the batch says {count} records, but a last offset delta of {delta}"
        )));
    }
    if header.is_control() {
        return Err(ValidationError::invalid(
            "clients must not write control batches",
        ));
    }
    if header.producer_id > batch::NO_PRODUCER_ID && header.base_sequence < 0 {
        return Err(ValidationError::invalid(format!(
            "a batch of producer {} has sequence {}",
            header.producer_id, header.base_sequence
        )));
    }
    Ok(())
}

/// Sets timestamps and checksum, and checks the size as it will be stored.
fn finish(
    sent: &mut [u8],
    mut rewritten: Option<Vec<u8>>,
    rules: &Rules,
    facts: RecordFacts,
    now_ms: i64,
) -> Result<Validated> {
    let batch = rewritten.as_deref_mut().unwrap_or(sent);
    if batch.len() > rules.max_message_bytes {
        return Err(too_large(batch.len(), rules));
    }
    if batch.len() > rules.segment_bytes {
        let message = format!(
            "the batch has {} bytes, segment.bytes of the topic is {}",
            batch.len(),
            rules.segment_bytes
        );
        return Err(ValidationError::new(
            ErrorCode::RECORD_LIST_TOO_LARGE,
            message,
        ));
    }
    let max_timestamp = match rules.timestamp_type {
        TimestampType::CreateTime => facts.max_timestamp,
        TimestampType::LogAppendTime => now_ms,
    };
    let header = BatchHeader::parse(batch).map_err(ValidationError::invalid)?;
    let timed =
        header.max_timestamp == max_timestamp && header.timestamp_type() == rules.timestamp_type;
    if !timed {
        batch::set_timestamp_type(batch, rules.timestamp_type);
        batch::set_max_timestamp(batch, max_timestamp);
    }
    if !timed || rewritten.is_some() {
        batch::refresh_crc(rewritten.as_deref_mut().unwrap_or(sent));
    }
    let mut info = BatchInfo::from_header(&header);
    info.max_timestamp = max_timestamp;
    info.log_append_time = rules.timestamp_type == TimestampType::LogAppendTime;
    Ok(Validated {
        info,
        rewritten,
        expanded_bytes: 0,
    })
}

#[cfg(test)]
mod tests;
