//! The active segment: its indexes on the heap, and the rule for rolling.

use std::sync::Arc;

use crate::config::LogConfig;
use crate::offset_index::ENTRY_BYTES as OFFSET_ENTRY_BYTES;
use crate::scan::BatchFacts;
use crate::segment::Segment;
use crate::segment::indexes::SegmentIndexes;

/// The active segment, under the log's lock except for `segment`, which readers share.
#[derive(Debug)]
pub(crate) struct ActiveSegment {
    pub segment: Arc<Segment>,
    /// Offset -> position, timestamp -> offset.
    pub indexes: SegmentIndexes,

    /// Bytes of the `.log`, including the tail's.
    pub size: u32,
    /// See [`crate::Log::data_end_offset`]; of this and all segments before it.
    pub data_end: i64,
    pub first_timestamp: Option<i64>,
    /// When it was created or opened.
    pub created_ms: i64,
    /// Reduction of `segment.ms` for this segment.
    pub jitter_ms: i64,
}

/// A full segment beyond this size rolls, however many others are unsynced.
const CROWDED_SEGMENT_BYTES: u64 = 16 << 20;

/// A gap of so many offsets between two segments is intended: no segment could span it, and no log
/// loses so many records before they are synced.
const GAP_INTENDED: i64 = 1 << 30;

/// Whether a segment that begins at `base_offset` may follow records before `end_offset`, though
/// offsets are missing between.
pub(crate) fn is_gap_intended(end_offset: i64, base_offset: i64) -> bool {
    base_offset.saturating_sub(end_offset) >= GAP_INTENDED
}

/// Relaxed rules while many segments are unsynced.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Crowd {
    /// Age does not roll the segment.
    pub may_age: bool,
    /// Nor does a full segment or index, while it is small; index entries are then omitted.
    pub may_grow: bool,
}

impl ActiveSegment {
    pub fn new(segment: Arc<Segment>, config: &LogConfig, jitter_seed: u64, now_ms: i64) -> Self {
        let base_offset = segment.base_offset();
        Self {
            indexes: SegmentIndexes::new(base_offset, config.segment_index_bytes),
            size: 0,
            data_end: base_offset,
            first_timestamp: None,
            created_ms: now_ms,
            jitter_ms: jitter_ms(config, jitter_seed ^ base_offset as u64),
            segment,
        }
    }

    /// Takes no more batches: hands its indexes to the shared part and returns that.
    pub fn close(self) -> Arc<Segment> {
        self.segment.begin_close(self.indexes);
        self.segment
    }

    pub fn base_offset(&self) -> i64 {
        self.segment.base_offset()
    }

    /// Kafka's rule, relaxed by `crowd`: whether the batch must go into a new segment.
    pub fn must_roll(
        &self,
        batch: BatchFacts,
        config: &LogConfig,
        now_ms: i64,
        crowd: Crowd,
    ) -> bool {
        if self.size == 0 {
            return !fits_relative(batch.last_offset, self.base_offset());
        }
        let size = u64::from(self.size) + u64::from(batch.size);
        let is_small = crowd.may_grow && size <= CROWDED_SEGMENT_BYTES;
        let is_full = size > u64::from(config.segment_bytes)
            || self.indexes.offsets.is_full()
            || self.indexes.times.is_full();
        is_full && !is_small
            || !crowd.may_age
                && self.waited_ms(batch.max_timestamp, now_ms) > config.roll_ms() - self.jitter_ms
            || !fits_relative(batch.last_offset, self.base_offset())
    }

    /// Whether the segment's indexes can have this offset.
    pub fn spans(&self, offset: i64) -> bool {
        fits_relative(offset, self.base_offset())
    }

    /// Age of the segment by batch timestamps, or by the clock without any.
    fn waited_ms(&self, timestamp: i64, now_ms: i64) -> i64 {
        match self.first_timestamp {
            Some(first) if first >= 0 && timestamp >= 0 => timestamp.saturating_sub(first),
            _ => now_ms.saturating_sub(self.created_ms),
        }
    }

    /// Adds an appended batch; makes an index entry each `interval` bytes.
    #[inline]
    pub fn appended(&mut self, batch: BatchFacts, interval: u32) {
        if self.size == 0 {
            self.first_timestamp = Some(batch.max_timestamp);
        }
        self.indexes.add(batch, self.size, interval);
        self.size += batch.size;
    }

    /// Time of the newest record (ms), or of the segment's creation without timestamps.
    pub fn newest_ms(&self) -> i64 {
        match self.indexes.largest.timestamp {
            timestamp if timestamp >= 0 => timestamp,
            _ => self.created_ms,
        }
    }

    /// Bytes behind the last index entry that the writer has, which are walked after a kill.
    pub fn bytes_behind_index(&self) -> u32 {
        let entries = self.indexes.offsets.taken / OFFSET_ENTRY_BYTES;
        let last = entries.checked_sub(1);
        let last = last.and_then(|last| self.indexes.offsets.view().entry(last));
        self.size - last.map_or(0, |entry| entry.position)
    }
}

/// Offsets are stored in four bytes relative to the base offset.
pub(crate) fn fits_relative(last_offset: i64, base_offset: i64) -> bool {
    last_offset
        .checked_sub(base_offset)
        .is_some_and(|delta| i32::try_from(delta).is_ok())
}

/// Spreads the rolls of many partitions, by a hash of the segment's identity.
fn jitter_ms(config: &LogConfig, seed: u64) -> i64 {
    let bound = config.segment_jitter_ms.min(config.roll_ms());
    if bound <= 0 {
        return 0;
    }
    let mixed = (seed ^ (seed >> 31)).wrapping_mul(0x9E37_79B9_7F4A_7C15) >> 1;
    (mixed as i64 & i64::MAX) % bound
}
