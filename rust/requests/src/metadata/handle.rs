//! Serves Metadata.

use pyrklog_wire::api::key;
use pyrklog_wire::header::RequestHeader;

use crate::context::Context;
use crate::delayed::Delayed;
use crate::handled::{Handled, Outcome};
use crate::metadata::{self, MetadataParams, MetadataPlan};
use crate::out_queue::OutQueue;
use crate::outcome::Close;
use crate::request::Request;
use crate::{admission, control_requests, heavy};
use pyrklog_control::api::Event;

/// Serves a request: at once, or after the control plane has created missing topics.
pub fn handle(cx: &mut Context, request: Request<'_>, out: &mut OutQueue) -> Handled {
    let RequestHeader {
        api_version,
        correlation_id,
        client_id,
        ..
    } = request.header;
    let (client, body) = (request.client, request.body());
    let malformed = |error| Close::Protocol(format!("Metadata v{api_version}: {error}"));
    let reply_bytes = metadata::reply_bytes(&cx.image, body, api_version).map_err(malformed)?;
    admission::admit_heavy(cx, client, reply_bytes > heavy::REPLY_BYTES)?;
    admission::admit(cx, client, reply_bytes)?;
    let auto_create = cx.services.config.auto_create_topics;
    let plan = metadata::plan(&cx.image, body, api_version, auto_create).map_err(malformed)?;
    let topics = match plan {
        // A broker listens before it knows its cluster: do not report that there are no brokers and
        // topics.
        MetadataPlan::Answer
            if cx.services.config.cluster.is_some() && cx.image.brokers().is_empty() =>
        {
            Vec::new()
        }
        MetadataPlan::Answer => {
            answer(cx, request, &[], out)?;
            return Ok(Outcome::Replied);
        }
        MetadataPlan::TopicsMissing(topics) => topics,
    };
    let id = control_requests::begin(cx, client, key::METADATA, request.frame.len())?;
    cx.services.events.push(Event::TopicsMissing {
        id,
        topics,
        session: client.session(client_id),
    });
    Ok(Outcome::Delayed(Delayed::Metadata {
        id,
        api_version,
        correlation_id,
        frame: request.frame.to_vec(),
        body_start: request.body_start,
    }))
}

/// Answers from this turn's image. `errors`: codes of names that could not be created.
///
/// # Errors
/// A malformed request.
pub fn answer(
    cx: &Context,
    request: Request<'_>,
    errors: &[(String, i16)],
    out: &mut OutQueue,
) -> Result<(), Close> {
    let api_version = request.header.api_version;
    let absent = cx.services.unreachable_leaders.now();
    let params = MetadataParams {
        listener: &request.client.listener,
        cluster_id: &cx.services.config.cluster_id,
        absent: &absent,
        errors,
    };
    request.reply(out, |reply| {
        metadata::answer(&cx.image, request.body(), api_version, params, reply)
            .map_err(|error| Close::Protocol(format!("Metadata v{api_version}: {error}")))
    })
}
