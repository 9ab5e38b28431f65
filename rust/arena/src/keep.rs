//! What an orderly end leaves of an arena (`block-cache.md`, sections 2 and 3), and looking at an
//! unused one.

use std::collections::HashSet;
use std::fs::File;
use std::path::Path;

use crate::arena::Arena;
use crate::attach::{FoundBlock, damage, inspect, scan_slots};
use crate::error::ArenaError;
use crate::header::Identity;
use crate::layout::{HEADER_LEFT, HEADER_MARKER, SLOT_FILES, file_bytes, guarded, slot_at};
use crate::memory::Memory;
use crate::slots::{PartitionName, Slot};

/// What an unused arena holds. While this lives, no process can reattach it.
#[derive(Debug)]
pub struct Glance {
    /// Bytes of records.
    pub held_bytes: u64,
    /// Those of them that are not in files.
    pub unwritten_bytes: u64,
    /// Partitions that have unwritten bytes.
    pub unwritten_partitions: usize,
    /// What is wrong with one of its partitions.
    pub damage: Option<String>,
    _lock: File,
}

/// What an orderly end noted about the files beside an arena. While this lives, no process can
/// reattach it.
#[derive(Debug)]
pub struct LeftFiles {
    /// Hash of the directory's marker; 0 = not known.
    pub marker: u64,
    /// Hash of each partition's files, for those with a slot; 0 = its log was not closed.
    pub partitions: Vec<(PartitionName, u64)>,
    _lock: File,
}

impl Arena {
    /// What an orderly end noted in an unused arena; `None` if it had no orderly end. Changes
    /// nothing.
    ///
    /// # Errors
    /// As [`Arena::attach`].
    pub fn left_files(path: &Path, identity: Identity) -> Result<Option<LeftFiles>, ArenaError> {
        let (file, header) = Arena::open(path, identity)?;
        if !header.is_kept {
            return Ok(None);
        }
        let memory = Memory::map(&file, file_bytes(header.capacity))?;
        let slots = scan_slots(&memory).map_err(ArenaError::Foreign)?.1;
        let hash = |slot: u32| memory.load_wide(slot_at(slot) + SLOT_FILES);
        Ok(Some(LeftFiles {
            marker: memory.load_wide(HEADER_MARKER),
            partitions: slots
                .into_iter()
                .map(|(name, slot)| (name, hash(slot)))
                .collect(),
            _lock: file,
        }))
    }

    /// Looks at an unused arena, and changes nothing.
    ///
    /// # Errors
    /// As [`Arena::attach`].
    pub fn peek(path: &Path, identity: Identity) -> Result<Glance, ArenaError> {
        let (file, header) = Arena::open(path, identity)?;
        let memory = Memory::map(&file, file_bytes(header.capacity))?;
        let seen = inspect(&memory, Some(&file), header.capacity).map_err(ArenaError::Foreign)?;
        let mut blocks = seen.blocks;
        blocks.sort_by_key(|found| (found.slot, found.base_offset, found.block.position));
        let unwritten = |found: &FoundBlock| u64::from(found.block.len - found.block.written);
        let behind = blocks.iter().filter(|found| unwritten(found) > 0);
        let behind: HashSet<u32> = behind.map(|found| found.slot).collect();
        Ok(Glance {
            held_bytes: blocks.iter().map(|found| u64::from(found.block.len)).sum(),
            unwritten_bytes: blocks.iter().map(unwritten).sum(),
            unwritten_partitions: behind.len(),
            damage: damage(&blocks),
            _lock: file,
        })
    }

    /// The partitions that have a slot.
    pub fn partitions(&self) -> Vec<(PartitionName, Slot)> {
        self.slots.lock().all(&self.memory)
    }

    /// The hash of the partition's files that an orderly end noted.
    pub fn files_hash(&self, slot: Slot) -> Option<u64> {
        let word = self.memory.load_wide(slot_at(slot.index) + SLOT_FILES);
        (word != 0).then_some(word)
    }

    /// Notes that everything in the arena is in the files, with a hash of each partition's files,
    /// and of the directory's marker (`marker`), which tells it from any other. Blocks of a
    /// partition that is not named, or whose hash is 0, do not count for the next life. Nothing is
    /// appended any more.
    pub fn mark_left(&self, marker: u64, mut hash_of: impl FnMut(&PartitionName) -> u64) {
        self.close();
        for (name, slot) in self.partitions() {
            let at = slot_at(slot.index) + SLOT_FILES;
            self.memory.store_wide(at, hash_of(&name));
        }
        self.memory.store_wide(HEADER_MARKER, marker);
        self.memory.store_wide(HEADER_LEFT, guarded(1));
    }

    /// Gives memory back until at most `chunks` of 1 MiB have any, and none of them is empty: the
    /// free ones, then the oldest written ones. Nothing may be appended meanwhile.
    pub fn trim(&self, chunks: u32) {
        self.check_all();
        self.set_allowance(0);
        self.rewind();
        loop {
            self.collect();
            // Without giving back, reclaiming gains nothing.
            let is_refused = self.give_back(usize::MAX).is_err();
            let is_enough = is_refused || self.populated() <= chunks;
            if is_enough || !(self.reclaim_sparse() || self.reclaim(true)) {
                return;
            }
        }
    }
}
