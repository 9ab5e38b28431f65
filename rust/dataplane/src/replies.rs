//! The bound on the memory of replies: of those that are being prepared, and of those that their
//! clients do not read.
//!
//! What a connection holds is counted after each visit: its output, answers of produce requests that
//! wait for their turn, and what the request under way needs for each of its partitions. Little is
//! not counted: every connection may have [`FREE_BYTES`], so that clients who read their replies
//! hardly ever meet the bound. A request whose reply does not fit waits, unread, in its connection's
//! buffer; one connection at a time may go beyond the bound.
//!
//! While requests wait, a connection that has not taken all of its output for
//! [`UNREAD_MAX_MS`] is closed: a reply that nobody reads must not keep others from theirs. For the
//! same reason a consumer's fetch that waits for records and is counted waits no longer than
//! [`FETCH_WAIT_MAX_MS`] then.
//!
//! Other brokers have a share of their own ([`crate::base::reply_memory`]).

use crate::base::ids::NEVER_MS;
use crate::base::network_event::NetworkEvent;
use crate::base::reply_memory::UNREAD_MAX_MS;
use crate::connection::{Close, Connection, Exclusive, Hold, Sending};
use crate::context::Context;
use crate::fetch;

/// What a connection may hold without being counted.
pub const FREE_BYTES: usize = 64 * 1024;

/// Memory that a fetch needs for each of its partitions, its part of the reply included.
pub const FETCH_PARTITION_BYTES: usize = 512;

/// The same of other requests that name partitions.
pub const OTHER_PARTITION_BYTES: usize = 256;

/// What one request's partitions may need of all the memory.
const REQUEST_SHARE: usize = 2;

/// A request may name so many partitions in any case.
const REQUEST_PARTITIONS_MIN: usize = 10_000;

/// How long a counted fetch may wait for records while requests wait for memory; Kafka's clients
/// do not ask for more by default.
const FETCH_WAIT_MAX_MS: i64 = 500;

/// The connection turns out to be another broker's.
pub fn become_brokers(cx: &Context, conn: &mut Connection) {
    forget(cx, conn);
    conn.is_broker = true;
}

/// Whether a request may go on that will hold about `bytes`; else the connection is held.
pub fn admit(cx: &mut Context, conn: &mut Connection, bytes: usize) -> bool {
    let memory = &cx.shared.replies;
    let is_little = bytes.saturating_add(conn.reply_bytes) <= FREE_BYTES;
    if is_little || memory.fits(conn.is_broker, conn.id, bytes) {
        return true;
    }
    conn.hold = Some(Hold::Replies { bytes });
    note_short(cx, conn.is_broker);
    false
}

/// The same for a request of so many partitions that need `each_bytes`.
///
/// # Errors
/// Too many for the memory there is, whoever else needs some.
pub fn admit_partitions(
    cx: &mut Context,
    conn: &mut Connection,
    partitions: usize,
    each_bytes: usize,
) -> Result<bool, Close> {
    let bytes = partitions * each_bytes;
    let most_bytes = cx.shared.replies.max_bytes() / REQUEST_SHARE;
    if partitions > REQUEST_PARTITIONS_MIN && bytes > most_bytes {
        let reason = format!("{partitions} partitions need too much of the memory for replies");
        return Err(Close::Protocol(reason));
    }
    Ok(admit(cx, conn, bytes))
}

/// A request waits for memory. Other threads have connections that may give some up.
fn note_short(cx: &mut Context, is_broker: bool) {
    cx.is_hungry = true;
    if cx.shared.replies.note_waiting(is_broker, cx.now.mono_ms) {
        return;
    }
    for thread in 0..cx.shared.inboxes.len() {
        if thread != cx.thread {
            cx.outbox.push(thread, NetworkEvent::Hungry);
        }
    }
}

fn is_short(cx: &Context, conn: &Connection) -> bool {
    let now_ms = cx.now.mono_ms;
    cx.shared.replies.is_short(conn.is_broker, now_ms)
}

/// Counts what the connection holds now.
pub fn count(cx: &mut Context, conn: &mut Connection) {
    if conn.sending == Sending::Reader {
        // Its output is with a reader, and counts on.
        return;
    }
    if conn.out.is_empty() {
        conn.unread_since_ms = NEVER_MS;
    } else if conn.unread_since_ms == NEVER_MS {
        conn.unread_since_ms = cx.now.mono_ms;
    }
    let work_bytes = match &conn.exclusive {
        Some(Exclusive::Fetch(work)) => work.parts.len() * FETCH_PARTITION_BYTES,
        Some(Exclusive::ListOffsets(work)) => work.partition_count() * OTHER_PARTITION_BYTES,
        _ => 0,
    };
    let bytes = conn.out.memory_bytes() + conn.pending_bytes + work_bytes;
    set(cx, conn, if bytes > FREE_BYTES { bytes } else { 0 });
    cx.is_hungry |= conn.reply_bytes > 0 && is_short(cx, conn);
}

/// The connection is gone, and what it held.
pub fn forget(cx: &Context, conn: &mut Connection) {
    set(cx, conn, 0);
    cx.shared.replies.of(conn.is_broker).release(conn.id);
}

fn set(cx: &Context, conn: &mut Connection, bytes: usize) {
    let budget = cx.shared.replies.of(conn.is_broker);
    if bytes != conn.reply_bytes {
        budget.change(conn.reply_bytes, bytes);
        conn.reply_bytes = bytes;
    }
    if bytes == 0 && !matches!(conn.hold, Some(Hold::Replies { .. })) {
        budget.release(conn.id);
    }
}

/// Looks whether a connection that was held may go on, which is the answer, or whether it has to go
/// for the sake of others.
///
/// # Errors
/// Its reply stays unread while requests wait, or cannot be sent.
pub fn look(cx: &mut Context, conn: &mut Connection) -> Result<bool, Close> {
    let now_ms = cx.now.mono_ms;
    if conn.reply_bytes > 0 && is_short(cx, conn) {
        cx.is_hungry = true;
        let unread_ms = now_ms.saturating_sub(conn.unread_since_ms);
        if unread_ms > UNREAD_MAX_MS {
            let reason = "its replies stayed unread while memory for replies was short";
            return Err(Close::Protocol(reason.into()));
        }
        if let Some(Exclusive::Fetch(work)) = &conn.exclusive
            && work.has_waited(FETCH_WAIT_MAX_MS, now_ms)
        {
            fetch::finish_waiting(cx, conn)?;
            return Ok(true);
        }
    }
    let Some(Hold::Replies { bytes }) = conn.hold else {
        return Ok(false);
    };
    let memory = &cx.shared.replies;
    if memory.fits(conn.is_broker, conn.id, bytes) {
        conn.hold = None;
        return Ok(true);
    }
    note_short(cx, conn.is_broker);
    Ok(false)
}
