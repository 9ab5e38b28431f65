//! What the offset index and the time index share: entries of one size in ascending order, in the
//! bytes of their file.

use std::convert::Infallible;
use std::fmt::Debug;
use std::marker::PhantomData;

use crate::offset_index::IndexError;

/// One entry of an index.
pub trait IndexEntry: Copy + Debug {
    /// Size in the file.
    const BYTES: usize;

    /// The result of a look-up that finds no entry.
    fn none(base_offset: i64) -> Self;

    /// The entry at the start of `bytes`; `None` if they are too short.
    fn decode(base_offset: i64, bytes: &[u8]) -> Option<Self>;

    /// The entry's offset.
    fn offset(&self) -> i64;

    /// What look-ups search by.
    fn key(&self) -> i64;

    /// Whether the entry may stand behind `before`.
    fn rises_above(&self, before: &Self) -> bool;
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

/// The last entry at or below `target` of an index that is read entry by entry, else
/// [`IndexEntry::none`]: a look-up in a cold index costs a few small reads.
///
/// # Errors
/// Errors of `read`.
pub fn search<T: IndexEntry, B: AsRef<[u8]>, E>(
    entries: usize,
    base_offset: i64,
    target: i64,
    mut read: impl FnMut(usize) -> Result<B, E>,
) -> Result<T, E> {
    let mut found = T::none(base_offset);
    count_while(entries, |i| {
        let entry = T::decode(base_offset, read(i)?.as_ref());
        let entry = entry.filter(|entry| entry.key() <= target);
        // Each hit lies above the previous one, so the last hit is the answer.
        found = entry.unwrap_or(found);
        Ok(entry.is_some())
    })?;
    Ok(found)
}

/// An index over the bytes of its file, without a copy.
#[derive(Clone, Copy, Debug)]
pub struct IndexView<'a, T> {
    base_offset: i64,
    /// Whole entries only.
    bytes: &'a [u8],
    entries: PhantomData<T>,
}

impl<'a, T: IndexEntry> IndexView<'a, T> {
    /// A view without checks. Bytes behind the last whole entry are ignored.
    pub fn trusted(base_offset: i64, bytes: &'a [u8]) -> Self {
        Self {
            base_offset,
            bytes: &bytes[..bytes.len() - bytes.len() % T::BYTES],
            entries: PhantomData,
        }
    }

    /// A view of the first `used` of `bytes` after the checks that all indexes share.
    pub(crate) fn checked_part(
        base_offset: i64,
        bytes: &'a [u8],
        used: usize,
    ) -> Result<Self, IndexError> {
        if !bytes.len().is_multiple_of(T::BYTES) {
            return Err(IndexError::PartialEntry);
        }
        let view = Self::trusted(base_offset, &bytes[..used]);
        let mut before: Option<T> = None;
        for (entry, found) in view.iter().enumerate() {
            if found.offset() < base_offset {
                return Err(IndexError::BelowBase { entry });
            }
            if before.is_some_and(|before| !found.rises_above(&before)) {
                return Err(IndexError::NotRising { entry });
            }
            before = Some(found);
        }
        Ok(view)
    }

    /// The last entry at or below `target`, else [`IndexEntry::none`].
    pub fn lookup(&self, target: i64) -> T {
        self.partition_point(|entry| entry.key() <= target)
            .checked_sub(1)
            .and_then(|i| self.entry(i))
            .unwrap_or(T::none(self.base_offset))
    }

    /// How many entries satisfy `holds`, where those that do come first.
    pub(crate) fn partition_point(&self, holds: impl Fn(T) -> bool) -> usize {
        let found = count_while(self.len(), |i| {
            Ok::<_, Infallible>(self.entry(i).is_some_and(&holds))
        });
        match found {
            Ok(count) => count,
            Err(never) => match never {},
        }
    }

    /// Entry number `i`, from 0.
    pub fn entry(&self, i: usize) -> Option<T> {
        T::decode(self.base_offset, self.bytes.get(i * T::BYTES..)?)
    }

    /// The last entry.
    pub fn last(&self) -> Option<T> {
        self.entry(self.len().checked_sub(1)?)
    }

    /// All entries, ascending.
    pub fn iter(self) -> impl Iterator<Item = T> + use<'a, T> {
        (0..self.len()).map_while(move |i| self.entry(i))
    }

    /// Number of entries.
    pub fn len(&self) -> usize {
        self.bytes.len() / T::BYTES
    }

    /// Whether there is no entry.
    pub fn is_empty(&self) -> bool {
        self.bytes.is_empty()
    }
}

/// The index of an active segment, as the bytes of its file, on the heap.
#[derive(Clone, Debug)]
pub struct SparseIndex<T> {
    pub(crate) base_offset: i64,
    pub(crate) max_bytes: usize,
    pub(crate) bytes: Vec<u8>,
    /// How many of the bytes were handed to the writer, or came from the file.
    pub(crate) taken: usize,
    entries: PhantomData<T>,
}

impl<T: IndexEntry> SparseIndex<T> {
    /// An empty index of at most `max_bytes` (`segment.index.bytes`), rounded down to whole entries.
    pub fn new(base_offset: i64, max_bytes: usize) -> Self {
        Self {
            base_offset,
            max_bytes: max_bytes - max_bytes % T::BYTES,
            bytes: Vec::new(),
            taken: 0,
            entries: PhantomData,
        }
    }

    /// The index of a reopened segment.
    pub(crate) fn from_view(view: IndexView<'_, T>, max_bytes: usize) -> Self {
        let mut index = Self::new(view.base_offset, max_bytes);
        index.bytes.extend_from_slice(view.bytes);
        index.taken = view.bytes.len();
        index
    }

    /// The last entry at or below `target`, else [`IndexEntry::none`].
    pub fn lookup(&self, target: i64) -> T {
        self.view().lookup(target)
    }

    /// Drops all entries at or above `offset`; returns the remaining bytes.
    pub fn truncate_to(&mut self, offset: i64) -> usize {
        let entries = self.view().iter();
        let keep = entries.take_while(|entry| entry.offset() < offset).count();
        self.bytes.truncate(keep * T::BYTES);
        self.bytes.len()
    }

    /// The last entry.
    pub fn last(&self) -> Option<T> {
        self.view().last()
    }

    /// Number of entries.
    pub fn len(&self) -> usize {
        self.bytes.len() / T::BYTES
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

    /// What the writer has not got yet.
    pub(crate) fn untaken(&self) -> &[u8] {
        &self.bytes[self.taken..]
    }

    /// The entries, for look-ups.
    pub fn view(&self) -> IndexView<'_, T> {
        IndexView::trusted(self.base_offset, &self.bytes)
    }
}
