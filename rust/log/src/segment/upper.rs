//! How far the offsets of a part of a closed segment go, by its offset index.

use std::io;
use std::sync::Arc;

use crate::offset_index::OffsetEntry;
use crate::scan::{BatchScanner, ScanError};
use crate::segment::Segment;
use crate::wait::Wait;

impl Segment {
    /// The last offset of some append at or behind `position`, in a closed segment: all offsets
    /// before `position` are below it. `None` if the index has none (Kafka:
    /// `LogSegment.fetchUpperBoundOffset`).
    ///
    /// # Errors
    /// A disk error; `WouldBlock` with [`Wait::Nowait`].
    pub fn offset_behind(self: &Arc<Self>, position: u64, wait: Wait) -> io::Result<Option<i64>> {
        let Ok(position) = u32::try_from(position) else {
            return Ok(None);
        };
        let Some(entry) = self.entry_behind(position, wait)? else {
            return Ok(None);
        };
        // A wrong index must hide no aborted transaction. An entry of Kafka's can stand for several
        // batches, and then has the last offset of the last one.
        let (bytes, at) = (self.bytes(), u64::from(entry.position));
        let met = BatchScanner::new(bytes, at, self.size(), 0, wait).next_header();
        match met {
            Ok(met) => Ok(met
                .filter(|met| met.header.last_offset() <= entry.offset)
                .map(|_| entry.offset)),
            Err(ScanError::Io(error)) => Err(error),
            Err(ScanError::NotABatch { .. }) => Ok(None),
        }
    }

    fn entry_behind(
        self: &Arc<Self>,
        position: u32,
        wait: Wait,
    ) -> io::Result<Option<OffsetEntry>> {
        if let Some(closing) = &*self.closing.lock() {
            return Ok(closing.offsets.view().upper_bound(position));
        }
        if !self.is_closed() {
            return Ok(None);
        }
        let files = self.index_files(wait)?;
        let is_before = |entry: &OffsetEntry| entry.position < position;
        let found = files.offsets.first_not(wait, is_before)?;
        Ok(found.filter(|entry| !is_before(entry)))
    }
}
