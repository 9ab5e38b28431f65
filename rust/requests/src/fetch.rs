//! Fetch: find the bytes, answer at once or wait for more.
//!
//! A request is a [`DelayedFetch`] from arrival to answer and stays on its connection. Reads are
//! first tried without waiting for the disk. Cold reads go to readers, one job per queue; a
//! partition whose queue is stuck is answered as if it had no records, so that the others need not
//! wait. With fewer than `min_bytes` the fetch waits in the purgatory: a watcher at each partition,
//! and a deadline. Whichever comes first brings it back here, and everything is read anew. As in
//! Kafka's `DelayedFetch`, it does not wait if a partition has more in a later segment, and
//! `min_bytes` counts available bytes, not those that fit.
//!
//! Versions 0 to 3 get messages of old formats, which readers make of the batches
//! (old-clients.md), also of resident ones.

pub mod convert;
pub mod delayed_fetch;
pub mod read;
pub mod reply;
pub mod sessions;

use std::sync::Arc;

use pyrklog_log::{Isolation, Log};
use pyrklog_wire::ErrorCode;
use pyrklog_wire::api::key;
use pyrklog_wire::fetch::{
    BACK_FILL_EPOCH, BATCHES_SINCE, FORMAT_1_SINCE, FetchRequest, FetchResponseHead,
    FetchResponseWriter,
};
use pyrklog_wire::header::{RequestHeader, encode_response_header};
use pyrklog_wire::message_set::{MAGIC_0, MAGIC_1};

use crate::admission;
use crate::client_context::ClientContext;
use crate::context::{Context, borrow_memory};
use crate::delayed::Delayed;
use crate::fetch::convert::{CONVERTED_MAX_BYTES, HELD_MAX_BYTES};
use crate::fetch::delayed_fetch::{DelayedFetch, FetchParams, FetchPart};
use crate::fetch::read::{View, end_of_epoch};
use crate::fetch::sessions::{FetchContext, INITIAL_EPOCH, SessionReader, Target};
use crate::handled::{Halt, Handled, Outcome};
use crate::heavy;
use crate::out_queue::OutQueue;
use crate::outcome::Close;
use crate::request::Request;
use pyrklog_base::clock::mono_ms;
use pyrklog_base::ids::DEBUGGING_REPLICA_ID;
use pyrklog_base::injected_faults::{Fault, is_injected};
use pyrklog_control::latency::Group;
use pyrklog_control::seam::{CaughtUp, Event};
use pyrklog_replica::fetch_watch::WatchTerms;
use pyrklog_replica::partition::{FollowerFetch, PartitionState, Role};
use pyrklog_replica::replica_selector::nearest;
use pyrklog_storage::log_dir_state::Partition;

/// Attempts to start waiting before the fetch is answered with what there is; each failure means
/// that data arrived meanwhile.
const WAIT_TRIES: usize = 4;

/// First version whose consumers may read from followers (KIP-392).
const FOLLOWER_READS_SINCE: i16 = 11;

/// KIP-110.
const ZSTD_SINCE: i16 = 10;

