//! Waiters at a partition.

use pyrklog_base::ids::{Place, Token};

/// An appended partition of a produce request that waits for its acknowledgement. Ordered by
/// offset.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct ProduceWaiter {
    /// Done once the mark reaches this offset (last offset + 1).
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

/// A request that waits for followers to confirm this leader.
#[derive(Clone, Copy, Debug)]
pub struct DoubtWaiter {
    /// Its connection.
    pub place: Place,
    /// Number of the wait on its connection.
    pub wait: u64,
}
