//! Serves ApiVersions.

use pyrklog_wire::api::{ApiRow, key};
use pyrklog_wire::header::{RequestHeader, encode_response_header};

use crate::api_versions;
use crate::client::Client;
use crate::context::Context;
use crate::outcome::{Close, Step};

/// ApiVersions alone can say what would have been right; for any other API the client would read
/// the answer in the wrong form, so the connection closes (as Kafka does).
pub fn refuse_version(
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

/// Serves a request.
pub fn handle(
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
