//! One arena: its memory, and what the heap knows about it.

use std::fs::File;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::time::Duration;

use parking_lot::Condvar;
#[cfg(any(test, feature = "testing"))]
use rustix::fs::{FlockOperation, flock};

use crate::backing::Backing;
use crate::counters::{ArenaStatistics, Counters};
use crate::error::ArenaError;
use crate::file::{create_locked, lock, open_existing};
use crate::guard::{Guard, Guards};
use crate::header::{self, Header, Identity};
use crate::layout::{CHUNK_BYTES, HEADER_BYTES, SLOT_BYTES, SLOTS_A_GROUP, file_bytes, slot_at};
use crate::memory::Memory;
use crate::pool::Pool;
use crate::shares::{self, ClassBounds};
use crate::slots::{self, PartitionName, Slot, Slots};
use crate::sync::Mutex;

/// Spare slots: an append must not wait for memory.
const FREE_SLOTS_MIN: usize = SLOTS_A_GROUP / 2;

/// See the crate. Any thread may call any method.
#[derive(Debug)]
pub struct Arena {
    pub(crate) memory: Memory,
    /// `None`: memory of this process alone.
    pub(crate) file: Option<File>,
    path: PathBuf,
    identity: Identity,
    /// Chunks that fit.
    pub(crate) capacity: u32,
    /// Chunks that may be populated.
    limit: AtomicU32,
    pub(crate) backing: Mutex<Backing>,
    /// Chunks that have memory.
    pub(crate) populated: AtomicU32,
    /// Chunks that appends may populate.
    pub(crate) allowance: AtomicU32,
    pub(crate) guards: Guards,
    pool: Mutex<Pool>,
    pub(crate) slots: Mutex<Slots>,
    is_closed: AtomicBool,
    /// An invariant is broken: the pool of chunks is no longer used.
    has_failed: AtomicBool,
    /// The broken invariant, until it is taken.
    failure: parking_lot::Mutex<Option<String>>,
    is_hungry: AtomicBool,
    /// An append that leaves fewer free chunks calls the janitor.
    pub(crate) low: AtomicU32,
    pub(crate) class_bounds: ClassBounds,
    bell: parking_lot::Mutex<bool>,
    rung: Condvar,
    pub(crate) counters: Counters,
}

impl Arena {
    /// Creates and locks the file of a new arena of at most `limit_bytes`. Only its header is
    /// populated.
    ///
    /// # Errors
    /// The file exists or cannot be created.
    pub fn create(
        path: &Path,
        identity: Identity,
        log_dir: &str,
        limit_bytes: u64,
    ) -> Result<Arc<Arena>, ArenaError> {
        let file = create_locked(path)?;
        let made = Self::make(file, path, identity, log_dir, limit_bytes);
        if made.is_err() {
            let _nothing_in_it = std::fs::remove_file(path);
        }
        made
    }

    fn make(
        file: File,
        path: &Path,
        identity: Identity,
        log_dir: &str,
        limit_bytes: u64,
    ) -> Result<Arc<Arena>, ArenaError> {
        let capacity = chunks(limit_bytes).max(1);
        file.set_len(file_bytes(capacity) as u64)?;
        let memory = Memory::map(&file, file_bytes(capacity))?;
        let arena = Self::new(memory, Some(file), path, identity, capacity);
        arena.populate(0, HEADER_BYTES)?;
        header::store(&arena.memory, identity, capacity, log_dir);
        arena.ready_slots()?;
        Ok(Arc::new(arena))
    }

    /// Memory of this process alone, fully populated: for a cache that dies with the process, and
    /// tests.
    ///
    /// # Errors
    /// No memory.
    pub fn anonymous(limit_bytes: u64) -> Result<Arc<Arena>, ArenaError> {
        let capacity = chunks(limit_bytes).max(1);
        let memory = Memory::anonymous(file_bytes(capacity))?;
        let identity = Identity {
            uuid: [0; 16],
            boot: [0; 16],
        };
        let arena = Self::new(memory, None, Path::new(""), identity, capacity);
        header::store(&arena.memory, identity, capacity, "");
        arena.ready_slots()?;
        Ok(Arc::new(arena))
    }

    pub(crate) fn open(path: &Path, identity: Identity) -> Result<(File, Header), ArenaError> {
        let file = open_existing(path)?;
        lock(&file, path)?;
        if rustix::fs::fstat(&file).map_err(io::Error::from)?.st_nlink == 0 {
            // The holder of the lock removed it.
            return Err(io::Error::from(io::ErrorKind::NotFound).into());
        }
        let header = header::check_file(&file, path, Some(identity))?;
        Ok((file, header))
    }

    pub(crate) fn map(file: File, path: &Path, header: &Header) -> Result<Arc<Arena>, ArenaError> {
        let memory = Memory::map(&file, file_bytes(header.capacity))?;
        let arena = Self::new(memory, Some(file), path, header.identity, header.capacity);
        Ok(Arc::new(arena))
    }

