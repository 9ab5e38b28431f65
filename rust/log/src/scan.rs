//! Walks the batches of a `.log` file.

use std::io;

use pyrklog_wire::batch::{BatchHeader, HEADER_LEN};
use pyrklog_wire::error::DecodeError;

use crate::wait::Wait;

/// Bytes read at once to look up a few headers.
pub(crate) const LOOK_UP_CHUNK_BYTES: usize = 4096 + 256;
/// Bytes read at once to walk what lies behind the last index entry.
pub(crate) const TAIL_CHUNK_BYTES: usize = 128 << 10;
/// Bytes read at once to walk a whole segment.
pub(crate) const WALK_CHUNK_BYTES: usize = 1 << 20;
/// Behind a longer batch only the next header is read, since most bytes of such a segment lie
/// between headers.
const LONG_BATCH_BYTES: usize = 64 << 10;

/// Why a walk ended before its limit.
#[derive(Debug)]
pub(crate) enum ScanError {
    /// A disk error; `WouldBlock` if waiting was not allowed.
    Io(io::Error),
    /// No whole batch lies at `position`.
    NotABatch { position: u64, reason: DecodeError },
}

impl From<io::Error> for ScanError {
    fn from(error: io::Error) -> Self {
        Self::Io(error)
    }
}

impl From<ScanError> for io::Error {
    fn from(error: ScanError) -> Self {
        match error {
            ScanError::Io(error) => error,
            ScanError::NotABatch { position, reason } => io::Error::new(
                io::ErrorKind::InvalidData,
                format!("no batch at position {position}: {reason}"),
            ),
        }
    }
}

/// What the rules for indexing and rolling need of a batch.
#[derive(Clone, Copy, Debug)]
pub(crate) struct BatchFacts {
    pub size: u32,
    pub last_offset: i64,
    /// Its largest timestamp, -1 = none.
    pub max_timestamp: i64,
}

#[derive(Clone, Copy, Debug)]
pub(crate) struct Met {
    pub position: u64,
    pub header: BatchHeader,
}

impl Met {
    pub fn facts(&self) -> BatchFacts {
        BatchFacts {
            size: u32::try_from(self.header.total_len()).unwrap_or(u32::MAX),
            last_offset: self.header.last_offset(),
            max_timestamp: self.header.max_timestamp,
        }
    }

    pub fn end(&self) -> u64 {
        self.position + self.header.total_len() as u64
    }
}

/// What batches are read from.
pub(crate) trait ReadBytes {
    fn read(&self, buffer: &mut [u8], position: u64, wait: Wait) -> io::Result<usize>;
}

/// Walks batch by batch up to a limit, reading in chunks.
pub(crate) struct BatchScanner<B> {
    bytes: B,
    wait: Wait,
    next: u64,
    limit: u64,
    chunk: usize,
    /// Bytes of the last batch met.
    last_bytes: usize,
    window: Vec<u8>,
    window_start: u64,
}

impl<B: ReadBytes> BatchScanner<B> {
    /// From `start`, where a batch begins, to `limit`, the end of what may be read.
    pub fn new(bytes: B, start: u64, limit: u64, chunk: usize, wait: Wait) -> Self {
        Self {
            bytes,
            wait,
            next: start,
            limit,
            chunk,
            last_bytes: 0,
            window: Vec::new(),
            window_start: start,
        }
    }

    /// The next batch's header; its body is not read. `None` at the limit.
    pub fn next_header(&mut self) -> Result<Option<Met>, ScanError> {
        let chunk = match self.last_bytes {
            // The length of batches is not known yet.
            0 | LONG_BATCH_BYTES.. => LOOK_UP_CHUNK_BYTES.min(self.chunk),
            _ => self.chunk,
        };
        self.next_header_in(chunk)
    }

    fn next_header_in(&mut self, chunk: usize) -> Result<Option<Met>, ScanError> {
        if self.next >= self.limit {
            return Ok(None);
        }
        let position = self.next;
        let bytes = self.bytes_at(position, HEADER_LEN, chunk)?;
        let header = BatchHeader::parse(bytes)
            .map_err(|reason| ScanError::NotABatch { position, reason })?;
        let met = Met { position, header };
        if met.end() > self.limit {
            return Err(cut_off(position, header.total_len(), self.limit - position));
        }
        self.next = met.end();
        self.last_bytes = met.header.total_len();
        Ok(Some(met))
    }

    /// The next batch with all its bytes. `None` at the limit.
    pub fn next_whole(&mut self) -> Result<Option<(Met, &[u8])>, ScanError> {
        let Some(met) = self.next_header_in(self.chunk)? else {
            return Ok(None);
        };
        let bytes = self.whole(&met)?;
        Ok(Some((met, bytes)))
    }

    /// All bytes of a batch that was just met.
    pub fn whole(&mut self, met: &Met) -> Result<&[u8], ScanError> {
        self.bytes_at(met.position, met.header.total_len(), self.chunk)
    }

    /// Gives back the memory of what was read.
    pub fn forget(&mut self) {
        self.window = Vec::new();
    }

    /// `len` bytes at `position`; reads a new window if needed.
    pub fn bytes_at(
        &mut self,
        position: u64,
        len: usize,
        chunk: usize,
    ) -> Result<&[u8], ScanError> {
        let held = self.window_start + self.window.len() as u64;
        if position < self.window_start || position + len as u64 > held {
            self.fill(position, len, chunk)?;
        }
        let start = (position - self.window_start) as usize;
        Ok(&self.window[start..start + len])
    }

    fn fill(&mut self, position: u64, len: usize, chunk: usize) -> Result<(), ScanError> {
        let left = self.limit - position;
        if (len as u64) > left {
            return Err(cut_off(position, len, left));
        }
        let wanted = (len.max(chunk) as u64).min(left) as usize;
        self.window.clear();
        self.window.resize(wanted, 0);
        self.window_start = position;
        let mut filled = 0;
        while filled < len {
            let at = position + filled as u64;
            match self.bytes.read(&mut self.window[filled..], at, self.wait) {
                Ok(0) => {
                    self.window.clear();
                    return Err(cut_off(position, len, filled as u64));
                }
                Ok(n) => filled += n,
                Err(error) => {
                    self.window.clear();
                    return Err(error.into());
                }
            }
        }
        self.window.truncate(filled);
        Ok(())
    }
}

fn cut_off(position: u64, needed: usize, remaining: u64) -> ScanError {
    let remaining = remaining as usize;
    let reason = DecodeError::Truncated { needed, remaining };
    ScanError::NotABatch { position, reason }
}
