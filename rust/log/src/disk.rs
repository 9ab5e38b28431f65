//! The only way to files: a trait with implementations for production and for tests (feature
//! `testing`).
//!
//! Everything the log does to a disk goes through [`Disk`] and [`DiskFile`], so that tests can make
//! any operation fail, run short, or lose unsynced data. Nothing here retries: the caller decides
//! what an error means (a failed write or sync poisons, see [`crate::LogEnv`]).

use std::fmt::Debug;
use std::io::{self, IoSlice};
use std::os::fd::BorrowedFd;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use rustix::io::Errno;

mod real;
pub use real::{LeftOpen, LogDirKey, RealDisk, leave_files_open, take_left_open};
#[cfg(feature = "testing")]
pub mod testing;

/// Of memory and files, for [`DiskFile::write_pages_at`].
pub const PAGE_BYTES: usize = 4096;

const ZEROS_BYTES: usize = 1 << 20;

/// How [`Disk::open`] opens a file; all modes can read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OpenMode {
    /// The file must exist; reading only.
    Read,
    /// The file must exist; reading and writing.
    Write,
    /// Creates a missing file; keeps the content.
    Create,
    /// Creates a missing file; empties an existing one.
    Truncate,
}

/// An entry of a directory.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct DirEntry {
    /// File name without the directory. Names that are not UTF-8 are not listed.
    pub name: String,
    /// A directory; symbolic links are followed.
    pub is_dir: bool,
}

/// Sizes of a volume.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Space {
    /// Bytes of the volume but those kept for root, as `df` counts: what is used and usable.
    pub total_bytes: u64,
    /// Bytes that an unprivileged process can still use.
    pub usable_bytes: u64,
}

/// Identifies the state of a file: some field changes with every change of content, and no program
/// can restore all of them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Stamp {
    /// The file's number on its volume.
    pub inode: u64,
    /// Size in bytes.
    pub size: u64,
    /// When its content changed, nanoseconds since the epoch.
    pub modified_ns: i128,
    /// When its inode changed, nanoseconds since the epoch.
    pub changed_ns: i128,
}

/// A file system.
pub trait Disk: Debug + Send + Sync + 'static {
    /// Opens or creates a file.
    fn open(&self, path: &Path, mode: OpenMode) -> io::Result<Arc<dyn DiskFile>>;
    /// Creates a directory and its missing parents; succeeds if it exists.
    fn create_dir_all(&self, path: &Path) -> io::Result<()>;
    /// Entries of a directory, in no particular order.
    fn read_dir(&self, path: &Path) -> io::Result<Vec<DirEntry>>;
    /// Whether the file or directory exists.
    fn exists(&self, path: &Path) -> io::Result<bool>;
    /// Size of a file in bytes.
    fn file_len(&self, path: &Path) -> io::Result<u64>;
    /// Renames a file or directory, replacing an existing file. Durable after [`Disk::sync_dir`].
    fn rename(&self, from: &Path, to: &Path) -> io::Result<()>;
    /// Removes a file.
    fn remove_file(&self, path: &Path) -> io::Result<()>;
    /// Removes a directory with its content.
    fn remove_dir_all(&self, path: &Path) -> io::Result<()>;
    /// Makes the entries of a directory (creations, renames, removals) durable.
    fn sync_dir(&self, path: &Path) -> io::Result<()>;
    /// Makes everything on the volume of `path` durable (syncfs(2)).
    fn sync_file_system(&self, path: &Path) -> io::Result<()>;
    /// The volume's sizes.
    fn space(&self, path: &Path) -> io::Result<Space>;
    /// When a file was last changed, milliseconds since the epoch.
    fn modified_ms(&self, path: &Path) -> io::Result<i64>;
    /// Says that a file was last changed then. A power loss may undo it.
    fn set_modified_ms(&self, path: &Path, modified_ms: i64) -> io::Result<()>;
    /// A file's stamp, without reading its content. `ErrorKind::Unsupported` if the file system has
    /// none.
    fn stamp(&self, path: &Path) -> io::Result<Stamp> {
        let reason = format!("{}: no stamps here", path.display());
        Err(io::Error::new(io::ErrorKind::Unsupported, reason))
    }
    /// Takes the exclusive lock of a file (fcntl(2), as Java does) and creates the file if missing.
    /// `ErrorKind::WouldBlock` if a process, including this one, holds it. The lock ends when the
    /// guard is dropped or the process dies.
    fn lock(&self, path: &Path) -> io::Result<Box<dyn LockGuard>>;
}

