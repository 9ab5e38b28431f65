//! Requests that the control plane serves.

use std::sync::Arc;

use pyrklog_wire::api::{self, key};
use pyrklog_wire::header::RequestHeader;

use crate::client_context::ClientContext;
use crate::context::Context;
use crate::delayed::Delayed;
use crate::handled::{Halt, Handled, Outcome};
use crate::out_queue::OutQueue;
use crate::outcome::{Close, Hold};
use crate::reply_header::ReplyHeader;
use crate::request::Request;
use pyrklog_base::ids::RequestId;
use pyrklog_control::heartbeat::Heartbeat;
use pyrklog_control::offset_commit::{self, OffsetCommit};
use pyrklog_control::request_channel::Asked;
use pyrklog_control::seam::{ControlRequest, Event};

/// Body limit of requests whose content groups keep or write to `__consumer_offsets`. With metadata
/// of the usual limit that is a commit of a thousand partitions.
const KEPT_BODY_MAX_BYTES: usize = 4 * 1024 * 1024;

/// Whether the group coordinator keeps most of such a request.
fn is_kept(api_key: i16) -> bool {
    matches!(
        api_key,
        key::OFFSET_COMMIT | key::JOIN_GROUP | key::SYNC_GROUP
    )
}

/// Gets a place at the control plane for a request with a copied body of `body_bytes`.
///
/// # Errors
/// It waits for a place.
pub fn begin(
    cx: &Context,
    client: &ClientContext,
    api_key: i16,
    body_bytes: usize,
) -> Result<RequestId, Halt> {
    let asked = Asked {
        place: cx.place_of(client),
        host: client.host,
        body_bytes,
        is_commit: api_key == key::OFFSET_COMMIT,
        is_broker: client.is_broker,
    };
    let is_between_brokers = api::lookup(api_key).is_some_and(|row| row.is_between_brokers);
    if is_between_brokers || api_key == key::HEARTBEAT {
        return Ok(cx.services.channel.begin_placeless(asked));
    }
    let id = cx.services.channel.begin(asked);
    id.ok_or(Halt::Wait(Hold::ControlFull))
}

/// Hands a request to the control plane.
pub fn handle(cx: &mut Context, request: Request<'_>, out: &mut OutQueue) -> Handled {
    let RequestHeader {
        api_key,
        api_version,
        client_id,
        ..
    } = request.header;
    let header = ReplyHeader::of(request.header);
    let (client, body) = (request.client, request.body());
    if is_kept(api_key) && body.len() > KEPT_BODY_MAX_BYTES {
        let name = api::lookup(api_key).map_or("", |row| row.name);
        let reason = format!("{name} of {} bytes", body.len());
        return Err(Close::Protocol(reason).into());
    }
    if api_key == key::OFFSET_COMMIT {
        let waiting = cx.services.channel.waiting_memory();
        let no_room = waiting.commits.is_full_for(client.host);
        if let Some(answer) = offset_commit::refusal(body, api_version, no_room) {
            request.reply(out, |reply| reply.extend_from_slice(&answer))?;
            return Ok(Outcome::Replied);
        }
    }
    let id = begin(cx, client, api_key, body.len())?;
    let request = ControlRequest {
        id,
        api_key,
        api_version,
        session: client.session(client_id),
        body: body.to_vec(),
    };
    cx.services.events.push(event_of(cx, request));
    Ok(Outcome::Delayed(Delayed::Control { id, header }))
}

fn event_of(cx: &Context, request: ControlRequest) -> Event {
    match request.api_key {
        key::HEARTBEAT => match Heartbeat::decode(request) {
            Ok(heartbeat) => Event::Heartbeat(Box::new(heartbeat)),
            Err(request) => Event::Request(*request),
        },
        key::OFFSET_COMMIT => match OffsetCommit::decode(request, &cx.services.image) {
            Ok(commit) => Event::OffsetCommit(Arc::new(commit)),
            Err(request) => Event::Request(*request),
        },
        _ => Event::Request(request),
    }
}
