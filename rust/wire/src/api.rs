//! The table of served APIs: keys, versions, owner.
//!
//! ApiVersions advertises it (except private APIs), the frame reader checks requests against it,
//! Python reads it as `_core.api_table()`, and tests check the handlers against it. Highest
//! versions are Kafka 3.9's; for the lowest see skipped.md.

use crate::error::{DecodeError, Result};

/// `flexible_since` of an API that has no flexible version.
pub const NEVER_FLEXIBLE: i16 = i16::MAX;

/// The half of the broker that answers an API.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Owner {
    /// The data plane, from the image and the logs.
    Rust,
    /// The control plane.
    Python,
}

/// One API.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ApiRow {
    /// API key.
    pub key: i16,
    /// The protocol's name.
    pub name: &'static str,
    /// Lowest version advertised.
    pub min_version: i16,
    /// Highest version advertised and served.
    pub max_version: i16,
    /// Lowest version that is answered with content; lower ones down to `min_version` get
    /// UNSUPPORTED_VERSION (only Produce: see [`PRODUCE_MIN_SERVED`]).
    pub min_served: i16,
    /// First flexible version (KIP-482), [`NEVER_FLEXIBLE`] for none.
    pub flexible_since: i16,
    /// Who answers.
    pub owner: Owner,
    /// Between brokers of a cluster only: neither advertised nor served without one.
    pub is_between_brokers: bool,
    /// For this project's tools: served but not advertised.
    pub is_private: bool,
}

impl ApiRow {
    /// May a client use this version?
    pub fn advertises(&self, version: i16) -> bool {
        (self.min_version..=self.max_version).contains(&version)
    }

    /// Is this version answered with content?
    pub fn serves(&self, version: i16) -> bool {
        (self.min_served..=self.max_version).contains(&version)
    }

    /// Is this version flexible?
    pub fn is_flexible(&self, version: i16) -> bool {
        version >= self.flexible_since
    }
}

/// API keys with codecs or special rules in this crate.
pub mod key {
    #![allow(missing_docs)] // The names are the protocol's own.
    pub const PRODUCE: i16 = 0;
    pub const FETCH: i16 = 1;
    pub const LIST_OFFSETS: i16 = 2;
    pub const METADATA: i16 = 3;
    pub const LEADER_AND_ISR: i16 = 4;
    pub const STOP_REPLICA: i16 = 5;
    pub const UPDATE_METADATA: i16 = 6;
    pub const CONTROLLED_SHUTDOWN: i16 = 7;
    pub const OFFSET_COMMIT: i16 = 8;
    pub const OFFSET_FETCH: i16 = 9;
    pub const FIND_COORDINATOR: i16 = 10;
    pub const JOIN_GROUP: i16 = 11;
    pub const HEARTBEAT: i16 = 12;
    pub const LEAVE_GROUP: i16 = 13;
    pub const SYNC_GROUP: i16 = 14;
    pub const DESCRIBE_GROUPS: i16 = 15;
    pub const LIST_GROUPS: i16 = 16;
    pub const API_VERSIONS: i16 = 18;
    pub const CREATE_TOPICS: i16 = 19;
    pub const DELETE_TOPICS: i16 = 20;
    pub const DELETE_RECORDS: i16 = 21;
    pub const INIT_PRODUCER_ID: i16 = 22;
    pub const OFFSET_FOR_LEADER_EPOCH: i16 = 23;
    pub const DESCRIBE_CONFIGS: i16 = 32;
    pub const ALTER_CONFIGS: i16 = 33;
    pub const DESCRIBE_LOG_DIRS: i16 = 35;
    pub const CREATE_PARTITIONS: i16 = 37;
    pub const DELETE_GROUPS: i16 = 42;
    pub const ELECT_LEADERS: i16 = 43;
    pub const INCREMENTAL_ALTER_CONFIGS: i16 = 44;
    pub const ALTER_PARTITION_REASSIGNMENTS: i16 = 45;
    pub const LIST_PARTITION_REASSIGNMENTS: i16 = 46;
    pub const OFFSET_DELETE: i16 = 47;
    pub const ALTER_PARTITION: i16 = 56;
    pub const DESCRIBE_CLUSTER: i16 = 60;
    pub const ALLOCATE_PRODUCER_IDS: i16 = 67;
    /// Private keys, far above Kafka's, which are small numbers.
    pub const REPLICA_DIGEST: i16 = 20_001;
    pub const STATE_CHANGES: i16 = 20_002;
    pub const OBSERVE_BROKER: i16 = 20_003;
}

