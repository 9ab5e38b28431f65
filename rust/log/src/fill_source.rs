//! What another replica, which lacks older records, asks of this log (`expansion.md`, section 6).

use std::io;
use std::sync::Arc;

use crate::log::Log;
use crate::segment::Segment;
use crate::transaction_index::{AbortedTxn, SegmentAborted, entries};
use crate::wait::Wait;

/// Aborted transactions that are told of at once: with them an answer, and what it is made from,
/// stay within what each connection has free.
pub const ABORTED_PAGE: usize = 256;

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
    /// They are in the file: so many entries from one on.
    InFile {
        from: usize,
        count: usize,
    },
}

impl Log {
    /// The segment with the records right below `end`, all of which are committed; `None` if the
    /// log does not have them. Memory only.
    pub fn fill_source(&self, end: i64) -> Option<FillSource> {
        self.fill_source_from(end, 0)
    }

    /// The same for one who knows so many of its aborted transactions.
    pub fn fill_source_from(&self, end: i64, known: usize) -> Option<FillSource> {
        (end <= self.high_watermark.offset).then(|| self.source_below(end, known))?
    }

    /// A planted bug: they need not be committed.
    #[cfg(feature = "sim")]
    pub fn uncommitted_fill_source(&self, end: i64, known: usize) -> Option<FillSource> {
        (end <= self.durable_end.offset).then(|| self.source_below(end, known))?
    }

    fn source_below(&self, end: i64, known: usize) -> Option<FillSource> {
        if end <= self.log_start {
            return None;
        }
        let segment = &self.segments[self.segment_index(end - 1)];
        let aborted = match self.aborted.get(&segment.base_offset()) {
            None => Aborted::Known(Vec::new()),
            Some(SegmentAborted::Kept(index)) => {
                let entries = index.entries();
                let (from, count) = page(entries.len(), known);
                Aborted::Known(entries[from..from + count].to_vec())
            }
            Some(SegmentAborted::InFile(entries)) => {
                let (from, count) = page(*entries, known);
                Aborted::InFile { from, count }
            }
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

/// Where a page begins, and how much is on it.
fn page(entries: usize, known: usize) -> (usize, usize) {
    let from = known.min(entries);
    (from, (entries - from).min(ABORTED_PAGE))
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

    /// The next page of the aborted transactions whose markers lie in it below the offset; empty
    /// behind the last one.
    ///
    /// # Errors
    /// `WouldBlock` with [`Wait::Nowait`]; a disk error; `NotFound` if the log has changed.
    pub fn load_aborted(&self, wait: Wait) -> io::Result<Vec<AbortedTxn>> {
        let mut found = match &self.aborted {
            Aborted::Known(found) => found.clone(),
            Aborted::InFile { count: 0, .. } => Vec::new(),
            Aborted::InFile { from, count } => {
                let file = self.segment.transaction_index(wait)?;
                entries(&*file, *from, *count, wait)?
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
