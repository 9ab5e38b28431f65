//! ListOffsets: log ends from memory; look-ups by time through readers, per log directory. Late
//! look-ups get a retriable error, so that they do not delay the others.
//!
//! If another broker may lead, the known end may not be the latest: followers first confirm this
//! leader (cluster.md, section 7), or the client must retry.

pub mod delayed_list_offsets;

use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use pyrklog_log::{Isolation, Log, ReadError, TimeSpec, Wait};
use pyrklog_wire::ErrorCode;
use pyrklog_wire::list_offsets::{
    EARLIEST_LOCAL_TIMESTAMP, EARLIEST_TIMESTAMP, LATEST_TIERED_TIMESTAMP, LATEST_TIMESTAMP,
    LOWEST_CONSUMED_TIMESTAMP, ListOffsetsPartition, ListOffsetsPartitionResponse,
    ListOffsetsRequest, ListOffsetsResponse, ListOffsetsTopicResponse, MAX_TIMESTAMP,
    OldListOffsetsPartitionResponse, OldListOffsetsResponse, OldListOffsetsTopicResponse,
};

use crate::admission;
use crate::client_context::ClientContext;
use crate::cold_reads::Reading;
use crate::context::{Context, borrow_memory};
use crate::delayed::Delayed;
use crate::handled::{Handled, Outcome};
use crate::list_offsets::delayed_list_offsets::{
    DelayedListOffsets, Doubtful, LookUp, LookUpJob, OlderOffsets, Query, answer, not_available,
};
use crate::out_queue::OutQueue;
use crate::outcome::Close;
use crate::reply_header::ReplyHeader;
use crate::request::Request;
use pyrklog_base::clock::mono_ms;
use pyrklog_base::ids::{DEBUGGING_REPLICA_ID, Place};
use pyrklog_replica::partition::{DoubtWaiter, PartitionState};
use pyrklog_storage::log_dir_state::Partition;
use pyrklog_storage::reader_queue::Kind;

/// A consumer's replica id; any other sees up to the log end.
const CONSUMER_REPLICA_ID: i32 = -1;

/// Offsets that version 0 names of a partition at most.
const OLD_OFFSETS_MAX: usize = 100;

/// Time limit of look-ups; clients give up after 30 s.
const LOOK_UP_MAX_MS: i64 = 15_000;

/// Serves a request.
pub fn handle(cx: &mut Context, arrived: Request<'_>, out: &mut OutQueue) -> Handled {
    let client = arrived.client;
    let request = arrived.decode(ListOffsetsRequest::decode)?;
    let partitions = request.topics.iter().map(|topic| topic.partitions.len());
    let each_bytes = admission::OTHER_PARTITION_BYTES;
    admission::admit_partitions(cx, client, partitions.sum(), each_bytes)?;
    let (place, wait) = (cx.place_of(client), cx.next_wait());
    // Not the turn's begin: the process may have stood still since, and another broker may lead.
    let now_ms = mono_ms();
    let mut work = DelayedListOffsets {
        header: ReplyHeader::of(arrived.header),
        deadline_ms: now_ms + LOOK_UP_MAX_MS,
        topics: Vec::new(),
        reading: Reading::new(wait, now_ms),
        isolation: isolation(&request),
        of_leader_only: request.replica_id != DEBUGGING_REPLICA_ID,
        asked_ms: now_ms,
        older: HashMap::new(),
        doubtful: Vec::new(),
    };
    let queries = look_all(cx, &request, &mut work);
    hand_over(cx, place, &mut work, queries);
    let waiter = DoubtWaiter { place, wait };
    work.ask_followers(waiter, &work.doubtful, &mut cx.outbox);
    work.take_confirmed();
    if work.is_done() {
        return Ok(respond(cx, client, &work, out)?);
    }
    Ok(Outcome::Delayed(Delayed::ListOffsets(Box::new(work))))
}

/// Answers what it can at once; returns the remaining look-ups.
fn look_all(
    cx: &Context,
    request: &ListOffsetsRequest<'_>,
    work: &mut DelayedListOffsets,
) -> Vec<Query> {
    let mut queries = Vec::new();
    let mut repeated = repeated(request);
    for topic in &request.topics {
        let mut answers = Vec::with_capacity(topic.partitions.len());
        for wanted in &topic.partitions {
            let found = match repeated.get_mut(&(topic.name, wanted.index)) {
                Some(true) => continue,
                Some(is_answered) => {
                    *is_answered = true;
                    Err(ErrorCode::INVALID_REQUEST)
                }
                None => answer_partition(cx, topic.name, answers.len(), wanted, work, &mut queries),
            };
            let failed = |error| ListOffsetsPartitionResponse::none(wanted.index, error);
            answers.push(found.unwrap_or_else(failed));
        }
        if !answers.is_empty() || topic.partitions.is_empty() {
            work.topics.push((topic.name.to_owned(), answers));
        }
    }
    queries
}

