//! The mapped bytes: the only place that turns positions into pointers.

use std::fs::File;
use std::io;
use std::ptr::NonNull;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

use rustix::fs::{FallocateFlags, fallocate};
use rustix::mm::{Advice, MapFlags, ProtFlags, madvise, mmap, mmap_anonymous, munmap};
use rustix::param::page_size;

use crate::sync::{step, stored};

/// A mapping of fixed length. Words are read and stored atomically; payload is copied in by the
/// thread that owns the block, and lent out under a guard.
#[derive(Debug)]
pub struct Memory {
    base: NonNull<u8>,
    len: usize,
    #[cfg(any(test, feature = "testing"))]
    fuse: std::sync::OnceLock<crate::fuse::Fuse>,
    #[cfg(any(test, feature = "testing"))]
    is_gone: std::sync::atomic::AtomicBool,
}

// SAFETY: the mapping lives as long as the value; words are accessed by atomics only, and payload
// bytes by the rules that `copy_in` and `lend` ask of their callers.
unsafe impl Send for Memory {}
// SAFETY: as above.
unsafe impl Sync for Memory {}

impl Memory {
    /// Maps `len` bytes of a file, shared.
    pub fn map(file: &File, len: usize) -> io::Result<Memory> {
        let (prot, flags) = (ProtFlags::READ | ProtFlags::WRITE, MapFlags::SHARED);
        // SAFETY: a new mapping at an address of the kernel's choice.
        let base = unsafe { mmap(std::ptr::null_mut(), len, prot, flags, file, 0)? };
        Memory::new(base.cast(), len)
    }

    pub fn anonymous(len: usize) -> io::Result<Memory> {
        let (prot, flags) = (ProtFlags::READ | ProtFlags::WRITE, MapFlags::PRIVATE);
        // SAFETY: a new mapping at an address of the kernel's choice.
        let base = unsafe {
            mmap_anonymous(std::ptr::null_mut(), len, prot, flags | MapFlags::NORESERVE)?
        };
        Memory::new(base.cast(), len)
    }

    fn new(base: *mut u8, len: usize) -> io::Result<Memory> {
        Ok(Memory {
            base: NonNull::new(base).ok_or(io::ErrorKind::OutOfMemory)?,
            len,
            #[cfg(any(test, feature = "testing"))]
            fuse: std::sync::OnceLock::new(),
            #[cfg(any(test, feature = "testing"))]
            is_gone: Default::default(),
        })
    }

    /// Suppresses stores from some point on.
    #[cfg(any(test, feature = "testing"))]
    pub fn fuse(&self) -> &crate::fuse::Fuse {
        self.fuse.get_or_init(Default::default)
    }

    /// Shares the step count of `fuse`.
    #[cfg(any(test, feature = "testing"))]
    pub fn follow(&self, fuse: &crate::fuse::Fuse) {
        self.fuse.get_or_init(|| fuse.clone());
    }

    /// Stores have no effect any more: another life has the memory.
    #[cfg(any(test, feature = "testing"))]
    pub fn let_go(&self) {
        self.is_gone.store(true, Ordering::SeqCst);
    }

    /// Takes one step of the fuse, if there is one.
    #[cfg(any(test, feature = "testing"))]
    fn is_dead(&self) -> bool {
        if self.is_gone.load(Ordering::SeqCst) {
            return true;
        }
        self.fuse.get().is_some_and(|fuse| fuse.is_blown())
    }

    #[inline]
    fn at<T>(&self, position: usize) -> NonNull<T> {
        assert!(
            position.is_multiple_of(align_of::<T>()) && position + size_of::<T>() <= self.len,
            "position {position} of {}",
            self.len
        );
        // SAFETY: within the mapping, as was just checked; mappings are aligned to pages.
        unsafe { self.base.add(position).cast() }
    }

    #[inline]
    fn word(&self, position: usize) -> &AtomicU32 {
        // SAFETY: aligned and within the mapping; words are accessed by atomics only.
        unsafe { self.at::<AtomicU32>(position).as_ref() }
    }

    #[inline]
    fn wide(&self, position: usize) -> &AtomicU64 {
        // SAFETY: as in `word`.
        unsafe { self.at::<AtomicU64>(position).as_ref() }
    }

    #[inline]
    pub fn load(&self, position: usize) -> u32 {
        self.word(position).load(Ordering::Acquire)
    }

    #[inline]
    pub fn load_wide(&self, position: usize) -> u64 {
        self.wide(position).load(Ordering::Acquire)
    }

    /// Stores a word after everything stored before.
    #[inline]
    pub fn store(&self, position: usize, value: u32) {
        #[cfg(any(test, feature = "testing"))]
        if self.is_dead() {
            return;
        }
        #[cfg(test)]
        if self.load(position) == value {
            return;
        }
        step();
        self.word(position).store(value, Ordering::Release);
        stored();
    }

    /// Stores a word after everything stored before.
    #[inline]
    pub fn store_wide(&self, position: usize, value: u64) {
        #[cfg(any(test, feature = "testing"))]
        if self.is_dead() {
            return;
        }
        #[cfg(test)]
        if self.load_wide(position) == value {
            return;
        }
        step();
        self.wide(position).store(value, Ordering::Release);
        stored();
    }

    /// Stores a few bytes word by word, the last one padded with zeros; for fields that no other
    /// thread reads yet.
    pub fn store_bytes(&self, position: usize, bytes: &[u8]) {
        for (i, part) in bytes.chunks(4).enumerate() {
            let mut word = [0; 4];
            word[..part.len()].copy_from_slice(part);
            self.store(position + i * 4, u32::from_le_bytes(word));
        }
    }

