//! Chunks with memory: free, being carved, or waiting to be reclaimed.
//!
//! *Transient* chunks are in no queue: their blocks are counted, and a chunk is given up with its
//! last block.

use std::collections::{BTreeMap, HashMap, VecDeque};
use std::sync::Weak;

mod invariants;

use crate::layout::{CHUNK_CLASS, CHUNK_SEQUENCE, CLASS_BLOCKS, CLASSES, block_at, chunk_at};
use crate::memory::Memory;
use crate::slots::Slot;
use crate::sync::planted;

/// A chunk is *sparse* when this many quarters of its blocks are dead: it is reclaimed before
/// anything is populated.
const SPARSE_QUARTERS: usize = 3;

/// A chunk whose blocks are given out one after another.
#[derive(Clone, Copy, Debug)]
struct Open {
    chunk: u32,
    next: u16,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Carved {
    pub chunk: u32,
    pub index: u16,
    pub class: u8,
    /// Given up as soon as it is written.
    pub is_transient: bool,
}

/// An owner of blocks, asked before a chunk is reclaimed.
pub(crate) trait Occupant: Send + Sync + std::fmt::Debug {
    /// Whether the chunk holds anything that is in no file. Without `may_wait`, an occupant in use
    /// counts as such.
    fn needs(&self, chunk: u32, may_wait: bool) -> bool;

    /// Gives the chunk up if that loses nothing; whether it did.
    fn release(&self, chunk: u32, may_wait: bool) -> bool;
}

/// A segment that has blocks in a chunk.
#[derive(Clone, Debug)]
pub(crate) struct Tenant {
    pub segment: Weak<dyn Occupant>,
    /// The segment's slot. A segment that went without [`Pool::leave`] has bytes that are in no
    /// file: it is needed until its slot says that it is dead.
    pub slot: Slot,
}

/// The segments with blocks in a chunk.
#[derive(Debug, Default)]
struct Tenants {
    segments: Vec<Tenant>,
    /// Place in the queue; `None`: free, transient or about to be reclaimed.
    order: Option<u64>,
    class: u8,
    /// Blocks of segments that left.
    dead_blocks: usize,
    /// In the list of sparse chunks.
    is_listed: bool,
    /// Segments that left while the chunk was about to be reclaimed.
    left: Vec<Weak<dyn Occupant>>,
    /// Of a transient chunk: blocks given out and not given up.
    transient_blocks: usize,
}

impl Tenants {
    fn is_sparse(&self) -> bool {
        self.dead_blocks * 4 >= CLASS_BLOCKS[self.class as usize] * SPARSE_QUARTERS
    }
}

/// What a block is carved for.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Want<'a> {
    pub class: u8,
    pub tenant: &'a Weak<dyn Occupant>,
    pub slot: Slot,
    /// Set for a transient chunk: how many of them there may be.
    pub transient_max: Option<usize>,
}

/// A chunk about to be reclaimed, out of the queue.
#[derive(Debug)]
pub(crate) struct Candidate {
    pub chunk: u32,
    pub tenants: Vec<Tenant>,
    order: u64,
    open: Option<(usize, Open)>,
}

/// See the module. Under the arena's lock.
#[derive(Debug, Default)]
pub(crate) struct Pool {
    /// The most recently used one is carved first, the least recently used one given back first.
    free: VecDeque<u32>,
    open: [Option<Open>; CLASSES],
    transient_open: [Option<Open>; CLASSES],
    transient: usize,
    /// Carved chunks by age, open ones included.
    queue: BTreeMap<u64, u32>,
    /// Where in the queue the search for a chunk to reclaim goes on.
    hand: u64,
    sparse: VecDeque<u32>,
    /// Reclaimed, but guards that saw them may be left: (number, chunk).
    retired: VecDeque<(u64, u32)>,
    tenants: Vec<Tenants>,
    sequence: u64,
    /// Chunks that have memory.
    chunks: usize,
    /// Chunks that are in none of the above: about to be reclaimed, or retired.
    leaving: usize,
}

impl Pool {
    pub fn free(&self) -> usize {
        self.free.len()
    }

    /// Chunks that will be free when the guards have passed.
    pub fn retired(&self) -> usize {
        self.retired.len()
    }

    pub fn carved(&self) -> usize {
        self.queue.len()
    }

    pub fn transient(&self) -> usize {
        self.transient
    }

