//! Reserved space for writing acknowledged records when the volume is full.

use std::io;
use std::path::Path;

use crate::disk::{OpenMode, if_exists, is_exhausted, missing_is_fine};
use crate::env::LogEnv;
use crate::log_dir::LogDir;

const RESERVE: &str = ".pyrklog-reserve";

impl LogDir {
    /// Reserves `bytes`, or checks that they are. Not durable: made again after a crash of the
    /// machine.
    ///
    /// # Errors
    /// A disk error, among them a lack of space ([`crate::disk::is_full`]); nothing is reserved
    /// then.
    pub fn make_reserve(&self, bytes: u64) -> io::Result<()> {
        let path = self.path.join(RESERVE);
        let file = self.env.disk().open(&path, OpenMode::Create)?;
        let made = match file.len()? {
            len if len > bytes => file.set_len(bytes),
            _ => file.allocate(bytes),
        };
        drop(file);
        if let Err(error) = made {
            self.remove_reserve()?;
            return Err(error);
        }
        Ok(())
    }

    /// Frees the space.
    pub fn remove_reserve(&self) -> io::Result<()> {
        missing_is_fine(self.env.disk().remove_file(&self.path.join(RESERVE)))
    }

    /// Whether a file can be opened: false if there is no descriptor or memory for it.
    pub fn can_open(&self) -> bool {
        let path = self.path.join(RESERVE);
        let opened = self.env.disk().open(&path, OpenMode::Read);
        !opened.is_err_and(|error| is_exhausted(&error))
    }

    /// Whether space is reserved.
    pub fn has_reserve(&self) -> io::Result<bool> {
        self.env.disk().exists(&self.path.join(RESERVE))
    }
}

/// How many bytes the reserve still takes from the volume.
pub(crate) fn missing_bytes(env: &LogEnv, log_dir: &Path) -> io::Result<u64> {
    let made = if_exists(env.disk().file_len(&log_dir.join(RESERVE)))?;
    Ok(env.reserve_bytes().saturating_sub(made.unwrap_or(0)))
}
