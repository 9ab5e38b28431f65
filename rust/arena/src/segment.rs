//! The blocks that hold bytes of one segment.

use std::collections::{BTreeMap, BTreeSet, HashSet, VecDeque};
use std::io::IoSlice;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Weak};

use crate::arena::Arena;
use crate::guard::Guard;
use crate::layout::{
    BLOCK_COMMITTED, BLOCK_CRC, BLOCK_FIXED, BLOCK_GENERATION, BLOCK_POSITION, BLOCK_SEGMENT,
    BLOCK_SLOT, BLOCK_WRITTEN, CLASSES, area_at, block_at, guarded, lead_bytes, payload_bytes,
};
use crate::pool::{Carved, Occupant};
use crate::slots::Slot;
use crate::sync::{Mutex, MutexGuard, planted};

/// A block that fills within this time makes the next one larger.
const FAST_MS: i64 = 1_000;

/// A block that takes longer than this makes the next one smaller.
const SLOW_MS: i64 = 10_000;

/// How often an append populates chunks before it reclaims used ones.
const GROWTH_TRIES: usize = 3;

/// How fast a partition fills its blocks, which decides the size of the next one.
#[derive(Clone, Copy, Debug, Default)]
pub struct Rate {
    /// Appended bytes stay only until they are written. All transient bytes together take up a
    /// tenth of the arena at most.
    pub is_transient: bool,
    class: u8,
    begun_ms: Option<i64>,
    /// By this partition, ever.
    appended_bytes: u64,
}

impl Rate {
    /// The class, at most `largest`, of a block that begins now at `position` with `len` bytes at
    /// hand.
    fn next(&mut self, position: u32, len: usize, largest: u8, now_ms: i64) -> u8 {
        if let Some(begun_ms) = self.begun_ms {
            match now_ms.saturating_sub(begun_ms) {
                ..FAST_MS => self.class += 1,
                SLOW_MS.. => self.class = self.class.saturating_sub(1),
                _ => {}
            }
        }
        self.begun_ms = Some(now_ms);
        self.class = self.class.min(largest);
        let is_short = |class: u8| payload_bytes(class.into(), position) < len;
        while self.class < largest && is_short(self.class) {
            self.class += 1;
        }
        self.class
    }
}

/// Contiguous bytes of a segment.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Block {
    /// Position of the first byte in the segment's `.log`.
    pub position: u32,
    pub len: u32,
    pub written: u32,
    pub at: Carved,
    /// Bytes behind its end may still be lent: nothing is added to it any more.
    pub is_cut: bool,
}

impl Block {
    fn end(&self) -> u32 {
        self.position + self.len
    }

    pub(crate) fn payload(&self) -> usize {
        area_at(self.at.chunk, self.at.class, self.at.index)
            + lead_bytes(self.at.class.into(), self.position)
    }

    fn descriptor(&self) -> usize {
        block_at(self.at.chunk, self.at.index)
    }

    fn room(&self) -> usize {
        if self.is_cut {
            return 0;
        }
        payload_bytes(self.at.class.into(), self.position) - self.len as usize
    }
}

/// See the module. Shared by the log that appends and all readers.
#[derive(Debug)]
pub struct CachedSegment {
    arena: Arc<Arena>,
    pub(crate) slot: Slot,
    base_offset: i64,
    /// By position, with possible gaps.
    blocks: Mutex<VecDeque<Block>>,
    is_forgotten: AtomicBool,
    pub(crate) this: Weak<dyn Occupant>,
}

impl CachedSegment {
    pub(crate) fn new(
        arena: &Arc<Arena>,
        slot: Slot,
        base_offset: i64,
        blocks: VecDeque<Block>,
    ) -> Arc<CachedSegment> {
        arena
            .counters
            .count_held(blocks.iter().map(|block| i64::from(block.len)).sum());
        Arc::new_cyclic(|this| CachedSegment {
            arena: Arc::clone(arena),
            slot,
            base_offset,
            blocks: Mutex::new(blocks),
            is_forgotten: AtomicBool::new(false),
            this: this.clone() as Weak<dyn Occupant>,
        })
    }

    /// Base offset of the segment.
    pub fn base_offset(&self) -> i64 {
        self.base_offset
    }

    /// The arena.
    pub fn arena(&self) -> &Arc<Arena> {
        &self.arena
    }

