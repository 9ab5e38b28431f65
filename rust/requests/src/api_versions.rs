//! Serves ApiVersions.

use pyrklog_wire::ErrorCode;
use pyrklog_wire::api::{ApiRow, key};
use pyrklog_wire::api_versions::{ApiVersionsRequest, ApiVersionsResponse};
use pyrklog_wire::features::Features;
use pyrklog_wire::header::RequestHeader;

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
    // Error and list in version 0, from which the client chooses again.
    let header = RequestHeader {
        api_version: 0,
        ..request.header
    };
    let in_cluster = cx.services.config.cluster.is_some();
    let response = ApiVersionsResponse::of_unsupported_version(in_cluster);
    Request { header, ..request }.reply(out, |body| response.encode(body, 0))?;
    Ok(Outcome::Replied)
}

/// Serves a request.
pub fn handle(cx: &Context, request: Request<'_>, out: &mut OutQueue) -> Handled {
    let version = request.header.api_version;
    let asked = request.decode(ApiVersionsRequest::decode)?;
    let response = answer(&asked, version, cx.services.config.cluster.is_some());
    request.reply(out, |body| response.encode(body, version))?;
    Ok(Outcome::Replied)
}

/// The list, or INVALID_REQUEST if the client's name or version is malformed (KIP-511). APIs between
/// brokers are listed only `in_cluster`.
fn answer(request: &ApiVersionsRequest<'_>, version: i16, in_cluster: bool) -> ApiVersionsResponse {
    match request.is_valid(version) {
        true => ApiVersionsResponse::of_table(in_cluster),
        false => ApiVersionsResponse {
            error_code: ErrorCode::INVALID_REQUEST,
            apis: vec![],
            throttle_ms: 0,
            features: Features::default(),
        },
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_version_advertises_the_table() {
        for version in 0..=4 {
            let mut request = Vec::new();
            let asking = ApiVersionsRequest {
                client_software_name: "t",
                client_software_version: "1",
            };
            asking.encode(&mut request, version);
            for in_cluster in [false, true] {
                let asked = ApiVersionsRequest::decode(&request, version).unwrap();
                let mut body = Vec::new();
                answer(&asked, version, in_cluster).encode(&mut body, version);
                let response = ApiVersionsResponse::decode(&body, version).unwrap();
                let mut table = ApiVersionsResponse::of_table(in_cluster);
                table.features = table.features.visible_in(version);
                assert_eq!(response, table, "{version}");
            }
        }
    }

    #[test]
    fn a_malformed_client_name_is_an_invalid_request() {
        let mut request = Vec::new();
        let asking = ApiVersionsRequest {
            client_software_name: "a b",
            client_software_version: "1",
        };
        asking.encode(&mut request, 3);
        let asked = ApiVersionsRequest::decode(&request, 3).unwrap();
        let mut body = Vec::new();
        answer(&asked, 3, false).encode(&mut body, 3);
        let response = ApiVersionsResponse::decode(&body, 3).unwrap();
        assert_eq!(
            (response.error_code, response.apis.len()),
            (ErrorCode::INVALID_REQUEST, 0)
        );
    }

    #[test]
    fn an_unknown_version_is_told_the_list_in_version_0() {
        let mut body = Vec::new();
        ApiVersionsResponse::of_unsupported_version(false).encode(&mut body, 0);
        let response = ApiVersionsResponse::decode(&body, 0).unwrap();
        assert_eq!(response.error_code, ErrorCode::UNSUPPORTED_VERSION);
        assert_eq!(response.apis, ApiVersionsResponse::of_table(false).apis);
        assert!(ApiVersionsRequest::decode(&[], 5).is_err());
        assert!(ApiVersionsRequest::decode(&[], -1).is_err());
        assert!(ApiVersionsRequest::decode(&[], 3).is_err());
    }
}
