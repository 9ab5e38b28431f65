//! Serves Metadata.

use pyrklog_wire::api::key;
use pyrklog_wire::metadata::MetadataRequest;

use crate::context::Context;
use crate::delayed::Delayed;
use crate::handled::{Handled, Outcome};
use crate::metadata::{self, MetadataParams};
use crate::out_queue::OutQueue;
use crate::outcome::Close;
use crate::reply_header::ReplyHeader;
use crate::request::Request;
use crate::{admission, control_requests, heavy};
use pyrklog_control::seam::Event;

/// Serves a request: at once, or after the control plane has created missing topics.
pub fn handle(cx: &mut Context, request: Request<'_>, out: &mut OutQueue) -> Handled {
    let (client, version) = (request.client, request.header.api_version);
    let asked = request.decode(MetadataRequest::decode)?;
    let reply_bytes = metadata::reply_bytes(&cx.image, &asked, version) + request.body().len();
    admission::admit_heavy(cx, client, reply_bytes > heavy::REPLY_BYTES)?;
    admission::admit(cx, client, reply_bytes)?;
    let config = &cx.services.config;
    let topics = metadata::missing_topics(&cx.image, &asked, version, config.auto_create_topics);
    // A broker listens before it knows its cluster: do not report that there are no brokers and
    // topics.
    let knows_cluster = config.cluster.is_none() || !cx.image.brokers().is_empty();
    if topics.is_empty() && knows_cluster {
        answer(cx, request, &asked, &[], out)?;
        return Ok(Outcome::Replied);
    }
    let id = control_requests::begin(cx, client, key::METADATA, request.frame.len())?;
    cx.services.events.push(Event::TopicsMissing {
        id,
        topics,
        session: client.session(request.header.client_id),
    });
    Ok(Outcome::Delayed(Delayed::Metadata {
        id,
        frame: request.frame.to_vec(),
    }))
}

/// Answers from this turn's image. `errors`: codes of names that could not be created.
///
/// # Errors
/// A reply that the protocol cannot carry.
pub fn answer(
    cx: &Context,
    request: Request<'_>,
    asked: &MetadataRequest<'_>,
    errors: &[(String, i16)],
    out: &mut OutQueue,
) -> Result<(), Close> {
    let absent = cx.services.unreachable_leaders.now();
    let params = MetadataParams {
        listener: &request.client.listener,
        cluster_id: &cx.services.config.cluster_id,
        absent: &absent,
        errors,
    };
    let header = ReplyHeader::of(request.header);
    header.reply(out, |reply| {
        metadata::answer(&cx.image, asked, header.api_version, params, reply);
    })
}
