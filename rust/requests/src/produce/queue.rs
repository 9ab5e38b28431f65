//! A client's Produce requests: those awaiting replies, and earlier refusals.

use std::collections::VecDeque;
use std::sync::Arc;

use crate::produce::delayed_produce::DelayedProduce;
use crate::produce::refused_batches::RefusedBatches;
use crate::request_time::RequestTime;
use pyrklog_storage::log_dir_state::LogDirState;

/// Pending requests before the next one waits, too. The bound on unwritten bytes does not limit
/// those that append nothing (refused or duplicate).
const PENDING_MAX: usize = 1000;

/// The same for the memory of their replies.
const PENDING_MAX_BYTES: usize = 4 * 1024 * 1024;

/// A request that waits for its log directory.
#[derive(Debug)]
pub struct RoomWait {
    /// Since when the connection has been held without its buffer becoming empty, monotonic
    /// milliseconds.
    pub since_ms: i64,
    /// Where the request waits, and until when.
    pub at: Option<(Arc<LogDirState>, i64)>,
}

/// See the module.
#[derive(Debug, Default)]
pub struct ProduceQueue {
    /// Requests that await replies, in order.
    pub pending: VecDeque<DelayedProduce>,
    /// Refused batches that are sent again.
    pub refused: RefusedBatches,
    /// The request that waits for its log directory.
    pub room_wait: Option<RoomWait>,
    /// Number of the first pending request.
    first_sequence: u64,
    /// Memory of the pending requests.
    bytes: usize,
}

impl ProduceQueue {
    /// Whether none is pending.
    pub fn is_empty(&self) -> bool {
        self.pending.is_empty()
    }

    /// Whether the next request must wait.
    pub fn is_full(&self) -> bool {
        self.pending.len() >= PENDING_MAX || self.bytes >= PENDING_MAX_BYTES
    }

    /// Memory of the pending requests.
    pub fn memory_bytes(&self) -> usize {
        self.bytes
    }

    /// Number of the next request.
    pub fn next_sequence(&self) -> u64 {
        self.first_sequence + self.pending.len() as u64
    }

    /// Adds a request that awaits its reply.
    pub fn push(&mut self, produce: DelayedProduce) {
        self.bytes += produce.memory_bytes();
        self.pending.push_back(produce);
    }

    /// Sets what the last one took so far.
    pub fn set_time(&mut self, time: RequestTime) {
        if let Some(last) = self.pending.back_mut() {
            last.time = time;
        }
    }

    /// Takes the first request if its reply may leave.
    pub fn pop_done(&mut self) -> Option<DelayedProduce> {
        let produce = match self.pending.front() {
            Some(produce) if produce.is_done() => self.pending.pop_front()?,
            _ => return None,
        };
        self.first_sequence += 1;
        self.bytes -= produce.memory_bytes();
        Some(produce)
    }

    /// A pending request by number; `None` if already answered.
    pub fn by_sequence(&mut self, sequence: u64) -> Option<&mut DelayedProduce> {
        let index = sequence.checked_sub(self.first_sequence)?;
        self.pending.get_mut(usize::try_from(index).ok()?)
    }
}
