//! Produce: validate each batch in its receive buffer, append it, await its acknowledgement.
//!
//! Message sets of versions 0 to 2 become a batch at the validators, never on a network thread
//! (old-clients.md).
//!
//! ProduceAt appends batches at the offsets that they bring, if the log ends where it says.

mod at_offsets;
pub mod back_pressure;
pub mod delayed_produce;
pub mod inline_validation;
pub mod open_guard;
pub mod queue;
pub mod refused_batches;
pub mod reply;
pub mod validating;
pub mod validators;
pub mod verdicts;
pub mod verification;
pub mod verifications;

use std::sync::Arc;
#[cfg(feature = "sim")]
use std::sync::atomic::AtomicBool;

use pyrklog_log::producer_state::verification::Proof;
use pyrklog_log::producer_state::{OutOfTurn, ProducerError};
use pyrklog_log::validate::{Rules, validate_produce};
use pyrklog_log::{AppendError, BatchInfo, Origin};
use pyrklog_wire::ErrorCode;
use pyrklog_wire::api::key;
use pyrklog_wire::produce::ProduceRequest;

use crate::admission;
use crate::client_context::ClientContext;
use crate::context::Context;
use crate::delayed::Delayed;
use crate::handled::{Halt, Handled, Outcome};
use crate::heavy;
use crate::outcome::{Close, Hold};
use crate::produce::delayed_produce::{Appending, Due, Item, Refusal};
use crate::produce::queue::ProduceQueue;
use crate::produce::refused_batches::{At, ProducerBatch};
use crate::produce::validating::{ProduceParams, Validating};
use crate::produce::validators::ValidateJob;
use crate::produce::verdicts::ToValidate;
use crate::produce::verification::{Begun, Proofs, Verifying};
use crate::reply_header::ReplyHeader;
use pyrklog_replica::partition::{PartitionState, ProduceWaiter, WaitFor};
use pyrklog_storage::log_dir_state::Partition;
use pyrklog_storage::muted_queue::Admission;

/// Verdicts whose memory is kept for the next request.
const KEPT_VERDICTS_MAX: usize = 256;

/// `acks` of all replicas in sync.
const ACKS_ALL: i16 = -1;

/// Stands for any other `acks` of ProduceAt. 0 is answered, too: a copy needs to know its end.
const ACKS_REFUSED: i16 = i16::MIN;

/// Client id that may write to internal topics, as in Kafka.
pub const ADMIN_CLIENT_ID: &str = "__admin_client";

/// The parts of a request's header that are kept.
#[derive(Clone, Copy, Debug)]
pub struct Arrival {
    /// Of its reply.
    pub header: ReplyHeader,
    /// Where the body starts in the frame.
    pub body_start: usize,
    /// Whether it comes from [`ADMIN_CLIENT_ID`].
    pub is_admin: bool,
}

/// Serves a request. `frame` is patched in place.
pub fn handle(
    cx: &mut Context,
    client: &ClientContext,
    queue: &mut ProduceQueue,
    arrival: Arrival,
    frame: &mut [u8],
) -> Handled {
    let api_version = arrival.header.api_version;
    let mut request = std::mem::take(&mut cx.produce_request);
    let keeps_offsets = arrival.header.api_key == key::PRODUCE_AT;
    let decoded = match keeps_offsets {
        true => request.decode_at(frame, arrival.body_start, api_version),
        false => request.decode(frame, arrival.body_start, api_version),
    };
    let handled = match decoded {
        Err(error) => Err(Close::Protocol(format!("Produce v{api_version}: {error}")).into()),
        Ok(()) => {
            let mut params = ProduceParams {
                header: arrival.header,
                acks: match keeps_offsets && request.acks != ACKS_ALL {
                    true => ACKS_REFUSED,
                    false => request.acks,
                },
                has_transactional_id: request.transactional_id.is_some(),
                may_write_internal: arrival.is_admin,
                place: cx.place_of(client),
                sequence: queue.next_sequence(),
                since_ms: back_pressure::waited_since_ms(queue).unwrap_or(cx.now.mono_ms),
                patience_ms: 0,
                is_late: false,
            };
            params.patience_ms = i64::from(request.timeout_ms).max(params.least_ms());
            request.merge_repeated(frame);
            let work = Work {
                client,
                queue,
                request: &request,
                params,
                is_refused: false,
                is_last: false,
            };
            serve(cx, work, frame)
        }
    };
    cx.produce_request = request;
    cx.targets.clear();
    handled
}