    /// A chunk has memory from now on.
    pub fn add(&mut self, chunk: u32) {
        let len = self.tenants.len().max(chunk as usize + 1);
        self.tenants.resize_with(len, Tenants::default);
        self.free.push_back(chunk);
        self.chunks += 1;
    }

    /// The least recently used free chunk, whose memory is to be given back.
    pub fn take_free(&mut self) -> Option<u32> {
        if planted!(GivenBackStillFree) {
            return self.free.front().copied();
        }
        let chunk = self.free.pop_front()?;
        self.chunks -= 1;
        Some(chunk)
    }

    /// Chunks that an earlier life left: carved ones in the order of their sequences, and `free`
    /// ones.
    pub fn found(
        &mut self,
        ever: u32,
        carved: &[(u64, u32, u8)],
        mut tenants: HashMap<u32, Vec<Tenant>>,
        free: impl Iterator<Item = u32>,
    ) {
        self.tenants.resize_with(ever as usize, Tenants::default);
        for &(sequence, chunk, class) in carved {
            self.queue.insert(sequence, chunk);
            self.tenants[chunk as usize] = Tenants {
                segments: tenants.remove(&chunk).unwrap_or_default(),
                order: Some(sequence),
                class,
                ..Tenants::default()
            };
            self.sequence = self.sequence.max(sequence);
        }
        self.free.extend(free);
        self.chunks = self.queue.len() + self.free.len();
    }

    /// The next block of a class; `None` when no chunk is free, or no more may be transient.
    pub fn carve(&mut self, memory: &Memory, want: Want<'_>) -> Option<Carved> {
        let class = want.class as usize;
        let is_transient = want.transient_max.is_some();
        let open = match self.open_of(is_transient)[class] {
            Some(open) => open,
            None => Open {
                chunk: self.open_chunk(memory, want)?,
                next: 0,
            },
        };
        let next = open.next + 1;
        let is_left = usize::from(next) < CLASS_BLOCKS[class];
        self.open_of(is_transient)[class] = is_left.then_some(Open { next, ..open });
        let tenants = &mut self.tenants[open.chunk as usize];
        let is_known = |last: &Tenant| last.segment.ptr_eq(want.tenant);
        if is_transient {
            tenants.transient_blocks += 1;
        } else if !tenants.segments.last().is_some_and(is_known) {
            tenants.segments.push(Tenant {
                segment: want.tenant.clone(),
                slot: want.slot,
            });
        }
        if !is_left && !is_transient {
            self.list_if_sparse(open.chunk);
        }
        Some(Carved {
            chunk: open.chunk,
            index: open.next,
            class: want.class,
            is_transient,
        })
    }

    fn open_of(&mut self, is_transient: bool) -> &mut [Option<Open>; CLASSES] {
        match is_transient {
            true => &mut self.transient_open,
            false => &mut self.open,
        }
    }

    fn open_chunk(&mut self, memory: &Memory, want: Want<'_>) -> Option<u32> {
        if want.transient_max.is_some_and(|max| self.transient >= max) {
            return None;
        }
        let class = want.class;
        let chunk = self.free.pop_back()?;
        self.sequence += 1;
        let at = chunk_at(chunk);
        memory.store(at, 0);
        for block in 0..CLASS_BLOCKS[class as usize] as u16 {
            memory.store(block_at(chunk, block), 0);
        }
        memory.store(at + CHUNK_CLASS, u32::from(class));
        memory.store_wide(at + CHUNK_SEQUENCE, self.sequence);
        memory.store(at, 1);
        let mut order = None;
        if want.transient_max.is_some() {
            self.transient += 1;
        } else {
            self.queue.insert(self.sequence, chunk);
            order = Some(self.sequence);
        }
        self.tenants[chunk as usize] = Tenants {
            order,
            class,
            ..Tenants::default()
        };
        Some(chunk)
    }

    /// A block of a transient chunk is not looked up any more. True when it was the chunk's last
    /// one: the chunk is then to be retired.
    pub fn give_up(&mut self, chunk: u32) -> bool {
        let tenants = &mut self.tenants[chunk as usize];
        tenants.transient_blocks -= 1;
        if tenants.transient_blocks > 0 {
            return false;
        }
        for open in &mut self.transient_open {
            if open.is_some_and(|open| open.chunk == chunk) {
                *open = None;
            }
        }
        self.transient -= 1;
        self.leaving += 1;
        true
    }

