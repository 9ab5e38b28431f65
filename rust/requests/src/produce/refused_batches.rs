//! A connection's batches that were refused for the moment.
//!
//! An idempotent producer has up to five batches of a partition in flight. If the first is refused
//! because this broker does not lead yet or replicas are missing, the next ones may arrive when all
//! is well. The log would call them out of order, or accept them if it does not know the producer.
//! But the first one is sent again: a batch accepted in its place makes it unacceptable, and "out
//! of order" makes librdkafka begin a new epoch and repeat what is already in the log. So batches
//! behind a refused one get the same error. (Kafka answers what the log says.)

use std::collections::HashMap;
use std::hash::BuildHasher;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use pyrklog_log::BatchInfo;
use pyrklog_wire::ErrorCode;
use pyrklog_wire::batch::BatchHeader;

use crate::produce::delayed_produce::Item;
use pyrklog_base::ids::TOPIC_NAME_BYTES_MAX;

/// Batches that any connection may remember, one per producer and partition.
const ENTRIES_MAX: usize = 64;

/// The same with a place in the [`RefusedRoom`].
const ENTRIES_IN_ROOM_MAX: usize = 4_096;

/// Connections in the room, of about 600 KB each.
const PLACES: usize = 64;

/// Batches in flight behind the first; idempotent producers have no more.
const BEHIND_MAX: u8 = 4;

/// Entries older than this belong to producers that have gone elsewhere.
const KEPT_MS: i64 = 120_000;

/// Shared by a plane's connections that remember many batches.
#[derive(Debug, Default)]
pub struct RefusedRoom {
    taken: AtomicUsize,
}

#[derive(Debug)]
struct RoomPlace(Arc<RefusedRoom>);

impl RefusedRoom {
    fn take(self: &Arc<Self>) -> Option<RoomPlace> {
        let one_more = |taken| (taken < PLACES).then_some(taken + 1);
        self.taken
            .fetch_update(Ordering::AcqRel, Ordering::Acquire, one_more)
            .ok()
            .map(|_| RoomPlace(Arc::clone(self)))
    }
}

impl Drop for RoomPlace {
    fn drop(&mut self) {
        self.0.taken.fetch_sub(1, Ordering::AcqRel);
    }
}

/// A batch of an idempotent producer.
#[derive(Clone, Copy, Debug)]
pub struct ProducerBatch {
    producer_id: i64,
    epoch: i16,
    base_sequence: i32,
    /// Sequence right after the batch.
    next_sequence: i32,
}

impl ProducerBatch {
    /// `None` for a producer that is not idempotent.
    pub fn of(info: &BatchInfo) -> Option<ProducerBatch> {
        let is_idempotent = info.has_producer() && info.base_sequence >= 0;
        is_idempotent.then(|| ProducerBatch {
            producer_id: info.producer_id,
            epoch: info.producer_epoch,
            base_sequence: info.base_sequence,
            next_sequence: info.last_sequence().wrapping_add(1) & i32::MAX,
        })
    }

    /// Whether it comes after another batch of the same producer and epoch.
    fn is_behind(self, other: ProducerBatch) -> bool {
        let steps = self.base_sequence.wrapping_sub(other.base_sequence) & i32::MAX;
        self.epoch == other.epoch && (1..i32::MAX / 2).contains(&steps)
    }

    /// The same for a batch in a request.
    pub fn in_request(item: Item<'_>, frame: &[u8]) -> Option<ProducerBatch> {
        let records = item.wanted.records?.of(frame);
        let header = BatchHeader::parse(records).ok()?;
        ProducerBatch::of(&BatchInfo::from_header(header))
    }
}

/// Where and when a batch was refused.
#[derive(Clone, Copy, Debug)]
pub struct At<'a> {
    /// The plane's room.
    pub room: &'a Arc<RefusedRoom>,
    /// Topic name.
    pub topic: &'a str,
    /// Partition index.
    pub index: i32,
    /// Monotonic milliseconds.
    pub now_ms: i64,
}

/// (hash of the topic's name, partition, producer id).
type Key = (u64, i32, i64);

/// A producer's last refused batch in a partition.
#[derive(Debug)]
struct Refused {
    batch: ProducerBatch,
    /// Batches refused behind the first.
    behind: u8,
    error: ErrorCode,
    /// Number of batches added so far, itself included.
    added: u64,
    /// Monotonic milliseconds.
    at_ms: i64,
}

