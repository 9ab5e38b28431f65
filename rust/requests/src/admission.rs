//! Bounds the memory of replies that are being prepared or that clients do not read.
//!
//! After each visit a connection's memory is counted: output, produce answers that wait for their
//! turn, and the current request's needs per partition. [`FREE_BYTES`] per connection stay
//! uncounted, so clients that read their replies hardly ever meet the bound. A request whose reply
//! does not fit waits, unread, in its connection's buffer; one connection at a time may exceed the
//! bound.
//!
//! While requests wait, a connection with output unread for [`UNREAD_MAX_MS`] is closed, and a
//! consumer's counted fetch waits for records at most [`FETCH_WAIT_MAX_MS`].
//!
//! Other brokers have their own share ([`pyrklog_base::reply_memory`]).

use crate::client::Client;
use crate::client_context::ClientContext;
use crate::context::Context;
use crate::delayed::Delayed;
use crate::handled::Halt;
use crate::outcome::{Close, Hold};
use pyrklog_base::ids::NEVER_MS;
use pyrklog_base::memory_budget::Held;
use pyrklog_base::network_event::NetworkEvent;
use pyrklog_base::reply_memory::UNREAD_MAX_MS;

/// Uncounted memory of a connection.
pub const FREE_BYTES: usize = 64 * 1024;

/// Memory of a fetched partition, its part of the reply included.
pub const FETCH_PARTITION_BYTES: usize = 512;

/// The same for other requests that name partitions.
pub const OTHER_PARTITION_BYTES: usize = 256;

/// Divisor of the memory that one request's partitions may need.
const REQUEST_SHARE: usize = 2;

/// Number of partitions that a request may always name.
const REQUEST_PARTITIONS_MIN: usize = 10_000;

/// How long a counted fetch may wait for records while requests wait for memory. Kafka's clients
/// ask for no more by default.
const FETCH_WAIT_MAX_MS: i64 = 500;

/// The connection turns out to be a broker's.
pub fn become_brokers(cx: &Context, client: &mut Client) {
    forget(cx, client);
    client.context.is_broker = true;
}

/// Admits a request that will hold about `bytes`.
///
/// # Errors
/// It waits for reply memory.
pub fn admit(cx: &mut Context, client: &ClientContext, bytes: usize) -> Result<(), Halt> {
    let is_little = bytes.saturating_add(client.reply_bytes) <= FREE_BYTES;
    match is_little || has_room(cx, client, bytes) {
        true => Ok(()),
        false => Err(Halt::Wait(Hold::Replies { bytes })),
    }
}

/// Whether a connection may hold `bytes` more; if not, memory counts as short.
pub fn has_room(cx: &mut Context, client: &ClientContext, bytes: usize) -> bool {
    let fits = cx.services.replies.fits(client.is_broker, client.id, bytes);
    if !fits {
        note_short(cx, client.is_broker);
    }
    fits
}

/// The same for a request of `partitions` that need `each_bytes`.
///
/// # Errors
/// It waits; or the partitions exceed the memory, and the connection closes.
pub fn admit_partitions(
    cx: &mut Context,
    client: &ClientContext,
    partitions: usize,
    each_bytes: usize,
) -> Result<(), Halt> {
    let bytes = partitions * each_bytes;
    let most_bytes = cx.services.replies.max_bytes() / REQUEST_SHARE;
    if partitions > REQUEST_PARTITIONS_MIN && bytes > most_bytes {
        let reason = format!("{partitions} partitions need too much of the memory for replies");
        return Err(Close::Protocol(reason).into());
    }
    admit(cx, client, bytes)?;
    cx.looked += partitions;
    Ok(())
}

fn note_short(cx: &mut Context, is_broker: bool) {
    cx.is_hungry = true;
    if cx.services.replies.note_waiting(is_broker, cx.now.mono_ms) {
        return;
    }
    for thread in 0..cx.services.network_threads() {
        if thread != cx.thread {
            cx.outbox.push(thread, NetworkEvent::Hungry);
        }
    }
}

