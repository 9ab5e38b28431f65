//! A log's use of the block cache.

use std::sync::Arc;

use pyrklog_arena::{Arena, FoundPartition, PartitionName, Rate, Slot};

use crate::config::LogConfig;
use crate::dir_cache::{FoundSegments, has_unwritten};
use crate::segment::Segment;

/// How a log uses the arena of its directory.
#[derive(Debug)]
pub(crate) struct LogCache {
    arena: Arc<Arena>,
    name: PartitionName,
    slot: Option<Slot>,
    /// Whether the log has producers; recorded in the slot as well.
    has_producers: bool,
    rate: Rate,
    now_ms: i64,
}

/// Whether the options let an append be acknowledged before it is in the file: `flush.messages` and
/// `flush.ms` are at their defaults.
pub(crate) fn may_go_behind(config: &LogConfig) -> bool {
    config.flush_messages == i64::MAX && config.flush_ms == i64::MAX
}

impl LogCache {
    /// For a log whose blocks were reattached (`found`), or has no usable ones. Blocks of an earlier
    /// opening were written when it ended. They are invalidated, since the files may have been
    /// truncated since.
    pub fn new(
        arena: &Arc<Arena>,
        name: PartitionName,
        found: Option<Slot>,
        has_producers: bool,
    ) -> LogCache {
        let known = || Some(arena.kill_blocks(arena.known_slot(&name)?));
        let slot = found.or_else(known);
        if let Some(slot) = slot {
            arena.set_producers(slot, has_producers);
        }
        LogCache {
            arena: Arc::clone(arena),
            name,
            slot,
            has_producers,
            rate: Rate::default(),
            now_ms: 0,
        }
    }

    /// Records that the log has a producer before its batch can be found after a kill.
    pub fn note_producer(&mut self) {
        if std::mem::replace(&mut self.has_producers, true) {
            return;
        }
        if let Some(slot) = self.slot {
            self.arena.set_producers(slot, true);
        }
    }

    pub fn set_now(&mut self, now_ms: i64) {
        self.now_ms = now_ms;
    }

    /// Sends further batches to chunks that are given up once written, or to chunks kept for
    /// readers.
    pub fn set_transient(&mut self, is_transient: bool) {
        self.rate.is_transient = is_transient;
    }

    /// Copies bytes at `position` of the segment into the cache; false if that is not possible now.
    pub fn append(&mut self, segment: &Arc<Segment>, position: u32, bytes: &[u8]) -> bool {
        if !self.arena.is_open() {
            return false;
        }
        let Some(slot) = self.slot() else {
            return false;
        };
        let base_offset = segment.base_offset();
        let cached = segment.cached_or(|| self.arena.segment(slot, base_offset));
        cached.append(&mut self.rate, position, bytes, self.now_ms)
    }

    fn slot(&mut self) -> Option<Slot> {
        if self.slot.is_none() {
            let slot = self.arena.slot(&self.name)?;
            self.arena.set_producers(slot, self.has_producers);
            self.slot = Some(slot);
        }
        self.slot
    }

    /// What the arena has of `segments`, which are the log's; `None` if all of it is in the files.
    pub fn unwritten(&self, segments: &[Arc<Segment>]) -> Option<(&PartitionName, FoundPartition)> {
        let with_blocks = segments
            .iter()
            .filter_map(|segment| Some((segment.base_offset(), Arc::clone(segment.cached()?))));
        let segments: FoundSegments = with_blocks.collect();
        let found = FoundPartition {
            slot: self.slot.filter(|_| has_unwritten(&segments))?,
            segments,
            damage: None,
        };
        Some((&self.name, found))
    }

    pub fn release(&self) {
        if let Some(slot) = self.slot {
            self.arena.release_slot(slot);
        }
    }

    /// Arena and slot, for a job that invalidates the blocks without the log's lock.
    pub fn slot_now(&self) -> Option<(Arc<Arena>, Slot)> {
        Some((Arc::clone(&self.arena), self.slot?))
    }

    pub fn set_slot(&mut self, slot: Slot) {
        self.slot = Some(slot);
    }
}
