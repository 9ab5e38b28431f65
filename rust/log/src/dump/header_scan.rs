//! Walks a segment's headers to check references into it.

use std::io;

use pyrklog_wire::batch::{BatchHeader, HEADER_LEN};

use super::Source;

const WINDOW_BYTES: usize = 64 * 1024;

/// Reads batch headers in order, through a window so that small batches cost few reads.
pub(super) struct HeaderScan {
    source: Box<dyn Source>,
    size: u64,
    position: u64,
    window: Vec<u8>,
    window_start: u64,
}

impl HeaderScan {
    pub fn new(source: Box<dyn Source>) -> io::Result<Self> {
        let size = source.size()?;
        Ok(Self {
            source,
            size,
            position: 0,
            window: Vec::new(),
            window_start: 0,
        })
    }

    pub fn size(&self) -> u64 {
        self.size
    }

    /// The header at the current position, without advancing; `None` at the end or where no whole
    /// batch follows.
    pub fn peek(&mut self) -> io::Result<Option<(u64, BatchHeader)>> {
        self.at(self.position)
    }

    /// Advances past `header`, which was peeked.
    pub fn skip(&mut self, header: &BatchHeader) {
        self.position += header.total_len() as u64;
    }

    pub fn at(&mut self, position: u64) -> io::Result<Option<(u64, BatchHeader)>> {
        if self.size.saturating_sub(position) < HEADER_LEN as u64 {
            return Ok(None);
        }
        let window_end = self.window_start + self.window.len() as u64;
        if position < self.window_start || position + HEADER_LEN as u64 > window_end {
            self.fill(position)?;
        }
        let start = (position - self.window_start) as usize;
        let header = self
            .window
            .get(start..)
            .and_then(|bytes| BatchHeader::parse(bytes).ok());
        let whole = header.filter(|header| header.total_len() as u64 <= self.size - position);
        Ok(whole.map(|header| (position, header)))
    }

    fn fill(&mut self, position: u64) -> io::Result<()> {
        let len = (self.size - position).min(WINDOW_BYTES as u64) as usize;
        self.window = super::read_exact(&*self.source, position, len)?;
        self.window_start = position;
        Ok(())
    }
}
