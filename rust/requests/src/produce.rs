//! Produce: validate each batch where it was received, append it, and wait for its
//! acknowledgement.
//!
//! Versions 0 to 2 are advertised (librdkafka before 2.11.1 turns compression off otherwise) but
//! carry record formats that are not served: they are answered in their own form, each partition
//! with UNSUPPORTED_VERSION.

pub mod back_pressure;
pub mod delayed;
pub mod inline_validation;
pub mod old_versions;
pub mod parked;
pub mod refused_batches;
pub mod reply;
pub mod validating;
pub mod validators;
pub mod verdicts;

use std::sync::Arc;
#[cfg(feature = "sim")]
use std::sync::atomic::AtomicBool;

use pyrklog_log::producer_state::ProducerError;
use pyrklog_log::validate::{Rules, validate_produce};
use pyrklog_log::{AppendError, BatchInfo, Origin};
use pyrklog_wire::ErrorCode;
use pyrklog_wire::api::key;
use pyrklog_wire::produce::ProduceRequest;

use crate::admission;
use crate::client::{Client, Exclusive};
use crate::context::Context;
use crate::heavy;
use crate::outcome::Close;
use crate::outcome::Step;
use crate::produce::delayed::{Due, Item, Outcome, PendingProduce, Refusal};
use crate::produce::inline_validation::Looked;
use crate::produce::refused_batches::{At, ProducerBatch};
use crate::produce::validating::{ProduceParams, Validating};
use crate::produce::validators::ValidateJob;
use crate::produce::verdicts::ToValidate;
use pyrklog_base::ids::Place;
use pyrklog_control::policy::{self, Operation, Quota, Resource};
use pyrklog_replica::partition::{PartitionState, ProduceWaiter, WaitFor};
use pyrklog_storage::log_dir::Partition;
use pyrklog_storage::muted_queue::Admission;

/// The version from which a transaction's failure may be answered with TRANSACTION_ABORTABLE
/// (KIP-890).
const ABORTABLE_SINCE: i16 = 11;

/// Verdicts whose memory is kept for the next request.
const KEPT_VERDICTS_MAX: usize = 256;

/// The client id that may write to internal topics, as in Kafka.
pub const ADMIN_CLIENT_ID: &str = "__admin_client";

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
    client: &mut Client,
    arrival: Arrival,
    frame: &mut [u8],
) -> Result<Step, Close> {
    let api_version = arrival.api_version;
    let mut request = std::mem::take(&mut cx.produce_request);
    let result = match request.decode(frame, arrival.body_start, api_version) {
        Err(error) => Err(Close::Protocol(format!("Produce v{api_version}: {error}"))),
        Ok(()) => {
            let mut params = ProduceParams {
                api_version,
                correlation_id: arrival.correlation_id,
                acks: request.acks,
                has_transactional_id: request.transactional_id.is_some(),
                may_write_internal: arrival.is_admin,
                place: Place {
                    thread: cx.thread,
                    token: client.token,
                },
                sequence: client.next_sequence(),
                since_ms: back_pressure::waited_since_ms(client).unwrap_or(cx.now.mono_ms),
                patience_ms: 0,
                is_late: false,
            };
            params.patience_ms = i64::from(request.timeout_ms).max(params.least_ms());
            request.merge_repeated(frame);
            serve(cx, client, &request, frame, params)
        }
    };
    cx.produce_request = request;
    cx.targets.clear();
    result
}

