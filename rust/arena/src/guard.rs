//! Guards: readers whose chunks must not be carved anew under them.
//!
//! A reader enters with one store, looks a block up and leaves with another store; no block is
//! marked. A reclaimed chunk gets a number from the clock of guards, and is carved anew only when
//! every guard entered before is left. The look-up lies between the reader's store and the lock
//! under which a block is taken out. So either the reclaimer sees the guard, or the reader does not
//! find the block.

use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

use crate::sync::{planted, step};

/// Concurrent readers; far more than there are threads. One more spins.
const PLACES: usize = 512;

/// The place has no guard.
const FREE: u64 = 0;

#[derive(Debug)]
#[repr(align(64))]
struct Place(AtomicU64);

#[derive(Debug)]
pub struct Guards {
    clock: AtomicU64,
    places: Box<[Place]>,
}

/// What is looked up under it stays where it is.
#[derive(Debug)]
pub struct Guard<'a> {
    guards: &'a Guards,
    place: &'a Place,
}

impl Guard<'_> {
    /// A guard of one arena protects nothing of another.
    #[inline]
    pub(crate) fn is_of(&self, guards: &Guards) -> bool {
        std::ptr::eq(self.guards, guards)
    }
}

thread_local! {
    static HOME: usize = {
        static NEXT: AtomicUsize = AtomicUsize::new(0);
        NEXT.fetch_add(1, Ordering::Relaxed)
    };
}

#[inline]
fn home() -> usize {
    #[cfg(test)]
    if let Some(number) = crate::explore::number() {
        return number;
    }
    HOME.with(|home| *home)
}

impl Default for Guards {
    fn default() -> Guards {
        Guards::new(PLACES)
    }
}

impl Guards {
    /// `places` is the limit of concurrent readers.
    pub(crate) fn new(places: usize) -> Guards {
        Guards {
            clock: AtomicU64::new(1),
            places: (0..places).map(|_| Place(AtomicU64::new(FREE))).collect(),
        }
    }

    #[inline]
    pub fn enter(&self) -> Guard<'_> {
        step();
        let now = self.clock.load(Ordering::SeqCst);
        let mut i = home();
        loop {
            let place = &self.places[i % self.places.len()];
            step();
            let entered = place
                .0
                .compare_exchange(FREE, now, Ordering::SeqCst, Ordering::Relaxed);
            if entered.is_ok() {
                if planted!(GuardLeftEarly) {
                    place.0.store(FREE, Ordering::SeqCst);
                }
                return Guard {
                    guards: self,
                    place,
                };
            }
            i += 1;
        }
    }

    /// The number of something just taken out of all look-ups.
    pub fn retire(&self) -> u64 {
        step();
        self.clock.fetch_add(1, Ordering::SeqCst) + 1
    }

    /// What was retired with this number or a lower one has no reader left.
    pub fn passed(&self) -> u64 {
        step();
        let now = self.clock.load(Ordering::SeqCst);
        let entered = self
            .places
            .iter()
            .inspect(|_| step())
            .map(|place| place.0.load(Ordering::SeqCst));
        entered.filter(|at| *at != FREE).min().unwrap_or(now)
    }
}

impl Drop for Guard<'_> {
    #[inline]
    fn drop(&mut self) {
        step();
        self.place.0.store(FREE, Ordering::SeqCst);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn retired_memory_waits_for_earlier_guards() {
        let guards = Guards::default();
        let before = guards.enter();
        let number = guards.retire();
        assert!(guards.passed() < number);
        let after = guards.enter();
        drop(before);
        assert!(guards.passed() >= number, "a later guard does not count");
        drop(after);
        assert!(guards.passed() >= number);
    }

    #[test]
    fn guards_of_one_thread_nest() {
        let guards = Guards::default();
        let outer = guards.enter();
        let number = guards.retire();
        drop(guards.enter());
        assert!(guards.passed() < number);
        drop(outer);
        assert!(guards.passed() >= number);
    }
}
