//! Space set aside, so that what was acknowledged can be written when the volume has none left.

use std::io;

use crate::disk::{OpenMode, missing_is_fine};
use crate::log_dir::LogDir;

const RESERVE: &str = ".pyrklog-reserve";

impl LogDir {
    /// Sets `bytes` aside, or sees that they still are. Nothing has to be durable: after the machine
    /// went down it is made again.
    ///
    /// # Errors
    /// The disk's, among them that there is not so much space ([`crate::disk::is_full`]); nothing is
    /// set aside then.
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

    /// Gives the space back.
    ///
    /// # Errors
    /// The disk's.
    pub fn remove_reserve(&self) -> io::Result<()> {
        missing_is_fine(self.env.disk().remove_file(&self.path.join(RESERVE)))
    }

    /// Whether space is set aside.
    ///
    /// # Errors
    /// The disk's.
    pub fn has_reserve(&self) -> io::Result<bool> {
        self.env.disk().exists(&self.path.join(RESERVE))
    }
}
