//! One whole frame: read its header, check its version, hand it to whoever serves its API.

use pyrklog_wire::api::{self, Owner, key};
use pyrklog_wire::header::RequestHeader;

use crate::client::Client;
use crate::context::{Context, borrow_memory};
use crate::outcome::{Close, Hold, Step};
use crate::produce::{ADMIN_CLIENT_ID, Arrival};
use crate::{
    admission, api_versions, broker_connections, control_replies, control_requests, fetch, heavy,
    list_offsets, metadata, offset_for_leader_epoch, produce,
};

/// Only Produce carries bulk data. Any other request of more than this could only be there to
/// make small elements grow in memory.
const OTHER_REQUEST_MAX_BYTES: usize = 16 * 1024 * 1024;

/// Produce requests of a connection that wait for their answers before its next one waits too.
/// The bound on unwritten bytes does not hold those that append nothing (refused, or duplicates).
const PENDING_MAX: usize = 1000;

/// The same for the memory of their answers.
const PENDING_MAX_BYTES: usize = 4 * 1024 * 1024;

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
    if !admission::admit_heavy(cx, client, frame.len() > heavy::FRAME_BYTES) {
        return Ok(Step::Wait);
    }
    borrow_memory(cx, client);
    cx.statistics.request(api_key);
    if !row.advertises(api_version) {
        return api_versions::handle::refuse_version(cx, client, row, correlation_id, api_version);
    }
    match api_key {
        key::PRODUCE => produce::old_versions::refuse(client, header, frame, body_start),
        key::FETCH => fetch::handle(cx, client, header, frame, body_start),
        key::LIST_OFFSETS => list_offsets::handle(cx, client, header, frame, body_start),
        key::OFFSET_FOR_LEADER_EPOCH => {
            offset_for_leader_epoch::handle(cx, client, header, frame, body_start)
        }
        key::API_VERSIONS => api_versions::handle::handle(cx, client, header, frame, body_start),
        key::METADATA => metadata::handle::handle(cx, client, header, frame, body_start),
        _ if row.owner == Owner::Python => {
            control_requests::handle(cx, client, header, frame, body_start)
        }
        _ => Err(Close::Protocol(format!("{} is not served", row.name))),
    }
}
