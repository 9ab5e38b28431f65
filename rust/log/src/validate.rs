//! Kafka 3.9's rules for a batch to be appended.
//!
//! Runs outside every lock and patches the received bytes in place. Allocates only to report an
//! error or to change the codec. The append sets offsets and leader epoch, outside the checksum.
//!
//! Message sets of Produce 0 to 2 become a batch ([`old_formats`]).
//!
//! The order of the rules decides which of several errors is reported: framing, one batch only,
//! format v2, codec allowed by the version; base offset, size, checksum, codec; counts, flags,
//! sequence; the records' structure, offsets, keys, timestamps; size after a change of codec.
//!
//! With [`Rules::keeps_offsets`] a batch brings its base offset, and its records' offsets may have
//! gaps, as after compaction ([`own_offsets`]).
//!
//! Stricter than Kafka: offset deltas must be 0, 1, 2, …; compressed records must fill their
//! announced length; an undefined codec or an unreadable body is the client's fault (Kafka answers
//! UNKNOWN_SERVER_ERROR); the expansion is bounded.

mod framing;
mod old_formats;
mod own_offsets;
mod records;
mod rewrite;

use pyrklog_wire::ErrorCode;
use pyrklog_wire::batch::{self, BatchHeader, Compression, HEADER_LEN, TimestampType};
use thiserror::Error;

use self::records::RecordFacts;
use crate::batch_info::BatchInfo;
use crate::compression::{self, CompressionLevels, DecompressError, EXPANDED_BYTES_MAX_DEFAULT};
use crate::config::LogConfig;
use crate::producer_state::marker::MarkerError;

/// Limit of record errors per request, so that bad batches cannot cause a large reply.
pub const RECORD_ERRORS_MAX: usize = 1000;

/// Limits from a topic and the version of the request.
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
    /// `compression.type`; `None` for the producer's.
    pub compression: Option<Compression>,
    /// The levels at which batches are compressed anew.
    pub compression_levels: CompressionLevels,
    /// Version of the Produce request: record batches came with 3, zstd with 7.
    pub produce_version: i16,
    /// Limit of a compressed batch's expansion.
    pub expanded_bytes_max: usize,
    /// Record errors that may be reported of the batch: the rest of its request's
    /// [`RECORD_ERRORS_MAX`].
    pub record_errors_max: usize,
    /// The batch is appended at its own offsets (ProduceAt).
    pub keeps_offsets: bool,
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
            compression_levels: config.compression_levels,
            produce_version,
            expanded_bytes_max: EXPANDED_BYTES_MAX_DEFAULT,
            record_errors_max: RECORD_ERRORS_MAX,
            keeps_offsets: false,
        }
    }

    /// The codec in which a batch sent in `sent` is stored.
    pub fn stored_codec(&self, sent: Compression) -> Compression {
        self.compression.unwrap_or(sent)
    }
}

/// A batch that may be appended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Validated {
    /// The batch's fields for the append.
    pub info: BatchInfo,
    /// Its bytes if the codec or the format changed; else it is the first `info.total_len()` of the
    /// validated bytes, patched in place.
    pub rewritten: Option<Vec<u8>>,
    /// Length of its expanded records.
    pub expanded_bytes: usize,
}

impl Validated {
    /// Sets the append time of `batch`, the one to be appended, if the broker sets timestamps and
    /// the append happens later than the validation.
    pub fn set_time(&mut self, batch: &mut [u8], now_ms: i64) {
        if self.info.is_log_append_time() {
            batch::set_max_timestamp(batch, now_ms);
            self.info.header.crc = batch::refresh_crc(batch);
            self.info.header.max_timestamp = now_ms;
        }
    }
}

/// A batch that is refused.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[error("{message}")]
pub struct ValidationError {
    /// The protocol's error code.
    pub code: ErrorCode,
    /// The reason for the client's log, one sentence.
    pub message: String,
    /// (index in the batch, reason) of faulty records, at most [`Rules::record_errors_max`].
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

/// Validates what a client appends to one partition and prepares it for the log: recomputes the
/// largest timestamp (some clients leave it out), applies the broker's timestamps if the topic says
/// so, and updates the checksum. `bytes` is the partition's record data; a short rest behind the
/// batch is ignored, as by Kafka.
///
/// # Errors
/// [`ValidationError`]; `bytes` is then unchanged.
pub fn validate_produce(bytes: &mut [u8], rules: &Rules, now_ms: i64) -> Result<Validated> {
    if let Some(set) = old_formats::survey(bytes, rules)? {
        return old_formats::validate(bytes, set, rules, now_ms);
    }
    let total_len = framing::single_batch(bytes, rules.produce_version)?;
    let batch = &mut bytes[..total_len];
    let header = check_envelope(batch, rules)?;
    let sent = header
        .compression()
        .map_err(|error| ValidationError::new(ErrorCode::UNSUPPORTED_COMPRESSION_TYPE, error))?;
    check_header(&header, rules)?;
    let stored = rules.stored_codec(sent);
    let body = &batch[HEADER_LEN..];
    let limit_bytes = rules.expanded_bytes_max;
    let (facts, rewritten, expanded_bytes) =
        compression::with_decompressed(sent, body, limit_bytes, |records| -> Result<_> {
            let facts = records::check(&header, records, rules, now_ms)?;
            if rules.keeps_offsets {
                own_offsets::check_records(&header, records)?;
            }
            let rewritten = match stored == sent {
                true => None,
                false => Some(rewrite::change_codec(&header, records, stored, rules)?),
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

/// Base offset, size, checksum: Kafka checks these first.
fn check_envelope(batch: &[u8], rules: &Rules) -> Result<BatchHeader> {
    if batch[..8] != [0; 8] && !rules.keeps_offsets {
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
fn check_header(header: &BatchHeader, rules: &Rules) -> Result<()> {
    let (delta, count) = (header.last_offset_delta, header.record_count);
    if rules.keeps_offsets {
        own_offsets::check_header(header)?;
    } else if delta < 0 || count <= 0 || i64::from(delta) + 1 != i64::from(count) {
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

/// Sets timestamps and checksum, and checks the stored size.
fn finish(
    sent: &mut [u8],
    mut rewritten: Option<Vec<u8>>,
    rules: &Rules,
    facts: RecordFacts,
    now_ms: i64,
) -> Result<Validated> {
    let mut changed = rewritten.is_some();
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
    let mut header = BatchHeader::parse(batch).map_err(ValidationError::invalid)?;
    if header.max_timestamp != max_timestamp || header.timestamp_type() != rules.timestamp_type {
        batch::set_timestamp_type(batch, rules.timestamp_type);
        batch::set_max_timestamp(batch, max_timestamp);
        changed = true;
    }
    if changed {
        batch::refresh_crc(batch);
        header = BatchHeader::parse(batch).map_err(ValidationError::invalid)?;
    }
    Ok(Validated {
        info: BatchInfo::from_header(header),
        rewritten,
        expanded_bytes: 0,
    })
}

#[cfg(test)]
mod tests;
