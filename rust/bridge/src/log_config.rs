//! A topic's resolved log options from Python, with Kafka's names.

use pyrklog_log as log;
use pyrklog_log::config::timestamp_type;

use crate::classes::keyword_class;
use crate::errors::unknown_option;

keyword_class! {
    /// `pyrklog_log::LogConfig`.
    LogConfig(log::LogConfig) {
        segment_bytes: u32,
        segment_ms: i64,
        segment_jitter_ms: i64,
        segment_index_bytes: u32,
        index_interval_bytes: u32,
        max_message_bytes: u32,
        message_timestamp_type: &str =
            timestamp_type(message_timestamp_type).map_err(unknown_option)?,
        message_timestamp_before_max_ms: i64,
        message_timestamp_after_max_ms: i64,
        compression_type: &str = compression_type.parse().map_err(unknown_option)?,
        flush_messages: i64,
        flush_ms: i64,
        retention_ms: i64,
        retention_bytes: i64,
        file_delete_delay_ms: i64,
        cleanup_delete: bool,
        cleanup_compact: bool,
    }
}
