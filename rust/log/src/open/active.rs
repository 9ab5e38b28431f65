//! The active segment of an orderly closed log: its indexes, and the batches behind their last
//! entry.

use std::sync::Arc;

use crate::disk;
use crate::names::FileKind;
use crate::offset_index::{self, OffsetIndex};
use crate::open::load::LoadedState;
use crate::open::recovery::Recovered;
use crate::open::{Loader, OpenError, OpenReport};
use crate::scan::{ScanError, TAIL_CHUNK_BYTES, WALK_CHUNK_BYTES};
use crate::segment::{ActiveSegment, Segment, SegmentIndexes};
use crate::sparse_index::IndexEntry;
use crate::time_index::{self, TimeEntry, TimeIndex};

/// Index entries looked at behind which only transaction markers lie; each stands for some fifty.
const MARKER_ENTRIES_MAX: usize = 8;

pub(super) struct LoadedTail {
    pub active: ActiveSegment,
    /// The offset after its last batch.
    pub end_offset: i64,
    /// Batches were walked from this position on.
    pub walked_from: u64,
}

impl Loader<'_> {
    /// A segment with its indexes on the heap, which may have been read already; `None` if its
    /// `.log` does not end with a whole batch.
    pub(super) fn load_tail(
        &self,
        segment: &Arc<Segment>,
        indexes: Option<SegmentIndexes>,
        report: &mut OpenReport,
    ) -> Result<Option<LoadedTail>, OpenError> {
        let segment = segment.clone();
        let now_ms = self.expiry.now_ms;
        let mut active = ActiveSegment::new(segment.clone(), self.config, self.jitter_seed, now_ms);
        let size = segment.size();
        if size == 0 {
            return Ok(Some(LoadedTail {
                active,
                end_offset: segment.base_offset(),
                walked_from: 0,
            }));
        }
        // Files that precede the first written byte do not count.
        let has_files = segment.written() > 0;
        let indexes = match indexes {
            None if has_files => self.load_indexes(&segment)?,
            indexes => indexes,
        };
        if has_files && let Some(indexes) = indexes {
            let view = indexes.offsets.view();
            let written = segment.written();
            let last = (0..view.len()).rev().find_map(|i| {
                view.entry(i)
                    .filter(|entry| u64::from(entry.position) <= written)
            });
            active.indexes = indexes;
            if let Some(end_offset) = self.walk_tail(&mut active)? {
                return Ok(Some(LoadedTail {
                    active,
                    end_offset,
                    walked_from: last.map_or(0, |entry| u64::from(entry.position)),
                }));
            }
        }
        active.indexes =
            SegmentIndexes::new(segment.base_offset(), self.config.segment_index_bytes);
        let Some(end_offset) = self.walk_tail(&mut active)? else {
            return Ok(None);
        };
        if has_files {
            report.rebuilt_indexes += 1;
            report.notes.push(format!(
                "rebuilt the indexes of {}",
                segment.path(FileKind::Log).display()
            ));
            segment.replace_indexes(&active.indexes, disk::replace_file_unsynced)?;
            active.indexes.set_taken();
        }
        Ok(Some(LoadedTail {
            active,
            end_offset,
            walked_from: 0,
        }))
    }

    /// The index files, if both are plausible.
    pub(super) fn load_indexes(
        &self,
        segment: &Arc<Segment>,
    ) -> Result<Option<SegmentIndexes>, OpenError> {
        // A kill may have torn the last entry, which is then written again.
        let may_be_torn = self.is_same_boot || self.has_unwritten();
        let read = |kind, entry_bytes| {
            let content = disk::read_file(self.env.disk(), &segment.path(kind), i32::MAX as u64);
            let content = disk::if_exists(content)?;
            Ok::<_, OpenError>(content.map(|mut content| {
                if may_be_torn {
                    content.truncate(content.len() / entry_bytes * entry_bytes);
                }
                content
            }))
        };
        let offsets = read(FileKind::OffsetIndex, offset_index::ENTRY_BYTES)?;
        let times = read(FileKind::TimeIndex, time_index::ENTRY_BYTES)?;
        let (Some(offsets), Some(times)) = (offsets, times) else {
            return Ok(None);
        };
        let max_bytes = self.config.segment_index_bytes as usize;
        let base_offset = segment.base_offset();
        let offsets = OffsetIndex::load(base_offset, max_bytes, &offsets, segment.size());
        let times = TimeIndex::load(base_offset, max_bytes, &times);
        let (Ok(offsets), Ok(times)) = (offsets, times) else {
            return Ok(None);
        };
        Ok(Some(SegmentIndexes {
            largest: times.last().unwrap_or(TimeEntry::none(base_offset)),
            offsets,
            times,
            bytes_since_entry: 0,
        }))
    }

    /// Walks from the last index entry to the end and adds missing entries. `None` if the entry is
    /// wrong or the file does not end with a whole batch.
    fn walk_tail(&self, active: &mut ActiveSegment) -> Result<Option<i64>, OpenError> {
        let segment = active.segment.clone();
        active.data_end = segment.base_offset();
        let size = segment.size();
        let entry = active.indexes.offsets.last();
        let start = entry.map_or(0, |entry| u64::from(entry.position));
        let chunk = if start == 0 {
            WALK_CHUNK_BYTES
        } else {
            TAIL_CHUNK_BYTES
        };
        let mut first = segment.walk(0, 0);
        let mut scanner = segment.walk(start, chunk);
        let mut end_offset = segment.base_offset();
        loop {
            let met = match scanner.next_header() {
                Ok(Some(met)) => met,
                Ok(None) => break,
                Err(ScanError::Io(error)) => return Err(error.into()),
                Err(ScanError::NotABatch { .. }) => return Ok(None),
            };
            let leads_astray = entry.is_some_and(|entry| {
                met.position == start && met.header.base_offset > entry.offset
            });
            if leads_astray || met.header.base_offset < end_offset {
                return Ok(None);
            }
            end_offset = met.header.next_offset();
            if !met.header.is_control() {
                active.data_end = end_offset;
            }
            if met.position == start && entry.is_some() {
                // Its entry exists; only later bytes count towards the next one.
                active.indexes.bytes_since_entry = 0;
            }
            active.indexes.add(
                met.facts(),
                met.position as u32,
                self.config.index_interval_bytes,
            );
        }
        active.size = u32::try_from(size).unwrap_or(u32::MAX);
        active.first_timestamp = match first.next_header() {
            Ok(met) => met.map(|met| met.header.max_timestamp),
            Err(ScanError::Io(error)) => return Err(error.into()),
            Err(ScanError::NotABatch { .. }) => return Ok(None),
        };
        if active.data_end == segment.base_offset() {
            active.data_end = Self::data_end_before(active, start)?;
        }
        Ok(Some(end_offset))
    }

    /// Where only transaction markers follow the last index entry, which lies at `position`: the
    /// offset behind the last batch of records before it. It looks back a few entries.
    fn data_end_before(active: &ActiveSegment, position: u64) -> Result<i64, OpenError> {
        let entries = active.indexes.offsets.view();
        let mut until = position;
        let mut data_end = entries
            .len()
            .checked_sub(1)
            .and_then(|last| entries.entry(last))
            .map_or(active.base_offset(), |last| last.offset);
        for back in 2..2 + MARKER_ENTRIES_MAX {
            if until == 0 {
                break;
            }
            let entry = entries
                .len()
                .checked_sub(back)
                .and_then(|i| entries.entry(i));
            let from = entry.map_or(0, |entry| u64::from(entry.position));
            let first = entry.map_or(active.base_offset(), |entry| entry.offset);
            if let Some(found) = last_data_end(&active.segment, from, until)? {
                return Ok(found);
            }
            (until, data_end) = (from, first);
        }
        Ok(data_end)
    }

    /// The last segment after a recovery.
    pub(super) fn active_from_recovered(
        &self,
        loading: &LoadedState,
        recovered: Recovered,
    ) -> ActiveSegment {
        let segment = loading
            .segments
            .last()
            .expect("a log has at least one segment")
            .clone();
        let now_ms = self.expiry.now_ms;
        let mut active = ActiveSegment::new(segment, self.config, self.jitter_seed, now_ms);
        active.size = u32::try_from(recovered.size).unwrap_or(u32::MAX);
        active.data_end = recovered.data_end;
        active.first_timestamp = recovered.first_timestamp;
        active.indexes = recovered.indexes;
        active.indexes.set_taken();
        active
    }
}

/// The offset behind the last batch of records between two positions. What is no batch ends it: only
/// batches that an earlier run has checked lie here.
fn last_data_end(segment: &Arc<Segment>, from: u64, until: u64) -> Result<Option<i64>, OpenError> {
    let mut scanner = segment.walk(from, TAIL_CHUNK_BYTES);
    let mut found = None;
    loop {
        match scanner.next_header() {
            Ok(Some(met)) if met.position < until => {
                if !met.header.is_control() {
                    found = Some(met.header.next_offset());
                }
            }
            Ok(_) | Err(ScanError::NotABatch { .. }) => return Ok(found),
            Err(ScanError::Io(error)) => return Err(error.into()),
        }
    }
}
