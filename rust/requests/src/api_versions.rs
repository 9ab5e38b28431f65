//! ApiVersions answers, encoded once per version.

pub mod handle;

use std::sync::LazyLock;

use pyrklog_wire::api::{self, key};
use pyrklog_wire::api_versions::{ApiVersionsRequest, ApiVersionsResponse};
use pyrklog_wire::{DecodeError, ErrorCode};

struct Answers {
    by_version: Vec<Vec<u8>>,
    unsupported: Vec<u8>,
}

static ALONE: LazyLock<Answers> = LazyLock::new(|| Answers::new(false));
static IN_CLUSTER: LazyLock<Answers> = LazyLock::new(|| Answers::new(true));

impl Answers {
    fn new(brokers: bool) -> Answers {
        let response = ApiVersionsResponse::of_table(brokers);
        Answers {
            by_version: (0..=api::max_version(key::API_VERSIONS))
                .map(|version| encode(&response, version))
                .collect(),
            unsupported: encode(&ApiVersionsResponse::of_unsupported_version(brokers), 0),
        }
    }

    fn of(in_cluster: bool) -> &'static Answers {
        if in_cluster { &IN_CLUSTER } else { &ALONE }
    }
}

fn encode(response: &ApiVersionsResponse, version: i16) -> Vec<u8> {
    let mut body = Vec::new();
    response.encode(&mut body, version);
    body
}

/// Appends the answer's body for a served version: the list, or INVALID_REQUEST if the client's
/// name or version is malformed (KIP-511). APIs between brokers are listed only `in_cluster`.
///
/// # Errors
/// Malformed bytes: close the connection.
pub fn answer(
    body: &[u8],
    version: i16,
    in_cluster: bool,
    out: &mut Vec<u8>,
) -> Result<(), DecodeError> {
    let request = ApiVersionsRequest::decode(body, version)?;
    if request.is_valid(version) {
        // Decoding has checked the version.
        let answers = &Answers::of(in_cluster).by_version;
        out.extend_from_slice(&answers[usize::from(version.unsigned_abs())]);
    } else {
        let error_code = ErrorCode::INVALID_REQUEST;
        ApiVersionsResponse {
            error_code,
            apis: vec![],
            throttle_ms: 0,
        }
        .encode(out, version);
    }
    Ok(())
}

/// Appends the answer's body for an unserved version: error and list in version 0, from which the
/// client chooses again. The response header is the classic one.
pub fn answer_unsupported(in_cluster: bool, out: &mut Vec<u8>) {
    out.extend_from_slice(&Answers::of(in_cluster).unsupported);
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
                let mut body = Vec::new();
                answer(&request, version, in_cluster, &mut body).unwrap();
                let response = ApiVersionsResponse::decode(&body, version).unwrap();
                let table = ApiVersionsResponse::of_table(in_cluster);
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
        let mut body = Vec::new();
        answer(&request, 3, false, &mut body).unwrap();
        let response = ApiVersionsResponse::decode(&body, 3).unwrap();
        assert_eq!(
            (response.error_code, response.apis.len()),
            (ErrorCode::INVALID_REQUEST, 0)
        );
    }

    #[test]
    fn an_unknown_version_is_told_the_list_in_version_0() {
        let mut body = Vec::new();
        answer_unsupported(false, &mut body);
        let response = ApiVersionsResponse::decode(&body, 0).unwrap();
        assert_eq!(response.error_code, ErrorCode::UNSUPPORTED_VERSION);
        assert_eq!(response.apis, ApiVersionsResponse::of_table(false).apis);
        assert!(answer(&[], 5, false, &mut body).is_err());
        assert!(answer(&[], -1, false, &mut body).is_err());
        assert!(answer(&[], 3, false, &mut body).is_err());
    }
}
