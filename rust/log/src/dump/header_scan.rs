//! Walks a segment's headers to check references into it.

use std::io;
use std::sync::Arc;

use pyrklog_wire::batch::BatchHeader;

use crate::disk::DiskFile;
use crate::scan::{BatchScanner, Met, ScanError};
use crate::segment::SegmentBytes;
use crate::wait::Wait;

const WINDOW_BYTES: usize = 64 * 1024;

/// Reads batch headers in order, through a window so that small batches cost few reads.
pub(super) struct HeaderScan {
    log: SegmentBytes,
    size: u64,
    scanner: BatchScanner<SegmentBytes>,
    /// Met and not skipped yet.
    next: Option<BatchHeader>,
}

impl HeaderScan {
    pub fn new(log: Arc<dyn DiskFile>) -> io::Result<Self> {
        let size = log.len()?;
        let log = SegmentBytes::of_file(log);
        let scanner = BatchScanner::new(log.clone(), 0, size, WINDOW_BYTES, Wait::Blocking);
        Ok(Self {
            log,
            size,
            scanner,
            next: None,
        })
    }

    pub fn size(&self) -> u64 {
        self.size
    }

    /// The next header, without advancing; `None` at the end or where no whole batch follows.
    pub fn peek(&mut self) -> io::Result<Option<BatchHeader>> {
        if self.next.is_none() {
            self.next = header_of(self.scanner.next_header())?;
        }
        Ok(self.next)
    }

    /// Goes on behind the header that [`HeaderScan::peek`] returned.
    pub fn skip(&mut self) {
        self.next = None;
    }

    /// The header at a position; `None` where no whole batch lies.
    pub fn at(&self, position: u64) -> io::Result<Option<BatchHeader>> {
        let log = self.log.clone();
        header_of(BatchScanner::new(log, position, self.size, 0, Wait::Blocking).next_header())
    }
}

fn header_of(met: Result<Option<Met>, ScanError>) -> io::Result<Option<BatchHeader>> {
    match met {
        Ok(met) => Ok(met.map(|met| met.header)),
        Err(ScanError::NotABatch { .. }) => Ok(None),
        Err(ScanError::Io(error)) => Err(error),
    }
}
