//! A group's committed offsets, and commits under way.
//!
//! The control plane owns the table and decides its content. Offsets of an `OffsetCommit` arrive
//! without its help, once the high watermark has passed their records.
//!
//! Commits may finish out of order: the record with the higher log offset wins, as when the log is
//! read. The writer's thread finishes commits while the control plane reads the table, so every
//! atomic operation is one call.

use std::collections::BTreeMap;
use std::ops::Bound;

use parking_lot::Mutex;

/// A committed offset. Times are milliseconds since the epoch, -1 for none.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CommittedOffset {
    /// Log offset of its record.
    pub record_offset: i64,
    /// The offset.
    pub offset: i64,
    /// Leader epoch of the last consumed record, -1 unknown.
    pub leader_epoch: i32,
    /// The client's metadata.
    pub metadata: Box<str>,
    /// When it was committed.
    pub commit_ms: i64,
    /// The client's expiry time.
    pub expire_ms: i64,
}

/// When committed offsets expire (KIP-211). Times are milliseconds since the epoch.
#[derive(Clone, Copy, Debug)]
pub struct OffsetExpiry {
    /// The current time.
    pub now_ms: i64,
    /// How long an offset is kept.
    pub retention_ms: i64,
    /// Start of the retention; `None`: the commit.
    pub since_ms: Option<i64>,
}

impl OffsetExpiry {
    /// The client's own expiry overrides the retention.
    fn is_over(&self, offset: &CommittedOffset) -> bool {
        if offset.expire_ms >= 0 {
            return self.now_ms >= offset.expire_ms;
        }
        let since_ms = self.since_ms.unwrap_or(offset.commit_ms);
        self.now_ms.saturating_sub(since_ms) >= self.retention_ms
    }
}

/// Identifies one append of a group.
pub type Ticket = u64;

/// A topic and a partition.
pub type TopicPartition = (String, i32);

#[derive(Debug, Default)]
struct Slot {
    committed: Option<CommittedOffset>,
    /// Appends under way for the partition; mostly one.
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
    /// Number of committed offsets.
    pub fn len(&self) -> usize {
        self.inner.lock().committed
    }

    /// Whether nothing is committed.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Number of partitions with a commit under way.
    pub fn pending(&self) -> usize {
        self.inner.lock().pending
    }

    /// Whether nothing is committed or under way.
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

    /// All committed offsets by topic and partition.
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

    /// Up to `max` committed offsets after a partition, or from the start, ordered by topic and
    /// partition.
    pub fn page(
        &self,
        after: Option<(&str, i32)>,
        max: usize,
    ) -> Vec<(TopicPartition, CommittedOffset)> {
        let inner = self.inner.lock();
        let from = after.map_or(Bound::Unbounded, |(topic, _)| Bound::Included(topic));
        let topics = inner.topics.range::<str, _>((from, Bound::Unbounded));
        let committed = topics.flat_map(|(topic, partitions)| {
            let behind = match after {
                Some((known, partition)) if *known == **topic => Bound::Excluded(partition),
                _ => Bound::Unbounded,
            };
            let rest = partitions.range((behind, Bound::Unbounded));
            rest.filter_map(move |(partition, slot)| {
                let committed = slot.committed.clone()?;
                Some(((topic.to_string(), *partition), committed))
            })
        });
        committed.take(max).collect()
    }

    /// Topics with offsets committed or under way.
    pub fn topics(&self) -> Vec<String> {
        let inner = self.inner.lock();
        inner.topics.keys().map(ToString::to_string).collect()
    }

    /// The same for a topic's partitions.
    pub fn partitions(&self, topic: &str) -> Vec<i32> {
        let inner = self.inner.lock();
        let partitions = inner.topics.get(topic).into_iter();
        partitions.flat_map(BTreeMap::keys).copied().collect()
    }

