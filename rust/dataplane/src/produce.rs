//! Produce: validate each batch where it was received, append it, and wait for its
//! acknowledgement.
//!
//! Versions 0 to 2 are advertised (librdkafka before 2.11.1 turns compression off otherwise) but
//! carry record formats that are not served: they are answered in their own form, each partition
//! with UNSUPPORTED_VERSION.

use std::sync::Arc;

use pyrklog_log::validate::{Rules, validate_produce};
use pyrklog_log::{AppendError, Appended, BatchInfo, Origin};
use pyrklog_wire::ErrorCode;
use pyrklog_wire::api::key;
use pyrklog_wire::produce::{ProducePartition, ProduceRequest};

use crate::connection::{Close, Connection};
use crate::context::Context;
use crate::dispatch::Step;
use crate::parking::{self, Admission};
use crate::partition::{Partition, ProduceWaiter, WaitFor};
use crate::pending_produce::{PartitionAnswer, PendingProduce};
use crate::policy::{self, Operation, Quota, Resource};
use crate::request_channel::Place;

/// The least time to wait for this broker's own write, whatever the client's time-out: Kafka does
/// not wait at all there, so a time-out would tell of a failure where there is none.
const ACK_MIN_WAIT_MS: i64 = 1000;

/// The same for acks=1, which Kafka never times out.
const ACK_LEADER_MIN_WAIT_MS: i64 = 30_000;

/// The version from which a transaction's failure may be answered with TRANSACTION_ABORTABLE
/// (KIP-890).
const ABORTABLE_SINCE: i16 = 11;

/// More partitions in one request than any broker leads.
const REQUEST_PARTITIONS_MAX: usize = 200_000;

/// The client id that may write to internal topics, as in Kafka.
pub const ADMIN_CLIENT_ID: &str = "__admin_client";

/// Why a partition's batch was refused.
#[derive(Debug)]
struct Refusal {
    error: ErrorCode,
    message: Option<String>,
    record_errors: Vec<(i32, String)>,
}

impl From<ErrorCode> for Refusal {
    fn from(error: ErrorCode) -> Refusal {
        Refusal {
            error,
            message: None,
            record_errors: Vec::new(),
        }
    }
}

impl Refusal {
    fn with(error: ErrorCode, message: impl Into<String>) -> Refusal {
        Refusal {
            error,
            message: Some(message.into()),
            record_errors: Vec::new(),
        }
    }
}

/// The parts of a request that its partitions need.
#[derive(Clone, Copy, Debug)]
struct Terms {
    api_version: i16,
    acks: i16,
    has_transactional_id: bool,
    may_write_internal: bool,
    place: Place,
    sequence: u64,
}

/// What is kept of a request's header.
#[derive(Clone, Copy, Debug)]
pub struct Arrival {
    /// API version, 3 or later.
    pub api_version: i16,
    /// For the response header.
    pub correlation_id: i32,
    /// Where the body starts in the frame.
    pub body_start: usize,
    /// Whether it comes from [`ADMIN_CLIENT_ID`].
    pub is_admin: bool,
}

/// Serves a request of version 3 or later. `frame` is patched in place.
pub fn handle(
    cx: &mut Context,
    conn: &mut Connection,
    arrival: Arrival,
    frame: &mut [u8],
) -> Result<Step, Close> {
    let api_version = arrival.api_version;
    let mut request = std::mem::take(&mut cx.produce_request);
    let result = match request.decode(frame, arrival.body_start, api_version) {
        Err(error) => Err(Close::Protocol(format!("Produce v{api_version}: {error}"))),
        Ok(()) => {
            let terms = Terms {
                api_version,
                acks: request.acks,
                has_transactional_id: request.transactional_id.is_some(),
                may_write_internal: arrival.is_admin,
                place: Place {
                    thread: cx.thread,
                    token: conn.token,
                },
                sequence: conn.next_sequence(),
            };
            if request.partitions.len() > REQUEST_PARTITIONS_MAX {
                let count = request.partitions.len();
                return Err(Close::Protocol(format!("Produce of {count} partitions")));
            }
            serve(cx, conn, &request, arrival.correlation_id, frame, terms)
        }
    };
    cx.produce_request = request;
    cx.targets.clear();
    result
}