    /// Adds bytes at `position` of the segment: all of them, or none (false) when no block is free
    /// or the arena is closed. Only the log that owns the segment calls this, and positions rise.
    pub fn append(&self, rate: &mut Rate, position: u32, bytes: &[u8], now_ms: i64) -> bool {
        if !self.arena.is_open() || self.is_dead() {
            return false;
        }
        let mut is_done = self.try_append(rate, position, bytes, now_ms);
        if !is_done && self.arena.allows_chunk(rate.is_transient) {
            // Other appends may take what was populated for this one.
            for _ in 0..GROWTH_TRIES {
                if is_done || !self.arena.grow_now(bytes.len()) {
                    break;
                }
                is_done = self.try_append(rate, position, bytes, now_ms);
            }
            if !is_done {
                self.arena.reclaim_now(bytes.len());
                is_done = self.try_append(rate, position, bytes, now_ms);
            }
        }
        if is_done {
            rate.appended_bytes += bytes.len() as u64;
            self.arena.counters.count_held(bytes.len() as i64);
            self.arena
                .counters
                .count_appended(bytes.len(), rate.is_transient);
        } else {
            self.arena.counters.refused.fetch_add(1, Ordering::Relaxed);
        }
        is_done
    }

    fn try_append(&self, rate: &mut Rate, position: u32, bytes: &[u8], now_ms: i64) -> bool {
        let is_transient = rate.is_transient;
        let mut blocks = self.blocks.lock();
        let continues =
            |last: &&Block| last.end() == position && last.at.is_transient == is_transient;
        let last = blocks.back().filter(continues);
        let room = last.map_or(0, Block::room).min(bytes.len());
        let chunks = (bytes.len() - room).div_ceil(payload_bytes(CLASSES - 1, position));
        if chunks > 1 && !self.arena.has_free(chunks, is_transient) {
            // Taking the few that are free would only make them useless until they are reclaimed.
            return false;
        }
        let first = blocks.len() - usize::from(room > 0);
        let count = blocks.len();
        let mut begun = room;
        while begun < bytes.len() {
            let left = bytes.len() - begun;
            let position = position + begun as u32;
            let largest = self
                .arena
                .class_bounds
                .class_max(is_transient, rate.appended_bytes);
            let class = rate.next(position, left, largest, now_ms);
            let carved = self
                .arena
                .carve(class, (&self.this, self.slot), is_transient);
            let Some(at) = carved else {
                // Blocks given out stay unused until their chunk is reclaimed.
                let unused = blocks.split_off(count);
                self.let_go(&blocks, unused);
                return false;
            };
            let block = Block {
                position,
                len: 0,
                written: 0,
                at,
                is_cut: false,
            };
            begun += left.min(block.room());
            blocks.push_back(block);
        }
        for block in blocks.iter().skip(count) {
            self.begin(block);
        }
        let mut rest = bytes;
        for block in blocks.iter_mut().skip(first) {
            let (now, later) = rest.split_at(rest.len().min(block.room()));
            self.fill(block, now);
            rest = later;
        }
        true
    }

    fn begin(&self, block: &Block) {
        let memory = &self.arena.memory;
        let at = block.descriptor();
        if planted!(StateFirst) {
            memory.store(at, 1);
        }
        memory.store(at + BLOCK_SLOT, self.slot.index);
        memory.store(at + BLOCK_GENERATION, self.slot.generation);
        memory.store(at + BLOCK_POSITION, block.position);
        memory.store_bytes(at + BLOCK_SEGMENT, &self.base_offset.to_le_bytes());
        let fixed = memory.load_bytes(at + BLOCK_FIXED.start, BLOCK_FIXED.len());
        memory.store(at + BLOCK_CRC, crc_fast::crc32_iscsi(&fixed));
        memory.store_wide(at + BLOCK_COMMITTED, guarded(0));
        memory.store_wide(at + BLOCK_WRITTEN, guarded(0));
        memory.store(at, 1);
    }

    fn fill(&self, block: &mut Block, bytes: &[u8]) {
        let memory = &self.arena.memory;
        if planted!(CommittedFirst) {
            let len = block.len + bytes.len() as u32;
            memory.store_wide(block.descriptor() + BLOCK_COMMITTED, guarded(len));
        }
        // SAFETY: only the log that owns the segment appends to its blocks, and the lock that the
        // caller holds keeps them from being reclaimed; what lies behind `len` was never lent,
        // since a block that was cut is not added to.
        unsafe { memory.copy_in(block.payload() + block.len as usize, bytes) };
        block.len += bytes.len() as u32;
        memory.store_wide(block.descriptor() + BLOCK_COMMITTED, guarded(block.len));
    }