/// See the module. Bounded; beyond it the oldest entries are forgotten.
#[derive(Debug, Default)]
pub struct RefusedBatches {
    entries: HashMap<Key, Refused>,
    place: Option<RoomPlace>,
    added: u64,
}

impl RefusedBatches {
    /// The error of the batch right before this one, if that was refused.
    pub fn before(&self, topic: &str, index: i32, info: &BatchInfo) -> Option<ErrorCode> {
        if self.entries.is_empty() {
            return None;
        }
        let batch = ProducerBatch::of(info)?;
        let refused = self.entries.get(&self.key(topic, index, batch)?)?;
        let follows = refused.is_right_before(batch) && refused.behind < BEHIND_MAX;
        follows.then_some(refused.error)
    }

    /// A batch was refused with `error` after its append. Those behind it may have been refused
    /// earlier.
    pub fn add_late(&mut self, place: At<'_>, batch: ProducerBatch, error: ErrorCode) {
        let known = self.key(place.topic, place.index, batch);
        let known = known.and_then(|key| self.entries.get(&key));
        if !known.is_some_and(|last| last.batch.is_behind(batch)) {
            self.add(place, batch, error);
        }
    }

    /// A batch was refused with `error`.
    pub fn add(&mut self, place: At<'_>, batch: ProducerBatch, error: ErrorCode) {
        let At {
            room,
            topic,
            index,
            now_ms,
        } = place;
        let Some(key) = self.key(topic, index, batch).filter(|_| passes(error)) else {
            return;
        };
        let behind = match self.entries.remove(&key) {
            Some(last) if last.is_right_before(batch) => last.behind.saturating_add(1),
            _ => 0,
        };
        self.make_room(room);
        self.added += 1;
        let refused = Refused {
            batch,
            behind,
            error,
            added: self.added,
            at_ms: now_ms,
        };
        self.entries.insert(key, refused);
    }

    /// A batch was accepted: its producer is past the refused ones.
    pub fn remove(&mut self, topic: &str, item: Item<'_>, frame: &[u8]) {
        if self.entries.is_empty() {
            return;
        }
        let index = item.wanted.index;
        let known = ProducerBatch::in_request(item, frame)
            .and_then(|batch| self.key(topic, index, batch))
            .and_then(|key| self.entries.remove(&key));
        if known.is_some() && self.entries.is_empty() {
            *self = RefusedBatches::default();
        }
    }

    /// Forgets entries that nobody sends again.
    pub fn forget_old(&mut self, now_ms: i64) {
        if self.entries.is_empty() {
            return;
        }
        self.entries
            .retain(|_, refused| now_ms - refused.at_ms < KEPT_MS);
        if self.entries.is_empty() {
            *self = RefusedBatches::default();
        }
    }

    fn key(&self, topic: &str, index: i32, batch: ProducerBatch) -> Option<Key> {
        let is_name = topic.len() <= TOPIC_NAME_BYTES_MAX;
        is_name.then(|| {
            let name = self.entries.hasher().hash_one(topic);
            (name, index, batch.producer_id)
        })
    }

    /// Makes room for one more; if necessary forgets the older half.
    fn make_room(&mut self, room: &Arc<RefusedRoom>) {
        if self.entries.len() >= ENTRIES_MAX && self.place.is_none() {
            self.place = room.take();
        }
        let entries_max = match self.place {
            Some(_) => ENTRIES_IN_ROOM_MAX,
            None => ENTRIES_MAX,
        };
        if self.entries.len() >= entries_max {
            let mut ages: Vec<u64> = self.entries.values().map(|refused| refused.added).collect();
            let (_, median, _) = ages.select_nth_unstable(entries_max / 2);
            let kept_from = *median;
            self.entries.retain(|_, refused| refused.added >= kept_from);
        }
    }
}

impl Refused {
    fn is_right_before(&self, batch: ProducerBatch) -> bool {
        self.batch.epoch == batch.epoch && self.batch.next_sequence == batch.base_sequence
    }
}

