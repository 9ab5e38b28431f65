//! The control plane's description of the cluster.
#![allow(missing_docs)] // Docs say what the names do not.

use pyrklog_base::ids::TopicId;
use pyrklog_base::replication_quota::Throttled;

/// A change of the broker image. An older `version` is refused.
#[derive(Clone, Debug, Default)]
pub struct ImageDelta {
    pub version: u64,
    /// -1 for none.
    pub controller_id: i32,
    /// All live brokers, not a difference.
    pub brokers: Vec<BrokerImage>,
    /// New or changed topics, each whole.
    pub topics: Vec<TopicImage>,
    pub removed_topics: Vec<String>,
}

#[derive(Clone, Debug)]
pub struct BrokerImage {
    pub id: i32,
    /// `broker.rack`.
    pub rack: Option<String>,
    /// (listener name, advertised host, advertised port) per listener.
    pub endpoints: Vec<(String, String, u16)>,
}

/// One topic with its resolved options.
#[derive(Clone, Debug)]
pub struct TopicImage {
    pub name: String,
    pub id: TopicId,
    /// `__consumer_offsets` and `__transaction_state`.
    pub internal: bool,
    pub config: TopicConfig,
    /// All partitions, by index.
    pub partitions: Vec<PartitionImage>,
}

/// A partition as last decided by the controller.
#[derive(Clone, Debug)]
pub struct PartitionImage {
    pub index: i32,
    /// Leader's broker id, -1 for none.
    pub leader: i32,
    pub leader_epoch: i32,
    /// Assigned replicas, the preferred leader first.
    pub replicas: Vec<i32>,
    pub isr: Vec<i32>,
    /// Replicas on dead brokers or failed log directories.
    pub offline: Vec<i32>,
}

/// Topic options for the plane, with Kafka's names and dots as underscores; the log's are in
/// `pyrklog_log::LogConfig`.
#[derive(Clone, Debug)]
pub struct TopicConfig {
    pub log: pyrklog_log::LogConfig,
    /// `min.insync.replicas`.
    pub min_insync_replicas: i32,
    /// Replicas that the brokers' replication rates limit (KIP-73).
    pub throttled: Throttled,
}
