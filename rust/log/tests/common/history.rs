//! Who wrote each record of a log, and the resulting state of transactions.

use std::collections::BTreeMap;

use super::bytes;
use super::{Rig, records_in};
use pyrklog_log::{Isolation, Wait};

/// The producer outside of transactions. Each transaction has its own, so forgetting one has no
/// effect on the next.
pub const PLAIN: i64 = 7;

/// Instead of a producer id.
pub const NOBODY: i64 = -1;

/// Concurrent transactions.
pub const SLOTS: usize = 2;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    Data(i64),
    Marker { producer: i64, commit: bool },
}

/// The records and their writers.
#[derive(Debug, Default)]
pub struct History {
    /// By offset, from 0.
    pub kinds: Vec<Kind>,
    producers: [i64; SLOTS],
    given: i64,
}

/// One transaction: its first offset, and where it ended.
#[derive(Clone, Copy, Debug)]
struct Transaction {
    producer: i64,
    first: i64,
    marker: Option<(i64, bool)>,
}

impl History {
    /// A producer's next sequence, from 0.
    pub fn sequence(&self, producer: i64) -> i32 {
        let written = self
            .kinds
            .iter()
            .filter(|kind| **kind == Kind::Data(producer));
        written.count() as i32
    }

    /// The producer with an open transaction in a slot, if a log that begins at `start` must know
    /// it.
    pub fn open(&self, slot: usize, start: i64) -> Option<i64> {
        let producer = self.producers[slot];
        let all = self.transactions();
        let mut own = all.iter().filter(|txn| txn.producer == producer);
        own.any(|txn| txn.marker.is_none() && txn.first >= start)
            .then_some(producer)
    }

    /// The same, or a new one.
    pub fn begin(&mut self, slot: usize, start: i64) -> i64 {
        self.open(slot, start).unwrap_or_else(|| {
            self.given += 1;
            self.producers[slot] = PLAIN + self.given;
            self.producers[slot]
        })
    }

    /// Where the first open transaction began.
    pub fn first_open(&self) -> Option<i64> {
        let all = self.transactions();
        let open = all.iter().filter(|txn| txn.marker.is_none());
        open.map(|txn| txn.first).min()
    }

    /// Whether a truncation to `target` may lose a transaction that began below the log start or
    /// would be open again.
    pub fn is_beyond(&self, target: i64, start: i64) -> bool {
        let all = self.transactions();
        let is_cut = |txn: &Transaction| txn.marker.is_none_or(|(marker, _)| marker >= target - 4);
        (start > 0 && target - 4 < start && !all.is_empty())
            || all.iter().any(|txn| txn.first < start && is_cut(txn))
    }

    fn transactions(&self) -> Vec<Transaction> {
        let mut open: BTreeMap<i64, i64> = BTreeMap::new();
        let mut found = Vec::new();
        for (offset, kind) in (0..).zip(&self.kinds) {
            match *kind {
                Kind::Data(PLAIN | NOBODY) => {}
                Kind::Data(producer) => {
                    open.entry(producer).or_insert(offset);
                }
                Kind::Marker { producer, commit } => {
                    if let Some(first) = open.remove(&producer) {
                        found.push(Transaction {
                            producer,
                            first,
                            marker: Some((offset, commit)),
                        });
                    }
                }
            }
        }
        found.extend(open.into_iter().map(|(producer, first)| Transaction {
            producer,
            first,
            marker: None,
        }));
        found
    }

    /// Checks last stable offset and aborted transactions. Transactions from below the log start
    /// may be forgotten.
    pub fn check(&self, rig: &Rig) {
        let log = &rig.log;
        let (start, visible) = (log.log_start_offset(), log.high_watermark());
        let all = self.transactions();
        let first = |is_open: &dyn Fn(&Transaction) -> bool| {
            let open = all.iter().filter(|txn| is_open(txn));
            open.map(|txn| txn.first).min()
        };
        // A marker above the high watermark keeps its transaction open until a restart, as in
        // Kafka.
        let ended_at = |txn: &Transaction| txn.marker.map_or(i64::MAX, |(offset, _)| offset);
        let lowest = first(&|txn| ended_at(txn) >= visible);
        let highest = first(&|txn| txn.marker.is_none());
        if lowest.is_none_or(|first| first >= start) {
            let bound = |first: Option<i64>| first.unwrap_or(visible).min(visible).max(start);
            let expected = bound(lowest)..=bound(highest);
            assert!(expected.contains(&log.last_stable_offset()), "{all:?}");
        }
        let aborted = aborted_in(rig);
        let stable = log.last_stable_offset();
        for txn in &all {
            let is_aborted = txn.marker.is_some_and(|(_, commit)| !commit);
            let is_told = aborted.contains(&(txn.producer, txn.first));
            if txn.first >= start && txn.first < stable {
                assert_eq!(is_told, is_aborted, "{txn:?} of {all:?}");
            } else if is_told {
                assert!(is_aborted, "{txn:?}");
            }
        }
        for &(producer, first) in &aborted {
            let is_it = |txn: &&Transaction| {
                let is_begun = first == txn.first || (txn.first < start && first > txn.first);
                let is_under_way = txn.marker.is_some_and(|(marker, _)| first <= marker);
                txn.producer == producer && is_begun && is_under_way
            };
            let is_aborted = all.iter().find(is_it).and_then(|txn| txn.marker);
            assert!(
                is_aborted.is_some_and(|(_, commit)| !commit),
                "{producer} {first} of {all:?} from {start}"
            );
        }
    }
}

/// (producer, first offset) of aborted transactions for readers of committed records, from the log
/// start on.
fn aborted_in(rig: &Rig) -> Vec<(i64, i64)> {
    let mut found = Vec::new();
    let mut offset = rig.log.log_start_offset();
    loop {
        let location = rig.log.locate(offset, Isolation::Committed).unwrap();
        let slice = location.resolve(1 << 20, true, Wait::Blocking).unwrap();
        let aborted = rig.log.aborted_transactions(&slice).unwrap().unwrap();
        found.extend(
            aborted
                .iter()
                .map(|txn| (txn.producer_id, txn.first_offset)),
        );
        match records_in(&bytes(&slice)).last() {
            Some((last, _)) => offset = last + 1,
            None => return found,
        }
    }
}
