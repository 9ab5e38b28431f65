//! Counters of an arena, and its statistics.

use std::sync::atomic::{AtomicI64, AtomicU64, Ordering};

/// A snapshot of the counters.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ArenaStatistics {
    /// Bytes of chunks that have memory.
    pub populated_bytes: u64,
    /// Bytes of records in them that can be read.
    pub held_bytes: u64,
    /// Bytes of chunks that hold nothing.
    pub free_bytes: u64,
    /// The limit of populated bytes.
    pub limit_bytes: u64,
    /// Bytes ever appended.
    pub appended_bytes: u64,
    /// Part of them: appended to transient chunks.
    pub transient_appended_bytes: u64,
    /// Bytes of transient chunks.
    pub transient_bytes: u64,
    /// Appends that found no free block.
    pub refused: u64,
    /// Chunks ever reclaimed while their content could still be read.
    pub reclaimed: u64,
    /// Chunks whose memory was ever given back.
    pub given_back: u64,
    /// Chunks that appends populated because none was free.
    pub populated_by_appends: u64,
}

#[derive(Debug, Default)]
pub(crate) struct Counters {
    kept_bytes: AtomicU64,
    transient_bytes: AtomicU64,
    held_bytes: AtomicI64,
    pub refused: AtomicU64,
    pub reclaimed: AtomicU64,
    pub given_back: AtomicU64,
    pub populated_by_appends: AtomicU64,
}

impl Counters {
    /// The counters, without the arena's numbers of chunks.
    pub fn snapshot(&self) -> ArenaStatistics {
        let load = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        let transient_appended_bytes = load(&self.transient_bytes);
        ArenaStatistics {
            held_bytes: self.held_bytes(),
            appended_bytes: load(&self.kept_bytes) + transient_appended_bytes,
            transient_appended_bytes,
            refused: load(&self.refused),
            reclaimed: load(&self.reclaimed),
            given_back: load(&self.given_back),
            populated_by_appends: load(&self.populated_by_appends),
            ..ArenaStatistics::default()
        }
    }

    pub fn held_bytes(&self) -> u64 {
        u64::try_from(self.held_bytes.load(Ordering::Relaxed)).unwrap_or(0)
    }

    pub fn count_held(&self, bytes: i64) {
        self.held_bytes.fetch_add(bytes, Ordering::Relaxed);
    }

    pub fn count_appended(&self, bytes: usize, is_transient: bool) {
        let counter = match is_transient {
            true => &self.transient_bytes,
            false => &self.kept_bytes,
        };
        counter.fetch_add(bytes as u64, Ordering::Relaxed);
    }
}
