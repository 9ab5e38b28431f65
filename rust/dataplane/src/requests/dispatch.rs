//! One whole frame: read its header, check its version, hand it to whoever serves its API.

use std::sync::Arc;

use pyrklog_wire::api::{self, ApiRow, Owner, key};
use pyrklog_wire::header::{RequestHeader, encode_response_header};

use crate::base::ids::{Place, RequestId};
use crate::control::api::{ControlRequest, Event};
use crate::control::heartbeat::Heartbeat;
use crate::control::offset_commit::{self, OffsetCommit};
use crate::control::request_channel::Asked;
use crate::requests::client::{Client, Close, Exclusive, Hold};
use crate::requests::context::Context;
use crate::requests::context::borrow_memory;
use crate::requests::heavy;
use crate::requests::metadata::{self, Asker, MetadataPlan};
use crate::requests::reply_admission;
use crate::requests::{
    api_versions, broker_connections, control_replies, fetch, list_offsets,
    offset_for_leader_epoch, produce,
};

use crate::requests::produce::{ADMIN_CLIENT_ID, Arrival};

/// Only Produce carries bulk data. Any other request of more than this could only be there to
/// make small elements grow in memory.
const OTHER_REQUEST_MAX_BYTES: usize = 16 * 1024 * 1024;

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

/// Produce requests of a connection that wait for their answers before its next one waits too.
/// The bound on unwritten bytes does not hold those that append nothing (refused, or duplicates).
const PENDING_MAX: usize = 1000;

/// The same for the memory of their answers.
const PENDING_MAX_BYTES: usize = 4 * 1024 * 1024;

/// What became of a frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Step {
    /// It was worked on; the next one may follow unless the connection is busy now.
    Taken,
    /// It must wait, unread; the connection's `hold` says for what.
    Wait,
}

/// Works on one frame (without its length prefix).
pub fn dispatch(cx: &mut Context, client: &mut Client, frame: &mut [u8]) -> Result<Step, Close> {
    let step = begin(cx, client, frame);
    if matches!(step, Ok(Step::Taken)) {
        if cx.heavy.end_request() {
            cx.statistics.heavy_requests.add(1);
        }
        // What it waited with needed no place after all.
        control_replies::pass_unused_turn(&cx.services, client);
    }
    step
}

fn begin(cx: &mut Context, client: &mut Client, frame: &mut [u8]) -> Result<Step, Close> {
    let (header, body_start) = RequestHeader::parse(frame)
        .map_err(|error| Close::Protocol(format!("request header: {error}")))?;
    let RequestHeader {
        api_key,
        api_version,
        correlation_id,
        ..
    } = header;
    let in_cluster = cx.services.config.cluster.is_some();
    let served = api::lookup(api_key).filter(|row| in_cluster || !row.is_between_brokers);
    let Some(row) = served else {
        return Err(Close::Protocol(format!("API key {api_key} is unknown")));
    };
    broker_connections::recognise(cx, client, row, api_version, &frame[body_start..]);
    if api_key == key::PRODUCE && row.serves(api_version) {
        if client.pending.len() >= PENDING_MAX || client.pending_bytes >= PENDING_MAX_BYTES {
            client.hold = Some(Hold::Order);
            return Ok(Step::Wait);
        }
        // The header borrows the frame, which is patched in place: keep what is needed of it.
        let arrival = Arrival {
            api_version,
            correlation_id,
            body_start,
            is_admin: header.client_id == Some(ADMIN_CLIENT_ID),
        };
        return produce::handle(cx, client, arrival, frame);
    }
    if !client.pending.is_empty() {
        client.hold = Some(Hold::Order);
        return Ok(Step::Wait);
    }
    if frame.len() > OTHER_REQUEST_MAX_BYTES {
        return Err(Close::Protocol(format!(
            "{} of {} bytes",
            row.name,
            frame.len()
        )));
    }
    if !heavy::admit(cx, client, frame.len() > heavy::FRAME_BYTES) {
        return Ok(Step::Wait);
    }
    borrow_memory(cx, client);
    cx.statistics.request(api_key);
    if !row.advertises(api_version) {
        return refuse_version(cx, client, row, correlation_id, api_version);
    }
    match api_key {
        key::PRODUCE => produce::old_versions::refuse(client, header, frame, body_start),
        key::FETCH => fetch::handle(cx, client, header, frame, body_start),
        key::LIST_OFFSETS => list_offsets::handle(cx, client, header, frame, body_start),
        key::OFFSET_FOR_LEADER_EPOCH => {
            offset_for_leader_epoch::handle(cx, client, header, frame, body_start)
        }
        key::API_VERSIONS => answer_api_versions(cx, client, header, frame, body_start),
        key::METADATA => begin_metadata(cx, client, header, frame, body_start),
        _ if row.owner == Owner::Python => to_control_plane(cx, client, header, frame, body_start),
        _ => Err(Close::Protocol(format!("{} is not served", row.name))),
    }
}

