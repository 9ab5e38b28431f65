//! What can be wrong with an arena as a whole.

use std::io;

/// Why an arena cannot be created or reattached.
#[derive(Debug, thiserror::Error)]
pub enum ArenaError {
    /// The file system or the memory.
    #[error(transparent)]
    Io(#[from] io::Error),
    /// Another process uses it.
    #[error("{0} is in use by another process")]
    Locked(String),
    /// Incomplete, or not the one that the log directory's marker names.
    #[error("{0}")]
    Foreign(String),
}
