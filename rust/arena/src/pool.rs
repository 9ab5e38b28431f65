//! Chunks: which are free, which are being carved, which wait to be reclaimed.

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
}

/// Who has blocks in a chunk, and since when it is carved.
#[derive(Debug, Default)]
struct Tenants {
    segments: Vec<Weak<CachedSegment>>,
    carved_ms: i64,
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

    /// The next block of a class for `tenant`; `None` when no chunk is free.
    pub fn carve(
        &mut self,
        memory: &Memory,
        class: u8,
        tenant: &Weak<CachedSegment>,
        now_ms: i64,
    ) -> Option<Carved> {
        let open = match self.open[class as usize] {
            Some(open) => open,
            None => Open {
                chunk: self.open_chunk(memory, class, now_ms)?,
                next: 0,
            },
        };
        let next = open.next + 1;
        let is_left = usize::from(next) < CLASS_BLOCKS[class as usize];
        self.open[class as usize] = is_left.then_some(Open { next, ..open });
        let tenants = &mut self.tenants[open.chunk as usize].segments;
        if !tenants.last().is_some_and(|last| last.ptr_eq(tenant)) {
            tenants.push(tenant.clone());
        }
        Some(Carved {
            chunk: open.chunk,
            index: open.next,
            class,
        })
    }

    fn open_chunk(&mut self, memory: &Memory, class: u8, now_ms: i64) -> Option<u32> {
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
        self.queue.push_back(chunk);
        self.tenants[chunk as usize] = Tenants {
            segments: Vec::new(),
            carved_ms: now_ms,
        };
        Some(chunk)
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