fn is_short(cx: &Context, client: &ClientContext) -> bool {
    let now_ms = cx.now.mono_ms;
    cx.services.replies.is_short(client.is_broker, now_ms)
}

/// Counts the connection's memory.
pub fn count(cx: &mut Context, client: &mut Client) {
    if client.out.is_empty() {
        client.unread_since_ms = NEVER_MS;
    } else if client.unread_since_ms == NEVER_MS {
        client.unread_since_ms = cx.now.mono_ms;
    }
    let work_bytes = match &client.delayed {
        Some(Delayed::Fetch(work)) => work.parts.len() * FETCH_PARTITION_BYTES + work.held_bytes(),
        Some(Delayed::ListOffsets(work)) => work.partition_count() * OTHER_PARTITION_BYTES,
        _ => 0,
    };
    let bytes = client.out.memory_bytes() + client.produces.memory_bytes() + work_bytes;
    set(cx, client, if bytes > FREE_BYTES { bytes } else { 0 });
    cx.is_hungry |= client.context.reply_bytes > 0 && is_short(cx, &client.context);
}

/// The same for a connection that has taken an answer over. The answer counts once at any time.
pub fn take_over(cx: &mut Context, client: &mut Client, answer: Option<Held>) {
    let budget = cx.services.replies.of(client.context.is_broker);
    client.context.reply_bytes += answer.map_or(0, |held| held.hand_over(budget));
    count(cx, client);
}

/// The connection is closed: frees its memory.
pub fn forget(cx: &Context, client: &mut Client) {
    set(cx, client, 0);
    cx.services
        .replies
        .of(client.context.is_broker)
        .release(client.context.id);
}

fn set(cx: &Context, client: &mut Client, bytes: usize) {
    let budget = cx.services.replies.of(client.context.is_broker);
    if bytes != client.context.reply_bytes {
        budget.change(client.context.reply_bytes, bytes);
        client.context.reply_bytes = bytes;
    }
    if bytes == 0 && !matches!(client.hold, Some(Hold::Replies { .. })) {
        budget.release(client.context.id);
    }
}

/// Result of looking at a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Recheck {
    /// Nothing changes.
    Keep,
    /// It was held and may continue.
    GoOn,
    /// Its fetch must be answered now, for others' sake.
    FinishFetch,
}

/// When the connection is closed because its replies stay unread while requests wait; [`NEVER_MS`]
/// if none wait.
pub fn unread_due_ms(cx: &Context, client: &Client) -> i64 {
    match client.context.reply_bytes > 0 && is_short(cx, &client.context) {
        true => client.unread_since_ms.saturating_add(UNREAD_MAX_MS + 1),
        false => NEVER_MS,
    }
}

/// Checks whether a held connection may continue, or whether its fetch must end for others' sake.
pub fn recheck(cx: &mut Context, client: &mut Client) -> Recheck {
    if client.context.reply_bytes > 0 && is_short(cx, &client.context) {
        cx.is_hungry = true;
        if let Some(Delayed::Fetch(work)) = &client.delayed
            && work.has_waited(FETCH_WAIT_MAX_MS, cx.now.mono_ms)
        {
            return Recheck::FinishFetch;
        }
    }
    let Some(Hold::Replies { bytes }) = client.hold else {
        return Recheck::Keep;
    };
    let memory = &cx.services.replies;
    if memory.fits(client.context.is_broker, client.context.id, bytes) {
        client.hold = None;
        return Recheck::GoOn;
    }
    note_short(cx, client.context.is_broker);
    Recheck::Keep
}

/// Admits a request that takes long if `is_heavy`.
///
/// # Errors
/// It waits for its turn.
pub fn admit_heavy(cx: &mut Context, client: &ClientContext, is_heavy: bool) -> Result<(), Halt> {
    if !is_heavy || cx.heavy.begin(client.token) {
        return Ok(());
    }
    cx.heavy.wait(client.is_broker, client.host, client.token);
    Err(Halt::Wait(Hold::Heavy))
}