    /// The bytes of whole words.
    pub fn load_bytes(&self, position: usize, len: usize) -> Vec<u8> {
        let words = len.div_ceil(4);
        let mut bytes: Vec<u8> = (0..words)
            .flat_map(|i| self.load(position + i * 4).to_le_bytes())
            .collect();
        bytes.truncate(len);
        bytes
    }

    /// Copies payload in.
    ///
    /// # Safety
    /// The bytes belong to a block that only the caller writes to, and lie behind what of it was
    /// ever lent out.
    #[inline]
    pub unsafe fn copy_in(&self, position: usize, bytes: &[u8]) {
        assert!(position + bytes.len() <= self.len);
        #[cfg(any(test, feature = "testing"))]
        let bytes = &bytes[..self
            .fuse
            .get()
            .map_or(bytes.len(), |fuse| fuse.cut(bytes.len()))];
        // The model sees a half-done copy.
        #[cfg(test)]
        let (done, bytes) = {
            let (first, second) = bytes.split_at(bytes.len() / 2);
            step();
            // SAFETY: as below.
            unsafe {
                self.base
                    .add(position)
                    .copy_from(NonNull::from(first).cast(), first.len())
            };
            stored();
            step();
            (first.len(), second)
        };
        #[cfg(not(test))]
        let done = 0;
        // SAFETY: within the mapping; nobody reads or writes there, says the caller.
        unsafe {
            std::ptr::copy_nonoverlapping(
                bytes.as_ptr(),
                self.base.add(position + done).as_ptr(),
                bytes.len(),
            );
        }
        stored();
    }

    /// Lends payload out.
    ///
    /// # Safety
    /// Nobody writes to these bytes as long as the slice lives.
    #[inline]
    pub unsafe fn lend(&self, position: usize, len: usize) -> &[u8] {
        assert!(position + len <= self.len);
        // SAFETY: within the mapping; nobody writes there, says the caller.
        unsafe { std::slice::from_raw_parts(self.base.add(position).as_ptr(), len) }
    }

    /// Allocates and maps pages, so that no access faults. An error (no memory, no room in the file
    /// system) leaves everything as it was.
    pub fn populate(&self, position: usize, len: usize) -> io::Result<()> {
        assert!(position + len <= self.len);
        // The kernel refuses an address within a page. Pages of 16 or 64 KiB are larger than those
        // of the layout.
        let within = position % page_size();
        let (position, len) = (position - within, len + within);
        // SAFETY: within the mapping; populating changes no content.
        let populated = unsafe {
            madvise(
                self.base.add(position).as_ptr().cast(),
                len,
                Advice::LinuxPopulateWrite,
            )
        };
        match populated {
            // A kernel before 5.14: the first access maps the page, which fallocate made.
            Err(rustix::io::Errno::INVAL) => Ok(()),
            result => Ok(result?),
        }
    }

    /// Gives the memory of a range back: it reads as zeros, and must not be touched until it is
    /// populated again. `file` is the mapped file, if any.
    pub fn punch(&self, file: Option<&File>, position: usize, len: usize) -> io::Result<()> {
        assert!(position + len <= self.len);
        step();
        #[cfg(any(test, feature = "testing"))]
        let len = match (self.is_gone.load(Ordering::SeqCst), self.fuse.get()) {
            (true, _) => 0,
            (false, fuse) => fuse.map_or(len, |fuse| fuse.cut(len)),
        };
        // The model sees one half gone.
        #[cfg(test)]
        let (position, len) = {
            self.punch_now(file, position, len / 2)?;
            step();
            (position + len / 2, len - len / 2)
        };
        self.punch_now(file, position, len)
    }

    fn punch_now(&self, file: Option<&File>, position: usize, len: usize) -> io::Result<()> {
        if len == 0 {
            return Ok(());
        }
        match file {
            Some(file) => {
                let flags = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
                fallocate(file, flags, position as u64, len as u64)?;
            }
            None => {
                // SAFETY: within the mapping, and nobody has the range: the caller says so.
                unsafe {
                    madvise(
                        self.base.add(position).as_ptr().cast(),
                        len,
                        Advice::LinuxDontNeed,
                    )?;
                }
            }
        }
        stored();
        Ok(())
    }
}

impl Drop for Memory {
    fn drop(&mut self) {
        // SAFETY: mapped by `map` or `anonymous`, and every borrow ended before this.
        let unmapped = unsafe { munmap(self.base.as_ptr().cast(), self.len) };
        debug_assert!(unmapped.is_ok());
    }
}

#[cfg(test)]
mod tests {
    use rustix::fs::{MemfdFlags, memfd_create};

    use super::*;
    use crate::residence::resident_pages;

    #[test]
    fn a_range_that_begins_within_a_page_is_populated() {
        let page = page_size();
        // In memory, like an arena's file: nothing is read ahead.
        let file = File::from(memfd_create("pages", MemfdFlags::CLOEXEC).unwrap());
        file.set_len(8 * page as u64).unwrap();
        let memory = Memory::map(&file, 8 * page).unwrap();
        memory.populate(0, page).unwrap();
        // None on kernels that cannot populate.
        let by_whole_page = resident_pages(&file, 8 * page).unwrap();
        memory.populate(2 * page + 512, page).unwrap();
        assert_eq!(resident_pages(&file, 8 * page).unwrap(), 3 * by_whole_page);
    }
}
