//! The live records of a partition of an internal topic: the last value of each key, with open
//! transactions apart.
//!
//! Of two records of a key the one with the higher offset counts, whatever order their transactions
//! end in: so compaction decides too. While a transaction is open, a tombstone behind its first
//! record stays known, since the marker may bring in an older value.

use std::collections::{BTreeMap, HashMap};
use std::vec::IntoIter;

use parking_lot::Mutex;
use pyrklog_log::producer_state::marker::ControlType;

use crate::seam::InternalBatch;

/// Damaged batches that are told of.
const DAMAGED_TOLD_MAX: usize = 20;

/// Bytes of a key or value.
pub type Bytes = Box<[u8]>;

/// Offset, key and value.
pub type LiveRecord = (i64, Bytes, Bytes);

/// The same, with tombstones.
pub type OpenRecord = (i64, Bytes, Option<Bytes>);

/// Takes the batches of a partition in order.
#[derive(Debug, Default)]
pub struct LiveRecordsLoader {
    latest: HashMap<Bytes, Latest>,
    /// By producer id.
    open: BTreeMap<i64, OpenTransaction>,
    /// Keys that may have a tombstone in `latest`, each once.
    tombstones: Vec<Bytes>,
    read: u64,
    damaged: Vec<(i64, String)>,
    damaged_count: u64,
}

#[derive(Debug)]
struct Latest {
    offset: i64,
    value: Option<Bytes>,
    /// Its key is in `tombstones`.
    is_listed: bool,
}

#[derive(Debug)]
struct OpenTransaction {
    epoch: i16,
    records: Vec<OpenRecord>,
}

impl LiveRecordsLoader {
    /// The next batch.
    pub fn feed(&mut self, batch: &InternalBatch) {
        if let Some(damage) = &batch.damage {
            self.note_damage(batch.base_offset, damage.clone());
        } else if batch.is_control {
            self.end_transaction(batch);
        } else if batch.is_transactional {
            self.add_to_transaction(batch);
        } else {
            for (offset, key, value) in batch.records() {
                self.read += 1;
                match key {
                    Some(key) => self.keep(offset, key, value),
                    None => self.note_damage(offset, "a record without a key".to_owned()),
                }
            }
        }
    }

    fn note_damage(&mut self, offset: i64, damage: String) {
        self.damaged_count += 1;
        if self.damaged.len() < DAMAGED_TOLD_MAX {
            self.damaged.push((offset, damage));
        }
    }

    fn add_to_transaction(&mut self, batch: &InternalBatch) {
        let mut without_key = Vec::new();
        let open = self.open.entry(batch.producer_id);
        let open = open.or_insert_with(|| OpenTransaction {
            epoch: batch.producer_epoch,
            records: Vec::new(),
        });
        open.epoch = batch.producer_epoch;
        for (offset, key, value) in batch.records() {
            self.read += 1;
            match key {
                Some(key) => open
                    .records
                    .push((offset, key.into(), value.map(Bytes::from))),
                None => without_key.push(offset),
            }
        }
        for offset in without_key {
            self.note_damage(offset, "a record without a key".to_owned());
        }
    }

    fn end_transaction(&mut self, batch: &InternalBatch) {
        let ended = match batch.records().next() {
            Some((_, Some(key), _)) => ControlType::parse(key),
            // Compaction leaves it empty once its transaction's records are gone.
            _ => Ok(ControlType::Abort),
        };
        let is_commit = match ended {
            Ok(ControlType::Commit) => true,
            Ok(ControlType::Abort) => false,
            Ok(ControlType::Other(_)) => return,
            Err(error) => return self.note_damage(batch.base_offset, error.to_string()),
        };
        let Some(ended) = self.open.remove(&batch.producer_id) else {
            return;
        };
        if is_commit {
            for (offset, key, value) in ended.records {
                self.keep(offset, &key, value.as_deref());
            }
        }
        if self.open.is_empty() {
            self.drop_tombstones();
        }
    }

