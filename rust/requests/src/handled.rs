//! What a handler makes of a request, as a value: [`crate::carry_out`] does it.

use crate::delayed::Delayed;
use crate::outcome::{Close, Hold};
use crate::produce::delayed::DelayedProduce;

/// What a handler makes of a request.
#[derive(Debug)]
pub enum Outcome {
    /// Its reply is in the output, or it has none.
    Replied,
    /// Its batches are appended or refused; the reply follows those of the Produce requests before it.
    Appended {
        /// The reply to be.
        produce: DelayedProduce,
        /// The connection closes behind the reply.
        is_last: bool,
    },
    /// It is answered later, and nothing else of the connection is worked on before.
    Delayed(Delayed),
}

/// Why a handler makes nothing of a request, now or ever.
#[derive(Debug)]
pub enum Halt {
    /// It waits, unread, and is handled anew later.
    Wait(Hold),
    /// The connection closes.
    Close(Close),
}

impl From<Close> for Halt {
    fn from(close: Close) -> Halt {
        Halt::Close(close)
    }
}

/// What a handler returns.
pub type Handled = Result<Outcome, Halt>;
