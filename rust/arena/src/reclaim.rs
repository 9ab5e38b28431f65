//! Chunks on their way from being carved to being free again.

use std::collections::BTreeMap;
use std::sync::Weak;
use std::sync::atomic::Ordering;

use crate::arena::Arena;
use crate::layout::{CHUNK_BYTES, chunk_at};
use crate::pool::{Candidate, Carved, Occupant, Pool, Tenant, Want};
use crate::slots::Slot;

/// Most chunks looked at for one to reclaim. The next look goes on with others.
const TRIES_MAX: usize = 128;

/// The same for an append, which does not wait.
const TRIES_OF_APPEND: usize = 4;

impl Arena {
    pub(crate) fn carve(
        &self,
        class: u8,
        (tenant, slot): (&Weak<dyn Occupant>, Slot),
        is_transient: bool,
    ) -> Option<Carved> {
        let want = Want {
            class,
            tenant,
            slot,
            transient_max: is_transient.then(|| self.transient_max()),
        };
        let (carved, free) = self.with_pool(|pool| {
            let carved = pool.carve(&self.memory, want);
            (carved, pool.free())
        })?;
        if free < self.low.load(Ordering::Relaxed) as usize {
            self.call_janitor();
        }
        carved
    }

    /// Gives up blocks of transient chunks that are written or unused; one entry each.
    pub(crate) fn give_up(&self, chunks: &[u32]) {
        for &chunk in chunks {
            let is_last = self.with_pool(|pool| pool.give_up(chunk));
            if is_last == Some(true) {
                self.retire(chunk);
            }
        }
    }

    /// A segment with these numbers of blocks in `chunks` goes. All blocks are written or dead.
    /// Those that are not dead stay for the process that reattaches the arena.
    pub(crate) fn leave(
        &self,
        segment: &Weak<dyn Occupant>,
        chunks: &BTreeMap<u32, usize>,
        are_dead: bool,
    ) {
        for (&chunk, &blocks) in chunks {
            let is_empty = self.with_pool(|pool| {
                pool.leave(chunk, segment);
                are_dead && pool.count_dead(chunk, blocks)
            });
            if is_empty == Some(true) {
                self.retire(chunk);
            }
        }
    }

    /// From here on no look-up finds the chunk.
    fn retire(&self, chunk: u32) {
        self.memory.store(chunk_at(chunk), 0);
        let number = self.guards.retire();
        self.with_pool(|pool| pool.retire(number, chunk));
    }

    /// Whether this many chunks are free; others may carve them first.
    pub(crate) fn has_free(&self, chunks: usize, is_transient: bool) -> bool {
        let (free, transient) = self.chunks_now();
        let may_be = !is_transient || transient + chunks <= self.transient_max();
        may_be && free >= chunks
    }

    /// Whether one more chunk may be carved, if one is free.
    pub(crate) fn allows_chunk(&self, is_transient: bool) -> bool {
        !is_transient || self.chunks_now().1 < self.transient_max()
    }

    /// For an append that finds nothing free and may not grow: frees what it can without waiting.
    pub(crate) fn reclaim_now(&self, bytes: usize) {
        for _ in 0..=bytes / CHUNK_BYTES {
            if !self.reclaim(false) {
                break;
            }
        }
        self.collect();
    }

    /// Frees chunks without readers. Returns how many are free now.
    pub(crate) fn collect(&self) -> usize {
        let collected = self.with_pool(|pool| {
            pool.collect(self.guards.passed());
            pool.free()
        });
        collected.unwrap_or(0)
    }

    /// Free chunks, and those that will be free when the guards have passed.
    pub(crate) fn free_soon(&self) -> usize {
        self.with_pool(|pool| pool.free() + pool.retired())
            .unwrap_or(0)
    }

    pub(crate) fn rewind(&self) {
        self.with_pool(Pool::rewind);
    }

    /// Chunks that hold something that is kept.
    pub(crate) fn carved(&self) -> usize {
        self.with_pool(|pool| pool.carved()).unwrap_or(0)
    }

    /// Reclaims the oldest unneeded chunk; false when there is none. Without `may_wait` it looks at
    /// a few only, and skips those in use.
    pub(crate) fn reclaim(&self, may_wait: bool) -> bool {
        let mut tries = match may_wait {
            true => self.carved().min(TRIES_MAX),
            false => TRIES_OF_APPEND,
        };
        while tries > 0 {
            tries -= 1;
            let Some(candidate) = self.with_pool(Pool::take_oldest).flatten() else {
                return false;
            };
            if self.reclaim_one(candidate, may_wait) {
                self.counters.reclaimed.fetch_add(1, Ordering::Relaxed);
                return true;
            }
        }
        false
    }

    /// Reclaims a chunk most of whose blocks are dead; false when there is none.
    pub(crate) fn reclaim_sparse(&self) -> bool {
        while let Some(sparse) = self.with_pool(Pool::take_sparse).flatten() {
            if self.reclaim_one(sparse, true) {
                return true;
            }
        }
        false
    }

    fn reclaim_one(&self, mut candidate: Candidate, may_wait: bool) -> bool {
        let chunk = candidate.chunk;
        // Either everything in the chunk is forgotten, or nothing.
        let is_needed = |one: &Tenant| match one.segment.upgrade() {
            Some(segment) => segment.needs(chunk, may_wait),
            None => self.is_current(one.slot),
        };
        if !candidate.tenants.iter().any(is_needed) {
            candidate.tenants.retain(|one| match one.segment.upgrade() {
                Some(segment) => !segment.release(chunk, may_wait),
                None => self.is_current(one.slot),
            });
            if candidate.tenants.is_empty() {
                self.retire(chunk);
                return true;
            }
        }
        self.with_pool(|pool| pool.put_back(candidate));
        false
    }
}