/// A request and its parameters.
struct Work<'w> {
    client: &'w ClientContext,
    queue: &'w mut ProduceQueue,
    request: &'w ProduceRequest,
    params: ProduceParams,
    /// Its log directory has no room: nothing is appended.
    is_refused: bool,
    /// The connection closes after its reply.
    is_last: bool,
}

fn serve(cx: &mut Context, mut work: Work<'_>, frame: &mut [u8]) -> Handled {
    let Work {
        client, request, ..
    } = work;
    let partitions = request.partitions.len();
    admission::admit_heavy(cx, client, partitions > heavy::PARTITIONS)?;
    admission::admit_partitions(cx, client, partitions, admission::OTHER_PARTITION_BYTES)?;
    find_targets(cx, request, frame);
    let admission = back_pressure::admit(cx, work.queue, work.params, frame.len());
    if admission == Admission::Later {
        return Err(Halt::Wait(Hold::Room));
    }
    cx.statistics.request(key::PRODUCE);
    work.is_refused = admission == Admission::Refused;
    work.is_last = work.is_refused && back_pressure::has_producer_id(request, frame);
    if !work.is_refused
        && let remaining =
            inline_validation::validate(cx, request, frame, work.params.header.api_version)
        && !remaining.is_empty()
        && let Some(validating) = hand_over(cx, &mut work, frame, remaining)
    {
        return Ok(Outcome::Delayed(Delayed::Validating(Box::new(validating))));
    }
    verify_and_append(cx, work, frame)
}

/// Gives a request to the validators; `None` if it can be appended or refused at once.
fn hand_over(
    cx: &mut Context,
    work: &mut Work<'_>,
    frame: &mut [u8],
    remaining: Vec<(usize, Rules)>,
) -> Option<Validating> {
    let first = remaining.first().map_or(0, |(position, _)| *position);
    let topic = Item::of(work.request, first).topic.name;
    let wait = cx.next_wait();
    let to_validate = Box::new(ToValidate {
        place: work.params.place,
        wait,
        request: work.request.clone(),
        frame: frame.to_vec(),
        verdicts: std::mem::take(&mut cx.verdicts),
        remaining,
    });
    #[cfg(feature = "sim")]
    if cx.services.is_simulated() {
        let mut to_validate = to_validate;
        verdicts::validate(&mut to_validate, cx.now.wall_ms, &AtomicBool::new(false));
        frame.copy_from_slice(&to_validate.frame);
        cx.verdicts = to_validate.verdicts;
        return None;
    }
    match cx
        .services
        .validators
        .submit(topic.text(frame), to_validate)
    {
        Ok(is_abandoned) => Some(Validating {
            wait,
            params: work.params,
            is_abandoned,
        }),
        Err(refused) => {
            cx.verdicts = refused.verdicts;
            for (position, _) in refused.remaining {
                cx.verdicts[position] = Some(Err(ErrorCode::REQUEST_TIMED_OUT.into()));
            }
            // Later batches must not overtake a refused one.
            work.is_last = back_pressure::has_producer_id(work.request, frame);
            None
        }
    }
}

