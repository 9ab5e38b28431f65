//! Memory of replies: one share for clients, one for brokers.
//!
//! Brokers may also use what clients leave free, but not vice versa: replies that clients do not
//! read cannot starve followers. Control-plane answers are already in memory: without room a
//! client's is refused, and a broker's may exceed the bound a little. Both cases, and a request
//! that waits for memory, mean that memory is short.

use std::sync::Arc;
use std::sync::atomic::{AtomicI64, AtomicUsize, Ordering};

use crate::memory_budget::{Held, MemoryBudget};

/// Divisor of the memory for the brokers' share.
const BROKERS_SHARE: usize = 8;

/// Answers to brokers may exceed the bound by their share, at most this.
const BEYOND_MAX_BYTES: usize = 32 << 20;

/// Memory counts as short for this long after a request had to wait.
const WAITING_SHORT_MS: i64 = 1_000;

/// How long a reply may stay unread while memory is short.
pub const UNREAD_MAX_MS: i64 = 5_000;

/// See the module.
#[derive(Debug)]
pub struct ReplyMemory {
    clients: Pool,
    brokers: Pool,
    refused: AtomicUsize,
}

#[derive(Debug)]
struct Pool {
    budget: Arc<MemoryBudget>,
    /// Memory counts as short until then (monotonic milliseconds).
    short_until_ms: AtomicI64,
}

impl Pool {
    fn new(max_bytes: usize) -> Pool {
        Pool {
            budget: Arc::new(MemoryBudget::new(max_bytes)),
            short_until_ms: AtomicI64::new(i64::MIN),
        }
    }
}

impl ReplyMemory {
    /// For `max_bytes`; brokers have a share only in a cluster.
    pub fn new(max_bytes: usize, in_cluster: bool) -> ReplyMemory {
        let brokers_bytes = match in_cluster {
            true => max_bytes / BROKERS_SHARE,
            false => 0,
        };
        ReplyMemory {
            clients: Pool::new(max_bytes - brokers_bytes),
            brokers: Pool::new(brokers_bytes),
            refused: AtomicUsize::new(0),
        }
    }

    fn pool(&self, is_broker: bool) -> &Pool {
        match is_broker {
            true => &self.brokers,
            false => &self.clients,
        }
    }

    /// The budget of brokers' or of clients' connections.
    pub fn of(&self, is_broker: bool) -> &Arc<MemoryBudget> {
        &self.pool(is_broker).budget
    }

    /// Both shares.
    pub fn max_bytes(&self) -> usize {
        self.clients.budget.max_bytes() + self.brokers.budget.max_bytes()
    }

    /// Bytes in use.
    pub fn used_bytes(&self) -> usize {
        self.clients.budget.used_bytes() + self.brokers.budget.used_bytes()
    }

    /// A request waits for memory; repeat while it does. True if memory was short before.
    pub fn note_waiting(&self, is_broker: bool, now_ms: i64) -> bool {
        self.note_short(is_broker, now_ms, WAITING_SHORT_MS)
    }

    /// An answer was refused; call once. True if memory was short before.
    pub fn note_refused(&self, is_broker: bool, now_ms: i64) -> bool {
        self.note_short(is_broker, now_ms, UNREAD_MAX_MS + WAITING_SHORT_MS)
    }

    fn note_short(&self, is_broker: bool, now_ms: i64, for_ms: i64) -> bool {
        let until_ms = &self.pool(is_broker).short_until_ms;
        until_ms.fetch_max(now_ms + for_ms, Ordering::Relaxed) > now_ms
    }

    /// Whether memory was short lately. Brokers must return borrowed memory when clients find no
    /// room.
    pub fn is_short(&self, is_broker: bool, now_ms: i64) -> bool {
        let is_short = |pool: &Pool| pool.short_until_ms.load(Ordering::Relaxed) > now_ms;
        let own = self.pool(is_broker);
        let has_borrowed = is_broker && own.budget.used_bytes() > own.budget.max_bytes();
        is_short(own) || (has_borrowed && is_short(&self.clients))
    }

    /// Whether a connection may have `bytes` more; does not count them.
    pub fn fits(&self, is_broker: bool, connection: u64, bytes: usize) -> bool {
        let own = self.of(is_broker);
        self.has_room(is_broker, bytes) || own.exempts(connection)
    }

    fn has_room(&self, is_broker: bool, bytes: usize) -> bool {
        let fits_in_all = self.used_bytes().saturating_add(bytes) <= self.max_bytes();
        let fits_in_own = self.of(is_broker).has_room(bytes);
        match is_broker {
            true => fits_in_all || fits_in_own,
            false => fits_in_all && fits_in_own,
        }
    }

    /// Counts a control-plane answer if there is room or nothing else is counted.
    pub fn hold(&self, is_broker: bool, bytes: usize) -> Option<Held> {
        let own = self.of(is_broker);
        let may_hold = own.used_bytes() == 0 || self.has_room(is_broker, bytes);
        may_hold.then(|| Held::new(own, bytes))
    }

    /// Counts a broker's answer beyond the bound, within a limit since clients can pose as brokers;
    /// refuses any other.
    pub fn hold_beyond(&self, is_broker: bool, bytes: usize) -> Option<Held> {
        let beyond_bytes = self.brokers.budget.max_bytes().min(BEYOND_MAX_BYTES);
        if !is_broker || self.used_bytes() >= self.max_bytes() + beyond_bytes {
            self.refused.fetch_add(1, Ordering::Relaxed);
            return None;
        }
        Some(Held::new(self.of(is_broker), bytes))
    }

    /// Answers refused so far.
    pub fn refused(&self) -> usize {
        self.refused.load(Ordering::Relaxed)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn brokers_have_a_share_of_reply_memory_and_the_free_rest() {
        let memory = ReplyMemory::new(800, true);
        assert!(memory.fits(true, 1, 800));
        let clients = memory.hold(false, 700).unwrap();
        assert!(memory.fits(false, 2, 1), "one goes beyond the bound");
        assert!(!memory.fits(false, 3, 1));
        assert!(
            memory.hold(false, 1).is_none(),
            "its eighth is the brokers'"
        );
        let brokers = memory.hold(true, 100).unwrap();
        assert!(memory.hold(true, 1).is_none());
        let beyond = memory.hold_beyond(true, 100);
        assert!(beyond.is_some(), "what other brokers are told goes on");
        assert!(memory.hold_beyond(true, 1).is_none(), "but not for ever");
        drop(beyond);
        drop(clients);
        let borrowed = memory.hold(true, 600).unwrap();
        let beside = memory.hold(false, 100);
        assert!(beside.is_some());
        assert!(memory.hold(false, 1).is_none(), "brokers have the rest");
        drop((brokers, borrowed, beside));
        assert_eq!(memory.used_bytes(), 0);
    }

    #[test]
    fn an_answer_that_is_handed_over_counts_once() {
        let memory = ReplyMemory::new(800, true);
        let answer = memory.hold(true, 100).unwrap();
        let counted = answer.hand_over(memory.of(true));
        assert_eq!((counted, memory.used_bytes()), (100, 100));
        memory.of(true).change(counted, 130);
        assert_eq!(memory.used_bytes(), 130);
        let answer = memory.hold(false, 100).unwrap();
        assert_eq!(answer.hand_over(memory.of(true)), 0, "another budget's");
        assert_eq!(memory.used_bytes(), 130, "it is returned");
    }
}
