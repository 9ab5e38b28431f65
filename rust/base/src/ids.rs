//! Identifiers and constants that several rooms share.

/// 16 bytes of a topic id (KIP-516), big-endian as on the wire; all zero means "none".
pub type TopicId = [u8; 16];

/// Tickets complete as [`Event::Ticket`].
pub type TicketId = u64;

/// Requests are answered with `reply` or `resume`.
pub type RequestId = u64;

/// A connection of a network thread: slot and generation in one word, so that messages to a closed
/// connection are dropped.
pub type Token = u64;

/// A connection and its network thread.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Place {
    /// Index of the network thread.
    pub thread: usize,
    /// The connection.
    pub token: Token,
}

/// A queue of the reader pool.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct QueueId {
    /// Index of the log directory.
    pub dir: u16,
    /// Index of the queue among the directory's.
    pub place: u16,
}

impl QueueId {
    /// Whether both belong to one log directory.
    pub fn shares_dir(self, other: QueueId) -> bool {
        self.dir == other.dir
    }
}

/// No timer.
pub const NEVER_MS: i64 = i64::MAX;

/// The replica id of tools that compare replicas: any replica serves them, to the end of its log.
pub const DEBUGGING_REPLICA_ID: i32 = -2;

/// Size of a thread's receive buffer.
pub const RECEIVE_BUFFER_BYTES: usize = 256 * 1024;

/// Size of a copying thread's buffer.
pub const COPY_BUFFER_BYTES: usize = 256 * 1024;
