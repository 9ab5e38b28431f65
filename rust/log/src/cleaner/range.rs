//! What of a log may be cleaned, and whether it is time (Kafka: `LogCleanerManager`).

use std::io;
use std::sync::Arc;

use crate::cleaner::CleaningRules;
use crate::config::LogConfig;
use crate::log::Log;
use crate::scan::ScanError;
use crate::segment::Segment;

/// The segments that may be cleaned now, from the first of the log on.
#[derive(Debug)]
pub struct CleaningCandidate {
    segments: Vec<Arc<Segment>>,
    /// The offset behind them.
    end: i64,
    first_dirty: i64,
    config: Arc<LogConfig>,
}

/// What a cleaning would do.
#[derive(Debug)]
pub struct CleaningPlan {
    pub(super) segments: Vec<Arc<Segment>>,
    pub(super) end: i64,
    pub(super) first_dirty: i64,
    pub(super) config: Arc<LogConfig>,
    pub(super) rules: CleaningRules,
    pub(super) now_ms: i64,
    pub(super) dirty_bytes: u64,
    dirty_ratio: f64,
    is_due: bool,
}

impl Log {
    /// What may be cleaned: closed, synced segments below the last stable offset, if records from
    /// `checkpoint` on are among them. A checkpoint outside of the log counts as none: everything is
    /// dirty. `None` if there is nothing to clean, or the log cannot be cleaned now. Memory only.
    pub fn cleaning_candidate(&self, checkpoint: Option<i64>) -> Option<CleaningCandidate> {
        // What was copied before a cleaning would differ from what is copied after it.
        let waits = self.truncating || self.is_swapping || self.is_leaving();
        let cannot = waits || self.poisoned().is_some();
        // A tombstone of a partial log may be for a record that is still to come.
        if cannot || !self.config.cleanup_compact || self.is_partial() {
            return None;
        }
        let log = self.log_start..=self.end.offset;
        let checkpoint = checkpoint.filter(|offset| log.contains(offset));
        let first_dirty = checkpoint.unwrap_or(self.log_start);
        let bound = self.last_stable_offset().min(self.recovery_point());
        let pairs = self.segments.windows(2);
        let is_below =
            |pair: &&[Arc<Segment>]| pair[0].is_closed() && pair[1].base_offset() <= bound;
        let count = pairs.take_while(is_below).count();
        let end = self.segments[count].base_offset();
        (count > 0 && end > first_dirty).then(|| CleaningCandidate {
            segments: self.segments[..count].to_vec(),
            end,
            first_dirty,
            config: Arc::clone(&self.config),
        })
    }
}

impl CleaningCandidate {
    /// How dirty they are. Reads times of segments from their files, where the rules ask for them;
    /// the caller must hold no lock. `None` if everything is too young.
    ///
    /// # Errors
    /// A disk error.
    pub fn assess(mut self, rules: CleaningRules, now_ms: i64) -> io::Result<Option<CleaningPlan>> {
        let is_before = |segment: &Arc<Segment>| segment.base_offset() <= self.first_dirty;
        let dirty_from = self.segments.partition_point(is_before).saturating_sub(1);
        let is_due = self.is_overdue(dirty_from, rules, now_ms)?;
        if rules.min_lag_ms > 0 {
            let young_after = now_ms.saturating_sub(rules.min_lag_ms);
            for i in dirty_from..self.segments.len() {
                if self.segments[i].load_newest_ms()? > young_after {
                    self.end = self.segments[i].base_offset();
                    self.segments.truncate(i);
                    break;
                }
            }
        }
        let size = |segments: &[Arc<Segment>]| segments.iter().map(|s| s.size()).sum::<u64>();
        let is_clean = |segment: &Arc<Segment>| segment.base_offset() < self.first_dirty;
        let clean_bytes = size(&self.segments[..self.segments.partition_point(is_clean)]);
        let dirty_bytes = size(&self.segments[dirty_from.min(self.segments.len())..]);
        if self.end <= self.first_dirty || dirty_bytes == 0 {
            return Ok(None);
        }
        Ok(Some(CleaningPlan {
            segments: self.segments,
            end: self.end,
            first_dirty: self.first_dirty,
            config: self.config,
            rules,
            now_ms,
            dirty_bytes,
            dirty_ratio: dirty_bytes as f64 / (clean_bytes + dirty_bytes) as f64,
            is_due,
        }))
    }

    /// Whether a dirty segment began more than `max.compaction.lag.ms` ago.
    fn is_overdue(&self, from: usize, rules: CleaningRules, now_ms: i64) -> io::Result<bool> {
        if rules.max_lag_ms == i64::MAX {
            return Ok(false);
        }
        let before_ms = now_ms.saturating_sub(rules.max_lag_ms.max(0));
        for segment in &self.segments[from..] {
            let first = segment.walk(0, 0).next_header();
            let first_ms = match first {
                Ok(first) => first.map_or(0, |met| met.header.max_timestamp),
                Err(ScanError::Io(error)) => return Err(error),
                // Cleaning will tell.
                Err(ScanError::NotABatch { .. }) => 0,
            };
            if first_ms > 0 && first_ms < before_ms {
                return Ok(true);
            }
        }
        Ok(false)
    }
}

impl CleaningPlan {
    /// Whether it is time: enough is dirty, or something is dirty for too long.
    pub fn is_worthwhile(&self) -> bool {
        self.is_due || self.dirty_ratio > self.rules.min_dirty_ratio
    }

    /// Dirty bytes of all bytes that may be cleaned. The dirtiest log comes first.
    pub fn dirty_ratio(&self) -> f64 {
        self.dirty_ratio
    }

    /// The offset behind what would be cleaned.
    pub fn end(&self) -> i64 {
        self.end
    }

    /// Where the dirty part begins.
    pub fn first_dirty(&self) -> i64 {
        self.first_dirty
    }
}
