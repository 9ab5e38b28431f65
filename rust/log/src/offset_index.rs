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

use std::convert::Infallible;

use thiserror::Error;

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
pub enum IndexError {
    /// The file ends inside an entry.
    #[error("the index has {len} bytes, which is not a multiple of {entry_bytes}")]
    PartialEntry {
        /// Length of the file.
        len: usize,
        /// Size of one entry.
        entry_bytes: usize,
    },
    /// An entry does not rise above the one before it.
    #[error("index entry {entry} does not rise above the entry before it")]
    NotRising {
        /// Number of the entry, from 0.
        entry: usize,
    },
    /// An entry's offset is below the segment's base offset.
    #[error("index entry {entry} names offset {offset}, below the base offset {base_offset}")]
    BelowBase {
        /// Number of the entry, from 0.
        entry: usize,
        /// Its offset.
        offset: i64,
        /// The segment's base offset.
        base_offset: i64,
    },
    /// An entry points behind the end of the `.log`.
    #[error(
        "index entry {entry} points at position {position}, behind the log's end at {log_size}"
    )]
    BeyondLog {
        /// Number of the entry, from 0.
        entry: usize,
        /// Its position.
        position: u32,
        /// Size of the `.log`.
        log_size: u64,
    },
    /// The offset does not fit in the four bytes of an entry.
    #[error("offset {offset} is too far from the base offset {base_offset} for an index entry")]
    OffsetOverflow {
        /// The offset to be added.
        offset: i64,
        /// The segment's base offset.
        base_offset: i64,
    },
    /// No room: the segment must roll first.
    #[error("the index is full ({max_bytes} bytes)")]
    Full {
        /// Largest size, in bytes.
        max_bytes: usize,
    },
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

/// Bytes before the zero entries at the end of an index file.
pub(crate) fn used_bytes(bytes: &[u8], entry_bytes: usize) -> usize {
    let last_used = bytes.iter().rposition(|byte| *byte != 0);
    last_used.map_or(0, |i| (i / entry_bytes + 1) * entry_bytes)
}

/// Binary search: how many of `entries` satisfy `holds`, where those that do come first.
pub(crate) fn count_while<E>(
    entries: usize,
    mut holds: impl FnMut(usize) -> Result<bool, E>,
) -> Result<usize, E> {
    let (mut low, mut high) = (0, entries);
    while low < high {
        let middle = low + (high - low) / 2;
        if holds(middle)? {
            low = middle + 1;
        } else {
            high = middle;
        }
    }
    Ok(low)
}

fn decode(base_offset: i64, bytes: [u8; ENTRY_BYTES]) -> OffsetEntry {
    let [a, b, c, d, e, f, g, h] = bytes;
    let relative = i32::from_be_bytes([a, b, c, d]);
    OffsetEntry {
        offset: base_offset.wrapping_add(i64::from(relative)),
        position: u32::from_be_bytes([e, f, g, h]),
    }
}

/// The last entry at or below `target` of an index that is read entry by entry: a look-up in a cold
/// index costs a few small reads.
///
/// # Errors
/// Errors of `read`.
pub fn search_offset<E>(
    entries: usize,
    base_offset: i64,
    target: i64,
    mut read: impl FnMut(usize) -> Result<[u8; ENTRY_BYTES], E>,
) -> Result<OffsetEntry, E> {
    let mut found = OffsetEntry {
        offset: base_offset,
        position: 0,
    };
    count_while(entries, |i| {
        let entry = decode(base_offset, read(i)?);
        let at_most = entry.offset <= target;
        if at_most {
            // Each hit lies above the previous one, so the last hit is the answer.
            found = entry;
        }
        Ok(at_most)
    })?;
    Ok(found)
}

/// An index over the bytes of its file, without a copy.
#[derive(Clone, Copy, Debug)]
pub struct OffsetIndexView<'a> {
    base_offset: i64,
    /// Whole entries only.
    bytes: &'a [u8],
}

impl<'a> OffsetIndexView<'a> {
    /// A view without checks. Bytes behind the last whole entry are ignored.
    pub fn trusted(base_offset: i64, bytes: &'a [u8]) -> Self {
        let bytes = &bytes[..bytes.len() - bytes.len() % ENTRY_BYTES];
        Self { base_offset, bytes }
    }

    /// A view after the checks that decide whether the file must be rebuilt: whole entries,
    /// strictly rising in both fields, inside a `.log` of `log_size` bytes. Zeros at the end, from
    /// preallocation, are cut off.
    ///
    /// # Errors
    /// [`IndexError`] for the first failed check.
    pub fn checked(base_offset: i64, bytes: &'a [u8], log_size: u64) -> Result<Self, IndexError> {
        if !bytes.len().is_multiple_of(ENTRY_BYTES) {
            let error = IndexError::PartialEntry {
                len: bytes.len(),
                entry_bytes: ENTRY_BYTES,
            };
            return Err(error);
        }
        // The first batch, at position 0, is never indexed, so an all-zero entry is none.
        let view = Self {
            base_offset,
            bytes: &bytes[..used_bytes(bytes, ENTRY_BYTES)],
        };
        view.check(log_size)?;
        Ok(view)
    }

    fn check(&self, log_size: u64) -> Result<(), IndexError> {
        let mut before: Option<OffsetEntry> = None;
        for (i, entry) in self.iter().enumerate() {
            if entry.offset < self.base_offset {
                let (offset, base_offset) = (entry.offset, self.base_offset);
                return Err(IndexError::BelowBase {
                    entry: i,
                    offset,
                    base_offset,
                });
            }
            let rises = before.is_none_or(|before| {
                entry.offset > before.offset && entry.position > before.position
            });
            if !rises {
                return Err(IndexError::NotRising { entry: i });
            }
            if u64::from(entry.position) >= log_size {
                let position = entry.position;
                return Err(IndexError::BeyondLog {
                    entry: i,
                    position,
                    log_size,
                });
            }
            before = Some(entry);
        }
        Ok(())
    }

