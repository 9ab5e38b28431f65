//! Walks a `.log` of any format: record batches, and messages of formats 0 and 1, which Kafka wrote
//! before 0.11. All have offset, size and format number at the same places.

use std::io;

use pyrklog_wire::batch::{BatchHeader, HEADER_LEN, MAGIC};
use pyrklog_wire::message_set::{MAGIC_0, MAGIC_1, next_len};

use crate::scan::BatchScanner;
use crate::segment::SegmentBytes;
use crate::wait::Wait;

/// A larger size of a message is taken for a wrong one.
const MESSAGE_BYTES_MAX: usize = 256 << 20;
const MAGIC_AT: usize = 16;

/// What begins at a position.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Entry {
    /// A message of format 0 or 1, or a wrapper. Only size and format number were looked at.
    Message { magic: i8, len: usize },
    /// A record batch, which ends within the file.
    Batch(BatchHeader),
    /// No whole entry.
    Nothing,
}

/// Reads entry after entry, in pieces.
pub(crate) struct Entries {
    scanner: BatchScanner<SegmentBytes>,
    chunk: usize,
    position: u64,
    limit: u64,
}

impl Entries {
    /// From `position`, where an entry begins, to `limit`; reads `chunk` bytes at once.
    pub fn new(bytes: SegmentBytes, position: u64, limit: u64, chunk: usize) -> Self {
        Self {
            scanner: BatchScanner::new(bytes, position, limit, chunk, Wait::Blocking),
            chunk,
            position,
            limit,
        }
    }

    /// Where the next entry begins.
    pub fn position(&self) -> u64 {
        self.position
    }

    /// The next entry; `None` at the limit.
    ///
    /// # Errors
    /// A disk error; `InvalidData` if the file has become shorter.
    pub fn peek(&mut self) -> io::Result<Option<Entry>> {
        let left = self.limit.saturating_sub(self.position);
        if left == 0 {
            return Ok(None);
        }
        let head = self.bytes(left.min(HEADER_LEN as u64) as usize)?;
        Ok(Some(entry(head, left)))
    }

    /// The offset of the next entry, a message or batch.
    ///
    /// # Errors
    /// As [`Entries::peek`].
    pub fn offset(&mut self) -> io::Result<i64> {
        let mut offset = [0; 8];
        offset.copy_from_slice(self.bytes(8)?);
        Ok(i64::from_be_bytes(offset))
    }

    /// The next `len` bytes.
    ///
    /// # Errors
    /// As [`Entries::peek`].
    pub fn bytes(&mut self, len: usize) -> io::Result<&[u8]> {
        let bytes = self.scanner.bytes_at(self.position, len, self.chunk);
        bytes.map_err(io::Error::from)
    }

    /// Gives back the memory of what was read.
    pub fn forget(&mut self) {
        self.scanner.forget();
    }

    /// Goes on behind `len` bytes.
    pub fn skip(&mut self, len: usize) {
        self.position += len as u64;
    }
}

fn entry(head: &[u8], left: u64) -> Entry {
    let len = match next_len(head) {
        Ok(Some(len)) if len as u64 <= left => len,
        _ => return Entry::Nothing,
    };
    match head.get(MAGIC_AT).map(|magic| *magic as i8) {
        Some(magic @ (MAGIC_0 | MAGIC_1)) if len <= MESSAGE_BYTES_MAX => {
            Entry::Message { magic, len }
        }
        Some(MAGIC) => BatchHeader::parse(head).map_or(Entry::Nothing, Entry::Batch),
        _ => Entry::Nothing,
    }
}
