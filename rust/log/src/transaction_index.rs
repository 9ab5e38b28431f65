//! The transaction index: the aborted transactions whose markers lie in a segment.
//!
//! ```text
//!  0  2  version = 0
//!  2  8  producer id
//! 10  8  first offset of the transaction in this partition
//! 18  8  offset of its abort marker ("last offset")
//! 26  8  last stable offset when the marker was written
//! ```
//!
//! Markers rise from entry to entry. A consumer of committed data drops records of a listed
//! producer from the first offset up to its marker. Only aborted transactions are listed. Recovery
//! rebuilds the file from the `.log`. Without entries there is no file.

use std::collections::BTreeMap;
use std::io;

use thiserror::Error;

use crate::disk::{DiskFile, read_exact_at};
use crate::wait::Wait;

const VERSION: i16 = 0;

/// Bytes of one entry.
pub const ENTRY_BYTES: usize = 34;

/// An aborted transaction of one producer in one partition.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AbortedTxn {
    /// Producer id.
    pub producer_id: i64,
    /// Offset of the transaction's first record.
    pub first_offset: i64,
    /// Offset of the abort marker.
    pub last_offset: i64,
    /// Last stable offset when the marker was written: the first record of the next open
    /// transaction, or the offset after the marker. Every transaction that aborts later began at or
    /// after it.
    pub last_stable_offset: i64,
}

/// A transaction index that must be rebuilt, or an entry it cannot take.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[allow(missing_docs)] // The messages name variants and fields.
pub enum TransactionIndexError {
    #[error("the transaction index has {0} bytes, which is not a multiple of 34")]
    PartialEntry(usize),
    #[error("entry {entry} of the transaction index has version {version}, only 0 is known")]
    UnknownVersion { entry: usize, version: i16 },
    #[error(
        "entry {entry} of the transaction index has a marker at {last_offset}, not above the one before"
    )]
    NotRising { entry: usize, last_offset: i64 },
    #[error(
        "entry {entry} of the transaction index has a marker at {last_offset}, below its segment"
    )]
    BelowSegment { entry: usize, last_offset: i64 },
}

impl AbortedTxn {
    /// The entry's bytes.
    pub fn encode(&self) -> [u8; ENTRY_BYTES] {
        let mut bytes = [0; ENTRY_BYTES];
        bytes[..2].copy_from_slice(&VERSION.to_be_bytes());
        bytes[2..10].copy_from_slice(&self.producer_id.to_be_bytes());
        bytes[10..18].copy_from_slice(&self.first_offset.to_be_bytes());
        bytes[18..26].copy_from_slice(&self.last_offset.to_be_bytes());
        bytes[26..].copy_from_slice(&self.last_stable_offset.to_be_bytes());
        bytes
    }

    /// Version and entry, from its bytes.
    pub fn decode(bytes: &[u8; ENTRY_BYTES]) -> (i16, Self) {
        let field = |at: usize| {
            let mut field = [0; 8];
            field.copy_from_slice(&bytes[at..at + 8]);
            i64::from_be_bytes(field)
        };
        let txn = Self {
            producer_id: field(2),
            first_offset: field(10),
            last_offset: field(18),
            last_stable_offset: field(26),
        };
        (i16::from_be_bytes([bytes[0], bytes[1]]), txn)
    }
}

/// A segment's aborted transactions, on the heap, ascending by marker.
#[derive(Clone, Debug, Default)]
pub struct TransactionIndex {
    start_offset: i64,
    entries: Vec<AbortedTxn>,
}

impl TransactionIndex {
    /// An empty index for the segment that starts at `start_offset`.
    pub fn new(start_offset: i64) -> Self {
        Self {
            start_offset,
            entries: Vec::new(),
        }
    }

    /// Parses the file.
    ///
    /// # Errors
    /// [`TransactionIndexError`]: rebuild the file from the `.log`.
    pub fn load(start_offset: i64, bytes: &[u8]) -> Result<Self, TransactionIndexError> {
        if !bytes.len().is_multiple_of(ENTRY_BYTES) {
            return Err(TransactionIndexError::PartialEntry(bytes.len()));
        }
        let mut index = Self::new(start_offset);
        for chunk in bytes.chunks_exact(ENTRY_BYTES) {
            let mut entry = [0; ENTRY_BYTES];
            entry.copy_from_slice(chunk);
            let (version, txn) = AbortedTxn::decode(&entry);
            if version != VERSION {
                let entry = index.entries.len();
                return Err(TransactionIndexError::UnknownVersion { entry, version });
            }
            index.append(txn)?;
        }
        Ok(index)
    }

