//! The time index: which offset a segment had reached when its largest timestamp rose.
//!
//! ```text
//! 0  8  largest timestamp of the segment so far, in milliseconds
//! 8  4  last offset of the batch that holds it, less the base offset
//! ```
//!
//! Leaders up to Kafka 3.6 wrote the offset of the first record with the timestamp, where the batch
//! was not compressed.
//! No batch at or below an entry's offset is later than its timestamp, so a search for a time
//! starts at the last entry below it. Sparse, and rebuilt from the `.log` by recovery.

use crate::offset_index::{IndexError, relative_offset};
use crate::sparse_index::{IndexEntry, IndexView, SparseIndex, used_bytes};

/// Bytes of one entry.
pub const ENTRY_BYTES: usize = 12;

/// The timestamp of records or batches that carry none.
pub const NO_TIMESTAMP: i64 = -1;

/// A timestamp and the last offset of the batch that holds it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TimeEntry {
    /// Milliseconds; [`NO_TIMESTAMP`] if a look-up found no entry.
    pub timestamp: i64,
    /// Last offset of the batch; the base offset if a look-up found no entry.
    pub offset: i64,
}

impl IndexEntry for TimeEntry {
    const BYTES: usize = ENTRY_BYTES;

    fn none(base_offset: i64) -> Self {
        TimeEntry {
            timestamp: NO_TIMESTAMP,
            offset: base_offset,
        }
    }

    fn decode(base_offset: i64, bytes: &[u8]) -> Option<Self> {
        let [a, b, c, d, e, f, g, h, i, j, k, l] = *bytes.first_chunk::<ENTRY_BYTES>()?;
        let relative = i32::from_be_bytes([i, j, k, l]);
        Some(TimeEntry {
            timestamp: i64::from_be_bytes([a, b, c, d, e, f, g, h]),
            offset: base_offset.wrapping_add(i64::from(relative)),
        })
    }

    fn offset(&self) -> i64 {
        self.offset
    }

    fn key(&self) -> i64 {
        self.timestamp
    }

    fn rises_above(&self, before: &Self) -> bool {
        self.timestamp > before.timestamp && self.offset >= before.offset
    }
}

/// A time index over the bytes of its file.
pub type TimeIndexView<'a> = IndexView<'a, TimeEntry>;

impl<'a> TimeIndexView<'a> {
    /// A view after the checks that decide whether the file must be rebuilt: whole entries,
    /// timestamps strictly rising, offsets not falling. Zeros at the end, from preallocation, are
    /// cut off.
    ///
    /// # Errors
    /// [`IndexError`] for the first failed check.
    pub fn checked(base_offset: i64, bytes: &'a [u8]) -> Result<Self, IndexError> {
        // A single zero entry can be real: timestamp 0 at the base offset. Several look like a file
        // that was never written.
        let used = match bytes.len() {
            ENTRY_BYTES => ENTRY_BYTES,
            _ => used_bytes(bytes, ENTRY_BYTES),
        };
        Self::checked_part(base_offset, bytes, used)
    }
}

/// The time index of an active segment.
pub type TimeIndex = SparseIndex<TimeEntry>;

impl TimeIndex {
    /// The index of a reopened segment, checked as by [`TimeIndexView::checked`].
    ///
    /// # Errors
    /// [`IndexError`]: rebuild the index from the `.log`.
    pub fn load(base_offset: i64, max_bytes: usize, bytes: &[u8]) -> Result<Self, IndexError> {
        let view = TimeIndexView::checked(base_offset, bytes)?;
        Ok(Self::from_view(view, max_bytes))
    }

    /// Adds an entry if `timestamp` is above the last one and returns its bytes, which belong at the
    /// previous `size_bytes()`; `None` if there is nothing to add. `closing` may use the slot
    /// reserved for a segment's last entry.
    ///
    /// # Errors
    /// [`IndexError::Full`], [`IndexError::OffsetOverflow`], or [`IndexError::NotRising`] if
    /// timestamp or offset are below the last entry's; nothing changes then.
    pub fn maybe_append(
        &mut self,
        timestamp: i64,
        offset: i64,
        closing: bool,
    ) -> Result<bool, IndexError> {
        if self.is_full() && !closing {
            return Err(IndexError::Full);
        }
        let last = self.last();
        if last.is_some_and(|last| offset < last.offset || timestamp < last.timestamp) {
            return Err(IndexError::NotRising { entry: self.len() });
        }
        if timestamp <= last.map_or(NO_TIMESTAMP, |last| last.timestamp) {
            return Ok(false);
        }
        let relative = relative_offset(offset, self.base_offset)?;
        self.bytes.extend_from_slice(&timestamp.to_be_bytes());
        self.bytes.extend_from_slice(&relative.to_be_bytes());
        Ok(true)
    }

