//! ReplicaSegments: which older records of this log another replica can have for its back-fill
//! (`expansion.md`, section 6). From memory: a reader reads what is in files only, that is, a page
//! of a large transaction index and the times of a segment from before a restart. The replica asks
//! again.
//!
//! Any client may ask. So an answer has a page of aborted transactions at most, and there is one
//! read of a partition at a time.

use std::io;
use std::sync::Arc;

#[cfg(feature = "sim")]
use pyrklog_base::injected_faults::{Fault, is_injected};
use pyrklog_log::{ABORTED_PAGE, AbortedTxn, FillSource, Log, Wait};
use pyrklog_storage::log_dir_state::Partition;
use pyrklog_storage::reader_queue::{Job, Kind, ReaderWorker};
use pyrklog_wire::ErrorCode;
use pyrklog_wire::replica_segments::{
    ReplicaSegmentsRequest, ReplicaSegmentsResponse, SegmentAborted, SegmentOrigin,
};

use crate::admission;
use crate::context::Context;
use crate::handled::{Handled, Outcome};
use crate::out_queue::OutQueue;
use crate::request::Request;

/// Memory of an answer: an entry in its file, as a value twice, and in the reply.
const ANSWER_BYTES: usize = ABORTED_PAGE * 131;

/// Serves a request.
pub fn handle(cx: &mut Context, request: Request<'_>, out: &mut OutQueue) -> Handled {
    let api_version = request.header.api_version;
    let asked = request.decode(ReplicaSegmentsRequest::decode)?;
    admission::admit_partitions(cx, request.client, 1, ANSWER_BYTES)?;
    let response = answer(cx, &asked).unwrap_or_else(ReplicaSegmentsResponse::failed);
    request.reply(out, |body| response.encode(body, api_version))?;
    Ok(Outcome::Replied)
}

/// Any replica answers that is in the leader epoch of the one that asks: what was cut before is cut
/// here, too.
fn answer(
    cx: &Context,
    asked: &ReplicaSegmentsRequest<'_>,
) -> Result<ReplicaSegmentsResponse, ErrorCode> {
    let (topic, index) = (asked.topic, asked.partition);
    let partition = cx
        .hosted
        .partition(topic, index)
        .ok_or_else(|| cx.why_not_hosted(topic, index))?;
    if partition.topic.id != asked.topic_id {
        return Err(ErrorCode::INCONSISTENT_TOPIC_ID);
    }
    let mut state = partition.lock();
    let log = state.shown_in(asked.current_leader_epoch, false)?;
    let log_start_offset = log.log_start_offset();
    if asked.end_offset <= log_start_offset {
        return Err(ErrorCode::OFFSET_OUT_OF_RANGE);
    }
    // What is not committed yet may be cut.
    let source = source_below(log, asked).ok_or(ErrorCode::OFFSET_NOT_AVAILABLE)?;
    let origin = SegmentOrigin {
        opening: log.opening(),
        segment: source.segment_id().cast_signed(),
        clean_below: log.clean_below(),
    };
    drop(state);
    match load(&source, Wait::Nowait) {
        Ok((aborted, newest_ms)) => Ok(ReplicaSegmentsResponse {
            error_code: ErrorCode::NONE,
            log_start_offset,
            begin_offset: source.begin(),
            size_bytes: source.size_bytes().cast_signed(),
            newest_ms,
            aborted: aborted
                .iter()
                .map(|txn| SegmentAborted {
                    producer_id: txn.producer_id,
                    first_offset: txn.first_offset,
                    last_offset: txn.last_offset,
                    last_stable_offset: txn.last_stable_offset,
                })
                .collect(),
            origin,
        }),
        Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
            read_later(cx, partition, source);
            Err(ErrorCode::OFFSET_NOT_AVAILABLE)
        }
        Err(_) => Err(ErrorCode::KAFKA_STORAGE_ERROR),
    }
}

fn source_below(log: &Log, asked: &ReplicaSegmentsRequest<'_>) -> Option<FillSource> {
    let known = usize::try_from(asked.aborted_known).unwrap_or(0);
    #[cfg(feature = "sim")]
    if is_injected(Fault::FillTruncatedEpoch) {
        return log.uncommitted_fill_source(asked.end_offset, known);
    }
    log.fill_source_from(asked.end_offset, known)
}

/// Aborted transactions, and the time of the newest record.
fn load(source: &FillSource, wait: Wait) -> io::Result<(Vec<AbortedTxn>, i64)> {
    Ok((source.load_aborted(wait)?, source.load_newest_ms(wait)?))
}

/// Has it read, so that it is open and in memory when it is asked for again; not while a read of
/// the partition is under way, or its directory's readers are stuck.
fn read_later(cx: &Context, partition: &Arc<Partition>, source: FillSource) {
    let readers = &cx.services.readers;
    let queue = readers.for_kind(partition.dir().index, Kind::LookUp);
    if !readers.queue(queue).accepts(cx.now.mono_ms) {
        return;
    }
    if std::mem::replace(&mut partition.lock().is_reading_segment, true) {
        return;
    }
    let partition = Arc::clone(partition);
    // If it is refused, it is asked for again.
    let _submitted = readers.submit(queue, Box::new(ReadSegment { partition, source }));
}

/// What a back-fill waits for. While there is one the partition has no other.
#[derive(Debug)]
struct ReadSegment {
    partition: Arc<Partition>,
    source: FillSource,
}

impl Job for ReadSegment {
    fn run(self: Box<Self>, _worker: &ReaderWorker<'_>, _buffer: &mut Vec<u8>) {
        // If it fails, the next request finds it as it was.
        let _read = load(&self.source, Wait::Blocking);
    }
}

impl Drop for ReadSegment {
    fn drop(&mut self) {
        self.partition.lock().is_reading_segment = false;
    }
}
