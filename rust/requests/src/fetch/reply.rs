//! A fetch's answer: protocol fields in memory, records as file ranges.

use pyrklog_log::{Slice, Wait};
use pyrklog_wire::ErrorCode;
use pyrklog_wire::fetch::{
    FetchPartitionHead, FetchPartitionTail, FetchResponseHead, FetchResponseWriter,
};
use pyrklog_wire::leader::{CurrentLeader, NodeEndpoint};

use crate::context::Context;
use crate::fetch::delayed_fetch::DelayedFetch;
use crate::fetch::read::PartitionRead;
use crate::fetch::sessions::{PartitionOutcome, Target};
use crate::out_queue::{FileRange, OutQueue, SENDFILE_MIN_BYTES};
use pyrklog_base::ids::QueueId;
use pyrklog_control::image::Image;
use pyrklog_storage::log_dir_state::Partition;

/// A slice up to this size is always read into the reply: its own system call would cost more than
/// the copy.
const INLINE_MAX_BYTES: usize = 8 * 1024;

/// More than follows the records of most answers.
const TAIL_BYTES: usize = 1024;

/// Records the outcomes in the session; returns the record bytes to send.
fn record_outcomes(work: &mut DelayedFetch) -> usize {
    let mut record_bytes = 0;
    for position in 0..work.parts.len() {
        let read = &work.parts[position].read;
        let outcome = PartitionOutcome {
            error_code: read.error,
            high_watermark: read.high_watermark,
            log_start_offset: read.log_start_offset,
            has_records: read.record_bytes() > 0,
            has_diverging_epoch: read.diverging.is_some(),
            has_preferred_replica: read.preferred_replica >= 0,
            is_settled: work.parts[position].is_settled(work.context.target(position)),
        };
        if work.context.record(position, &outcome) {
            record_bytes += read.record_bytes();
        }
    }
    record_bytes
}

/// Appends the response body and records the outcomes in the session. Leaders are named with their
/// endpoints of `listener`.
pub fn encode(cx: &Context, listener: &str, work: &mut DelayedFetch, out: &mut OutQueue) {
    let record_bytes = record_outcomes(work);
    let inline_max = if record_bytes < SENDFILE_MIN_BYTES {
        usize::MAX
    } else {
        INLINE_MAX_BYTES
    };
    let mut files: Vec<(usize, FileRange)> = Vec::new();
    let mut leaders: Vec<i32> = Vec::new();
    let mut inline_bytes = 0;
    let head = FetchResponseHead {
        throttle_ms: 0,
        error_code: ErrorCode::NONE,
        session_id: work.context.session_id(),
    };
    let topic_count = work.context.topic_runs().count();
    let memory = out.memory();
    let mut writer = FetchResponseWriter::begin(memory, work.api_version, head, topic_count);
    for run in work.context.topic_runs() {
        let topic = work.context.target(run[0]);
        writer.topic(
            topic.topic.as_deref().unwrap_or_default(),
            &topic.id,
            run.len(),
        );
        for &position in run {
            let target = work.context.target(position);
            let part = &work.parts[position];
            let read = &part.read;
            let head = partition_head(target, read, work.api_version);
            writer.partition_head(&head, Some(read.record_bytes()));
            if let Some(messages) = &read.messages {
                // What follows would double the memory.
                writer.out().reserve(messages.len() + TAIL_BYTES);
                writer.out().extend_from_slice(messages);
                inline_bytes += messages.len();
            }
            if let (Some(slice), Ok(partition)) = (&read.slice, &part.partition) {
                let queue = readers_of(cx, partition);
                partition.served.count(slice.len(), is_cached(slice));
                let is_inline = put_records(writer.out(), slice, queue, inline_max, &mut files);
                inline_bytes += if is_inline { slice.len() } else { 0 };
            }
            let current_leader = (work.api_version >= CURRENT_LEADER_SINCE)
                .then(|| leader_hint(&cx.image, target, read, &mut leaders))
                .flatten();
            let diverging_epoch = read.diverging;
            writer.partition_tail(&FetchPartitionTail {
                diverging_epoch,
                current_leader,
                snapshot_id: None,
            });
        }
    }
    let endpoints: Vec<NodeEndpoint<'_>> = leaders
        .iter()
        .filter_map(|leader| cx.image.endpoint(*leader, listener))
        .collect();
    writer.end(&endpoints);
    cx.statistics.fetched_bytes_inline.add(inline_bytes as u64);
    for (at, range) in files {
        out.push_file_at(at, range);
    }
}

