//! The state of one partition's producers: idempotence and transactions (KIP-98, KIP-360).
//!
//! An append calls [`ProducerStates::check`], and [`ProducerStates::update`] once the batch is in
//! the log with its offsets; nothing changes in between. Replaying the log or a leader's batches
//! does the same with [`Origin::Replication`], which trusts the batches.
//!
//! Kafka 3.9's rules: a batch with the exact sequences of one of the last five is a duplicate and
//! is answered with the original's offsets. Otherwise its first sequence must follow the last one
//! (0 follows 2^31-1), or be 0 in a new epoch. A producer without state (new, expired, or with its
//! records deleted) may start anywhere. A lower epoch is fenced.
//!
//! A transaction begins with its first batch and ends with a marker. Records from the first open
//! transaction on are *unstable*; those of an ended one stay so until its marker is replicated. The
//! last stable offset stops there.

pub mod entry;
pub mod guards;
pub mod marker;
pub mod verification;

use std::collections::{BTreeMap, HashMap};

use pyrklog_wire::ErrorCode;
use thiserror::Error;

use self::entry::{BatchMeta, NO_EPOCH, ProducerState};
use self::guards::Guards;
use self::marker::EndTxnMarker;
use crate::batch_info::BatchInfo;
use crate::position::SegmentPosition;
use crate::snapshot::ProducerEntry;
use crate::transaction_index::AbortedTxn;

/// Who appends, which decides what is checked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Origin {
    /// A client: everything.
    Client,
    /// A client whose batches bring their offsets and have no producer: nothing.
    Copy,
    /// A group or transaction coordinator: epochs, but no sequences, which it does not use.
    Coordinator,
    /// A leader's log, or the own one after a restart: nothing.
    Replication,
}

/// What to do with a batch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Check {
    /// It has no producer id: append it.
    NotIdempotent,
    /// Append it.
    New,
    /// It is in the log already: answer with the original's offsets.
    Duplicate(DuplicateBatch),
}

/// A batch that does not follow its producer's last one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OutOfTurn {
    /// Batches before it are missing.
    Early,
    /// It was written below `end_offset`, and is no longer remembered.
    Late {
        /// An offset behind the batch.
        end_offset: i64,
    },
}

/// The original of a duplicate.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DuplicateBatch {
    /// Its first offset.
    pub base_offset: i64,
    /// Its last offset.
    pub last_offset: i64,
    /// Its largest timestamp (ms), which Kafka returns as append time.
    pub timestamp: i64,
}

/// A batch that must not be appended.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[allow(missing_docs)] // The messages name variants and fields.
pub enum ProducerError {
    #[error(
        "producer {producer_id} sent sequence {first_sequence} in epoch {epoch}, but its last one is \
         {last_sequence} in epoch {last_epoch}"
    )]
    OutOfOrderSequence {
        producer_id: i64,
        epoch: i16,
        first_sequence: i32,
        last_epoch: i16,
        last_sequence: i32,
    },
    /// DUPLICATE_SEQUENCE_NUMBER: the batch is in the log, but its offset is no longer known. A
    /// snapshot holds a producer's last batch and the sequence from which on all were written.
    /// After a restart Kafka answers OUT_OF_ORDER_SEQUENCE_NUMBER here, upon which producers give
    /// up.
    #[error(
        "producer {producer_id} has sent sequence {first_sequence} before, and {last_sequence} since"
    )]
    Forgotten {
        producer_id: i64,
        first_sequence: i32,
        last_sequence: i32,
        end_offset: i64,
    },
    #[error("producer {producer_id} has epoch {last_epoch}, a batch or marker has {epoch}")]
    InvalidEpoch {
        producer_id: i64,
        epoch: i16,
        last_epoch: i16,
    },
    #[error("producer {producer_id} has an open transaction, but sent a batch outside of it")]
    OutsideTransaction { producer_id: i64 },
    /// It would begin a transaction that its coordinator has not confirmed, or not since the last
    /// one ended.
    #[error("a batch of producer {producer_id} in epoch {epoch} is not part of its transaction")]
    Unverified { producer_id: i64, epoch: i16 },
    #[error(
        "a marker of producer {producer_id} has coordinator epoch {coordinator_epoch}, \
         {last_coordinator_epoch} is known"
    )]
    CoordinatorFenced {
        producer_id: i64,
        coordinator_epoch: i32,
        last_coordinator_epoch: i32,
    },
}

