//! What of a log only the block cache holds when the log is opened.

use std::sync::Arc;

use crate::segment::{ActiveSegment, Segment};
use crate::tail::Tail;

/// Bytes of a segment that were acknowledged and are not in its file.
#[derive(Debug)]
pub(crate) struct Unwritten {
    pub segment: Arc<Segment>,
    pub from: u32,
    pub end: u32,
    /// A segment that takes no more batches, and whose other files are not complete either.
    pub closing: Option<ActiveSegment>,
}

impl Unwritten {
    /// What is to be done first.
    pub fn queue(self, tail: &mut Tail) {
        tail.push_cached(&self.segment, self.from, self.end);
        if let Some(closing) = self.closing {
            tail.push_close(closing);
        }
    }
}
