//! The table of served APIs: keys, versions, owner.
//!
//! ApiVersions advertises it (except private APIs), the frame reader checks requests against it,
//! Python reads it as `_core.api_table()`, and tests check the handlers against it. Highest
//! versions are Kafka 3.9's, and Kafka 4's where transactions need them; for the lowest see
//! skipped.md.

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
    /// Highest version advertised.
    pub max_version: i16,
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

    /// Is this version flexible?
    pub fn is_flexible(&self, version: i16) -> bool {
        version >= self.flexible_since
    }
}

/// Who asks an API.
enum Audience {
    Clients,
    /// Brokers of a cluster alone.
    Brokers,
    /// This project's tools.
    Tools,
    /// These, of a broker of a cluster.
    ToolsBetweenBrokers,
}

const fn row(
    key: i16,
    name: &'static str,
    (min_version, max_version): (i16, i16),
    flexible_since: i16,
    owner: Owner,
    audience: Audience,
) -> ApiRow {
    ApiRow {
        key,
        name,
        min_version,
        max_version,
        flexible_since,
        owner,
        is_between_brokers: matches!(audience, Audience::Brokers | Audience::ToolsBetweenBrokers),
        is_private: matches!(audience, Audience::Tools | Audience::ToolsBetweenBrokers),
    }
}

macro_rules! apis {
    ($($key:ident = $number:literal:
        $name:ident $min:literal..=$max:literal, $flexible_since:expr, $owner:ident, $for:ident;
    )*) => {
        /// The API keys.
        pub mod key {
            #![allow(missing_docs)] // The names are the protocol's own.
            $(pub const $key: i16 = $number;)*
        }

        /// Everything that is served, ascending by key.
        pub const TABLE: &[ApiRow] = &[$(row(
            $number, stringify!($name), ($min, $max), $flexible_since, Owner::$owner, Audience::$for,
        ),)*];
    };
}

