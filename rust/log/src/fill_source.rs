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
        if end <= self.log_start || end > self.high_watermark.offset {
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
        })
    }
}

impl FillSource {
    /// The first offset of the segment that may be read.
    pub fn begin(&self) -> i64 {
        self.begin
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

    /// When its file was last changed; -1 if it has none yet.
    pub fn modified_ms(&self) -> i64 {
        self.segment.load_modified_ms().unwrap_or(-1)
    }
}
