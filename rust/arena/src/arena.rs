//! One arena: its memory, and everything that is known of it on the heap.

use std::collections::{BTreeMap, HashMap};
use std::fs::{File, OpenOptions};
use std::io;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::time::Duration;

use parking_lot::Condvar;
use rustix::fs::{FlockOperation, flock};

use crate::attach;
use crate::backing::Backing;
use crate::counters::Counters;
use crate::guard::{Guard, Guards};
use crate::header::{self, Header};
use crate::layout::{
    CHUNK_BYTES, HEADER_BYTES, HEADER_LEFT, SLOT_BYTES, SLOTS_A_GROUP, file_bytes, slot_at,
};
use crate::leftover;
use crate::memory::Memory;
use crate::pool::Pool;
use crate::segment::CachedSegment;
use crate::shares::ClassBounds;
use crate::slots::{self, PartitionName, Slot, Slots};
use crate::sync::Mutex;

/// Anybody may look into a directory of shared memory; records are for the broker alone.
const OWNER_ONLY: u32 = 0o600;

/// Slots kept ready for partitions to come: an append must not wait for memory.
const FREE_SLOTS_MIN: usize = SLOTS_A_GROUP / 2;

/// Which arena: its own name, and the boot of the machine whose memory it lies in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Identity {
    /// Drawn when it is made.
    pub uuid: [u8; 16],
    /// `/proc/sys/kernel/random/boot_id`.
    pub boot: [u8; 16],
}

/// Why an arena cannot be made or taken up again.
#[derive(Debug, thiserror::Error)]
pub enum ArenaError {
    /// The file system or the memory.
    #[error(transparent)]
    Io(#[from] io::Error),
    /// Another process uses it.
    #[error("{0} is in use by another process")]
    Locked(String),
    /// It is not what the log directory's marker names, or not whole.
    #[error("{0}")]
    Foreign(String),
}

/// See the crate. All methods are for any thread.
#[derive(Debug)]
pub struct Arena {
    memory: Memory,
    /// `None`: memory of this process alone.
    file: Option<File>,
    path: PathBuf,
    identity: Identity,
    /// Chunks that fit.
    capacity: u32,
    /// Chunks that may be populated.
    limit: AtomicU32,
    backing: Mutex<Backing>,
    /// Chunks that have memory.
    populated: AtomicU32,
    /// Chunks that appends may populate.
    allowance: AtomicU32,
    guards: Guards,
    pool: Mutex<Pool>,
    slots: Mutex<Slots>,
    is_closed: AtomicBool,
    is_hungry: AtomicBool,
    /// With fewer free chunks an append calls the janitor.
    low: AtomicU32,
    class_bounds: ClassBounds,
    bell: parking_lot::Mutex<bool>,
    rung: Condvar,
    counters: Counters,
}

/// What an arena that was taken up again holds of one partition, by segment.
#[derive(Debug)]
pub struct FoundPartition {
    /// Its slot.
    pub slot: Slot,
    /// The segments that have blocks, by base offset.
    pub segments: BTreeMap<i64, Arc<CachedSegment>>,
    /// Why it must not be used, if so.
    pub damage: Option<String>,
}

/// All partitions that were found.
pub type Found = HashMap<PartitionName, FoundPartition>;

impl Arena {
    /// Makes the file of a new arena of at most `limit_bytes`, and locks it. Only its header is
    /// populated.
    ///
    /// # Errors
    /// The file exists already, or cannot be made there.
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

    /// Memory of this process alone, all of it ready: a cache that a kill takes along, and tests.
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

    /// Takes up an arena that an earlier life left, and tells what it holds.
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

    /// The same with one that must have been left by an orderly end. It may grow to `limit_bytes`,
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
        let found = attach::scan(&arena, header.version).map_err(ArenaError::Foreign)?;
        Ok((arena, found))
    }

    pub(crate) fn open(path: &Path, identity: Identity) -> Result<(File, Header), ArenaError> {
        let file = leftover::open(path)?;
        lock(&file, path)?;
        if rustix::fs::fstat(&file).map_err(io::Error::from)?.st_nlink == 0 {
            // Whoever had the lock has removed it.
            return Err(io::Error::from(io::ErrorKind::NotFound).into());
        }
        let header = header::check_file(&file, path, Some(identity))?;
        Ok((file, header))
    }

