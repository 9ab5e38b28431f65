//! A handler's result, as a value: [`crate::carry_out`] does it.

use crate::delayed::Delayed;
use crate::outcome::{Close, Hold};
use crate::produce::delayed_produce::DelayedProduce;

/// What a handler made of a request.
#[derive(Debug)]
pub enum Outcome {
    /// The reply is in the output, or there is none.
    Replied,
    /// Its batches are appended or refused; the reply follows those of earlier Produce requests.
    Appended {
        /// The future reply.
        produce: DelayedProduce,
        /// The connection closes after the reply.
        is_last: bool,
    },
    /// Answered later; the connection does nothing else before.
    Delayed(Delayed),
}

/// Why a handler did not handle a request.
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