/// Whether the producer sends the batch again after this error.
fn passes(error: ErrorCode) -> bool {
    matches!(
        error,
        ErrorCode::NOT_LEADER_OR_FOLLOWER
            | ErrorCode::UNKNOWN_TOPIC_OR_PARTITION
            | ErrorCode::NOT_ENOUGH_REPLICAS
            | ErrorCode::KAFKA_STORAGE_ERROR
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use pyrklog_wire::builder::BatchBuilder;

    const ERROR: ErrorCode = ErrorCode::NOT_ENOUGH_REPLICAS;

    fn info(sequence: i32) -> BatchInfo {
        let mut builder = BatchBuilder::new().producer(9, 0, sequence);
        builder.append(0, None, None);
        BatchInfo::parse(&builder.build()).unwrap()
    }

    fn fill(refused: &mut RefusedBatches, room: &Arc<RefusedRoom>, topic: &str, count: usize) {
        let batch = ProducerBatch::of(&info(0)).unwrap();
        for index in 0..count {
            refused.add(at(room, topic, index as i32), batch, ERROR);
        }
    }

    fn at<'a>(room: &'a Arc<RefusedRoom>, topic: &'a str, index: i32) -> At<'a> {
        At {
            room,
            topic,
            index,
            now_ms: 1_000,
        }
    }

    #[test]
    fn old_refusals_are_forgotten() {
        let room = Arc::default();
        let mut refused = RefusedBatches::default();
        fill(&mut refused, &room, "t", 2 * ENTRIES_MAX);
        refused.forget_old(1_000 + KEPT_MS - 1);
        assert_eq!(refused.entries.len(), 2 * ENTRIES_MAX);
        refused.forget_old(1_000 + KEPT_MS);
        assert!(refused.entries.is_empty());
        assert_eq!(room.taken.load(Ordering::Acquire), 0);
    }

    fn is_known(refused: &RefusedBatches, topic: &str, index: usize) -> bool {
        refused.before(topic, index as i32, &info(1)) == Some(ERROR)
    }

    #[test]
    fn the_oldest_are_forgotten_beyond_a_bound() {
        let room = Arc::default();
        let mut refused = RefusedBatches::default();
        let count = 3 * ENTRIES_IN_ROOM_MAX;
        fill(&mut refused, &room, "t", count);
        assert!(refused.entries.len() <= ENTRIES_IN_ROOM_MAX);
        let newest = count - ENTRIES_IN_ROOM_MAX / 2..count;
        assert!(newest.clone().all(|index| is_known(&refused, "t", index)));
        assert!(!is_known(&refused, "t", newest.start - ENTRIES_IN_ROOM_MAX));
    }

    #[test]
    fn only_some_connections_remember_many() {
        let room = Arc::default();
        let mut all: Vec<_> = (0..PLACES + 2).map(|_| RefusedBatches::default()).collect();
        for refused in &mut all {
            fill(refused, &room, "t", 2 * ENTRIES_MAX);
        }
        let count_of = |refused: &RefusedBatches| refused.entries.len();
        let many = all.iter().filter(|one| count_of(one) == 2 * ENTRIES_MAX);
        assert_eq!(many.count(), PLACES);
        assert!(count_of(&all[PLACES]) <= ENTRIES_MAX);
        assert!(is_known(&all[PLACES], "t", 2 * ENTRIES_MAX - 1));
        all.remove(0);
        fill(&mut all[PLACES], &room, "t", 2 * ENTRIES_MAX);
        assert_eq!(count_of(&all[PLACES]), 2 * ENTRIES_MAX);
        drop(all);
        assert_eq!(room.taken.load(Ordering::Acquire), 0);
    }

    #[test]
    fn late_refusal_keeps_the_earlier_one_known() {
        let room = Arc::default();
        let mut refused = RefusedBatches::default();
        let batch = |sequence| ProducerBatch::of(&info(sequence)).unwrap();
        refused.add(at(&room, "t", 0), batch(0), ERROR);
        for sequence in [i32::MAX - 1, i32::MAX] {
            refused.add_late(at(&room, "t", 0), batch(sequence), ERROR);
            assert!(is_known(&refused, "t", 0), "the next one is 1");
        }
        refused.add_late(at(&room, "t", 0), batch(1), ERROR);
        assert_eq!(refused.before("t", 0, &info(2)), Some(ERROR));
        // All are sent again, and the first is refused again.
        refused.add(at(&room, "t", 0), batch(0), ERROR);
        assert!(is_known(&refused, "t", 0));
    }

    #[test]
    fn refusal_of_an_overlong_topic_name_is_not_remembered() {
        let mut refused = RefusedBatches::default();
        let name = "t".repeat(TOPIC_NAME_BYTES_MAX);
        fill(&mut refused, &Arc::default(), &name, 1);
        assert!(is_known(&refused, &name, 0));
        let longer = name + "t";
        fill(&mut refused, &Arc::default(), &longer, 1);
        assert!(!is_known(&refused, &longer, 0));
        assert_eq!(refused.entries.len(), 1);
    }
}