/// Appends a validated request.
pub fn finish_validating(
    cx: &mut Context,
    client: &ClientContext,
    queue: &mut ProduceQueue,
    validating: &Validating,
    job: ValidateJob,
) -> Handled {
    let mut validated = *job.work;
    find_targets(cx, &validated.request, &validated.frame);
    cx.verdicts = validated.verdicts;
    let params = ProduceParams {
        sequence: queue.next_sequence(),
        is_late: true,
        ..validating.params
    };
    let work = Work {
        client,
        queue,
        request: &validated.request,
        params,
        is_refused: false,
        is_last: false,
    };
    let handled = verify_and_append(cx, work, &mut validated.frame);
    cx.targets.clear();
    handled
}

/// Appends a validated request, once the coordinator of its transaction knows the partitions.
fn verify_and_append(cx: &mut Context, work: Work<'_>, frame: &mut [u8]) -> Handled {
    let begun = match work.is_refused {
        true => Begun::Ready(Proofs::default()),
        false => verification::begin(cx, work.request, work.params, work.is_last, frame),
    };
    match begun {
        Begun::Ready(proofs) => append_all(cx, work, &proofs, frame),
        Begun::Held(verifying) => Ok(Outcome::Delayed(Delayed::Verifying(verifying))),
    }
}

/// The coordinator has answered: appends or refuses.
pub fn finish_verifying(
    cx: &mut Context,
    client: &ClientContext,
    queue: &mut ProduceQueue,
    mut verifying: Verifying,
) -> Handled {
    find_targets(cx, &verifying.request, &verifying.frame);
    cx.verdicts = std::mem::take(&mut verifying.verdicts);
    let params = ProduceParams {
        sequence: queue.next_sequence(),
        is_late: true,
        ..verifying.params
    };
    let work = Work {
        client,
        queue,
        request: &verifying.request,
        params,
        is_refused: false,
        is_last: verifying.is_last,
    };
    let handled = append_all(cx, work, &verifying.proofs, &mut verifying.frame);
    cx.targets.clear();
    handled
}

fn append_all(cx: &mut Context, mut work: Work<'_>, proofs: &Proofs, frame: &mut [u8]) -> Handled {
    let params = work.params;
    let mut produce = cx.take_produce();
    // A late append still gets the minimum time for its acknowledgement.
    let least_ms = cx.now.mono_ms + params.least_ms();
    let deadline_ms = (params.since_ms + params.patience_ms).max(least_ms);
    produce.reset(params.header, deadline_ms);
    for position in 0..work.request.partitions.len() {
        let item = Item::of(work.request, position);
        let target = cx.targets[position].take();
        let mut answer = produce.begin_answer(target.as_deref(), item, frame);
        let outcome = match &target {
            None => Err(cx.why_not_hosted(&answer.topic, item.wanted.index).into()),
            Some(_) if work.is_refused => Err(ErrorCode::REQUEST_TIMED_OUT.into()),
            Some(partition) => {
                let records_max = produce.record_errors_left();
                let proof = proofs.of(position);
                proof
                    .and_then(|proof| append(cx, &work, partition, item, proof, frame, records_max))
            }
        };
        match &outcome {
            Ok(_) => work.queue.refused.remove(&answer.topic, item, frame),
            Err(refusal) => remember(cx, &mut work, &answer.topic, item, frame, refusal.error),
        }
        answer.set_outcome(outcome, target);
        produce.push(answer);
    }
    cx.verdicts.clear();
    cx.verdicts.shrink_to(KEPT_VERDICTS_MAX);
    if params.acks != 0 {
        let is_last = work.is_last;
        return Ok(Outcome::Appended { produce, is_last });
    }
    // No reply; only closing the connection tells the client, as in Kafka.
    let failed = produce.has_error();
    cx.spare_produce(produce);
    match failed {
        true => Err(Close::Silently.into()),
        false => Ok(Outcome::Replied),
    }
}

