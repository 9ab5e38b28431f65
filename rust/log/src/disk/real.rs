//! The system's files.

use std::cell::RefCell;
use std::collections::HashSet;
use std::fs::{self, File, OpenOptions};
use std::hash::{DefaultHasher, Hash, Hasher};
use std::io::{self, IoSlice, IoSliceMut};
use std::num::NonZeroU64;
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, UNIX_EPOCH};

use parking_lot::Mutex;
use rustix::fs::{Advice, FallocateFlags, FlockOperation};
use rustix::io::{Errno, ReadWriteFlags};

use self::direct::Direct;
use self::past_cache::{RWF_DONTCACHE, is_unknown};
use super::{
    DirEntry, Disk, DiskFile, LockGuard, OpenMode, Space, Stamp, sync_failed, write_zeros,
};

mod direct;
mod past_cache;

/// Files of the operating system.
#[derive(Clone, Copy, Debug, Default)]
pub struct RealDisk;

/// Slices per call at most (IOV_MAX).
const SLICES_MAX: usize = 1024;

/// Read-ahead per call: the kernel cuts longer requests than the device's read-ahead and largest
/// request.
const AHEAD_STEP_BYTES: u64 = 128 << 10;

/// Whether [`RWF_DONTCACHE`] is still accepted for writes.
static DROPS_BEHIND: AtomicBool = AtomicBool::new(true);

/// Lock files of this process as (device, inode): fcntl locks do not exclude their own process.
static HELD_LOCKS: Mutex<Option<HashSet<(u64, u64)>>> = Mutex::new(None);

impl Disk for RealDisk {
    fn open(&self, path: &Path, mode: OpenMode) -> io::Result<Arc<dyn DiskFile>> {
        let mut options = OpenOptions::new();
        options.read(true);
        match mode {
            OpenMode::Read => &mut options,
            OpenMode::Write => options.write(true),
            OpenMode::Create => options.write(true).create(true).truncate(false),
            OpenMode::Truncate => options.write(true).create(true).truncate(true),
        };
        Ok(Arc::new(RealFile {
            file: Arc::new(options.open(path)?),
            past_cache: past_cache::Apart::default(),
            direct: Direct::default(),
            log_dir: LogDirKey::of_file(path),
        }))
    }

    fn create_dir_all(&self, path: &Path) -> io::Result<()> {
        fs::create_dir_all(path)
    }

    fn read_dir(&self, path: &Path) -> io::Result<Vec<DirEntry>> {
        let mut entries = Vec::new();
        for entry in fs::read_dir(path)? {
            let entry = entry?;
            let Ok(name) = entry.file_name().into_string() else {
                continue;
            };
            let kind = entry.file_type()?;
            let is_dir = if kind.is_symlink() {
                fs::metadata(entry.path()).is_ok_and(|target| target.is_dir())
            } else {
                kind.is_dir()
            };
            entries.push(DirEntry { name, is_dir });
        }
        Ok(entries)
    }

    fn exists(&self, path: &Path) -> io::Result<bool> {
        path.try_exists()
    }

    fn file_len(&self, path: &Path) -> io::Result<u64> {
        Ok(fs::metadata(path)?.len())
    }

    fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        fs::rename(from, to)
    }

    fn remove_file(&self, path: &Path) -> io::Result<()> {
        fs::remove_file(path)
    }

    fn remove_dir_all(&self, path: &Path) -> io::Result<()> {
        fs::remove_dir_all(path)
    }

    fn sync_dir(&self, path: &Path) -> io::Result<()> {
        File::open(path)?.sync_all().map_err(sync_failed)
    }

    fn sync_file_system(&self, path: &Path) -> io::Result<()> {
        let synced = rustix::fs::syncfs(File::open(path)?);
        synced.map_err(|error| sync_failed(error.into()))
    }

    fn space(&self, path: &Path) -> io::Result<Space> {
        let volume = rustix::fs::statvfs(path)?;
        let used = volume.f_blocks.saturating_sub(volume.f_bfree);
        let total = used.saturating_add(volume.f_bavail);
        Ok(Space {
            total_bytes: total.saturating_mul(volume.f_frsize),
            usable_bytes: volume.f_bavail.saturating_mul(volume.f_frsize),
        })
    }

    fn modified_ms(&self, path: &Path) -> io::Result<i64> {
        let modified = fs::metadata(path)?.modified()?;
        Ok(match modified.duration_since(UNIX_EPOCH) {
            Ok(after) => i64::try_from(after.as_millis()).unwrap_or(i64::MAX),
            Err(before) => -i64::try_from(before.duration().as_millis()).unwrap_or(i64::MAX),
        })
    }

    fn set_modified_ms(&self, path: &Path, modified_ms: i64) -> io::Result<()> {
        let distance = Duration::from_millis(modified_ms.unsigned_abs());
        let modified = match modified_ms < 0 {
            true => UNIX_EPOCH.checked_sub(distance),
            false => UNIX_EPOCH.checked_add(distance),
        };
        let modified = modified.ok_or(io::ErrorKind::InvalidInput)?;
        File::options()
            .write(true)
            .open(path)?
            .set_modified(modified)
    }

    fn stamp(&self, path: &Path) -> io::Result<Stamp> {
        let file = fs::metadata(path)?;
        let ns = |seconds: i64, ns: i64| i128::from(seconds) * 1_000_000_000 + i128::from(ns);
        Ok(Stamp {
            inode: file.ino(),
            size: file.size(),
            modified_ns: ns(file.mtime(), file.mtime_nsec()),
            changed_ns: ns(file.ctime(), file.ctime_nsec()),
        })
    }

    fn lock(&self, path: &Path) -> io::Result<Box<dyn LockGuard>> {
        // Checked before the file is opened: closing any descriptor of a file drops all of this
        // process's fcntl locks on it.
        let mut held = HELD_LOCKS.lock();
        let held = held.get_or_insert_default();
        if let Ok(existing) = fs::metadata(path)
            && held.contains(&(existing.dev(), existing.ino()))
        {
            return Err(io::ErrorKind::WouldBlock.into());
        }
        let file = OpenOptions::new()
            .read(true)
            .write(true)
            .create(true)
            .truncate(false)
            .open(path)?;
        match rustix::fs::fcntl_lock(&file, FlockOperation::NonBlockingLockExclusive) {
            Ok(()) => {}
            Err(Errno::AGAIN | Errno::ACCESS) => return Err(io::ErrorKind::WouldBlock.into()),
            Err(error) => return Err(error.into()),
        }
        let metadata = file.metadata()?;
        let identity = (metadata.dev(), metadata.ino());
        held.insert(identity);
        Ok(Box::new(RealLock {
            file: Some(file),
            identity,
        }))
    }
}

#[derive(Debug)]
struct RealLock {
    file: Option<File>,
    identity: (u64, u64),
}

impl LockGuard for RealLock {}

impl Drop for RealLock {
    fn drop(&mut self) {
        let mut held = HELD_LOCKS.lock();
        drop(self.file.take());
        if let Some(held) = held.as_mut() {
            held.remove(&self.identity);
        }
    }
}

/// Identifies a log directory: the folder that holds a partition's folder.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LogDirKey(u64);

impl LogDirKey {
    /// For a log directory as written in the paths of its files.
    pub fn of_log_dir(path: &Path) -> LogDirKey {
        let mut hasher = DefaultHasher::new();
        path.hash(&mut hasher);
        LogDirKey(hasher.finish())
    }

    fn of_file(path: &Path) -> LogDirKey {
        let log_dir = path.parent().and_then(Path::parent);
        LogDirKey::of_log_dir(log_dir.unwrap_or(path))
    }
}

type KeptFile = (LogDirKey, Arc<File>);

thread_local! {
    /// Files that a thread has dropped but not closed, if it leaves closing to others.
    static LEFT_OPEN: RefCell<Option<Vec<KeptFile>>> = const { RefCell::new(None) };
}

/// Files dropped by a thread that must not wait. Dropping this closes them.
#[derive(Debug)]
pub struct LeftOpen {
    files: Vec<KeptFile>,
}

