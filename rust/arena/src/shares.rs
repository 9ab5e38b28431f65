//! How much of an arena what may take up.

use std::sync::atomic::{AtomicU8, Ordering};

use crate::arena::Arena;
use crate::layout::{CHUNK_BYTES, CLASSES, area_bytes};
use crate::slots::Slots;

/// Of the arena, what blocks that are not full may take up.
const OPEN_SHARE: usize = 4;

/// Of the arena, what transient chunks may take up: followers' appends, until they are written. And of
/// these, blocks that are not full.
const TRANSIENT_SHARE: usize = 10;
const TRANSIENT_OPEN_SHARE: usize = 2;

/// The largest classes that blocks may have now.
#[derive(Debug)]
pub(crate) struct ClassBounds {
    kept: AtomicU8,
    transient: AtomicU8,
}

impl Default for ClassBounds {
    fn default() -> ClassBounds {
        let largest = CLASSES as u8 - 1;
        ClassBounds {
            kept: AtomicU8::new(largest),
            transient: AtomicU8::new(largest),
        }
    }
}

impl Arena {
    /// Each partition has one block that is not full: all of them together may take up a part of the
    /// arena only.
    pub(crate) fn bound_classes(&self, slots: &Slots) {
        let largest = |open_bytes: usize| {
            let fits = |class: &usize| area_bytes(*class) * slots.used() <= open_bytes;
            (1..CLASSES).take_while(fits).last().unwrap_or(0) as u8
        };
        let of_all = self.limit() as usize * CHUNK_BYTES / OPEN_SHARE;
        let bounds = self.class_bounds();
        bounds.kept.store(largest(of_all), Ordering::Relaxed);
        let of_transient = self.transient_max() * CHUNK_BYTES / TRANSIENT_OPEN_SHARE;
        bounds
            .transient
            .store(largest(of_transient), Ordering::Relaxed);
    }

    /// The largest class that blocks may have now.
    pub(crate) fn class_max(&self, is_transient: bool) -> u8 {
        let of = match is_transient {
            true => &self.class_bounds().transient,
            false => &self.class_bounds().kept,
        };
        of.load(Ordering::Relaxed)
    }

    /// How many chunks may be transient.
    pub(crate) fn transient_max(&self) -> usize {
        (self.limit() as usize / TRANSIENT_SHARE).max(1)
    }
}