/// The batch of `item` was refused with `error`; later ones may be refused alike.
fn remember(
    cx: &Context,
    work: &mut Work<'_>,
    topic: &str,
    item: Item<'_>,
    frame: &[u8],
    error: ErrorCode,
) {
    if let Some(batch) = ProducerBatch::in_request(item, frame) {
        let at = at(cx, topic, item.wanted.index);
        work.queue.refused.add(at, batch, error);
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

/// An acknowledgement arrived, or failed with `error`. True once the whole request, number
/// `sequence` on the connection, may be answered.
pub fn complete_partition(
    cx: &Context,
    queue: &mut ProduceQueue,
    sequence: u64,
    index: u32,
    error: ErrorCode,
) -> bool {
    let Some(produce) = queue.by_sequence(sequence) else {
        return false;
    };
    let refused = produce.complete_partition(index, error);
    let is_done = produce.is_done();
    if is_done {
        produce.time.acknowledged(cx.lap_ns());
    }
    if let Some(refused) = refused {
        let at = at(cx, &refused.topic, refused.index);
        queue.refused.add_late(at, refused.batch, error);
    }
    is_done
}

/// Looks up the request's partitions, each topic once.
fn find_targets(cx: &mut Context, request: &ProduceRequest, frame: &[u8]) {
    cx.targets.clear();
    for topic in &request.topics {
        let hosted = cx.hosted.topic(topic.name.text(frame));
        for wanted in request.partitions_of(topic) {
            let found = hosted.and_then(|hosted| hosted.partition(wanted.index));
            cx.targets.push(found.cloned());
        }
    }
}

/// Validates outside the partition's mutex, appends under it, and adds a waiter if the
/// acknowledgement is due later.
fn append(
    cx: &mut Context,
    work: &Work<'_>,
    partition: &Arc<Partition>,
    item: Item<'_>,
    proof: Proof,
    frame: &mut [u8],
    record_errors_max: usize,
) -> Appending {
    let params = work.params;
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
            let mut rules = Rules::new(&partition.topic.settings().log, params.header.api_version);
            rules.record_errors_max = record_errors_max;
            rules.keeps_offsets = item.wanted.expected_end.is_some();
            validate_produce(records, &rules, cx.now.wall_ms).map_err(|error| *error)?
        }
    };
    check_transaction(&validated.info, params)?;
    let mut rewritten = validated.rewritten.take();
    let batch = match &mut rewritten {
        Some(bytes) => bytes.as_mut_slice(),
        None => &mut records[..validated.info.total_len()],
    };
    if params.is_late {
        validated.set_time(batch, cx.now.wall_ms);
    }
    let info = &validated.info;
    let topic = &partition.topic.name;
    let entry = Entry {
        info,
        expected_end: item.wanted.expected_end,
        index: item.position as u32,
        proof,
        refused_before: work.queue.refused.before(topic, item.wanted.index, info),
    };
    let (appended, due) = append_locked(partition, batch, &entry, params, cx)?;
    cx.statistics
        .produced_bytes
        .add(appended.appended_bytes as u64);
    Ok((appended, due))
}

/// A validated batch.
struct Entry<'b> {
    info: &'b BatchInfo,
    /// Of a batch that brings its offsets.
    expected_end: Option<i64>,
    /// Its position in the request.
    index: u32,
    proof: Proof,
    /// Error of the batch right before, if that was refused.
    refused_before: Option<ErrorCode>,
}

