//! The only way to files: a small trait with one implementation for production and one for tests.
//!
//! Everything the log does to a disk goes through [`Disk`] and [`DiskFile`], so that tests can make
//! any single operation fail, run short, or forget what was never synced. Errors are plain
//! `std::io::Error`. Nothing here retries: what an error means is the caller's decision (after a
//! failed write or sync: poison, see [`crate::LogEnv`]).

use std::fmt::Debug;
use std::io::{self, IoSlice};
use std::os::fd::BorrowedFd;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use rustix::io::Errno;

mod real;
pub use real::{LeftOpen, LogDirKey, RealDisk, leave_files_open, take_left_open};
pub mod testing;

/// Of memory and files, for [`DiskFile::write_pages_at`].
pub const PAGE_BYTES: usize = 4096;

/// How much [`write_zeros`] writes at a time.
const ZEROS_BYTES: usize = 1 << 20;

/// How [`Disk::open`] opens a file; always for reading too.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OpenMode {
    /// The file must exist; reading only.
    Read,
    /// The file must exist; reading and writing.
    Write,
    /// Reading and writing; made when it is missing, its content kept.
    Create,
    /// Reading and writing; made when it is missing, emptied when it is not.
    Truncate,
}

/// What a name in a directory stands for.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct DirEntry {
    /// File name, without the directory. Names that are not UTF-8 are not listed.
    pub name: String,
    /// A directory (symbolic links are followed).
    pub is_dir: bool,
}

/// Sizes of the volume under a path.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Space {
    /// Bytes of the volume.
    pub total_bytes: u64,
    /// Bytes that an unprivileged process can still use.
    pub usable_bytes: u64,
}

/// What tells a file from what it was: any of it changes with its content, and no program can set all
/// of it back.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Stamp {
    /// Which file of the volume.
    pub inode: u64,
    /// Size in bytes.
    pub size: u64,
    /// Nanoseconds since the epoch: its content changed.
    pub modified_ns: i128,
    /// Nanoseconds since the epoch: anything of it changed.
    pub changed_ns: i128,
}

/// A file system.
pub trait Disk: Debug + Send + Sync + 'static {
    /// Opens or creates a file.
    fn open(&self, path: &Path, mode: OpenMode) -> io::Result<Arc<dyn DiskFile>>;
    /// Makes a directory and its missing parents; fine when it exists.
    fn create_dir_all(&self, path: &Path) -> io::Result<()>;
    /// Names in a directory, in no particular order.
    fn read_dir(&self, path: &Path) -> io::Result<Vec<DirEntry>>;
    /// Whether a file or directory of that name exists.
    fn exists(&self, path: &Path) -> io::Result<bool>;
    /// Size of a file in bytes.
    fn file_len(&self, path: &Path) -> io::Result<u64>;
    /// Renames a file or directory, replacing an existing file. Durable only after [`Disk::sync_dir`].
    fn rename(&self, from: &Path, to: &Path) -> io::Result<()>;
    /// Removes a file.
    fn remove_file(&self, path: &Path) -> io::Result<()>;
    /// Removes a directory with everything in it.
    fn remove_dir_all(&self, path: &Path) -> io::Result<()>;
    /// Makes the entries of a directory (creations, renames, removals) durable.
    fn sync_dir(&self, path: &Path) -> io::Result<()>;
    /// Makes everything on the volume that holds `path` durable (syncfs(2)).
    fn sync_file_system(&self, path: &Path) -> io::Result<()>;
    /// The volume's sizes.
    fn space(&self, path: &Path) -> io::Result<Space>;
    /// Milliseconds since the epoch at which a file was last changed.
    fn modified_ms(&self, path: &Path) -> io::Result<i64>;
    /// What is known of a file without reading it. `ErrorKind::Unsupported` where the file system does
    /// not tell.
    fn stamp(&self, path: &Path) -> io::Result<Stamp> {
        let reason = format!("{}: no stamps here", path.display());
        Err(io::Error::new(io::ErrorKind::Unsupported, reason))
    }
    /// Takes the exclusive lock of a file (fcntl(2), as Java does), creating it when missing.
    /// `ErrorKind::WouldBlock` when another process, or this one, holds it. The lock ends when the
    /// guard is dropped or the process dies.
    fn lock(&self, path: &Path) -> io::Result<Box<dyn LockGuard>>;
}

/// Holds a file's lock until dropped.
pub trait LockGuard: Debug + Send + Sync {}

