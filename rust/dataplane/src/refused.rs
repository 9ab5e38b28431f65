//! What a connection remembers of the batches that were refused on it for the moment.
//!
//! An idempotent producer has up to five batches of a partition under way. Where the first one finds that
//! this broker does not lead yet, or that replicas are missing, those behind it may find that all is well
//! by now. To the log they are out of order, or, where it does not know the producer, just new. But the
//! first one comes again: a batch that was taken in its place makes it impossible to take, and one that
//! is called out of order makes librdkafka begin another epoch, in which it repeats what is in the log
//! already. So the batches behind a refused one are told the same. Kafka tells them what the log says.

use std::sync::Arc;

use pyrklog_log::BatchInfo;
use pyrklog_wire::ErrorCode;
use pyrklog_wire::batch::BatchHeader;

use crate::pending_produce::Item;

/// Producers that are remembered of a connection; the oldest one is forgotten.
const PRODUCERS_MAX: usize = 64;

/// Batches under way behind the first: an idempotent producer has no more.
const BEHIND_MAX: u8 = 4;

/// One producer's last refused batch in one partition.
#[derive(Debug)]
struct Refused {
    topic: Arc<str>,
    index: i32,
    producer_id: i64,
    epoch: i16,
    /// The sequence right behind the batch.
    next_sequence: i32,
    /// Batches that were refused behind the first.
    behind: u8,
    error: ErrorCode,
}

impl Refused {
    fn is_of(&self, topic: &str, index: i32, producer_id: i64) -> bool {
        self.producer_id == producer_id && self.index == index && *self.topic == *topic
    }
}

/// See the module.
#[derive(Debug, Default)]
pub struct RefusedBatches(Vec<Refused>);

impl RefusedBatches {
    /// What was said to the batch right before this one, if it was refused.
    pub fn before(&self, topic: &str, index: i32, info: &BatchInfo) -> Option<ErrorCode> {
        let refused = self.position(topic, index, info.producer_id)?;
        let refused = &self.0[refused];
        let follows =
            refused.epoch == info.producer_epoch && refused.next_sequence == info.base_sequence;
        (follows && refused.behind < BEHIND_MAX).then_some(refused.error)
    }

    /// The batch of `item` was refused with `error`.
    pub fn add(&mut self, topic: &Arc<str>, item: Item<'_>, frame: &[u8], error: ErrorCode) {
        if !passes(error) {
            return;
        }
        let Some(header) = producer_header(item, frame) else {
            return;
        };
        let index = item.wanted.index;
        let known = self.position(topic, index, header.producer_id);
        let last = known.map(|position| self.0.remove(position));
        let behind = match last {
            Some(last)
                if last.epoch == header.producer_epoch
                    && last.next_sequence == header.base_sequence =>
            {
                last.behind.saturating_add(1)
            }
            _ => 0,
        };
        if self.0.len() == PRODUCERS_MAX {
            self.0.remove(0);
        }
        self.0.push(Refused {
            topic: topic.clone(),
            index,
            producer_id: header.producer_id,
            epoch: header.producer_epoch,
            next_sequence: header.last_sequence().wrapping_add(1) & i32::MAX,
            behind,
            error,
        });
    }

    /// The batch of `item` was taken: its producer is past what was refused.
    pub fn remove(&mut self, topic: &str, item: Item<'_>, frame: &[u8]) {
        if self.0.is_empty() {
            return;
        }
        let index = item.wanted.index;
        let known = producer_header(item, frame)
            .and_then(|header| self.position(topic, index, header.producer_id));
        if let Some(position) = known {
            self.0.remove(position);
        }
    }

    fn position(&self, topic: &str, index: i32, producer_id: i64) -> Option<usize> {
        let mut all = self.0.iter();
        all.position(|refused| refused.is_of(topic, index, producer_id))
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

/// The header of an idempotent producer's batch.
fn producer_header(item: Item<'_>, frame: &[u8]) -> Option<BatchHeader> {
    let records = item.wanted.records?.of(frame);
    let header = BatchHeader::parse(records).ok()?;
    (header.has_producer() && header.base_sequence >= 0).then_some(header)
}