/// Produce is advertised from 0, since librdkafka before 2.11.1 otherwise assumes a broker without
/// compression. Versions 0 to 2 have old message formats and are refused.
pub const PRODUCE_MIN_SERVED: i16 = 3;

const fn row(
    key: i16,
    name: &'static str,
    versions: (i16, i16),
    flexible_since: i16,
    owner: Owner,
) -> ApiRow {
    let (min_version, max_version) = versions;
    let min_served = if key == key::PRODUCE {
        PRODUCE_MIN_SERVED
    } else {
        min_version
    };
    ApiRow {
        key,
        name,
        min_version,
        max_version,
        min_served,
        flexible_since,
        owner,
        is_between_brokers: false,
        is_private: false,
    }
}

/// What only brokers ask each other.
const fn between(
    key: i16,
    name: &'static str,
    versions: (i16, i16),
    flexible_since: i16,
) -> ApiRow {
    ApiRow {
        is_between_brokers: true,
        ..row(key, name, versions, flexible_since, Owner::Python)
    }
}

/// What only our own tools ask.
const fn private(key: i16, name: &'static str) -> ApiRow {
    ApiRow {
        is_private: true,
        ..row(key, name, (0, 0), 0, Owner::Python)
    }
}

/// Everything that is served, ascending by key.
pub const TABLE: &[ApiRow] = &[
    row(key::PRODUCE, "Produce", (0, 11), 9, Owner::Rust),
    row(key::FETCH, "Fetch", (4, 17), 12, Owner::Rust),
    row(key::LIST_OFFSETS, "ListOffsets", (1, 9), 6, Owner::Rust),
    row(key::METADATA, "Metadata", (0, 12), 9, Owner::Rust),
    between(key::LEADER_AND_ISR, "LeaderAndIsr", (7, 7), 4),
    between(key::STOP_REPLICA, "StopReplica", (4, 4), 2),
    between(key::UPDATE_METADATA, "UpdateMetadata", (8, 8), 6),
    between(key::CONTROLLED_SHUTDOWN, "ControlledShutdown", (3, 3), 3),
    row(key::OFFSET_COMMIT, "OffsetCommit", (2, 9), 8, Owner::Python),
    row(key::OFFSET_FETCH, "OffsetFetch", (1, 9), 6, Owner::Python),
    // Without 0 in the range librdkafka assumes a broker without LZ4.
    row(
        key::FIND_COORDINATOR,
        "FindCoordinator",
        (0, 6),
        3,
        Owner::Python,
    ),
    row(key::JOIN_GROUP, "JoinGroup", (0, 9), 6, Owner::Python),
    row(key::HEARTBEAT, "Heartbeat", (0, 4), 4, Owner::Python),
    row(key::LEAVE_GROUP, "LeaveGroup", (0, 5), 4, Owner::Python),
    row(key::SYNC_GROUP, "SyncGroup", (0, 5), 4, Owner::Python),
    row(
        key::DESCRIBE_GROUPS,
        "DescribeGroups",
        (0, 5),
        5,
        Owner::Python,
    ),
    row(key::LIST_GROUPS, "ListGroups", (0, 5), 3, Owner::Python),
    row(key::API_VERSIONS, "ApiVersions", (0, 4), 3, Owner::Rust),
    row(key::CREATE_TOPICS, "CreateTopics", (0, 7), 5, Owner::Python),
    row(key::DELETE_TOPICS, "DeleteTopics", (0, 6), 4, Owner::Python),
    row(
        key::DELETE_RECORDS,
        "DeleteRecords",
        (0, 2),
        2,
        Owner::Python,
    ),
    row(
        key::INIT_PRODUCER_ID,
        "InitProducerId",
        (0, 5),
        2,
        Owner::Python,
    ),
    row(
        key::OFFSET_FOR_LEADER_EPOCH,
        "OffsetForLeaderEpoch",
        (2, 4),
        4,
        Owner::Rust,
    ),
    row(
        key::DESCRIBE_CONFIGS,
        "DescribeConfigs",
        (0, 4),
        4,
        Owner::Python,
    ),
    row(key::ALTER_CONFIGS, "AlterConfigs", (0, 2), 2, Owner::Python),
    row(
        key::DESCRIBE_LOG_DIRS,
        "DescribeLogDirs",
        (0, 4),
        2,
        Owner::Python,
    ),
    row(
        key::CREATE_PARTITIONS,
        "CreatePartitions",
        (0, 3),
        2,
        Owner::Python,
    ),
    row(key::DELETE_GROUPS, "DeleteGroups", (0, 2), 2, Owner::Python),
    row(key::ELECT_LEADERS, "ElectLeaders", (0, 2), 2, Owner::Python),
    row(
        key::INCREMENTAL_ALTER_CONFIGS,
        "IncrementalAlterConfigs",
        (0, 1),
        1,
        Owner::Python,
    ),
    row(
        key::ALTER_PARTITION_REASSIGNMENTS,
        "AlterPartitionReassignments",
        (0, 0),
        0,
        Owner::Python,
    ),
    row(
        key::LIST_PARTITION_REASSIGNMENTS,
        "ListPartitionReassignments",
        (0, 0),
        0,
        Owner::Python,
    ),
    row(
        key::OFFSET_DELETE,
        "OffsetDelete",
        (0, 0),
        NEVER_FLEXIBLE,
        Owner::Python,
    ),
    between(key::ALTER_PARTITION, "AlterPartition", (0, 3), 0),
    row(
        key::DESCRIBE_CLUSTER,
        "DescribeCluster",
        (0, 1),
        0,
        Owner::Python,
    ),
    between(key::ALLOCATE_PRODUCER_IDS, "AllocateProducerIds", (0, 0), 0),
    private(key::REPLICA_DIGEST, "ReplicaDigest"),
    private(key::STATE_CHANGES, "StateChanges"),
    ApiRow {
        is_between_brokers: true,
        ..private(key::OBSERVE_BROKER, "ObserveBroker")
    },
];

