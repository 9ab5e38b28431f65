//! The offset index: where in a segment's `.log` a batch begins.
//!
//! ```text
//! 0  4  last offset of a batch, less the base offset
//! 4  4  position of that batch's first byte in the .log
//! ```
//!
//! Sparse: an entry each `index.interval.bytes`, never one for the first batch. A look-up returns
//! the last entry at or below its target, or (base offset, 0); a scan from there finds the target.
//! The index may be incomplete: recovery rebuilds it from the `.log`.

use thiserror::Error;

use crate::sparse_index::{self, IndexEntry, IndexView, SparseIndex, used_bytes};

/// Bytes of one entry.
pub const ENTRY_BYTES: usize = 8;

/// A batch's last offset and the position of its first byte.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OffsetEntry {
    /// Last offset of the batch; the base offset if a look-up found no entry.
    pub offset: i64,
    /// Byte position in the `.log`.
    pub position: u32,
}

/// Why an offset or time index cannot be used, or an entry cannot be added.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[allow(missing_docs)] // The messages name variants and fields.
pub enum IndexError {
    #[error("the index has {len} bytes, which is not a multiple of {entry_bytes}")]
    PartialEntry { len: usize, entry_bytes: usize },
    /// An entry does not rise above the one before it.
    #[error("index entry {entry} does not rise above the entry before it")]
    NotRising { entry: usize },
    #[error("index entry {entry} names offset {offset}, below the base offset {base_offset}")]
    BelowBase {
        entry: usize,
        offset: i64,
        base_offset: i64,
    },
    #[error(
        "index entry {entry} points at position {position}, behind the log's end at {log_size}"
    )]
    BeyondLog {
        entry: usize,
        position: u32,
        log_size: u64,
    },
    /// The offset does not fit in the four bytes of an entry.
    #[error("offset {offset} is too far from the base offset {base_offset} for an index entry")]
    OffsetOverflow { offset: i64, base_offset: i64 },
    #[error("the index is full ({max_bytes} bytes)")]
    Full { max_bytes: usize },
}

/// An offset less the base offset, as an entry stores it.
pub(crate) fn relative_offset(offset: i64, base_offset: i64) -> Result<u32, IndexError> {
    offset
        .checked_sub(base_offset)
        .filter(|relative| (0..=i64::from(i32::MAX)).contains(relative))
        .and_then(|relative| u32::try_from(relative).ok())
        .ok_or(IndexError::OffsetOverflow {
            offset,
            base_offset,
        })
}

impl IndexEntry for OffsetEntry {
    const BYTES: usize = ENTRY_BYTES;

    fn none(base_offset: i64) -> Self {
        OffsetEntry {
            offset: base_offset,
            position: 0,
        }
    }

    fn decode(base_offset: i64, bytes: &[u8]) -> Option<Self> {
        let [a, b, c, d, e, f, g, h] = *bytes.first_chunk::<ENTRY_BYTES>()?;
        let relative = i32::from_be_bytes([a, b, c, d]);
        Some(OffsetEntry {
            offset: base_offset.wrapping_add(i64::from(relative)),
            position: u32::from_be_bytes([e, f, g, h]),
        })
    }

    fn offset(&self) -> i64 {
        self.offset
    }

    fn key(&self) -> i64 {
        self.offset
    }

    fn rises_above(&self, before: &Self) -> bool {
        self.offset > before.offset && self.position > before.position
    }
}

/// [`sparse_index::search`] in an offset index.
///
/// # Errors
/// Errors of `read`.
pub fn search_offset<E>(
    entries: usize,
    base_offset: i64,
    target: i64,
    read: impl FnMut(usize) -> Result<[u8; ENTRY_BYTES], E>,
) -> Result<OffsetEntry, E> {
    sparse_index::search(entries, base_offset, target, read)
}

/// An offset index over the bytes of its file.
pub type OffsetIndexView<'a> = IndexView<'a, OffsetEntry>;

impl<'a> OffsetIndexView<'a> {
    /// A view after the checks that decide whether the file must be rebuilt: whole entries, strictly
    /// rising in both fields, inside a `.log` of `log_size` bytes. Zeros at the end, from
    /// preallocation, are cut off.
    ///
    /// # Errors
    /// [`IndexError`] for the first failed check.
    pub fn checked(base_offset: i64, bytes: &'a [u8], log_size: u64) -> Result<Self, IndexError> {
        // The first batch, at position 0, is never indexed, so an all-zero entry is none.
        let view = Self::checked_part(base_offset, bytes, used_bytes(bytes, ENTRY_BYTES))?;
        let inside = view.partition_point(|entry| u64::from(entry.position) < log_size);
        match view.entry(inside) {
            None => Ok(view),
            Some(OffsetEntry { position, .. }) => Err(IndexError::BeyondLog {
                entry: inside,
                position,
                log_size,
            }),
        }
    }

    /// The first entry at or behind `position`: an upper bound of the offsets before it.
    pub fn upper_bound(&self, position: u32) -> Option<OffsetEntry> {
        self.entry(self.partition_point(|entry| entry.position < position))
    }
}

/// The offset index of an active segment.
pub type OffsetIndex = SparseIndex<OffsetEntry>;

impl OffsetIndex {
    /// The index of a reopened segment, checked as by [`OffsetIndexView::checked`].
    ///
    /// # Errors
    /// [`IndexError`]: rebuild the index from the `.log`.
    pub fn load(
        base_offset: i64,
        max_bytes: usize,
        bytes: &[u8],
        log_size: u64,
    ) -> Result<Self, IndexError> {
        let view = OffsetIndexView::checked(base_offset, bytes, log_size)?;
        Ok(Self::from_view(view, max_bytes))
    }

    /// Adds an entry and returns its bytes, which belong at the previous `size_bytes()`.
    ///
    /// # Errors
    /// [`IndexError::Full`], [`IndexError::OffsetOverflow`], or [`IndexError::NotRising`] if the
    /// offset is not above the last one; nothing changes then.
    pub fn append(&mut self, offset: i64, position: u32) -> Result<[u8; ENTRY_BYTES], IndexError> {
        if self.is_full() {
            let max_bytes = self.max_bytes;
            return Err(IndexError::Full { max_bytes });
        }
        let relative = relative_offset(offset, self.base_offset)?;
        let added = OffsetEntry { offset, position };
        if self.last().is_some_and(|last| !added.rises_above(&last)) {
            return Err(IndexError::NotRising { entry: self.len() });
        }
        let mut entry = [0; ENTRY_BYTES];
        entry[..4].copy_from_slice(&relative.to_be_bytes());
        entry[4..].copy_from_slice(&position.to_be_bytes());
        self.bytes.extend_from_slice(&entry);
        Ok(entry)
    }

    /// Whether there is no room for another entry, so that the segment must roll.
    pub fn is_full(&self) -> bool {
        self.bytes.len() >= self.max_bytes
    }
}

#[cfg(test)]
mod tests;
