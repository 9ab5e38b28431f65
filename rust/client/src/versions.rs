//! Which versions of an API a broker has (KIP-35).

use pyrklog_wire::api::{self as table, key};
use pyrklog_wire::api_versions::ApiVersion;

use crate::error::{ClientError, Result};

/// An API with the versions that this client can use, whatever the broker has.
#[derive(Clone, Copy, Debug)]
pub struct Api {
    /// API key.
    pub key: i16,
    /// The protocol's name.
    pub name: &'static str,
    /// Lowest version.
    pub min: i16,
    /// Highest version.
    pub max: i16,
}

/// The APIs that a client uses. The lowest versions are Kafka 0.11's, unless said otherwise.
pub mod api {
    #![allow(missing_docs)] // The names are the protocol's own.
    use super::{Api, key};

    pub const FETCH: Api = Api {
        key: key::FETCH,
        name: "Fetch",
        min: 4,
        max: 17,
    };
    /// The highest version that names topics.
    pub const FETCH_BY_NAME: Api = Api { max: 12, ..FETCH };
    pub const LIST_OFFSETS: Api = Api {
        key: key::LIST_OFFSETS,
        name: "ListOffsets",
        min: 2,
        max: 9,
    };
    pub const METADATA: Api = Api {
        key: key::METADATA,
        name: "Metadata",
        min: 4,
        max: 12,
    };
    /// From Kafka 2.3 on: before, clients were not allowed to ask (KIP-320).
    pub const OFFSET_FOR_LEADER_EPOCH: Api = Api {
        key: key::OFFSET_FOR_LEADER_EPOCH,
        name: "OffsetForLeaderEpoch",
        min: 3,
        max: 4,
    };
    pub const PRODUCE: Api = Api {
        key: key::PRODUCE,
        name: "Produce",
        min: 3,
        // From 12 on a partition is added by its first batch (KIP-890 part 2).
        max: 11,
    };
    /// Of pyrklog's brokers, which do not tell that they have it.
    pub const PRODUCE_AT: Api = Api {
        key: key::PRODUCE_AT,
        name: "ProduceAt",
        min: 11,
        max: 11,
    };
    /// The highest version about a single key.
    pub const FIND_COORDINATOR: Api = Api {
        key: key::FIND_COORDINATOR,
        name: "FindCoordinator",
        min: 1,
        max: 3,
    };
    pub const INIT_PRODUCER_ID: Api = Api {
        key: key::INIT_PRODUCER_ID,
        name: "InitProducerId",
        min: 0,
        max: 4,
    };
    /// The highest version for clients.
    pub const ADD_PARTITIONS_TO_TXN: Api = Api {
        key: key::ADD_PARTITIONS_TO_TXN,
        name: "AddPartitionsToTxn",
        min: 0,
        max: 3,
    };
    /// The highest version that leaves the epoch as it is.
    pub const END_TXN: Api = Api {
        key: key::END_TXN,
        name: "EndTxn",
        min: 0,
        max: 4,
    };
    /// From Kafka 3.0 on.
    pub const LIST_TRANSACTIONS: Api = Api {
        key: key::LIST_TRANSACTIONS,
        name: "ListTransactions",
        min: 0,
        max: 0,
    };
    /// From Kafka 1.0 on: before, authentication had no frames.
    pub const SASL_HANDSHAKE: Api = Api {
        key: key::SASL_HANDSHAKE,
        name: "SaslHandshake",
        min: 1,
        max: 1,
    };
    pub const SASL_AUTHENTICATE: Api = Api {
        key: key::SASL_AUTHENTICATE,
        name: "SaslAuthenticate",
        min: 0,
        max: 2,
    };
    pub const API_VERSIONS: Api = Api {
        key: key::API_VERSIONS,
        name: "ApiVersions",
        min: 0,
        max: 3,
    };
}

/// A broker's ranges of versions.
#[derive(Clone, Debug, Default)]
pub struct ApiRanges(Vec<ApiVersion>);

impl ApiRanges {
    pub(crate) fn new(apis: Vec<ApiVersion>) -> ApiRanges {
        ApiRanges(apis)
    }

    /// The highest version of `api` that both sides have; `None` if there is none.
    pub fn common(&self, api: Api) -> Option<i16> {
        let found = self.0.iter().find(|one| one.key == api.key)?;
        let min = api.min.max(found.min_version);
        let max = api.max.min(found.max_version);
        let max = max.min(table::max_version(api.key));
        (min <= max).then_some(max)
    }

    /// The same for a broker at `address`.
    ///
    /// # Errors
    /// `Unsupported`.
    pub fn choose(&self, api: Api, address: &str) -> Result<i16> {
        self.common(api).ok_or_else(|| {
            let found = self.0.iter().find(|one| one.key == api.key);
            ClientError::Unsupported {
                address: address.to_owned(),
                api: api.name,
                min: api.min,
                max: api.max,
                found: match found {
                    Some(one) => format!("{} to {}", one.min_version, one.max_version),
                    None => "none".into(),
                },
            }
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn broker(min_version: i16, max_version: i16) -> ApiRanges {
        ApiRanges::new(vec![ApiVersion {
            key: key::FETCH,
            min_version,
            max_version,
        }])
    }

    #[test]
    fn the_highest_common_version_is_used() {
        for (min, max, common) in [
            (0, 5, Some(5)),
            (4, 18, Some(17)),
            (0, 3, None),
            (18, 20, None),
        ] {
            assert_eq!(
                broker(min, max).common(api::FETCH),
                common,
                "{min} to {max}"
            );
        }
        assert_eq!(broker(4, 17).common(api::FETCH_BY_NAME), Some(12));
        assert_eq!(broker(4, 17).common(api::METADATA), None);
    }

    #[test]
    fn a_broker_that_is_too_old_is_named_with_what_it_has() {
        let error = broker(0, 3).choose(api::FETCH, "old:9092").unwrap_err();
        assert_eq!(
            error.to_string(),
            "broker old:9092 has no Fetch of version 4 to 17, but 0 to 3; Kafka 0.11 or newer is needed"
        );
    }
}
