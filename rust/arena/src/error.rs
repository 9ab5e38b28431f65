//! What can be wrong with an arena as a whole.

use std::io;

/// Why an arena cannot be made or reattached.
#[derive(Debug, thiserror::Error)]
pub enum ArenaError {
    /// The file system or the memory.
    #[error(transparent)]
    Io(#[from] io::Error),
    /// Another process uses it.
    #[error("{0} is in use by another process")]
    Locked(String),
    /// It is not what the log directory's marker names, or not whole.
    #[error("{0}")]
    Foreign(String),
}
