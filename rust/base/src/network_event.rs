//! Events for a network thread from rooms that know no connections.

use pyrklog_wire::ErrorCode;

use crate::ids::{RequestId, Token};
use crate::memory_budget::Held;

/// See the module.
#[derive(Debug)]
pub enum NetworkEvent {
    /// A partition of a produce request is done: durable or replicated as asked, or failed.
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
    /// A delayed fetch may have something to send, or its partition changed.
    FetchWake {
        /// The connection.
        token: Token,
        /// Which of its waits.
        wait: u64,
        /// It must be answered with what there is.
        must_answer: bool,
        /// Network thread that caused it, if any.
        by: Option<usize>,
    },
    /// The control plane's answer.
    Reply {
        /// The connection.
        token: Token,
        /// The request.
        request: RequestId,
        /// The answer.
        answer: Answer,
    },
    /// A transaction's coordinator answered.
    Verified {
        /// The connection.
        token: Token,
        /// Number of the question.
        id: u64,
        /// Error code of each partition.
        errors: Vec<i16>,
    },
    /// The connection's input may be read again.
    Unblock {
        /// The connection.
        token: Token,
    },
    /// Requests wait for reply memory: check all connections soon.
    Hungry,
    /// Answer what is in flight, take nothing new, end by the deadline.
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
    /// Response body; a large one counts as reply memory.
    Body(Vec<u8>, Option<Held>),
    /// Answer Metadata from the image, with these errors for these names.
    Resume(Vec<(String, i16)>),
    /// No answer fits: close the connection.
    Close,
    /// Close it: no memory for an answer of so many bytes.
    NoRoom(usize),
}