    /// A segment is gone that needs nothing of the chunk.
    pub fn leave(&mut self, chunk: u32, segment: &Weak<dyn Occupant>) {
        let tenants = &mut self.tenants[chunk as usize];
        match tenants.order {
            Some(_) => tenants.segments.retain(|one| !one.segment.ptr_eq(segment)),
            None => tenants.left.push(segment.clone()),
        }
    }

    /// `blocks` of a segment that left are dead. True when no other block is left there: the chunk
    /// is then to be retired.
    pub fn count_dead(&mut self, chunk: u32, blocks: usize) -> bool {
        let tenants = &mut self.tenants[chunk as usize];
        tenants.dead_blocks += blocks;
        let (order, is_empty) = (tenants.order, tenants.segments.is_empty());
        if self.open.iter().flatten().any(|open| open.chunk == chunk) {
            return false;
        }
        match order {
            Some(order) if is_empty => {
                self.queue.remove(&order);
                self.leaving += 1;
                true
            }
            _ => {
                self.list_if_sparse(chunk);
                false
            }
        }
    }

    /// The chunk must not be open.
    fn list_if_sparse(&mut self, chunk: u32) {
        let tenants = &mut self.tenants[chunk as usize];
        if tenants.is_sparse() && !std::mem::replace(&mut tenants.is_listed, true) {
            self.sparse.push_back(chunk);
        }
    }

    /// Restarts the search for a chunk to reclaim with the oldest.
    pub fn rewind(&mut self) {
        self.hand = 0;
    }

    /// Takes out of the queue the oldest chunk not looked at since [`Pool::rewind`], to be
    /// reclaimed or put back. After the newest one comes the oldest again.
    pub fn take_oldest(&mut self) -> Option<Candidate> {
        let next = self.queue.range(self.hand..).next();
        let (&order, &chunk) = next.or_else(|| self.queue.iter().next())?;
        Some(self.take(order, chunk))
    }

    /// Like [`Pool::take_oldest`], of the sparse chunks.
    pub fn take_sparse(&mut self) -> Option<Candidate> {
        while let Some(chunk) = self.sparse.pop_front() {
            let tenants = &mut self.tenants[chunk as usize];
            // The chunk may have been carved anew since.
            let is_listed = std::mem::take(&mut tenants.is_listed);
            if let (Some(order), true, true) = (tenants.order, is_listed, tenants.is_sparse()) {
                return Some(self.take(order, chunk));
            }
        }
        None
    }

    fn take(&mut self, order: u64, chunk: u32) -> Candidate {
        self.queue.remove(&order);
        self.leaving += 1;
        let mut was_open = None;
        for (class, open) in self.open.iter_mut().enumerate() {
            if open.is_some_and(|open| open.chunk == chunk) {
                was_open = open.take().map(|open| (class, open));
            }
        }
        let tenants = &mut self.tenants[chunk as usize];
        tenants.order = None;
        Candidate {
            chunk,
            tenants: std::mem::take(&mut tenants.segments),
            order,
            open: was_open,
        }
    }

    /// Puts back a chunk that is still needed, in its old place; the search goes on behind it.
    pub fn put_back(&mut self, candidate: Candidate) {
        let tenants = &mut self.tenants[candidate.chunk as usize];
        let left = std::mem::take(&mut tenants.left);
        tenants.segments = candidate.tenants;
        tenants
            .segments
            .retain(|one| !left.iter().any(|left| left.ptr_eq(&one.segment)));
        tenants.order = Some(candidate.order);
        self.queue.insert(candidate.order, candidate.chunk);
        self.leaving -= 1;
        self.hand = candidate.order + 1;
        if let Some((class, open)) = candidate.open {
            self.open[class].get_or_insert(open);
        }
    }

    /// No look-up has found the chunk since `number`.
    pub fn retire(&mut self, number: u64, chunk: u32) {
        self.tenants[chunk as usize] = Tenants::default();
        self.retired.push_back((number, chunk));
        self.leaving -= 1;
    }

    /// Frees the chunks that were retired up to `passed`.
    pub fn collect(&mut self, passed: u64) {
        while let Some(&(number, chunk)) = self.retired.front() {
            if number > passed && !planted!(GuardsNotAwaited) {
                break;
            }
            self.retired.pop_front();
            self.free.push_back(chunk);
        }
    }
}
