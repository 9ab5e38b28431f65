//! A client's current request that does not overlap with others.

use crate::fetch::delayed_fetch::DelayedFetch;
use crate::list_offsets::delayed_list_offsets::DelayedListOffsets;
use crate::produce::validating::Validating;
use crate::produce::verification::Verifying;
use crate::reply_header::ReplyHeader;
use pyrklog_base::ids::{NEVER_MS, RequestId};

/// See the module.
#[derive(Debug)]
pub enum Delayed {
    /// At the control plane.
    Control {
        /// Identifies the answer.
        id: RequestId,
        /// Of its reply.
        header: ReplyHeader,
    },
    /// Metadata that waits for topics to be created.
    Metadata {
        /// Identifies the answer.
        id: RequestId,
        /// The request's frame, answered from the image at that time.
        frame: Vec<u8>,
    },
    /// A fetch that waits for data, readers or its deadline.
    Fetch(Box<DelayedFetch>),
    /// Offsets that readers look up.
    ListOffsets(Box<DelayedListOffsets>),
    /// A produce request at the validators.
    Validating(Box<Validating>),
    /// A produce request at its transaction's coordinator.
    Verifying(Box<Verifying>),
}

impl Delayed {
    /// When to look at it if nothing happens before; [`NEVER_MS`] if another part sees to that.
    pub fn due_ms(&self) -> i64 {
        match self {
            Delayed::Fetch(work) => work.due_ms(),
            Delayed::ListOffsets(work) => work.due_ms(),
            Delayed::Verifying(work) => work.deadline_ms,
            Delayed::Control { .. } | Delayed::Metadata { .. } | Delayed::Validating(_) => NEVER_MS,
        }
    }
}
