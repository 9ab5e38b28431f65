//! Numbers that outsiders cannot guess.

use std::collections::hash_map::RandomState;
use std::hash::BuildHasher;
use std::sync::atomic::{AtomicU64, Ordering};

/// See the module.
#[derive(Debug, Default)]
pub struct Unguessable {
    seed: RandomState,
    count: AtomicU64,
}

impl Unguessable {
    /// From 1 to 2^31-1; repeats are rare.
    pub fn positive(&self) -> i32 {
        let count = self.count.fetch_add(1, Ordering::Relaxed);
        let number = (self.seed.hash_one(count) & 0x7fff_ffff) as i32;
        number.max(1)
    }

    /// A unique number.
    pub fn unique(&self) -> u128 {
        let count = self.count.fetch_add(1, Ordering::Relaxed);
        let half = |half: u8| u128::from(self.seed.hash_one((count, half)));
        half(0) << 64 | half(1)
    }
}
