//! Shares of an arena, and the block sizes that follow.

use std::sync::atomic::{AtomicU8, AtomicUsize, Ordering};

use crate::layout::{CHUNK_BYTES, CLASSES, area_bytes};

/// Part of the arena's cap that blocks that are not full may take up.
const OPEN_SHARE: usize = 4;

/// Part of the held bytes that they may take up: they are memory that holds nothing yet.
const OPEN_HELD_SHARE: usize = 8;

/// They may take up this much where little is held.
const OPEN_MIN_BYTES: usize = 16 << 20;

/// Part of the arena's cap that transient chunks (followers' appends, until they are written) may
/// take up; and part of these that blocks that are not full may take up.
const TRANSIENT_SHARE: usize = 10;
const TRANSIENT_OPEN_SHARE: usize = 2;

/// The largest classes that blocks may have now.
#[derive(Debug)]
pub(crate) struct ClassBounds {
    /// Each has one block that is not full.
    partitions: AtomicUsize,
    /// By what is held.
    held: AtomicU8,
    /// By the cap.
    cap: AtomicU8,
    transient: AtomicU8,
}

impl Default for ClassBounds {
    fn default() -> ClassBounds {
        let largest = || AtomicU8::new(CLASSES as u8 - 1);
        ClassBounds {
            partitions: AtomicUsize::new(0),
            held: largest(),
            cap: largest(),
            transient: largest(),
        }
    }
}

/// The largest class of which `blocks` blocks fit into `bytes`, else the smallest.
fn largest(blocks: usize, bytes: usize) -> u8 {
    let fits = |class: &usize| area_bytes(*class) * blocks <= bytes;
    (1..CLASSES).take_while(fits).last().unwrap_or(0) as u8
}

impl ClassBounds {
    /// The number of partitions that have a slot.
    pub fn set_partitions(&self, partitions: usize) {
        self.partitions.store(partitions, Ordering::Relaxed);
    }

    /// Each partition has one block that is not full. All of them together may take up only a part
    /// of what is held, and of the cap.
    pub fn update(&self, held_bytes: u64, limit_chunks: u32) {
        let partitions = self.partitions.load(Ordering::Relaxed);
        let store = |bound: &AtomicU8, bytes| {
            bound.store(largest(partitions, bytes), Ordering::Relaxed);
        };
        let held_bytes = usize::try_from(held_bytes).unwrap_or(usize::MAX);
        let of_held = (held_bytes / OPEN_HELD_SHARE).max(OPEN_MIN_BYTES);
        store(&self.held, of_held);
        store(&self.cap, limit_chunks as usize * CHUNK_BYTES / OPEN_SHARE);
        let of_transient = transient_max(limit_chunks) * CHUNK_BYTES / TRANSIENT_OPEN_SHARE;
        store(&self.transient, of_transient);
    }

    /// The largest class for the next block of a partition that has appended `appended_bytes`.
    pub fn class_max(&self, is_transient: bool, appended_bytes: u64) -> u8 {
        if is_transient {
            return self.transient.load(Ordering::Relaxed);
        }
        let own_bytes = usize::try_from(appended_bytes).unwrap_or(usize::MAX) / OPEN_HELD_SHARE;
        let held = self.held.load(Ordering::Relaxed);
        let cap = self.cap.load(Ordering::Relaxed);
        held.max(largest(1, own_bytes)).min(cap)
    }
}

/// How many chunks may be transient.
pub(crate) fn transient_max(limit_chunks: u32) -> usize {
    (limit_chunks as usize / TRANSIENT_SHARE).max(1)
}
