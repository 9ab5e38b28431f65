//! For tests: a kill at any store.

use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};

/// Counts steps (stores to an arena, operations of a disk) and lets none of them have an effect
/// after a given number: what then lies in memory is what a kill at that moment would leave.
#[derive(Clone, Debug)]
pub struct Fuse(Arc<AtomicI64>);

impl Default for Fuse {
    fn default() -> Fuse {
        Fuse(Arc::new(AtomicI64::new(i64::MAX)))
    }
}

impl Fuse {
    /// From now on this many steps have an effect.
    pub fn burn_after(&self, steps: i64) {
        self.0.store(steps, Ordering::SeqCst);
    }

    /// Steps that are left.
    pub fn left(&self) -> i64 {
        self.0.load(Ordering::SeqCst)
    }

    /// Takes one step; true when it must have no effect.
    pub fn is_blown(&self) -> bool {
        self.0.fetch_sub(1, Ordering::SeqCst) <= 0
    }

    /// How many of the bytes of a copy arrive: all, none, or half of them in the step between.
    pub fn cut(&self, len: usize) -> usize {
        match self.0.fetch_sub(2, Ordering::SeqCst) {
            ..=0 => 0,
            1 => len / 2,
            _ => len,
        }
    }
}
