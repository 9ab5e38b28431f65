//! ApiVersions, versions 0 to 4 (KIP-35, KIP-511, KIP-584).
//!
//! An unknown version is answered in version 0 with UNSUPPORTED_VERSION and the list, so that the
//! client can choose again. Version notes: 1 throttle time; 3 flexible, name and version of the
//! client software; 4 a feature may start at version 0.
#![allow(missing_docs)] // Docs say what the protocol's own names do not.

use crate::api::{self, ApiRow};
use crate::error::Result;
use crate::error_code::ErrorCode;
use crate::features::Features;
use crate::message::{Field, body, fields};
use crate::reader::Reader;
use crate::writer::Writer;

const FLEXIBLE_SINCE: i16 = 3;

fields! {
    #[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
    pub struct ApiVersionsRequest<'a> {
        /// What the client software calls itself, unchecked.
        pub client_software_name: &'a str [in FLEXIBLE_SINCE.., else ""],
        /// Its version, unchecked.
        pub client_software_version: &'a str [in FLEXIBLE_SINCE.., else ""],
    }
}

body!(request API_VERSIONS from 0: ApiVersionsRequest<'a>);

impl ApiVersionsRequest<'_> {
    /// Whether name and version of the client software are well formed; otherwise the answer from
    /// version 3 on is INVALID_REQUEST.
    pub fn is_valid(&self, version: i16) -> bool {
        version < FLEXIBLE_SINCE
            || is_software_text(self.client_software_name)
                && is_software_text(self.client_software_version)
    }
}

/// KIP-511: letters, digits, dots and dashes, beginning and ending with a letter or digit.
fn is_software_text(text: &str) -> bool {
    let bytes = text.as_bytes();
    let (Some(first), Some(last)) = (bytes.first(), bytes.last()) else {
        return false;
    };
    let inner = |byte: &u8| byte.is_ascii_alphanumeric() || matches!(byte, b'.' | b'-');
    first.is_ascii_alphanumeric() && last.is_ascii_alphanumeric() && bytes.iter().all(inner)
}

fields! {
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub struct ApiVersion {
        pub key: i16,
        pub min_version: i16,
        pub max_version: i16,
    }
}

impl From<&ApiRow> for ApiVersion {
    fn from(row: &ApiRow) -> Self {
        ApiVersion {
            key: row.key,
            min_version: row.min_version,
            max_version: row.max_version,
        }
    }
}

fields! {
    /// A response.
    #[derive(Clone, Debug, PartialEq, Eq)]
    pub part ApiVersionsResponse {
        pub error_code: ErrorCode,
        pub apis: Vec<ApiVersion>,
        /// Throttle time in milliseconds.
        pub throttle_ms: i32 [in 1.., else 0],
        /// Tagged fields.
        pub features: Features,
    }
}

body!(response API_VERSIONS from 0: ApiVersionsResponse);

/// What a broker offers beside the APIs that each has for clients.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Offer {
    /// APIs between brokers of a cluster.
    pub between_brokers: bool,
    /// Clients may push metrics (KIP-714).
    pub client_metrics: bool,
}

impl Offer {
    fn has(self, row: &ApiRow) -> bool {
        let pushes = [
            api::key::GET_TELEMETRY_SUBSCRIPTIONS,
            api::key::PUSH_TELEMETRY,
        ];
        !row.is_private
            && (self.between_brokers || !row.is_between_brokers)
            && (self.client_metrics || !pushes.contains(&row.key))
    }
}

impl ApiVersionsResponse {
    /// The features and the advertised APIs.
    pub fn of_table(offer: Offer) -> Self {
        let rows = api::TABLE.iter();
        ApiVersionsResponse {
            error_code: ErrorCode::NONE,
            apis: rows
                .filter(|row| offer.has(row))
                .map(ApiVersion::from)
                .collect(),
            throttle_ms: 0,
            features: Features::of_table(),
        }
    }

    /// The same with UNSUPPORTED_VERSION, to be encoded as version 0.
    pub fn of_unsupported_version(offer: Offer) -> Self {
        ApiVersionsResponse {
            error_code: ErrorCode::UNSUPPORTED_VERSION,
            ..Self::of_table(offer)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn software_names_follow_kip_511() {
        for good in [
            "a",
            "librdkafka",
            "apache-kafka-java",
            "3.9.1",
            "a..b",
            "A-0",
        ] {
            assert!(is_software_text(good), "{good}");
        }
        for bad in ["", "-a", "a-", ".", "a b", "a_b", "ä", "a\n", "a/1"] {
            assert!(!is_software_text(bad), "{bad}");
        }
        let nameless = ApiVersionsRequest {
            client_software_name: "",
            client_software_version: "1",
        };
        assert!(nameless.is_valid(2));
        assert!(!nameless.is_valid(3));
    }

    #[test]
    fn pushes_of_metrics_are_listed_only_where_they_are_offered() {
        let listed = |client_metrics| {
            let offer = Offer {
                client_metrics,
                ..Offer::default()
            };
            let apis = ApiVersionsResponse::of_table(offer).apis;
            [71, 72, 74].map(|key| apis.iter().any(|one| one.key == key))
        };
        assert_eq!(listed(false), [false, false, true]);
        assert_eq!(listed(true), [true, true, true]);
    }

    #[test]
    fn an_unsupported_version_gets_the_whole_list_in_version_0() {
        let mut body = Vec::new();
        ApiVersionsResponse::of_unsupported_version(Offer {
            between_brokers: true,
            client_metrics: true,
        })
        .encode(&mut body, 0);
        assert_eq!(body[..2], [0, 35]);
        let advertised = api::TABLE.iter().filter(|row| !row.is_private);
        assert_eq!(body.len(), 2 + 4 + 6 * advertised.count());
        let decoded = ApiVersionsResponse::decode(&body, 0).unwrap();
        assert!(decoded.apis.contains(&ApiVersion {
            key: 18,
            min_version: 0,
            max_version: 4
        }));
        assert!(decoded.apis.contains(&ApiVersion {
            key: 0,
            min_version: 0,
            max_version: 12
        }));
    }
}
