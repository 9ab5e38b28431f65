//! What happens to a frame and its connection.

/// What happened to a frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Dispatched {
    /// Handled; the next one may follow unless the connection is now busy.
    Taken,
    /// It waits, unread; `hold` says for what.
    Waits,
}

/// Why a connection is closed; texts are for the operator.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Close {
    /// The peer or the network closed it.
    Peer,
    /// The peer violates the protocol.
    Protocol(String),
    /// The protocol requires it: an error with acks=0, or an unanswerable request.
    Silently,
    /// Idle for `connections.max.idle.ms`.
    Idle,
    /// A file to send could not be read.
    Storage(String),
    /// The broker shuts down.
    Shutdown,
}

/// Why the next frame is held back.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Hold {
    /// Earlier requests are unanswered.
    Order,
    /// A log directory has too many unwritten bytes.
    Room,
    /// The control plane has too many requests.
    ControlFull,
    /// Too much output waits.
    Output,
    /// All connections together hold too many received bytes.
    Memory,
    /// Its next request is heavy: one at a time, after everything else.
    Heavy,
    /// All connections together hold too many reply bytes.
    Replies {
        /// What the request needs, about.
        bytes: usize,
    },
}
