//! The aborted transactions of a segment, which a source tells page by page.

use pyrklog_log::AbortedTxn;
use pyrklog_wire::ErrorCode;
use pyrklog_wire::replica_segments::{ReplicaSegmentsResponse, SegmentAborted};

use super::{BackFill, FillQuestion, Incoming};

impl FillQuestion {
    /// So many are known of the segment that is asked about.
    pub(super) fn aborted_known(self) -> i32 {
        match self {
            FillQuestion::Aborted(_, known) => i32::try_from(known).unwrap_or(i32::MAX),
            // All are known, and none is wanted.
            FillQuestion::Same(_) => i32::MAX,
            FillQuestion::Segment(_) | FillQuestion::Records(_) => 0,
        }
    }
}

impl Incoming {
    /// Takes in a page; an empty one is behind the last. A source of before pages tells all each
    /// time.
    pub(super) fn add_aborted(&mut self, page: &[SegmentAborted]) {
        let last = self.aborted.last().map_or(-1, |txn| txn.last_offset);
        let fresh = page.iter().filter(|txn| txn.last_offset > last);
        let before = self.aborted.len();
        self.aborted.extend(fresh.map(aborted_txn));
        self.has_all_aborted = self.aborted.len() == before;
    }
}

impl BackFill {
    /// The next page of the first partition's segment.
    pub(super) fn take_aborted(
        &mut self,
        (end, known): (i64, usize),
        response: &ReplicaSegmentsResponse,
    ) {
        if response.error_code != ErrorCode::NONE {
            return self.refused(response.error_code);
        }
        let Some(task) = self.tasks.front_mut() else {
            return;
        };
        task.waits = 0;
        let is_asked = task.partition.lock().back_fill_end() == Some(end);
        let segment = task.segment.as_mut().filter(|_| is_asked);
        if let Some(segment) = segment.filter(|one| one.aborted.len() == known) {
            segment.add_aborted(&response.aborted);
        }
    }
}

fn aborted_txn(one: &SegmentAborted) -> AbortedTxn {
    AbortedTxn {
        producer_id: one.producer_id,
        first_offset: one.first_offset,
        last_offset: one.last_offset,
        last_stable_offset: one.last_stable_offset,
    }
}
