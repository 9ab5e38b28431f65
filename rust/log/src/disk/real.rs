//! The system's files.

use std::collections::HashSet;
use std::fs::{self, File, OpenOptions};
use std::io::{self, IoSliceMut};
use std::num::NonZeroU64;
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::Path;
use std::sync::Arc;
use std::time::UNIX_EPOCH;

use parking_lot::Mutex;
use rustix::fs::{Advice, FlockOperation};
use rustix::io::{Errno, ReadWriteFlags};

use super::{DirEntry, Disk, DiskFile, LockGuard, OpenMode, Space};

/// Files of the operating system.
#[derive(Clone, Copy, Debug, Default)]
pub struct RealDisk;

/// Lock files held by this process, as (device, inode): fcntl locks do not exclude their own
/// process, so that is done here.
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
        Ok(Arc::new(RealFile(options.open(path)?)))
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
        File::open(path)?.sync_all()
    }

    fn sync_file_system(&self, path: &Path) -> io::Result<()> {
        Ok(rustix::fs::syncfs(File::open(path)?)?)
    }

    fn space(&self, path: &Path) -> io::Result<Space> {
        let volume = rustix::fs::statvfs(path)?;
        Ok(Space {
            total_bytes: volume.f_blocks.saturating_mul(volume.f_frsize),
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

    fn lock(&self, path: &Path) -> io::Result<Box<dyn LockGuard>> {
        // The registry is consulted before the file is opened: closing any descriptor of a file
        // drops all of this process's fcntl locks on it.
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

#[derive(Debug)]
struct RealFile(File);

impl DiskFile for RealFile {
    fn read_at(&self, buffer: &mut [u8], position: u64) -> io::Result<usize> {
        loop {
            match self.0.read_at(buffer, position) {
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                result => return result,
            }
        }
    }

    fn read_at_nowait(&self, buffer: &mut [u8], position: u64) -> io::Result<usize> {
        let mut buffers = [IoSliceMut::new(buffer)];
        match rustix::io::preadv2(&self.0, &mut buffers, position, ReadWriteFlags::NOWAIT) {
            Ok(n) => Ok(n),
            // A file system that cannot tell says so; the read then belongs to a thread that may
            // wait.
            Err(Errno::AGAIN | Errno::OPNOTSUPP | Errno::INTR | Errno::NOSYS) => {
                Err(io::ErrorKind::WouldBlock.into())
            }
            Err(error) => Err(error.into()),
        }
    }

    fn write_all_at(&self, bytes: &[u8], position: u64) -> io::Result<()> {
        self.0.write_all_at(bytes, position)
    }

    fn len(&self) -> io::Result<u64> {
        Ok(self.0.metadata()?.len())
    }

    fn set_len(&self, len: u64) -> io::Result<()> {
        self.0.set_len(len)
    }

    fn sync_data(&self) -> io::Result<()> {
        self.0.sync_data()
    }

    fn read_ahead(&self, position: u64, len: u64) {
        if let Some(len) = NonZeroU64::new(len) {
            // A hint: a file system that ignores or refuses it changes nothing for the reader.
            let _refused = rustix::fs::fadvise(&self.0, position, Some(len), Advice::WillNeed);
        }
    }

    fn descriptor(&self) -> Option<BorrowedFd<'_>> {
        Some(self.0.as_fd())
    }
}
