//! A topic's resolved log options from Python, with Kafka's names.

use pyo3::prelude::*;
use pyrklog_log as log;
use pyrklog_log::config::timestamp_type;

use crate::errors::unknown_option;

/// `pyrklog_log::LogConfig`.
#[pyclass(frozen, module = "pyrklog._core")]
pub struct LogConfig(pub log::LogConfig);

#[pymethods]
impl LogConfig {
    #[new]
    #[pyo3(signature = (
        *, segment_bytes, segment_ms, segment_jitter_ms, segment_index_bytes,
        index_interval_bytes, max_message_bytes, message_timestamp_type,
        message_timestamp_before_max_ms, message_timestamp_after_max_ms, compression_type,
        flush_messages, flush_ms, retention_ms, retention_bytes, file_delete_delay_ms,
        cleanup_delete, cleanup_compact
    ))]
    #[expect(
        clippy::too_many_arguments,
        reason = "one keyword a field, as in the stub"
    )]
    fn new(
        segment_bytes: u32,
        segment_ms: i64,
        segment_jitter_ms: i64,
        segment_index_bytes: u32,
        index_interval_bytes: u32,
        max_message_bytes: u32,
        message_timestamp_type: &str,
        message_timestamp_before_max_ms: i64,
        message_timestamp_after_max_ms: i64,
        compression_type: &str,
        flush_messages: i64,
        flush_ms: i64,
        retention_ms: i64,
        retention_bytes: i64,
        file_delete_delay_ms: i64,
        cleanup_delete: bool,
        cleanup_compact: bool,
    ) -> PyResult<Self> {
        Ok(Self(log::LogConfig {
            segment_bytes,
            segment_ms,
            segment_jitter_ms,
            segment_index_bytes,
            index_interval_bytes,
            max_message_bytes,
            message_timestamp_type: timestamp_type(message_timestamp_type)
                .map_err(unknown_option)?,
            message_timestamp_before_max_ms,
            message_timestamp_after_max_ms,
            compression_type: compression_type.parse().map_err(unknown_option)?,
            flush_messages,
            flush_ms,
            retention_ms,
            retention_bytes,
            file_delete_delay_ms,
            cleanup_delete,
            cleanup_compact,
        }))
    }
}
