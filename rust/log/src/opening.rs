//! Numbers of openings, by which others tell whether a log is the one that they read before.

use std::collections::hash_map::RandomState;
use std::hash::BuildHasher;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, Ordering};

static PROCESS: OnceLock<RandomState> = OnceLock::new();
static COUNT: AtomicU64 = AtomicU64::new(0);

/// A number that no other opening has, of this process or of others; never 0.
pub(crate) fn next_opening() -> i64 {
    let count = COUNT.fetch_add(1, Ordering::Relaxed);
    let number = PROCESS.get_or_init(RandomState::new).hash_one(count);
    number.cast_signed() | 1
}
