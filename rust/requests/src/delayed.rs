//! The one request of a client that does not overlap with others, while it is under way.

use crate::fetch::delayed::DelayedFetch;
use crate::list_offsets::delayed::ListOffsetsWork;
use crate::produce::validating::Validating;
use pyrklog_base::ids::{NEVER_MS, RequestId};

/// See the module.
#[derive(Debug)]
pub enum Delayed {
    /// The control plane has it.
    Control {
        /// To recognise the answer.
        id: RequestId,
        /// For the response header.
        api_key: i16,
        /// For the response header.
        api_version: i16,
        /// For the response header.
        correlation_id: i32,
    },
    /// Metadata that waits for topics to be created.
    Metadata {
        /// To recognise the answer.
        id: RequestId,
        /// Version of the request.
        api_version: i16,
        /// For the response header.
        correlation_id: i32,
        /// The request's frame, to be answered from the image at that time.
        frame: Vec<u8>,
        /// Where its body starts.
        body_start: usize,
    },
    /// A fetch that waits for data, for readers or for its deadline.
    Fetch(Box<DelayedFetch>),
    /// Offsets that readers look up.
    ListOffsets(Box<ListOffsetsWork>),
    /// A produce request whose batches are validated elsewhere.
    Validating(Box<Validating>),
}

impl Delayed {
    /// When to look at it, if nothing happens before; [`NEVER_MS`] where somebody else sees to that.
    pub fn due_ms(&self) -> i64 {
        match self {
            Delayed::Fetch(work) => work.due_ms(),
            Delayed::ListOffsets(work) => work.due_ms(),
            Delayed::Control { .. } | Delayed::Metadata { .. } | Delayed::Validating(_) => NEVER_MS,
        }
    }
}