fn serve(
    cx: &mut Context,
    client: &mut Client,
    request: &ProduceRequest,
    frame: &mut [u8],
    params: ProduceParams,
) -> Result<Step, Close> {
    let partitions = request.partitions.len();
    let may_begin = admission::admit_heavy(cx, client, partitions > heavy::PARTITIONS);
    let each_bytes = admission::OTHER_PARTITION_BYTES;
    if !may_begin || !admission::admit_partitions(cx, client, partitions, each_bytes)? {
        return Ok(Step::Wait);
    }
    find_targets(cx, request, frame);
    let admission = back_pressure::admit(cx, client, frame.len(), params.patience_ms);
    if admission == Admission::Later {
        return Ok(Step::Wait);
    }
    cx.statistics.request(key::PRODUCE);
    policy::charge(&cx.image, &client.principal, Quota::Produce, frame.len());
    let is_refused = admission == Admission::Refused;
    client.is_closing = is_refused && back_pressure::has_producer_id(request, frame);
    if !is_refused
        && let Looked::Remaining(remaining) =
            inline_validation::look(cx, request, frame, params.api_version)
        && hand_over(cx, client, request, frame, params, remaining)
    {
        return Ok(Step::Taken);
    }
    append_all(cx, client, request, frame, params, is_refused)
}

/// Gives a request to the validators; false where it can be appended, or refused, at once.
fn hand_over(
    cx: &mut Context,
    client: &mut Client,
    request: &ProduceRequest,
    frame: &mut [u8],
    params: ProduceParams,
    remaining: Vec<(usize, Rules)>,
) -> bool {
    let first = remaining.first().map_or(0, |(position, _)| *position);
    let topic = Item::of(request, first).topic.name;
    client.last_wait += 1;
    let wait = client.last_wait;
    let work = Box::new(ToValidate {
        place: params.place,
        wait,
        request: request.clone(),
        frame: frame.to_vec(),
        verdicts: std::mem::take(&mut cx.verdicts),
        remaining,
    });
    #[cfg(feature = "sim")]
    if cx.services.is_simulated() {
        let mut work = work;
        verdicts::validate(&mut work, cx.now.wall_ms, &AtomicBool::new(false));
        frame.copy_from_slice(&work.frame);
        cx.verdicts = work.verdicts;
        return false;
    }
    match cx.services.validators.submit(topic.text(frame), work) {
        Ok(is_abandoned) => {
            client.exclusive = Some(Exclusive::Validating(Box::new(Validating {
                wait,
                params,
                is_abandoned,
            })));
            true
        }
        Err(refused) => {
            let work = *refused;
            cx.verdicts = work.verdicts;
            inline_validation::refuse(cx, &work.remaining);
            // What comes after a refused batch must not overtake it.
            client.is_closing = back_pressure::has_producer_id(request, frame);
            false
        }
    }
}

/// The validators are done with a request: it is appended.
pub fn finish_validating(
    cx: &mut Context,
    client: &mut Client,
    job: ValidateJob,
) -> Result<(), Close> {
    let mut work = *job.work;
    let params = match &client.exclusive {
        Some(Exclusive::Validating(validating)) if validating.wait == work.wait => ProduceParams {
            sequence: client.next_sequence(),
            is_late: true,
            ..validating.params
        },
        _ => return Ok(()),
    };
    client.exclusive = None;
    find_targets(cx, &work.request, &work.frame);
    cx.verdicts = work.verdicts;
    let result = append_all(cx, client, &work.request, &mut work.frame, params, false);
    cx.targets.clear();
    result.map(|_| ())
}

/// Appends the batches of all partitions, or refuses them, and answers when that is due.
fn append_all(
    cx: &mut Context,
    client: &mut Client,
    request: &ProduceRequest,
    frame: &mut [u8],
    params: ProduceParams,
    is_refused: bool,
) -> Result<Step, Close> {
    let mut produce = cx.take_produce();
    // What is appended late still has the least time to be acknowledged.
    let least_ms = cx.now.mono_ms + params.least_ms();
    let deadline_ms = (params.since_ms + params.patience_ms).max(least_ms);
    produce.reset(params.api_version, params.correlation_id, deadline_ms);
    for position in 0..request.partitions.len() {
        let item = Item::of(request, position);
        let target = cx.targets[position].take();
        let mut answer = produce.begin_answer(target.as_deref(), item, frame);
        let outcome = match &target {
            None => Err(cx.why_not_held(&answer.topic, item.wanted.index).into()),
            Some(partition) if !may_write(cx, client, partition) => {
                Err(ErrorCode::TOPIC_AUTHORIZATION_FAILED.into())
            }
            Some(_) if is_refused => Err(ErrorCode::REQUEST_TIMED_OUT.into()),
            Some(partition) => {
                let records_max = produce.record_errors_left();
                append(cx, client, partition, item, frame, params, records_max)
            }
        };
        match &outcome {
            Ok(_) => client.refused.remove(&answer.topic, item, frame),
            Err(refusal) => remember(cx, client, &answer.topic, item, frame, refusal.error),
        }
        answer.take(outcome, target);
        produce.push(answer);
    }
    cx.verdicts.clear();
    cx.verdicts.shrink_to(KEPT_VERDICTS_MAX);
    answer_when_due(cx, client, produce, params.acks)
}

