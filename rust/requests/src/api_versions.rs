//! Serves ApiVersions.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use pyrklog_control::seam::Software;
use pyrklog_wire::ErrorCode;
use pyrklog_wire::api::{ApiRow, key};
use pyrklog_wire::api_versions::{ApiVersionsRequest, ApiVersionsResponse, Offer};
use pyrklog_wire::features::Features;
use pyrklog_wire::header::RequestHeader;

use crate::client_context::ClientContext;
use crate::context::Context;
use crate::handled::{Handled, Outcome};
use crate::out_queue::OutQueue;
use crate::outcome::Close;
use crate::request::Request;

/// Length limit of the name and version of a client's software in memory.
const SOFTWARE_MAX_BYTES: usize = 100;

/// Remembers the client's software, by which client metrics choose clients (KIP-714).
pub fn note_software(client: &mut ClientContext, header: &RequestHeader<'_>, body: &[u8]) {
    if header.api_key != key::API_VERSIONS || client.software.is_some() {
        return;
    }
    let Ok(asked) = ApiVersionsRequest::decode(body, header.api_version) else {
        return; // Its handler refuses it.
    };
    if asked.client_software_name.is_empty() || !asked.is_valid(header.api_version) {
        return;
    }
    client.software = Some(Arc::new(Software {
        name: shortened(asked.client_software_name),
        version: shortened(asked.client_software_version),
    }));
}

/// Of a well-formed text, whose characters are bytes.
fn shortened(text: &str) -> Box<str> {
    text[..text.len().min(SOFTWARE_MAX_BYTES)].into()
}

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
    let response = ApiVersionsResponse::of_unsupported_version(offer(cx));
    Request { header, ..request }.reply(out, |body| response.encode(body, 0))?;
    Ok(Outcome::Replied)
}

/// Serves a request.
pub fn handle(cx: &Context, request: Request<'_>, out: &mut OutQueue) -> Handled {
    let version = request.header.api_version;
    let asked = request.decode(ApiVersionsRequest::decode)?;
    if asked.is_valid(version) && !request.client.is_broker {
        let (software, events) = (&cx.services.client_software, &cx.services.events);
        software.note(&request, &asked, events, cx.now.mono_ms);
    }
    let response = answer(&asked, version, offer(cx));
    request.reply(out, |body| response.encode(body, version))?;
    Ok(Outcome::Replied)
}

fn offer(cx: &Context) -> Offer {
    Offer {
        between_brokers: cx.services.config.cluster.is_some(),
        client_metrics: cx.services.offers_client_metrics.load(Ordering::Relaxed),
    }
}

/// The list, or INVALID_REQUEST if the client's name or version is malformed (KIP-511).
fn answer(request: &ApiVersionsRequest<'_>, version: i16, offer: Offer) -> ApiVersionsResponse {
    match request.is_valid(version) {
        true => ApiVersionsResponse::of_table(offer),
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
    use std::net::IpAddr;

    #[test]
    fn every_version_advertises_the_table() {
        for version in 0..=4 {
            let mut request = Vec::new();
            let asking = ApiVersionsRequest {
                client_software_name: "t",
                client_software_version: "1",
            };
            asking.encode(&mut request, version);
            for is_offered in [false, true] {
                let offer = Offer {
                    between_brokers: is_offered,
                    client_metrics: is_offered,
                };
                let asked = ApiVersionsRequest::decode(&request, version).unwrap();
                let mut body = Vec::new();
                answer(&asked, version, offer).encode(&mut body, version);
                let response = ApiVersionsResponse::decode(&body, version).unwrap();
                let mut table = ApiVersionsResponse::of_table(offer);
                table.features = table.features.visible_in(version);
                assert_eq!(response, table, "{version}");
            }
        }
    }

    fn context_after(name: &str, software_version: &str, api_version: i16) -> ClientContext {
        let asking = ApiVersionsRequest {
            client_software_name: name,
            client_software_version: software_version,
        };
        let mut body = Vec::new();
        asking.encode(&mut body, api_version);
        let header = RequestHeader {
            api_key: key::API_VERSIONS,
            api_version,
            correlation_id: 1,
            client_id: None,
        };
        let host = IpAddr::from([127, 0, 0, 1]);
        let mut client = ClientContext::new(1, 1, host, 9, "L".into(), "User:A".into());
        note_software(&mut client, &header, &body);
        client
    }

    #[test]
    fn a_session_has_the_software_that_its_client_told() {
        let client = context_after("librdkafka", "2.11.1", 3);
        let session = client.session(Some("c"));
        let software = session.software.unwrap();
        assert_eq!(
            (&*software.name, &*software.version),
            ("librdkafka", "2.11.1")
        );
        assert_eq!(session.port, 9);
        let long = "a".repeat(2 * SOFTWARE_MAX_BYTES);
        let software = context_after(&long, &long, 4).software.unwrap();
        assert_eq!(software.name.len(), SOFTWARE_MAX_BYTES);
        assert_eq!(software.version.len(), SOFTWARE_MAX_BYTES);
    }

    #[test]
    fn software_that_is_malformed_or_not_told_is_unknown() {
        assert_eq!(context_after("a b", "1", 3).software, None);
        assert_eq!(context_after("a", "", 4).software, None);
        assert_eq!(context_after("a", "1", 2).software, None);
        assert_eq!(context_after("", "", 3).software, None);
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
        answer(&asked, 3, Offer::default()).encode(&mut body, 3);
        let response = ApiVersionsResponse::decode(&body, 3).unwrap();
        assert_eq!(
            (response.error_code, response.apis.len()),
            (ErrorCode::INVALID_REQUEST, 0)
        );
    }

    #[test]
    fn an_unknown_version_is_told_the_list_in_version_0() {
        let mut body = Vec::new();
        ApiVersionsResponse::of_unsupported_version(Offer::default()).encode(&mut body, 0);
        let response = ApiVersionsResponse::decode(&body, 0).unwrap();
        assert_eq!(response.error_code, ErrorCode::UNSUPPORTED_VERSION);
        assert_eq!(
            response.apis,
            ApiVersionsResponse::of_table(Offer::default()).apis
        );
        assert!(ApiVersionsRequest::decode(&[], 5).is_err());
        assert!(ApiVersionsRequest::decode(&[], -1).is_err());
        assert!(ApiVersionsRequest::decode(&[], 3).is_err());
    }
}
