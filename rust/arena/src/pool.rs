//! Chunks: which are free, which are being carved, which wait to be reclaimed.
//!
//! *Transient* chunks are in no queue: their blocks are counted, and a chunk is given up with the last
//! of them.

use std::collections::{HashMap, VecDeque};
use std::sync::Weak;

use crate::layout::{CHUNK_CLASS, CHUNK_SEQUENCE, CLASS_BLOCKS, CLASSES, block_at, chunk_at};
use crate::memory::Memory;
use crate::segment::CachedSegment;
use crate::sync::planted;

/// A chunk whose blocks are given out one after another.
#[derive(Clone, Copy, Debug)]
struct Open {
    chunk: u32,
    next: u16,
}

/// A block that was just given out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Carved {
    pub chunk: u32,
    pub index: u16,
    pub class: u8,
    /// Given up as soon as it is written.
    pub is_transient: bool,
}

/// Who has blocks in a chunk, and since when it is carved.
#[derive(Debug, Default)]
struct Tenants {
    segments: Vec<Weak<CachedSegment>>,
    carved_ms: i64,
    /// Of a transient chunk: blocks that were given out and not given up.
    transient_blocks: usize,
}

/// What a block is carved for.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Want<'a> {
    pub class: u8,
    pub tenant: &'a Weak<CachedSegment>,
    pub now_ms: i64,
    /// In a transient chunk, of which there may be so many.
    pub transient_max: Option<usize>,
}

/// A chunk that is about to be reclaimed, out of the queue.
#[derive(Debug)]
pub(crate) struct Candidate {
    pub chunk: u32,
    pub tenants: Vec<Weak<CachedSegment>>,
    pub carved_ms: i64,
}

/// See the module. Under the arena's lock.
#[derive(Debug, Default)]
pub(crate) struct Pool {
    free: Vec<u32>,
    open: [Option<Open>; CLASSES],
    transient_open: [Option<Open>; CLASSES],
    /// Number of transient chunks.
    transient: usize,
    /// Carved chunks, the oldest first; open ones are among them.
    queue: VecDeque<u32>,
    /// Reclaimed, but guards may be left that saw them: (number, chunk).
    retired: VecDeque<(u64, u32)>,
    tenants: Vec<Tenants>,
    sequence: u64,
}

impl Pool {
    /// Chunks that can be carved now.
    pub fn free(&self) -> usize {
        self.free.len()
    }

    /// Chunks with blocks.
    pub fn carved(&self) -> usize {
        self.queue.len()
    }

    /// Transient chunks.
    pub fn transient(&self) -> usize {
        self.transient
    }

    /// When the oldest carved chunk was carved.
    pub fn oldest_ms(&self) -> Option<i64> {
        let oldest = *self.queue.front()?;
        Some(self.tenants[oldest as usize].carved_ms)
    }

    /// Chunks from `from` to `to` are there from now on.
    pub fn add(&mut self, from: u32, to: u32) {
        self.tenants.resize_with(to as usize, Tenants::default);
        self.free.extend((from..to).rev());
    }

    /// An earlier life left these chunks carved, in the order of their sequences; all others up to
    /// `populated` are free.
    pub fn found(
        &mut self,
        populated: u32,
        carved: &[(u64, u32)],
        mut tenants: HashMap<u32, Vec<Weak<CachedSegment>>>,
    ) {
        self.tenants
            .resize_with(populated as usize, Tenants::default);
        let mut is_carved = vec![false; populated as usize];
        for &(sequence, chunk) in carved {
            is_carved[chunk as usize] = true;
            self.queue.push_back(chunk);
            self.tenants[chunk as usize].segments = tenants.remove(&chunk).unwrap_or_default();
            self.sequence = self.sequence.max(sequence);
        }
        let free = (0..populated)
            .rev()
            .filter(|chunk| !is_carved[*chunk as usize]);
        self.free.extend(free);
    }

    /// The next block of a class; `None` when no chunk is free, or there may be no more transient ones.
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
        if is_transient {
            tenants.transient_blocks += 1;
        } else if !tenants
            .segments
            .last()
            .is_some_and(|last| last.ptr_eq(want.tenant))
        {
            tenants.segments.push(want.tenant.clone());
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
        let chunk = self.free.pop()?;
        self.sequence += 1;
        let at = chunk_at(chunk);
        memory.store(at, 0);
        for block in 0..CLASS_BLOCKS[class as usize] as u16 {
            memory.store(block_at(chunk, block), 0);
        }
        memory.store(at + CHUNK_CLASS, u32::from(class));
        memory.store_wide(at + CHUNK_SEQUENCE, self.sequence);
        memory.store(at, 1);
        if want.transient_max.is_some() {
            self.transient += 1;
        } else {
            self.queue.push_back(chunk);
        }
        self.tenants[chunk as usize] = Tenants {
            carved_ms: want.now_ms,
            ..Tenants::default()
        };
        Some(chunk)
    }

    /// A block of a transient chunk is not looked up any more; true when it was the chunk's last one:
    /// the chunk is then to be retired.
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
        true
    }

    /// Takes the oldest chunk out of the queue, to be reclaimed or put back.
    pub fn take_oldest(&mut self) -> Option<Candidate> {
        let chunk = self.queue.pop_front()?;
        for open in &mut self.open {
            if open.is_some_and(|open| open.chunk == chunk) {
                *open = None;
            }
        }
        let tenants = std::mem::take(&mut self.tenants[chunk as usize]);
        Some(Candidate {
            chunk,
            tenants: tenants.segments,
            carved_ms: tenants.carved_ms,
        })
    }

    /// Something in it is still needed: it goes behind the others.
    pub fn put_back(&mut self, candidate: Candidate) {
        self.tenants[candidate.chunk as usize] = Tenants {
            segments: candidate.tenants,
            carved_ms: candidate.carved_ms,
            transient_blocks: 0,
        };
        self.queue.push_back(candidate.chunk);
    }

    /// Nothing in it can be looked up any more since `number`.
    pub fn retire(&mut self, number: u64, chunk: u32) {
        self.retired.push_back((number, chunk));
    }

    /// Makes those free that were retired up to `passed`.
    pub fn collect(&mut self, passed: u64) {
        while let Some(&(number, chunk)) = self.retired.front() {
            if number > passed && !planted!(GuardsNotAwaited) {
                break;
            }
            self.retired.pop_front();
            self.free.push(chunk);
        }
    }
}
