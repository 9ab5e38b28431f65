//! Writes the checkpoint files of a log directory.

use std::io;
use std::sync::Arc;

use pyrklog_log::Log;

use crate::log_dir::{LogDirState, Registry};

type Row = (Arc<str>, i32, i64);

/// Checkpoint values of a log that was truncated.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CutLog {
    /// Everything below was synced.
    pub recovery_point: i64,
    /// Records below were deleted.
    pub log_start_offset: i64,
    /// Everything below is on all in-sync replicas.
    pub high_watermark: i64,
}

impl CutLog {
    /// The values of a log as it is now.
    pub fn of(log: &Log) -> CutLog {
        CutLog {
            recovery_point: log.recovery_point(),
            log_start_offset: log.log_start_offset(),
            high_watermark: log.high_watermark(),
        }
    }
}

impl LogDirState {
    /// Writes `recovery-point-offset-checkpoint`.
    pub fn write_recovery_points(&self, registry: &Registry) -> io::Result<()> {
        let _no_deletion_between = self.checkpoints.lock();
        let rows = self.rows(registry, Log::recovery_point);
        self.files.write_recovery_points(&borrowed(&rows))
    }

    /// Writes recovery point and log start offset of a log that was just truncated, and lowers its
    /// high watermark. The lock keeps rows gathered earlier from being written afterwards.
    pub fn write_cut(&self, topic: &str, index: i32, cut: CutLog) -> io::Result<()> {
        let _nothing_gathered_before = self.checkpoints.lock();
        let rows = |offset| [(topic, index, offset)];
        self.files.write_log_starts(&rows(cut.log_start_offset))?;
        self.files
            .lower_high_watermark(topic, index, cut.high_watermark)?;
        self.files.write_recovery_points(&rows(cut.recovery_point))
    }

    /// Writes `log-start-offset-checkpoint`.
    pub fn write_log_starts(&self, registry: &Registry) -> io::Result<()> {
        let _no_deletion_between = self.checkpoints.lock();
        let rows = self.rows(registry, Log::log_start_offset);
        self.files.write_log_starts(&borrowed(&rows))
    }

    /// Writes `replication-offset-checkpoint`.
    pub fn write_high_watermarks(&self, registry: &Registry) -> io::Result<()> {
        let _no_deletion_between = self.checkpoints.lock();
        let rows = self.rows(registry, Log::high_watermark);
        self.files.write_high_watermarks(&borrowed(&rows))
    }

    /// The open logs of the directory; the files keep the rows of the others, and of those whose
    /// offsets cannot be right.
    fn rows(&self, registry: &Registry, offset: impl Fn(&Log) -> i64) -> Vec<Row> {
        let mut rows = Vec::new();
        for partition in registry.load().partitions() {
            if partition.dir.index != self.index {
                continue;
            }
            let state = partition.lock();
            if let Some(log) = state.log.as_ref().filter(|_| !state.has_failed()) {
                rows.push((partition.topic.name.clone(), partition.index, offset(log)));
            }
        }
        rows
    }
}

fn borrowed(rows: &[Row]) -> Vec<(&str, i32, i64)> {
    rows.iter()
        .map(|(topic, partition, offset)| (&**topic, *partition, *offset))
        .collect()
}