/// Serves a request.
pub fn handle(cx: &mut Context, arrived: Request<'_>, out: &mut OutQueue) -> Handled {
    let RequestHeader {
        api_version,
        correlation_id,
        ..
    } = arrived.header;
    let (client, frame) = (arrived.client, arrived.frame);
    let mut request = std::mem::take(&mut cx.fetch_request);
    if let Err(error) = request.decode(frame, arrived.body_start, api_version) {
        return Err(Close::Protocol(format!("Fetch v{api_version}: {error}")).into());
    }
    if request.replica_id >= 0 {
        cx.group = Some(Group::FetchFollower);
    }
    let now_ms = cx.now.mono_ms;
    let services = Arc::clone(&cx.services);
    let params = FetchClient::of(cx, &request, frame, api_version);
    let reader = params.reader(client);
    if let Err(halt) = admit(cx, client, &request, &reader, params.view) {
        cx.fetch_request = request;
        return Err(halt);
    }
    let mut fresh_id = || services.session_ids.positive();
    let begun = services.sessions.begin(
        &request,
        frame,
        api_version,
        &cx.image,
        now_ms,
        &mut fresh_id,
    );
    let mut context = match begun {
        Ok(context) => context,
        Err(error) => {
            cx.fetch_request = request;
            answer_error(arrived, error, out)?;
            return Ok(Outcome::Replied);
        }
    };
    let limit = cx.services.config.fetch_max_bytes;
    let max_wait_ms = i64::from(request.max_wait_ms.max(0));
    let (parts, is_to_confirm) = find_parts(cx, client, &mut context, &params, reader);
    let bytes = |asked: i32| usize::try_from(asked).unwrap_or(0);
    let max_bytes = bytes(request.max_bytes).min(match params.view.converts_to {
        Some(_) => limit.min(CONVERTED_MAX_BYTES),
        None => limit,
    });
    let terms = FetchParams {
        api_version,
        correlation_id,
        replica: params.replica.0,
        view: params.view,
        watch_terms: params.watch_terms(),
        max_wait_ms,
        max_bytes,
        // More than may be sent cannot be waited for.
        min_bytes: bytes(request.min_bytes).min(max_bytes),
        must_answer: is_to_confirm,
    };
    let work = Box::new(DelayedFetch::new(terms, context, parts, now_ms));
    cx.fetch_request = request;
    Ok(serve_until_waiting(cx, client, work, out)?)
}

/// Admits a request, judging its time and memory.
fn admit(
    cx: &mut Context,
    client: &ClientContext,
    request: &FetchRequest,
    reader: &SessionReader,
    view: View,
) -> Result<(), Halt> {
    let sessions = &cx.services.sessions;
    let due = sessions.due_of(request, reader, cx.versions());
    admission::admit_heavy(cx, client, due > heavy::PARTITIONS)?;
    let (named, each_bytes) = (request.partitions.len(), admission::FETCH_PARTITION_BYTES);
    admission::admit_partitions(cx, client, named, each_bytes)?;
    // The answer may hold a session's other partitions, too. Their number is bounded with the
    // sessions, so such a request only waits.
    if request.session_epoch > INITIAL_EPOCH {
        admission::admit(cx, client, (named + due) * each_bytes)?;
    }
    if view.converts_to.is_some() {
        admission::admit(cx, client, HELD_MAX_BYTES)?;
    }
    cx.looked += due;
    Ok(())
}

/// The message format for a version that does not know record batches.
fn old_format(api_version: i16) -> Option<i8> {
    match api_version {
        ..FORMAT_1_SINCE => Some(MAGIC_0),
        FORMAT_1_SINCE..BATCHES_SINCE => Some(MAGIC_1),
        _ => None,
    }
}

/// Who fetches.
#[derive(Clone, Copy, Debug)]
struct FetchClient<'f> {
    /// Broker id and epoch of a replica; a consumer's id is negative.
    replica: (i32, i64),
    /// Rack of a consumer that may be sent to a follower; else empty.
    rack: &'f str,
    view: View,
    /// A replica whose consumers wait for the high watermark it hears of.
    notify_high_watermark: bool,
}

/// A planted bug: Kafka's debugging consumer reads what is not committed, and a back-fill as that.
fn is_uncommitted_fill(request: &FetchRequest) -> bool {
    is_injected(Fault::FillTruncatedEpoch) && request.replica_id == DEBUGGING_REPLICA_ID
}

