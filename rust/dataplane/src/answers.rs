//! What the control plane hands to a connection, and what is told about its end.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use pyrklog_wire::header::encode_response_header;

use crate::base::ids::RequestId;
use crate::base::network_event::{Answer, NetworkEvent};
use crate::connection::{Close, Connection, Exclusive};
use crate::context::Context;
use crate::control::api::Event;
use crate::dispatch::answer_metadata;
use crate::output::borrow_memory;
use crate::replies;
use crate::shared::Shared;

/// The control plane answers the request under way. An answer to another one is ignored: its
/// request is gone.
pub fn reply(
    cx: &mut Context,
    conn: &mut Connection,
    request: RequestId,
    answer: Answer,
) -> Result<(), Close> {
    let is_under_way = match &conn.exclusive {
        Some(Exclusive::Control { id, .. } | Exclusive::Metadata { id, .. }) => *id == request,
        _ => false,
    };
    if !is_under_way {
        return Ok(());
    }
    let Some(exclusive) = conn.exclusive.take() else {
        return Ok(());
    };
    borrow_memory(cx, conn);
    match (exclusive, answer) {
        (_, Answer::Close) => Err(Close::Silently),
        (_, Answer::NoRoom(bytes)) => {
            let reason = format!("no memory for its answer of {bytes} bytes");
            Err(Close::Protocol(reason))
        }
        (
            Exclusive::Control {
                api_key,
                api_version,
                correlation_id,
                ..
            },
            Answer::Body(body, held),
        ) => {
            let frame = conn.out.begin_frame();
            let out = conn.out.memory();
            encode_response_header(out, api_key, api_version, correlation_id);
            out.extend_from_slice(&body);
            let ended = conn.out.end_frame(frame);
            // The connection holds it from now on: it is never counted by nobody.
            replies::count(cx, conn);
            drop(held);
            ended
        }
        (
            Exclusive::Metadata {
                api_version,
                correlation_id,
                frame,
                body_start,
                ..
            },
            Answer::Resume(errors),
        ) => answer_metadata(
            cx,
            conn,
            api_version,
            correlation_id,
            &frame[body_start..],
            &errors,
        ),
        // `reply` to what needs `resume`, or the other way round: no answer fits.
        _ => Err(Close::Silently),
    }
}

/// The client of what is under way on the connection has gone: the control plane learns of it, if
/// it still works for it.
pub fn tell_gone(shared: &Shared, conn: &Connection) {
    if let Some(Exclusive::Control { id, .. } | Exclusive::Metadata { id, .. }) = conn.exclusive
        && shared.channel.holds(id)
    {
        shared.events.push(Event::ClientGone { id });
    }
}

/// A connection did not use its turn at the control plane's channel: the next one may.
pub fn pass_turn(shared: &Shared) {
    if let Some(place) = shared.channel.next_waiting() {
        shared.inboxes[place.thread].send(NetworkEvent::Unblock { token: place.token });
    }
}

/// The same for a connection that has a turn, and does not use it.
pub fn pass_unused_turn(shared: &Shared, conn: &mut Connection) {
    if std::mem::take(&mut conn.has_turn) {
        pass_turn(shared);
    }
}

/// Connections of which is told in ten seconds why they were closed.
const CLOSED_TOLD_MAX: u32 = 100;

/// Counts why a connection is closed, and tells the operator where that is of use.
pub fn report(cx: &Context, conn: &Connection, close: &Close) {
    let (event, reason) = match close {
        Close::Protocol(reason) => {
            cx.statistics.protocol_errors.add(1);
            ("connection_refused", reason)
        }
        Close::Storage(reason) => ("fetch_failed", reason),
        Close::Idle => {
            cx.statistics.idle_closed.add(1);
            return;
        }
        Close::Peer | Close::Silently | Close::Shutdown => return,
    };
    let fields = vec![
        ("reason", reason.clone()),
        ("peer", conn.host.to_string()),
        ("listener", conn.listener.to_string()),
        ("connection", conn.id.to_string()),
    ];
    let events = &cx.shared.events;
    events.client_notice(event, CLOSED_TOLD_MAX, cx.now.mono_ms, fields);
}

/// Ends everything at once (the plane was dropped without a shutdown).
pub fn stop_all(shared: &Arc<Shared>) {
    shared.is_stopping.store(true, Ordering::Release);
    for inbox in shared.inboxes.iter() {
        inbox.send(NetworkEvent::Stop);
    }
}
