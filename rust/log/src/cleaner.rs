//! Log compaction: keeps the last record of each key (`docs/understanding/compaction.md`).
//!
//! Steps on one log, each without its lock unless it says otherwise:
//!
//! 1. [`crate::Log::cleaning_candidate`] (lock): the segments that may be cleaned now.
//! 2. [`CleaningCandidate::assess`]: how dirty they are, and whether it is time.
//! 3. [`crate::Log::begin_cleaning`] (lock): a job with what it needs of the log.
//! 4. [`CleanJob::build_map`]: the last offset of each key in the dirty part.
//! 5. [`CleanJob::next_group`]: copies some segments into one `.cleaned` segment.
//! 6. [`crate::Log::begin_swap`] (lock), [`SwapJob::execute`],
//!    [`crate::Log::complete_swap`] (lock): the new segment takes their place. Then the next group.
//!
//! The rules are those of Kafka 3.9's `LogCleaner`, `LogCleanerManager` and
//! `MemoryRecords.filterTo`.

use std::io;

use crate::disk;

mod batch;
pub(crate) mod copy;
mod group;
mod job;
mod offset_map;
mod range;
mod swap;
mod transactions;

pub use job::{CleanJob, CleaningStats, MapLimits};
pub use offset_map::OffsetMap;
pub use range::{CleaningCandidate, CleaningPlan};
pub use swap::SwapJob;

/// The options of a topic that decide when its logs are cleaned, and what goes.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct CleaningRules {
    /// `min.cleanable.dirty.ratio`.
    pub min_dirty_ratio: f64,
    /// `min.compaction.lag.ms`: younger records stay.
    pub min_lag_ms: i64,
    /// `max.compaction.lag.ms`: older dirty records are cleaned whatever the ratio.
    pub max_lag_ms: i64,
    /// `delete.retention.ms`: how long tombstones and markers stay after they were cleaned first.
    pub delete_retention_ms: i64,
}

impl Default for CleaningRules {
    /// The defaults of Kafka 3.9's topic options.
    fn default() -> Self {
        Self {
            min_dirty_ratio: 0.5,
            min_lag_ms: 0,
            max_lag_ms: i64::MAX,
            delete_retention_ms: 24 * 60 * 60 * 1000,
        }
    }
}

/// Asked between the pieces of a cleaning: where a thread waits for its share of the disk, or ends
/// the work.
pub trait Pace {
    /// So many bytes were read or written. False: stop here.
    fn pass(&mut self, bytes: u64) -> bool;
}

impl<F: FnMut(u64) -> bool> Pace for F {
    fn pass(&mut self, bytes: u64) -> bool {
        self(bytes)
    }
}

/// Why a cleaning ended early. The log is as it was.
#[derive(Debug, thiserror::Error)]
pub enum CleanError {
    /// A disk error.
    #[error(transparent)]
    Io(io::Error),
    /// A batch is damaged, or its result does not fit: cleaning it again would fail again.
    #[error("{0}")]
    Corrupt(String),
    /// [`Pace::pass`] said so.
    #[error("the cleaning was stopped")]
    Stopped,
    /// Retention, a truncation or a deletion took segments of it: begin anew.
    #[error("the log's segments changed meanwhile")]
    Stale,
}

impl CleanError {
    /// A lack of space, descriptors or memory: the log may be cleaned later.
    pub fn may_pass(&self) -> bool {
        matches!(self, Self::Io(error) if disk::may_pass(error))
    }
}

impl From<io::Error> for CleanError {
    /// Malformed content is no error of the disk.
    fn from(error: io::Error) -> Self {
        match error.kind() {
            io::ErrorKind::InvalidData => Self::Corrupt(error.to_string()),
            _ => Self::Io(error),
        }
    }
}
