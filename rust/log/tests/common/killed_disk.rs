//! A disk on which nothing has an effect after a number of steps, shared with an arena: leaves what
//! a kill would leave.

use std::io;
use std::os::fd::BorrowedFd;
use std::path::Path;
use std::sync::Arc;

use pyrklog_arena::Fuse;
use pyrklog_log::disk::{DirEntry, Disk, DiskFile, LockGuard, OpenMode, Space};

/// See the module.
#[derive(Debug)]
pub struct KilledDisk {
    pub inner: Arc<dyn Disk>,
    pub fuse: Fuse,
}

#[derive(Debug)]
struct KilledFile {
    inner: Arc<dyn DiskFile>,
    fuse: Fuse,
}

fn step<T>(fuse: &Fuse, act: impl FnOnce() -> io::Result<T>) -> io::Result<T> {
    if fuse.is_blown() {
        return Err(io::Error::other("the process is dead"));
    }
    act()
}

impl Disk for KilledDisk {
    fn open(&self, path: &Path, mode: OpenMode) -> io::Result<Arc<dyn DiskFile>> {
        let open = || self.inner.open(path, mode);
        let inner = match mode {
            OpenMode::Create | OpenMode::Truncate => step(&self.fuse, open)?,
            OpenMode::Read | OpenMode::Write => open()?,
        };
        let fuse = self.fuse.clone();
        Ok(Arc::new(KilledFile { inner, fuse }))
    }
    fn create_dir_all(&self, path: &Path) -> io::Result<()> {
        step(&self.fuse, || self.inner.create_dir_all(path))
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
        step(&self.fuse, || self.inner.rename(from, to))
    }
    fn remove_file(&self, path: &Path) -> io::Result<()> {
        step(&self.fuse, || self.inner.remove_file(path))
    }
    fn remove_dir_all(&self, path: &Path) -> io::Result<()> {
        step(&self.fuse, || self.inner.remove_dir_all(path))
    }
    fn sync_dir(&self, path: &Path) -> io::Result<()> {
        step(&self.fuse, || self.inner.sync_dir(path))
    }
    fn sync_file_system(&self, path: &Path) -> io::Result<()> {
        step(&self.fuse, || self.inner.sync_file_system(path))
    }
    fn space(&self, path: &Path) -> io::Result<Space> {
        self.inner.space(path)
    }
    fn modified_ms(&self, path: &Path) -> io::Result<i64> {
        self.inner.modified_ms(path)
    }
    fn set_modified_ms(&self, path: &Path, modified_ms: i64) -> io::Result<()> {
        step(&self.fuse, || self.inner.set_modified_ms(path, modified_ms))
    }
    fn lock(&self, path: &Path) -> io::Result<Box<dyn LockGuard>> {
        self.inner.lock(path)
    }
}

impl DiskFile for KilledFile {
    fn read_at(&self, buffer: &mut [u8], position: u64) -> io::Result<usize> {
        self.inner.read_at(buffer, position)
    }
    fn read_at_nowait(&self, buffer: &mut [u8], position: u64) -> io::Result<usize> {
        self.inner.read_at_nowait(buffer, position)
    }
    fn write_all_at(&self, bytes: &[u8], position: u64) -> io::Result<()> {
        let arrives = self.fuse.cut(bytes.len());
        self.inner.write_all_at(&bytes[..arrives], position)?;
        if arrives < bytes.len() {
            return Err(io::Error::other("the process is dead"));
        }
        Ok(())
    }
    fn len(&self) -> io::Result<u64> {
        self.inner.len()
    }
    fn set_len(&self, len: u64) -> io::Result<()> {
        step(&self.fuse, || self.inner.set_len(len))
    }
    fn sync_data(&self) -> io::Result<()> {
        step(&self.fuse, || self.inner.sync_data())
    }
    fn read_ahead(&self, position: u64, len: u64) {
        self.inner.read_ahead(position, len);
    }
    fn descriptor(&self) -> Option<BorrowedFd<'_>> {
        self.inner.descriptor()
    }
}
