//! The offset index: where in a segment's `.log` a batch begins.
//!
//! ```text
//! 0  4  last offset of an append, less the base offset
//! 4  4  position of its first byte in the .log
//! ```
//!
//! Appends of this broker are single batches. Kafka's are of several where a follower appends what
//! it fetched, or the cleaner what it kept.
//! Sparse: an entry each `index.interval.bytes`, never one for the first batch. A look-up returns
//! the last entry at or below its target, or (base offset, 0); a scan from there finds the target.
//! The index may be incomplete: recovery rebuilds it from the `.log`.

use crate::sparse_index::{IndexEntry, IndexView, SparseIndex, used_bytes};

/// Bytes of one entry.
pub const ENTRY_BYTES: usize = 8;

/// An append's last offset and the position of its first byte.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OffsetEntry {
    /// Last offset of the append; the base offset if a look-up found no entry.
    pub offset: i64,
    /// Byte position in the `.log`.
    pub position: u32,
}

/// Why an offset or time index cannot be used, or an entry cannot be added.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(missing_docs)] // The variants' comments name the fields.
pub enum IndexError {
    /// The file ends within an entry.
    PartialEntry,
    /// The entry does not rise above the one before it.
    NotRising { entry: usize },
    /// The entry's offset is below the base offset.
    BelowBase { entry: usize },
    /// The entry points behind the end of the log.
    BeyondLog { entry: usize },
    /// The offset does not fit in the four bytes of an entry.
    OffsetOverflow,
    /// The index has its greatest size.
    Full,
}

/// An offset less the base offset, as an entry stores it.
pub(crate) fn relative_offset(offset: i64, base_offset: i64) -> Result<i32, IndexError> {
    offset
        .checked_sub(base_offset)
        .and_then(|relative| i32::try_from(relative).ok())
        .filter(|relative| *relative >= 0)
        .ok_or(IndexError::OffsetOverflow)
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
            Some(_) => Err(IndexError::BeyondLog { entry: inside }),
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
    pub fn append(&mut self, offset: i64, position: u32) -> Result<(), IndexError> {
        if self.is_full() {
            return Err(IndexError::Full);
        }
        let relative = relative_offset(offset, self.base_offset)?;
        let added = OffsetEntry { offset, position };
        if self.last().is_some_and(|last| !added.rises_above(&last)) {
            return Err(IndexError::NotRising { entry: self.len() });
        }
        self.bytes.extend_from_slice(&relative.to_be_bytes());
        self.bytes.extend_from_slice(&position.to_be_bytes());
        Ok(())
    }

    /// Whether there is no room for another entry, so that the segment must roll.
    pub fn is_full(&self) -> bool {
        self.bytes.len() >= self.max_bytes
    }
}

#[cfg(test)]
mod tests;
