//! Frames out of a byte stream, and the bound on memory for incomplete ones.
//!
//! A network thread handles whole frames in its own buffer. Only the rest (a frame's start, or
//! frames behind an unanswered one) moves to the connection's memory, so idle connections have
//! none. Memory for a long frame grows with the received bytes, not the announced ones.

use pyrklog_wire::frame::{Scan, scan};

use crate::memory_budget::MemoryBudget;

/// Minimum room for a receive into a connection's memory.
const RECEIVE_MIN_BYTES: usize = 64 * 1024;

/// A rest up to this size moves back to the thread's buffer for the next receive.
const CARRY_MAX_BYTES: usize = 16 * 1024;

/// A connection's received bytes that still wait.
#[derive(Debug, Default)]
pub struct Received {
    bytes: Vec<u8>,
    start: usize,
    charged: usize,
}

impl Received {
    /// Number of bytes.
    pub fn len(&self) -> usize {
        self.bytes.len() - self.start
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The bytes.
    pub fn bytes(&self) -> &[u8] {
        &self.bytes[self.start..]
    }

    /// Takes the memory for work; return it with [`Received::put_back`].
    pub fn take(&mut self) -> (Vec<u8>, usize) {
        let start = std::mem::take(&mut self.start);
        (std::mem::take(&mut self.bytes), start)
    }

    /// Returns memory from [`Received::take`], consumed up to `start`.
    pub fn put_back(&mut self, bytes: Vec<u8>, start: usize, budget: &MemoryBudget) {
        debug_assert!(self.bytes.is_empty());
        self.bytes = bytes;
        self.start = start;
        if self.start == self.bytes.len() {
            self.bytes.clear();
            self.start = 0;
        }
        self.charge(budget);
    }

    /// Stores `rest`; only while empty.
    pub fn keep(&mut self, rest: &[u8], budget: &MemoryBudget) {
        debug_assert!(self.is_empty());
        self.bytes.clear();
        self.start = 0;
        self.bytes.extend_from_slice(rest);
        self.charge(budget);
    }

    /// Moves a short rest to the start of the thread's `buffer` for the next receive and returns
    /// its length. `None`: receive into [`Received::room`].
    pub fn carry_into(&mut self, buffer: &mut [u8], budget: &MemoryBudget) -> Option<usize> {
        if self.len() > CARRY_MAX_BYTES || self.bytes.capacity() >= RECEIVE_MIN_BYTES {
            return None;
        }
        let count = self.len();
        buffer[..count].copy_from_slice(self.bytes());
        if count > 0 {
            self.bytes.clear();
            self.start = 0;
            self.charge(budget);
        }
        Some(count)
    }

    /// Memory with room to receive into. Grows to four times the received bytes, at most to the
    /// frame's end.
    pub fn room(&mut self, max_frame_bytes: usize, budget: &MemoryBudget) -> &mut Vec<u8> {
        if self.start > 0 {
            self.bytes.drain(..self.start);
            self.start = 0;
        }
        let have = self.bytes.len();
        let announced = match scan(&self.bytes, max_frame_bytes) {
            Ok(Scan::Partial {
                total_len: Some(total),
            }) => total,
            _ => 0,
        };
        let goal = announced
            .min(have * 4)
            .max(have + RECEIVE_MIN_BYTES.min(announced.max(1)));
        let goal = goal.max(RECEIVE_MIN_BYTES);
        if self.bytes.capacity() < goal {
            self.bytes.reserve_exact(goal - have);
        }
        if self.bytes.capacity() == have {
            self.bytes.reserve_exact(RECEIVE_MIN_BYTES);
        }
        self.charge(budget);
        &mut self.bytes
    }

    /// Frees empty memory.
    pub fn shrink(&mut self, budget: &MemoryBudget) {
        if self.is_empty() {
            self.bytes = Vec::new();
            self.start = 0;
            self.charge(budget);
        }
    }

    /// Drops everything.
    pub fn clear(&mut self, budget: &MemoryBudget) {
        self.bytes = Vec::new();
        self.start = 0;
        self.charge(budget);
    }

    fn charge(&mut self, budget: &MemoryBudget) {
        let capacity = self.bytes.capacity();
        if capacity != self.charged {
            budget.change(self.charged, capacity);
            self.charged = capacity;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn memory_follows_received_bytes_not_the_announced_length() {
        let budget = MemoryBudget::new(usize::MAX);
        let mut received = Received::default();
        let mut start = vec![0u8; CARRY_MAX_BYTES + 1];
        start[..4].copy_from_slice(&100_000_000i32.to_be_bytes());
        received.keep(&start, &budget);
        let room = received.room(100_000_000, &budget);
        assert!(room.capacity() > room.len() && room.capacity() <= 4 * 1024 * 1024);
        assert!(budget.used_bytes() <= 4 * 1024 * 1024);
        received.clear(&budget);
        assert_eq!(budget.used_bytes(), 0);
    }

    #[test]
    fn small_remainders_are_carried_back_into_the_threads_buffer() {
        let budget = MemoryBudget::new(usize::MAX);
        let mut received = Received::default();
        received.keep(&[1, 2, 3], &budget);
        let mut buffer = [0u8; 64];
        let carried = received.carry_into(&mut buffer, &budget);
        assert_eq!((carried, &buffer[..3]), (Some(3), &[1u8, 2, 3][..]));
        assert!(received.is_empty());
        assert_eq!(received.carry_into(&mut buffer, &budget), Some(0));
    }

    #[test]
    fn one_connection_may_finish_beyond_the_bound() {
        let budget = MemoryBudget::new(100);
        let mut large = Received::default();
        assert!(budget.allows(1) && budget.allows(2));
        large.keep(&[0; 200], &budget);
        assert!(budget.is_exhausted());
        assert!(budget.allows(1), "the first to ask");
        assert!(!budget.allows(2));
        assert!(budget.allows(1), "and it goes on");
        budget.release(2);
        assert!(!budget.allows(2), "not the holder's release");
        budget.release(1);
        assert!(budget.allows(2));
        large.clear(&budget);
        assert!(budget.allows(3));
    }
}
