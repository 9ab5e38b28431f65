use proptest::prelude::*;
use pyrklog_wire::api_versions::{ApiVersion, ApiVersionsRequest, ApiVersionsResponse};
use pyrklog_wire::features::Features;

use crate::support::{CASES, change, check, error, name, some};

proptest! {
    #![proptest_config(ProptestConfig::with_cases(CASES))]

    #[test]
    fn requests(software in name(), software_version in name(), change in change()) {
        for version in 0..=4 {
            let request = ApiVersionsRequest {
                client_software_name: &software,
                client_software_version: &software_version,
            };
            let mut body = Vec::new();
            request.encode(&mut body, version);
            let expected = if version >= 3 { request } else { ApiVersionsRequest::default() };
            prop_assert_eq!(ApiVersionsRequest::decode(&body, version).unwrap(), expected);
            check(&body, change, &|bytes| {
                let mut out = Vec::new();
                ApiVersionsRequest::decode(bytes, version)?.encode(&mut out, version);
                Ok(out)
            });
        }
    }

    #[test]
    fn responses(
        error_code in error(),
        apis in some((any::<i16>(), any::<i16>(), any::<i16>())),
        throttle_ms in any::<i32>(),
        change in change(),
    ) {
        let apis = apis
            .into_iter()
            .map(|(key, min_version, max_version)| ApiVersion { key, min_version, max_version })
            .collect();
        let features = Features::of_table();
        let response = ApiVersionsResponse { error_code, apis, throttle_ms, features };
        for version in 0..=4 {
            let mut body = Vec::new();
            response.encode(&mut body, version);
            let mut expected = response.clone();
            expected.features = expected.features.visible_in(version);
            if version == 0 {
                expected.throttle_ms = 0;
            }
            prop_assert_eq!(ApiVersionsResponse::decode(&body, version).unwrap(), expected);
            check(&body, change, &|bytes| {
                let mut out = Vec::new();
                ApiVersionsResponse::decode(bytes, version)?.encode(&mut out, version);
                Ok(out)
            });
        }
    }

    #[test]
    fn random_bytes(bytes in prop::collection::vec(any::<u8>(), 0..80)) {
        for version in -1..=6 {
            let _ = ApiVersionsRequest::decode(&bytes, version);
            let _ = ApiVersionsResponse::decode(&bytes, version);
        }
    }
}
