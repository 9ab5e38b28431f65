//! Bytes of a log that only the block cache holds at opening.

use std::sync::Arc;

use crate::segment::{ActiveSegment, Segment};
use crate::tail::Tail;

/// Acknowledged bytes of a segment that its file lacks.
#[derive(Debug)]
pub(crate) struct Unwritten {
    pub segment: Arc<Segment>,
    pub from: u32,
    pub end: u32,
    /// A closed segment, whose other files are incomplete as well.
    pub closing: Option<ActiveSegment>,
}

impl Unwritten {
    pub fn queue(self, tail: &mut Tail) {
        tail.push_cached(&self.segment, self.from, self.end);
        if let Some(closing) = self.closing {
            tail.push_close(closing);
        }
    }
}
