//! Whether a read may wait for the disk.

/// Whether a read may wait for the disk.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Wait {
    /// No: what is not in memory gives [`crate::ReadError::WouldBlock`]. Network threads.
    Nowait,
    /// Yes. Readers.
    Blocking,
    /// Yes, and what is not in memory is read into windows rather than into the page cache: readers,
    /// for consumers that are far behind (reads.md).
    PastCache,
}
