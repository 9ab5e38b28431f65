//! A disk that stalls on demand.

use std::io;
use std::os::fd::BorrowedFd;
use std::path::Path;
use std::sync::Arc;

use parking_lot::{Condvar, Mutex};

use crate::disk::{DirEntry, Disk, DiskFile, LockGuard, OpenMode, Space, Stamp};

#[derive(Debug, Default)]
struct State {
    stalled: Option<String>,
    cold: Option<String>,
    waiting: usize,
    watched: Option<String>,
    waited_for: Vec<String>,
}

/// Passes operations to another disk. Stalled ones wait, except for non-waiting reads: those find
/// what is resident, as on a hanging real disk. Clones share their state.
#[derive(Clone, Debug)]
pub struct StallingDisk {
    inner: Arc<dyn Disk>,
    state: Arc<(Mutex<State>, Condvar)>,
}

impl StallingDisk {
    /// Over `inner`, not stalled.
    pub fn new(inner: Arc<dyn Disk>) -> Self {
        Self {
            inner,
            state: Arc::default(),
        }
    }

    /// Stalls operations on paths that contain `name_contains`. Others that are stalled continue.
    pub fn stall(&self, name_contains: &str) {
        self.state.0.lock().stalled = Some(name_contains.to_owned());
        self.state.1.notify_all();
    }

    /// Lets them continue.
    pub fn resume(&self) {
        self.state.0.lock().stalled = None;
        self.state.1.notify_all();
    }

    /// Makes files whose paths contain `name_contains` non-resident; `None` = no file.
    pub fn set_cold(&self, name_contains: Option<&str>) {
        self.state.0.lock().cold = name_contains.map(str::to_owned);
    }

    /// Number of stalled operations.
    pub fn waiting(&self) -> usize {
        self.state.0.lock().waiting
    }

    /// Records blocking operations of threads whose names begin with `prefix`.
    pub fn watch_threads(&self, prefix: &str) {
        self.state.0.lock().watched = Some(prefix.to_owned());
    }

    /// The recorded operations: thread, operation and path.
    pub fn waited_for(&self) -> Vec<String> {
        self.state.0.lock().waited_for.clone()
    }

    /// Called for every operation that may block on a real disk.
    fn pass(&self, operation: &str, path: &Path) {
        let (state, moved) = &*self.state;
        let mut state = state.lock();
        let thread = std::thread::current();
        if let (Some(prefix), Some(name)) = (&state.watched, thread.name())
            && name.starts_with(prefix.as_str())
        {
            let what = format!("{name}: {operation} {}", path.display());
            state.waited_for.push(what);
        }
        let path = path.to_string_lossy();
        let is_stalled = |state: &State| {
            let part = state.stalled.as_deref();
            part.is_some_and(|part| path.contains(part))
        };
        if !is_stalled(&state) {
            return;
        }
        state.waiting += 1;
        while is_stalled(&state) {
            moved.wait(&mut state);
        }
        state.waiting -= 1;
    }

    fn is_cold(&self, path: &Path) -> bool {
        let state = self.state.0.lock();
        let part = state.cold.as_deref();
        part.is_some_and(|part| path.to_string_lossy().contains(part))
    }
}

impl Disk for StallingDisk {
    fn open(&self, path: &Path, mode: OpenMode) -> io::Result<Arc<dyn DiskFile>> {
        self.pass("open", path);
        Ok(Arc::new(StallingFile {
            inner: self.inner.open(path, mode)?,
            path: Arc::from(path),
            disk: self.clone(),
        }))
    }

    fn create_dir_all(&self, path: &Path) -> io::Result<()> {
        self.pass("mkdir", path);
        self.inner.create_dir_all(path)
    }

    fn read_dir(&self, path: &Path) -> io::Result<Vec<DirEntry>> {
        self.pass("list", path);
        self.inner.read_dir(path)
    }

    fn exists(&self, path: &Path) -> io::Result<bool> {
        self.pass("stat", path);
        self.inner.exists(path)
    }

    fn file_len(&self, path: &Path) -> io::Result<u64> {
        self.pass("stat", path);
        self.inner.file_len(path)
    }

    fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        self.pass("rename", from);
        self.inner.rename(from, to)
    }

    fn remove_file(&self, path: &Path) -> io::Result<()> {
        self.pass("unlink", path);
        self.inner.remove_file(path)
    }

    fn remove_dir_all(&self, path: &Path) -> io::Result<()> {
        self.pass("remove", path);
        self.inner.remove_dir_all(path)
    }

    fn sync_dir(&self, path: &Path) -> io::Result<()> {
        self.pass("sync", path);
        self.inner.sync_dir(path)
    }

    fn sync_file_system(&self, path: &Path) -> io::Result<()> {
        self.pass("sync", path);
        self.inner.sync_file_system(path)
    }

    fn space(&self, path: &Path) -> io::Result<Space> {
        self.pass("statvfs", path);
        self.inner.space(path)
    }

    fn modified_ms(&self, path: &Path) -> io::Result<i64> {
        self.pass("stat", path);
        self.inner.modified_ms(path)
    }

    fn set_modified_ms(&self, path: &Path, modified_ms: i64) -> io::Result<()> {
        self.pass("utime", path);
        self.inner.set_modified_ms(path, modified_ms)
    }

    fn stamp(&self, path: &Path) -> io::Result<Stamp> {
        self.pass("stat", path);
        self.inner.stamp(path)
    }

    fn lock(&self, path: &Path) -> io::Result<Box<dyn LockGuard>> {
        self.pass("lock", path);
        self.inner.lock(path)
    }
}

#[derive(Debug)]
struct StallingFile {
    inner: Arc<dyn DiskFile>,
    path: Arc<Path>,
    disk: StallingDisk,
}

impl DiskFile for StallingFile {
    fn read_at(&self, buffer: &mut [u8], position: u64) -> io::Result<usize> {
        self.disk.pass("read", &self.path);
        self.inner.read_at(buffer, position)
    }

    fn read_at_nowait(&self, buffer: &mut [u8], position: u64) -> io::Result<usize> {
        if self.disk.is_cold(&self.path) {
            return Err(io::ErrorKind::WouldBlock.into());
        }
        self.inner.read_at_nowait(buffer, position)
    }

    fn write_all_at(&self, bytes: &[u8], position: u64) -> io::Result<()> {
        self.disk.pass("write", &self.path);
        self.inner.write_all_at(bytes, position)
    }

    fn len(&self) -> io::Result<u64> {
        self.disk.pass("stat", &self.path);
        self.inner.len()
    }

    fn set_len(&self, len: u64) -> io::Result<()> {
        self.disk.pass("truncate", &self.path);
        self.inner.set_len(len)
    }

    fn allocate(&self, len: u64) -> io::Result<()> {
        self.disk.pass("fallocate", &self.path);
        self.inner.allocate(len)
    }

    fn sync_data(&self) -> io::Result<()> {
        self.disk.pass("sync", &self.path);
        self.inner.sync_data()
    }

    fn read_ahead(&self, position: u64, len: u64) {
        self.disk.pass("read ahead", &self.path);
        self.inner.read_ahead(position, len);
    }

    /// None: its holder could bypass the stall.
    fn descriptor(&self) -> Option<BorrowedFd<'_>> {
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::disk::testing::MemDisk;

    #[test]
    fn a_stalled_part_waits_and_the_rest_goes_on() {
        let disk = StallingDisk::new(Arc::new(MemDisk::default()));
        let create = |path: &str| disk.open(Path::new(path), OpenMode::Create).unwrap();
        disk.create_dir_all(Path::new("/one")).unwrap();
        disk.create_dir_all(Path::new("/two")).unwrap();
        let (slow, fast) = (create("/one/file"), create("/two/file"));
        slow.write_all_at(b"abc", 0).unwrap();
        disk.stall("/one/");
        let writer = std::thread::spawn(move || slow.write_all_at(b"defg", 0));
        while disk.waiting() == 0 {
            std::thread::yield_now();
        }
        fast.write_all_at(b"abc", 0).unwrap();
        assert!(!writer.is_finished());
        disk.resume();
        writer.join().unwrap().unwrap();
        assert_eq!(disk.waiting(), 0);
        assert_eq!(disk.file_len(Path::new("/one/file")).unwrap(), 4);
    }

    #[test]
    fn calls_of_watched_threads_are_noted() {
        let disk = StallingDisk::new(Arc::new(MemDisk::default()));
        disk.watch_threads("net");
        let as_thread = |name: &str| {
            let disk = disk.clone();
            let act = move || disk.exists(Path::new("/file")).unwrap();
            let builder = std::thread::Builder::new().name(name.to_owned());
            builder.spawn(act).unwrap().join().unwrap()
        };
        as_thread("reader-1");
        assert_eq!(disk.waited_for(), Vec::<String>::new());
        as_thread("net-1");
        assert_eq!(disk.waited_for(), ["net-1: stat /file"]);
    }
}
