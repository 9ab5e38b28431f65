//! From answers to the socket.

use std::os::fd::AsFd;
use std::sync::Arc;

use crate::net::connection::{Connection, Sending};
use crate::net::message::Inboxes;
use crate::net::outlet::Line;
use crate::net::send_job::SendWork;
use crate::net::send_path::{Method, Sender, Sent, Stop, choose, copy_out, file_max_bytes};
use pyrklog_base::ids::{NEVER_MS, Place};
use pyrklog_requests::context::Context;
use pyrklog_requests::outcome::{Close, Hold};
use pyrklog_requests::timed_work;

/// A reader at one step for this long hangs with its disk. Its reply cannot be finished without it:
/// the connection closes, so that the client can ask for something else.
const SEND_PATIENCE_MS: i64 = 10_000;

/// Sends what the socket takes. `buffer` is the thread's, for file bytes.
pub fn flush(
    cx: &mut Context,
    conn: &mut Connection,
    buffer: &mut [u8],
    inboxes: &Arc<Inboxes>,
) -> Result<(), Close> {
    match conn.sending {
        Sending::Reader => return Ok(()),
        Sending::Full if !conn.writable => return Ok(()),
        Sending::Full | Sending::Own => conn.sending = Sending::Own,
    }
    if conn.client.out.is_empty() {
        return Ok(());
    }
    let before = conn.client.out.len();
    let file_before = conn.client.out.file_len();
    let config = cx.services.config.fetch_read_path;
    let line = Line::new(conn.socket.as_fd());
    let (out, sender) = (&mut conn.client.out, Sender::NetworkThread);
    let Sent { stop, cached_bytes } = copy_out(&line, out, buffer, sender, file_max_bytes(config));
    drop(line);
    let sent = before - conn.client.out.len();
    if sent > 0 {
        conn.active_ms = cx.now.mono_ms;
        let from_files = file_before - conn.client.out.file_len();
        let statistics = &cx.statistics;
        statistics.sent_bytes.add(sent as u64);
        let cached_bytes = cached_bytes.min(from_files);
        statistics.fetched_bytes_cached.add(cached_bytes as u64);
        let copied = from_files - cached_bytes;
        statistics.fetched_bytes_copy.add(copied as u64);
    }
    match stop {
        Stop::Done => {
            timed_work::sent(cx, &mut conn.client);
            let memory = conn.client.out.take_memory();
            cx.spare_memory(memory);
            if conn.client.hold == Some(Hold::Output) {
                conn.client.hold = None;
            }
        }
        Stop::SocketFull => {
            conn.sending = Sending::Full;
            conn.writable = false;
        }
        Stop::WouldRead => {
            let method = choose(config, conn.client.out.file_len());
            hand_to_reader(cx, conn, method, inboxes);
        }
        Stop::TurnOver => cx.again.push(conn.client.context.token),
        Stop::PeerGone => return Err(Close::Peer),
        Stop::ReadFailed(reason) => return Err(Close::Storage(reason)),
    }
    Ok(())
}

fn hand_to_reader(cx: &mut Context, conn: &mut Connection, method: Method, inboxes: &Arc<Inboxes>) {
    let Some(queue) = conn.client.out.next_queue() else {
        debug_assert!(false, "readers send what has bytes of files in it");
        return;
    };
    conn.sending = Sending::Reader;
    conn.writable = false;
    let work = SendWork {
        socket: Arc::clone(&conn.socket),
        out: std::mem::take(&mut conn.client.out),
        method,
        place: Place {
            thread: cx.thread,
            token: conn.client.context.token,
        },
        stop: Stop::Done,
        sent: 0,
        window_bytes: 0,
        step: Arc::clone(&conn.sending_step),
        readers: Arc::clone(&cx.services.readers),
        mailbox: Arc::clone(inboxes) as Arc<_>,
    };
    let due_ms = cx.now.mono_ms + SEND_PATIENCE_MS;
    conn.sending_due_ms = due_ms;
    cx.timers
        .want(conn.client.context.token, due_ms, &mut conn.client.timer_ms);
    // Never refused: a connection has one at most.
    let _taken = cx.services.readers.submit(queue, Box::new(work));
}

/// Checks the progress of the reader that sends; an error closes the connection.
pub fn check_reader(cx: &Context, conn: &mut Connection) -> Result<(), Close> {
    let now_ms = cx.now.mono_ms;
    if conn.sending_due_ms > now_ms {
        return Ok(());
    }
    // None while it waits for its turn.
    let age_ms = conn.sending_step.age_ms(now_ms).unwrap_or(0);
    if age_ms >= SEND_PATIENCE_MS {
        let reason = format!("the disk gave nothing for {} s", age_ms / 1000);
        return Err(Close::Storage(reason));
    }
    conn.sending_due_ms = now_ms + SEND_PATIENCE_MS - age_ms;
    Ok(())
}

pub fn take_back(cx: &mut Context, conn: &mut Connection, work: SendWork) -> Result<(), Close> {
    debug_assert!(
        conn.client.out.is_empty(),
        "answers were built while a reader was sending"
    );
    conn.client.out = work.out;
    conn.sending_due_ms = NEVER_MS;
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
            timed_work::sent(cx, &mut conn.client);
            if conn.client.hold == Some(Hold::Output) {
                conn.client.hold = None;
            }
            Ok(())
        }
        // An event meanwhile has set `writable`; then the next flush tries at once.
        Stop::SocketFull | Stop::TurnOver | Stop::WouldRead => {
            conn.sending = Sending::Full;
            Ok(())
        }
        Stop::PeerGone => Err(Close::Peer),
        Stop::ReadFailed(reason) => Err(Close::Storage(reason)),
    }
}