/// An open file. All positions are absolute, so a file may be shared between threads.
pub trait DiskFile: Debug + Send + Sync {
    /// Reads up to `buffer.len()` bytes at `position`; 0 at the end of the file.
    fn read_at(&self, buffer: &mut [u8], position: u64) -> io::Result<usize>;
    /// The same without waiting for the disk: `ErrorKind::WouldBlock` when the bytes are not in
    /// memory (preadv2 with RWF_NOWAIT), or when that cannot be known.
    fn read_at_nowait(&self, buffer: &mut [u8], position: u64) -> io::Result<usize>;
    /// [`DiskFile::read_at`] for bytes that nobody else will want soon: what was not in the page
    /// cache before is not there afterwards.
    fn read_past_cache_at(&self, buffer: &mut [u8], position: u64) -> io::Result<usize> {
        self.read_at(buffer, position)
    }
    /// Writes all bytes at `position`.
    fn write_all_at(&self, bytes: &[u8], position: u64) -> io::Result<()>;
    /// Writes all of `slices`, one behind the other, at `position`. With `drop_behind` nobody will
    /// read the bytes soon: the system need not keep them once they are on the disk.
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
    /// Writes all of `slices`, one behind the other, at `position`, around the page cache (O_DIRECT):
    /// the system makes no copy. False where it cannot: then they may be written in part, and
    /// have to be written in another way. Addresses, lengths and `position` are multiples of
    /// [`PAGE_BYTES`].
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
    /// Cuts or extends with zeros.
    fn set_len(&self, len: u64) -> io::Result<()>;
    /// Sees that the first `len` bytes have their place on the volume, the file being no shorter
    /// afterwards. Where the file system cannot be asked for that, zeros are written.
    fn allocate(&self, len: u64) -> io::Result<()> {
        write_zeros(self, len)
    }
    /// Makes the content durable (fdatasync(2)).
    fn sync_data(&self) -> io::Result<()>;
    /// [`DiskFile::read_at_nowait`] for bytes that are worth keeping: what the question makes the system
    /// fetch stays in the page cache.
    fn read_at_nowait_keeping(&self, buffer: &mut [u8], position: u64) -> io::Result<usize> {
        self.read_at_nowait(buffer, position)
    }
    /// Has the system fetch these bytes into its page cache; does not wait for them. A hint, never an
    /// error.
    fn read_ahead(&self, position: u64, len: u64);
    /// Tells the system that these bytes need not stay in its page cache; a hint.
    fn give_up_pages(&self, position: u64, len: u64) {
        let _nothing_is_cached = (position, len);
    }
    /// Nothing more will be written: what is kept for that alone may go. May wait for the disk.
    fn no_more_writes(&self) {}
    /// The descriptor, for sendfile(2) and preadv2(2); `None` for files that are not the system's.
    fn descriptor(&self) -> Option<BorrowedFd<'_>>;
}

/// Reads exactly `buffer.len()` bytes, waiting for the disk; `UnexpectedEof` when the file ends.
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

/// The whole content of a file. `limit_bytes` bounds what is read into memory; a larger file is
/// `InvalidData`.
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

/// Replaces a file so that after a crash either the old or the new content is there: writes
/// `<name>.tmp` beside it, syncs it, renames it and syncs the directory.
pub fn replace_file(disk: &dyn Disk, path: &Path, content: &[u8]) -> io::Result<()> {
    let temporary = temporary_name(path);
    let file = disk.open(&temporary, OpenMode::Truncate)?;
    file.write_all_at(content, 0)?;
    file.sync_data()?;
    disk.rename(&temporary, path)?;
    disk.sync_dir(path.parent().unwrap_or_else(|| Path::new("/")))
}

/// Like [`replace_file`] but without any sync: the content is whole for every other process at
/// once, and durable when the caller syncs file and directory later.
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

/// Whether an error says that there is no space left, be it on the volume or in a quota: what was
/// not done can be done again later. An error of a sync never says so: after that nobody knows what
/// is on the disk.
pub fn is_full(error: &io::Error) -> bool {
    use io::ErrorKind::{QuotaExceeded, StorageFull};
    matches!(error.kind(), StorageFull | QuotaExceeded)
}

/// Whether an error says that the process, or the system, has no descriptor or no memory left for a
/// call: that says nothing about the disk, and nothing was done.
pub fn is_exhausted(error: &io::Error) -> bool {
    let code = error.raw_os_error().map(Errno::from_raw_os_error);
    matches!(code, Some(Errno::MFILE | Errno::NFILE | Errno::NOMEM))
}

/// Whether what was not done can be done again later: for lack of space ([`is_full`]), of descriptors
/// or of memory ([`is_exhausted`]).
pub fn may_pass(error: &io::Error) -> bool {
    is_full(error) || is_exhausted(error)
}

/// The error of a sync.
pub(crate) fn sync_failed(error: io::Error) -> io::Error {
    if may_pass(&error) {
        return io::Error::other(format!("syncing: {error}"));
    }
    error
}

/// Turns `NotFound` into success, for files that need not be there.
pub fn missing_is_fine(result: io::Result<()>) -> io::Result<()> {
    match result {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        other => other,
    }
}

fn temporary_name(path: &Path) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(".tmp");
    PathBuf::from(name)
}
