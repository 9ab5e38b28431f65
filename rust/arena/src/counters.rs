//! What an arena counts.

use std::sync::atomic::{AtomicU64, Ordering};

use crate::arena::Arena;
use crate::layout::CHUNK_BYTES;

/// What is counted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ArenaStatistics {
    /// Bytes of chunks that are there.
    pub populated_bytes: u64,
    /// Bytes of chunks that hold nothing.
    pub free_bytes: u64,
    /// Bytes that may be populated at most.
    pub limit_bytes: u64,
    /// Bytes ever appended.
    pub appended_bytes: u64,
    /// Of these, what was appended to transient chunks.
    pub transient_appended_bytes: u64,
    /// Bytes of transient chunks.
    pub transient_bytes: u64,
    /// Appends that found no free block.
    pub refused: u64,
    /// Chunks ever reclaimed.
    pub reclaimed: u64,
}

#[derive(Debug, Default)]
pub(crate) struct Counters {
    kept_bytes: AtomicU64,
    transient_bytes: AtomicU64,
    refused: AtomicU64,
    reclaimed: AtomicU64,
}

impl Counters {
    /// A chunk was reclaimed.
    pub fn reclaimed(&self) {
        self.reclaimed.fetch_add(1, Ordering::Relaxed);
    }
}

impl Arena {
    /// What is counted.
    pub fn statistics(&self) -> ArenaStatistics {
        let (free, transient) = self.chunks_now();
        let bytes = CHUNK_BYTES as u64;
        let load = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        let counters = self.counters();
        let transient_appended_bytes = load(&counters.transient_bytes);
        ArenaStatistics {
            populated_bytes: u64::from(self.populated()) * bytes,
            free_bytes: free as u64 * bytes,
            limit_bytes: u64::from(self.limit()) * bytes,
            appended_bytes: load(&counters.kept_bytes) + transient_appended_bytes,
            transient_appended_bytes,
            transient_bytes: transient as u64 * bytes,
            refused: load(&counters.refused),
            reclaimed: load(&counters.reclaimed),
        }
    }

    pub(crate) fn count_refused(&self) {
        self.counters().refused.fetch_add(1, Ordering::Relaxed);
    }

    pub(crate) fn count_appended(&self, bytes: usize, is_transient: bool) {
        let counter = match is_transient {
            true => &self.counters().transient_bytes,
            false => &self.counters().kept_bytes,
        };
        counter.fetch_add(bytes as u64, Ordering::Relaxed);
    }
}