impl<'f> FetchClient<'f> {
    fn of(
        cx: &Context,
        request: &FetchRequest,
        frame: &'f [u8],
        api_version: i16,
    ) -> FetchClient<'f> {
        let is_replica = request.replica_id >= 0;
        let isolation = match request.isolation_level {
            _ if is_replica || is_uncommitted_fill(request) => Isolation::DurableEnd,
            0 => Isolation::HighWatermark,
            _ => Isolation::Committed,
        };
        let of_leader_only = is_replica || api_version < FOLLOWER_READS_SINCE;
        let cluster = cx.services.config.cluster.as_ref();
        let by_rack = cluster.is_some_and(|cluster| cluster.reads_by_rack);
        FetchClient {
            replica: (request.replica_id, request.replica_epoch),
            rack: match by_rack && !of_leader_only {
                true => request.rack_id.text(frame),
                false => "",
            },
            view: View {
                isolation,
                of_leader_only,
                understands_zstd: api_version >= ZSTD_SINCE,
                converts_to: old_format(api_version),
                marks_only: false,
                is_of_consumer: !is_replica && request.replica_epoch != BACK_FILL_EPOCH,
                // Not the turn's begin: the process may have stood still since.
                asked_ms: mono_ms(),
            },
            notify_high_watermark: by_rack && is_replica,
        }
    }

    fn reader(&self, client: &ClientContext) -> SessionReader {
        SessionReader {
            principal: Arc::clone(&client.principal),
            listener: Arc::clone(&client.listener),
            replica: self.replica,
            rack: self.rack.to_owned(),
            terms: self.watch_terms(),
            of_leader_only: self.view.of_leader_only,
            understands_zstd: self.view.understands_zstd,
        }
    }

    fn watch_terms(&self) -> WatchTerms {
        WatchTerms {
            isolation: self.view.isolation,
            notify_high_watermark: self.notify_high_watermark,
            by_rack: !self.rack.is_empty(),
        }
    }
}

/// The partitions to look at, and whether a replica must be answered at once so that it fetches
/// again.
fn find_parts(
    cx: &mut Context,
    client: &ClientContext,
    context: &mut FetchContext,
    params: &FetchClient<'_>,
    reader: SessionReader,
) -> (Vec<FetchPart>, bool) {
    let is_as_found = |target: &Target, watched: &Arc<Partition>| {
        let found = find_part(cx, target);
        // The preferred replica may have changed.
        params.rack.is_empty() && found.is_ok_and(|found| Arc::ptr_eq(found, watched))
    };
    context.open(reader, cx.versions(), &cx.image, is_as_found);
    #[cfg(debug_assertions)]
    context.check_settled(|target, state| read::is_news(state, target, params.view));
    // As for `asked_ms`: both are dated when work on them begins.
    let now_ms = mono_ms();
    let mut is_to_confirm = false;
    let mut parts = Vec::with_capacity(context.partitions());
    for position in 0..context.partitions() {
        let (part, confirms) = find_one(cx, client, context, params, (position, now_ms));
        if confirms {
            context.look_again(position);
        }
        is_to_confirm |= confirms;
        parts.push(part);
    }
    if let Some(fetches) = context.session_fetches() {
        fetches.update_fetch_state(client.id, now_ms);
    }
    (parts, is_to_confirm)
}

/// One partition, and whether its replica must fetch again at once. `(position, now_ms)`: its
/// position, and when work on the request began.
fn find_one(
    cx: &mut Context,
    client: &ClientContext,
    context: &mut FetchContext,
    params: &FetchClient<'_>,
    (position, now_ms): (usize, i64),
) -> (FetchPart, bool) {
    let found = find_part(cx, context.target(position)).map(Arc::clone);
    context.watch(position, found.as_ref().ok());
    let partition = match found {
        Ok(partition) => partition,
        Err(error) => return (FetchPart::new(Err(error), None), false),
    };
    let (FetchClient { replica, rack, .. }, target) = (*params, context.target(position));
    if replica.0 >= 0 {
        let fetch = FollowerFetch {
            connection: client.id,
            id: replica.0,
            broker_epoch: replica.1,
            offset: target.fetch_offset,
            log_start_offset: target.log_start_offset,
            session: context.session_fetches(),
            now_ms,
        };
        return match handle_follower_fetch(cx, &partition, fetch, target) {
            Ok(is_to_confirm) => (FetchPart::new(Ok(partition), None), is_to_confirm),
            Err(error) => (FetchPart::new(Err(error), None), false),
        };
    }
    let preferred_replica = match rack {
        "" => None,
        rack => nearest_replica(cx, client, &partition, target, rack),
    };
    (FetchPart::new(Ok(partition), preferred_replica), false)
}