fn serve(
    cx: &mut Context,
    conn: &mut Connection,
    request: &ProduceRequest,
    correlation_id: i32,
    frame: &mut [u8],
    terms: Terms,
) -> Result<Step, Close> {
    find_targets(cx, request, frame);
    let least_ms = if terms.acks == 1 {
        ACK_LEADER_MIN_WAIT_MS
    } else {
        ACK_MIN_WAIT_MS
    };
    let patience_ms = i64::from(request.timeout_ms).max(least_ms);
    let since_ms = parking::waited_since_ms(conn).unwrap_or(cx.now.mono_ms);
    let admission = parking::admit(cx, conn, frame.len(), patience_ms);
    if admission == Admission::Later {
        return Ok(Step::Wait);
    }
    cx.statistics.request(key::PRODUCE);
    policy::charge(&cx.image, &conn.principal, Quota::Produce, frame.len());
    let mut produce = cx.take_produce();
    // What is appended late still has the least time to be acknowledged.
    let deadline_ms = (since_ms + patience_ms).max(cx.now.mono_ms + least_ms);
    produce.reset(terms.api_version, correlation_id, deadline_ms);
    conn.is_closing = admission == Admission::Refused && parking::has_producer_id(request, frame);
    for (position, wanted) in request.partitions.iter().enumerate() {
        let answer = match admission {
            Admission::Refused => refuse_one(cx, conn, request, wanted, position, frame),
            _ => append_one(cx, conn, request, wanted, position, frame, terms),
        };
        produce.push(answer);
    }
    answer_when_due(cx, conn, produce, terms.acks)
}

/// Looks up every partition of the request, each topic once.
fn find_targets(cx: &mut Context, request: &ProduceRequest, frame: &[u8]) {
    cx.targets.clear();
    for topic in &request.topics {
        let held = cx.held.topic(topic.name.text(frame));
        for wanted in request.partitions_of(topic) {
            cx.targets
                .push(held.and_then(|held| held.partition(wanted.index)).cloned());
        }
    }
}

fn append_one(
    cx: &mut Context,
    conn: &Connection,
    request: &ProduceRequest,
    wanted: &ProducePartition,
    position: usize,
    frame: &mut [u8],
    terms: Terms,
) -> PartitionAnswer {
    let topic = &request.topics[wanted.topic];
    let target = cx.targets[position].take();
    let outcome = match &target {
        _ if !(-1..=1).contains(&terms.acks) => Err(ErrorCode::INVALID_REQUIRED_ACKS.into()),
        None => Err(why_not_held(cx, topic.name.text(frame), wanted.index).into()),
        Some(partition) if !may_write(cx, conn, partition) => {
            Err(ErrorCode::TOPIC_AUTHORIZATION_FAILED.into())
        }
        Some(partition) => {
            let records = match wanted.records {
                Some(span) => span.of_mut(frame),
                None => &mut [],
            };
            append(cx, partition, records, position as u32, terms)
        }
    };
    let name = match &target {
        Some(partition) => Arc::clone(&partition.topic.name),
        None => Arc::from(topic.name.text(frame)),
    };
    let mut answer = PartitionAnswer::failed(name, wanted.index, ErrorCode::NONE);
    answer.starts_topic = position == topic.first_partition;
    match outcome {
        Ok((appended, is_waiting)) => {
            answer.base_offset = appended.base_offset;
            answer.log_append_time_ms = appended.log_append_time_ms;
            answer.log_start_offset = appended.log_start_offset;
            answer.is_waiting = is_waiting;
        }
        Err(refusal) => {
            answer.error = refusal.error;
            answer.message = refusal.message;
            answer.record_errors = refusal.record_errors;
        }
    }
    answer
}

/// The answer for a partition of a request that waited in vain for its log directory.
fn refuse_one(
    cx: &Context,
    conn: &Connection,
    request: &ProduceRequest,
    wanted: &ProducePartition,
    position: usize,
    frame: &[u8],
) -> PartitionAnswer {
    let topic = &request.topics[wanted.topic];
    let name = topic.name.text(frame);
    let error = match &cx.targets[position] {
        Some(partition) if !may_write(cx, conn, partition) => ErrorCode::TOPIC_AUTHORIZATION_FAILED,
        Some(_) => ErrorCode::REQUEST_TIMED_OUT,
        None => why_not_held(cx, name, wanted.index),
    };
    let mut answer = PartitionAnswer::failed(Arc::from(name), wanted.index, error);
    answer.starts_topic = position == topic.first_partition;
    answer
}

fn may_write(cx: &Context, conn: &Connection, partition: &Partition) -> bool {
    let resource = Resource::Topic(&partition.topic.name);
    policy::authorize(&cx.image, &conn.principal, Operation::Write, resource)
}

