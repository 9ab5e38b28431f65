//! A bound on memory that connections share.
//!
//! There are two, each of `queued.max.request.bytes`: one for received bytes that wait, request
//! bodies at the control plane included; one for replies.
//!
//! One connection at a time may exceed the bound to finish its work, so that nothing blocks for
//! good.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

/// See the module.
#[derive(Debug)]
pub struct MemoryBudget {
    max_bytes: usize,
    used_bytes: AtomicUsize,
    /// Connection that may exceed the bound; 0 for none.
    exempt: AtomicU64,
}

/// Bytes of a budget, returned on drop.
#[derive(Debug)]
pub struct Held {
    budget: Arc<MemoryBudget>,
    bytes: usize,
}

impl Held {
    /// Counts `bytes`.
    pub fn new(budget: &Arc<MemoryBudget>, bytes: usize) -> Held {
        budget.add(bytes);
        Held {
            budget: Arc::clone(budget),
            bytes,
        }
    }

    /// Leaves its bytes counted in `budget`, for the caller to return; 0 if they are another's.
    pub fn hand_over(mut self, budget: &Arc<MemoryBudget>) -> usize {
        match Arc::ptr_eq(&self.budget, budget) {
            true => std::mem::take(&mut self.bytes),
            false => 0,
        }
    }
}

impl Drop for Held {
    fn drop(&mut self) {
        self.budget.subtract(self.bytes);
    }
}

impl MemoryBudget {
    /// A budget of `max_bytes`.
    pub fn new(max_bytes: usize) -> MemoryBudget {
        MemoryBudget {
            max_bytes,
            used_bytes: AtomicUsize::new(0),
            exempt: AtomicU64::new(0),
        }
    }

    /// Whether `connection` may have more memory.
    pub fn allows(&self, connection: u64) -> bool {
        self.fits(connection, 1)
    }

    /// Whether `connection` may have `bytes` more; does not count them.
    pub fn fits(&self, connection: u64, bytes: usize) -> bool {
        self.has_room(bytes) || self.exempts(connection)
    }

    /// Whether `bytes` more are within the bound.
    pub fn has_room(&self, bytes: usize) -> bool {
        self.used_bytes().saturating_add(bytes) <= self.max_bytes
    }

    /// Whether `connection` may exceed the bound; it becomes the exempt one if there is none.
    pub fn exempts(&self, connection: u64) -> bool {
        match self
            .exempt
            .compare_exchange(0, connection, Ordering::AcqRel, Ordering::Acquire)
        {
            Ok(_) => true,
            Err(holder) => holder == connection,
        }
    }

    /// The bound.
    pub fn max_bytes(&self) -> usize {
        self.max_bytes
    }

    /// Whether `connection` is the exempt one.
    pub fn is_exempt(&self, connection: u64) -> bool {
        self.exempt.load(Ordering::Relaxed) == connection
    }

    /// `connection` holds no more memory, or is closed.
    pub fn release(&self, connection: u64) {
        if !self.is_exempt(connection) {
            return;
        }
        let _ = self
            .exempt
            .compare_exchange(connection, 0, Ordering::AcqRel, Ordering::Relaxed);
    }

    /// Counts `bytes`.
    pub fn add(&self, bytes: usize) {
        self.used_bytes.fetch_add(bytes, Ordering::Relaxed);
    }

    /// Returns `bytes`.
    pub fn subtract(&self, bytes: usize) {
        self.used_bytes.fetch_sub(bytes, Ordering::Relaxed);
    }

    /// Bytes in use.
    pub fn used_bytes(&self) -> usize {
        self.used_bytes.load(Ordering::Relaxed)
    }

    /// Whether the bound is reached.
    pub fn is_exhausted(&self) -> bool {
        self.used_bytes() >= self.max_bytes
    }

    /// Replaces a count of `from` bytes by `to`.
    pub fn change(&self, from: usize, to: usize) {
        if to >= from {
            self.used_bytes.fetch_add(to - from, Ordering::Relaxed);
        } else {
            self.used_bytes.fetch_sub(from - to, Ordering::Relaxed);
        }
    }
}
