//! Attaches to an arena that an earlier process left, and finds what it holds.

use std::collections::{BTreeMap, HashMap, VecDeque};
use std::fs::File;
use std::path::Path;
use std::sync::Arc;

use crate::arena::{Arena, chunks};
use crate::backing::{Backing, Pages, pages_of};
use crate::error::ArenaError;
use crate::header::{self, Header, Identity};
use crate::layout::{
    BLOCK_COMMITTED, BLOCK_CRC, BLOCK_FIXED, BLOCK_GENERATION, BLOCK_POSITION, BLOCK_SEGMENT,
    BLOCK_SLOT, BLOCK_WRITTEN, CHUNK_CLASS, CHUNK_SEQUENCE, CLASS_BLOCKS, CLASSES, HEADER_LEFT,
    HEADER_POPULATED, HEADER_SLOTS, SLOTS, block_at, chunk_at, payload_bytes, unguarded,
};
use crate::memory::Memory;
use crate::pool::{Carved, Tenant};
use crate::segment::{Block, CachedSegment};
use crate::slots::{self, PartitionName, Slot, Slots};
use crate::sync::planted;

/// What a reattached arena holds of one partition, by segment.
#[derive(Debug)]
pub struct FoundPartition {
    /// Its slot.
    pub slot: Slot,
    /// Segments that have blocks, by base offset.
    pub segments: BTreeMap<i64, Arc<CachedSegment>>,
    /// Why it must not be used, if so.
    pub damage: Option<String>,
}

/// All partitions found.
pub type Found = HashMap<PartitionName, FoundPartition>;

impl Arena {
    /// Reattaches an arena that an earlier life left, and returns what it holds.
    ///
    /// # Errors
    /// Not the one that `identity` names, damaged, or in use.
    pub fn attach(
        path: &Path,
        identity: Identity,
        limit_bytes: u64,
    ) -> Result<(Arc<Arena>, Found), ArenaError> {
        let (file, header) = Self::open(path, identity)?;
        Self::take_up(file, path, &header, limit_bytes)
    }

    /// Like [`Arena::attach`], for an arena that an orderly end left. It may grow to `limit_bytes`,
    /// whatever it was made for.
    ///
    /// # Errors
    /// As [`Arena::attach`].
    pub fn attach_kept(
        path: &Path,
        identity: Identity,
        limit_bytes: u64,
    ) -> Result<(Arc<Arena>, Found), ArenaError> {
        let (file, mut header) = Self::open(path, identity)?;
        if !header.is_kept {
            let reason = format!("{} was not left by an orderly end", path.display());
            return Err(ArenaError::Foreign(reason));
        }
        if chunks(limit_bytes) > header.capacity {
            header.capacity = chunks(limit_bytes);
            header::enlarge(&file, header.capacity)?;
        }
        Self::take_up(file, path, &header, limit_bytes)
    }

    fn take_up(
        file: File,
        path: &Path,
        header: &Header,
        limit_bytes: u64,
    ) -> Result<(Arc<Arena>, Found), ArenaError> {
        let arena = Self::map(file, path, header)?;
        if header.is_kept {
            arena.memory.store_wide(HEADER_LEFT, 0);
        }
        arena.set_limit(limit_bytes);
        let found = scan(&arena, header.version).map_err(ArenaError::Foreign)?;
        Ok((arena, found))
    }
}

/// A block that counts, and its owner.
pub(crate) struct FoundBlock {
    pub slot: u32,
    pub base_offset: i64,
    pub block: Block,
    pub damage: Option<String>,
}

/// What an arena's memory says.
pub(crate) struct Seen {
    slots: u32,
    /// Chunks from here on never had memory.
    ever: u32,
    names: HashMap<PartitionName, u32>,
    /// Sequence, number and class of the chunks that hold blocks.
    chunks: Vec<(u64, u32, u8)>,
    /// Chunks with memory and without blocks.
    free: Vec<u32>,
    /// Chunks to be treated as if they had no memory.
    holes: Vec<u32>,
    pub blocks: Vec<FoundBlock>,
}

