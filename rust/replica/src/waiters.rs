//! Who waits at a partition.

use pyrklog_base::ids::{Place, Token};

/// A produce request's partition that is appended and waits to be acknowledged. Ordered by offset.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct ProduceWaiter {
    /// Done once the mark passes this offset (last offset + 1).
    pub end_offset: i64,
    /// Network thread.
    pub thread: u32,
    /// Index of the partition in its request.
    pub index: u32,
    /// Connection.
    pub token: Token,
    /// Number of the request on its connection.
    pub sequence: u64,
}

/// A request that waits for followers to confirm that this broker leads.
#[derive(Clone, Copy, Debug)]
pub struct DoubtWaiter {
    /// Its connection.
    pub place: Place,
    /// Number of the wait on the connection.
    pub wait: u64,
}
