//! A disk that fails on demand.

use std::collections::HashMap;
use std::io;
use std::os::fd::BorrowedFd;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use parking_lot::Mutex;
use rustix::io::Errno;

use crate::disk::{DirEntry, Disk, DiskFile, LockGuard, OpenMode, Space};

/// An operation that can be made to fail.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Operation {
    /// Opening or creating a file.
    Open,
    /// Reading from a file, waiting or not.
    Read,
    /// Writing to a file, or changing its length.
    Write,
    /// Syncing a file's content.
    Sync,
    /// Syncing a directory or the whole file system.
    SyncDir,
    /// Renaming.
    Rename,
    /// Removing a file or folder.
    Remove,
}

/// How it fails.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fault {
    /// EIO; nothing is done.
    InputOutput,
    /// ENOSPC after this many bytes of the write went through.
    NoSpaceAfter(usize),
    /// EMFILE; nothing is done.
    NoDescriptor,
    /// ENOMEM; nothing is done.
    NoMemory,
    /// ENOENT; nothing is done.
    Missing,
    /// `WouldBlock`, as for bytes that are not in memory; for non-waiting reads.
    WouldBlock,
}

impl Fault {
    fn error(self) -> io::Error {
        match self {
            Self::InputOutput => Errno::IO.into(),
            Self::NoSpaceAfter(_) => Errno::NOSPC.into(),
            Self::NoDescriptor => Errno::MFILE.into(),
            Self::NoMemory => Errno::NOMEM.into(),
            Self::Missing => Errno::NOENT.into(),
            Self::WouldBlock => io::ErrorKind::WouldBlock.into(),
        }
    }
}

#[derive(Debug)]
struct Rule {
    operation: Operation,
    name_contains: String,
    skip: usize,
    times: usize,
    fault: Fault,
}

#[derive(Debug, Default)]
struct Faults {
    rules: Vec<Rule>,
    free_bytes: Option<usize>,
    /// Reservations by [`DiskFile::allocate`], by path.
    allocated: HashMap<PathBuf, usize>,
    counts: HashMap<Operation, usize>,
}

/// Passes operations to another disk, except those that a rule makes fail.
#[derive(Clone, Debug)]
pub struct FaultyDisk {
    inner: Arc<dyn Disk>,
    faults: Arc<Mutex<Faults>>,
}

impl FaultyDisk {
    /// Over `inner`, without faults.
    pub fn new(inner: Arc<dyn Disk>) -> Self {
        Self {
            inner,
            faults: Arc::default(),
        }
    }

    /// Of the operations on paths that contain `name_contains`, lets the first `skip` through and
    /// fails the next `times`.
    pub fn fail(
        &self,
        operation: Operation,
        name_contains: &str,
        skip: usize,
        times: usize,
        fault: Fault,
    ) {
        let name_contains = name_contains.to_owned();
        let rule = Rule {
            operation,
            name_contains,
            skip,
            times,
            fault,
        };
        self.faults.lock().rules.push(rule);
    }

    /// Limits the free bytes of the volume: then every write fails with ENOSPC after the part that
    /// fits; `None` = unlimited. Removing a file frees bytes only if they were allocated and never
    /// written.
    pub fn set_free_bytes(&self, free_bytes: Option<usize>) {
        self.faults.lock().free_bytes = free_bytes;
    }

    /// Removes all rules.
    pub fn heal(&self) {
        let mut faults = self.faults.lock();
        faults.rules.clear();
        faults.free_bytes = None;
    }

    /// How often an operation was tried.
    pub fn count(&self, operation: Operation) -> usize {
        let faults = self.faults.lock();
        faults.counts.get(&operation).copied().unwrap_or(0)
    }

    fn check(&self, operation: Operation, path: &Path) -> io::Result<()> {
        match self.fault(operation, path) {
            Some(fault) => Err(fault.error()),
            None => Ok(()),
        }
    }

    fn fault(&self, operation: Operation, path: &Path) -> Option<Fault> {
        let mut faults = self.faults.lock();
        *faults.counts.entry(operation).or_default() += 1;
        let path = path.to_string_lossy();
        for rule in &mut faults.rules {
            if rule.operation != operation || !path.contains(&rule.name_contains) {
                continue;
            }
            if rule.skip > 0 {
                rule.skip -= 1;
            } else if rule.times > 0 {
                rule.times -= 1;
                return Some(rule.fault);
            }
        }
        None
    }

    fn allocate(&self, path: &Path, wanted: usize) -> io::Result<()> {
        let mut faults = self.faults.lock();
        let had = faults.allocated.get(path).copied().unwrap_or(0);
        let more = wanted.saturating_sub(had);
        if let Some(free) = &mut faults.free_bytes {
            *free = free.checked_sub(more).ok_or(Errno::NOSPC)?;
        }
        faults.allocated.insert(path.to_owned(), had + more);
        Ok(())
    }

    fn free(&self, path: &Path) {
        let mut faults = self.faults.lock();
        let freed = faults.allocated.remove(path).unwrap_or(0);
        if let Some(free) = &mut faults.free_bytes {
            *free += freed;
        }
    }

