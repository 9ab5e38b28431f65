//! What an arena counts.

use std::sync::atomic::{AtomicI64, AtomicU64, Ordering};

use crate::arena::Arena;
use crate::layout::CHUNK_BYTES;

/// What is counted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ArenaStatistics {
    /// Bytes of chunks that have memory.
    pub populated_bytes: u64,
    /// Bytes of records in them that can be read.
    pub held_bytes: u64,
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
    /// Chunks ever reclaimed although what they held could still be read.
    pub reclaimed: u64,
    /// Chunks whose memory was ever given back.
    pub given_back: u64,
    /// Chunks that appends populated, since none was free.
    pub populated_by_appends: u64,
}

#[derive(Debug, Default)]
pub(crate) struct Counters {
    kept_bytes: AtomicU64,
    transient_bytes: AtomicU64,
    held_bytes: AtomicI64,
    refused: AtomicU64,
    reclaimed: AtomicU64,
    given_back: AtomicU64,
    populated_by_appends: AtomicU64,
}

impl Counters {
    /// A chunk was reclaimed.
    pub fn reclaimed(&self) {
        self.reclaimed.fetch_add(1, Ordering::Relaxed);
    }

    /// A chunk's memory was given back.
    pub fn given_back(&self) {
        self.given_back.fetch_add(1, Ordering::Relaxed);
    }

    /// An append populated a chunk.
    pub fn populated_by_append(&self) {
        self.populated_by_appends.fetch_add(1, Ordering::Relaxed);
    }

    /// Bytes of records that can be read.
    pub fn held_bytes(&self) -> u64 {
        u64::try_from(self.held_bytes.load(Ordering::Relaxed)).unwrap_or(0)
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
            held_bytes: counters.held_bytes(),
            free_bytes: free as u64 * bytes,
            limit_bytes: u64::from(self.limit()) * bytes,
            appended_bytes: load(&counters.kept_bytes) + transient_appended_bytes,
            transient_appended_bytes,
            transient_bytes: transient as u64 * bytes,
            refused: load(&counters.refused),
            reclaimed: load(&counters.reclaimed),
            given_back: load(&counters.given_back),
            populated_by_appends: load(&counters.populated_by_appends),
        }
    }

    pub(crate) fn count_refused(&self) {
        self.counters().refused.fetch_add(1, Ordering::Relaxed);
    }

    /// So many bytes more, or less, can be read.
    pub(crate) fn count_held(&self, bytes: i64) {
        let held_bytes = &self.counters().held_bytes;
        held_bytes.fetch_add(bytes, Ordering::Relaxed);
    }

    pub(crate) fn count_appended(&self, bytes: usize, is_transient: bool) {
        let counter = match is_transient {
            true => &self.counters().transient_bytes,
            false => &self.counters().kept_bytes,
        };
        counter.fetch_add(bytes as u64, Ordering::Relaxed);
    }
}
