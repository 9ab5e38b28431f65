//! Opens and locks arena files. Anybody may put anything into a directory of shared memory: no file
//! there may make a broker wait.

use std::fs::{File, OpenOptions};
use std::io;
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;

use rustix::fs::{FlockOperation, OFlags, flock};

use crate::error::ArenaError;

/// Anybody may list a directory of shared memory, but records are private.
const OWNER_ONLY: u32 = 0o600;

/// Creates and locks a file. A broker that removes leftovers may briefly hold the lock and remove
/// the file, since it is empty: then another one is created.
pub(crate) fn create_locked(path: &Path) -> io::Result<File> {
    loop {
        let file = OpenOptions::new()
            .read(true)
            .write(true)
            .create_new(true)
            .mode(OWNER_ONLY)
            .open(path)?;
        flock(&file, FlockOperation::LockExclusive)?;
        if rustix::fs::fstat(&file)?.st_nlink > 0 {
            return Ok(file);
        }
    }
}

pub(crate) fn lock(file: &File, path: &Path) -> Result<(), ArenaError> {
    match flock(file, FlockOperation::NonBlockingLockExclusive) {
        Ok(()) => Ok(()),
        Err(rustix::io::Errno::WOULDBLOCK) => Err(ArenaError::Locked(path.display().to_string())),
        Err(error) => Err(io::Error::from(error).into()),
    }
}

/// Opens a regular file and refuses anything else: opening a pipe would wait for its other end.
pub(crate) fn open_with(options: &mut OpenOptions, path: &Path) -> io::Result<File> {
    let flags = OFlags::NONBLOCK | OFlags::NOFOLLOW;
    let file = options.custom_flags(flags.bits() as i32).open(path)?;
    match file.metadata()?.is_file() {
        true => Ok(file),
        false => Err(io::Error::other("it is not a file")),
    }
}

pub(crate) fn open_existing(path: &Path) -> io::Result<File> {
    open_with(OpenOptions::new().read(true).write(true), path)
}