/// Reads and takes over everything. The error says why the arena as a whole cannot be trusted.
fn scan(arena: &Arc<Arena>, version: u32) -> Result<Found, String> {
    let seen = inspect(&arena.memory, arena.file.as_ref(), arena.capacity)?;
    let by_slot = by_slot(&seen.names);
    let found = gather(arena, seen.blocks, &by_slot);
    let tenants = tenants_of(&found);
    let idle: Vec<u32> = seen
        .names
        .iter()
        .filter(|(name, _)| !found.contains_key(name))
        .map(|(_, slot)| *slot)
        .collect();
    let mut slots = Slots::found(seen.names, seen.slots);
    for index in idle {
        // The slot has no bytes here, and nothing says whether its partition still exists.
        slots.release(&arena.memory, slots::slot(&arena.memory, index));
    }
    for chunk in &seen.holes {
        // If this fails, the chunk is populated again one day.
        let _gone_or_not = arena.punch(*chunk);
    }
    let populated = seen.ever - seen.holes.len() as u32;
    let backing = Backing::found(seen.ever, seen.holes.into_iter(), version);
    arena.install(slots, (backing, populated), |pool| {
        pool.found(seen.ever, &seen.chunks, tenants, seen.free.into_iter());
    });
    Ok(found)
}

/// Reads everything, changes nothing.
pub(crate) fn inspect(memory: &Memory, file: Option<&File>, capacity: u32) -> Result<Seen, String> {
    let ever = unguarded(memory.load_wide(HEADER_POPULATED))
        .filter(|count| *count <= capacity)
        .ok_or("the number of its chunks is damaged")?;
    let (slots, names) = scan_slots(memory)?;
    let by_slot = by_slot(&names);
    let mut seen = Seen {
        slots,
        ever,
        names,
        chunks: Vec::new(),
        free: Vec::new(),
        holes: Vec::new(),
        blocks: Vec::new(),
    };
    for (chunk, pages) in (0..).zip(pages_of(file, ever)) {
        // Looking at a missing page would make one.
        if pages == Pages::NoFirst {
            seen.holes.push(chunk);
            continue;
        }
        let at = chunk_at(chunk);
        let first = seen.blocks.len();
        if memory.load(at) != 0 {
            scan_chunk(memory, chunk, &by_slot, &mut seen.blocks)?;
        }
        if seen.blocks.len() > first {
            let sequence = memory.load_wide(at + CHUNK_SEQUENCE);
            let class = memory.load(at + CHUNK_CLASS) as u8;
            seen.chunks.push((sequence, chunk, class));
        } else if pages == Pages::All {
            seen.free.push(chunk);
        } else {
            seen.holes.push(chunk);
        }
    }
    seen.chunks.sort_unstable();
    Ok(seen)
}

fn by_slot(names: &HashMap<PartitionName, u32>) -> HashMap<u32, PartitionName> {
    let pairs = names.iter();
    pairs.map(|(name, slot)| (*slot, name.clone())).collect()
}

/// The number of slots that have memory, and those in use.
pub(crate) fn scan_slots(memory: &Memory) -> Result<(u32, HashMap<PartitionName, u32>), String> {
    let populated = unguarded(memory.load_wide(HEADER_SLOTS))
        .filter(|count| *count as usize <= SLOTS)
        .ok_or("the number of its slots is damaged")?;
    let mut names = HashMap::new();
    for index in 0..populated {
        if let Some(name) = slots::load(memory, index)?
            && names.insert(name, index).is_some()
        {
            return Err(format!("slot {index} repeats a partition"));
        }
    }
    Ok((populated, names))
}

