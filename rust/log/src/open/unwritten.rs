//! Bytes of a log that only the block cache holds at opening.

use std::sync::Arc;

use crate::position::LogPosition;
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

/// Queues all for the log's writer. Returns up to where the files of a log with this end have
/// everything.
pub(crate) fn queue_all(found: Vec<Unwritten>, end: LogPosition, tail: &mut Tail) -> LogPosition {
    let first = found.first().map(|one| one.segment.base_offset());
    for one in found {
        one.queue(tail);
    }
    first.map_or(end, LogPosition::unplaced)
}
