//! Serves ApiVersions.

use pyrklog_wire::api::{ApiRow, key};
use pyrklog_wire::header::RequestHeader;

use crate::api_versions;
use crate::context::Context;
use crate::handled::{Handled, Outcome};
use crate::out_queue::OutQueue;
use crate::outcome::Close;
use crate::request::Request;

/// Refuses a version. Only ApiVersions can name the served versions; clients of any other API would
/// misread the answer, so the connection closes, as in Kafka.
pub fn refuse_version(
    cx: &Context,
    request: Request<'_>,
    row: &ApiRow,
    out: &mut OutQueue,
) -> Handled {
    let api_version = request.header.api_version;
    if row.key != key::API_VERSIONS {
        let reason = format!(
            "{} version {api_version} is not served, only {} to {}",
            row.name, row.min_version, row.max_version
        );
        return Err(Close::Protocol(reason).into());
    }
    let header = RequestHeader {
        api_version: 0,
        ..request.header
    };
    let in_cluster = cx.services.config.cluster.is_some();
    Request { header, ..request }.reply(out, |body| {
        api_versions::answer_unsupported(in_cluster, body);
        Ok(())
    })?;
    Ok(Outcome::Replied)
}

/// Serves a request.
pub fn handle(cx: &Context, request: Request<'_>, out: &mut OutQueue) -> Handled {
    let api_version = request.header.api_version;
    let in_cluster = cx.services.config.cluster.is_some();
    request.reply(out, |body| {
        api_versions::answer(request.body(), api_version, in_cluster, body)
            .map_err(|error| Close::Protocol(format!("ApiVersions v{api_version}: {error}")))
    })?;
    Ok(Outcome::Replied)
}