impl ProducerError {
    /// The protocol's error code.
    pub fn code(&self) -> ErrorCode {
        match self {
            Self::OutOfOrderSequence { .. } => ErrorCode::OUT_OF_ORDER_SEQUENCE_NUMBER,
            Self::Forgotten { .. } => ErrorCode::DUPLICATE_SEQUENCE_NUMBER,
            Self::InvalidEpoch { .. } => ErrorCode::INVALID_PRODUCER_EPOCH,
            Self::OutsideTransaction { .. } | Self::Unverified { .. } => {
                ErrorCode::INVALID_TXN_STATE
            }
            Self::CoordinatorFenced { .. } => ErrorCode::TRANSACTION_COORDINATOR_FENCED,
        }
    }
}

/// A transaction that holds back the last stable offset.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TxnStart {
    /// Producer id.
    pub producer_id: i64,
    /// Offset of its first record in this partition.
    pub first_offset: i64,
    /// Where that record's batch lies, if it was seen.
    pub place: Option<SegmentPosition>,
}

/// What must stay of a producer in a log that is cleaned.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LastRecord {
    /// Of its last data; `None` if only a marker is known.
    pub offset: Option<i64>,
    /// Its epoch.
    pub epoch: i16,
}

/// The producers of one partition.
#[derive(Clone, Debug, Default)]
pub struct ProducerStates {
    producers: HashMap<i64, ProducerState>,
    /// Open transactions by first offset.
    ongoing: BTreeMap<i64, TxnStart>,
    /// Ended transactions whose markers may lie above the high watermark, by first offset, with the
    /// marker's offset.
    unreplicated: BTreeMap<i64, (TxnStart, i64)>,
    /// Transactions whose coordinators are being asked.
    guards: Guards,
}

impl ProducerStates {
    /// No producers.
    pub fn new() -> Self {
        Self::default()
    }

    /// Whether the batch may be appended now. Changes nothing.
    ///
    /// # Errors
    /// [`ProducerError`]; never for [`Origin::Replication`].
    pub fn check(&self, info: &BatchInfo, origin: Origin) -> Result<Check, ProducerError> {
        if !info.has_producer() {
            return Ok(Check::NotIdempotent);
        }
        let Some(state) = self.producers.get(&info.producer_id) else {
            return Ok(Check::New);
        };
        if origin == Origin::Replication {
            return Ok(Check::New);
        }
        let repeated = state.find(info).filter(|_| origin == Origin::Client);
        if let Some(original) = repeated {
            return Ok(Check::Duplicate(DuplicateBatch {
                base_offset: original.first_offset(),
                last_offset: original.last_offset,
                timestamp: original.timestamp,
            }));
        }
        check_epoch(state, info)?;
        if info.is_control() {
            check_marker(state, info)?;
        } else {
            if origin == Origin::Client {
                check_sequence(state, info)?;
            }
            if state.current_txn_first_offset.is_some() && !info.is_transactional() {
                let producer_id = info.producer_id;
                return Err(ProducerError::OutsideTransaction { producer_id });
            }
        }
        Ok(Check::New)
    }

    /// Whether the producer is known in this epoch and the batch follows its last one or was
    /// written already.
    pub fn has_all_before(&self, info: &BatchInfo) -> bool {
        let state = self.producers.get(&info.producer_id);
        state.is_some_and(|state| {
            state.epoch == info.producer_epoch
                && (state.find(info).is_some() || !is_out_of_order(state, info))
        })
    }

    /// How a batch is out of order. `None` for one in order, one that is remembered, and one whose
    /// producer is unknown or has a later epoch.
    pub fn out_of_turn(&self, info: &BatchInfo) -> Option<OutOfTurn> {
        let state = self.producers.get(&info.producer_id)?;
        let is_known = info.base_sequence >= 0 && info.producer_epoch >= state.epoch;
        if !is_known || state.find(info).is_some() || !is_out_of_order(state, info) {
            return None;
        }
        if info.producer_epoch > state.epoch || state.is_ahead(info) {
            return Some(OutOfTurn::Early);
        }
        let end_offset = state.written_below(info)?;
        Some(OutOfTurn::Late { end_offset })
    }