    fn take_space(&self, wanted: usize) -> Option<usize> {
        let mut faults = self.faults.lock();
        let free = faults.free_bytes.as_mut()?;
        let granted = wanted.min(*free);
        *free -= granted;
        (granted < wanted).then_some(granted)
    }
}

impl Disk for FaultyDisk {
    fn open(&self, path: &Path, mode: OpenMode) -> io::Result<Arc<dyn DiskFile>> {
        self.check(Operation::Open, path)?;
        let inner = self.inner.open(path, mode)?;
        Ok(Arc::new(FaultyFile {
            inner,
            path: path.to_owned(),
            disk: self.clone(),
        }))
    }

    fn create_dir_all(&self, path: &Path) -> io::Result<()> {
        self.check(Operation::Open, path)?;
        self.inner.create_dir_all(path)
    }

    fn read_dir(&self, path: &Path) -> io::Result<Vec<DirEntry>> {
        self.inner.read_dir(path)
    }

    fn exists(&self, path: &Path) -> io::Result<bool> {
        self.inner.exists(path)
    }

    fn file_len(&self, path: &Path) -> io::Result<u64> {
        self.inner.file_len(path)
    }

    fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        self.check(Operation::Rename, from)?;
        self.inner.rename(from, to)
    }

    fn remove_file(&self, path: &Path) -> io::Result<()> {
        self.check(Operation::Remove, path)?;
        self.free(path);
        self.inner.remove_file(path)
    }

    fn remove_dir_all(&self, path: &Path) -> io::Result<()> {
        self.check(Operation::Remove, path)?;
        self.inner.remove_dir_all(path)
    }

    fn sync_dir(&self, path: &Path) -> io::Result<()> {
        self.check(Operation::SyncDir, path)?;
        self.inner.sync_dir(path)
    }

    fn sync_file_system(&self, path: &Path) -> io::Result<()> {
        self.check(Operation::SyncDir, path)?;
        self.inner.sync_file_system(path)
    }

    fn space(&self, path: &Path) -> io::Result<Space> {
        let mut space = self.inner.space(path)?;
        if let Some(free) = self.faults.lock().free_bytes {
            space.usable_bytes = free as u64;
        }
        Ok(space)
    }

    fn modified_ms(&self, path: &Path) -> io::Result<i64> {
        self.inner.modified_ms(path)
    }

    fn set_modified_ms(&self, path: &Path, modified_ms: i64) -> io::Result<()> {
        self.check(Operation::Write, path)?;
        self.inner.set_modified_ms(path, modified_ms)
    }

    fn lock(&self, path: &Path) -> io::Result<Box<dyn LockGuard>> {
        self.inner.lock(path)
    }
}

#[derive(Debug)]
struct FaultyFile {
    inner: Arc<dyn DiskFile>,
    path: PathBuf,
    disk: FaultyDisk,
}

impl DiskFile for FaultyFile {
    fn read_at(&self, buffer: &mut [u8], position: u64) -> io::Result<usize> {
        match self.disk.fault(Operation::Read, &self.path) {
            Some(Fault::WouldBlock) | None => self.inner.read_at(buffer, position),
            Some(fault) => Err(fault.error()),
        }
    }

    fn read_at_nowait(&self, buffer: &mut [u8], position: u64) -> io::Result<usize> {
        self.disk.check(Operation::Read, &self.path)?;
        self.inner.read_at_nowait(buffer, position)
    }

    fn write_all_at(&self, bytes: &[u8], position: u64) -> io::Result<()> {
        match self.disk.fault(Operation::Write, &self.path) {
            Some(Fault::NoSpaceAfter(n)) => {
                self.inner
                    .write_all_at(&bytes[..n.min(bytes.len())], position)?;
                return Err(Errno::NOSPC.into());
            }
            Some(fault) => return Err(fault.error()),
            None => {}
        }
        if let Some(fits) = self.disk.take_space(bytes.len()) {
            self.inner.write_all_at(&bytes[..fits], position)?;
            return Err(Errno::NOSPC.into());
        }
        self.inner.write_all_at(bytes, position)
    }

    fn len(&self) -> io::Result<u64> {
        self.inner.len()
    }

    fn set_len(&self, len: u64) -> io::Result<()> {
        match self.disk.fault(Operation::Write, &self.path) {
            // Truncating needs no space.
            Some(Fault::NoSpaceAfter(_)) if len <= self.inner.len()? => {}
            Some(fault) => return Err(fault.error()),
            None => {}
        }
        self.inner.set_len(len)
    }

    fn allocate(&self, len: u64) -> io::Result<()> {
        self.disk.check(Operation::Write, &self.path)?;
        self.disk.allocate(&self.path, len as usize)
    }

    fn sync_data(&self) -> io::Result<()> {
        self.disk.check(Operation::Sync, &self.path)?;
        self.inner.sync_data()
    }

    fn read_ahead(&self, position: u64, len: u64) {
        self.inner.read_ahead(position, len);
    }

    fn descriptor(&self) -> Option<BorrowedFd<'_>> {
        self.inner.descriptor()
    }
}
