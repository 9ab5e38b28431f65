//! Serves Metadata.

use std::sync::Arc;

use pyrklog_wire::api::key;
use pyrklog_wire::header::{RequestHeader, encode_response_header};

use crate::client::{Client, Exclusive};
use crate::context::Context;
use crate::metadata::{self, ClientContext, MetadataPlan};
use crate::outcome::{Close, Step};
use crate::{admission, control_requests, heavy};
use pyrklog_control::api::Event;

/// Serves a request: at once, or when the control plane has made the topics that are missing.
pub fn handle(
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
    let may_begin = admission::admit_heavy(cx, client, reply_bytes > heavy::REPLY_BYTES);
    if !may_begin || !admission::admit(cx, client, reply_bytes) {
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
            answer(cx, client, api_version, correlation_id, body, &[])?;
            return Ok(Step::Taken);
        }
        MetadataPlan::TopicsMissing(topics) => topics,
    };
    let Some(id) = control_requests::begin(cx, client, key::METADATA, frame.len()) else {
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
        control_requests::tell_gone(&cx.services, client);
    }
    Ok(Step::Taken)
}

/// Answers Metadata from the image of this turn. `errors` are the codes of names that could not
/// be created.
pub fn answer(
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
    let client_context = ClientContext {
        listener: &listener,
        cluster_id: &cx.services.config.cluster_id,
        absent: &absent,
        errors,
    };
    metadata::answer(
        &cx.image,
        body,
        api_version,
        client_context,
        client.out.memory(),
    )
    .map_err(|error| Close::Protocol(format!("Metadata v{api_version}: {error}")))?;
    client.out.end_frame(open)
}