/// The part of an append under the partition's mutex.
fn append_locked(
    partition: &Arc<Partition>,
    batch: &mut [u8],
    entry: &Entry<'_>,
    params: ProduceParams,
    cx: &mut Context,
) -> Appending {
    let info = entry.info;
    let mut state = partition.lock();
    let leader_epoch = state.leader_epoch;
    state.led()?;
    if params.acks == ACKS_ALL && !state.has_min_isr() {
        let (count, min_isr) = (state.isr.len(), state.min_isr());
        let message = format!("{count} in-sync replicas; min.insync.replicas asks for {min_isr}");
        return Err(Refusal::with(ErrorCode::NOT_ENOUGH_REPLICAS, message));
    }
    let waits_for = match params.acks {
        0 => None,
        1 => Some(WaitFor::Durable),
        _ => Some(WaitFor::Replication),
    };
    let refused_before = entry.refused_before;
    refuse_out_of_turn(&mut state, info, refused_before, waits_for, cx.now.mono_ms)?;
    if info.is_transactional() {
        let verified = state.led()?.producers().check_verified(info, entry.proof);
        verified.map_err(|error| Refusal::with(error.code(), error.to_string()))?;
    }
    let origin = match entry.expected_end {
        None => Origin::Client,
        Some(end) => at_offsets::origin(info, state.led()?.log_end_offset(), end)?,
    };
    let appended = state
        .led()?
        .append(batch, info, origin, leader_epoch, cx.now.wall_ms)
        .map_err(|error| refusal_of_append(&error, &state, waits_for))?;
    state.appended(&appended, &**partition.dir(), &mut cx.outbox);
    let due = waits_for.and_then(|what| {
        let waiter = ProduceWaiter {
            end_offset: appended.last_offset + 1,
            thread: params.place.thread as u32,
            index: entry.index,
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

/// Refuses a batch that is out of order because another one was refused or the leader has changed,
/// with an error after which the producer goes on. "Out of order" makes librdkafka begin a new
/// epoch and repeat what is already in the log, or give up.
///
/// librdkafka sends to a new leader once the leader before has answered or timed out, but may send
/// the next batch before it has queued the last refused one again. That one comes later: either it
/// is missing here, or it was replicated, and more have followed. Java's client does not wait.
fn refuse_out_of_turn(
    state: &mut PartitionState,
    info: &BatchInfo,
    refused_before: Option<ErrorCode>,
    waits_for: Option<WaitFor>,
    now_ms: i64,
) -> Result<(), Refusal> {
    if let Some(error) = refused_before
        && !state.led()?.has_all_before(info)
    {
        let message = "The producer's batch before this one was refused.";
        return Err(Refusal::with(error, message));
    }
    if !state.has_just_taken_over(now_ms) {
        return Ok(());
    }
    Err(match state.led()?.out_of_turn(info) {
        None => return Ok(()),
        Some(OutOfTurn::Early) => Refusal::with(
            ErrorCode::NOT_ENOUGH_REPLICAS,
            "The producer's batches before this one are not here yet; the leader has just changed.",
        ),
        Some(OutOfTurn::Late { end_offset }) => Refusal::with(
            already_written(state, waits_for, end_offset),
            "The batch was written through the leader before.",
        ),
    })
}

/// Producers count a batch refused as a duplicate as acknowledged. One that may not be yet must be
/// sent again.
fn already_written(
    state: &PartitionState,
    waits_for: Option<WaitFor>,
    end_offset: i64,
) -> ErrorCode {
    match waits_for {
        Some(what) if !state.is_reached(what, end_offset) => {
            ErrorCode::NOT_ENOUGH_REPLICAS_AFTER_APPEND
        }
        _ => ErrorCode::DUPLICATE_SEQUENCE_NUMBER,
    }
}

/// Transactional batches name their transaction.
fn check_transaction(info: &BatchInfo, params: ProduceParams) -> Result<(), Refusal> {
    match info.is_transactional() && !params.has_transactional_id {
        true => Err(ErrorCode::TRANSACTIONAL_ID_AUTHORIZATION_FAILED.into()),
        false => Ok(()),
    }
}

fn refusal_of_append(
    error: &AppendError,
    state: &PartitionState,
    waits_for: Option<WaitFor>,
) -> Refusal {
    let code = match error {
        AppendError::Producer(ProducerError::Forgotten { end_offset, .. }) => {
            already_written(state, waits_for, *end_offset)
        }
        _ => error.code(),
    };
    Refusal::with(code, error.to_string())
}
