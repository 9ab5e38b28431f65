//! Who waits at a partition.

use std::sync::Arc;
use std::sync::atomic::AtomicI64;

use pyrklog_log::Isolation;

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

/// A fetch that found too little, as one of its partitions knows it.
#[derive(Debug)]
pub struct FetchWaiter {
    /// Network thread.
    pub thread: u32,
    /// Connection.
    pub token: Token,
    /// Number of the wait on its connection.
    pub wait: u64,
    /// What the fetch may see.
    pub isolation: Isolation,
    /// It sees to the log's end, and is to hear of the high watermark, too.
    pub notify_high_watermark: bool,
    /// The segment in which it could see last; a later one makes it look again.
    pub bound_segment: Option<i64>,
    /// Bytes that the fetch still lacks, over all of its partitions.
    pub missing_bytes: Arc<AtomicI64>,
}

/// A request that waits for followers to confirm that this broker leads.
#[derive(Clone, Copy, Debug)]
pub struct DoubtWaiter {
    /// Its connection.
    pub place: Place,
    /// Number of the wait on the connection.
    pub wait: u64,
}