impl LeftOpen {
    /// Splits them by log directory, so that a hanging one does not delay closing the others'
    /// files.
    pub fn by_log_dir(mut self) -> Vec<(LogDirKey, LeftOpen)> {
        let mut groups = Vec::new();
        while let Some((key, _)) = self.files.first() {
            let key = *key;
            let files = self.files.extract_if(.., |(k, _)| *k == key).collect();
            groups.push((key, LeftOpen { files }));
        }
        groups
    }
}

/// Makes this thread leave files of logs open. Closing the last descriptor of a removed file frees
/// its blocks and may wait for the disk. A thread that must not wait passes [`take_left_open`] to
/// another.
pub fn leave_files_open() {
    LEFT_OPEN.with_borrow_mut(|left| {
        left.get_or_insert_default();
    });
}

/// The files that this thread dropped since the last call; `None` if none.
pub fn take_left_open() -> Option<LeftOpen> {
    LEFT_OPEN.with_borrow_mut(|left| {
        let files = left.as_mut().filter(|files| !files.is_empty())?;
        let files = std::mem::take(files);
        Some(LeftOpen { files })
    })
}

/// A file system that cannot tell counts as blocking: a thread that may wait does the read.
fn would_block(error: Errno) -> io::Error {
    match error {
        Errno::AGAIN | Errno::OPNOTSUPP | Errno::INTR | Errno::NOSYS => {
            io::ErrorKind::WouldBlock.into()
        }
        error => error.into(),
    }
}

/// A file; by `Arc` so that it can be passed on instead of closed.
#[derive(Debug)]
struct RealFile {
    file: Arc<File>,
    past_cache: past_cache::Apart,
    direct: Direct,
    log_dir: LogDirKey,
}

impl Drop for RealFile {
    fn drop(&mut self) {
        // At a thread's end its list may be gone; the file is then closed here.
        let _gone = LEFT_OPEN.try_with(|left| {
            if let Some(files) = left.borrow_mut().as_mut() {
                files.push((self.log_dir, Arc::clone(&self.file)));
                let apart = self.past_cache.take();
                files.extend(apart.map(|file| (self.log_dir, Arc::new(file))));
                files.extend(self.direct.take().map(|file| (self.log_dir, file)));
            }
        });
    }
}

