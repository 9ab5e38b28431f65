//! Verification guards: transactions whose coordinator is being asked (KIP-890).
//!
//! A transaction's first batch in a partition enters only with the guard that was opened before the
//! coordinator was asked. Whatever may end that transaction meanwhile voids the guard, so that a
//! late batch opens no transaction that nobody will end.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};

/// Guards of a partition at a time. Each belongs to a client's request, or to an append of the
/// group coordinator.
pub const GUARDS_MAX: usize = 1_000;

/// A guard of this age is void: requests wait for 30 s, and are repeated within two minutes.
pub const GUARD_MS: i64 = 150_000;

/// Numbers are never used twice in a process: a partition may be closed and opened again while a
/// request with its guard waits.
static NEXT: AtomicU64 = AtomicU64::new(1);

/// A guard's number.
pub type GuardNumber = u64;

/// A producer's open guard.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Guard {
    /// Its number.
    pub number: GuardNumber,
    /// The lowest sequence that asked: a higher one must not enter first, since the lower one would
    /// be out of order when it is sent again.
    pub lowest_sequence: i32,
    began_ms: i64,
}

/// By producer id and epoch.
#[derive(Clone, Debug, Default)]
pub struct Guards(BTreeMap<(i64, i16), Guard>);

impl Guards {
    /// Opens the guard of a producer's epoch, or finds it. `None` without room.
    pub fn begin(
        &mut self,
        producer: (i64, i16),
        sequence: i32,
        now_ms: i64,
    ) -> Option<GuardNumber> {
        if let Some(known) = self.0.get_mut(&producer)
            && !known.is_old(now_ms)
        {
            known.lowest_sequence = known.lowest_sequence.min(sequence);
            known.began_ms = now_ms;
            return Some(known.number);
        }
        if self.0.len() >= GUARDS_MAX {
            self.expire(now_ms);
        }
        if self.0.len() >= GUARDS_MAX {
            return None;
        }
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        let guard = Guard {
            number,
            lowest_sequence: sequence,
            began_ms: now_ms,
        };
        self.0.insert(producer, guard);
        Some(number)
    }

    /// The guard of a producer's epoch.
    pub fn find(&self, producer: (i64, i16)) -> Option<&Guard> {
        self.0.get(&producer)
    }

    /// The producer opened a transaction in this epoch: its guards up to there are void.
    pub fn opened(&mut self, (id, epoch): (i64, i16)) {
        self.remove(id, epoch);
    }

    /// A marker ended the producer's transactions up to this epoch: their guards are void.
    pub fn ended(&mut self, (id, epoch): (i64, i16)) {
        self.remove(id, epoch);
    }

    /// Removes one.
    pub fn take(&mut self, producer: (i64, i16)) -> Option<Guard> {
        self.0.remove(&producer)
    }

    /// Puts it back.
    pub fn restore(&mut self, producer: (i64, i16), guard: Guard) {
        self.0.insert(producer, guard);
    }

    fn remove(&mut self, id: i64, up_to: i16) {
        if self.0.is_empty() {
            return;
        }
        let epochs = self.0.range((id, i16::MIN)..=(id, up_to));
        let void: Vec<(i64, i16)> = epochs.map(|(producer, _)| *producer).collect();
        for producer in void {
            self.0.remove(&producer);
        }
    }

    /// Removes old ones.
    pub fn expire(&mut self, now_ms: i64) {
        self.0.retain(|_, guard| !guard.is_old(now_ms));
    }

    /// Voids all.
    pub fn clear(&mut self) {
        self.0.clear();
    }
}

impl Guard {
    fn is_old(&self, now_ms: i64) -> bool {
        now_ms.saturating_sub(self.began_ms) >= GUARD_MS
    }
}
