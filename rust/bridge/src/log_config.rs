//! A topic's log options, read from `config/resolved.py`.

use pyo3::intern;
use pyo3::prelude::*;
use pyrklog_log::LogConfig;
use pyrklog_log::config::{CompressionLevels, compression_type, timestamp_type};

use crate::errors::unknown_option;
use crate::fields::{field, read};

/// Reads a `LogConfig`; `ValueError` for an unknown word of an option.
pub fn log_config(log: &Bound<'_, PyAny>) -> PyResult<LogConfig> {
    let py = log.py();
    let timestamps: String = field(log, intern!(py, "message_timestamp_type"))?;
    let compression: String = field(log, intern!(py, "compression_type"))?;
    Ok(read!(log => LogConfig {
        segment_bytes, segment_ms, segment_jitter_ms, segment_index_bytes, index_interval_bytes,
        max_message_bytes, message_timestamp_before_max_ms, message_timestamp_after_max_ms,
        flush_messages, flush_ms, retention_ms, retention_bytes, file_delete_delay_ms,
        cleanup_delete, cleanup_compact, delete_retention_ms, min_cleanable_dirty_ratio,
        min_compaction_lag_ms, max_compaction_lag_ms, message_downconversion_enable
    } with {
        message_timestamp_type: timestamp_type(&timestamps).map_err(unknown_option)?,
        compression_type: compression_type(&compression).map_err(unknown_option)?,
        compression_levels: CompressionLevels {
            gzip: field(log, intern!(py, "compression_gzip_level"))?,
            lz4: field(log, intern!(py, "compression_lz4_level"))?,
            zstd: field(log, intern!(py, "compression_zstd_level"))?,
        },
    }))
}