/// The error for a partition that this broker does not hold.
pub fn why_not_held(cx: &Context, topic: &str, index: i32) -> ErrorCode {
    match cx.image.leader(topic, index) {
        Some(_) => ErrorCode::NOT_LEADER_OR_FOLLOWER,
        None => ErrorCode::UNKNOWN_TOPIC_OR_PARTITION,
    }
}

/// Validates outside the partition's mutex, appends under it, and leaves a waiter where the
/// acknowledgement is due later (the boolean).
fn append(
    cx: &mut Context,
    partition: &Arc<Partition>,
    records: &mut [u8],
    index: u32,
    terms: Terms,
) -> Result<(Appended, bool), Refusal> {
    if partition.topic.internal && !terms.may_write_internal {
        let message = format!(
            "Cannot append to the internal topic {}.",
            partition.topic.name
        );
        return Err(Refusal::with(ErrorCode::INVALID_TOPIC_EXCEPTION, message));
    }
    let settings = partition.topic.settings();
    let rules = Rules::new(&settings.log, terms.api_version);
    let validated = validate_produce(records, &rules, cx.now.wall_ms).map_err(|error| Refusal {
        error: error.code,
        message: Some(error.message),
        record_errors: error.record_errors,
    })?;
    check_transaction(&validated.info, terms)?;
    let mut rewritten = validated.rewritten;
    let batch = match &mut rewritten {
        Some(bytes) => bytes.as_mut_slice(),
        None => &mut records[..validated.info.size_bytes],
    };
    let (appended, is_waiting) =
        append_locked(partition, batch, &validated.info, index, terms, cx)?;
    cx.statistics
        .produced_bytes
        .add(appended.appended_bytes as u64);
    Ok((appended, is_waiting))
}

/// The part of an append that holds the partition's mutex.
fn append_locked(
    partition: &Arc<Partition>,
    batch: &mut [u8],
    info: &BatchInfo,
    index: u32,
    terms: Terms,
    cx: &mut Context,
) -> Result<(Appended, bool), Refusal> {
    let mut state = partition.lock();
    let leader_epoch = state.leader_epoch;
    state.led()?;
    let min_isr = partition.topic.settings().min_insync_replicas;
    if terms.acks == -1 && !state.has_min_isr(min_isr) {
        let count = state.isr.len();
        let message = format!("{count} in-sync replicas; min.insync.replicas asks for {min_isr}");
        return Err(Refusal::with(ErrorCode::NOT_ENOUGH_REPLICAS, message));
    }
    let appended = state
        .led()?
        .append(batch, info, Origin::Client, leader_epoch, cx.now.wall_ms)
        .map_err(refusal_of_append)?;
    state.appended(&appended, &partition.dir, &mut cx.outbox);
    let waits_for = match terms.acks {
        0 => None,
        1 => Some(WaitFor::Gate),
        _ => Some(WaitFor::Replication),
    };
    let is_waiting = waits_for.is_some_and(|what| {
        let waiter = ProduceWaiter {
            end_offset: appended.last_offset + 1,
            thread: terms.place.thread as u32,
            index,
            token: terms.place.token,
            sequence: terms.sequence,
        };
        state.wait_for(what, waiter)
    });
    partition.unlock_and_write(state);
    Ok((appended, is_waiting))
}

/// Transactional batches need a coordinator that has added the partition to the transaction;
/// there is none, so the answer is that of a partition which was never added.
fn check_transaction(info: &BatchInfo, terms: Terms) -> Result<(), Refusal> {
    if !info.is_transactional {
        return Ok(());
    }
    if !terms.has_transactional_id {
        return Err(ErrorCode::TRANSACTIONAL_ID_AUTHORIZATION_FAILED.into());
    }
    let error = if terms.api_version >= ABORTABLE_SINCE {
        ErrorCode::TRANSACTION_ABORTABLE
    } else {
        ErrorCode::INVALID_TXN_STATE
    };
    Err(Refusal::with(
        error,
        "The partition was not added to the transaction.",
    ))
}

fn refusal_of_append(error: AppendError) -> Refusal {
    Refusal::with(error.code(), error.to_string())
}

fn answer_when_due(
    cx: &mut Context,
    conn: &mut Connection,
    produce: PendingProduce,
    acks: i16,
) -> Result<Step, Close> {
    if acks == 0 {
        // No reply; closing the connection is the only way to tell (as Kafka does).
        let failed = produce.has_error();
        cx.spare_produce(produce);
        return if failed {
            Err(Close::Silently)
        } else {
            Ok(Step::Taken)
        };
    }
    cx.timers
        .want(conn.token, produce.deadline_ms, &mut conn.timer_ms);
    conn.pending.push_back(produce);
    Ok(Step::Taken)
}