// Key, name, versions, first flexible version, owner, and who asks.
apis! {
    PRODUCE = 0: Produce 0..=12, 9, Rust, Clients;
    FETCH = 1: Fetch 0..=17, 12, Rust, Clients;
    LIST_OFFSETS = 2: ListOffsets 0..=9, 6, Rust, Clients;
    METADATA = 3: Metadata 0..=12, 9, Rust, Clients;
    LEADER_AND_ISR = 4: LeaderAndIsr 7..=7, 4, Python, Brokers;
    STOP_REPLICA = 5: StopReplica 4..=4, 2, Python, Brokers;
    UPDATE_METADATA = 6: UpdateMetadata 8..=8, 6, Python, Brokers;
    CONTROLLED_SHUTDOWN = 7: ControlledShutdown 3..=3, 3, Python, Brokers;
    OFFSET_COMMIT = 8: OffsetCommit 0..=9, 8, Python, Clients;
    OFFSET_FETCH = 9: OffsetFetch 0..=9, 6, Python, Clients;
    // Without 0 in the range librdkafka assumes a broker without LZ4.
    FIND_COORDINATOR = 10: FindCoordinator 0..=6, 3, Python, Clients;
    JOIN_GROUP = 11: JoinGroup 0..=9, 6, Python, Clients;
    HEARTBEAT = 12: Heartbeat 0..=4, 4, Python, Clients;
    LEAVE_GROUP = 13: LeaveGroup 0..=5, 4, Python, Clients;
    SYNC_GROUP = 14: SyncGroup 0..=5, 4, Python, Clients;
    DESCRIBE_GROUPS = 15: DescribeGroups 0..=5, 5, Python, Clients;
    LIST_GROUPS = 16: ListGroups 0..=5, 3, Python, Clients;
    SASL_HANDSHAKE = 17: SaslHandshake 0..=1, NEVER_FLEXIBLE, Python, Clients;
    API_VERSIONS = 18: ApiVersions 0..=4, 3, Rust, Clients;
    CREATE_TOPICS = 19: CreateTopics 0..=7, 5, Python, Clients;
    DELETE_TOPICS = 20: DeleteTopics 0..=6, 4, Python, Clients;
    DELETE_RECORDS = 21: DeleteRecords 0..=2, 2, Python, Clients;
    INIT_PRODUCER_ID = 22: InitProducerId 0..=5, 2, Python, Clients;
    OFFSET_FOR_LEADER_EPOCH = 23: OffsetForLeaderEpoch 0..=4, 4, Rust, Clients;
    ADD_PARTITIONS_TO_TXN = 24: AddPartitionsToTxn 0..=5, 3, Python, Clients;
    ADD_OFFSETS_TO_TXN = 25: AddOffsetsToTxn 0..=4, 3, Python, Clients;
    END_TXN = 26: EndTxn 0..=5, 3, Python, Clients;
    WRITE_TXN_MARKERS = 27: WriteTxnMarkers 1..=2, 1, Python, Clients;
    TXN_OFFSET_COMMIT = 28: TxnOffsetCommit 0..=5, 3, Python, Clients;
    DESCRIBE_ACLS = 29: DescribeAcls 0..=3, 2, Python, Clients;
    CREATE_ACLS = 30: CreateAcls 0..=3, 2, Python, Clients;
    DELETE_ACLS = 31: DeleteAcls 0..=3, 2, Python, Clients;
    DESCRIBE_CONFIGS = 32: DescribeConfigs 0..=4, 4, Python, Clients;
    ALTER_CONFIGS = 33: AlterConfigs 0..=2, 2, Python, Clients;
    ALTER_REPLICA_LOG_DIRS = 34: AlterReplicaLogDirs 0..=2, 2, Python, Clients;
    DESCRIBE_LOG_DIRS = 35: DescribeLogDirs 0..=4, 2, Python, Clients;
    SASL_AUTHENTICATE = 36: SaslAuthenticate 0..=2, 2, Python, Clients;
    CREATE_PARTITIONS = 37: CreatePartitions 0..=3, 2, Python, Clients;
    DELETE_GROUPS = 42: DeleteGroups 0..=2, 2, Python, Clients;
    ELECT_LEADERS = 43: ElectLeaders 0..=2, 2, Python, Clients;
    INCREMENTAL_ALTER_CONFIGS = 44: IncrementalAlterConfigs 0..=1, 1, Python, Clients;
    ALTER_PARTITION_REASSIGNMENTS = 45: AlterPartitionReassignments 0..=0, 0, Python, Clients;
    LIST_PARTITION_REASSIGNMENTS = 46: ListPartitionReassignments 0..=0, 0, Python, Clients;
    OFFSET_DELETE = 47: OffsetDelete 0..=0, NEVER_FLEXIBLE, Python, Clients;
    ALTER_PARTITION = 56: AlterPartition 0..=3, 0, Python, Brokers;
    DESCRIBE_CLUSTER = 60: DescribeCluster 0..=1, 0, Python, Clients;
    DESCRIBE_PRODUCERS = 61: DescribeProducers 0..=0, 0, Python, Clients;
    DESCRIBE_TRANSACTIONS = 65: DescribeTransactions 0..=0, 0, Python, Clients;
    LIST_TRANSACTIONS = 66: ListTransactions 0..=1, 0, Python, Clients;
    ALLOCATE_PRODUCER_IDS = 67: AllocateProducerIds 0..=0, 0, Python, Brokers;
    GET_TELEMETRY_SUBSCRIPTIONS = 71: GetTelemetrySubscriptions 0..=0, 0, Python, Clients;
    PUSH_TELEMETRY = 72: PushTelemetry 0..=0, 0, Python, Clients;
    LIST_CLIENT_METRICS_RESOURCES = 74: ListClientMetricsResources 0..=0, 0, Python, Clients;
    DESCRIBE_TOPIC_PARTITIONS = 75: DescribeTopicPartitions 0..=0, 0, Python, Clients;
    // Private keys lie far above Kafka's, which are small numbers.
    REPLICA_DIGEST = 20_001: ReplicaDigest 0..=0, 0, Python, Tools;
    STATE_CHANGES = 20_002: StateChanges 0..=0, 0, Python, Tools;
    OBSERVE_BROKER = 20_003: ObserveBroker 0..=0, 0, Python, ToolsBetweenBrokers;
    BROKER_HEALTH = 20_004: BrokerHealth 0..=0, 0, Python, Tools;
    GROUP_LAG = 20_005: GroupLag 0..=0, 0, Python, Tools;
    PARTITION_OFFSETS = 20_006: PartitionOffsets 0..=0, 0, Python, ToolsBetweenBrokers;
    // Its version is that of the Produce whose body it has.
    PRODUCE_AT = 20_007: ProduceAt 11..=11, 9, Rust, Tools;
    REPLICA_START = 20_010: ReplicaStart 0..=0, 0, Rust, ToolsBetweenBrokers;
    REPLICA_SEGMENTS = 20_011: ReplicaSegments 0..=0, 0, Rust, ToolsBetweenBrokers;
}

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

/// Whether the version of an API is flexible: its request header then ends in tagged fields (header
/// version 2). A guess for an unknown API or version, used only to skip tags.
pub fn is_flexible(key: i16, version: i16) -> bool {
    lookup(key).is_some_and(|row| row.is_flexible(version))
}

/// Whether the response header ends in tagged fields (header version 1). Never for ApiVersions, so
/// that a client can read the answer to an unknown version.
pub fn response_header_is_flexible(key: i16, version: i16) -> bool {
    key != key::API_VERSIONS && is_flexible(key, version)
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
            assert_eq!(lookup(row.key), Some(row));
            assert!(row.advertises(row.min_version) && row.advertises(row.max_version));
            assert!(!row.advertises(row.max_version + 1));
            assert!(!row.advertises(row.min_version - 1));
        }
        assert!(TABLE.iter().all(|row| row.is_private == (row.key > 20_000)));
        assert_eq!(lookup(38), None);
        assert_eq!(lookup(-1), None);
    }

    #[test]
    fn response_headers_of_api_versions_stay_classic() {
        assert!(is_flexible(key::API_VERSIONS, 3));
        assert!(!response_header_is_flexible(key::API_VERSIONS, 4));
        assert!(response_header_is_flexible(key::PRODUCE, 9));
        assert!(!response_header_is_flexible(key::PRODUCE, 8));
        assert!(response_header_is_flexible(key::DESCRIBE_CLUSTER, 0));
    }
}
