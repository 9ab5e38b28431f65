//! The offsets that one group has committed, and which of them are on their way.
//!
//! The control plane owns a table and decides what goes into it; offsets of commits that were
//! handed down whole ([`crate::OffsetCommit`]) arrive in it without the control plane's help, when
//! the high watermark has passed their records.
//!
//! Commits may finish in another order than that of their records: the record with the higher log
//! offset wins, as it would when the log is read. The writer's thread finishes commits while the
//! control plane looks at the table: whatever must not fall apart is one call here.

use std::collections::BTreeMap;

use parking_lot::Mutex;

/// A committed offset. Times are milliseconds since the epoch, -1 = none.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CommittedOffset {
    /// Log offset of its record.
    pub record_offset: i64,
    /// The offset.
    pub offset: i64,
    /// Leader epoch of the last record consumed, -1 unknown.
    pub leader_epoch: i32,
    /// The client's own note.
    pub metadata: Box<str>,
    /// When it was committed.
    pub commit_ms: i64,
    /// When it expires by the client's wish.
    pub expire_ms: i64,
}

/// Names one append of a group: each has a number of its own.
pub type Ticket = u64;

/// A topic and a partition.
pub type TopicPartition = (String, i32);

#[derive(Debug, Default)]
struct Slot {
    committed: Option<CommittedOffset>,
    /// The appends under way that carry an offset of the partition; mostly one.
    pending: Vec<Ticket>,
}

#[derive(Debug, Default)]
struct Inner {
    topics: BTreeMap<Box<str>, BTreeMap<i32, Slot>>,
    committed: usize,
    pending: usize,
}

/// See the module.
#[derive(Debug, Default)]
pub struct OffsetTable {
    inner: Mutex<Inner>,
}

impl OffsetTable {
    /// Committed offsets.
    pub fn len(&self) -> usize {
        self.inner.lock().committed
    }

    /// Whether nothing is committed.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Partitions of which a commit is under way.
    pub fn pending(&self) -> usize {
        self.inner.lock().pending
    }

    /// Whether nothing is committed and nothing is on its way.
    pub fn is_unused(&self) -> bool {
        self.inner.lock().topics.is_empty()
    }

    /// Whether a commit of the partition is under way.
    pub fn is_pending(&self, topic: &str, partition: i32) -> bool {
        let inner = self.inner.lock();
        let slot = inner.slot(topic, partition);
        slot.is_some_and(|slot| !slot.pending.is_empty())
    }

    /// The committed offset of a partition.
    pub fn get(&self, topic: &str, partition: i32) -> Option<CommittedOffset> {
        let inner = self.inner.lock();
        inner.slot(topic, partition)?.committed.clone()
    }

    /// All committed offsets, in order of topic and partition.
    pub fn list(&self) -> Vec<(TopicPartition, CommittedOffset)> {
        let inner = self.inner.lock();
        let mut all = Vec::with_capacity(inner.committed);
        for (topic, partitions) in &inner.topics {
            for (partition, slot) in partitions {
                if let Some(committed) = &slot.committed {
                    all.push(((topic.to_string(), *partition), committed.clone()));
                }
            }
        }
        all
    }