    /// Adds a transaction and returns its bytes, which belong at the previous `size_bytes()`.
    ///
    /// # Errors
    /// `NotRising` or `BelowSegment`; nothing changes then.
    pub fn append(&mut self, txn: AbortedTxn) -> Result<[u8; ENTRY_BYTES], TransactionIndexError> {
        let (entry, last_offset) = (self.entries.len(), txn.last_offset);
        if last_offset < self.start_offset {
            return Err(TransactionIndexError::BelowSegment { entry, last_offset });
        }
        if self
            .entries
            .last()
            .is_some_and(|last| last_offset <= last.last_offset)
        {
            return Err(TransactionIndexError::NotRising { entry, last_offset });
        }
        self.entries.push(txn);
        Ok(txn.encode())
    }

    /// Drops transactions with markers at or above `offset`; returns the remaining bytes.
    pub fn truncate_to(&mut self, offset: i64) -> usize {
        let keep = self.entries.partition_point(|txn| txn.last_offset < offset);
        self.entries.truncate(keep);
        self.size_bytes()
    }

    /// Adds to `found` what a reader of `fetch_offset` to `upper_bound` (exclusive) must know; true
    /// if that is all, or `found` has more than `most`. Otherwise ask the next segment's index as
    /// well, since a transaction may begin in one segment and abort in a later one.
    pub fn collect(
        &self,
        fetch_offset: i64,
        upper_bound: i64,
        most: usize,
        found: &mut Vec<AbortedTxn>,
    ) -> bool {
        let first = self
            .entries
            .partition_point(|txn| txn.last_offset < fetch_offset);
        // An entry below the range can end the search: every later abort began at or after its last
        // stable offset, which never falls from entry to entry.
        let before = first.checked_sub(1).map(|last| self.entries[last]);
        if before.is_some_and(|txn| txn.last_stable_offset >= upper_bound) {
            return true;
        }
        for txn in &self.entries[first..] {
            if txn.first_offset < upper_bound {
                found.push(*txn);
            }
            if txn.last_stable_offset >= upper_bound || found.len() > most {
                return true;
            }
        }
        false
    }

    /// All entries, ascending by marker.
    pub fn entries(&self) -> &[AbortedTxn] {
        &self.entries
    }

    /// Whether there is no entry, and thus no file.
    pub fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    /// Bytes of the file.
    pub fn size_bytes(&self) -> usize {
        self.entries.len() * ENTRY_BYTES
    }

    /// The file's content.
    pub fn to_bytes(&self) -> Vec<u8> {
        self.entries.iter().flat_map(AbortedTxn::encode).collect()
    }
}

/// Those of one segment.
#[derive(Debug)]
pub(crate) enum SegmentAborted {
    /// All, on the heap.
    Kept(TransactionIndex),
    /// So many, in the file of a closed segment.
    InFile(usize),
}

/// As they were loaded.
pub(crate) fn kept(indexes: BTreeMap<i64, TransactionIndex>) -> BTreeMap<i64, SegmentAborted> {
    let kept = |(base, index)| (base, SegmentAborted::Kept(index));
    indexes.into_iter().map(kept).collect()
}

/// `count` entries from `at` on. With [`Wait::Nowait`] fails where they are not in memory.
pub(crate) fn entries(
    file: &dyn DiskFile,
    at: usize,
    count: usize,
    wait: Wait,
) -> io::Result<Vec<AbortedTxn>> {
    let mut bytes = vec![0; count * ENTRY_BYTES];
    let position = (at * ENTRY_BYTES) as u64;
    match wait {
        Wait::Blocking | Wait::PastCache => read_exact_at(file, &mut bytes, position)?,
        // A part will be there as a whole once a thread that may wait has read it.
        Wait::Nowait if file.read_at_nowait(&mut bytes, position)? < bytes.len() => {
            return Err(io::ErrorKind::WouldBlock.into());
        }
        Wait::Nowait => {}
    }
    let (chunks, _) = bytes.as_chunks::<ENTRY_BYTES>();
    let decoded = chunks.iter().map(|chunk| match AbortedTxn::decode(chunk) {
        (0, txn) => Ok(txn),
        _ => Err(no_entry(at)),
    });
    decoded.collect()
}

