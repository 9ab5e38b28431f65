//! Leader epochs of one partition and the first offset written in each (KIP-101, KIP-279, KIP-320).
//!
//! ```text
//! 0                 version
//! 2                 count of entries
//! 0 0               epoch, start offset
//! 3 1200
//! ```
//!
//! Invariant: epochs and start offsets rise strictly. The file is written before an epoch's first
//! batch. Epochs without data are dropped when a log is opened, whether the file has them (as
//! Kafka's does) or not. Recovery rebuilds the file from the batches.

use std::fmt::Write as _;

use crate::checkpoint::{self, CheckpointError};

/// "No epoch" in requests and replies.
pub const UNDEFINED_EPOCH: i32 = -1;
/// "No offset" in replies about epochs.
pub const UNDEFINED_OFFSET: i64 = -1;

/// An epoch and the first offset written in it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct EpochEntry {
    /// Leader epoch, never negative.
    pub epoch: i32,
    /// First offset of the epoch, never negative.
    pub start_offset: i64,
}

/// The lines of `leader-epoch-checkpoint`, contradictions included.
///
/// # Errors
/// [`CheckpointError`].
pub(crate) fn parse_entries(path: &str, bytes: &[u8]) -> Result<Vec<EpochEntry>, CheckpointError> {
    checkpoint::parse(path, bytes, |fields| {
        let wanted = "\"epoch offset\"";
        let [epoch, start_offset] = fields else {
            return Err(wanted);
        };
        let epoch = epoch.parse().ok().filter(|epoch| *epoch >= 0);
        let start_offset = start_offset.parse().ok().filter(|offset| *offset >= 0);
        Ok(EpochEntry {
            epoch: epoch.ok_or(wanted)?,
            start_offset: start_offset.ok_or(wanted)?,
        })
    })
}

/// The epochs of one partition, ascending.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct LeaderEpochs {
    entries: Vec<EpochEntry>,
}

impl LeaderEpochs {
    /// No epochs.
    pub fn new() -> Self {
        Self::default()
    }

    /// Parses `leader-epoch-checkpoint`; `path` is for error messages. Entries are assigned in
    /// order, so later ones replace earlier ones that they contradict.
    ///
    /// # Errors
    /// [`CheckpointError`]; the epochs can then be rebuilt from the log.
    pub fn parse(path: &str, bytes: &[u8]) -> Result<Self, CheckpointError> {
        let entries = parse_entries(path, bytes)?;
        let mut epochs = Self::new();
        for entry in entries {
            epochs.assign(entry.epoch, entry.start_offset);
        }
        Ok(epochs)
    }

    /// The text of `leader-epoch-checkpoint`.
    pub fn encode(&self) -> String {
        checkpoint::encode(&self.entries, |text, entry| {
            // Writing to a String cannot fail.
            let _ = write!(text, "{} {}", entry.epoch, entry.start_offset);
        })
    }

    /// Begins `epoch` at `start_offset`; true if that changed anything, so that the file must be
    /// written. Drops entries with a higher or equal epoch or a start at or behind the new one:
    /// their data was truncated or never written. The last epoch changes only to an earlier start.
    /// Negative arguments (batches from before leader epochs) change nothing.
    pub fn assign(&mut self, epoch: i32, start_offset: i64) -> bool {
        if epoch < 0 || start_offset < 0 {
            return false;
        }
        let known = self
            .entries
            .last()
            .is_some_and(|last| last.epoch == epoch && start_offset >= last.start_offset);
        if known {
            return false;
        }
        while self
            .entries
            .last()
            .is_some_and(|last| last.epoch >= epoch || last.start_offset >= start_offset)
        {
            self.entries.pop();
        }
        self.entries.push(EpochEntry {
            epoch,
            start_offset,
        });
        true
    }

    /// The last epoch.
    pub fn latest(&self) -> Option<EpochEntry> {
        self.entries.last().copied()
    }

    /// The first epoch known.
    pub fn earliest(&self) -> Option<EpochEntry> {
        self.entries.first().copied()
    }

    /// All entries, ascending.
    pub fn entries(&self) -> &[EpochEntry] {
        &self.entries
    }

    /// Answers OffsetForLeaderEpoch: the largest epoch at or below `requested` and its end: the
    /// start of the next epoch, or `log_end_offset` for the last one.
    ///
    /// For a request below all known epochs: that epoch with the start of the first known one. For
    /// an epoch above all known ones, or -1: (-1, -1).
    pub fn end_offset_for(&self, requested: i32, log_end_offset: i64) -> (i32, i64) {
        if requested == UNDEFINED_EPOCH {
            return (UNDEFINED_EPOCH, UNDEFINED_OFFSET);
        }
        let above = self
            .entries
            .partition_point(|entry| entry.epoch <= requested);
        let floor = above.checked_sub(1).map(|i| self.entries[i]);
        match (floor, self.entries.get(above)) {
            (Some(floor), Some(next)) => (floor.epoch, next.start_offset),
            (None, Some(next)) => (requested, next.start_offset),
            (Some(last), None) if last.epoch == requested => (requested, log_end_offset),
            (_, None) => (UNDEFINED_EPOCH, UNDEFINED_OFFSET),
        }
    }

