//! The topic options that logs act on.

pub use pyrklog_wire::batch::{Compression, TimestampType};

use crate::cleaner::CleaningRules;
pub use crate::compression::CompressionLevels;

/// Parses `message.timestamp.type`.
///
/// # Errors
/// Any value other than "CreateTime" and "LogAppendTime".
pub fn timestamp_type(text: &str) -> Result<TimestampType, UnknownOption> {
    match text {
        "CreateTime" => Ok(TimestampType::CreateTime),
        "LogAppendTime" => Ok(TimestampType::LogAppendTime),
        _ => Err(UnknownOption::new("message.timestamp.type", text)),
    }
}

/// Parses `compression.type`: the codec in which batches are stored; `None` as the producer sent
/// them.
///
/// # Errors
/// Any value other than "producer", "uncompressed" and the names of codecs.
pub fn compression_type(text: &str) -> Result<Option<Compression>, UnknownOption> {
    match text {
        "producer" => Ok(None),
        "uncompressed" => Ok(Some(Compression::None)),
        _ => match Compression::from_name(text) {
            None => Err(UnknownOption::new("compression.type", text)),
            codec => Ok(codec),
        },
    }
}

/// An option's value is unknown to Kafka.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{option} cannot be \"{value}\"")]
pub struct UnknownOption {
    /// Kafka's name of the option.
    pub option: &'static str,
    /// The value.
    pub value: String,
}

impl UnknownOption {
    fn new(option: &'static str, value: &str) -> Self {
        Self {
            option,
            value: value.to_owned(),
        }
    }
}

/// Resolved topic options. Each field has the name of Kafka's topic option with dots as
/// underscores. The caller has checked the bounds.
#[derive(Clone, Debug, PartialEq)]
pub struct LogConfig {
    /// A segment is rolled before it would grow beyond this.
    pub segment_bytes: u32,
    /// A segment is rolled when its first batch is older than this, by batch timestamps.
    pub segment_ms: i64,
    /// Largest random reduction of `segment_ms`, per segment.
    pub segment_jitter_ms: i64,
    /// Size of a full offset or time index, which rolls the segment.
    pub segment_index_bytes: u32,
    /// An index entry is made for the first batch after this many bytes.
    pub index_interval_bytes: u32,
    /// The largest batch, as stored, header included.
    pub max_message_bytes: u32,
    /// The source of timestamps.
    pub message_timestamp_type: TimestampType,
    /// How far a record's timestamp may lie before the broker's clock.
    pub message_timestamp_before_max_ms: i64,
    /// How far a record's timestamp may lie after the broker's clock.
    pub message_timestamp_after_max_ms: i64,
    /// The codec in which batches are stored; `None` as the producer sent them.
    pub compression_type: Option<Compression>,
    /// `compression.gzip.level`, `compression.lz4.level` and `compression.zstd.level`.
    pub compression_levels: CompressionLevels,
    /// Fetch versions without record batches get converted ones, else an error.
    pub message_downconversion_enable: bool,
    /// With this many unsynced records the durable end offset waits for an fsync; 1 = each append.
    pub flush_messages: i64,
    /// Written data is synced within this time.
    pub flush_ms: i64,
    /// Segments whose newest record is older are deleted; -1 = no limit.
    pub retention_ms: i64,
    /// The oldest segments beyond this size are deleted; -1 = no limit.
    pub retention_bytes: i64,
    /// How long a deleted segment's renamed files stay on disk.
    pub file_delete_delay_ms: i64,
    /// `cleanup.policy` contains "delete".
    pub cleanup_delete: bool,
    /// `cleanup.policy` contains "compact".
    pub cleanup_compact: bool,
    /// How long compaction keeps tombstones and markers after it met them first.
    pub delete_retention_ms: i64,
    /// Dirty bytes of all bytes beyond which a log is compacted.
    pub min_cleanable_dirty_ratio: f64,
    /// Younger records are not compacted.
    pub min_compaction_lag_ms: i64,
    /// Older dirty records are compacted whatever the ratio.
    pub max_compaction_lag_ms: i64,
}

impl LogConfig {
    /// The options of compaction.
    pub fn cleaning_rules(&self) -> CleaningRules {
        CleaningRules {
            min_dirty_ratio: self.min_cleanable_dirty_ratio,
            min_lag_ms: self.min_compaction_lag_ms,
            max_lag_ms: self.max_compaction_lag_ms,
            delete_retention_ms: self.delete_retention_ms,
        }
    }

    /// Age at which a segment is rolled: what is to be compacted in time must be closed before.
    pub(crate) fn roll_ms(&self) -> i64 {
        match self.cleanup_compact {
            true => self.segment_ms.min(self.max_compaction_lag_ms.max(1)),
            false => self.segment_ms,
        }
    }

    /// Where a follower notes a leader epoch whose first batch begins at `base_offset`, behind a log
    /// that ends at `log_end`: there, as its leader did, who may have brought a gap. Where compaction
    /// made the gap, records of the epoch before may have been in it.
    pub(crate) fn epoch_start(&self, base_offset: i64, log_end: i64) -> i64 {
        match self.cleanup_compact {
            true => base_offset,
            false => log_end,
        }
    }
}

impl Default for LogConfig {
    /// The defaults of Kafka 3.9's topic options.
    fn default() -> Self {
        const DAY_MS: i64 = 24 * 60 * 60 * 1000;
        Self {
            segment_bytes: 1 << 30,
            segment_ms: 7 * DAY_MS,
            segment_jitter_ms: 0,
            segment_index_bytes: 10 << 20,
            index_interval_bytes: 4096,
            max_message_bytes: 1024 * 1024 + 12,
            message_timestamp_type: TimestampType::CreateTime,
            message_timestamp_before_max_ms: i64::MAX,
            message_timestamp_after_max_ms: i64::MAX,
            compression_type: None,
            compression_levels: CompressionLevels::default(),
            message_downconversion_enable: true,
            flush_messages: i64::MAX,
            flush_ms: i64::MAX,
            retention_ms: 7 * DAY_MS,
            retention_bytes: -1,
            file_delete_delay_ms: 60_000,
            cleanup_delete: true,
            cleanup_compact: false,
            delete_retention_ms: DAY_MS,
            min_cleanable_dirty_ratio: 0.5,
            min_compaction_lag_ms: 0,
            max_compaction_lag_ms: i64::MAX,
        }
    }
}