pub(crate) fn no_entry(at: usize) -> io::Error {
    let message = format!("entry {at} of a transaction index is none");
    io::Error::new(io::ErrorKind::InvalidData, message)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn txn(producer_id: i64, first_offset: i64, last_offset: i64, stable: i64) -> AbortedTxn {
        AbortedTxn {
            producer_id,
            first_offset,
            last_offset,
            last_stable_offset: stable,
        }
    }

    fn filled() -> TransactionIndex {
        let mut index = TransactionIndex::new(0);
        for entry in [
            txn(0, 0, 10, 11),
            txn(1, 5, 15, 13),
            txn(2, 18, 35, 25),
            txn(3, 32, 50, 40),
        ] {
            index.append(entry).expect("rises");
        }
        index
    }

    #[test]
    fn the_bytes_are_kafkas() {
        let entry = txn(0x0102_0304_0506_0708, 1, 2, 3);
        let mut expected = vec![0, 0, 1, 2, 3, 4, 5, 6, 7, 8];
        for low in [1, 2, 3] {
            expected.extend_from_slice(&[0, 0, 0, 0, 0, 0, 0, low]);
        }
        assert_eq!(entry.encode(), expected.as_slice());
        assert_eq!(AbortedTxn::decode(&entry.encode()), (0, entry));
    }

    /// Kafka's rule: marker >= start and first offset < end; ends with the first entry whose last
    /// stable offset is >= end.
    #[test]
    fn a_fetch_gets_the_transactions_that_overlap_it() {
        let index = filled();
        for (from, to, expected, complete) in [
            (0, 100, vec![0, 1, 2, 3], false),
            (0, 32, vec![0, 1, 2], true),
            (0, 33, vec![0, 1, 2, 3], true),
            (0, 41, vec![0, 1, 2, 3], false),
            (0, 18, vec![0, 1], true),
            (16, 18, vec![], true),
            (0, 11, vec![0], true),
            (0, 12, vec![0, 1], true),
            (10, 16, vec![0, 1], true),
            (11, 16, vec![1], true),
            (15, 16, vec![1], true),
            (16, 40, vec![2, 3], true),
            (51, 60, vec![], false),
        ] {
            let mut found = Vec::new();
            let done = index.collect(from, to, usize::MAX, &mut found);
            let producers: Vec<_> = found.iter().map(|txn| txn.producer_id).collect();
            assert_eq!((producers, done), (expected, complete), "{from}..{to}");
        }
    }

    #[test]
    fn a_collection_ends_with_one_too_many() {
        let index = filled();
        for (most, expected) in [(0, 1), (2, 3), (3, 4), (4, 4)] {
            let mut found = Vec::new();
            assert_eq!(index.collect(0, 100, most, &mut found), most < 4, "{most}");
            assert_eq!(found.len(), expected, "{most}");
        }
    }

    #[test]
    fn markers_rise_and_lie_in_the_segment() {
        let mut index = filled();
        let not_rising = TransactionIndexError::NotRising {
            entry: 4,
            last_offset: 50,
        };
        assert_eq!(index.append(txn(4, 0, 50, 51)), Err(not_rising));
        let below = TransactionIndexError::BelowSegment {
            entry: 0,
            last_offset: 9,
        };
        assert_eq!(
            TransactionIndex::new(10).append(txn(4, 0, 9, 10)),
            Err(below)
        );
    }

    #[test]
    fn truncation_drops_the_marker_itself() {
        for (offset, kept) in [(0, 0), (10, 0), (11, 1), (50, 3), (51, 4)] {
            let mut index = filled();
            assert_eq!(index.truncate_to(offset), kept * ENTRY_BYTES, "{offset}");
            assert_eq!(index.entries().len(), kept);
        }
    }

    #[test]
    fn damage_is_found() {
        let good = filled().to_bytes();
        let loaded = TransactionIndex::load(0, &good).expect("as written");
        assert_eq!(loaded.entries(), filled().entries());
        let partial = TransactionIndex::load(0, &good[..35]).err();
        assert_eq!(partial, Some(TransactionIndexError::PartialEntry(35)));
        let mut newer = good.clone();
        newer[35] = 1;
        let unknown = TransactionIndexError::UnknownVersion {
            entry: 1,
            version: 1,
        };
        assert_eq!(TransactionIndex::load(0, &newer).err(), Some(unknown));
        assert!(TransactionIndex::load(11, &good).is_err());
    }

    proptest! {
        #[test]
        fn a_fetch_agrees_with_the_rule_read_literally(
            steps in proptest::collection::vec((1_i64..20, 0_i64..30, 0_i64..20), 0..30),
            from in 0_i64..300,
            len in 0_i64..100,
        ) {
            let mut index = TransactionIndex::new(0);
            let (mut marker, mut stable) = (0, 0);
            for (step, back, stable_back) in steps {
                marker += step;
                stable = stable.max(marker + 1 - stable_back);
                index.append(txn(step, (marker - back).max(0), marker, stable)).expect("rises");
            }
            let to = from + len;
            let (mut expected, mut complete) = (Vec::new(), false);
            for entry in index.entries() {
                if entry.last_offset >= from && entry.first_offset < to {
                    expected.push(*entry);
                }
                if entry.last_stable_offset >= to {
                    complete = true;
                    break;
                }
            }
            let mut found = Vec::new();
            prop_assert_eq!(index.collect(from, to, usize::MAX, &mut found), complete);
            prop_assert_eq!(found, expected);
        }
    }
}