    /// An append with offsets of these partitions begins.
    pub fn stage<'a>(&self, ticket: Ticket, partitions: impl Iterator<Item = (&'a str, i32)>) {
        let mut inner = self.inner.lock();
        for (topic, partition) in partitions {
            inner.stage(topic, partition, ticket);
        }
    }

    /// The append is over: these offsets are in the log, or none (`None`). Offsets removed
    /// meanwhile stay removed; other appends of a partition may be under way. For a partition named
    /// twice the later record wins.
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

    /// Adds offsets from the log, unless a newer one is known.
    pub fn keep<'a>(&self, offsets: impl Iterator<Item = (&'a str, i32, CommittedOffset)>) {
        let mut inner = self.inner.lock();
        for (topic, partition, offset) in offsets {
            let slot = inner.topics.entry(topic.into()).or_default();
            let slot = slot.entry(partition).or_default();
            let is_first = slot.keep_newer(offset);
            inner.committed += usize::from(is_first);
        }
    }

    /// Removes offsets; returns the partitions that need a tombstone: with an offset in the log or
    /// under way.
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

    /// Removes expired offsets without a commit under way, except those of `is_kept`; returns their
    /// partitions. A single call, so that a concurrent commit is seen.
    pub fn remove_expired(
        &self,
        expiry: OffsetExpiry,
        is_kept: impl Fn(&str, i32) -> bool,
    ) -> Vec<TopicPartition> {
        let mut inner = self.inner.lock();
        let mut expired = Vec::new();
        for (topic, partitions) in &inner.topics {
            for (partition, slot) in partitions {
                let committed = slot.committed.as_ref();
                let is_over = committed.is_some_and(|offset| expiry.is_over(offset));
                if is_over && slot.pending.is_empty() && !is_kept(topic, *partition) {
                    expired.push((topic.to_string(), *partition));
                }
            }
        }
        for (topic, partition) in &expired {
            inner.remove(topic, *partition);
        }
        expired
    }

    /// Removes everything; returns the same as [`OffsetTable::remove`].
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
    /// True if there was none.
    fn keep_newer(&mut self, offset: CommittedOffset) -> bool {
        let known = self.committed.as_ref().map(|known| known.record_offset);
        if known.is_none_or(|known| known < offset.record_offset) {
            self.committed = Some(offset);
        }
        known.is_none()
    }
}

impl Inner {
    fn slot(&self, topic: &str, partition: i32) -> Option<&Slot> {
        self.topics.get(topic)?.get(&partition)
    }

    fn stage(&mut self, topic: &str, partition: i32, ticket: Ticket) {
        // Only a new topic costs a copy of its name.
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
            let is_first = slot.keep_newer(offset);
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
    fn higher_record_offset_wins_in_any_order_of_completion() {
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
    fn removed_pending_offset_stays_removed_beside_a_later_commit() {
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
    fn last_record_of_a_twice_named_partition_counts() {
        let table = OffsetTable::default();
        table.stage(1, [T0, T0].into_iter());
        let twice = [("t", 0, Some(at(10, 5))), ("t", 0, Some(at(11, 9)))];
        table.finish(1, twice.into_iter());
        assert_eq!(shown(&table), (Some(9), false, 1, 0));
    }

    #[test]
    fn finished_offsets_expire_unless_kept_or_pending() {
        let table = OffsetTable::default();
        let own_time = CommittedOffset {
            expire_ms: 90,
            ..at(4, 1)
        };
        let late = CommittedOffset {
            commit_ms: 60,
            ..at(5, 1)
        };
        let rows = [("t", 0, at(1, 1)), ("t", 1, at(2, 1)), ("t", 2, at(3, 1))];
        table.keep(rows.into_iter());
        table.keep([("t", 3, own_time), ("t", 4, late), ("u", 0, at(6, 1))].into_iter());
        table.stage(1, [("t", 1)].into_iter());
        let expiry = OffsetExpiry {
            now_ms: 80,
            retention_ms: 75,
            since_ms: None,
        };
        let is_kept = |topic: &str, _| topic == "u";
        let expired = table.remove_expired(expiry, is_kept);
        assert_eq!(expired, [("t".into(), 0), ("t".into(), 2)]);
        assert_eq!((table.len(), table.pending()), (4, 1));
        // Retention now counts since the group became empty; the client's own expiry has passed,
        // too.
        let later = OffsetExpiry {
            now_ms: 90,
            since_ms: Some(10),
            ..expiry
        };
        let expired = table.remove_expired(later, is_kept);
        assert_eq!(expired, [("t".into(), 3), ("t".into(), 4)]);
        assert_eq!(table.topics(), ["t", "u"]);
        assert_eq!(table.partitions("t"), [1]);
    }

    #[test]
    fn pages_are_in_order_and_complete() {
        let table = OffsetTable::default();
        assert_eq!(table.page(None, 2), []);
        let rows = [("a", 0), ("a", 2), ("b", 1), ("b", 5), ("c", 0)];
        let kept = rows.iter().map(|(topic, index)| (*topic, *index, at(1, 1)));
        table.keep(kept);
        // A partition with its first commit under way.
        table.stage(1, [("b", 2)].into_iter());
        for size in 1..7 {
            let mut found: Vec<(String, i32)> = Vec::new();
            loop {
                let after = found.last().map(|(topic, index)| (&**topic, *index));
                let page = table.page(after, size);
                if page.is_empty() {
                    break;
                }
                found.extend(page.into_iter().map(|(key, _)| key));
            }
            assert_eq!(found, rows.map(|(topic, index)| (topic.to_owned(), index)));
        }
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
    fn removed_offset_stays_removed_and_needs_a_tombstone() {
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