impl RealFile {
    fn write_some(
        &self,
        slices: &[IoSlice<'_>],
        position: u64,
        drop_behind: bool,
    ) -> Result<usize, Errno> {
        if drop_behind && DROPS_BEHIND.load(Ordering::Relaxed) {
            match rustix::io::pwritev2(&self.file, slices, position, RWF_DONTCACHE) {
                Err(error) if is_unknown(error) => DROPS_BEHIND.store(false, Ordering::Relaxed),
                result => return result,
            }
        }
        rustix::io::pwritev(&self.file, slices, position)
    }
}

/// Writes all of `slices` by calls of `write`, which may write only some and returns the bytes
/// written.
fn write_all_slices(
    slices: &[IoSlice<'_>],
    position: u64,
    write: impl Fn(&[IoSlice<'_>], u64) -> Result<usize, Errno>,
) -> Result<(), Errno> {
    let mut rest = slices.to_vec();
    let mut rest = rest.as_mut_slice();
    let mut at = position;
    while !rest.is_empty() {
        match write(&rest[..rest.len().min(SLICES_MAX)], at) {
            Ok(0) => return Err(Errno::IO),
            Ok(count) => {
                at += count as u64;
                IoSlice::advance_slices(&mut rest, count);
            }
            Err(Errno::INTR) => {}
            Err(error) => return Err(error),
        }
    }
    Ok(())
}

impl DiskFile for RealFile {
    fn read_at(&self, buffer: &mut [u8], position: u64) -> io::Result<usize> {
        loop {
            match self.file.read_at(buffer, position) {
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                result => return result,
            }
        }
    }

    fn read_at_nowait(&self, buffer: &mut [u8], position: u64) -> io::Result<usize> {
        past_cache::read_nowait(&self.file, buffer, position).map_err(would_block)
    }

    fn read_at_nowait_keeping(&self, buffer: &mut [u8], position: u64) -> io::Result<usize> {
        let mut buffers = [IoSliceMut::new(buffer)];
        let flags = ReadWriteFlags::NOWAIT;
        rustix::io::preadv2(&self.file, &mut buffers, position, flags).map_err(would_block)
    }

    fn read_past_cache_at(&self, buffer: &mut [u8], position: u64) -> io::Result<usize> {
        past_cache::read(&self.file, &self.past_cache, buffer, position)
    }

    fn write_all_at(&self, bytes: &[u8], position: u64) -> io::Result<()> {
        self.file.write_all_at(bytes, position)
    }

    fn write_slices_at(
        &self,
        slices: &[IoSlice<'_>],
        position: u64,
        drop_behind: bool,
    ) -> io::Result<()> {
        if slices.is_empty() {
            return Ok(());
        }
        if !drop_behind {
            self.direct.close();
        }
        Ok(write_all_slices(slices, position, |some, at| {
            self.write_some(some, at, drop_behind)
        })?)
    }

    fn write_pages_at(&self, slices: &[IoSlice<'_>], position: u64) -> io::Result<bool> {
        let Some(file) = self.direct.of(self.file.as_fd()) else {
            return Ok(false);
        };
        let write = |some: &[IoSlice<'_>], at: u64| rustix::io::pwritev(&file, some, at);
        match write_all_slices(slices, position, write) {
            Ok(()) => Ok(true),
            // The device requires another alignment.
            Err(Errno::INVAL) => {
                self.direct.refuse();
                Ok(false)
            }
            Err(error) => Err(error.into()),
        }
    }

    fn len(&self) -> io::Result<u64> {
        Ok(self.file.metadata()?.len())
    }

    fn set_len(&self, len: u64) -> io::Result<()> {
        self.file.set_len(len)
    }

    fn allocate(&self, len: u64) -> io::Result<()> {
        match rustix::fs::fallocate(&self.file, FallocateFlags::empty(), 0, len) {
            Err(Errno::OPNOTSUPP | Errno::NOSYS) => write_zeros(self, len),
            result => Ok(result?),
        }
    }

    fn sync_data(&self) -> io::Result<()> {
        self.file.sync_data().map_err(sync_failed)
    }

    fn read_ahead(&self, position: u64, len: u64) {
        let end = position + len;
        let mut at = position;
        while at < end {
            let step = AHEAD_STEP_BYTES.min(end - at);
            // Hints may be refused, here and below.
            let len = NonZeroU64::new(step);
            let _refused = rustix::fs::fadvise(&self.file, at, len, Advice::WillNeed);
            at += step;
        }
    }

    fn give_up_pages(&self, position: u64, len: u64) {
        if let Some(len) = NonZeroU64::new(len) {
            let _refused = rustix::fs::fadvise(&self.file, position, Some(len), Advice::DontNeed);
        }
    }

    fn no_more_writes(&self) {
        self.direct.close();
    }

    fn descriptor(&self) -> Option<BorrowedFd<'_>> {
        Some(self.file.as_fd())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::disk::{PAGE_BYTES, read_exact_at};

    #[test]
    fn files_left_open_are_told_apart_by_their_log_directory() {
        let dir = tempfile::tempdir().unwrap();
        let path = |log_dir: &str, name: &str| dir.path().join(log_dir).join("t-0").join(name);
        for log_dir in ["one", "two"] {
            fs::create_dir_all(dir.path().join(log_dir).join("t-0")).unwrap();
        }
        let groups = std::thread::scope(|scope| {
            let network = scope.spawn(|| {
                leave_files_open();
                for (log_dir, name) in [("one", "a"), ("two", "b"), ("one", "c")] {
                    drop(
                        RealDisk
                            .open(&path(log_dir, name), OpenMode::Create)
                            .unwrap(),
                    );
                }
                take_left_open().unwrap().by_log_dir()
            });
            network.join().unwrap()
        });
        let sizes: Vec<usize> = groups.iter().map(|(_, left)| left.files.len()).collect();
        assert_eq!(sizes, [2, 1]);
        let key = |log_dir: &str| LogDirKey::of_log_dir(&dir.path().join(log_dir));
        assert_eq!((groups[0].0, groups[1].0), (key("one"), key("two")));
    }

    fn open_files_of(path: &Path) -> usize {
        let links = fs::read_dir("/proc/self/fd").unwrap();
        let targets = links.filter_map(|link| fs::read_link(link.unwrap().path()).ok());
        let name = path.to_string_lossy();
        let is_it = |target: &std::path::PathBuf| target.to_string_lossy().starts_with(&*name);
        targets.filter(is_it).count()
    }

    #[test]
    fn network_thread_passes_closed_files_to_another_thread() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("segment");
        let open = || RealDisk.open(&path, OpenMode::Create).unwrap();
        drop(open());
        assert_eq!(
            open_files_of(&path),
            0,
            "closed where nobody asked for more"
        );
        let left = std::thread::scope(|scope| {
            let network = scope.spawn(|| {
                leave_files_open();
                assert!(take_left_open().is_none());
                let file = open();
                let another = Arc::clone(&file);
                drop(file);
                assert!(take_left_open().is_none(), "somebody still has it");
                fs::remove_file(&path).unwrap();
                drop(another);
                let left = take_left_open();
                assert!(take_left_open().is_none(), "handed out once");
                left
            });
            network.join().unwrap()
        });
        assert_eq!(open_files_of(&path), 1);
        drop(left);
        assert_eq!(open_files_of(&path), 0);
    }

    /// Whole pages of memory, each filled with another byte.
    fn pages(memory: &mut Vec<u8>, count: usize) -> &[u8] {
        memory.resize((count + 1) * PAGE_BYTES, 0);
        let start = memory.as_ptr().align_offset(PAGE_BYTES);
        let pages = &mut memory[start..start + count * PAGE_BYTES];
        for (i, page) in pages.chunks_mut(PAGE_BYTES).enumerate() {
            page.fill(i as u8 + 1);
        }
        pages
    }

    #[test]
    fn direct_writes_are_seen_through_the_page_cache() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("segment");
        let file = RealDisk.open(&path, OpenMode::Create).unwrap();
        let mut memory = Vec::new();
        let pages = pages(&mut memory, 4);
        // A partial page, dirty in the page cache.
        file.write_all_at(&[9; PAGE_BYTES + 10], 0).unwrap();
        let mut seen = vec![0; PAGE_BYTES + 10];
        read_exact_at(&*file, &mut seen, 0).unwrap();
        let slices = [&pages[..PAGE_BYTES], &pages[PAGE_BYTES..]].map(IoSlice::new);
        let is_direct = file.write_pages_at(&slices, PAGE_BYTES as u64).unwrap();
        if !is_direct {
            file.write_slices_at(&slices, PAGE_BYTES as u64, true)
                .unwrap();
        }
        // The file's own descriptor, and the one for direct writes.
        assert_eq!(open_files_of(&path), 1 + usize::from(is_direct));
        let mut seen = vec![0; 5 * PAGE_BYTES];
        read_exact_at(&*file, &mut seen, 0).unwrap();
        assert!(seen[..PAGE_BYTES].iter().all(|byte| *byte == 9));
        assert_eq!(&seen[PAGE_BYTES..], pages);
        assert_eq!(file.len().unwrap(), 5 * PAGE_BYTES as u64);

        file.write_slices_at(&[IoSlice::new(b"end")], 5 * PAGE_BYTES as u64, false)
            .unwrap();
        assert_eq!(open_files_of(&path), 1, "little comes any more");
    }

    #[test]
    fn second_descriptor_is_closed_by_another_thread_like_the_first() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("segment");
        let open = || RealDisk.open(&path, OpenMode::Create).unwrap();
        let before = std::thread::scope(|scope| {
            let network = scope.spawn(|| {
                leave_files_open();
                let file = open();
                let mut memory = Vec::new();
                let slices = [IoSlice::new(pages(&mut memory, 2))];
                file.write_pages_at(&slices, 0).unwrap();
                let before = open_files_of(&path);
                drop(file);
                assert_eq!(open_files_of(&path), before, "nothing was closed here");
                (before, take_left_open())
            });
            network.join().unwrap()
        });
        drop(before);
        assert_eq!(open_files_of(&path), 0);
    }
}
