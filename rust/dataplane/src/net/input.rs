//! From the socket to whole frames.

use rustix::buffer::spare_capacity;
use rustix::io::Errno;
use rustix::net::{RecvFlags, recv};

use pyrklog_wire::frame::{LENGTH_LEN, Scan, scan};

use crate::net::connection::{Connection, OUTPUT_MAX_BYTES};
use pyrklog_base::ids::NEVER_MS;
use pyrklog_requests::context::Context;
use pyrklog_requests::dispatch::dispatch;
use pyrklog_requests::outcome::Dispatched;
use pyrklog_requests::outcome::{Close, Hold};
use pyrklog_requests::produce::back_pressure;

/// Receives by one connection before the others of its thread get their turn.
const RECEIVES_PER_VISIT: usize = 2;

/// Works on frames that were kept, then on frames from the socket, until the connection is busy,
/// the socket is empty or its turn is over. `buffer` is the thread's.
pub fn pump(cx: &mut Context, conn: &mut Connection, buffer: &mut [u8]) -> Result<(), Close> {
    if conn.client.is_closing {
        conn.received.clear(&cx.services.budget);
        cx.services.budget.release(conn.client.context.id);
        return Ok(());
    }
    if !conn.received.is_empty() && !conn.is_busy() {
        work_on_kept(cx, conn)?;
    }
    for _ in 0..RECEIVES_PER_VISIT {
        let is_over = conn.client.context.ended || cx.is_draining || cx.has_looked_at_many();
        if conn.is_busy() || !conn.readable || is_over {
            break;
        }
        if !cx.services.budget.allows(conn.client.context.id) {
            conn.client.hold = Some(Hold::Memory);
            cx.is_hungry = true;
            break;
        }
        receive(cx, conn, buffer)?;
    }
    if conn.received.is_empty() {
        // A connection that has sent nothing must not take the place of those in the middle of a
        // frame.
        cx.services.budget.release(conn.client.context.id);
        back_pressure::note_empty(&mut conn.client, conn.readable);
    }
    note_partial(cx, conn);
    Ok(())
}

fn receive(cx: &mut Context, conn: &mut Connection, buffer: &mut [u8]) -> Result<(), Close> {
    match conn.received.carry_into(buffer, &cx.services.budget) {
        Some(carried) => {
            let room = buffer.len() - carried;
            let result = recv(&conn.socket, &mut buffer[carried..], RecvFlags::empty());
            let count = received(cx, conn, result.map(|(_, count)| count), room);
            let filled = carried + count.as_ref().map_or(0, |count| *count);
            let outcome = work_on(cx, conn, buffer, 0, filled);
            let done = outcome.as_ref().map_or(filled, |done| *done);
            conn.received
                .keep(&buffer[done..filled], &cx.services.budget);
            outcome.and(count.map(|_| ()))
        }
        None => {
            let max_bytes = cx.services.config.socket_request_max_bytes;
            let memory = conn.received.room(max_bytes, &cx.services.budget);
            let room = memory.capacity() - memory.len();
            let result = recv(&conn.socket, spare_capacity(memory), RecvFlags::empty());
            received(cx, conn, result.map(|(_, count)| count), room)?;
            work_on_kept(cx, conn)
        }
    }
}

fn received(
    cx: &Context,
    conn: &mut Connection,
    result: Result<usize, Errno>,
    room: usize,
) -> Result<usize, Close> {
    match result {
        Ok(0) => {
            conn.client.context.ended = true;
            conn.readable = false;
            Ok(0)
        }
        Ok(count) => {
            // A short read has emptied the socket: the next bytes raise a new event. A peer's end
            // that was already reported raises none.
            conn.readable = count == room || conn.client.context.hung_up;
            conn.active_ms = cx.now.mono_ms;
            cx.statistics.received_bytes.add(count as u64);
            Ok(count)
        }
        Err(Errno::AGAIN) => {
            conn.readable = false;
            Ok(0)
        }
        Err(Errno::INTR) => Ok(0),
        Err(_) => Err(Close::Peer),
    }
}

fn work_on_kept(cx: &mut Context, conn: &mut Connection) -> Result<(), Close> {
    let (mut bytes, start) = conn.received.take();
    let filled = bytes.len();
    let outcome = work_on(cx, conn, &mut bytes, start, filled);
    let done = outcome.as_ref().map_or(filled, |done| *done);
    conn.received.put_back(bytes, done, &cx.services.budget);
    if conn.received.is_empty() && cx.services.budget.is_exhausted() {
        conn.received.shrink(&cx.services.budget);
    }
    outcome.map(|_| ())
}

/// Works on the whole frames in `bytes[start..filled]`; returns the position of the first byte
/// left.
fn work_on(
    cx: &mut Context,
    conn: &mut Connection,
    bytes: &mut [u8],
    start: usize,
    filled: usize,
) -> Result<usize, Close> {
    let max_bytes = cx.services.config.socket_request_max_bytes;
    let mut at = start;
    while !conn.is_busy() && !cx.is_draining && !cx.has_looked_at_many() {
        let scanned = scan(&bytes[at..filled], max_bytes)
            .map_err(|error| Close::Protocol(error.to_string()))?;
        let Scan::Whole { content_len } = scanned else {
            break;
        };
        if conn.client.out.len() >= OUTPUT_MAX_BYTES || conn.client.out.file_len() > 0 {
            conn.client.hold = Some(Hold::Output);
            break;
        }
        let frame = &mut bytes[at + LENGTH_LEN..at + LENGTH_LEN + content_len];
        if dispatch(cx, &mut conn.client, frame)? == Dispatched::Waits {
            break;
        }
        at += LENGTH_LEN + content_len;
    }
    if at > start {
        cx.services.budget.release(conn.client.context.id);
    }
    Ok(at)
}

/// Whether the bytes kept hold a whole frame, or an invalid one.
pub fn has_whole_frame(cx: &Context, conn: &Connection) -> bool {
    let max_bytes = cx.services.config.socket_request_max_bytes;
    !matches!(
        scan(conn.received.bytes(), max_bytes),
        Ok(Scan::Partial { .. })
    )
}

fn note_partial(cx: &Context, conn: &mut Connection) {
    if conn.received.is_empty() || conn.is_busy() {
        conn.partial_since_ms = NEVER_MS;
    } else if conn.partial_since_ms == NEVER_MS {
        conn.partial_since_ms = cx.now.mono_ms;
    }
}
