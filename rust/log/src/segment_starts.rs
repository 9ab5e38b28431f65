//! Where segments begin: the answer of ListOffsets 0, which knows offsets no closer.

use std::io;
use std::sync::Arc;

use crate::log::Log;
use crate::read::Isolation;
use crate::segment::Segment;

/// A log's segments and its end.
#[derive(Debug)]
pub struct SegmentStarts {
    segments: Arc<Vec<Arc<Segment>>>,
    /// The active segment's largest timestamp, -1 for none.
    active_newest_ms: i64,
    is_active_empty: bool,
    log_start: i64,
    bound: i64,
}

impl Log {
    /// The starts of segments up to the bound of `isolation`. Memory only.
    pub fn segment_starts(&self, isolation: Isolation) -> SegmentStarts {
        SegmentStarts {
            segments: Arc::clone(&self.segments),
            active_newest_ms: self.active.indexes.largest.timestamp,
            is_active_empty: self.active.size == 0,
            log_start: self.log_start,
            bound: self.bound(isolation).offset,
        }
    }
}

impl SegmentStarts {
    /// The last `max` starts, descending. Memory only.
    pub fn last(&self, max: usize) -> Vec<i64> {
        let starts = self
            .segments
            .iter()
            .rev()
            .map(|segment| self.start(segment));
        starts
            .filter(|start| *start <= self.bound)
            .take(max)
            .collect()
    }

    /// The same of segments whose newest record is no younger than `timestamp`; Kafka compares the
    /// time of the file's last change. The end comes first if `now_ms` is no later either. The
    /// caller must hold no lock.
    ///
    /// # Errors
    /// A disk error.
    pub fn before(&self, timestamp: i64, now_ms: i64, max: usize) -> io::Result<Vec<i64>> {
        let mut found = Vec::new();
        if !self.is_active_empty && now_ms <= timestamp {
            found.push(self.bound);
        }
        let last = self.segments.len().saturating_sub(1);
        for (at, segment) in self.segments.iter().enumerate().rev() {
            if found.len() >= max {
                break;
            }
            // Older segments follow, however old they are.
            let is_old_enough = !found.is_empty()
                || timestamp
                    >= match at == last {
                        true => self.active_newest_ms,
                        false => segment.load_newest_ms()?,
                    };
            if is_old_enough && self.start(segment) <= self.bound {
                found.push(self.start(segment));
            }
        }
        found.truncate(max);
        found.dedup();
        Ok(found)
    }

    fn start(&self, segment: &Segment) -> i64 {
        segment.base_offset().max(self.log_start)
    }
}
