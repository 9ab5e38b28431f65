//! What another replica, which lacks older records, asks of this log (`expansion.md`, section 6).

use std::io;
use std::sync::Arc;

use crate::log::Log;
use crate::segment::Segment;
use crate::transaction_index::{AbortedTxn, SegmentAborted, entries};
use crate::wait::Wait;

/// The segment that holds the records right below an offset.
#[derive(Debug)]
pub struct FillSource {
    segment: Arc<Segment>,
    begin: i64,
    end: i64,
    aborted: Aborted,
    /// Of the segment that is being written.
    newest_ms: Option<i64>,
}

#[derive(Debug)]
enum Aborted {
    Known(Vec<AbortedTxn>),
    /// So many entries are in the file.
    InFile(usize),
}

impl Log {
    /// The segment with the records right below `end`, all of which are committed; `None` if the
    /// log does not have them. Memory only.
    pub fn fill_source(&self, end: i64) -> Option<FillSource> {
        (end <= self.high_watermark.offset).then(|| self.source_below(end))?
    }

    /// A planted bug: they need not be committed.
    #[cfg(feature = "sim")]
    pub fn uncommitted_fill_source(&self, end: i64) -> Option<FillSource> {
        (end <= self.durable_end.offset).then(|| self.source_below(end))?
    }

    fn source_below(&self, end: i64) -> Option<FillSource> {
        if end <= self.log_start {
            return None;
        }
        let segment = &self.segments[self.segment_index(end - 1)];
        let aborted = match self.aborted.get(&segment.base_offset()) {
            None => Aborted::Known(Vec::new()),
            Some(SegmentAborted::Kept(index)) => Aborted::Known(index.entries().to_vec()),
            Some(SegmentAborted::InFile(count)) => Aborted::InFile(*count),
        };
        Some(FillSource {
            segment: Arc::clone(segment),
            begin: segment.base_offset().max(self.log_start),
            end,
            aborted,
            newest_ms: self.newest_ms_of(segment),
        })
    }

    fn newest_ms_of(&self, segment: &Arc<Segment>) -> Option<i64> {
        let is_active = Arc::ptr_eq(segment, &self.active.segment);
        is_active.then(|| self.active.newest_ms())
    }
}

impl FillSource {
    /// The first offset of the segment that may be read.
    pub fn begin(&self) -> i64 {
        self.begin
    }

    /// Another one once a cleaning has replaced the segment. Unique in this process.
    pub fn segment_id(&self) -> u64 {
        self.segment.id()
    }

    /// Bytes of the whole segment.
    pub fn size_bytes(&self) -> u64 {
        self.segment.size()
    }

    /// The aborted transactions whose markers lie in it below the offset.
    ///
    /// # Errors
    /// `WouldBlock` with [`Wait::Nowait`]; a disk error; `NotFound` if the log has changed.
    pub fn load_aborted(&self, wait: Wait) -> io::Result<Vec<AbortedTxn>> {
        let mut found = match &self.aborted {
            Aborted::Known(found) => found.clone(),
            Aborted::InFile(count) => {
                let file = self.segment.transaction_index(wait)?;
                entries(&*file, 0, *count, wait)?
            }
        };
        found.retain(|txn| txn.last_offset < self.end);
        Ok(found)
    }

    /// Time of its newest record (ms), or when its file was last changed, as retention goes by it.
    ///
    /// # Errors
    /// `WouldBlock` with [`Wait::Nowait`]; a disk error; `NotFound` if the log has changed.
    pub fn load_newest_ms(&self, wait: Wait) -> io::Result<i64> {
        match self.newest_ms.or_else(|| self.segment.newest_ms()) {
            Some(newest_ms) => Ok(newest_ms),
            None if wait == Wait::Nowait => Err(io::ErrorKind::WouldBlock.into()),
            None => self.segment.load_newest_ms(),
        }
    }
}
