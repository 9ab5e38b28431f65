//! Fetch: find the bytes, answer at once or wait for more.
//!
//! A request is a [`FetchWork`] from its arrival to its answer. Its reads are tried without
//! waiting for the disk; where that is not enough, a reader does them. With fewer bytes than
//! `min_bytes` it stays on its connection, with a waiter at each of its partitions and a deadline
//! (the purgatory); whatever happens first brings it here again, and everything is read anew.

use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};

use pyrklog_log::{Isolation, Wait};
use pyrklog_wire::ErrorCode;
use pyrklog_wire::api::key;
use pyrklog_wire::fetch::{FetchResponseHead, FetchResponseWriter};
use pyrklog_wire::header::{RequestHeader, encode_response_header};

use crate::connection::{Close, Connection, Exclusive};
use crate::context::Context;
use crate::dispatch::Step;
use crate::fetch_read::{PartitionRead, WouldBlock, read_partition};
use crate::fetch_reply;
use crate::fetch_session::FetchContext;
use crate::inbox::Token;
use crate::output::borrow_memory;
use crate::partition::{FetchWaiter, Partition};
use crate::policy::{self, Operation, Quota, Resource};
use crate::produce::why_not_held;
use crate::reader_pool::Job;
use crate::request_channel::Place;

/// Tries to leave waiters before a fetch is answered with what there is: each failure means that
/// data arrived in between.
const WAIT_TRIES: usize = 4;

/// A fetch request under way.
#[derive(Debug)]
pub struct FetchWork {
    /// API version.
    pub api_version: i16,
    correlation_id: i32,
    /// When it is answered with what there is; monotonic milliseconds.
    pub deadline_ms: i64,
    /// Number of its wait on the connection.
    pub wait: u64,
    pub(crate) context: FetchContext,
    pub(crate) isolation: Isolation,
    pub(crate) parts: Vec<FetchPart>,
    max_bytes: usize,
    min_bytes: usize,
    bytes: usize,
    must_answer: bool,
    missing_bytes: Arc<AtomicI64>,
}

/// One partition of a fetch.
#[derive(Debug)]
pub(crate) struct FetchPart {
    /// The partition, or why there is none.
    pub partition: Result<Arc<Partition>, ErrorCode>,
    /// What the last read found.
    pub read: PartitionRead,
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
    let mut request = std::mem::take(&mut cx.fetch_request);
    if let Err(error) = request.decode(frame, body_start, api_version) {
        return Err(Close::Protocol(format!("Fetch v{api_version}: {error}")));
    }
    let now_ms = cx.now.mono_ms;
    let shared = Arc::clone(&cx.shared);
    let begun = {
        let mut fresh_id = || shared.fresh_session_id();
        let mut sessions = shared.sessions.lock();
        sessions.begin(
            &request,
            frame,
            api_version,
            &cx.image,
            now_ms,
            &mut fresh_id,
        )
    };
    let context = match begun {
        Ok(context) => context,
        Err(error) => {
            cx.fetch_request = request;
            answer_error(conn, api_version, correlation_id, error);
            return Ok(Step::Taken);
        }
    };
    let isolation = match (request.replica_id, request.isolation_level) {
        (0.., _) => Isolation::LogEnd,
        (_, 0) => Isolation::HighWatermark,
        _ => Isolation::Committed,
    };
    let limit = cx.shared.config.fetch_max_bytes;
    let max_wait_ms = i64::from(request.max_wait_ms.max(0));
    let parts = find_parts(cx, conn, &context, request.replica_id);
    let work = Box::new(FetchWork {
        api_version,
        correlation_id,
        // The clock is cut to whole milliseconds: one more makes it no less than asked for.
        deadline_ms: now_ms + max_wait_ms + 1,
        wait: 0,
        isolation,
        must_answer: parts.is_empty() || max_wait_ms == 0,
        parts,
        context,
        max_bytes: usize::try_from(request.max_bytes).unwrap_or(0).min(limit),
        min_bytes: usize::try_from(request.min_bytes).unwrap_or(0).min(limit),
        bytes: 0,
        missing_bytes: Arc::default(),
    });
    cx.fetch_request = request;
    advance(cx, conn, work);
    Ok(Step::Taken)
}