    /// Whether only the slot for the closing entry is left, so that the segment must roll.
    pub fn is_full(&self) -> bool {
        self.bytes.len() + ENTRY_BYTES >= self.max_bytes
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn filled() -> TimeIndex {
        let mut index = TimeIndex::new(100, 60);
        for (timestamp, offset) in [(1000, 109), (1010, 119), (2000, 205)] {
            assert_eq!(index.maybe_append(timestamp, offset, false), Ok(true));
        }
        index
    }

    #[test]
    fn an_entry_is_timestamp_then_relative_offset() {
        let mut index = TimeIndex::new(100, 1024);
        let expected = [1, 2, 3, 4, 5, 6, 7, 8, 0, 0, 0, 5];
        assert_eq!(
            index.maybe_append(0x0102_0304_0506_0708, 105, false),
            Ok(true)
        );
        assert_eq!(index.as_bytes(), expected);
    }

    #[test]
    fn lookup_takes_the_last_entry_at_or_below() {
        let index = filled();
        for (target, timestamp, offset) in [
            (-1, -1, 100),
            (999, -1, 100),
            (1000, 1000, 109),
            (1009, 1000, 109),
            (1010, 1010, 119),
            (i64::MAX, 2000, 205),
        ] {
            assert_eq!(
                index.lookup(target),
                TimeEntry { timestamp, offset },
                "{target}"
            );
        }
    }

    #[test]
    fn equal_timestamps_add_nothing_and_falling_ones_are_refused() {
        let mut index = filled();
        assert_eq!(index.maybe_append(2000, 300, false), Ok(false));
        let refused = Err(IndexError::NotRising { entry: 3 });
        assert_eq!(index.maybe_append(1999, 300, false), refused);
        assert_eq!(index.maybe_append(2001, 204, false), refused);
        assert_eq!(
            TimeIndex::new(0, 60).maybe_append(NO_TIMESTAMP, 0, false),
            Ok(false)
        );
    }

    #[test]
    fn one_slot_is_kept_for_the_closing_entry() {
        let mut index = filled();
        assert!(!index.is_full());
        index
            .maybe_append(3000, 300, false)
            .expect("the last free slot");
        assert!(index.is_full());
        let full = Err(IndexError::Full);
        assert_eq!(index.maybe_append(4000, 400, false), full);
        assert_eq!(index.maybe_append(4000, 400, true), Ok(true));
        assert_eq!(index.size_bytes(), 60);
    }

    #[test]
    fn truncation_drops_the_offset_itself() {
        for (offset, kept) in [(99, 0), (109, 0), (110, 1), (205, 2), (206, 3)] {
            let mut index = filled();
            assert_eq!(index.truncate_to(offset), kept * ENTRY_BYTES, "{offset}");
        }
    }

    #[test]
    fn zeros_at_the_end_are_no_entries_but_one_zero_entry_can_be() {
        let mut bytes = filled().as_bytes().to_vec();
        bytes.resize(12 * 50, 0);
        assert_eq!(TimeIndexView::checked(100, &bytes).expect("zeros").len(), 3);
        assert_eq!(
            TimeIndexView::checked(100, &[0; 120])
                .expect("never written")
                .len(),
            0
        );
        let first = TimeIndexView::checked(100, &[0; 12]).expect("a record of 1970");
        assert_eq!(
            first.last(),
            Some(TimeEntry {
                timestamp: 0,
                offset: 100
            })
        );
    }

    #[test]
    fn damage_is_found() {
        let good = filled().as_bytes().to_vec();
        let partial = Err(IndexError::PartialEntry);
        assert_eq!(
            TimeIndexView::checked(100, &good[..35]).map(|_| ()),
            partial
        );
        let mut falling = good.clone();
        falling[0] = 0x7f;
        let not_rising = Err(IndexError::NotRising { entry: 1 });
        assert_eq!(
            TimeIndexView::checked(100, &falling).map(|_| ()),
            not_rising
        );
        let mut below = good;
        below[8] = 0xff;
        let below_base = TimeIndexView::checked(100, &below);
        assert!(matches!(
            below_base,
            Err(IndexError::BelowBase { entry: 0 })
        ));
    }

    proptest! {
        #[test]
        fn lookups_agree_with_a_scan(
            steps in proptest::collection::vec((1_i64..1000, 0_i64..1000), 0..200),
            targets in proptest::collection::vec(-2_i64..200_000, 1..50),
        ) {
            let mut index = TimeIndex::new(7, 1 << 20);
            let mut entry = TimeEntry { timestamp: NO_TIMESTAMP, offset: 7 };
            let mut naive = vec![entry];
            for (timestamp_step, offset_step) in steps {
                entry.timestamp += timestamp_step;
                entry.offset += offset_step;
                index.maybe_append(entry.timestamp, entry.offset, false).expect("rises");
                naive.push(entry);
            }
            let loaded = TimeIndex::load(7, 1 << 20, index.as_bytes()).expect("valid");
            prop_assert_eq!(loaded.as_bytes(), index.as_bytes());
            for target in targets {
                let expected = naive.iter().rev().find(|entry| entry.timestamp <= target);
                prop_assert_eq!(index.lookup(target), expected.copied().unwrap_or(naive[0]));
            }
        }
    }
}
