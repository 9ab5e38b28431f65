//! Which batches of a transaction enter, and what a coordinator may know of producers.

use super::entry::ProducerState;
use super::guards::{Afterwards, Guard, GuardNumber, GuardOwner};
use super::{ProducerError, ProducerStates, check_epoch};
use crate::batch_info::BatchInfo;

/// "No offset".
const NO_OFFSET: i64 = -1;

/// What a batch of a transaction has to show.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Proof {
    /// Nothing: verification is switched off.
    Waived,
    /// That its transaction is open.
    OpenTransaction,
    /// That, or this guard.
    Guard {
        /// The guard.
        number: GuardNumber,
        /// Transaction version 2: a producer without state begins with sequence 0.
        begins_at_zero: bool,
    },
}

/// Whether the coordinator has to be asked before a batch enters.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verification {
    /// No: the transaction is open, or the batch is in the log already.
    Unneeded,
    /// Yes, under this guard.
    Needed(GuardNumber),
    /// Too many are asked about at a time.
    Full,
}

/// A producer with state.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ActiveProducer {
    /// Producer id.
    pub id: i64,
    /// Its epoch.
    pub epoch: i16,
    /// Of its last record, -1 unknown.
    pub last_sequence: i32,
    /// Of its last batch or marker.
    pub last_timestamp: i64,
    /// Of its last marker, -1 without.
    pub coordinator_epoch: i32,
    /// First offset of its open transaction, -1 without.
    pub txn_start_offset: i64,
}

impl ProducerStates {
    /// Opens a guard, or finds it, unless the transaction of this producer's epoch is open.
    /// [`ProducerStates::end_verification`] gives it back.
    ///
    /// # Errors
    /// The producer has a newer epoch.
    pub fn begin_verification(
        &mut self,
        owner: GuardOwner,
        sequence: i32,
        now_ms: i64,
    ) -> Result<Verification, ProducerError> {
        let (id, epoch) = (owner.producer_id, owner.epoch);
        if let Some(state) = self.producers.get(&id) {
            if epoch < state.epoch {
                return Err(ProducerError::InvalidEpoch {
                    producer_id: id,
                    epoch,
                    last_epoch: state.epoch,
                });
            }
            if state.has_open(epoch) {
                return Ok(Verification::Unneeded);
            }
        }
        let number = self.guards.begin(owner, sequence, now_ms);
        Ok(number.map_or(Verification::Full, Verification::Needed))
    }

    /// Whether a client's batch belongs to an open transaction, or is a duplicate.
    pub fn needs_no_verification(&self, info: &BatchInfo) -> bool {
        let state = self.producers.get(&info.producer_id);
        state.is_some_and(|state| state.has_open(info.producer_epoch) || state.find(info).is_some())
    }

    /// The same for a client's batch; a duplicate needs none.
    ///
    /// # Errors
    /// The producer has a newer epoch.
    pub fn begin_verification_of(
        &mut self,
        info: &BatchInfo,
        transactional_id: u64,
        now_ms: i64,
    ) -> Result<Verification, ProducerError> {
        if self.needs_no_verification(info) {
            return Ok(Verification::Unneeded);
        }
        let owner = GuardOwner {
            producer_id: info.producer_id,
            epoch: info.producer_epoch,
            transactional_id,
        };
        self.begin_verification(owner, info.base_sequence, now_ms)
    }

    /// A question is over: the batch was appended, or refused.
    pub fn end_verification(
        &mut self,
        owner: GuardOwner,
        number: GuardNumber,
        afterwards: Afterwards,
    ) {
        self.guards.end(owner, number, afterwards);
    }