    fn map(file: File, path: &Path, header: &Header) -> Result<Arc<Arena>, ArenaError> {
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

    /// Its name.
    pub fn identity(&self) -> Identity {
        self.identity
    }

    pub(crate) fn slots(&self) -> &Mutex<Slots> {
        &self.slots
    }

    pub(crate) fn guards(&self) -> &Guards {
        &self.guards
    }

    pub(crate) fn counters(&self) -> &Counters {
        &self.counters
    }

    pub(crate) fn class_bounds(&self) -> &ClassBounds {
        &self.class_bounds
    }

    pub(crate) fn pool(&self) -> &Mutex<Pool> {
        &self.pool
    }

    pub(crate) fn backing(&self) -> &Mutex<Backing> {
        &self.backing
    }

    pub(crate) fn populated_chunks(&self) -> &AtomicU32 {
        &self.populated
    }

    pub(crate) fn low(&self) -> &AtomicU32 {
        &self.low
    }

    pub(crate) fn allowance(&self) -> &AtomicU32 {
        &self.allowance
    }

    pub(crate) fn file(&self) -> Option<&File> {
        self.file.as_ref()
    }

    pub(crate) fn add_free(&self, chunk: u32) {
        self.pool.lock().add(chunk);
    }

    pub(crate) fn take_free(&self) -> Option<u32> {
        self.pool.lock().take_free()
    }

    pub(crate) fn populated_slot_bytes(&self) -> usize {
        self.slots.lock().populated_bytes()
    }

    /// (free chunks, transient chunks).
    pub(crate) fn chunks_now(&self) -> (usize, usize) {
        let pool = self.pool.lock();
        (pool.free(), pool.transient())
    }

    pub(crate) fn memory(&self) -> &Memory {
        &self.memory
    }

    /// For tests: see [`crate::Fuse`].
    #[cfg(any(test, feature = "testing"))]
    pub fn fuse(&self) -> &crate::fuse::Fuse {
        self.memory.fuse()
    }

    /// For the model: at most so many readers at the same time.
    #[cfg(test)]
    pub(crate) fn set_guards(&mut self, places: usize) {
        self.guards = Guards::new(places);
    }

    /// For tests: counts its stores together with others' steps; before the first store.
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

    /// Takes no appends from now on; what it holds can be read.
    pub fn close(&self) {
        self.is_closed.store(true, Ordering::Relaxed);
    }

    /// At most so much is populated from now on.
    pub fn set_limit(&self, limit_bytes: u64) {
        let limit = chunks(limit_bytes).clamp(1, self.capacity);
        self.limit.store(limit, Ordering::Relaxed);
    }

    /// The slot of a partition; `None` when none is ready: whoever looks after the arena is told
    /// before that.
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

    /// Sees that there are slots for partitions to come. May wait for memory.
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
            self.slots.lock().add_group(&self.memory, first);
        }
    }

    /// The slot of a partition that has one, be it of an earlier opening or life.
    pub fn known_slot(&self, name: &PartitionName) -> Option<Slot> {
        self.slots.lock().known(&self.memory, name)
    }

    /// The partition is gone: its blocks are dead, its slot is free.
    pub fn release_slot(&self, slot: Slot) {
        let mut slots = self.slots.lock();
        slots.release(&self.memory, slot);
        self.note_partitions(&slots);
    }

    /// All blocks of a partition are dead; new ones belong to the slot that is returned. Its bytes
    /// must have been written, or must not matter.
    pub fn kill_blocks(&self, slot: Slot) -> Slot {
        let _one_at_a_time = self.slots.lock();
        if slots::is_current(&self.memory, slot) {
            slots::advance(&self.memory, slot)
        } else {
            slots::slot(&self.memory, slot.index)
        }
    }

    pub(crate) fn is_current(&self, slot: Slot) -> bool {
        slots::is_current(&self.memory, slot)
    }

    /// A segment that has no blocks yet.
    pub fn segment(self: &Arc<Self>, slot: Slot, base_offset: i64) -> Arc<CachedSegment> {
        CachedSegment::new(self, slot, base_offset, Default::default())
    }

    /// Wakes whoever waits in [`Arena::wait`].
    pub fn ring(&self) {
        *self.bell.lock() = true;
        self.rung.notify_all();
    }

    /// Waits until chunks are wanted or [`Arena::ring`] is called (true), or the time is over.
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

    /// Chunks are looked after again; the next append that finds few of them rings.
    pub(crate) fn sated(&self) {
        self.is_hungry.store(false, Ordering::Relaxed);
    }

    /// Few chunks or slots are left.
    pub(crate) fn call_janitor(&self) {
        if !self.is_hungry.swap(true, Ordering::Relaxed) {
            self.ring();
        }
    }

    /// Chunks that may be there.
    pub fn limit(&self) -> u32 {
        self.limit.load(Ordering::Relaxed)
    }

    /// Whether the file still has its name: if not, a kill would lose what is in it.
    pub fn is_linked(&self) -> bool {
        let Some(file) = &self.file else { return true };
        match rustix::fs::fstat(file) {
            Ok(stat) => stat.st_nlink > 0 && stat.st_size as usize >= file_bytes(self.capacity),
            Err(_) => false,
        }
    }

    /// Removes the file. The memory stays until the last user is gone.
    ///
    /// # Errors
    /// The file system's; a file that is gone already is fine.
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

    /// What an earlier life left.
    pub(crate) fn install(
        &self,
        slots: Slots,
        (backing, populated): (Backing, u32),
        fill: impl FnOnce(&mut Pool),
    ) {
        self.note_partitions(&slots);
        *self.slots.lock() = slots;
        fill(&mut self.pool.lock());
        *self.backing.lock() = backing;
        self.populated.store(populated, Ordering::Relaxed);
    }

    pub(crate) fn capacity(&self) -> u32 {
        self.capacity
    }
}

fn chunks(bytes: u64) -> u32 {
    u32::try_from(bytes / CHUNK_BYTES as u64).unwrap_or(u32::MAX / 2)
}

/// A new file, locked. Who looks for what others left behind may have the lock for a moment, and finds
/// nothing in the file, which it then removes.
fn create_locked(path: &Path) -> io::Result<File> {
    loop {
        let file = OpenOptions::new()
            .read(true)
            .write(true)
            .create_new(true)
            .mode(OWNER_ONLY)
            .open(path)?;
        flock(&file, FlockOperation::LockExclusive)?;
        if rustix::fs::fstat(&file)?.st_nlink > 0 {
            return Ok(file);
        }
    }
}

pub(crate) fn lock(file: &File, path: &Path) -> Result<(), ArenaError> {
    match flock(file, FlockOperation::NonBlockingLockExclusive) {
        Ok(()) => Ok(()),
        Err(rustix::io::Errno::WOULDBLOCK) => Err(ArenaError::Locked(path.display().to_string())),
        Err(error) => Err(io::Error::from(error).into()),
    }
}