/// The row of an API key, `None` if not served.
pub fn lookup(key: i16) -> Option<&'static ApiRow> {
    let index = TABLE.binary_search_by_key(&key, |row| row.key).ok()?;
    Some(&TABLE[index])
}

/// The highest served version of an API, -1 if not served.
pub fn max_version(key: i16) -> i16 {
    lookup(key).map_or(-1, |row| row.max_version)
}

/// Refuses versions of an API outside of `min` and the highest served one.
///
/// # Errors
/// `UnsupportedVersion`.
pub(crate) fn check_version(api_key: i16, min: i16, api_version: i16) -> Result<()> {
    match (min..=max_version(api_key)).contains(&api_version) {
        true => Ok(()),
        false => Err(DecodeError::UnsupportedVersion {
            api_key,
            api_version,
        }),
    }
}

/// Whether the request header ends in tagged fields (header version 2). A guess for an unknown API
/// or version, used only to skip tags.
pub fn request_header_is_flexible(key: i16, version: i16) -> bool {
    lookup(key).is_some_and(|row| row.is_flexible(version))
}

/// Whether the response header ends in tagged fields (header version 1). Never for ApiVersions, so
/// that a client can read the answer to an unknown version.
pub fn response_header_is_flexible(key: i16, version: i16) -> bool {
    key != key::API_VERSIONS && request_header_is_flexible(key, version)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn table_is_ascending_and_its_ranges_make_sense() {
        assert!(TABLE.windows(2).all(|pair| pair[0].key < pair[1].key));
        for row in TABLE {
            assert!(
                0 <= row.min_version && row.min_version <= row.max_version,
                "{row:?}"
            );
            assert!(row.min_version <= row.min_served && row.min_served <= row.max_version);
            assert_eq!(lookup(row.key), Some(row));
            assert!(row.advertises(row.min_version) && row.serves(row.max_version));
            assert!(!row.advertises(row.max_version + 1) && !row.serves(row.min_version - 1));
        }
        assert!(TABLE.iter().all(|row| row.is_private == (row.key > 20_000)));
        assert_eq!(lookup(25), None);
        assert_eq!(lookup(-1), None);
    }

    #[test]
    fn produce_is_advertised_from_0_and_served_from_3() {
        let produce = lookup(key::PRODUCE).unwrap();
        assert!(produce.advertises(0) && !produce.serves(2) && produce.serves(3));
    }

    #[test]
    fn response_headers_of_api_versions_stay_classic() {
        assert!(request_header_is_flexible(key::API_VERSIONS, 3));
        assert!(!response_header_is_flexible(key::API_VERSIONS, 4));
        assert!(response_header_is_flexible(key::PRODUCE, 9));
        assert!(!response_header_is_flexible(key::PRODUCE, 8));
        assert!(response_header_is_flexible(key::DESCRIBE_CLUSTER, 0));
    }
}
