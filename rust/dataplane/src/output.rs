//! From answers to the socket.

use pyrklog_wire::api::key;
use pyrklog_wire::header::encode_response_header;

use crate::base::ids::{NEVER_MS, Place};
use crate::connection::{Close, Connection, Hold, Sending};
use crate::context::Context;
use crate::read_path::{Method, Sender, Sent, Stop, choose, copy_out, file_max_bytes};
use crate::send_job::SendWork;

/// A reader that is at one step for this long hangs with its disk. A reply that was begun cannot be
/// finished without it: the connection closes, so that its client can ask for something else.
const SEND_PATIENCE_MS: i64 = 10_000;

/// Moves the answers of produce requests that are done, as far as the order allows, to the
/// output.
///
/// # Errors
/// A reply that the protocol cannot carry.
pub fn settle(cx: &mut Context, conn: &mut Connection) -> Result<(), Close> {
    while conn
        .pending
        .front()
        .is_some_and(|produce| produce.is_done())
    {
        let Some(produce) = conn.pending.pop_front() else {
            break;
        };
        conn.first_sequence += 1;
        conn.pending_bytes -= produce.memory_bytes();
        borrow_memory(cx, conn);
        let frame = conn.out.begin_frame();
        let out = conn.out.memory();
        encode_response_header(
            out,
            key::PRODUCE,
            produce.api_version,
            produce.correlation_id,
        );
        produce.encode(&cx.image, &conn.listener, out);
        let ended = conn.out.end_frame(frame);
        cx.spare_produce(produce);
        ended?;
    }
    if conn.pending.is_empty() && conn.hold == Some(Hold::Order) {
        conn.hold = None;
    }
    Ok(())
}

/// Sees that the output has memory from the thread's spares rather than new one.
pub fn borrow_memory(cx: &mut Context, conn: &mut Connection) {
    if conn.out.is_empty() && conn.out.memory().capacity() == 0 {
        let memory = cx.take_memory();
        conn.out.give_memory(memory);
    }
}

/// Sends what the socket takes. `buffer` is the thread's, for file bytes.
pub fn flush(cx: &mut Context, conn: &mut Connection, buffer: &mut [u8]) -> Result<(), Close> {
    match conn.sending {
        Sending::Reader => return Ok(()),
        Sending::Full if !conn.writable => return Ok(()),
        Sending::Full | Sending::Own => conn.sending = Sending::Own,
    }
    if conn.out.is_empty() {
        return Ok(());
    }
    let before = conn.out.len();
    let file_before = conn.out.file_len();
    let config = cx.shared.config.fetch_read_path;
    let socket = std::os::fd::AsFd::as_fd(&conn.socket);
    let file_max_bytes = file_max_bytes(config);
    let Sent { stop, cached_bytes } = copy_out(
        socket,
        &mut conn.out,
        buffer,
        Sender::NetworkThread,
        file_max_bytes,
    );
    let sent = before - conn.out.len();
    if sent > 0 {
        conn.active_ms = cx.now.mono_ms;
        let from_files = file_before - conn.out.file_len();
        let statistics = &cx.statistics;
        statistics.sent_bytes.add(sent as u64);
        let cached_bytes = cached_bytes.min(from_files);
        statistics.fetched_bytes_cached.add(cached_bytes as u64);
        let copied = from_files - cached_bytes;
        statistics.fetched_bytes_copy.add(copied as u64);
    }
    match stop {
        Stop::Done => {
            let memory = conn.out.take_memory();
            cx.spare_memory(memory);
            if conn.hold == Some(Hold::Output) {
                conn.hold = None;
            }
        }
        Stop::SocketFull => {
            conn.sending = Sending::Full;
            conn.writable = false;
        }
        Stop::WouldRead => {
            let method = choose(config, conn.out.file_len());
            hand_to_reader(cx, conn, method);
        }
        Stop::TurnOver => cx.again.push(conn.token),
        Stop::PeerGone => return Err(Close::Peer),
        Stop::ReadFailed(reason) => return Err(Close::Storage(reason)),
    }
    Ok(())
}

fn hand_to_reader(cx: &mut Context, conn: &mut Connection, method: Method) {
    let Some(queue) = conn.out.next_queue() else {
        debug_assert!(false, "readers send what has bytes of files in it");
        return;
    };
    conn.sending = Sending::Reader;
    conn.writable = false;
    let work = SendWork {
        socket: std::sync::Arc::clone(&conn.socket),
        out: std::mem::take(&mut conn.out),
        method,
        place: Place {
            thread: cx.thread,
            token: conn.token,
        },
        stop: Stop::Done,
        sent: 0,
        window_bytes: 0,
        step: std::sync::Arc::clone(&conn.sending_reader.step),
        readers: std::sync::Arc::clone(&cx.shared.readers),
        mailbox: cx.shared.inboxes.clone(),
    };
    let due_ms = cx.now.mono_ms + SEND_PATIENCE_MS;
    conn.sending_reader.due_ms = due_ms;
    cx.timers.want(conn.token, due_ms, &mut conn.timer_ms);
    // Never refused: a connection has one at most.
    let _taken = cx.shared.readers.submit(queue, Box::new(work));
}

/// Looks whether the reader that sends gets on; an error when it does not.
pub fn check_reader(cx: &Context, conn: &mut Connection) -> Result<(), Close> {
    let now_ms = cx.now.mono_ms;
    let reader = &mut conn.sending_reader;
    if reader.due_ms > now_ms {
        return Ok(());
    }
    // None while it waits for its turn.
    let age_ms = reader.step.age_ms(now_ms).unwrap_or(0);
    if age_ms >= SEND_PATIENCE_MS {
        let reason = format!("the disk gave nothing for {} s", age_ms / 1000);
        return Err(Close::Storage(reason));
    }
    reader.due_ms = now_ms + SEND_PATIENCE_MS - age_ms;
    Ok(())
}

/// A reader gives the sending side back.
pub fn take_back(cx: &mut Context, conn: &mut Connection, work: SendWork) -> Result<(), Close> {
    debug_assert!(
        conn.out.is_empty(),
        "answers were built while a reader was sending"
    );
    conn.out = work.out;
    conn.sending_reader.due_ms = NEVER_MS;
    conn.active_ms = cx.now.mono_ms;
    cx.statistics.sent_bytes.add(work.sent as u64);
    match work.method {
        Method::Copy => cx.statistics.fetched_bytes_copy.add(work.sent as u64),
        Method::Bulk | Method::Sendfile => {
            let window_bytes = work.window_bytes as u64;
            cx.statistics.fetched_bytes_window.add(window_bytes);
            let sendfile_bytes = work.sent as u64 - window_bytes;
            cx.statistics.fetched_bytes_sendfile.add(sendfile_bytes);
        }
    }
    conn.sending = Sending::Own;
    match work.stop {
        Stop::Done => {
            if conn.hold == Some(Hold::Output) {
                conn.hold = None;
            }
            Ok(())
        }
        // An event in the meantime has set `writable`; then the next flush tries at once.
        Stop::SocketFull | Stop::TurnOver | Stop::WouldRead => {
            conn.sending = Sending::Full;
            Ok(())
        }
        Stop::PeerGone => Err(Close::Peer),
        Stop::ReadFailed(reason) => Err(Close::Storage(reason)),
    }
}