    /// Bytes from `position` on, as far as one block holds them; `None` where no block does. They
    /// stay as they are while the guard lives.
    ///
    /// # Panics
    /// For a guard of another arena.
    pub fn slice<'g>(&'g self, guard: &'g Guard<'_>, position: u32) -> Option<&'g [u8]> {
        assert!(guard.is_of(&self.arena.guards), "a guard of another arena");
        let block = find(&self.blocks.lock(), position)?;
        let from = (position - block.position) as usize;
        // SAFETY: committed bytes are not written to while their block is carved, and it is not
        // carved anew while a guard lives under which it was found.
        let bytes = unsafe { self.arena.memory.lend(block.payload(), block.len as usize) };
        Some(&bytes[from..])
    }

    /// Copies bytes from `position` on, as many as one block holds and fit; 0 where no block holds
    /// them.
    pub fn copy(&self, position: u32, buffer: &mut [u8]) -> usize {
        let guard = self.arena.enter();
        let mut done = 0;
        while done < buffer.len() {
            let Some(bytes) = self.slice(&guard, position + done as u32) else {
                break;
            };
            let count = bytes.len().min(buffer.len() - done);
            buffer[done..done + count].copy_from_slice(&bytes[..count]);
            done += count;
        }
        done
    }

    /// Exactly the bytes between two positions, for the writer. `None` if any is missing.
    pub fn range<'g>(
        &'g self,
        guard: &'g Guard<'_>,
        from: u32,
        to: u32,
    ) -> Option<Vec<IoSlice<'g>>> {
        let mut slices = Vec::new();
        let mut at = from;
        while at < to {
            let bytes = self.slice(guard, at)?;
            let bytes = &bytes[..bytes.len().min((to - at) as usize)];
            at += bytes.len() as u32;
            slices.push(IoSlice::new(bytes));
        }
        Some(slices)
    }

    /// The lowest position, not above `position` and not below `least`, from which all bytes up to
    /// `position` are here.
    pub fn reaches_back(&self, position: u32, least: u32) -> u32 {
        let blocks = self.blocks.lock();
        let mut start = position;
        for block in blocks.iter().rev() {
            if block.position >= start {
                continue;
            }
            if block.end() < start {
                break;
            }
            start = block.position.max(least);
            if start == least {
                break;
            }
        }
        start
    }

    /// Everything before `position` is in the file.
    pub fn set_written(&self, position: u32) {
        let memory = &self.arena.memory;
        let mut blocks = self.blocks.lock();
        let end = blocks.partition_point(|block| block.position < position);
        let is_marked = |block: &&Block| block.written >= block.len.min(position - block.position);
        let marked = blocks
            .range(..end)
            .rev()
            .position(|block| is_marked(&block));
        // In order of position: a kill in between leaves no unwritten block before a written one,
        // which could be reclaimed.
        let first = end - marked.unwrap_or(end);
        for block in blocks.range_mut(first..end) {
            block.written = block.len.min(position - block.position);
            memory.store_wide(block.descriptor() + BLOCK_WRITTEN, guarded(block.written));
        }
        let mut given_up = Vec::new();
        let mut gone_bytes = 0;
        for index in (first..end).rev() {
            let block = blocks[index];
            let is_written = block.written >= block.len || planted!(UnwrittenReclaimed);
            if block.at.is_transient && is_written {
                given_up.push(block.at.chunk);
                gone_bytes += i64::from(block.len);
                blocks.remove(index);
            }
        }
        drop(blocks);
        self.arena.counters.count_held(-gone_bytes);
        self.arena.give_up(&given_up);
    }

    /// The first position that is not in the file; `None` when all are.
    pub fn unwritten_from(&self) -> Option<u32> {
        let blocks = self.blocks.lock();
        let block = blocks.iter().find(|block| block.written < block.len)?;
        Some(block.position + block.written)
    }

    /// Bytes that are not in the file.
    pub fn unwritten_bytes(&self) -> u64 {
        let blocks = self.blocks.lock();
        blocks.iter().map(|b| u64::from(b.len - b.written)).sum()
    }

    /// The position after the last byte held.
    pub fn end(&self) -> Option<u32> {
        self.blocks.lock().back().map(Block::end)
    }

    /// Whether all bytes between two positions are held.
    pub fn holds(&self, from: u32, to: u32) -> bool {
        let blocks = self.blocks.lock();
        let mut at = from;
        while at < to {
            let Some(block) = find(&blocks, at) else {
                return false;
            };
            at = block.end();
        }
        true
    }

    /// Forgets what stands at `position` and behind it, before the first append to a reattached
    /// log. A reader that was lent some of it reads it unchanged while the guard lives.
    pub fn cut(&self, position: u32) {
        let memory = &self.arena.memory;
        let mut blocks = self.blocks.lock();
        let mut gone = VecDeque::new();
        while let Some(last) = blocks.back_mut() {
            if last.end() <= position {
                break;
            }
            let gone_bytes = last.end() - position.max(last.position);
            self.arena.counters.count_held(-i64::from(gone_bytes));
            if last.position >= position {
                memory.store(last.descriptor(), 0);
                gone.extend(blocks.pop_back());
                continue;
            }
            last.len = position - last.position;
            last.written = last.written.min(last.len);
            last.is_cut = true;
            let at = last.descriptor();
            memory.store_wide(at + BLOCK_WRITTEN, guarded(last.written));
            memory.store_wide(at + BLOCK_COMMITTED, guarded(last.len));
        }
        self.let_go(&blocks, gone);
    }

    /// Gives up blocks that hold nothing of the segment any more. `kept` are its others: while they
    /// are locked, none of its chunks is reclaimed.
    fn let_go(&self, kept: &VecDeque<Block>, gone: VecDeque<Block>) {
        let mut given_up = Vec::new();
        let mut dead: BTreeMap<u32, usize> = BTreeMap::new();
        for Carved {
            chunk,
            is_transient,
            ..
        } in gone.into_iter().map(|block| block.at)
        {
            match is_transient {
                true => given_up.push(chunk),
                false => *dead.entry(chunk).or_default() += 1,
            }
        }
        self.arena.give_up(&given_up);
        dead.retain(|chunk, _| !kept.iter().any(|block| block.at.chunk == *chunk));
        self.arena.leave(&self.this, &dead, true);
    }

    /// The file is gone (retention): its written blocks are free once they have no readers.
    pub fn forget(&self) {
        self.is_forgotten.store(true, Ordering::Relaxed);
    }

    /// The chunks that hold its blocks.
    pub(crate) fn chunks(&self) -> HashSet<u32> {
        self.blocks.lock().iter().map(|b| b.at.chunk).collect()
    }

    fn is_dead(&self) -> bool {
        !self.arena.is_current(self.slot) && !planted!(GenerationIgnored)
    }

    fn lock_blocks(&self, may_wait: bool) -> Option<MutexGuard<'_, VecDeque<Block>>> {
        match may_wait {
            true => Some(self.blocks.lock()),
            false => self.blocks.try_lock(),
        }
    }

    fn needs_any(&self, blocks: &VecDeque<Block>, chunk: u32) -> bool {
        let is_needed = |block: &Block| {
            let is_here = block.at.chunk == chunk;
            is_here && block.written < block.len && !planted!(UnwrittenReclaimed)
        };
        !self.is_dead() && blocks.iter().any(is_needed)
    }
}