    /// Records a batch that was appended at `base_offset`, with its place. Returns the transaction
    /// that a marker aborts.
    pub fn update(
        &mut self,
        info: &BatchInfo,
        base_offset: i64,
        place: Option<SegmentPosition>,
    ) -> Option<AbortedTxn> {
        if !info.has_producer() {
            return None;
        }
        if info.is_control() {
            let marker = info.marker?;
            return self.end_transaction(info, base_offset, marker);
        }
        let producer_id = info.producer_id;
        let state = self.producers.entry(producer_id).or_default();
        state.set_epoch(info.producer_epoch);
        state.add_batch(BatchMeta {
            last_sequence: info.last_sequence(),
            last_offset: base_offset + i64::from(info.last_offset_delta),
            offset_delta: info.last_offset_delta,
            timestamp: info.max_timestamp,
        });
        if info.is_transactional() && state.current_txn_first_offset.is_none() {
            state.current_txn_first_offset = Some(base_offset);
            let start = TxnStart {
                producer_id,
                first_offset: base_offset,
                place,
            };
            self.ongoing.insert(base_offset, start);
        }
        self.guards.opened((producer_id, info.producer_epoch));
        None
    }

    fn end_transaction(
        &mut self,
        info: &BatchInfo,
        marker_offset: i64,
        marker: EndTxnMarker,
    ) -> Option<AbortedTxn> {
        let producer_id = info.producer_id;
        self.guards.ended((producer_id, info.producer_epoch));
        let state = self.producers.entry(producer_id).or_default();
        state.set_epoch(info.producer_epoch);
        state.coordinator_epoch = marker.coordinator_epoch;
        state.last_timestamp = info.max_timestamp;
        // A marker without records here moves nothing and is not indexed.
        let first_offset = state.current_txn_first_offset.take()?;
        let start = self.ongoing.remove(&first_offset)?;
        self.unreplicated
            .insert(first_offset, (start, marker_offset));
        let next_open = self.ongoing.values().next().map(|next| next.first_offset);
        (!marker.commit).then_some(AbortedTxn {
            producer_id,
            first_offset,
            last_offset: marker_offset,
            last_stable_offset: next_open.unwrap_or(marker_offset + 1),
        })
    }

    /// The first transaction that is open, or that has ended but may not be replicated.
    pub fn first_unstable(&self) -> Option<TxnStart> {
        let open = self.ongoing.values().next();
        let ended = self.unreplicated.values().next().map(|(start, _)| start);
        open.into_iter()
            .chain(ended)
            .min_by_key(|start| start.first_offset)
            .copied()
    }

    /// The first transaction that is open, ignoring replication.
    pub fn first_open(&self) -> Option<TxnStart> {
        self.ongoing.values().next().copied()
    }

    /// Markers below the high watermark are replicated: their transactions are stable.
    pub fn on_high_watermark(&mut self, high_watermark: i64) {
        if !self.unreplicated.is_empty() {
            self.unreplicated
                .retain(|_, (_, marker_offset)| *marker_offset >= high_watermark);
        }
    }

    /// The log starts at `log_start_offset` now. Producers keep their state even if their records
    /// are gone.
    pub fn on_log_start(&mut self, log_start_offset: i64) {
        self.on_high_watermark(log_start_offset);
    }

    /// The largest offset that any producer is known to have written.
    pub fn last_offset(&self) -> Option<i64> {
        let batches = self
            .producers
            .values()
            .filter_map(|state| state.batches().last());
        batches.map(|batch| batch.last_offset).max()
    }

    /// The last record of each producer.
    pub fn last_records(&self) -> HashMap<i64, LastRecord> {
        let of = |state: &ProducerState| LastRecord {
            offset: state.batches().last().map(|batch| batch.last_offset),
            epoch: state.epoch,
        };
        let producers = self.producers.iter();
        producers.map(|(id, state)| (*id, of(state))).collect()
    }

