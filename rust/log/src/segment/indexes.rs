//! Both sparse indexes of a segment, filled by Kafka's rule.

use std::io;

use crate::offset_index::OffsetIndex;
use crate::scan::{BatchFacts, BatchScanner, ReadBytes, WALK_CHUNK_BYTES};
use crate::sparse_index::IndexEntry;
use crate::time_index::{NO_TIMESTAMP, TimeEntry, TimeIndex};
use crate::wait::Wait;

/// `index.interval.bytes` where the topic's option is unknown.
const INTERVAL_BYTES: u32 = 4096;

#[derive(Debug)]
pub(crate) struct SegmentIndexes {
    pub offsets: OffsetIndex,
    pub times: TimeIndex,
    /// The largest timestamp so far and the last offset of the first batch with it.
    pub largest: TimeEntry,
    /// Bytes since the last entry.
    pub bytes_since_entry: u32,
}

impl SegmentIndexes {
    /// For an empty segment. `max_bytes` bounds each index (`segment.index.bytes`).
    pub fn new(base_offset: i64, max_bytes: u32) -> Self {
        Self {
            offsets: OffsetIndex::new(base_offset, max_bytes as usize),
            times: TimeIndex::new(base_offset, max_bytes as usize),
            largest: TimeEntry::none(base_offset),
            bytes_since_entry: 0,
        }
    }

    /// Bytes that the writer has not got yet.
    pub fn untaken_bytes(&self) -> usize {
        self.offsets.untaken().len() + self.times.untaken().len()
    }

    /// The writer has all entries, or the files do.
    pub fn set_taken(&mut self) {
        self.offsets.taken = self.offsets.size_bytes();
        self.times.taken = self.times.size_bytes();
    }

    /// Adds the next batch, which starts at `position`. If more than `interval` bytes precede it
    /// since the last entry, it gets entries: (last offset, first byte) and (largest timestamp so
    /// far, its offset).
    #[inline]
    pub fn add(&mut self, batch: BatchFacts, position: u32, interval: u32) {
        if batch.max_timestamp > self.largest.timestamp {
            self.largest = TimeEntry {
                timestamp: batch.max_timestamp,
                offset: batch.last_offset,
            };
        }
        if self.bytes_since_entry > interval {
            // An index may be incomplete: an entry that does not fit is omitted, and a full index
            // rolls the segment at the next append.
            let _left_out = self.offsets.append(batch.last_offset, position);
            self.add_largest(false);
            self.bytes_since_entry = 0;
        }
        self.bytes_since_entry = self.bytes_since_entry.saturating_add(batch.size);
    }

    /// Adds the largest timestamp so far to the time index; `closing` as the last entry of a
    /// complete segment.
    pub fn add_largest(&mut self, closing: bool) {
        if self.largest.timestamp > NO_TIMESTAMP {
            let TimeEntry { timestamp, offset } = self.largest;
            let _left_out = self.times.maybe_append(timestamp, offset, closing);
        }
    }

    /// The indexes of a closed segment of `size` bytes, from its batches' headers.
    pub fn rebuild(log: impl ReadBytes, base_offset: i64, size: u64) -> io::Result<Self> {
        let mut indexes = Self::new(base_offset, u32::MAX);
        let mut scanner = BatchScanner::new(log, 0, size, WALK_CHUNK_BYTES, Wait::Blocking);
        while let Some(met) = scanner.next_header()? {
            indexes.add(met.facts(), met.position as u32, INTERVAL_BYTES);
        }
        indexes.add_largest(true);
        Ok(indexes)
    }
}
