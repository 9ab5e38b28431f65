//! Writes the checkpoint files of a log directory.

use std::io;

use pyrklog_log::{Checkpoint, Log};

use crate::log_dir_state::{LogDirState, Registry};

/// Checkpoint values of a truncated log.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CutLog {
    /// Everything below was synced.
    pub recovery_point: i64,
    /// Records below were deleted.
    pub log_start_offset: i64,
    /// Everything below is on all in-sync replicas.
    pub high_watermark: i64,
    /// Nothing from here on is compacted.
    pub compacted_end_max: i64,
}

impl CutLog {
    /// The values of a log as it is now.
    pub fn of(log: &Log) -> CutLog {
        CutLog {
            recovery_point: log.recovery_point(),
            log_start_offset: log.log_start_row(),
            high_watermark: log.high_watermark(),
            compacted_end_max: log.log_end_offset(),
        }
    }

    /// The same of a log of which nothing counts as compacted.
    #[must_use]
    pub fn not_compacted(self) -> CutLog {
        CutLog {
            compacted_end_max: 0,
            ..self
        }
    }
}

impl LogDirState {
    /// Writes recovery point and log start offset of a log that was just truncated, and lowers its
    /// high watermark. The lock keeps rows gathered earlier from being written afterwards.
    pub fn write_cut(&self, topic: &str, index: i32, cut: CutLog) -> io::Result<()> {
        let _nothing_gathered_before = self.checkpoints.lock();
        let write = |checkpoint, offset| {
            let rows = [(topic, index, offset)];
            self.files.write_checkpoint(checkpoint, &rows)
        };
        write(Checkpoint::LogStart, cut.log_start_offset)?;
        self.files
            .lower_high_watermark(topic, index, cut.high_watermark)?;
        self.files
            .lower_cleaned_end(topic, index, cut.compacted_end_max)?;
        write(Checkpoint::RecoveryPoint, cut.recovery_point)
    }

    /// Writes the row of a log that is about to be discarded, to begin lower
    /// ([`Log::log_start_row`]).
    pub fn write_log_start(&self, topic: &str, index: i32, offset: i64) -> io::Result<()> {
        let _nothing_gathered_before = self.checkpoints.lock();
        let rows = [(topic, index, offset)];
        self.files.write_checkpoint(Checkpoint::LogStart, &rows)
    }

    /// Writes a checkpoint's rows of the directory's open logs. The file keeps the rows of other
    /// logs, and of those with impossible offsets.
    pub fn write_checkpoint(&self, checkpoint: Checkpoint, registry: &Registry) -> io::Result<()> {
        let offset = match checkpoint {
            Checkpoint::RecoveryPoint => Log::recovery_point,
            Checkpoint::LogStart => Log::log_start_row,
            Checkpoint::HighWatermark => Log::high_watermark,
        };
        let _no_deletion_between = self.checkpoints.lock();
        let hosted = registry.load();
        let mut rows = Vec::new();
        let hosted = hosted.partitions();
        for partition in hosted.filter(|one| one.dir().index == self.index) {
            let state = partition.lock();
            if partition.dir().index != self.index {
                // It has just moved.
                continue;
            }
            if let Some(log) = state.log.as_ref().filter(|_| !state.has_failed()) {
                rows.push((&*partition.topic.name, partition.index, offset(log)));
            }
        }
        self.files.write_checkpoint(checkpoint, &rows)
    }
}