/// Partitions named more than once, none answered yet: each gets one answer, an error.
fn repeated<'r>(request: &ListOffsetsRequest<'r>) -> HashMap<(&'r str, i32), bool> {
    let mut seen = HashSet::new();
    let topics = request.topics.iter();
    let named = topics.flat_map(|topic| {
        let indexes = topic.partitions.iter().map(|wanted| wanted.index);
        indexes.map(|index| (topic.name, index))
    });
    let again = named.filter(|name| !seen.insert(*name));
    again.map(|name| (name, false)).collect()
}

fn isolation(request: &ListOffsetsRequest<'_>) -> Isolation {
    match (request.replica_id, request.isolation_level) {
        (CONSUMER_REPLICA_ID, 0) => Isolation::HighWatermark,
        (CONSUMER_REPLICA_ID, _) => Isolation::Committed,
        _ => Isolation::DurableEnd,
    }
}

/// Submits each directory's look-ups to its readers, unless they are stuck.
fn hand_over(cx: &Context, place: Place, work: &mut DelayedListOffsets, mut queries: Vec<Query>) {
    let readers = &cx.services.readers;
    while let Some(first) = queries.first() {
        let dir = first.dir;
        let queries = queries.extract_if(.., |query| query.dir == dir).collect();
        let queue = readers.for_kind(dir, Kind::LookUp);
        if !readers.queue(queue).accepts(cx.now.mono_ms) {
            continue;
        }
        let ticket = work.reading.ticket(place, queue);
        let job = LookUpJob {
            ticket: ticket.clone(),
            queries,
            mailbox: Arc::clone(&cx.services.mailboxes.look_ups),
        };
        if readers.submit(queue, Box::new(job)).is_ok() {
            work.reading.add(&ticket);
        }
    }
}

/// Special timestamps, with the version that introduced them.
fn is_known(timestamp: i64, api_version: i16) -> bool {
    match timestamp {
        0.. | LATEST_TIMESTAMP | EARLIEST_TIMESTAMP => true,
        MAX_TIMESTAMP => api_version >= 7,
        EARLIEST_LOCAL_TIMESTAMP => api_version >= 8,
        LATEST_TIERED_TIMESTAMP => api_version >= 9,
        LOWEST_CONSUMED_TIMESTAMP => api_version >= 1,
        _ => false,
    }
}

/// The answer for one partition of the current topic, at `position` in it. One that comes later is
/// noted in `queries` or as doubtful, with "retry" for the answer.
fn answer_partition(
    cx: &Context,
    topic: &str,
    position: usize,
    wanted: &ListOffsetsPartition,
    work: &mut DelayedListOffsets,
    queries: &mut Vec<Query>,
) -> Result<ListOffsetsPartitionResponse, ErrorCode> {
    let (isolation, api_version) = (work.isolation, work.header.api_version);
    if !is_known(wanted.timestamp, api_version) {
        return Err(ErrorCode::UNSUPPORTED_VERSION);
    }
    let partition = hosted(cx, topic, wanted)?;
    let mut state = partition.lock();
    state.shown_in(wanted.current_leader_epoch, work.of_leader_only)?;
    if wanted.timestamp == LOWEST_CONSUMED_TIMESTAMP {
        return lowest_consumed(cx, &state, wanted.index, work.asked_ms);
    }
    // An earlier epoch's leader may have shown records above the high watermark.
    let shows_less = isolation != Isolation::DurableEnd && !state.knows_latest();
    if wanted.timestamp == LATEST_TIMESTAMP && shows_less {
        return Err(not_available(api_version));
    }
    let is_latest = wanted.timestamp == LATEST_TIMESTAMP && isolation != Isolation::DurableEnd;
    if is_latest && state.is_in_doubt(work.asked_ms) {
        drop(state);
        work.doubtful.push(Doubtful {
            hosted: Arc::clone(partition),
            topic: work.topics.len(),
            partition: position,
            current_leader_epoch: wanted.current_leader_epoch,
        });
        return Ok(work.not_in_time(wanted.index));
    }
    let log = state.shown(work.of_leader_only)?;
    if wanted.timestamp == LATEST_TIERED_TIMESTAMP {
        // There is no tiered storage.
        return Ok(ListOffsetsPartitionResponse::none(
            wanted.index,
            ErrorCode::NONE,
        ));
    }
    let spec = TimeSpec::from_wire(wanted.timestamp).ok_or(ErrorCode::UNSUPPORTED_VERSION)?;
    let what = look_up(log, spec, wanted, position, work);
    drop(state);
    let is_end = matches!(
        wanted.timestamp,
        EARLIEST_TIMESTAMP | LATEST_TIMESTAMP | EARLIEST_LOCAL_TIMESTAMP
    );
    if let LookUp::Time(query) = &what
        && is_end
    {
        match answer(wanted.index, query, Wait::Nowait) {
            Err(ReadError::WouldBlock) => {}
            answered => return answered.map_err(|_| ErrorCode::KAFKA_STORAGE_ERROR),
        }
    }
    let answer = work.not_in_time(wanted.index);
    queries.push(Query {
        topic: work.topics.len(),
        partition: position,
        dir: partition.dir().index,
        what,
        shows_less: shows_less && !is_end,
        answer,
        older: Vec::new(),
    });
    Ok(answer)
}