fn find_parts(
    cx: &mut Context,
    conn: &Connection,
    context: &FetchContext,
    replica_id: i32,
) -> Vec<FetchPart> {
    let mut parts = Vec::with_capacity(context.len());
    for position in 0..context.len() {
        let partition = find_part(cx, conn, context, position).and_then(|partition| {
            if replica_id >= 0 {
                let target = context.target(position);
                let (epoch, offset) = (target.current_leader_epoch, target.fetch_offset);
                follower_fetches(cx, &partition, replica_id, epoch, offset)?;
            }
            Ok(partition)
        });
        parts.push(FetchPart {
            partition,
            read: PartitionRead::default(),
        });
    }
    parts
}

fn find_part(
    cx: &Context,
    conn: &Connection,
    context: &FetchContext,
    position: usize,
) -> Result<Arc<Partition>, ErrorCode> {
    if let Some(error) = context.refusal(position, &cx.image) {
        return Err(error);
    }
    let target = context.target(position);
    let topic = target.topic.as_deref().ok_or(ErrorCode::UNKNOWN_TOPIC_ID)?;
    let resource = Resource::Topic(topic);
    if !policy::authorize(&cx.image, &conn.principal, Operation::Read, resource) {
        return Err(ErrorCode::TOPIC_AUTHORIZATION_FAILED);
    }
    let partition = cx
        .held
        .partition(topic, target.partition)
        .ok_or_else(|| why_not_held(cx, topic, target.partition))?;
    if target.id != [0; 16] && partition.topic.id != target.id {
        return Err(ErrorCode::INCONSISTENT_TOPIC_ID);
    }
    Ok(Arc::clone(partition))
}

/// A replica's fetch tells how far its log reaches, which may raise the high watermark.
fn follower_fetches(
    cx: &mut Context,
    partition: &Partition,
    replica_id: i32,
    leader_epoch: i32,
    offset: i64,
) -> Result<(), ErrorCode> {
    let mut state = partition.lock();
    state.led()?;
    state.check_epoch(leader_epoch)?;
    let end_offset = state.led()?.log_end_offset();
    if !state.follower_fetched(replica_id, offset.min(end_offset)) {
        // As Kafka: with an epoch the caller knows the leader but not the assignment.
        let is_fenced = leader_epoch >= 0;
        return Err(if is_fenced {
            ErrorCode::UNKNOWN_LEADER_EPOCH
        } else {
            ErrorCode::NOT_LEADER_OR_FOLLOWER
        });
    }
    state.release(usize::MAX, &mut cx.outbox);
    Ok(())
}

/// Reads; then answers, waits, or hands over to a reader.
fn advance(cx: &mut Context, conn: &mut Connection, mut work: Box<FetchWork>) {
    for _ in 0..WAIT_TRIES {
        if work.read(Wait::Nowait).is_err() {
            conn.exclusive = Some(Exclusive::Reading);
            let place = Place {
                thread: cx.thread,
                token: conn.token,
            };
            cx.shared.readers.submit(Job::Fetch(place, work));
            return;
        }
        if work.is_satisfied() || work.deadline_ms <= cx.now.mono_ms || cx.is_draining {
            break;
        }
        conn.last_wait += 1;
        work.wait = conn.last_wait;
        let place = Place {
            thread: cx.thread,
            token: conn.token,
        };
        if work.leave_waiters(place) {
            cx.timers
                .want(conn.token, work.deadline_ms, &mut conn.timer_ms);
            conn.exclusive = Some(Exclusive::Fetch(work));
            return;
        }
    }
    respond(cx, conn, *work);
}

/// One of the partitions of the waiting fetch has news.
pub fn wake(cx: &mut Context, conn: &mut Connection, wait: u64) -> Result<(), Close> {
    if !matches!(&conn.exclusive, Some(Exclusive::Fetch(work)) if work.wait == wait) {
        return Ok(());
    }
    if let Some(Exclusive::Fetch(work)) = conn.exclusive.take() {
        work.remove_waiters(conn.token);
        advance(cx, conn, work);
    }
    Ok(())
}

/// The waiting fetch is answered with what there is now.
pub fn finish_waiting(cx: &mut Context, conn: &mut Connection) -> Result<(), Close> {
    if let Some(Exclusive::Fetch(mut work)) = conn.exclusive.take() {
        work.remove_waiters(conn.token);
        work.must_answer = true;
        advance(cx, conn, work);
    }
    Ok(())
}

