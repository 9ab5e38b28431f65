//! What a cluster says of itself: brokers, topics, leaders.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use pyrklog_wire::metadata::{MetadataRequest, MetadataRequestTopic, MetadataResponse};
use pyrklog_wire::{ErrorCode, Uuid};

use crate::config::Address;

/// A broker.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Broker {
    /// Broker id.
    pub id: i32,
    /// Where it can be reached.
    pub address: Address,
    /// Its rack, if it has one.
    pub rack: Option<String>,
}

/// A partition.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Partition {
    /// Number.
    pub index: i32,
    /// Broker id of the leader, `None` without one.
    pub leader: Option<i32>,
    /// Leader epoch, -1 unknown (before Kafka 2.1).
    pub leader_epoch: i32,
}

/// A topic.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Topic {
    /// Name.
    pub name: Arc<str>,
    /// Topic id, zero unknown (before Kafka 2.8).
    pub id: Uuid,
    /// Why the broker says nothing of it.
    pub error: ErrorCode,
    /// By index.
    pub partitions: Vec<Partition>,
}

impl Topic {
    /// A partition by its index.
    pub fn partition(&self, index: i32) -> Option<&Partition> {
        let at = self
            .partitions
            .binary_search_by_key(&index, |one| one.index)
            .ok()?;
        self.partitions.get(at)
    }
}

/// One broker's view of the cluster.
#[derive(Clone, Debug, Default)]
pub struct Metadata {
    /// By id.
    pub brokers: HashMap<i32, Broker>,
    /// Those that were asked for, by name.
    pub topics: HashMap<Arc<str>, Topic>,
}

impl Metadata {
    /// Of a response about `asked`. What cannot be used (a port of 0, a topic without a name, one
    /// that was not asked for) is left out.
    pub(crate) fn of(response: &MetadataResponse<'_>, asked: &[&str]) -> Metadata {
        let asked: HashSet<&str> = asked.iter().copied().collect();
        let brokers = response.head.brokers.iter().filter_map(|broker| {
            let port = u16::try_from(broker.port).ok().filter(|port| *port > 0)?;
            let broker = Broker {
                id: broker.node_id,
                address: Address {
                    host: broker.host.to_owned(),
                    port,
                },
                rack: broker.rack.map(str::to_owned),
            };
            Some((broker.id, broker))
        });
        let topics = response.topics.iter().filter_map(|topic| {
            let name: Arc<str> = topic.name.filter(|name| asked.contains(name))?.into();
            let mut partitions: Vec<Partition> = topic
                .partitions
                .iter()
                .map(|partition| Partition {
                    index: partition.index,
                    leader: Some(partition.leader_id).filter(|id| *id >= 0),
                    leader_epoch: partition.leader_epoch,
                })
                .collect();
            partitions.sort_by_key(|one| one.index);
            partitions.dedup_by_key(|one| one.index);
            let topic = Topic {
                name: Arc::clone(&name),
                id: topic.id,
                error: topic.error_code,
                partitions,
            };
            Some((name, topic))
        });
        Metadata {
            brokers: brokers.collect(),
            topics: topics.collect(),
        }
    }

    /// The leader of a partition, if it has one that can be reached.
    pub fn leader(&self, topic: &str, partition: i32) -> Option<&Broker> {
        let leader = self.topics.get(topic)?.partition(partition)?.leader?;
        self.brokers.get(&leader)
    }
}

/// Asks for `topics` without creating them.
pub(crate) fn request<'a>(topics: &[&'a str]) -> MetadataRequest<'a> {
    MetadataRequest {
        topics: Some(
            topics
                .iter()
                .map(|name| MetadataRequestTopic {
                    id: Uuid::default(),
                    name: Some(*name),
                })
                .collect(),
        ),
        allow_auto_topic_creation: false,
        include_cluster_authorized_operations: false,
        include_topic_authorized_operations: false,
    }
}

/// Asks for all topics.
pub(crate) fn request_all() -> MetadataRequest<'static> {
    MetadataRequest {
        topics: None,
        ..request(&[])
    }
}

/// The names of a response's topics, sorted, without those that brokers keep for themselves.
pub(crate) fn names(response: &MetadataResponse<'_>) -> Vec<String> {
    let topics = response.topics.iter().filter(|topic| !topic.is_internal);
    let mut names: Vec<String> = topics
        .filter_map(|topic| topic.name.map(str::to_owned))
        .collect();
    names.sort_unstable();
    names.dedup();
    names
}

#[cfg(test)]
mod tests {
    use super::*;
    use pyrklog_wire::metadata::{MetadataHead, MetadataTopic};

    fn response<'a>(topics: &[(Option<&'a str>, bool)]) -> MetadataResponse<'a> {
        let topic = |(name, is_internal): &(Option<&'a str>, bool)| MetadataTopic {
            error_code: ErrorCode::NONE,
            name: *name,
            id: Uuid::default(),
            is_internal: *is_internal,
            partitions: Vec::new(),
            authorized_operations: 0,
        };
        MetadataResponse {
            head: MetadataHead {
                throttle_ms: 0,
                brokers: Vec::new(),
                cluster_id: None,
                controller_id: -1,
            },
            topics: topics.iter().map(topic).collect(),
            cluster_authorized_operations: 0,
        }
    }

    #[test]
    fn names_are_of_topics_that_brokers_do_not_keep_for_themselves() {
        let topics = [
            (Some("t"), false),
            (None, false),
            (Some("__consumer_offsets"), true),
            (Some("a"), false),
            (Some("t"), false),
        ];
        assert_eq!(names(&response(&topics)), ["a", "t"]);
        assert_eq!(request_all().topics, None);
        assert!(!request_all().allow_auto_topic_creation);
    }

    #[test]
    fn topics_that_were_not_asked_for_are_left_out() {
        let response = response(&[(Some("t"), false), (Some("u"), false), (None, false)]);
        let metadata = Metadata::of(&response, &["t", "v"]);
        assert_eq!(
            metadata.topics.into_keys().collect::<Vec<_>>(),
            [Arc::from("t")]
        );
    }
}