    /// The epoch of the record at `offset`.
    pub fn epoch_for_offset(&self, offset: i64) -> Option<i32> {
        let above = self
            .entries
            .partition_point(|entry| entry.start_offset <= offset);
        above.checked_sub(1).map(|i| self.entries[i].epoch)
    }

    /// The first epoch that begins there or later.
    pub(crate) fn at_or_behind(&self, offset: i64) -> Option<EpochEntry> {
        let mut behind = self.entries.iter();
        behind.find(|entry| entry.start_offset >= offset).copied()
    }

    /// Drops epochs that begin at or behind `end_offset`, where the log was truncated. True if
    /// something changed.
    pub fn truncate_from_end(&mut self, end_offset: i64) -> bool {
        let keep = self
            .entries
            .partition_point(|entry| entry.start_offset < end_offset);
        let changed = end_offset >= 0 && keep < self.entries.len();
        if changed {
            self.entries.truncate(keep);
        }
        changed
    }

    /// Drops epochs that end at or before the log's new `start_offset`; the epoch that contains it
    /// begins there. True if something changed.
    pub fn truncate_from_start(&mut self, start_offset: i64) -> bool {
        let covered = self
            .entries
            .partition_point(|entry| entry.start_offset <= start_offset);
        let Some(first) = covered.checked_sub(1) else {
            return false;
        };
        if first == 0 && self.entries[0].start_offset == start_offset {
            return false;
        }
        self.entries.drain(..first);
        self.entries[0].start_offset = start_offset;
        true
    }

    /// The first epoch begins at `start_offset`, if it began later. True if something changed.
    pub fn begin_at(&mut self, start_offset: i64) -> bool {
        let first = self.entries.first_mut();
        let late = first.filter(|first| first.start_offset > start_offset);
        late.map(|first| first.start_offset = start_offset)
            .is_some()
    }

    /// These epochs behind those of `older`, another replica's, which begin before the first of
    /// these. Drop what lies before the log.
    #[must_use]
    pub fn with_older(&self, older: &LeaderEpochs) -> LeaderEpochs {
        let Some(earliest) = self.earliest() else {
            return older.clone();
        };
        let mut all = LeaderEpochs::new();
        for entry in &older.entries {
            if entry.start_offset < earliest.start_offset && entry.epoch <= earliest.epoch {
                all.assign(entry.epoch, entry.start_offset);
            }
        }
        for entry in &self.entries {
            all.assign(entry.epoch, entry.start_offset);
        }
        all
    }

