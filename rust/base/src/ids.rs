//! Identifiers and constants that several rooms share.

/// Topic id (KIP-516), big-endian as on the wire; all zero means none.
pub type TopicId = [u8; 16];

/// Longest legal topic name.
pub const TOPIC_NAME_BYTES_MAX: usize = 249;

/// Number of a slow command; completes as [`Event::Ticket`].
pub type TicketId = u64;

/// Number of a control request; answered with `reply` or `resume`.
pub type RequestId = u64;

/// A network thread's connection: slot and generation, so that messages to a closed connection are
/// dropped.
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

/// Replica id of tools that compare replicas: any replica serves them, up to its log end.
pub const DEBUGGING_REPLICA_ID: i32 = -2;

/// Size of a thread's receive buffer.
pub const RECEIVE_BUFFER_BYTES: usize = 256 * 1024;

/// Size of a copying thread's buffer.
pub const COPY_BUFFER_BYTES: usize = 256 * 1024;
