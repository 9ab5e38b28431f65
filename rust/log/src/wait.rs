//! Whether a read may wait for the disk.

/// Whether a read may wait for the disk.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Wait {
    /// No: gives [`crate::ReadError::WouldBlock`] if the bytes are not in memory. For network
    /// threads.
    Nowait,
    /// Yes. For readers.
    Blocking,
    /// Yes, and reads from the disk go into windows rather than the page cache. For readers on
    /// behalf of consumers far behind (reads.md).
    PastCache,
}