impl Occupant for CachedSegment {
    fn needs(&self, chunk: u32, may_wait: bool) -> bool {
        self.lock_blocks(may_wait)
            .is_none_or(|blocks| self.needs_any(&blocks, chunk))
    }

    fn release(&self, chunk: u32, may_wait: bool) -> bool {
        let Some(mut blocks) = self.lock_blocks(may_wait) else {
            return false;
        };
        if self.needs_any(&blocks, chunk) {
            return false;
        }
        let mut gone_bytes = 0;
        blocks.retain(|block| {
            let is_kept = block.at.chunk != chunk || planted!(ReclaimedFound);
            gone_bytes += if is_kept { 0 } else { i64::from(block.len) };
            is_kept
        });
        drop(blocks);
        self.arena.counters.count_held(-gone_bytes);
        true
    }
}

impl Drop for CachedSegment {
    /// Frees the blocks, except those whose bytes are only in the arena: a process that reattaches
    /// it after a kill finds them.
    fn drop(&mut self) {
        let is_dead = self.is_dead();
        let blocks = std::mem::take(&mut *self.blocks.lock());
        let mut given_up = Vec::new();
        let mut left: BTreeMap<u32, usize> = BTreeMap::new();
        let mut needed = BTreeSet::new();
        let mut held_bytes = 0;
        for block in &blocks {
            held_bytes += i64::from(block.len);
            match is_dead || block.written >= block.len {
                true if block.at.is_transient => given_up.push(block.at.chunk),
                true => *left.entry(block.at.chunk).or_default() += 1,
                false => {
                    needed.insert(block.at.chunk);
                }
            }
        }
        self.arena.counters.count_held(-held_bytes);
        self.arena.give_up(&given_up);
        left.retain(|chunk, _| !needed.contains(chunk));
        let are_dead = is_dead || self.is_forgotten.load(Ordering::Relaxed);
        self.arena.leave(&self.this, &left, are_dead);
    }
}

impl Arena {
    /// A segment without blocks.
    pub fn segment(self: &Arc<Self>, slot: Slot, base_offset: i64) -> Arc<CachedSegment> {
        CachedSegment::new(self, slot, base_offset, Default::default())
    }
}

fn find(blocks: &VecDeque<Block>, position: u32) -> Option<Block> {
    let after = blocks.partition_point(|block| block.position <= position);
    let block = blocks.get(after.checked_sub(1)?)?;
    (position < block.end()).then_some(*block)
}