/// ApiVersions alone can say what would have been right; for any other API the client would read
/// the answer in the wrong form, so the connection closes (as Kafka does).
fn refuse_version(
    cx: &Context,
    client: &mut Client,
    row: &ApiRow,
    correlation_id: i32,
    api_version: i16,
) -> Result<Step, Close> {
    if row.key != key::API_VERSIONS {
        return Err(Close::Protocol(format!(
            "{} version {api_version} is not served, only {} to {}",
            row.name, row.min_version, row.max_version
        )));
    }
    let frame = client.out.begin_frame();
    encode_response_header(client.out.memory(), row.key, 0, correlation_id);
    api_versions::answer_unsupported(cx.services.config.cluster.is_some(), client.out.memory());
    client.out.end_frame(frame)?;
    Ok(Step::Taken)
}

fn answer_api_versions(
    cx: &Context,
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
    let open = client.out.begin_frame();
    encode_response_header(client.out.memory(), api_key, api_version, correlation_id);
    let body = &frame[body_start..];
    let in_cluster = cx.services.config.cluster.is_some();
    api_versions::answer(body, api_version, in_cluster, client.out.memory())
        .map_err(|error| Close::Protocol(format!("ApiVersions v{api_version}: {error}")))?;
    client.out.end_frame(open)?;
    Ok(Step::Taken)
}

fn begin_metadata(
    cx: &mut Context,
    client: &mut Client,
    header: RequestHeader<'_>,
    frame: &[u8],
    body_start: usize,
) -> Result<Step, Close> {
    let RequestHeader {
        api_version,
        correlation_id,
        ..
    } = header;
    let malformed = |error| Close::Protocol(format!("Metadata v{api_version}: {error}"));
    let reply_bytes = metadata::reply_bytes(&cx.image, &frame[body_start..], api_version);
    let reply_bytes = reply_bytes.map_err(malformed)?;
    let may_begin = heavy::admit(cx, client, reply_bytes > heavy::REPLY_BYTES);
    if !may_begin || !reply_admission::admit(cx, client, reply_bytes) {
        return Ok(Step::Wait);
    }
    let auto_create = cx.services.config.auto_create_topics;
    let plan = metadata::plan(&cx.image, &frame[body_start..], api_version, auto_create)
        .map_err(malformed)?;
    let topics = match plan {
        // A broker of a cluster listens before it knows the cluster: nobody is told that there are
        // no brokers and no topics.
        MetadataPlan::Answer
            if cx.services.config.cluster.is_some() && cx.image.brokers().is_empty() =>
        {
            Vec::new()
        }
        MetadataPlan::Answer => {
            let body = &frame[body_start..];
            answer_metadata(cx, client, api_version, correlation_id, body, &[])?;
            return Ok(Step::Taken);
        }
        MetadataPlan::TopicsMissing(topics) => topics,
    };
    let Some(id) = begin_at_control_plane(cx, client, key::METADATA, frame.len()) else {
        return Ok(Step::Wait);
    };
    let session = client.session(header.client_id);
    client.exclusive = Some(Exclusive::Metadata {
        id,
        api_version,
        correlation_id,
        frame: frame.to_vec(),
        body_start,
    });
    cx.services.events.push(Event::TopicsMissing {
        id,
        topics,
        session,
    });
    if client.hung_up {
        control_replies::tell_gone(&cx.services, client);
    }
    Ok(Step::Taken)
}

/// Answers Metadata from the image of this turn. `errors` are the codes of names that could not
/// be created.
pub fn answer_metadata(
    cx: &Context,
    client: &mut Client,
    api_version: i16,
    correlation_id: i32,
    body: &[u8],
    errors: &[(String, i16)],
) -> Result<(), Close> {
    let open = client.out.begin_frame();
    encode_response_header(
        client.out.memory(),
        key::METADATA,
        api_version,
        correlation_id,
    );
    let listener = Arc::clone(&client.listener);
    let absent = cx.services.unreachable_leaders.now();
    let asker = Asker {
        listener: &listener,
        cluster_id: &cx.services.config.cluster_id,
        absent: &absent,
        errors,
    };
    metadata::answer(&cx.image, body, api_version, asker, client.out.memory())
        .map_err(|error| Close::Protocol(format!("Metadata v{api_version}: {error}")))?;
    client.out.end_frame(open)
}

/// A place at the control plane for a request of which `body_bytes` are copied; without one the
/// connection is held.
fn begin_at_control_plane(
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

fn to_control_plane(
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
    let Some(id) = begin_at_control_plane(cx, client, api_key, body_bytes) else {
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
            Err(request) => Event::Request(request),
        },
        key::OFFSET_COMMIT => match OffsetCommit::decode(request, &cx.services.image) {
            Ok(commit) => Event::OffsetCommit(Arc::new(commit)),
            Err(request) => Event::Request(request),
        },
        _ => Event::Request(request),
    };
    cx.services.events.push(event);
    if client.hung_up {
        control_replies::tell_gone(&cx.services, client);
    }
    Ok(Step::Taken)
}
