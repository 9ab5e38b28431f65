//! A disk whose writes, non-resident reads, or anything about one log can be held back.

use std::io;
use std::os::fd::BorrowedFd;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use parking_lot::{Condvar, Mutex};
use pyrklog_log::disk::{DirEntry, Disk, DiskFile, LockGuard, OpenMode, RealDisk, Space, Stamp};

#[derive(Debug, Default)]
struct State {
    is_frozen: bool,
    is_cold: bool,
    waiting_writes: usize,
    may_pass: usize,
    blocking_reads: usize,
    held: Option<String>,
    held_up: usize,
}

/// Clones share their state.
#[derive(Clone, Debug, Default)]
pub struct SlowDisk {
    state: Arc<(Mutex<State>, Condvar)>,
}

impl SlowDisk {
    /// Writes to segment files wait from now on.
    pub fn freeze(&self) {
        self.state.0.lock().is_frozen = true;
    }

    /// One of the frozen writes goes on, or the next one.
    pub fn let_one_pass(&self) {
        self.state.0.lock().may_pass += 1;
        self.state.1.notify_all();
    }

    pub fn thaw(&self) {
        self.state.0.lock().is_frozen = false;
        self.state.1.notify_all();
    }

    /// Nothing is resident: reads that must not wait fail.
    pub fn set_cold(&self, is_cold: bool) {
        self.state.0.lock().is_cold = is_cold;
    }

    /// Reads below folders of this name wait, and so does the making of such a folder; their bytes
    /// are not resident.
    pub fn hold(&self, folder: &str) {
        self.state.0.lock().held = Some(folder.to_owned());
    }

    pub fn release(&self) {
        self.state.0.lock().held = None;
        self.state.1.notify_all();
    }

    /// How many wait for [`Self::release`].
    pub fn held_up(&self) -> usize {
        self.state.0.lock().held_up
    }

    fn holds(&self, path: &Path) -> bool {
        let state = self.state.0.lock();
        let mut parts = path.iter();
        state
            .held
            .as_deref()
            .is_some_and(|held| parts.any(|part| part == held))
    }

    fn wait_while_held(&self, path: &Path) {
        if !self.holds(path) {
            return;
        }
        let (state, released) = &*self.state;
        let mut state = state.lock();
        state.held_up += 1;
        while state.held.is_some() {
            released.wait(&mut state);
        }
        state.held_up -= 1;
    }

    pub fn waiting_writes(&self) -> usize {
        self.state.0.lock().waiting_writes
    }

    /// Reads that could wait, so far.
    pub fn blocking_reads(&self) -> usize {
        self.state.0.lock().blocking_reads
    }
}

#[derive(Debug)]
struct SlowFile {
    inner: Arc<dyn DiskFile>,
    disk: SlowDisk,
    path: PathBuf,
    is_segment: bool,
}

impl Disk for SlowDisk {
    fn open(&self, path: &Path, mode: OpenMode) -> io::Result<Arc<dyn DiskFile>> {
        let inner = RealDisk.open(path, mode)?;
        let is_segment = path.extension().is_some_and(|extension| extension == "log");
        Ok(Arc::new(SlowFile {
            inner,
            disk: self.clone(),
            path: path.to_path_buf(),
            is_segment,
        }))
    }
    fn create_dir_all(&self, path: &Path) -> io::Result<()> {
        self.wait_while_held(path);
        RealDisk.create_dir_all(path)
    }
    fn read_dir(&self, path: &Path) -> io::Result<Vec<DirEntry>> {
        RealDisk.read_dir(path)
    }
    fn exists(&self, path: &Path) -> io::Result<bool> {
        RealDisk.exists(path)
    }
    fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        RealDisk.rename(from, to)
    }
    fn remove_file(&self, path: &Path) -> io::Result<()> {
        RealDisk.remove_file(path)
    }
    fn remove_dir_all(&self, path: &Path) -> io::Result<()> {
        RealDisk.remove_dir_all(path)
    }
    fn sync_dir(&self, path: &Path) -> io::Result<()> {
        RealDisk.sync_dir(path)
    }
    fn sync_file_system(&self, path: &Path) -> io::Result<()> {
        RealDisk.sync_file_system(path)
    }
    fn space(&self, path: &Path) -> io::Result<Space> {
        RealDisk.space(path)
    }
    fn modified_ms(&self, path: &Path) -> io::Result<i64> {
        RealDisk.modified_ms(path)
    }
    fn set_modified_ms(&self, path: &Path, modified_ms: i64) -> io::Result<()> {
        RealDisk.set_modified_ms(path, modified_ms)
    }
    fn stamp(&self, path: &Path) -> io::Result<Stamp> {
        RealDisk.stamp(path)
    }
    fn file_len(&self, path: &Path) -> io::Result<u64> {
        RealDisk.file_len(path)
    }
    fn lock(&self, path: &Path) -> io::Result<Box<dyn LockGuard>> {
        RealDisk.lock(path)
    }
}

impl DiskFile for SlowFile {
    fn read_at(&self, buffer: &mut [u8], position: u64) -> io::Result<usize> {
        self.disk.state.0.lock().blocking_reads += 1;
        self.disk.wait_while_held(&self.path);
        self.inner.read_at(buffer, position)
    }
    fn read_at_nowait(&self, buffer: &mut [u8], position: u64) -> io::Result<usize> {
        if self.disk.state.0.lock().is_cold || self.disk.holds(&self.path) {
            return Err(io::ErrorKind::WouldBlock.into());
        }
        self.inner.read_at_nowait(buffer, position)
    }
    fn write_all_at(&self, bytes: &[u8], position: u64) -> io::Result<()> {
        let (state, thawed) = &*self.disk.state;
        let mut state = state.lock();
        state.waiting_writes += 1;
        while state.is_frozen && self.is_segment && state.may_pass == 0 {
            thawed.wait(&mut state);
        }
        if self.is_segment {
            state.may_pass = state.may_pass.saturating_sub(1);
        }
        state.waiting_writes -= 1;
        drop(state);
        self.inner.write_all_at(bytes, position)
    }
    fn len(&self) -> io::Result<u64> {
        self.inner.len()
    }
    fn set_len(&self, len: u64) -> io::Result<()> {
        self.inner.set_len(len)
    }
    fn allocate(&self, len: u64) -> io::Result<()> {
        self.inner.allocate(len)
    }
    fn sync_data(&self) -> io::Result<()> {
        self.inner.sync_data()
    }
    fn read_ahead(&self, position: u64, len: u64) {
        self.inner.read_ahead(position, len);
    }
    fn descriptor(&self) -> Option<BorrowedFd<'_>> {
        self.inner.descriptor()
    }
}
