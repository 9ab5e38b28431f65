//! A read of an internal topic for the control plane.

use pyrklog_wire::ErrorCode;

use crate::seam::{InternalRead, TicketOutcome};
use pyrklog_base::ids::TicketId;

/// A read for a reader.
#[derive(Debug)]
pub struct InternalReadWork {
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
        TicketOutcome::InternalRead(InternalRead {
            error_code: error.0,
            batches: Vec::new(),
            next_offset: -1,
            end_offset: -1,
        })
    }
}
