//! The control plane's answers to a connection, and reports of its end.

use pyrklog_wire::metadata::MetadataRequest;

use pyrklog_base::ids::RequestId;
use pyrklog_base::network_event::{Answer, NetworkEvent};
use pyrklog_control::seam::Event;

use crate::client::Client;
use crate::context::{Context, borrow_memory};
use crate::delayed::Delayed;
use crate::outcome::Close;
use crate::request::Request;
use crate::services::Services;
use crate::{admission, metadata, timed_work};

/// The control plane answers the current request. Answers to earlier requests are ignored.
pub fn reply(
    cx: &mut Context,
    client: &mut Client,
    request: RequestId,
    answer: Answer,
) -> Result<(), Close> {
    let is_under_way = match &client.delayed {
        Some(Delayed::Control { id, .. } | Delayed::Metadata { id, .. }) => *id == request,
        _ => false,
    };
    if !is_under_way {
        return Ok(());
    }
    timed_work::resume(cx, client, |cx, client| answer_with(cx, client, answer))
}

fn answer_with(cx: &mut Context, client: &mut Client, answer: Answer) -> Result<(), Close> {
    let Some(delayed) = client.delayed.take() else {
        return Ok(());
    };
    borrow_memory(cx, &mut client.out);
    match (delayed, answer) {
        (_, Answer::Close) => Err(Close::Silently),
        (_, Answer::NoRoom(bytes)) => {
            let reason = format!("no memory for its answer of {bytes} bytes");
            Err(Close::Protocol(reason))
        }
        (Delayed::Control { header, .. }, Answer::Body(body, held)) => {
            let replied = header.reply(&mut client.out, |out| out.extend_from_slice(&body));
            admission::take_over(cx, client, held);
            replied
        }
        (Delayed::Metadata { frame, .. }, Answer::Resume(errors)) => {
            let request = Request::parse(&client.context, &frame)?;
            let asked = request.decode(MetadataRequest::decode)?;
            metadata::handle::answer(cx, request, &asked, &errors, &mut client.out)
        }
        // `reply` for a request that needs `resume`, or vice versa.
        _ => Err(Close::Silently),
    }
}

/// The client of the current request is gone: tells the control plane if it still works on the
/// request.
pub fn tell_gone(services: &Services, client: &Client) {
    if let Some(Delayed::Control { id, .. } | Delayed::Metadata { id, .. }) = client.delayed
        && services.channel.holds(id)
    {
        services.events.push(Event::ClientGone { id });
    }
}

/// A connection did not use its turn at the request channel: the next one may.
pub fn pass_turn(services: &Services) {
    if let Some(place) = services.channel.next_waiting() {
        let event = NetworkEvent::Unblock { token: place.token };
        services.tell(place.thread, event);
    }
}

/// The same for a connection that may have an unused turn.
pub fn pass_unused_turn(services: &Services, client: &mut Client) {
    if std::mem::take(&mut client.has_turn) {
        pass_turn(services);
    }
}

/// Limit of notices about closed connections in ten seconds.
const CLOSED_TOLD_MAX: u32 = 100;

/// Counts a connection's closing and notifies the operator where useful.
pub fn report(cx: &Context, client: &Client, close: &Close) {
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
        ("peer", client.context.host.to_string()),
        ("listener", client.context.listener.to_string()),
        ("connection", client.context.id.to_string()),
    ];
    let events = &cx.services.events;
    events.client_notice(event, CLOSED_TOLD_MAX, cx.now.mono_ms, fields);
}