    /// Removes all epochs.
    pub fn clear(&mut self) {
        self.entries.clear();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn epochs(entries: &[(i32, i64)]) -> LeaderEpochs {
        let mut epochs = LeaderEpochs::new();
        for &(epoch, start_offset) in entries {
            epochs.assign(epoch, start_offset);
        }
        epochs
    }

    fn pairs(epochs: &LeaderEpochs) -> Vec<(i32, i64)> {
        epochs
            .entries()
            .iter()
            .map(|entry| (entry.epoch, entry.start_offset))
            .collect()
    }

    #[test]
    fn the_text_is_kafkas() {
        let cache = epochs(&[(0, 0), (3, 1200)]);
        assert_eq!(cache.encode(), "0\n2\n0 0\n3 1200\n");
        assert_eq!(
            LeaderEpochs::parse("f", cache.encode().as_bytes()),
            Ok(cache)
        );
    }

    #[test]
    fn damage_is_refused() {
        for text in [
            "0\n1\n0\n",
            "0\n1\n-1 0\n",
            "0\n1\n0 -1\n",
            "0\n1\n0 0 0\n",
            "0\n2\n0 0\n",
        ] {
            assert!(
                LeaderEpochs::parse("f", text.as_bytes()).is_err(),
                "{text:?}"
            );
        }
    }

    #[test]
    fn an_epoch_is_assigned_once() {
        let mut cache = LeaderEpochs::new();
        assert!(cache.assign(2, 6));
        assert!(!cache.assign(2, 6));
        assert!(!cache.assign(2, 9));
        assert_eq!(pairs(&cache), [(2, 6)]);
        assert!(!cache.assign(-1, 10));
        assert!(!cache.assign(3, -1));
    }

    #[test]
    fn contradicting_entries_give_way() {
        for (epoch, start, expected) in [
            // A new epoch at the same offset: the old one never got data.
            (4, 30, vec![(1, 10), (2, 20), (4, 30)]),
            // A new epoch that starts earlier: the log was truncated.
            (4, 15, vec![(1, 10), (4, 15)]),
            // An older epoch comes back.
            (1, 40, vec![(1, 40)]),
            (2, 25, vec![(1, 10), (2, 25)]),
            // The last epoch starts earlier than known.
            (3, 29, vec![(1, 10), (2, 20), (3, 29)]),
            (0, 0, vec![(0, 0)]),
        ] {
            let mut cache = epochs(&[(1, 10), (2, 20), (3, 30)]);
            assert!(cache.assign(epoch, start));
            assert_eq!(pairs(&cache), expected, "{epoch} at {start}");
        }
    }

    #[test]
    fn end_offsets_follow_the_rules_of_offset_for_leader_epoch() {
        let cache = epochs(&[(2, 10), (4, 20), (7, 30)]);
        for (requested, expected) in [
            (-1, (-1, -1)),
            (0, (0, 10)),
            (1, (1, 10)),
            (2, (2, 20)),
            (3, (2, 20)),
            (4, (4, 30)),
            (6, (4, 30)),
            (7, (7, 99)),
            (8, (-1, -1)),
        ] {
            assert_eq!(cache.end_offset_for(requested, 99), expected, "{requested}");
        }
        assert_eq!(LeaderEpochs::new().end_offset_for(0, 99), (-1, -1));
    }

    #[test]
    fn the_epoch_of_an_offset() {
        let cache = epochs(&[(2, 10), (4, 20)]);
        for (offset, expected) in [
            (9, None),
            (10, Some(2)),
            (19, Some(2)),
            (20, Some(4)),
            (99, Some(4)),
        ] {
            assert_eq!(cache.epoch_for_offset(offset), expected, "{offset}");
        }
    }

    #[test]
    fn older_epochs_come_before_the_first_one() {
        let older = epochs(&[(0, 0), (2, 10), (4, 20)]);
        for (own, expected) in [
            // The log begins within an epoch, behind one, and where one begins.
            (
                vec![(4, 25), (6, 40)],
                vec![(0, 0), (2, 10), (4, 20), (6, 40)],
            ),
            (vec![(6, 40)], vec![(0, 0), (2, 10), (4, 20), (6, 40)]),
            (vec![(2, 10), (4, 20)], vec![(0, 0), (2, 10), (4, 20)]),
            (vec![(0, 5), (2, 10)], vec![(0, 0), (2, 10)]),
            (vec![], vec![(0, 0), (2, 10), (4, 20)]),
            // It was cut since, and another leader wrote on.
            (vec![(0, 3), (5, 12)], vec![(0, 0), (5, 12)]),
        ] {
            assert_eq!(pairs(&epochs(&own).with_older(&older)), expected, "{own:?}");
        }
    }

    #[test]
    fn truncation_from_the_end() {
        for (end, changed, expected) in [
            (31, false, vec![(2, 10), (4, 20), (7, 30)]),
            (30, true, vec![(2, 10), (4, 20)]),
            (11, true, vec![(2, 10)]),
            (10, true, vec![]),
            (0, true, vec![]),
            (-1, false, vec![(2, 10), (4, 20), (7, 30)]),
        ] {
            let mut cache = epochs(&[(2, 10), (4, 20), (7, 30)]);
            assert_eq!(cache.truncate_from_end(end), changed, "{end}");
            assert_eq!(pairs(&cache), expected, "{end}");
        }
    }

    #[test]
    fn truncation_from_the_start() {
        for (start, changed, expected) in [
            (9, false, vec![(2, 10), (4, 20), (7, 30)]),
            (10, false, vec![(2, 10), (4, 20), (7, 30)]),
            (11, true, vec![(2, 11), (4, 20), (7, 30)]),
            (20, true, vec![(4, 20), (7, 30)]),
            (99, true, vec![(7, 99)]),
        ] {
            let mut cache = epochs(&[(2, 10), (4, 20), (7, 30)]);
            assert_eq!(cache.truncate_from_start(start), changed, "{start}");
            assert_eq!(pairs(&cache), expected, "{start}");
        }
    }

    #[test]
    fn the_first_epoch_may_begin_earlier() {
        for (start, changed, expected) in [
            (11, false, vec![(2, 10), (4, 20)]),
            (10, false, vec![(2, 10), (4, 20)]),
            (3, true, vec![(2, 3), (4, 20)]),
        ] {
            let mut cache = epochs(&[(2, 10), (4, 20)]);
            assert_eq!(cache.begin_at(start), changed, "{start}");
            assert_eq!(pairs(&cache), expected, "{start}");
        }
        assert!(!LeaderEpochs::new().begin_at(0));
    }

    proptest! {
        #[test]
        fn entries_always_rise(
            steps in proptest::collection::vec((0_i32..20, 0_i64..100, 0_u8..4), 0..60),
        ) {
            let mut cache = LeaderEpochs::new();
            for (epoch, offset, action) in steps {
                match action {
                    0 => drop(cache.truncate_from_end(offset)),
                    1 => drop(cache.truncate_from_start(offset)),
                    _ => drop(cache.assign(epoch, offset)),
                }
                for pair in cache.entries().windows(2) {
                    prop_assert!(pair[0].epoch < pair[1].epoch);
                    prop_assert!(pair[0].start_offset < pair[1].start_offset);
                }
                let read = LeaderEpochs::parse("f", cache.encode().as_bytes());
                prop_assert_eq!(read.as_ref(), Ok(&cache));
            }
        }
    }
}
