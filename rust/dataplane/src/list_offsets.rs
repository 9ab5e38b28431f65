//! ListOffsets: the ends of a log from memory, look-ups by time through the reader pool.

use std::collections::HashSet;

use pyrklog_log::{Isolation, ReadError, TimeQuery, TimeSpec, Wait};
use pyrklog_wire::ErrorCode;
use pyrklog_wire::api::key;
use pyrklog_wire::header::{RequestHeader, encode_response_header};
use pyrklog_wire::list_offsets::{
    EARLIEST_LOCAL_TIMESTAMP, EARLIEST_TIMESTAMP, LATEST_TIERED_TIMESTAMP, LATEST_TIMESTAMP,
    ListOffsetsPartition, ListOffsetsPartitionResponse, ListOffsetsRequest, ListOffsetsResponse,
    ListOffsetsTopicResponse, MAX_TIMESTAMP,
};

use crate::connection::{Close, Connection, Exclusive};
use crate::context::Context;
use crate::dispatch::Step;
use crate::policy::{self, Operation, Resource};
use crate::produce::why_not_held;
use crate::reader_pool::Job;
use crate::request_channel::Place;

/// The replica id of a consumer; any other one sees to the log's end.
const CONSUMER_REPLICA_ID: i32 = -1;

/// A request with its answers so far and the look-ups that are due.
#[derive(Debug)]
pub struct ListOffsetsWork {
    api_version: i16,
    correlation_id: i32,
    topics: Vec<(String, Vec<ListOffsetsPartitionResponse>)>,
    queries: Vec<Query>,
}

#[derive(Debug)]
struct Query {
    topic: usize,
    partition: usize,
    time: TimeQuery,
}

/// What one partition gives at once.
enum Found {
    Answer(ListOffsetsPartitionResponse),
    Later(TimeQuery),
}

/// Serves a request.
pub fn handle(
    cx: &mut Context,
    conn: &mut Connection,
    header: RequestHeader<'_>,
    frame: &[u8],
    body_start: usize,
) -> Result<Step, Close> {
    let RequestHeader {
        api_version,
        correlation_id,
        ..
    } = header;
    let request = ListOffsetsRequest::decode(&frame[body_start..], api_version)
        .map_err(|error| Close::Protocol(format!("ListOffsets v{api_version}: {error}")))?;
    let isolation = match (request.replica_id, request.isolation_level) {
        (CONSUMER_REPLICA_ID, 0) => Isolation::HighWatermark,
        (CONSUMER_REPLICA_ID, _) => Isolation::Committed,
        _ => Isolation::LogEnd,
    };
    let mut work = ListOffsetsWork {
        api_version,
        correlation_id,
        topics: Vec::new(),
        queries: Vec::new(),
    };
    let mut seen = HashSet::new();
    for topic in &request.topics {
        let mut answers = Vec::with_capacity(topic.partitions.len());
        for wanted in &topic.partitions {
            let found = if seen.insert((topic.name, wanted.index)) {
                look(cx, conn, topic.name, wanted, isolation, api_version)
            } else {
                Err(ErrorCode::INVALID_REQUEST)
            };
            answers.push(match found {
                Ok(Found::Answer(answer)) => answer,
                Ok(Found::Later(time)) => {
                    let (topic, partition) = (work.topics.len(), answers.len());
                    work.queries.push(Query {
                        topic,
                        partition,
                        time,
                    });
                    ListOffsetsPartitionResponse::none(wanted.index, ErrorCode::NONE)
                }
                Err(error) => ListOffsetsPartitionResponse::none(wanted.index, error),
            });
        }
        work.topics.push((topic.name.to_owned(), answers));
    }
    if work.queries.is_empty() {
        finish(conn, &work);
    } else {
        conn.exclusive = Some(Exclusive::Reading);
        let place = Place {
            thread: cx.thread,
            token: conn.token,
        };
        cx.shared
            .readers
            .submit(Job::ListOffsets(place, Box::new(work)));
    }
    Ok(Step::Taken)
}

/// The special timestamps, each with the version that brought it.
fn is_known(timestamp: i64, api_version: i16) -> bool {
    match timestamp {
        0.. | LATEST_TIMESTAMP | EARLIEST_TIMESTAMP => true,
        MAX_TIMESTAMP => api_version >= 7,
        EARLIEST_LOCAL_TIMESTAMP => api_version >= 8,
        LATEST_TIERED_TIMESTAMP => api_version >= 9,
        _ => false,
    }
}

fn look(
    cx: &Context,
    conn: &Connection,
    topic: &str,
    wanted: &ListOffsetsPartition,
    isolation: Isolation,
    api_version: i16,
) -> Result<Found, ErrorCode> {
    let resource = Resource::Topic(topic);
    if !policy::authorize(&cx.image, &conn.principal, Operation::Describe, resource) {
        return Err(ErrorCode::TOPIC_AUTHORIZATION_FAILED);
    }
    if !is_known(wanted.timestamp, api_version) {
        return Err(ErrorCode::UNSUPPORTED_VERSION);
    }
    let partition = cx
        .held
        .partition(topic, wanted.index)
        .ok_or_else(|| why_not_held(cx, topic, wanted.index))?;
    let mut state = partition.lock();
    state.led()?;
    state.check_epoch(wanted.current_leader_epoch)?;
    let log = state.led()?;
    if wanted.timestamp == LATEST_TIERED_TIMESTAMP {
        // Nothing is tiered.
        return Ok(Found::Answer(ListOffsetsPartitionResponse::none(
            wanted.index,
            ErrorCode::NONE,
        )));
    }
    let spec = TimeSpec::from_wire(wanted.timestamp).ok_or(ErrorCode::UNSUPPORTED_VERSION)?;
    let query = log.offset_for_time(spec, isolation);
    drop(state);
    match wanted.timestamp {
        EARLIEST_TIMESTAMP | LATEST_TIMESTAMP | EARLIEST_LOCAL_TIMESTAMP => {
            match answer(wanted.index, &query, Wait::Nowait) {
                Ok(answer) => Ok(Found::Answer(answer)),
                Err(ReadError::WouldBlock) => Ok(Found::Later(query)),
                Err(_) => Err(ErrorCode::KAFKA_STORAGE_ERROR),
            }
        }
        _ => Ok(Found::Later(query)),
    }
}

fn answer(
    index: i32,
    query: &TimeQuery,
    wait: Wait,
) -> Result<ListOffsetsPartitionResponse, ReadError> {
    let mut answer = ListOffsetsPartitionResponse::none(index, ErrorCode::NONE);
    if let Some(found) = query.resolve(wait)? {
        answer.timestamp = found.timestamp;
        answer.offset = found.offset;
        answer.leader_epoch = found.leader_epoch;
    }
    Ok(answer)
}

impl ListOffsetsWork {
    /// Does the look-ups; may wait for the disk.
    pub fn look_up(&mut self) {
        for query in self.queries.drain(..) {
            let slot = &mut self.topics[query.topic].1[query.partition];
            *slot = answer(slot.index, &query.time, Wait::Blocking).unwrap_or_else(|_| {
                ListOffsetsPartitionResponse::none(slot.index, ErrorCode::KAFKA_STORAGE_ERROR)
            });
        }
    }
}

/// Queues the response.
pub fn finish(conn: &mut Connection, work: &ListOffsetsWork) {
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
    let open = conn.out.begin_frame();
    let out = conn.out.memory();
    encode_response_header(
        out,
        key::LIST_OFFSETS,
        work.api_version,
        work.correlation_id,
    );
    response.encode(out, work.api_version);
    conn.out.end_frame(open);
}