    fn keep(&mut self, offset: i64, key: &[u8], value: Option<&[u8]>) {
        let forgets = value.is_none() && self.open.is_empty();
        let Some(known) = self.latest.get_mut(key) else {
            if !forgets {
                self.add(offset, key, value);
            }
            return;
        };
        if known.offset > offset {
            return;
        }
        if forgets && !known.is_listed {
            self.latest.remove(key);
            return;
        }
        known.offset = offset;
        match (&mut known.value, value) {
            // Commits of a partition take the same bytes each time.
            (Some(old), Some(new)) if old.len() == new.len() => old.copy_from_slice(new),
            (old, new) => *old = new.map(Bytes::from),
        }
        if value.is_none() && !known.is_listed {
            known.is_listed = true;
            self.tombstones.push(key.into());
        }
    }

    fn add(&mut self, offset: i64, key: &[u8], value: Option<&[u8]>) {
        let is_listed = value.is_none();
        if is_listed {
            self.tombstones.push(key.into());
        }
        let latest = Latest {
            offset,
            value: value.map(Bytes::from),
            is_listed,
        };
        self.latest.insert(key.into(), latest);
    }

    fn drop_tombstones(&mut self) {
        for key in std::mem::take(&mut self.tombstones) {
            match self.latest.get_mut(&key) {
                Some(known) if known.value.is_some() => known.is_listed = false,
                _ => drop(self.latest.remove(&key)),
            }
        }
    }

    /// A tombstone behind a record of an open transaction has deleted it, whatever its marker says.
    fn drop_deleted_of_open(&mut self) {
        let latest = &self.latest;
        let is_deleted = |offset: i64, key: &Bytes| {
            let known = latest.get(key);
            known.is_some_and(|known| known.value.is_none() && known.offset > offset)
        };
        for open in self.open.values_mut() {
            open.records
                .retain(|(offset, key, _)| !is_deleted(*offset, key));
        }
    }

    /// What counts, after the last batch before `end_offset`.
    pub fn finish(mut self, end_offset: i64) -> LiveRecords {
        self.drop_deleted_of_open();
        let latest = self.latest.into_iter();
        let mut live: Vec<LiveRecord> = latest
            .filter_map(|(key, latest)| Some((latest.offset, key, latest.value?)))
            .collect();
        live.sort_unstable_by_key(|(offset, ..)| *offset);
        let open = self.open.into_iter();
        let open = open.map(|(id, open)| (id, (open.epoch, open.records.into_iter())));
        LiveRecords {
            end_offset,
            read: self.read,
            damaged: self.damaged,
            damaged_count: self.damaged_count,
            left: Mutex::new(Left {
                live: live.into_iter(),
                open: open.collect(),
            }),
        }
    }
}

/// What counts of a partition. Taking records frees them.
#[derive(Debug)]
pub struct LiveRecords {
    /// Where the load ended.
    pub end_offset: i64,
    /// Records that were read, without markers.
    pub read: u64,
    /// The first damaged batches, and records without a key: (offset, what is wrong).
    pub damaged: Vec<(i64, String)>,
    /// Number of all.
    pub damaged_count: u64,
    left: Mutex<Left>,
}

#[derive(Debug)]
struct Left {
    live: IntoIter<LiveRecord>,
    open: BTreeMap<i64, (i16, IntoIter<OpenRecord>)>,
}

impl LiveRecords {
    /// Live records that were not taken.
    pub fn count(&self) -> usize {
        self.left.lock().live.len()
    }

    /// Up to `max` live records, ascending by offset.
    pub fn take(&self, max: usize) -> Vec<LiveRecord> {
        self.left.lock().live.by_ref().take(max).collect()
    }

    /// Open transactions: producer id, epoch, and the number of records that were not taken.
    pub fn open_transactions(&self) -> Vec<(i64, i16, usize)> {
        let left = self.left.lock();
        let open = left.open.iter();
        open.map(|(id, (epoch, records))| (*id, *epoch, records.len()))
            .collect()
    }

    /// Up to `max` records of an open transaction, in the order of the log.
    pub fn take_open(&self, producer_id: i64, max: usize) -> Vec<OpenRecord> {
        let mut left = self.left.lock();
        let open = left.open.get_mut(&producer_id);
        open.map_or_else(Vec::new, |(_, records)| {
            records.by_ref().take(max).collect()
        })
    }
}
