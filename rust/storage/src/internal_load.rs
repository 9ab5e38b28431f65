//! Loads of internal topics for the control plane, done by readers: all batches from the log start
//! to the end as of the load's beginning, of which only what counts is kept.

use pyrklog_wire::ErrorCode;

use crate::reader_queue::ReaderWorker;
use pyrklog_control::internal_read_work::InternalReadWork;
use pyrklog_control::live_records::{LiveRecords, LiveRecordsLoader};
use pyrklog_control::seam::InternalRead;

/// Reads piece by piece. May wait for the disk.
///
/// # Errors
/// As of reads; NOT_LEADER_OR_FOLLOWER if the plane ends meanwhile.
pub fn load(
    work: &InternalReadWork,
    worker: &ReaderWorker<'_>,
    read: impl Fn(&InternalReadWork) -> Result<InternalRead, ErrorCode>,
) -> Result<LiveRecords, ErrorCode> {
    let mut loader = LiveRecordsLoader::default();
    let mut piece = work.clone();
    // Later batches are the caller's own, or markers, of which it is told.
    let mut end_offset = None;
    loop {
        worker.step();
        if worker.queue.is_stopped() {
            return Err(ErrorCode::NOT_LEADER_OR_FOLLOWER);
        }
        let found = read(&piece)?;
        let end = *end_offset.get_or_insert(found.end_offset);
        let batches = found.batches.iter();
        for batch in batches.take_while(|batch| batch.base_offset < end) {
            loader.feed(batch);
        }
        piece.offset = found.next_offset;
        if piece.offset >= end {
            return Ok(loader.finish(end));
        }
    }
}