    fn new(
        memory: Memory,
        file: Option<File>,
        path: &Path,
        identity: Identity,
        capacity: u32,
    ) -> Arena {
        Arena {
            memory,
            file,
            path: path.to_owned(),
            identity,
            capacity,
            limit: AtomicU32::new(capacity),
            backing: Mutex::default(),
            populated: AtomicU32::new(0),
            allowance: AtomicU32::new(0),
            guards: Guards::default(),
            pool: Mutex::default(),
            slots: Mutex::default(),
            is_closed: AtomicBool::new(false),
            has_failed: AtomicBool::new(false),
            failure: parking_lot::Mutex::default(),
            is_hungry: AtomicBool::new(false),
            low: AtomicU32::new(0),
            class_bounds: ClassBounds::default(),
            bell: parking_lot::Mutex::new(false),
            rung: Condvar::new(),
            counters: Counters::default(),
        }
    }

    /// The arena's file.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// The arena's identity.
    pub fn identity(&self) -> Identity {
        self.identity
    }

    /// Recomputes the block classes after a change of the held bytes or the limit.
    pub(crate) fn bound_classes(&self) {
        self.class_bounds
            .update(self.counters.held_bytes(), self.limit());
    }

    pub(crate) fn transient_max(&self) -> usize {
        shares::transient_max(self.limit())
    }

    /// Checks the changed slots' numbers and recomputes the block classes.
    fn note_partitions(&self, slots: &Slots) {
        if let Err(broken) = slots.check() {
            self.fail(broken);
        }
        self.class_bounds.set_partitions(slots.used());
        self.bound_classes();
    }

    /// Runs `act` on the pool of chunks, then checks its invariants. `None` once one of them is
    /// broken: nothing is carved, reclaimed or given back any more.
    #[inline]
    pub(crate) fn with_pool<T>(&self, act: impl FnOnce(&mut Pool) -> T) -> Option<T> {
        let mut pool = self.pool.lock();
        if self.has_failed.load(Ordering::Relaxed) {
            return None;
        }
        let result = act(&mut pool);
        match pool.check() {
            Ok(()) => Some(result),
            Err(broken) => {
                self.fail(broken);
                None
            }
        }
    }

    /// What the arena holds can still be read and written to the files. Nothing is added, reclaimed
    /// or given back.
    #[cold]
    fn fail(&self, broken: String) {
        if !self.has_failed.swap(true, Ordering::Relaxed) {
            self.close();
            *self.failure.lock() = Some(broken);
            self.ring();
        }
    }

    /// The broken invariant, in a sentence; returned once. The arena is closed by then, and
    /// reclaims nothing.
    pub fn take_failure(&self) -> Option<String> {
        self.failure.lock().take()
    }

    /// Checks each chunk and each slot.
    pub(crate) fn check_all(&self) {
        let checked = self.with_pool(|pool| pool.check_chunks());
        let slots = self.slots.lock().check_names();
        if let Err(broken) = checked.unwrap_or(Ok(())).and(slots) {
            self.fail(broken);
        }
    }

    pub(crate) fn add_free(&self, chunk: u32) {
        self.with_pool(|pool| pool.add(chunk));
    }

    /// (free chunks, transient chunks).
    pub(crate) fn chunks_now(&self) -> (usize, usize) {
        let pool = self.pool.lock();
        (pool.free(), pool.transient())
    }

    /// For tests: see [`crate::Fuse`].
    #[cfg(any(test, feature = "testing"))]
    pub fn fuse(&self) -> &crate::fuse::Fuse {
        self.memory.fuse()
    }

    /// For the model: limits concurrent readers.
    #[cfg(test)]
    pub(crate) fn set_guards(&mut self, places: usize) {
        self.guards = Guards::new(places);
    }

    /// For tests: shares the step count of `fuse`. To be called before the first store.
    #[cfg(any(test, feature = "testing"))]
    pub fn follow(&self, fuse: &crate::fuse::Fuse) {
        self.memory.follow(fuse);
    }

    /// For tests: as if the process that has it were gone.
    #[cfg(any(test, feature = "testing"))]
    pub fn let_go(&self) {
        self.memory.let_go();
        if let Some(file) = &self.file {
            flock(file, FlockOperation::Unlock).expect("it was locked");
        }
    }

