//! What a network thread is told by those who know nothing of connections.

use pyrklog_wire::ErrorCode;

use crate::ids::{RequestId, Token};
use crate::memory_budget::Held;

/// See the module.
#[derive(Debug)]
pub enum NetworkEvent {
    /// One partition of a produce request is done: durable or replicated as asked, or failed.
    Produced {
        /// The connection.
        token: Token,
        /// The request's number on its connection.
        sequence: u64,
        /// Index of the partition in the request.
        index: u32,
        /// Protocol error.
        error: ErrorCode,
    },
    /// A waiting fetch may have something to send, or its partition changed.
    FetchWake {
        /// The connection.
        token: Token,
        /// Which of its waits.
        wait: u64,
        /// It is answered, with whatever there is.
        must_answer: bool,
        /// The network thread that found it out, if it was one.
        by: Option<usize>,
    },
    /// The control plane's answer.
    Reply {
        /// The connection.
        token: Token,
        /// Which request.
        request: RequestId,
        /// The answer.
        answer: Answer,
    },
    /// What held back the connection's input may be gone.
    Unblock {
        /// The connection.
        token: Token,
    },
    /// Requests wait for memory of replies: look at all connections soon.
    Hungry,
    /// Answer what is in flight, take nothing new, end at the deadline at the latest.
    Drain {
        /// Monotonic milliseconds.
        deadline_ms: i64,
    },
    /// End now.
    Stop,
}

/// How the control plane answers.
#[derive(Debug)]
pub enum Answer {
    /// The response body; what is large counts as memory of replies on its way.
    Body(Vec<u8>, Option<Held>),
    /// Answer Metadata from the image, with these errors for these names.
    Resume(Vec<(String, i16)>),
    /// No answer fits: close the connection.
    Close,
    /// The same, since there is no memory for the answer of so many bytes.
    NoRoom(usize),
}
