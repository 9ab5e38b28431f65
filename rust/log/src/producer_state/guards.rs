//! Verification guards: transactions whose coordinator is being asked (KIP-890).
//!
//! A transaction's first batch in a partition enters only with the guard that was opened before the
//! coordinator was asked. Whatever may end that transaction meanwhile voids the guard, so that a
//! late batch opens no transaction that nobody will end.
//!
//! Anyone may ask about any producer, so a guard belongs to the transactional id too: who does not
//! know that one opens another guard. It goes with the last question that the coordinator refuses.
//! After questions that could not be answered it stays for its lowest sequence, but makes room for
//! others.

use std::collections::BTreeMap;
use std::ops::RangeInclusive;
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

/// Whose a guard is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct GuardOwner {
    /// Producer id.
    pub producer_id: i64,
    /// Its epoch.
    pub epoch: i16,
    /// Hash of the transactional id; 0 for a coordinator, which does not number its batches.
    pub transactional_id: u64,
}

/// What becomes of a guard that nobody asks about any more.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Afterwards {
    /// It is removed.
    Closed,
    /// It stays while there is room: higher sequences must not overtake the lowest one.
    Kept,
}

/// A producer's open guard.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Guard {
    /// Its number.
    pub number: GuardNumber,
    /// The lowest sequence that asked: a higher one must not enter first, since the lower one would
    /// be out of order when it is sent again.
    pub lowest_sequence: i32,
    /// Questions that are not over.
    questions: u32,
    began_ms: i64,
}

/// By producer id and epoch.
#[derive(Clone, Debug, Default)]
pub struct Guards(BTreeMap<GuardOwner, Guard>);

impl Guards {
    /// Opens a guard, or finds it. `None` without room.
    pub fn begin(&mut self, owner: GuardOwner, sequence: i32, now_ms: i64) -> Option<GuardNumber> {
        if let Some(known) = self.0.get_mut(&owner)
            && !known.is_old(now_ms)
        {
            known.lowest_sequence = known.lowest_sequence.min(sequence);
            known.questions = known.questions.saturating_add(1);
            known.began_ms = now_ms;
            return Some(known.number);
        }
        if self.0.len() >= GUARDS_MAX {
            self.make_room(now_ms);
        }
        if self.0.len() >= GUARDS_MAX {
            return None;
        }
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        let guard = Guard {
            number,
            lowest_sequence: sequence,
            questions: 1,
            began_ms: now_ms,
        };
        self.0.insert(owner, guard);
        Some(number)
    }

    /// A question that [`Guards::begin`] answered with `number` is over. Ignores a void guard.
    pub fn end(&mut self, owner: GuardOwner, number: GuardNumber, afterwards: Afterwards) {
        let Some(guard) = self.0.get_mut(&owner) else {
            return;
        };
        if guard.number != number {
            return;
        }
        guard.questions = guard.questions.saturating_sub(1);
        if guard.questions == 0 && afterwards == Afterwards::Closed {
            self.0.remove(&owner);
        }
    }

    /// A guard of a producer's epoch.
    pub fn find(&self, (id, epoch): (i64, i16), number: GuardNumber) -> Option<&Guard> {
        let mut guards = self.0.range(epochs(id, epoch..=epoch));
        guards.find_map(|(_, guard)| (guard.number == number).then_some(guard))
    }

    /// The producer opened a transaction in this epoch: its guards up to there are void.
    pub fn opened(&mut self, (id, epoch): (i64, i16)) {
        self.take(id, i16::MIN..=epoch);
    }

    /// A marker ended the producer's transactions up to this epoch: their guards are void.
    pub fn ended(&mut self, (id, epoch): (i64, i16)) {
        self.take(id, i16::MIN..=epoch);
    }

    /// Removes those of a producer's epochs.
    pub fn take(&mut self, id: i64, of: RangeInclusive<i16>) -> Vec<(GuardOwner, Guard)> {
        if self.0.is_empty() {
            return Vec::new();
        }
        let found = self.0.range(epochs(id, of));
        let found: Vec<_> = found.map(|(owner, guard)| (*owner, *guard)).collect();
        for (owner, _) in &found {
            self.0.remove(owner);
        }
        found
    }

    /// Puts them back.
    pub fn restore(&mut self, guards: Vec<(GuardOwner, Guard)>) {
        self.0.extend(guards);
    }

    /// Removes old ones; without any, the oldest that nobody asks about.
    fn make_room(&mut self, now_ms: i64) {
        self.expire(now_ms);
        if self.0.len() < GUARDS_MAX {
            return;
        }
        let idle = self.0.iter().filter(|(_, guard)| guard.questions == 0);
        if let Some((&oldest, _)) = idle.min_by_key(|(_, guard)| guard.began_ms) {
            self.0.remove(&oldest);
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

    /// Their number.
    pub fn count(&self) -> usize {
        self.0.len()
    }
}

fn epochs(producer_id: i64, of: RangeInclusive<i16>) -> RangeInclusive<GuardOwner> {
    let first = GuardOwner {
        producer_id,
        epoch: *of.start(),
        transactional_id: 0,
    };
    let last = GuardOwner {
        epoch: *of.end(),
        transactional_id: u64::MAX,
        ..first
    };
    first..=last
}

impl Guard {
    fn is_old(&self, now_ms: i64) -> bool {
        now_ms.saturating_sub(self.began_ms) >= GUARD_MS
    }
}
