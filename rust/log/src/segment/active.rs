//! The segment that is appended to: its indexes on the heap, and the rule for rolling.

use std::sync::Arc;

use crate::config::LogConfig;
use crate::offset_index::ENTRY_BYTES as OFFSET_ENTRY_BYTES;
use crate::scan::BatchFacts;
use crate::segment::indexes::SegmentIndexes;
use crate::segment::{ClosingIndexes, Segment};

/// The active segment. All of it is under the log's lock but `segment`, which readers share.
#[derive(Debug)]
pub(crate) struct ActiveSegment {
    /// The shared part.
    pub segment: Arc<Segment>,
    /// Offset -> position, timestamp -> offset.
    pub indexes: SegmentIndexes,
    /// Bytes of the offset index that were handed to the writer.
    pub offsets_taken: usize,
    /// Bytes of the time index that were handed to the writer.
    pub times_taken: usize,
    /// Bytes of the `.log`, those in the tail included.
    pub size: u32,
    /// The first batch's largest timestamp.
    pub first_timestamp: Option<i64>,
    /// When it was made, or opened.
    pub created_ms: i64,
    /// By how much `segment.ms` is shortened for this segment.
    pub jitter_ms: i64,
}

/// Beyond this a segment that is full rolls, however many others are yet to be synced.
const CROWDED_SEGMENT_BYTES: u64 = 16 << 20;

/// What is put up with while many segments are yet to be synced.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Crowd {
    /// The segment's age is no reason to roll it.
    pub may_age: bool,
    /// Nor that it or one of its indexes is full, while it is small: index entries are left out then.
    pub may_grow: bool,
}

impl ActiveSegment {
    /// An empty one.
    pub fn new(segment: Arc<Segment>, config: &LogConfig, jitter_seed: u64, now_ms: i64) -> Self {
        let base_offset = segment.base_offset();
        Self {
            indexes: SegmentIndexes::new(base_offset, config.segment_index_bytes),
            offsets_taken: 0,
            times_taken: 0,
            size: 0,
            first_timestamp: None,
            created_ms: now_ms,
            jitter_ms: jitter_ms(config, jitter_seed ^ base_offset as u64),
            segment,
        }
    }

    /// It takes no more batches: its indexes go to the shared part, which is returned.
    pub fn close(self) -> Arc<Segment> {
        self.segment.begin_close(ClosingIndexes {
            indexes: self.indexes,
            offsets_taken: self.offsets_taken,
            times_taken: self.times_taken,
        });
        self.segment
    }

    /// Brings its index files up to date.
    pub fn write_index_tails(&self) -> std::io::Result<()> {
        let (offsets, times) = (self.offsets_taken, self.times_taken);
        self.segment
            .write_index_tails(&self.indexes, offsets, times)
    }

    /// Base offset of the segment.
    pub fn base_offset(&self) -> i64 {
        self.segment.base_offset()
    }

    /// Kafka's rule: whether the batch has to go into a new segment, but for what `crowd` allows.
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
                && self.waited_ms(batch.max_timestamp, now_ms) > config.segment_ms - self.jitter_ms
            || !fits_relative(batch.last_offset, self.base_offset())
    }

    /// Age of the segment by the batches' own time, or by the clock where they carry none.
    fn waited_ms(&self, timestamp: i64, now_ms: i64) -> i64 {
        match self.first_timestamp {
            Some(first) if first >= 0 && timestamp >= 0 => timestamp.saturating_sub(first),
            _ => now_ms.saturating_sub(self.created_ms),
        }
    }

    /// Notes a batch that was appended; an index entry is made each `interval` bytes.
    #[inline]
    pub fn appended(&mut self, batch: BatchFacts, interval: u32) {
        if self.size == 0 {
            self.first_timestamp = Some(batch.max_timestamp);
        }
        self.indexes.add(batch, self.size, interval);
        self.size += batch.size;
    }

    /// When the newest record was made (ms), or the segment where the records carry no time.
    pub fn newest_ms(&self) -> i64 {
        match self.indexes.largest.timestamp {
            timestamp if timestamp >= 0 => timestamp,
            _ => self.created_ms,
        }
    }

    /// Bytes of the log behind the last index entry that the writer was given: what is walked
    /// after a kill.
    pub fn bytes_behind_index(&self) -> u32 {
        let entries = self.offsets_taken / OFFSET_ENTRY_BYTES;
        let last = entries.checked_sub(1);
        let last = last.and_then(|last| self.indexes.offsets.view().entry(last));
        self.size - last.map_or(0, |entry| entry.position)
    }

    /// Index bytes that the writer has not been given.
    pub fn untaken_index_bytes(&self) -> usize {
        let SegmentIndexes { offsets, times, .. } = &self.indexes;
        offsets.size_bytes() - self.offsets_taken + times.size_bytes() - self.times_taken
    }
}

/// Offsets are stored in four bytes relative to the base offset.
fn fits_relative(last_offset: i64, base_offset: i64) -> bool {
    last_offset
        .checked_sub(base_offset)
        .is_some_and(|delta| i32::try_from(delta).is_ok())
}

/// Segments of many partitions should not all roll at the same moment; which one when does not
/// matter, so the number is mixed from the segment's identity rather than drawn.
fn jitter_ms(config: &LogConfig, seed: u64) -> i64 {
    let bound = config.segment_jitter_ms.min(config.segment_ms);
    if bound <= 0 {
        return 0;
    }
    let mixed = (seed ^ (seed >> 31)).wrapping_mul(0x9E37_79B9_7F4A_7C15) >> 1;
    (mixed as i64 & i64::MAX) % bound
}