    /// Removes producers that were idle for `expiration_ms` and have no open transaction; returns
    /// their number.
    pub fn expire(&mut self, now_ms: i64, expiration_ms: i64) -> usize {
        self.guards.expire(now_ms);
        let before = self.producers.len();
        self.producers
            .retain(|_, state| !state.is_expired(now_ms, expiration_ms));
        before - self.producers.len()
    }

    /// Replaces the state by a snapshot's entries, except for expired ones.
    pub fn load(&mut self, entries: &[ProducerEntry], now_ms: i64, expiration_ms: i64) {
        self.clear();
        for entry in entries {
            let state = ProducerState::from_snapshot(entry);
            if state.is_expired(now_ms, expiration_ms) {
                continue;
            }
            if let Some(first_offset) = state.current_txn_first_offset {
                let producer_id = entry.producer_id;
                let start = TxnStart {
                    producer_id,
                    first_offset,
                    place: None,
                };
                self.ongoing.insert(first_offset, start);
            }
            self.producers.insert(entry.producer_id, state);
        }
    }

    /// Removes all producers.
    pub fn clear(&mut self) {
        self.producers.clear();
        self.ongoing.clear();
        self.unreplicated.clear();
        self.guards.clear();
    }

    /// The entries of a snapshot, ascending by producer id.
    pub fn snapshot_entries(&self) -> Vec<ProducerEntry> {
        let mut entries = self.entries_unsorted();
        entries.sort_unstable_by_key(|entry| entry.producer_id);
        entries
    }

    /// The same in any order: the part that runs under the log's lock.
    pub fn entries_unsorted(&self) -> Vec<ProducerEntry> {
        let producers = self.producers.iter();
        producers
            .map(|(id, state)| state.to_snapshot(*id))
            .collect()
    }

    /// The same producers in a copy of the log, where their batches lie elsewhere.
    pub fn without_places(mut self) -> Self {
        for start in self.ongoing.values_mut() {
            start.place = None;
        }
        for (start, _) in self.unreplicated.values_mut() {
            start.place = None;
        }
        self
    }

    /// Number of producers.
    pub fn len(&self) -> usize {
        self.producers.len()
    }

    /// Whether there are no producers.
    pub fn is_empty(&self) -> bool {
        self.producers.is_empty()
    }
}

fn is_out_of_order(state: &ProducerState, info: &BatchInfo) -> bool {
    matches!(
        check_sequence(state, info),
        Err(ProducerError::OutOfOrderSequence { .. })
    )
}

fn check_epoch(state: &ProducerState, info: &BatchInfo) -> Result<(), ProducerError> {
    if info.producer_epoch >= state.epoch {
        return Ok(());
    }
    Err(ProducerError::InvalidEpoch {
        producer_id: info.producer_id,
        epoch: info.producer_epoch,
        last_epoch: state.epoch,
    })
}

fn check_marker(state: &ProducerState, info: &BatchInfo) -> Result<(), ProducerError> {
    match info.marker {
        Some(marker) if marker.coordinator_epoch < state.coordinator_epoch => {
            Err(ProducerError::CoordinatorFenced {
                producer_id: info.producer_id,
                coordinator_epoch: marker.coordinator_epoch,
                last_coordinator_epoch: state.coordinator_epoch,
            })
        }
        _ => Ok(()),
    }
}

fn check_sequence(state: &ProducerState, info: &BatchInfo) -> Result<(), ProducerError> {
    let (first, last) = (info.base_sequence, state.last_sequence());
    let in_order = if state.epoch == NO_EPOCH {
        true
    } else if info.producer_epoch != state.epoch {
        first == 0
    } else {
        i64::from(first) == i64::from(last) + 1 || (first == 0 && last == i32::MAX)
    };
    if in_order {
        return Ok(());
    }
    if let Some(end_offset) = state.forgotten_below(info) {
        return Err(ProducerError::Forgotten {
            producer_id: info.producer_id,
            first_sequence: first,
            last_sequence: last,
            end_offset,
        });
    }
    Err(ProducerError::OutOfOrderSequence {
        producer_id: info.producer_id,
        epoch: info.producer_epoch,
        first_sequence: first,
        last_epoch: state.epoch,
        last_sequence: last,
    })
}

#[cfg(test)]
mod tests;