/// A reader has done the reads.
pub fn finish_reading(
    cx: &mut Context,
    conn: &mut Connection,
    work: Box<FetchWork>,
) -> Result<(), Close> {
    conn.exclusive = None;
    if work.is_satisfied() || work.deadline_ms <= cx.now.mono_ms || cx.is_draining {
        respond(cx, conn, *work);
    } else {
        advance(cx, conn, work);
    }
    Ok(())
}

/// The connection is gone.
pub fn abandon(cx: &Context, token: Token, work: FetchWork) {
    work.remove_waiters(token);
    cx.shared.sessions.lock().abandon(work.context);
}

impl FetchWork {
    /// Reads every partition, in the session's order, within the request's bounds.
    fn read(&mut self, wait: Wait) -> Result<(), WouldBlock> {
        self.bytes = 0;
        let mut has_event = false;
        for (position, part) in self.parts.iter_mut().enumerate() {
            let target = self.context.target(position);
            part.read = match &part.partition {
                Err(error) => PartitionRead::failed(*error),
                Ok(partition) => {
                    let left = self.max_bytes.saturating_sub(self.bytes);
                    let max_bytes = usize::try_from(target.max_bytes).unwrap_or(0).min(left);
                    let min_one = self.bytes == 0;
                    read_partition(partition, target, self.isolation, max_bytes, min_one, wait)?
                }
            };
            self.bytes += part.read.len();
            has_event |= part.read.error != ErrorCode::NONE || part.read.diverging.is_some();
        }
        self.must_answer |= has_event;
        Ok(())
    }

    /// The same, waiting for the disk.
    pub fn read_blocking(&mut self) {
        if self.read(Wait::Blocking).is_err() {
            debug_assert!(false, "a read that may wait said that it would");
            self.must_answer = true;
        }
    }

    fn is_satisfied(&self) -> bool {
        self.must_answer || self.bytes >= self.min_bytes
    }

    /// Leaves a waiter at each partition; false (and none left) when one has changed since it was
    /// read.
    fn leave_waiters(&self, place: Place) -> bool {
        let missing = i64::try_from(self.min_bytes - self.bytes).unwrap_or(i64::MAX);
        self.missing_bytes.store(missing, Ordering::Relaxed);
        for (position, part) in self.parts.iter().enumerate() {
            let Ok(partition) = &part.partition else {
                continue;
            };
            let mut state = partition.lock();
            if part.read.bound != crate::fetch_read::bound(&mut state, self.isolation) {
                drop(state);
                for part in &self.parts[..position] {
                    remove_waiter(part, place.token);
                }
                return false;
            }
            state.add_fetch_waiter(FetchWaiter {
                thread: place.thread as u32,
                token: place.token,
                wait: self.wait,
                isolation: self.isolation,
                missing_bytes: Arc::clone(&self.missing_bytes),
            });
        }
        true
    }

    fn remove_waiters(&self, token: Token) {
        for part in &self.parts {
            remove_waiter(part, token);
        }
    }
}

fn remove_waiter(part: &FetchPart, token: Token) {
    if let Ok(partition) = &part.partition {
        partition.lock().remove_fetch_waiter(token);
    }
}

fn respond(cx: &mut Context, conn: &mut Connection, mut work: FetchWork) {
    borrow_memory(cx, conn);
    policy::charge(&cx.image, &conn.principal, Quota::Fetch, work.bytes);
    let open = conn.out.begin_frame();
    encode_response_header(
        conn.out.memory(),
        key::FETCH,
        work.api_version,
        work.correlation_id,
    );
    fetch_reply::encode(cx, conn, &mut work);
    conn.out.end_frame(open);
    cx.shared.sessions.lock().finish(work.context);
}

/// The whole request fails (its session, not a partition).
fn answer_error(conn: &mut Connection, api_version: i16, correlation_id: i32, error: ErrorCode) {
    let open = conn.out.begin_frame();
    let out = conn.out.memory();
    encode_response_header(out, key::FETCH, api_version, correlation_id);
    let head = FetchResponseHead {
        throttle_ms: 0,
        error_code: error,
        session_id: 0,
    };
    FetchResponseWriter::begin(out, api_version, head, 0).end(&[]);
    conn.out.end_frame(open);
}
