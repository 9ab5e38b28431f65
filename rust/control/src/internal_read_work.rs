//! A read of an internal topic for the control plane, or of all of its partition.

use pyrklog_wire::ErrorCode;

use crate::seam::{InternalRead, TicketOutcome};
use pyrklog_base::ids::TicketId;

/// What a read is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Purpose {
    /// The batches.
    Read,
    /// What counts of all batches up to the end.
    Load,
}

/// A read for a reader.
#[derive(Clone, Debug)]
pub struct InternalReadWork {
    /// What it is for.
    pub purpose: Purpose,
    /// Ticket to complete.
    pub ticket: TicketId,
    /// The log directory.
    pub dir: usize,
    /// Topic name.
    pub topic: Box<str>,
    /// Partition index.
    pub partition: i32,
    /// Where to begin.
    pub offset: i64,
    /// Approximate limit; at least one batch is read.
    pub max_bytes: usize,
}

impl InternalReadWork {
    /// The outcome for an error.
    pub fn failed(&self, error: ErrorCode) -> TicketOutcome {
        match self.purpose {
            Purpose::Load => TicketOutcome::InternalLoaded(Err(error.0)),
            Purpose::Read => TicketOutcome::InternalRead(InternalRead {
                error_code: error.0,
                batches: Vec::new(),
                next_offset: -1,
                end_offset: -1,
            }),
        }
    }
}