    /// The last entry at or below `target`, else (base offset, 0).
    pub fn lookup(&self, target: i64) -> OffsetEntry {
        let none = OffsetEntry {
            offset: self.base_offset,
            position: 0,
        };
        self.partition_point(|entry| entry.offset <= target)
            .checked_sub(1)
            .and_then(|i| self.entry(i))
            .unwrap_or(none)
    }

    /// The first entry at or behind `position`: an upper bound of the offsets before it.
    pub fn upper_bound(&self, position: u32) -> Option<OffsetEntry> {
        self.entry(self.partition_point(|entry| entry.position < position))
    }

    fn partition_point(&self, holds: impl Fn(OffsetEntry) -> bool) -> usize {
        let found = count_while(self.len(), |i| {
            Ok::<_, Infallible>(self.entry(i).is_some_and(&holds))
        });
        match found {
            Ok(count) => count,
            Err(never) => match never {},
        }
    }

    /// Entry number `i`, from 0.
    pub fn entry(&self, i: usize) -> Option<OffsetEntry> {
        let bytes = self.bytes.get(i * ENTRY_BYTES..)?.first_chunk()?;
        Some(decode(self.base_offset, *bytes))
    }

    /// The last entry.
    pub fn last(&self) -> Option<OffsetEntry> {
        self.bytes
            .last_chunk()
            .map(|bytes| decode(self.base_offset, *bytes))
    }

    /// All entries, ascending.
    pub fn iter(&self) -> impl Iterator<Item = OffsetEntry> + use<'a> {
        let view = *self;
        (0..view.len()).map_while(move |i| view.entry(i))
    }

    /// Number of entries.
    pub fn len(&self) -> usize {
        self.bytes.len() / ENTRY_BYTES
    }

    /// Whether there is no entry: every look-up starts at position 0.
    pub fn is_empty(&self) -> bool {
        self.bytes.is_empty()
    }
}

/// The index of an active segment, as the bytes of its file, on the heap.
#[derive(Clone, Debug)]
pub struct OffsetIndex {
    base_offset: i64,
    max_bytes: usize,
    bytes: Vec<u8>,
}

impl OffsetIndex {
    /// An empty index of at most `max_bytes` (`segment.index.bytes`), rounded down to whole
    /// entries.
    pub fn new(base_offset: i64, max_bytes: usize) -> Self {
        let max_bytes = max_bytes - max_bytes % ENTRY_BYTES;
        Self {
            base_offset,
            max_bytes,
            bytes: Vec::new(),
        }
    }

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
        let used = OffsetIndexView::checked(base_offset, bytes, log_size)?.len() * ENTRY_BYTES;
        let mut index = Self::new(base_offset, max_bytes);
        index.bytes.extend_from_slice(&bytes[..used]);
        Ok(index)
    }

    /// Adds an entry and returns its bytes, which belong at the previous `size_bytes()`.
    ///
    /// # Errors
    /// [`IndexError::Full`], [`IndexError::OffsetOverflow`], or [`IndexError::NotRising`] if the
    /// offset is not above the last one; nothing changes then.
    pub fn append(&mut self, offset: i64, position: u32) -> Result<[u8; ENTRY_BYTES], IndexError> {
        if self.is_full() {
            return Err(IndexError::Full {
                max_bytes: self.max_bytes,
            });
        }
        let relative = relative_offset(offset, self.base_offset)?;
        if self
            .last()
            .is_some_and(|last| offset <= last.offset || position <= last.position)
        {
            return Err(IndexError::NotRising { entry: self.len() });
        }
        let mut entry = [0; ENTRY_BYTES];
        entry[..4].copy_from_slice(&relative.to_be_bytes());
        entry[4..].copy_from_slice(&position.to_be_bytes());
        self.bytes.extend_from_slice(&entry);
        Ok(entry)
    }

    /// The last entry at or below `target`, else (base offset, 0).
    pub fn lookup(&self, target: i64) -> OffsetEntry {
        self.view().lookup(target)
    }

    /// Drops all entries at or above `offset`; returns the remaining bytes.
    pub fn truncate_to(&mut self, offset: i64) -> usize {
        let view = self.view();
        let keep = view
            .iter()
            .take_while(|entry| entry.offset < offset)
            .count();
        self.bytes.truncate(keep * ENTRY_BYTES);
        self.bytes.len()
    }

    /// The last entry.
    pub fn last(&self) -> Option<OffsetEntry> {
        self.view().last()
    }

    /// Whether there is no room for another entry, so that the segment must roll.
    pub fn is_full(&self) -> bool {
        self.bytes.len() >= self.max_bytes
    }

    /// Number of entries.
    pub fn len(&self) -> usize {
        self.bytes.len() / ENTRY_BYTES
    }

    /// Whether there is no entry yet.
    pub fn is_empty(&self) -> bool {
        self.bytes.is_empty()
    }

    /// Bytes of the file.
    pub fn size_bytes(&self) -> usize {
        self.bytes.len()
    }

    /// The file's content.
    pub fn as_bytes(&self) -> &[u8] {
        &self.bytes
    }

    /// The entries, for look-ups.
    pub fn view(&self) -> OffsetIndexView<'_> {
        OffsetIndexView::trusted(self.base_offset, &self.bytes)
    }
}

#[cfg(test)]
mod tests;