/// First version whose answer names leaders (KIP-951). Earlier ones have the field, but Kafka
/// leaves it out.
const CURRENT_LEADER_SINCE: i16 = 16;

/// First version with `KAFKA_STORAGE_ERROR`; earlier clients are sent to another leader.
const STORAGE_ERROR_SINCE: i16 = 6;

fn partition_head<'a>(
    target: &Target,
    read: &'a PartitionRead,
    api_version: i16,
) -> FetchPartitionHead<'a> {
    let error_code = match read.error {
        ErrorCode::KAFKA_STORAGE_ERROR if api_version < STORAGE_ERROR_SINCE => {
            ErrorCode::NOT_LEADER_OR_FOLLOWER
        }
        error => error,
    };
    FetchPartitionHead {
        index: target.partition,
        error_code,
        high_watermark: read.high_watermark,
        last_stable_offset: read.last_stable_offset,
        log_start_offset: read.log_start_offset,
        aborted: read.aborted.as_deref().map(Into::into),
        preferred_read_replica: read.preferred_replica,
    }
}

fn readers_of(cx: &Context, partition: &Partition) -> QueueId {
    let readers = &cx.services.readers;
    readers.for_fetch(partition.dir().index, &partition.topic.name)
}

/// Whether the block cache has the records: it gives up a segment's first bytes first.
fn is_cached(slice: &Slice) -> bool {
    let Ok(position) = u32::try_from(slice.file_position()) else {
        return false;
    };
    let bytes = slice.bytes();
    let cached = bytes.as_ref().and_then(|bytes| bytes.cached());
    cached.is_some_and(|cached| cached.holds(position, position.saturating_add(1)))
}

/// Copies few and resident record bytes into the reply (true), else adds a file range.
fn put_records(
    out: &mut Vec<u8>,
    slice: &Slice,
    queue: QueueId,
    inline_max: usize,
    files: &mut Vec<(usize, FileRange)>,
) -> bool {
    let Some(bytes) = slice.bytes() else {
        return true;
    };
    let start = out.len();
    if slice.len() <= inline_max {
        out.resize(start + slice.len(), 0);
        if read_whole(slice, &mut out[start..]) {
            return true;
        }
        out.truncate(start);
    }
    let range = FileRange {
        bytes,
        position: slice.file_position(),
        len: slice.len(),
        queue,
    };
    files.push((start, range));
    false
}

fn read_whole(slice: &Slice, buffer: &mut [u8]) -> bool {
    let mut done = 0;
    while done < buffer.len() {
        match slice.read(done, &mut buffer[done..], Wait::Nowait) {
            Ok(0) | Err(_) => return false,
            Ok(count) => done += count,
        }
    }
    true
}

/// The leader, for a client that asked the wrong broker (KIP-951).
fn leader_hint(
    image: &Image,
    target: &Target,
    read: &PartitionRead,
    leaders: &mut Vec<i32>,
) -> Option<CurrentLeader> {
    let is_hinted = matches!(
        read.error,
        ErrorCode::NOT_LEADER_OR_FOLLOWER | ErrorCode::FENCED_LEADER_EPOCH
    );
    if !is_hinted {
        return None;
    }
    let (leader_id, leader_epoch) = image.leader(target.topic.as_deref()?, target.partition)?;
    if !leaders.contains(&leader_id) {
        leaders.push(leader_id);
    }
    Some(CurrentLeader {
        leader_id,
        leader_epoch,
    })
}