fn find_part<'c>(cx: &'c Context, target: &Target) -> Result<&'c Arc<Partition>, ErrorCode> {
    if let Some(error) = target.refusal(&cx.image) {
        return Err(error);
    }
    let topic = target.topic.as_deref().ok_or(ErrorCode::UNKNOWN_TOPIC_ID)?;
    let partition = cx
        .hosted
        .partition(topic, target.partition)
        .ok_or_else(|| cx.why_not_hosted(topic, target.partition))?;
    if target.id != [0; 16] && partition.topic.id != target.id {
        return Err(ErrorCode::INCONSISTENT_TOPIC_ID);
    }
    Ok(partition)
}

/// A replica in the consumer's rack that has the requested offset, if this broker leads.
fn nearest_replica(
    cx: &Context,
    client: &ClientContext,
    partition: &Partition,
    target: &Target,
    rack: &str,
) -> Option<i32> {
    let rack_of = |broker| cx.image.endpoint(broker, &client.listener)?.rack;
    let state = partition.lock();
    if state.role != Role::Leader {
        return None;
    }
    let candidates = state.candidates(target.fetch_offset);
    nearest(rack, cx.services.config.node_id, candidates, rack_of)
}

/// A replica's fetch reports its log end, which may raise the high watermark or let it join the
/// ISR. True if it must fetch again at once.
fn handle_follower_fetch(
    cx: &mut Context,
    partition: &Partition,
    fetch: FollowerFetch<'_>,
    target: &Target,
) -> Result<bool, ErrorCode> {
    let (broker, broker_epoch) = (fetch.id, fetch.broker_epoch);
    let mut state = partition.lock();
    // Records that differ from this log are still to be truncated; until then the follower's end
    // says nothing.
    let (offset, last_epoch) = (target.fetch_offset, target.last_fetched_epoch);
    let is_counted = is_led_in(&mut state, target.current_leader_epoch).and_then(|()| {
        let log = state.led()?;
        let agrees = agrees(log, offset, last_epoch);
        Ok(agrees || !state.is_follower(broker))
    });
    if is_counted != Ok(true)
        && let Some(session) = fetch.session
    {
        state.leave_session(broker, session);
    }
    if !is_counted? {
        return Ok(false);
    }
    let Some(told) = state.update_follower_fetch_state(fetch) else {
        // As in Kafka: a caller with an epoch knows the leader but not the assignment.
        let is_fenced = target.current_leader_epoch >= 0;
        return Err(if is_fenced {
            ErrorCode::UNKNOWN_LEADER_EPOCH
        } else {
            ErrorCode::NOT_LEADER_OR_FOLLOWER
        });
    };
    if state.raise_high_watermark_without_growth(&mut cx.outbox) {
        partition.dir().syncer.high_watermark_moved();
    }
    if told.confirms {
        state.wake_doubting(&mut cx.outbox);
    }
    if told.ends_doubt {
        state.wake_consumers(&mut cx.outbox);
    }
    if told.has_caught_up {
        cx.services.events.push(Event::FollowerCaughtUp(CaughtUp {
            topic: partition.topic.name.to_string(),
            partition: partition.index,
            leader_epoch: state.leader_epoch,
            broker,
            broker_epoch,
        }));
    }
    if told.log_start_moved {
        let topic = partition.topic.name.to_string();
        let told = Event::FollowerLogStart(topic, partition.index);
        cx.services.events.push(told);
    }
    Ok(told.is_to_confirm)
}