fn scan_chunk(
    memory: &Memory,
    chunk: u32,
    by_slot: &HashMap<u32, PartitionName>,
    into: &mut Vec<FoundBlock>,
) -> Result<(), String> {
    let class = memory.load(chunk_at(chunk) + CHUNK_CLASS);
    if memory.load(chunk_at(chunk)) != 1 || class as usize >= CLASSES {
        return Err(format!("chunk {chunk} has a damaged header"));
    }
    for index in 0..CLASS_BLOCKS[class as usize] as u16 {
        let at = block_at(chunk, index);
        match memory.load(at) {
            0 => continue,
            1 => {}
            state => return Err(format!("block {index} of chunk {chunk} has state {state}")),
        }
        let fixed = memory.load_bytes(at + BLOCK_FIXED.start, BLOCK_FIXED.len());
        if memory.load(at + BLOCK_CRC) != crc_fast::crc32_iscsi(&fixed) {
            return Err(format!(
                "block {index} of chunk {chunk} has a wrong checksum"
            ));
        }
        let slot = memory.load(at + BLOCK_SLOT);
        let generation = memory.load(at + BLOCK_GENERATION);
        let is_current = slots::slot(memory, slot).generation == generation;
        if !by_slot.contains_key(&slot) || !(is_current || planted!(GenerationIgnored)) {
            continue;
        }
        let carved = Carved {
            chunk,
            index,
            class: class as u8,
            is_transient: false,
        };
        into.push(load_block(memory, at, slot, carved));
    }
    Ok(())
}

fn load_block(memory: &Memory, at: usize, slot: u32, carved: Carved) -> FoundBlock {
    let committed = unguarded(memory.load_wide(at + BLOCK_COMMITTED));
    let written = unguarded(memory.load_wide(at + BLOCK_WRITTEN));
    let position = memory.load(at + BLOCK_POSITION);
    let fits = |len: &u32| {
        *len as usize <= payload_bytes(carved.class.into(), position)
            && position.checked_add(*len).is_some()
    };
    let (len, written, damage) = match (committed.filter(fits), written) {
        (Some(len), Some(written)) if written <= len => (len, written, None),
        _ => {
            let damage = format!(
                "block {} of chunk {} has damaged lengths",
                carved.index, carved.chunk
            );
            (0, 0, Some(damage))
        }
    };
    FoundBlock {
        slot,
        base_offset: memory.load_wide(at + BLOCK_SEGMENT) as i64,
        block: Block {
            position,
            len,
            written,
            at: carved,
            is_cut: false,
        },
        damage,
    }
}

fn gather(
    arena: &Arc<Arena>,
    mut blocks: Vec<FoundBlock>,
    by_slot: &HashMap<u32, PartitionName>,
) -> Found {
    blocks.sort_by_key(|found| (found.slot, found.base_offset, found.block.position));
    let mut found = Found::new();
    // A block that was begun and never filled may stand where a later one does.
    blocks.retain(|found| found.block.len > 0 || found.damage.is_some());
    for of_slot in blocks.chunk_by(|one, other| one.slot == other.slot) {
        let slot = slots::slot(&arena.memory, of_slot[0].slot);
        let damage = damage(of_slot);
        let mut segments = BTreeMap::new();
        for of_segment in of_slot.chunk_by(|one, other| one.base_offset == other.base_offset) {
            let base_offset = of_segment[0].base_offset;

            let blocks: VecDeque<Block> = of_segment.iter().map(|found| found.block).collect();
            let segment = CachedSegment::new(arena, slot, base_offset, blocks);
            segments.insert(base_offset, segment);
        }
        let partition = FoundPartition {
            slot,
            segments,
            damage,
        };
        found.insert(by_slot[&slot.index].clone(), partition);
    }
    found
}

/// The damage of one partition's blocks, given in their order.
pub(crate) fn damage(blocks: &[FoundBlock]) -> Option<String> {
    let lengths = blocks.iter().find_map(|found| found.damage.clone());
    let is_over = |one: &FoundBlock, next: &FoundBlock| {
        (one.slot, one.base_offset) == (next.slot, next.base_offset)
            && one.block.position + one.block.len > next.block.position
    };
    lengths.or_else(|| {
        let filled: Vec<_> = blocks.iter().filter(|found| found.block.len > 0).collect();
        let mut pairs = filled.windows(2);
        let pair = pairs.find(|pair| is_over(pair[0], pair[1]))?;
        Some(format!("blocks of segment {} overlap", pair[0].base_offset))
    })
}

fn tenants_of(found: &Found) -> HashMap<u32, Vec<Tenant>> {
    let mut tenants: HashMap<u32, Vec<Tenant>> = HashMap::new();
    for segment in found.values().flat_map(|found| found.segments.values()) {
        for chunk in segment.chunks() {
            tenants.entry(chunk).or_default().push(Tenant {
                segment: segment.this.clone(),
                slot: segment.slot,
            });
        }
    }
    tenants
}
