//! How chunks get memory and give it back (`block-cache.md`, sections 2 and 5).

use std::io;
use std::sync::atomic::Ordering;

use rustix::fs::{FallocateFlags, fallocate};

use crate::arena::Arena;
use crate::backing::Backing;
use crate::layout::{
    CHUNK_BYTES, HEADER_POPULATED, HEADER_VERSION, VERSION, chunk_at, guarded, slot_at,
};
use crate::pool::Pool;

impl Arena {
    /// Chunks that have memory.
    pub fn populated(&self) -> u32 {
        self.populated.load(Ordering::Relaxed)
    }

    /// Populates up to `count` more chunks and frees them for carving. Returns how many.
    ///
    /// # Errors
    /// The file system is full, or no memory is left; existing chunks are untouched.
    pub fn grow(&self, count: u32) -> io::Result<u32> {
        for _ in 0..count {
            if !self.grow_by_one()? {
                break;
            }
        }
        Ok(self.populated())
    }

    /// Populates one more chunk and frees it for carving; false at the limit. Safe from any number
    /// of threads.
    ///
    /// # Errors
    /// As [`Arena::grow`].
    pub(crate) fn grow_by_one(&self) -> io::Result<bool> {
        let chunk = {
            let mut backing = self.backing.lock();
            if backing.backed() >= self.limit() {
                return Ok(false);
            }
            self.store_version(&mut backing);
            backing.take()
        };
        if let Err(error) = self.populate(chunk_at(chunk), CHUNK_BYTES) {
            // A partly populated chunk must not stay. If punching fails, too, the next try has it.
            let _gone_or_not = self.punch(chunk);
            self.backing.lock().add_hole(chunk);
            return Err(error);
        }
        let mut backing = self.backing.lock();
        if let Some(ever) = backing.ever_to_store(chunk) {
            self.memory.store_wide(HEADER_POPULATED, guarded(ever));
        }
        drop(backing);
        self.add_free(chunk);
        self.populated.fetch_add(1, Ordering::Relaxed);
        Ok(true)
    }

    /// Populates as many chunks as an append of `bytes` needs, as far as the last look at the
    /// machine's memory allows. False if none.
    pub(crate) fn grow_now(&self, bytes: usize) -> bool {
        let mut has_grown = false;
        for _ in 0..=bytes / CHUNK_BYTES {
            if !self.spend_allowance() || !self.grow_by_one().unwrap_or(false) {
                break;
            }
            self.counters
                .populated_by_appends
                .fetch_add(1, Ordering::Relaxed);
            has_grown = true;
        }
        has_grown
    }

    /// Chunks that may be populated until the next look at the machine's memory.
    pub(crate) fn set_allowance(&self, chunks: u32) {
        self.allowance.store(chunks, Ordering::Relaxed);
    }

    pub(crate) fn spend_allowance(&self) -> bool {
        let one_less = |left: u32| left.checked_sub(1);
        let allowance = &self.allowance;
        let (relaxed, update) = (Ordering::Relaxed, one_less);
        allowance.fetch_update(relaxed, relaxed, update).is_ok()
    }

    /// Gives back the memory of up to `count` free chunks. Returns how many.
    ///
    /// # Errors
    /// The file system cannot do that.
    pub(crate) fn give_back(&self, count: usize) -> io::Result<u32> {
        let mut given_back = 0;
        while (given_back as usize) < count {
            let Some(chunk) = self.with_pool(Pool::take_free).flatten() else {
                break;
            };
            self.store_version(&mut self.backing.lock());
            if let Err(error) = self.punch(chunk) {
                self.add_free(chunk);
                return Err(error);
            }
            // Only now may another thread populate it again.
            self.backing.lock().add_hole(chunk);
            self.populated.fetch_sub(1, Ordering::Relaxed);
            self.counters.given_back.fetch_add(1, Ordering::Relaxed);
            given_back += 1;
        }
        Ok(given_back)
    }

    /// Stores the version before anything that an earlier version does not know.
    fn store_version(&self, backing: &mut Backing) {
        if backing.take_is_earlier() {
            self.memory.store(HEADER_VERSION, VERSION);
        }
    }

    /// The chunk must be unused.
    pub(crate) fn punch(&self, chunk: u32) -> io::Result<()> {
        let (file, at) = (self.file.as_ref(), chunk_at(chunk));
        self.memory.punch(file, at, CHUNK_BYTES)
    }

    /// Allocates and maps the memory of a range.
    pub(crate) fn populate(&self, at: usize, len: usize) -> io::Result<()> {
        if let Some(file) = self.file.as_ref() {
            fallocate(file, FallocateFlags::empty(), at as u64, len as u64)?;
        }
        self.memory.populate(at, len)
    }

    /// Maps `count` chunks from `*chunk` (0 at first) on that had memory before, so that appends
    /// take no page faults. False when all are mapped. In small steps, since each holds up every
    /// thread that changes the process's memory. Only the thread that gives memory back may call
    /// it, since to map is to populate.
    ///
    /// # Errors
    /// No memory.
    pub fn map_again(&self, chunk: &mut u32, count: u32) -> io::Result<bool> {
        if *chunk == 0 {
            let slots = self.slots.lock().populated_bytes();
            self.memory.populate(0, slot_at(0) + slots)?;
        }
        let ever = self.backing.lock().ever();
        let end = chunk.saturating_add(count).min(ever);
        while *chunk < end {
            if !self.backing.lock().is_hole(*chunk) {
                self.memory.populate(chunk_at(*chunk), CHUNK_BYTES)?;
            }
            *chunk += 1;
        }
        Ok(*chunk < ever)
    }
}