/// For a replica's fetch, leadership is checked before the epoch.
fn is_led_in(state: &mut PartitionState, current_leader_epoch: i32) -> Result<(), ErrorCode> {
    state.led()?;
    state.check_epoch(current_leader_epoch)
}

/// Whether a log that ends at `offset`, after a record of `last_epoch`, is a prefix of this one.
fn agrees(log: &Log, offset: i64, last_epoch: i32) -> bool {
    if !(log.log_start_offset()..=log.log_end_offset()).contains(&offset) {
        return false;
    }
    if last_epoch < 0 {
        return true;
    }
    let (epoch, end_offset) = end_of_epoch(log, last_epoch);
    epoch == last_epoch && end_offset >= offset
}

/// Reads; then answers, waits, or hands over to readers.
///
/// # Errors
/// A reply that the protocol cannot carry.
pub fn serve_until_waiting(
    cx: &mut Context,
    client: &ClientContext,
    mut work: Box<DelayedFetch>,
    out: &mut OutQueue,
) -> Result<Outcome, Close> {
    for _ in 0..WAIT_TRIES {
        let now_ms = cx.now.mono_ms;
        let cold = work.read(&cx.services, now_ms);
        cx.statistics.fetch_looks.add(work.parts.len() as u64);
        let (place, wait) = (cx.place_of(client), cx.next_wait());
        let is_under_way = if !cold.is_empty() {
            work.hand_over(&cx.services, place, wait, now_ms, cold)
        } else if work.is_due(now_ms, cx.is_draining) || client.has_ended() {
            break;
        } else {
            work.begin_wait(place, wait)
        };
        if is_under_way {
            work.ask_followers(&mut cx.outbox);
            return Ok(Outcome::Delayed(Delayed::Fetch(work)));
        }
    }
    respond(cx, client, *work, out)
}

/// Continues once readers have returned everything.
///
/// # Errors
/// A reply that the protocol cannot carry.
pub fn finish_reading(
    cx: &mut Context,
    client: &ClientContext,
    mut work: Box<DelayedFetch>,
    out: &mut OutQueue,
) -> Result<Outcome, Close> {
    if work.is_due(cx.now.mono_ms, cx.is_draining) || client.has_ended() {
        return respond(cx, client, *work, out);
    }
    let (place, wait) = (cx.place_of(client), cx.next_wait());
    if work.begin_wait(place, wait) {
        return Ok(Outcome::Delayed(Delayed::Fetch(work)));
    }
    serve_until_waiting(cx, client, work, out)
}

/// The connection is closed.
pub fn abandon(cx: &Context, mut work: DelayedFetch) {
    work.end_wait();
    cx.services.sessions.abandon(work.context);
}

fn respond(
    cx: &mut Context,
    client: &ClientContext,
    mut work: DelayedFetch,
    out: &mut OutQueue,
) -> Result<Outcome, Close> {
    work.ask_followers(&mut cx.outbox);
    borrow_memory(cx, out);
    work.count_throttled(&cx.services, cx.now.mono_ms);
    let open = out.begin_frame();
    encode_response_header(
        out.memory(),
        key::FETCH,
        work.api_version,
        work.correlation_id,
    );
    reply::encode(cx, &client.listener, &mut work, out);
    let ended = out.end_frame(open);
    cx.services.sessions.finish(work.context);
    ended.map(|()| Outcome::Replied)
}

/// Fails the whole request, because of its session.
fn answer_error(
    request: Request<'_>,
    error_code: ErrorCode,
    out: &mut OutQueue,
) -> Result<(), Close> {
    let head = FetchResponseHead {
        throttle_ms: 0,
        error_code,
        session_id: 0,
    };
    request.reply(out, |body| {
        FetchResponseWriter::begin(body, request.header.api_version, head, 0).end(&[]);
    })
}
