//! What others learn of a move, and it of its topic.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use pyrklog_log::{Log, LogConfig};

use crate::log_manager::LogManager;
use crate::moves::Move;

impl Move {
    /// Options of a copy: records wait for no sync of their own, and go with those of the current
    /// log only.
    pub(super) fn copy_config(&self) -> Arc<LogConfig> {
        let config = Arc::clone(&self.partition.topic.settings().log);
        Arc::new(LogConfig {
            flush_messages: i64::MAX,
            flush_ms: i64::MAX,
            cleanup_delete: false,
            ..(*config).clone()
        })
    }

    pub(super) fn note_progress(&self, log: &Log) {
        self.size_bytes.store(log.size_bytes(), Ordering::Relaxed);
        let end = log.log_end_offset();
        self.end_offset.store(end, Ordering::Relaxed);
    }

    /// Tells the operator of the move.
    pub(super) fn tell(
        &self,
        logs: &LogManager,
        event: &'static str,
        level: &'static str,
        reason: String,
    ) {
        let fields = vec![
            ("topic", self.partition.topic.name.to_string()),
            ("partition", self.partition.index.to_string()),
            ("to", self.destination.path().display().to_string()),
            ("reason", reason),
        ];
        logs.events.notice(event, level, fields);
    }
}