    /// Enters a guard: what is looked up under it stays.
    #[inline]
    pub fn enter(&self) -> Guard<'_> {
        self.guards.enter()
    }

    /// Whether it takes appends.
    #[inline]
    pub fn is_open(&self) -> bool {
        !self.is_closed.load(Ordering::Relaxed)
    }

    /// Refuses appends from now on; reads go on.
    pub fn close(&self) {
        self.is_closed.store(true, Ordering::Relaxed);
    }

    /// Limits populated memory from now on.
    pub fn set_limit(&self, limit_bytes: u64) {
        let limit = chunks(limit_bytes).clamp(1, self.capacity);
        self.limit.store(limit, Ordering::Relaxed);
    }

    /// The slot of a partition, a new one if it has none. `None` when no slot is free; the janitor
    /// is called before that.
    pub fn slot(&self, name: &PartitionName) -> Option<Slot> {
        let mut slots = self.slots.lock();
        let slot = slots.of(&self.memory, name);
        let is_low = slots.free() < FREE_SLOTS_MIN && slots.next_group().is_some();
        self.note_partitions(&slots);
        drop(slots);
        if is_low {
            self.call_janitor();
        }
        slot
    }

    /// Populates spare slots. May wait for memory.
    ///
    /// # Errors
    /// The file system is full, or no memory is left.
    pub fn ready_slots(&self) -> io::Result<()> {
        loop {
            let slots = self.slots.lock();
            let next = slots.next_group().filter(|_| slots.free() < FREE_SLOTS_MIN);
            drop(slots);
            let Some(first) = next else { return Ok(()) };
            self.populate(slot_at(first), SLOTS_A_GROUP * SLOT_BYTES)?;
            let mut slots = self.slots.lock();
            slots.add_group(&self.memory, first);
            self.note_partitions(&slots);
        }
    }

    /// The slot of a partition that has one, also from an earlier opening or life.
    pub fn known_slot(&self, name: &PartitionName) -> Option<Slot> {
        self.slots.lock().known(&self.memory, name)
    }

    /// Frees the slot of a partition that is gone; its blocks are dead.
    pub fn release_slot(&self, slot: Slot) {
        let mut slots = self.slots.lock();
        slots.release(&self.memory, slot);
        self.note_partitions(&slots);
    }

    /// Kills all blocks of a partition and returns the slot for new ones. Its bytes must have been
    /// written, or must not matter.
    pub fn kill_blocks(&self, slot: Slot) -> Slot {
        let _one_at_a_time = self.slots.lock();
        if slots::is_current(&self.memory, slot) {
            slots::advance(&self.memory, slot)
        } else {
            slots::slot(&self.memory, slot.index)
        }
    }

    /// Notes whether the partition's log has producers, whose state would be lost with the process.
    pub fn set_producers(&self, slot: Slot, any: bool) {
        slots::set_producers(&self.memory, slot, any);
    }

    /// Whether it was noted that the log has no producers. False if nothing was noted.
    pub fn has_no_producers(&self, slot: Slot) -> bool {
        slots::has_no_producers(&self.memory, slot)
    }

    pub(crate) fn is_current(&self, slot: Slot) -> bool {
        slots::is_current(&self.memory, slot)
    }

    /// Wakes the thread in [`Arena::wait`].
    pub fn ring(&self) {
        *self.bell.lock() = true;
        self.rung.notify_all();
    }

    /// Waits until chunks are wanted or [`Arena::ring`] is called (true), or until the timeout.
    pub fn wait(&self, timeout: Option<Duration>) -> bool {
        let mut bell = self.bell.lock();
        if !*bell {
            match timeout {
                Some(timeout) => {
                    self.rung.wait_for(&mut bell, timeout);
                }
                None => self.rung.wait(&mut bell),
            }
        }
        std::mem::take(&mut *bell)
    }

    /// The janitor is done: the next append that finds few chunks rings again.
    pub(crate) fn sated(&self) {
        self.is_hungry.store(false, Ordering::Relaxed);
    }

    pub(crate) fn call_janitor(&self) {
        if !self.is_hungry.swap(true, Ordering::Relaxed) {
            self.ring();
        }
    }

    /// Chunks that may be populated.
    pub fn limit(&self) -> u32 {
        self.limit.load(Ordering::Relaxed)
    }

    /// Whether the file still has its name: if not, a kill would lose its content.
    pub fn is_linked(&self) -> bool {
        let Some(file) = &self.file else { return true };
        match rustix::fs::fstat(file) {
            Ok(stat) => stat.st_nlink > 0 && stat.st_size as usize >= file_bytes(self.capacity),
            Err(_) => false,
        }
    }

    /// Removes the file. The memory stays until its last user is gone.
    ///
    /// # Errors
    /// The file system's; a missing file is fine.
    pub fn remove(&self) -> io::Result<()> {
        self.close();
        if self.file.is_none() {
            return Ok(());
        }
        match std::fs::remove_file(&self.path) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
            result => result,
        }
    }

    /// Takes over what an earlier life left.
    pub(crate) fn install(
        &self,
        slots: Slots,
        (backing, populated): (Backing, u32),
        fill: impl FnOnce(&mut Pool),
    ) {
        self.note_partitions(&slots);
        *self.slots.lock() = slots;
        self.with_pool(fill);
        *self.backing.lock() = backing;
        self.populated.store(populated, Ordering::Relaxed);
        self.check_all();
    }

    /// A snapshot of the counters.
    pub fn statistics(&self) -> ArenaStatistics {
        let (free, transient) = self.chunks_now();
        let bytes = CHUNK_BYTES as u64;
        ArenaStatistics {
            populated_bytes: u64::from(self.populated()) * bytes,
            free_bytes: free as u64 * bytes,
            limit_bytes: u64::from(self.limit()) * bytes,
            transient_bytes: transient as u64 * bytes,
            ..self.counters.snapshot()
        }
    }
}

/// Whole chunks that fit into `bytes`.
pub(crate) fn chunks(bytes: u64) -> u32 {
    u32::try_from(bytes / CHUNK_BYTES as u64).unwrap_or(u32::MAX / 2)
}