/// The batch of `item` was refused with `error`: those behind it may be refused alike.
fn remember(
    cx: &Context,
    client: &mut Client,
    topic: &str,
    item: Item<'_>,
    frame: &[u8],
    error: ErrorCode,
) {
    if let Some(batch) = ProducerBatch::in_request(item, frame) {
        let at = at(cx, topic, item.wanted.index);
        client.refused.add(at, batch, error);
    }
}

fn at<'a>(cx: &'a Context, topic: &'a str, index: i32) -> At<'a> {
    At {
        room: &cx.services.refused_room,
        topic,
        index,
        now_ms: cx.now.mono_ms,
    }
}

/// An acknowledgement is due no longer, or is refused with `error`. True once the whole request, the
/// one with this `sequence` on the connection, may be answered.
pub fn settle(
    cx: &Context,
    client: &mut Client,
    sequence: u64,
    index: u32,
    error: ErrorCode,
) -> bool {
    let Some(produce) = client.pending_mut(sequence) else {
        return false;
    };
    let refused = produce.settle(index, error);
    let is_done = produce.is_done();
    if let Some(refused) = refused {
        let at = at(cx, &refused.topic, refused.index);
        client.refused.add_late(at, refused.batch, error);
    }
    is_done
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

fn may_write(cx: &Context, client: &Client, partition: &Partition) -> bool {
    let resource = Resource::Topic(&partition.topic.name);
    policy::authorize(&cx.image, &client.principal, Operation::Write, resource)
}

/// Validates outside the partition's mutex, appends under it, and leaves a waiter where the
/// acknowledgement is due later.
fn append(
    cx: &mut Context,
    client: &Client,
    partition: &Arc<Partition>,
    item: Item<'_>,
    frame: &mut [u8],
    params: ProduceParams,
    record_errors_max: usize,
) -> Outcome {
    if !(-1..=1).contains(&params.acks) {
        return Err(ErrorCode::INVALID_REQUIRED_ACKS.into());
    }
    if partition.topic.internal && !params.may_write_internal {
        let message = format!(
            "Cannot append to the internal topic {}.",
            partition.topic.name
        );
        return Err(Refusal::with(ErrorCode::INVALID_TOPIC_EXCEPTION, message));
    }
    let records = match item.wanted.records {
        Some(span) => span.of_mut(frame),
        None => &mut [],
    };
    let verdict = cx.verdicts.get_mut(item.position).and_then(Option::take);
    let mut validated = match verdict {
        Some(verdict) => verdict.map_err(|mut refusal| {
            refusal.record_errors.truncate(record_errors_max);
            refusal
        })?,
        None => {
            let mut rules = Rules::new(&partition.topic.settings().log, params.api_version);
            rules.record_errors_max = record_errors_max;
            validate_produce(records, &rules, cx.now.wall_ms).map_err(|error| *error)?
        }
    };
    check_transaction(&validated.info, params)?;
    let mut rewritten = validated.rewritten.take();
    let batch = match &mut rewritten {
        Some(bytes) => bytes.as_mut_slice(),
        None => &mut records[..validated.info.size_bytes],
    };
    if params.is_late {
        validated.set_time(batch, cx.now.wall_ms);
    }
    let info = &validated.info;
    let topic = &partition.topic.name;
    let refused_before = client.refused.before(topic, item.wanted.index, info);
    let index = item.position as u32;
    let (appended, due) = append_locked(partition, batch, info, index, params, refused_before, cx)?;
    cx.statistics
        .produced_bytes
        .add(appended.appended_bytes as u64);
    Ok((appended, due))
}

/// The part of an append that holds the partition's mutex. `refused_before` is what was said to the
/// batch right before this one, if it was refused.
fn append_locked(
    partition: &Arc<Partition>,
    batch: &mut [u8],
    info: &BatchInfo,
    index: u32,
    params: ProduceParams,
    refused_before: Option<ErrorCode>,
    cx: &mut Context,
) -> Outcome {
    let mut state = partition.lock();
    let leader_epoch = state.leader_epoch;
    state.led()?;
    if params.acks == -1 && !state.has_min_isr() {
        let (count, min_isr) = (state.isr.len(), state.min_isr());
        let message = format!("{count} in-sync replicas; min.insync.replicas asks for {min_isr}");
        return Err(Refusal::with(ErrorCode::NOT_ENOUGH_REPLICAS, message));
    }
    if let Some(error) = refused_before
        && !state.led()?.has_all_before(info)
    {
        let message = "The producer's batch before this one was refused.";
        return Err(Refusal::with(error, message));
    }
    let waits_for = match params.acks {
        0 => None,
        1 => Some(WaitFor::Gate),
        _ => Some(WaitFor::Replication),
    };
    let appended = state
        .led()?
        .append(batch, info, Origin::Client, leader_epoch, cx.now.wall_ms)
        .map_err(|error| refusal_of_append(&error, &state, waits_for))?;
    state.appended(&appended, &*partition.dir, &mut cx.outbox);
    let due = waits_for.and_then(|what| {
        let waiter = ProduceWaiter {
            end_offset: appended.last_offset + 1,
            thread: params.place.thread as u32,
            index,
            token: params.place.token,
            sequence: params.sequence,
        };
        let batch = ProducerBatch::of(info);
        let due = Due {
            what,
            waiter,
            batch,
        };
        state.wait_for(what, waiter).then_some(due)
    });
    partition.unlock_and_write(state);
    Ok((appended, due))
}

/// Transactional batches need a coordinator that has added the partition to the transaction;
/// there is none, so the answer is that of a partition which was never added.
fn check_transaction(info: &BatchInfo, params: ProduceParams) -> Result<(), Refusal> {
    if !info.is_transactional {
        return Ok(());
    }
    if !params.has_transactional_id {
        return Err(ErrorCode::TRANSACTIONAL_ID_AUTHORIZATION_FAILED.into());
    }
    let error = if params.api_version >= ABORTABLE_SINCE {
        ErrorCode::TRANSACTION_ABORTABLE
    } else {
        ErrorCode::INVALID_TXN_STATE
    };
    Err(Refusal::with(
        error,
        "The partition was not added to the transaction.",
    ))
}

/// Producers count a batch that is refused as a repetition as acknowledged. One that may not be yet is
/// to be sent again.
fn refusal_of_append(
    error: &AppendError,
    state: &PartitionState,
    waits_for: Option<WaitFor>,
) -> Refusal {
    let code = match error {
        AppendError::Producer(ProducerError::Forgotten { end_offset, .. })
            if waits_for.is_some_and(|what| !state.is_reached(what, *end_offset)) =>
        {
            ErrorCode::NOT_ENOUGH_REPLICAS_AFTER_APPEND
        }
        _ => error.code(),
    };
    Refusal::with(code, error.to_string())
}

fn answer_when_due(
    cx: &mut Context,
    client: &mut Client,
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
        .want(client.token, produce.deadline_ms, &mut client.timer_ms);
    client.pending_bytes += produce.memory_bytes();
    client.pending.push_back(produce);
    Ok(Step::Taken)
}
