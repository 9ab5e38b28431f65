//! One frame: parse its header, check its version, call the API's handler.

use pyrklog_wire::api::{self, Owner, key};
use pyrklog_wire::header::RequestHeader;

use crate::carry_out::carry_out;
use crate::client::Client;
use crate::context::{Context, borrow_memory};
use crate::handled::{Halt, Handled};
use crate::outcome::{Close, Dispatched, Hold};
use crate::produce::{ADMIN_CLIENT_ID, Arrival};
use crate::reply_header::ReplyHeader;
use crate::request::Request;
use crate::{
    admission, api_versions, broker_connections, control_replies, control_requests, fetch, heavy,
    list_offsets, metadata, offset_for_leader_epoch, produce, replica_segments, replica_start,
    request_time, timed_work, zookeeper_offsets,
};

/// Only Produce carries bulk data. Any other request above this size could only serve to make small
/// elements grow in memory.
const OTHER_REQUEST_MAX_BYTES: usize = 16 * 1024 * 1024;

/// Handles one frame (without its length prefix).
pub fn dispatch(
    cx: &mut Context,
    client: &mut Client,
    frame: &mut [u8],
) -> Result<Dispatched, Close> {
    let work = timed_work::begin(cx, client);
    let handled = handle(cx, client, frame);
    let dispatched = carry_out(cx, client, handled);
    if let Ok(done) = dispatched {
        timed_work::dispatched(cx, client, work, done);
    }
    if matches!(dispatched, Ok(Dispatched::Taken)) {
        if cx.heavy.end_request() {
            cx.statistics.heavy_requests.add(1);
        }
        // It waited for a place that it did not need after all.
        control_replies::pass_unused_turn(&cx.services, client);
    }
    dispatched
}

fn handle(cx: &mut Context, client: &mut Client, frame: &mut [u8]) -> Handled {
    let (header, body_start) = RequestHeader::parse(frame)
        .map_err(|error| Close::Protocol(format!("request header: {error}")))?;
    let RequestHeader {
        api_key,
        api_version,
        ..
    } = header;
    let in_cluster = cx.services.config.cluster.is_some();
    let served = api::lookup(api_key).filter(|row| in_cluster || !row.is_between_brokers);
    let Some(row) = served else {
        return Err(Close::Protocol(format!("API key {api_key} is unknown")).into());
    };
    cx.group = request_time::group_of(row);
    broker_connections::recognise(cx, client, row, api_version, &frame[body_start..]);
    let (old_clients, events) = (&cx.services.old_clients, &cx.services.events);
    old_clients.note(&mut client.context, &header, events, cx.now.mono_ms);
    api_versions::note_software(&mut client.context, &header, &frame[body_start..]);
    let is_produce = api_key == key::PRODUCE || api_key == key::PRODUCE_AT;
    if is_produce && row.advertises(api_version) {
        if client.produces.is_full() {
            return Err(Halt::Wait(Hold::Order));
        }
        // The header borrows the frame, which is patched in place: copy what is needed.
        let arrival = Arrival {
            header: ReplyHeader::of(header),
            body_start,
            is_admin: header.client_id == Some(ADMIN_CLIENT_ID),
        };
        return produce::handle(cx, &client.context, &mut client.produces, arrival, frame);
    }
    if !client.produces.is_empty() {
        return Err(Halt::Wait(Hold::Order));
    }
    if frame.len() > OTHER_REQUEST_MAX_BYTES {
        let reason = format!("{} of {} bytes", row.name, frame.len());
        return Err(Close::Protocol(reason).into());
    }
    admission::admit_heavy(cx, &client.context, frame.len() > heavy::FRAME_BYTES)?;
    borrow_memory(cx, &mut client.out);
    cx.statistics.request(api_key);
    let request = Request {
        client: &client.context,
        header,
        frame,
        body_start,
    };
    let out = &mut client.out;
    if !row.advertises(api_version) {
        return api_versions::refuse_version(cx, request, row, out);
    }
    match api_key {
        key::FETCH => fetch::handle(cx, request, out),
        key::LIST_OFFSETS => list_offsets::handle(cx, request, out),
        key::OFFSET_FOR_LEADER_EPOCH => offset_for_leader_epoch::handle(cx, request, out),
        key::API_VERSIONS => api_versions::handle(cx, request, out),
        key::METADATA => metadata::handle::handle(cx, request, out),
        key::REPLICA_START => replica_start::handle(cx, request, out),
        key::REPLICA_SEGMENTS => replica_segments::handle(cx, request, out),
        _ if zookeeper_offsets::is_meant(api_key, api_version) => {
            zookeeper_offsets::refuse(cx, request, out)
        }
        _ if row.owner == Owner::Python => control_requests::handle(cx, request, out),
        _ => Err(Close::Protocol(format!("{} is not served", row.name)).into()),
    }
}