    /// Whether a batch may enter as far as its transaction is concerned. What else is wrong with
    /// it, [`ProducerStates::check`] tells.
    ///
    /// # Errors
    /// [`ProducerError::Unverified`], or a sequence that another one precedes.
    pub fn check_verified(&self, info: &BatchInfo, proof: Proof) -> Result<(), ProducerError> {
        if !info.is_transactional() || proof == Proof::Waived {
            return Ok(());
        }
        let state = self.producers.get(&info.producer_id);
        if let Some(state) = state {
            check_epoch(state, info)?;
            if state.has_open(info.producer_epoch) || state.find(info).is_some() {
                return Ok(());
            }
        }
        let Proof::Guard {
            number,
            begins_at_zero,
        } = proof
        else {
            return Err(unverified(info));
        };
        let producer = (info.producer_id, info.producer_epoch);
        let guard = self.guards.find(producer, number);
        let guard = guard.ok_or_else(|| unverified(info))?;
        let is_without_state = state.is_none_or(|state| state.batches().is_empty());
        let must_be_first = begins_at_zero && is_without_state && info.base_sequence != 0;
        if must_be_first || info.base_sequence > guard.lowest_sequence {
            return Err(ProducerError::OutOfOrderSequence {
                producer_id: info.producer_id,
                epoch: info.producer_epoch,
                first_sequence: info.base_sequence,
                last_epoch: state.map_or(info.producer_epoch, |state| state.epoch),
                last_sequence: state.map_or(-1, ProducerState::last_sequence),
            });
        }
        Ok(())
    }

    /// With transaction version 2 a marker has a higher epoch than the records it ends (KIP-1228);
    /// one with the same epoch belongs to an earlier transaction, unless it is the last one again.
    ///
    /// # Errors
    /// [`ProducerError::InvalidEpoch`].
    pub fn check_bumped_epoch(&self, info: &BatchInfo) -> Result<(), ProducerError> {
        match self.producers.get(&info.producer_id) {
            Some(state) if state.has_open(info.producer_epoch) => {
                Err(ProducerError::InvalidEpoch {
                    producer_id: info.producer_id,
                    epoch: info.producer_epoch,
                    last_epoch: state.epoch,
                })
            }
            _ => Ok(()),
        }
    }

    /// The guards of this epoch, to be restored.
    pub fn take_guards(&mut self, (id, epoch): (i64, i16)) -> Vec<(GuardOwner, Guard)> {
        self.guards.take(id, epoch..=epoch)
    }

    /// Puts back what [`ProducerStates::take_guards`] took.
    pub fn restore_guards(&mut self, guards: Vec<(GuardOwner, Guard)>) {
        self.guards.restore(guards);
    }

    /// Guards that are open or kept.
    pub fn guard_count(&self) -> usize {
        self.guards.count()
    }

    /// Up to `max` producers, those with open transactions first.
    pub fn active(&self, max: usize) -> Vec<ActiveProducer> {
        let open = self.ongoing.values().map(|start| start.producer_id);
        let open = open.filter_map(|id| self.producers.get_key_value(&id));
        let others = self.producers.iter();
        let others = others.filter(|(_, state)| state.current_txn_first_offset.is_none());
        let found = open.chain(others).take(max);
        found.map(|(id, state)| state.described(*id)).collect()
    }

    /// Another broker leads: what was asked about must be asked about again.
    pub fn void_guards(&mut self) {
        self.guards.clear();
    }
}

fn unverified(info: &BatchInfo) -> ProducerError {
    ProducerError::Unverified {
        producer_id: info.producer_id,
        epoch: info.producer_epoch,
    }
}

impl ProducerState {
    fn has_open(&self, epoch: i16) -> bool {
        self.epoch == epoch && self.current_txn_first_offset.is_some()
    }

    fn described(&self, id: i64) -> ActiveProducer {
        ActiveProducer {
            id,
            epoch: self.epoch,
            last_sequence: self.last_sequence(),
            last_timestamp: self.last_timestamp,
            coordinator_epoch: self.coordinator_epoch,
            txn_start_offset: self.current_txn_first_offset.unwrap_or(NO_OFFSET),
        }
    }
}

#[cfg(test)]
mod tests;
