//! For tests: a kill at any store.

use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};

/// Counts steps (stores to an arena, operations of a disk) and suppresses them after a given
/// number: memory is then what a kill at that moment would leave.
#[derive(Clone, Debug)]
pub struct Fuse(Arc<AtomicI64>);

impl Default for Fuse {
    fn default() -> Fuse {
        Fuse(Arc::new(AtomicI64::new(i64::MAX)))
    }
}

impl Fuse {
    /// The next `steps` steps have an effect, later ones do not.
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

    /// How many bytes of a copy arrive: all, none, or half of them in the step between.
    pub fn cut(&self, len: usize) -> usize {
        match self.0.fetch_sub(2, Ordering::SeqCst) {
            ..=0 => 0,
            1 => len / 2,
            _ => len,
        }
    }
}
