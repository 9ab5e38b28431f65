//! Requests that the control plane serves.

use std::sync::Arc;

use pyrklog_wire::api::{self, key};
use pyrklog_wire::header::{RequestHeader, encode_response_header};

use crate::client::{Client, Exclusive};
use crate::context::Context;
use crate::outcome::{Close, Hold, Step};
use crate::services::Services;
use pyrklog_base::ids::{Place, RequestId};
use pyrklog_control::api::{ControlRequest, Event};
use pyrklog_control::heartbeat::Heartbeat;
use pyrklog_control::offset_commit::{self, OffsetCommit};
use pyrklog_control::request_channel::Asked;

/// The same for what groups keep, and write to `__consumer_offsets`: with notes of the usual limit that
/// is a commit of a thousand partitions.
const KEPT_BODY_MAX_BYTES: usize = 4 * 1024 * 1024;

/// Whether the group coordinator keeps most of such a request.
fn is_kept(api_key: i16) -> bool {
    matches!(
        api_key,
        key::OFFSET_COMMIT | key::JOIN_GROUP | key::SYNC_GROUP
    )
}

/// A place at the control plane for a request of which `body_bytes` are copied; without one the
/// connection is held.
pub fn begin(
    cx: &Context,
    client: &mut Client,
    api_key: i16,
    body_bytes: usize,
) -> Option<RequestId> {
    client.has_turn = false;
    let asked = Asked {
        place: Place {
            thread: cx.thread,
            token: client.token,
        },
        host: client.host,
        body_bytes,
        is_commit: api_key == key::OFFSET_COMMIT,
        is_broker: client.is_broker,
    };
    let is_between_brokers = api::lookup(api_key).is_some_and(|row| row.is_between_brokers);
    if is_between_brokers || api_key == key::HEARTBEAT {
        return Some(cx.services.channel.begin_placeless(asked));
    }
    let id = cx.services.channel.begin(asked);
    if id.is_none() {
        client.hold = Some(Hold::ControlFull);
    }
    id
}

/// Hands a request of an API that the control plane owns to it.
pub fn handle(
    cx: &mut Context,
    client: &mut Client,
    header: RequestHeader<'_>,
    frame: &[u8],
    body_start: usize,
) -> Result<Step, Close> {
    let RequestHeader {
        api_key,
        api_version,
        correlation_id,
        ..
    } = header;
    let body = &frame[body_start..];
    if is_kept(api_key) && body.len() > KEPT_BODY_MAX_BYTES {
        let name = api::lookup(api_key).map_or("", |row| row.name);
        return Err(Close::Protocol(format!("{name} of {} bytes", body.len())));
    }
    if api_key == key::OFFSET_COMMIT {
        let waiting = cx.services.channel.waiting_memory();
        let no_room = waiting.commits.is_full_for(client.host);
        if let Some(answer) = offset_commit::refusal(body, api_version, no_room) {
            let open = client.out.begin_frame();
            encode_response_header(client.out.memory(), api_key, api_version, correlation_id);
            client.out.memory().extend_from_slice(&answer);
            client.out.end_frame(open)?;
            return Ok(Step::Taken);
        }
    }
    let body_bytes = frame.len() - body_start;
    let Some(id) = begin(cx, client, api_key, body_bytes) else {
        return Ok(Step::Wait);
    };
    client.exclusive = Some(Exclusive::Control {
        id,
        api_key,
        api_version,
        correlation_id,
    });
    let request = ControlRequest {
        id,
        api_key,
        api_version,
        session: client.session(header.client_id),
        body: frame[body_start..].to_vec(),
    };
    let event = match api_key {
        key::HEARTBEAT => match Heartbeat::decode(request) {
            Ok(heartbeat) => Event::Heartbeat(Box::new(heartbeat)),
            Err(request) => Event::Request(*request),
        },
        key::OFFSET_COMMIT => match OffsetCommit::decode(request, &cx.services.image) {
            Ok(commit) => Event::OffsetCommit(Arc::new(commit)),
            Err(request) => Event::Request(*request),
        },
        _ => Event::Request(request),
    };
    cx.services.events.push(event);
    if client.hung_up {
        tell_gone(&cx.services, client);
    }
    Ok(Step::Taken)
}

/// The client of what is under way on the connection has gone: the control plane learns of it, if
/// it still works for it.
pub fn tell_gone(services: &Services, client: &Client) {
    if let Some(Exclusive::Control { id, .. } | Exclusive::Metadata { id, .. }) = client.exclusive
        && services.channel.holds(id)
    {
        services.events.push(Event::ClientGone { id });
    }
}
