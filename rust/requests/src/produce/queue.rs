//! The Produce requests of one client: those whose replies are due, and what was refused before.

use std::collections::VecDeque;

use crate::produce::delayed::DelayedProduce;
use crate::produce::parked::Parked;
use crate::produce::refused_batches::RefusedBatches;

/// Requests that wait for their replies before the next one waits too. The bound on unwritten bytes
/// does not hold those that append nothing (refused, or duplicates).
const PENDING_MAX: usize = 1000;

/// The same for the memory of their replies.
const PENDING_MAX_BYTES: usize = 4 * 1024 * 1024;

/// See the module.
#[derive(Debug, Default)]
pub struct ProduceQueue {
    /// Requests whose replies are due, in order.
    pub pending: VecDeque<DelayedProduce>,
    /// Batches that were refused and come again.
    pub refused: RefusedBatches,
    /// The request that waits for its log directory, and those behind it.
    pub parked: Option<Parked>,
    /// Number of the first one that is pending.
    first_sequence: u64,
    /// Memory of all that are pending.
    bytes: usize,
}

impl ProduceQueue {
    /// Whether nothing is due.
    pub fn is_empty(&self) -> bool {
        self.pending.is_empty()
    }

    /// Whether the next request has to wait.
    pub fn is_full(&self) -> bool {
        self.pending.len() >= PENDING_MAX || self.bytes >= PENDING_MAX_BYTES
    }

    /// Memory of what is pending.
    pub fn memory_bytes(&self) -> usize {
        self.bytes
    }

    /// The number that the next request gets.
    pub fn next_sequence(&self) -> u64 {
        self.first_sequence + self.pending.len() as u64
    }

    /// A request whose reply is due from now on.
    pub fn push(&mut self, produce: DelayedProduce) {
        self.bytes += produce.memory_bytes();
        self.pending.push_back(produce);
    }

    /// The first one, if its reply may leave.
    pub fn pop_done(&mut self) -> Option<DelayedProduce> {
        let produce = match self.pending.front() {
            Some(produce) if produce.is_done() => self.pending.pop_front()?,
            _ => return None,
        };
        self.first_sequence += 1;
        self.bytes -= produce.memory_bytes();
        Some(produce)
    }

    /// A pending request by number; `None` when it was answered already.
    pub fn by_sequence(&mut self, sequence: u64) -> Option<&mut DelayedProduce> {
        let index = sequence.checked_sub(self.first_sequence)?;
        self.pending.get_mut(usize::try_from(index).ok()?)
    }
}