    /// An append with offsets of these partitions has begun.
    pub fn stage<'a>(&self, ticket: Ticket, partitions: impl Iterator<Item = (&'a str, i32)>) {
        let mut inner = self.inner.lock();
        for (topic, partition) in partitions {
            inner.stage(topic, partition, ticket);
        }
    }

    /// That append is over: it put these offsets into the log, or none of them (`None`). What was
    /// forgotten meanwhile stays so; other appends of the same partition may still be under way. A
    /// partition that is named twice has two records, of which the later one wins.
    pub fn finish<'a>(
        &self,
        ticket: Ticket,
        offsets: impl Iterator<Item = (&'a str, i32, Option<CommittedOffset>)>,
    ) {
        let mut inner = self.inner.lock();
        let mut over = Vec::new();
        for (topic, partition, offset) in offsets {
            inner.keep_pending(topic, partition, ticket, offset);
            over.push((topic, partition));
        }
        for (topic, partition) in over {
            inner.unstage(topic, partition, ticket);
        }
    }

    /// Takes in offsets that are in the log, each unless a newer one is known.
    pub fn keep<'a>(&self, offsets: impl Iterator<Item = (&'a str, i32, CommittedOffset)>) {
        let mut inner = self.inner.lock();
        for (topic, partition, offset) in offsets {
            let slot = inner.topics.entry(topic.into()).or_default();
            let slot = slot.entry(partition).or_default();
            let is_first = slot.committed.is_none();
            slot.keep_newer(offset);
            inner.committed += usize::from(is_first);
        }
    }

    /// Forgets offsets. Returns the partitions whose log holds one, or is about to: they need a
    /// tombstone.
    pub fn remove<'a>(
        &self,
        partitions: impl Iterator<Item = (&'a str, i32)>,
    ) -> Vec<TopicPartition> {
        let mut inner = self.inner.lock();
        partitions
            .filter(|(topic, partition)| inner.remove(topic, *partition))
            .map(|(topic, partition)| (topic.to_owned(), partition))
            .collect()
    }

    /// Forgets offsets that are still those of these records, and of which no commit is under way;
    /// returns their partitions.
    pub fn remove_unchanged<'a>(
        &self,
        records: impl Iterator<Item = (&'a str, i32, i64)>,
    ) -> Vec<TopicPartition> {
        let mut inner = self.inner.lock();
        let mut removed = Vec::new();
        for (topic, partition, record_offset) in records {
            let is_unchanged = inner.slot(topic, partition).is_some_and(|slot| {
                let known = slot.committed.as_ref().map(|known| known.record_offset);
                known == Some(record_offset) && slot.pending.is_empty()
            });
            if is_unchanged && inner.remove(topic, partition) {
                removed.push((topic.to_owned(), partition));
            }
        }
        removed
    }

    /// Forgets everything; returns what [`OffsetTable::remove`] would.
    pub fn clear(&self) -> Vec<TopicPartition> {
        let inner = std::mem::take(&mut *self.inner.lock());
        let mut all = Vec::with_capacity(inner.committed + inner.pending);
        for (topic, partitions) in inner.topics {
            all.extend(partitions.into_keys().map(|one| (topic.to_string(), one)));
        }
        all
    }
}

impl Slot {
    fn keep_newer(&mut self, offset: CommittedOffset) {
        let known = self.committed.as_ref().map(|known| known.record_offset);
        if known.is_none_or(|known| known < offset.record_offset) {
            self.committed = Some(offset);
        }
    }
}

impl Inner {
    fn slot(&self, topic: &str, partition: i32) -> Option<&Slot> {
        self.topics.get(topic)?.get(&partition)
    }

    fn stage(&mut self, topic: &str, partition: i32, ticket: Ticket) {
        // Nearly always the topic is there already: only a new one costs a copy of its name.
        let partitions = match self.topics.get_mut(topic) {
            Some(partitions) => partitions,
            None => self.topics.entry(topic.into()).or_default(),
        };
        let slot = partitions.entry(partition).or_default();
        self.pending += usize::from(slot.pending.is_empty());
        slot.pending.push(ticket);
    }

    fn pending_slot(&mut self, topic: &str, partition: i32, ticket: Ticket) -> Option<&mut Slot> {
        let slot = self.topics.get_mut(topic)?.get_mut(&partition)?;
        slot.pending.contains(&ticket).then_some(slot)
    }

    fn keep_pending(
        &mut self,
        topic: &str,
        partition: i32,
        ticket: Ticket,
        offset: Option<CommittedOffset>,
    ) {
        let Some(slot) = self.pending_slot(topic, partition, ticket) else {
            return;
        };
        if let Some(offset) = offset {
            let is_first = slot.committed.is_none();
            slot.keep_newer(offset);
            self.committed += usize::from(is_first);
        }
    }

    fn unstage(&mut self, topic: &str, partition: i32, ticket: Ticket) {
        let Some(slot) = self.pending_slot(topic, partition, ticket) else {
            return;
        };
        slot.pending.retain(|pending| *pending != ticket);
        if slot.pending.is_empty() {
            let is_empty = slot.committed.is_none();
            self.pending -= 1;
            if is_empty {
                self.drop_slot(topic, partition);
            }
        }
    }

    fn remove(&mut self, topic: &str, partition: i32) -> bool {
        let Some(slot) = self.drop_slot(topic, partition) else {
            return false;
        };
        self.committed -= usize::from(slot.committed.is_some());
        self.pending -= usize::from(!slot.pending.is_empty());
        true
    }

