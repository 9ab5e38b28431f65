//! The aborted transactions of a log, by segment. Few are on the heap; those of a closed segment
//! with many are in its transaction index file alone.

use std::cmp::Ordering;
use std::io;
use std::sync::Arc;

use crate::disk::DiskFile;
use crate::log::Log;
use crate::read::Slice;
use crate::segment::Segment;
use crate::transaction_index::{AbortedTxn, SegmentAborted, entries, no_entry};
use crate::wait::Wait;

/// Entries of a closed segment that stay on the heap, 4 KiB.
const KEPT_MAX: usize = 128;

/// Entries of a file that are read at once.
const READ_ENTRIES: usize = 1024;

/// A search for the aborted transactions that touch a slice, without the log's lock while files are
/// read: call [`Log::find_aborted`] and [`AbortedSearch::read`] in turn.
#[derive(Debug)]
pub struct AbortedSearch {
    most: usize,
    /// What files have told, by their segments' base offsets.
    told: Vec<(i64, Told)>,
}

#[derive(Debug)]
struct Told {
    found: Vec<AbortedTxn>,
    is_all: bool,
}

/// The next step of a search.
#[derive(Debug)]
pub enum AbortedStep {
    /// By first offset. More than the search's `most` mean that there are others: read less.
    Found(Vec<AbortedTxn>),
    /// A file must be read.
    Read(AbortedFile),
    /// A part of the slice was deleted or truncated since, which may have removed knowledge of
    /// transactions.
    Changed,
}

/// A part of a transaction index file.
#[derive(Debug)]
pub struct AbortedFile {
    segment: Arc<Segment>,
    entries: usize,
    fetch_offset: i64,
    upper_bound: i64,
    most: usize,
}

impl AbortedSearch {
    /// Ends with one more than `most`.
    pub fn new(most: usize) -> Self {
        Self {
            most,
            told: Vec::new(),
        }
    }

    /// Reads a file. The caller must hold no lock.
    ///
    /// # Errors
    /// `WouldBlock` with [`Wait::Nowait`] where it is not open or not in memory; a disk error;
    /// `NotFound` if the log changed.
    pub fn read(&mut self, file: &AbortedFile, wait: Wait) -> io::Result<()> {
        self.told
            .push((file.segment.base_offset(), file.read(wait)?));
        Ok(())
    }

    fn told(&self, base_offset: i64) -> Option<&Told> {
        let told = self.told.iter().find(|(base, _)| *base == base_offset);
        told.map(|(_, told)| told)
    }
}

impl Log {
    /// Aborted transactions that touch a slice read with [`crate::Isolation::Committed`]. Memory
    /// only.
    pub fn find_aborted(&self, slice: &Slice, search: &AbortedSearch) -> AbortedStep {
        let Some(upper_bound) = self.upper_if_unchanged(slice) else {
            return AbortedStep::Changed;
        };
        let mut found = Vec::new();
        if slice.is_empty() {
            return AbortedStep::Found(found);
        }
        let fetch_offset = slice.offset();
        let first = self.segments[self.segment_index(fetch_offset)].base_offset();
        for (base_offset, aborted) in self.aborted.range(first..) {
            let entries = match aborted {
                SegmentAborted::Kept(index) => {
                    if index.collect(fetch_offset, upper_bound, search.most, &mut found) {
                        break;
                    }
                    continue;
                }
                SegmentAborted::InFile(entries) => *entries,
            };
            let Some(told) = search.told(*base_offset) else {
                return AbortedStep::Read(AbortedFile {
                    segment: self.segments[self.segment_index(*base_offset)].clone(),
                    entries,
                    fetch_offset,
                    upper_bound,
                    most: search.most,
                });
            };
            found.extend_from_slice(&told.found);
            if told.is_all || found.len() > search.most {
                break;
            }
        }
        found.sort_by_key(|txn| txn.first_offset);
        AbortedStep::Found(found)
    }

    /// [`Log::find_aborted`], which reads files at once; `None` if the log changed.
    ///
    /// # Errors
    /// A disk error.
    pub fn aborted_transactions(&self, slice: &Slice) -> io::Result<Option<Vec<AbortedTxn>>> {
        let mut search = AbortedSearch::new(usize::MAX);
        loop {
            match self.find_aborted(slice, &search) {
                AbortedStep::Found(found) => return Ok(Some(found)),
                AbortedStep::Read(file) => search.read(&file, Wait::Blocking)?,
                AbortedStep::Changed => return Ok(None),
            }
        }
    }

    /// Leaves the entries of closed segments with many of them to their files, which are complete.
    pub(crate) fn put_away_aborted(&mut self) {
        let segments = &self.segments;
        for (base_offset, aborted) in &mut self.aborted {
            let SegmentAborted::Kept(index) = &*aborted else {
                continue;
            };
            let entries = index.entries().len();
            let found = segments.binary_search_by_key(base_offset, |s| s.base_offset());
            let is_closed = found.is_ok_and(|i| i + 1 < segments.len() && segments[i].is_closed());
            if entries > KEPT_MAX && is_closed {
                *aborted = SegmentAborted::InFile(entries);
            }
        }
    }

    /// Segments with entries that are in files alone, and the number of entries on the heap.
    pub fn aborted_memory(&self) -> (usize, usize) {
        let mut memory = (0, 0);
        for aborted in self.aborted.values() {
            match aborted {
                SegmentAborted::Kept(index) => memory.1 += index.entries().len(),
                SegmentAborted::InFile(_) => memory.0 += 1,
            }
        }
        memory
    }
}

impl AbortedFile {
    /// As `TransactionIndex::collect`.
    fn read(&self, wait: Wait) -> io::Result<Told> {
        let file = self.segment.transaction_index(wait)?;
        let first = self.first(&*file, wait)?;
        let mut told = Told {
            found: Vec::new(),
            is_all: false,
        };
        if let Some(before) = first.checked_sub(1) {
            let before = entry(&*file, before, wait)?;
            told.is_all = before.last_stable_offset >= self.upper_bound;
        }
        let mut next = first;
        while next < self.entries && !told.is_all {
            let count = READ_ENTRIES.min(self.entries - next);
            for txn in entries(&*file, next, count, wait)? {
                if txn.first_offset < self.upper_bound {
                    told.found.push(txn);
                }
                if txn.last_stable_offset >= self.upper_bound || told.found.len() > self.most {
                    told.is_all = true;
                    break;
                }
            }
            next += count;
        }
        Ok(told)
    }

    /// The first entry whose marker is not below the fetch offset.
    fn first(&self, file: &dyn DiskFile, wait: Wait) -> io::Result<usize> {
        let (mut low, mut high) = (0, self.entries);
        while low < high {
            let middle = low + (high - low) / 2;
            match entry(file, middle, wait)?
                .last_offset
                .cmp(&self.fetch_offset)
            {
                Ordering::Less => low = middle + 1,
                _ => high = middle,
            }
        }
        Ok(low)
    }
}

fn entry(file: &dyn DiskFile, at: usize, wait: Wait) -> io::Result<AbortedTxn> {
    let found = entries(file, at, 1, wait)?;
    found.first().copied().ok_or_else(|| no_entry(at))
}
