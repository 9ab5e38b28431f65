//! Produce requests at transaction coordinators, by the number that the control plane answers with.
//!
//! Bounded in number and bytes. A number is taken until the control plane has answered, even if the
//! client is gone, so that no client can fill the queue of events.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use parking_lot::Mutex;

use pyrklog_base::hash::FastMap;
use pyrklog_base::ids::Place;
use pyrklog_base::memory_budget::{Held, MemoryBudget};

/// Requests at coordinators.
pub const ASKED_MAX: usize = 1_000;

/// Divisor of the receive memory that they may hold.
const RECEIVE_MEMORY_SHARE: usize = 4;

/// See the module.
#[derive(Debug)]
pub struct Verifications {
    is_off: AtomicBool,
    receive_memory: Arc<MemoryBudget>,
    own_memory: Arc<MemoryBudget>,
    inner: Mutex<Inner>,
}

#[derive(Debug, Default)]
struct Inner {
    last_id: u64,
    asked: FastMap<u64, Place>,
}

/// A request's memory, while it waits.
#[derive(Debug)]
pub struct Waiting {
    _receive_memory: Held,
    _own_memory: Held,
}

impl Verifications {
    /// Bytes count as receive memory, whose bound `receive_memory` is.
    pub fn new(receive_memory: Arc<MemoryBudget>) -> Verifications {
        let max_bytes = receive_memory.max_bytes() / RECEIVE_MEMORY_SHARE;
        Verifications {
            is_off: AtomicBool::new(false),
            receive_memory,
            own_memory: Arc::new(MemoryBudget::new(max_bytes)),
            inner: Mutex::default(),
        }
    }

    /// Whether transactions are verified that do not enrol their partitions.
    pub fn is_on(&self) -> bool {
        !self.is_off.load(Ordering::Relaxed)
    }

    /// `transaction.partition.verification.enable`.
    pub fn set(&self, is_on: bool) {
        self.is_off.store(!is_on, Ordering::Relaxed);
    }

    /// Takes a number for a request of `bytes`; `None` without room. The first one always fits.
    pub fn begin(&self, place: Place, bytes: usize) -> Option<(u64, Waiting)> {
        let mut inner = self.inner.lock();
        let has_room = self.own_memory.used_bytes() == 0 || self.own_memory.has_room(bytes);
        if inner.asked.len() >= ASKED_MAX || !has_room {
            return None;
        }
        inner.last_id += 1;
        let id = inner.last_id;
        inner.asked.insert(id, place);
        let waiting = Waiting {
            _receive_memory: Held::new(&self.receive_memory, bytes),
            _own_memory: Held::new(&self.own_memory, bytes),
        };
        Some((id, waiting))
    }

    /// The control plane answers; `None` if it has answered before.
    pub fn answered(&self, id: u64) -> Option<Place> {
        self.inner.lock().asked.remove(&id)
    }

    /// Numbers that are taken.
    pub fn count(&self) -> usize {
        self.inner.lock().asked.len()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn place(token: u64) -> Place {
        Place { thread: 0, token }
    }

    #[test]
    fn numbers_are_bounded_until_answered() {
        let memory = Arc::new(MemoryBudget::new(1 << 30));
        let asked = Verifications::new(memory);
        let waiting: Vec<_> = (0..ASKED_MAX as u64)
            .map(|token| asked.begin(place(token), 1).unwrap())
            .collect();
        assert!(asked.begin(place(9), 1).is_none());
        let first = waiting[0].0;
        drop(waiting);
        assert!(asked.begin(place(9), 1).is_none(), "nobody has answered");
        assert_eq!(asked.answered(first), Some(place(0)));
        assert_eq!(asked.answered(first), None);
        assert!(asked.begin(place(9), 1).is_some());
        assert_eq!(asked.count(), ASKED_MAX);
    }

    #[test]
    fn bytes_are_bounded_while_they_wait_and_count_as_receive_memory() {
        let memory = Arc::new(MemoryBudget::new(400));
        let asked = Verifications::new(Arc::clone(&memory));
        let first = asked.begin(place(1), 1_000).unwrap();
        assert!(asked.begin(place(2), 1).is_none());
        assert_eq!(memory.used_bytes(), 1_000);
        drop(first);
        assert_eq!(memory.used_bytes(), 0);
        let next = asked.begin(place(2), 60).unwrap();
        assert!(asked.begin(place(3), 41).is_none());
        assert!(asked.begin(place(3), 40).is_some());
        drop(next);
    }
}
