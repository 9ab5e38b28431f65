//! The checkpoint files of a log directory.

use std::io;
use std::sync::Arc;

use pyrklog_log::Log;

use crate::log_dir::LogDirState;
use crate::shared::Shared;

type Row = (Arc<str>, i32, i64);

impl LogDirState {
    /// Writes `recovery-point-offset-checkpoint`.
    pub fn write_recovery_points(&self, shared: &Shared) -> io::Result<()> {
        let _no_deletion_between = self.checkpoints.lock();
        let rows = self.rows(shared, Log::recovery_point);
        self.files.write_recovery_points(&borrowed(&rows))
    }

    /// Writes the row of one log, which has just been cut. Rows that were gathered before are written
    /// before.
    pub fn write_recovery_point(&self, topic: &str, index: i32, offset: i64) -> io::Result<()> {
        let _nothing_gathered_before = self.checkpoints.lock();
        self.files.write_recovery_points(&[(topic, index, offset)])
    }

    /// Writes `log-start-offset-checkpoint`, for the logs that do not start at 0.
    pub fn write_log_starts(&self, shared: &Shared) -> io::Result<()> {
        let _no_deletion_between = self.checkpoints.lock();
        let mut rows = self.rows(shared, Log::log_start_offset);
        rows.retain(|(_, _, offset)| *offset > 0);
        self.files.write_log_starts(&borrowed(&rows))
    }

    /// Writes `replication-offset-checkpoint`.
    pub fn write_high_watermarks(&self, shared: &Shared) -> io::Result<()> {
        let _no_deletion_between = self.checkpoints.lock();
        let rows = self.rows(shared, Log::high_watermark);
        self.files.write_high_watermarks(&borrowed(&rows))
    }

    /// The open logs of the directory; the files keep the rows of the others.
    fn rows(&self, shared: &Shared, offset: impl Fn(&Log) -> i64) -> Vec<Row> {
        let mut rows = Vec::new();
        for partition in shared.registry.load().partitions() {
            if partition.dir.index != self.index {
                continue;
            }
            if let Some(log) = &partition.lock().log {
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