    fn drop_slot(&mut self, topic: &str, partition: i32) -> Option<Slot> {
        let partitions = self.topics.get_mut(topic)?;
        let slot = partitions.remove(&partition)?;
        if partitions.is_empty() {
            self.topics.remove(topic);
        }
        Some(slot)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const T0: (&str, i32) = ("t", 0);

    fn at(record_offset: i64, offset: i64) -> CommittedOffset {
        CommittedOffset {
            record_offset,
            offset,
            leader_epoch: -1,
            metadata: "".into(),
            commit_ms: 5,
            expire_ms: -1,
        }
    }

    fn finish(table: &OffsetTable, ticket: Ticket, offset: Option<CommittedOffset>) {
        table.finish(ticket, [(T0.0, T0.1, offset)].into_iter());
    }

    fn stage(table: &OffsetTable, ticket: Ticket) {
        table.stage(ticket, [T0].into_iter());
    }

    fn shown(table: &OffsetTable) -> (Option<i64>, bool, usize, usize) {
        let offset = table.get(T0.0, T0.1).map(|found| found.offset);
        let pending = table.is_pending(T0.0, T0.1);
        (offset, pending, table.len(), table.pending())
    }

    #[test]
    fn an_offset_counts_when_its_append_is_over() {
        let table = OffsetTable::default();
        stage(&table, 1);
        assert_eq!(shown(&table), (None, true, 0, 1));
        finish(&table, 1, Some(at(10, 7)));
        assert_eq!(shown(&table), (Some(7), false, 1, 0));
        stage(&table, 2);
        finish(&table, 2, None);
        assert_eq!(shown(&table), (Some(7), false, 1, 0));
        assert_eq!(table.list(), [(("t".into(), 0), at(10, 7))]);
    }

    #[test]
    fn the_higher_record_wins_whatever_is_over_first() {
        let table = OffsetTable::default();
        stage(&table, 1);
        stage(&table, 2);
        assert_eq!(table.pending(), 1);
        finish(&table, 2, Some(at(11, 2)));
        assert_eq!(shown(&table), (Some(2), true, 1, 1));
        finish(&table, 1, Some(at(10, 1)));
        assert_eq!(shown(&table), (Some(2), false, 1, 0));
        table.keep([(T0.0, T0.1, at(9, 0)), ("u", 4, at(3, 3))].into_iter());
        assert_eq!(shown(&table), (Some(2), false, 2, 0));
    }

    #[test]
    fn a_later_append_that_fails_first_takes_nothing_from_an_earlier_one() {
        let table = OffsetTable::default();
        stage(&table, 1);
        stage(&table, 2);
        finish(&table, 2, None);
        assert_eq!(shown(&table), (None, true, 0, 1));
        finish(&table, 1, Some(at(10, 7)));
        assert_eq!(shown(&table), (Some(7), false, 1, 0));
    }

    #[test]
    fn what_was_forgotten_does_not_come_back_beside_a_later_commit() {
        let table = OffsetTable::default();
        stage(&table, 1);
        assert_eq!(table.remove([T0].into_iter()), [("t".into(), 0)]);
        stage(&table, 2);
        finish(&table, 1, Some(at(10, 7)));
        assert_eq!(shown(&table), (None, true, 0, 1));
        finish(&table, 2, None);
        assert!(table.is_unused());
    }

    #[test]
    fn of_a_partition_that_is_named_twice_the_later_record_counts() {
        let table = OffsetTable::default();
        table.stage(1, [T0, T0].into_iter());
        let twice = [("t", 0, Some(at(10, 5))), ("t", 0, Some(at(11, 9)))];
        table.finish(1, twice.into_iter());
        assert_eq!(shown(&table), (Some(9), false, 1, 0));
    }

    #[test]
    fn only_what_has_not_changed_since_expires() {
        let table = OffsetTable::default();
        table.keep([("t", 0, at(1, 1)), ("t", 1, at(2, 1)), ("t", 2, at(3, 1))].into_iter());
        table.keep([("t", 1, at(9, 2))].into_iter());
        table.stage(1, [("t", 2)].into_iter());
        let seen = [("t", 0, 1), ("t", 1, 2), ("t", 2, 3), ("t", 3, 4)];
        assert_eq!(table.remove_unchanged(seen.into_iter()), [("t".into(), 0)]);
        assert_eq!((table.len(), table.pending()), (2, 1));
    }

    #[test]
    fn a_failed_first_commit_leaves_nothing() {
        let table = OffsetTable::default();
        stage(&table, 1);
        finish(&table, 1, None);
        assert_eq!(shown(&table), (None, false, 0, 0));
        assert!(table.inner.lock().topics.is_empty());
    }

    #[test]
    fn what_is_forgotten_does_not_come_back_and_needs_a_tombstone() {
        let table = OffsetTable::default();
        stage(&table, 1);
        let gone = table.remove([T0, ("t", 1), ("u", 0)].into_iter());
        assert_eq!(gone, [("t".into(), 0)]);
        finish(&table, 1, Some(at(10, 7)));
        assert_eq!(shown(&table), (None, false, 0, 0));
        stage(&table, 2);
        table.keep([("u", 1, at(1, 1))].into_iter());
        assert_eq!(table.clear(), [("t".into(), 0), ("u".into(), 1)]);
        finish(&table, 2, Some(at(12, 7)));
        assert_eq!(shown(&table), (None, false, 0, 0));
    }
}