/// Holds a file's lock until dropped.
pub trait LockGuard: Debug + Send + Sync {}

/// An open file. Positions are absolute, so threads may share it.
pub trait DiskFile: Debug + Send + Sync {
    /// Reads up to `buffer.len()` bytes at `position`; 0 at the end of the file.
    fn read_at(&self, buffer: &mut [u8], position: u64) -> io::Result<usize>;
    /// The same without waiting for the disk: `ErrorKind::WouldBlock` if the bytes may not be in
    /// memory (preadv2 with RWF_NOWAIT).
    fn read_at_nowait(&self, buffer: &mut [u8], position: u64) -> io::Result<usize>;
    /// [`DiskFile::read_at`] that leaves no further pages in the page cache, for bytes that are
    /// read once.
    fn read_past_cache_at(&self, buffer: &mut [u8], position: u64) -> io::Result<usize> {
        self.read_at(buffer, position)
    }
    /// Writes all bytes at `position`.
    fn write_all_at(&self, bytes: &[u8], position: u64) -> io::Result<()>;
    /// Writes all of `slices` in sequence at `position`. With `drop_behind` the system need not
    /// cache the bytes once they are on the disk.
    fn write_slices_at(
        &self,
        slices: &[IoSlice<'_>],
        position: u64,
        drop_behind: bool,
    ) -> io::Result<()> {
        let _a_hint = drop_behind;
        let mut at = position;
        for slice in slices {
            self.write_all_at(slice, at)?;
            at += slice.len() as u64;
        }
        Ok(())
    }
    /// Writes all of `slices` in sequence at `position`, past the page cache (O_DIRECT) and without
    /// a copy. Addresses, lengths and `position` must be multiples of [`PAGE_BYTES`]. On false some
    /// bytes may be written, and the caller must write all of them in another way.
    fn write_pages_at(&self, slices: &[IoSlice<'_>], position: u64) -> io::Result<bool> {
        for slice in slices {
            let numbers = [slice.as_ptr().addr(), slice.len(), position as usize];
            assert!(numbers.iter().all(|n| n.is_multiple_of(PAGE_BYTES)));
        }
        self.write_slices_at(slices, position, true)?;
        Ok(true)
    }
    /// Size in bytes.
    fn len(&self) -> io::Result<u64>;
    /// Whether it has no bytes.
    fn is_empty(&self) -> io::Result<bool> {
        Ok(self.len()? == 0)
    }
    /// Truncates or extends with zeros.
    fn set_len(&self, len: u64) -> io::Result<()>;
    /// Reserves space for the first `len` bytes; the file is no shorter afterwards. Writes zeros if
    /// the file system cannot reserve.
    fn allocate(&self, len: u64) -> io::Result<()> {
        write_zeros(self, len)
    }
    /// Makes the content durable (fdatasync(2)).
    fn sync_data(&self) -> io::Result<()>;
    /// [`DiskFile::read_at_nowait`] whose misses make the system fetch the bytes into the page
    /// cache.
    fn read_at_nowait_keeping(&self, buffer: &mut [u8], position: u64) -> io::Result<usize> {
        self.read_at_nowait(buffer, position)
    }
    /// Asks the system to fetch these bytes into the page cache, without waiting: a hint.
    fn read_ahead(&self, position: u64, len: u64);
    /// Tells the system that the page cache need not hold these bytes: a hint.
    fn give_up_pages(&self, position: u64, len: u64) {
        let _nothing_is_cached = (position, len);
    }
    /// Releases what only writing needs. May wait for the disk.
    fn no_more_writes(&self) {}
    /// The descriptor, for sendfile(2) and preadv2(2); `None` for files that are not the system's.
    fn descriptor(&self) -> Option<BorrowedFd<'_>>;
}

/// Reads exactly `buffer.len()` bytes, waiting for the disk; `UnexpectedEof` at the end of the
/// file.
pub fn read_exact_at(file: &dyn DiskFile, buffer: &mut [u8], position: u64) -> io::Result<()> {
    let mut done = 0;
    while done < buffer.len() {
        match file.read_at(&mut buffer[done..], position + done as u64)? {
            0 => return Err(io::ErrorKind::UnexpectedEof.into()),
            n => done += n,
        }
    }
    Ok(())
}

/// Reads a whole file; `InvalidData` if it is larger than `limit_bytes`.
pub fn read_file(disk: &dyn Disk, path: &Path, limit_bytes: u64) -> io::Result<Vec<u8>> {
    let file = disk.open(path, OpenMode::Read)?;
    let len = file.len()?;
    if len > limit_bytes {
        return Err(io::Error::new(
            io::ErrorKind::InvalidData,
            format!(
                "{} has {len} bytes, more than the {limit_bytes} expected",
                path.display()
            ),
        ));
    }
    let mut content = vec![0; len as usize];
    read_exact_at(&*file, &mut content, 0)?;
    Ok(content)
}

/// Replaces a file atomically and durably: writes and syncs `<name>.tmp`, renames it, and syncs the
/// directory.
pub fn replace_file(disk: &dyn Disk, path: &Path, content: &[u8]) -> io::Result<()> {
    let temporary = temporary_name(path);
    let file = disk.open(&temporary, OpenMode::Truncate)?;
    file.write_all_at(content, 0)?;
    file.sync_data()?;
    disk.rename(&temporary, path)?;
    disk.sync_dir(path.parent().unwrap_or_else(|| Path::new("/")))
}

/// Like [`replace_file`] without a sync: atomic at once, durable when the caller syncs file and
/// directory.
pub fn replace_file_unsynced(disk: &dyn Disk, path: &Path, content: &[u8]) -> io::Result<()> {
    let temporary = temporary_name(path);
    disk.open(&temporary, OpenMode::Truncate)?
        .write_all_at(content, 0)?;
    disk.rename(&temporary, path)
}

/// [`DiskFile::allocate`] by writing.
pub fn write_zeros(file: &(impl DiskFile + ?Sized), len: u64) -> io::Result<()> {
    let zeros = vec![0; ZEROS_BYTES.min(len as usize)];
    let mut at = 0;
    while at < len {
        let count = (zeros.len() as u64).min(len - at);
        file.write_all_at(&zeros[..count as usize], at)?;
        at += count;
    }
    Ok(())
}

/// Whether an error means a lack of space on the volume or in a quota, so that the operation can be
/// retried. Never true for an error of a sync, after which the disk's state is unknown.
pub fn is_full(error: &io::Error) -> bool {
    use io::ErrorKind::{QuotaExceeded, StorageFull};
    matches!(error.kind(), StorageFull | QuotaExceeded)
}

/// Whether the process or system lacked a descriptor or memory for a call. Nothing was done, and
/// the disk may be fine.
pub fn is_exhausted(error: &io::Error) -> bool {
    let code = error.raw_os_error().map(Errno::from_raw_os_error);
    matches!(code, Some(Errno::MFILE | Errno::NFILE | Errno::NOMEM))
}

/// Whether the operation can be retried: [`is_full`] or [`is_exhausted`].
pub fn may_pass(error: &io::Error) -> bool {
    is_full(error) || is_exhausted(error)
}

#[derive(Debug, thiserror::Error)]
#[error("syncing: {0}")]
struct SyncFailed(io::Error);

/// An error of a sync, which never counts as passing.
pub(crate) fn sync_failed(error: io::Error) -> io::Error {
    if may_pass(&error) {
        return io::Error::other(SyncFailed(error));
    }
    error
}

/// Whether a sync found no space, as file systems do that place data late. Only who gives up the
/// file that was synced may go on.
pub(crate) fn is_full_at_sync(error: &io::Error) -> bool {
    let failed = error.get_ref().and_then(|error| error.downcast_ref());
    failed.is_some_and(|SyncFailed(error)| is_full(error))
}

/// Turns `NotFound` into success.
pub fn missing_is_fine(result: io::Result<()>) -> io::Result<()> {
    if_exists(result).map(|_| ())
}

/// Turns `NotFound` into `None`.
pub(crate) fn if_exists<T>(result: io::Result<T>) -> io::Result<Option<T>> {
    match result {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        result => result.map(Some),
    }
}

pub(crate) fn temporary_name(path: &Path) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(".tmp");
    PathBuf::from(name)
}