/// Where consumers read, of a whole window (`expansion.md`, section 7).
fn lowest_consumed(
    cx: &Context,
    state: &PartitionState,
    index: i32,
    now_ms: i64,
) -> Result<ListOffsetsPartitionResponse, ErrorCode> {
    let cluster = cx.services.config.cluster.as_ref();
    let window_ms = cluster.map_or(0, |cluster| cluster.promotion_window_ms);
    let consumed = state.consumed().filter(|_| window_ms > 0);
    let found = consumed.and_then(|consumed| consumed.lowest_within(window_ms, now_ms));
    let offset = found.ok_or(ErrorCode::OFFSET_NOT_AVAILABLE)?;
    Ok(ListOffsetsPartitionResponse {
        offset,
        leader_epoch: state.leader_epoch,
        ..ListOffsetsPartitionResponse::none(index, ErrorCode::NONE)
    })
}

fn hosted<'a>(
    cx: &'a Context,
    topic: &str,
    wanted: &ListOffsetsPartition,
) -> Result<&'a Arc<Partition>, ErrorCode> {
    let partition = cx
        .hosted
        .partition(topic, wanted.index)
        .ok_or_else(|| cx.why_not_hosted(topic, wanted.index))?;
    // Below "none" it is an epoch, unlike in a fetch.
    if wanted.current_leader_epoch < -1 {
        return Err(ErrorCode::FENCED_LEADER_EPOCH);
    }
    Ok(partition)
}

/// What to look up for a partition. For version 0 by time these are starts of segments; it notes
/// those that the latest offset is named with.
fn look_up(
    log: &Log,
    spec: TimeSpec,
    wanted: &ListOffsetsPartition,
    position: usize,
    work: &mut DelayedListOffsets,
) -> LookUp {
    let record = LookUp::Time(log.offset_for_time(spec, work.isolation));
    if work.header.api_version > 0 {
        return record;
    }
    let starts = log.segment_starts(work.isolation);
    let max = usize::try_from(wanted.max_offsets).unwrap_or(0);
    let max = max.min(OLD_OFFSETS_MAX);
    let mut older = OlderOffsets {
        max,
        starts: Vec::new(),
    };
    if wanted.timestamp == LATEST_TIMESTAMP && max > 1 {
        older.starts = starts.last(max);
    }
    work.older.insert((work.topics.len(), position), older);
    match wanted.timestamp {
        timestamp @ 0.. => LookUp::Starts {
            starts,
            timestamp,
            max,
        },
        _ => record,
    }
}

/// Followers have confirmed this leader, or it no longer leads. True once everything is answered.
pub fn wake(
    cx: &mut Context,
    client: &ClientContext,
    work: &mut DelayedListOffsets,
    wait: u64,
) -> bool {
    if !work.reading.is_number(wait) {
        return false;
    }
    work.take_confirmed();
    if work.is_done() {
        return true;
    }
    // The doubt may have begun anew in another epoch.
    let last = work.doubtful.len().saturating_sub(1);
    let place = cx.place_of(client);
    let waiter = DoubtWaiter { place, wait };
    work.ask_followers(waiter, &work.doubtful[last..], &mut cx.outbox);
    false
}

/// Answers with what there is; late partitions get a retriable error.
///
/// # Errors
/// A reply that the protocol cannot carry.
pub fn respond(
    cx: &mut Context,
    client: &ClientContext,
    work: &DelayedListOffsets,
    out: &mut OutQueue,
) -> Result<Outcome, Close> {
    work.forget_doubts(client.token);
    borrow_memory(cx, out);
    let header = work.header;
    if header.api_version == 0 {
        let response = old_response(work);
        header.reply(out, |body| response.encode(body, 0))?;
        return Ok(Outcome::Replied);
    }
    let response = ListOffsetsResponse {
        throttle_ms: 0,
        topics: work
            .topics
            .iter()
            .map(|(name, partitions)| ListOffsetsTopicResponse {
                name,
                partitions: partitions.clone(),
            })
            .collect(),
    };
    header.reply(out, |body| response.encode(body, header.api_version))?;
    Ok(Outcome::Replied)
}

fn old_response(work: &DelayedListOffsets) -> OldListOffsetsResponse<'_> {
    let partition =
        |topic, at, answer: &ListOffsetsPartitionResponse| OldListOffsetsPartitionResponse {
            index: answer.index,
            error_code: answer.error_code,
            offsets: work.old_offsets(topic, at),
        };
    let topics = (0..).zip(&work.topics);
    OldListOffsetsResponse {
        topics: topics
            .map(|(topic, (name, answers))| OldListOffsetsTopicResponse {
                name,
                partitions: (0..)
                    .zip(answers)
                    .map(|(at, answer)| partition(topic, at, answer))
                    .collect(),
            })
            .collect(),
    }
}
