//! A disk that ignores every step after a given number: it then holds what a kill would leave, or
//! a loss of power if the disk below forgets what was not synced.

use std::io;
use std::os::fd::BorrowedFd;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};

use pyrklog_log::disk::{DirEntry, Disk, DiskFile, LockGuard, OpenMode, RealDisk, Space, Stamp};

/// Clones share their steps.
#[derive(Clone, Debug)]
pub struct DyingDisk {
    steps: Arc<AtomicI64>,
    inner: Arc<dyn Disk>,
    /// Whether syncs matter.
    syncs: bool,
}

#[derive(Debug)]
struct DyingFile {
    inner: Arc<dyn DiskFile>,
    disk: DyingDisk,
}

impl DyingDisk {
    pub fn new() -> DyingDisk {
        DyingDisk {
            steps: Arc::new(AtomicI64::new(i64::MAX)),
            inner: Arc::new(RealDisk),
            syncs: false,
        }
    }

    /// Over a disk that forgets what was not synced.
    pub fn over(inner: Arc<dyn Disk>) -> DyingDisk {
        DyingDisk {
            inner,
            syncs: true,
            ..DyingDisk::new()
        }
    }

    /// Only this many more steps have an effect.
    pub fn die_after(&self, steps: i64) {
        self.steps.store(steps, Ordering::SeqCst);
    }

    /// Whether a step had no effect.
    pub fn is_dead(&self) -> bool {
        self.steps.load(Ordering::SeqCst) < 0
    }

    fn step<T>(&self, act: impl FnOnce() -> io::Result<T>) -> io::Result<T> {
        if self.steps.fetch_sub(1, Ordering::SeqCst) <= 0 {
            return Err(io::Error::other("the process is dead"));
        }
        act()
    }
}

impl Disk for DyingDisk {
    fn open(&self, path: &Path, mode: OpenMode) -> io::Result<Arc<dyn DiskFile>> {
        let open = || self.inner.open(path, mode);
        let inner = match mode {
            OpenMode::Create | OpenMode::Truncate => self.step(open)?,
            OpenMode::Read | OpenMode::Write => open()?,
        };
        let disk = self.clone();
        Ok(Arc::new(DyingFile { inner, disk }))
    }
    fn create_dir_all(&self, path: &Path) -> io::Result<()> {
        match self.inner.exists(path)? {
            true => Ok(()),
            false => self.step(|| self.inner.create_dir_all(path)),
        }
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
        self.step(|| self.inner.rename(from, to))
    }
    fn remove_file(&self, path: &Path) -> io::Result<()> {
        self.step(|| self.inner.remove_file(path))
    }
    fn remove_dir_all(&self, path: &Path) -> io::Result<()> {
        self.step(|| self.inner.remove_dir_all(path))
    }
    fn sync_dir(&self, path: &Path) -> io::Result<()> {
        self.step(|| self.inner.sync_dir(path))
    }
    fn sync_file_system(&self, path: &Path) -> io::Result<()> {
        // Only a loss of power could tell.
        self.step(|| match self.syncs {
            true => self.inner.sync_file_system(path),
            false => self.inner.exists(path).map(drop),
        })
    }
    fn space(&self, path: &Path) -> io::Result<Space> {
        self.inner.space(path)
    }
    fn modified_ms(&self, path: &Path) -> io::Result<i64> {
        self.inner.modified_ms(path)
    }
    fn set_modified_ms(&self, path: &Path, modified_ms: i64) -> io::Result<()> {
        self.step(|| self.inner.set_modified_ms(path, modified_ms))
    }
    fn stamp(&self, path: &Path) -> io::Result<Stamp> {
        self.inner.stamp(path)
    }
    fn lock(&self, path: &Path) -> io::Result<Box<dyn LockGuard>> {
        self.inner.lock(path)
    }
}

impl DiskFile for DyingFile {
    fn read_at(&self, buffer: &mut [u8], position: u64) -> io::Result<usize> {
        self.inner.read_at(buffer, position)
    }
    fn read_at_nowait(&self, buffer: &mut [u8], position: u64) -> io::Result<usize> {
        self.inner.read_at_nowait(buffer, position)
    }
    fn write_all_at(&self, bytes: &[u8], position: u64) -> io::Result<()> {
        self.disk.step(|| self.inner.write_all_at(bytes, position))
    }
    fn len(&self) -> io::Result<u64> {
        self.inner.len()
    }
    fn set_len(&self, len: u64) -> io::Result<()> {
        self.disk.step(|| self.inner.set_len(len))
    }
    fn sync_data(&self) -> io::Result<()> {
        self.disk.step(|| match self.disk.syncs {
            true => self.inner.sync_data(),
            false => self.inner.len().map(drop),
        })
    }
    fn read_ahead(&self, position: u64, len: u64) {
        self.inner.read_ahead(position, len);
    }
    fn descriptor(&self) -> Option<BorrowedFd<'_>> {
        self.inner.descriptor()
    }
}
