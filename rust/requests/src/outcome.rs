//! What becomes of a frame and its connection.

/// What became of a frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Step {
    /// It was worked on; the next one may follow unless the connection is busy now.
    Taken,
    /// It must wait, unread; the connection's `hold` says for what.
    Wait,
}

/// Why a connection is closed. The text is for the operator.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Close {
    /// The peer closed it, or the network did.
    Peer,
    /// The peer does not speak the protocol.
    Protocol(String),
    /// The protocol asks for it: an error of a request with acks=0, or an unanswerable one.
    Silently,
    /// Nothing happened for `connections.max.idle.ms`.
    Idle,
    /// A file that was to be sent could not be read.
    Storage(String),
    /// The broker ends.
    Shutdown,
}

/// Why the next frame is not worked on although it is there.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Hold {
    /// Earlier requests are not answered yet.
    Order,
    /// A log directory has too many unwritten bytes.
    Parked,
    /// The control plane has too many requests.
    ControlFull,
    /// Too much output waits.
    Output,
    /// All connections together hold too many received bytes.
    Memory,
    /// Its next request takes long: one at a time, behind everybody else's.
    Heavy,
    /// They hold too many bytes of replies, and the request needs about so many more.
    Replies {
        /// Memory.
        bytes: usize,
    },
}
