//! The broker image: brokers, topics and partitions as last decided by the control plane.
//!
//! An [`Image`] is immutable, so readers need no lock. A delta makes the next one, which shares
//! unchanged topics; it costs its topics and a shallow copy of two look-up tables.

use std::collections::HashMap;
use std::fmt;
use std::sync::Arc;

use pyrklog_log::LogConfig;
use pyrklog_wire::leader::NodeEndpoint;
use thiserror::Error;

use crate::seam::{BrokerImage, ImageDelta, PartitionImage, Throttled, TopicImage};
use pyrklog_base::ids::TopicId;

/// No topic id.
pub const NO_TOPIC_ID: TopicId = [0; 16];

/// Why a delta was refused; the image stays.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[allow(missing_docs)] // The messages name variants and fields.
pub enum ImageError {
    #[error("image version {offered} does not come after {current}")]
    StaleVersion { current: u64, offered: u64 },
    #[error("partitions of topic {topic} are not numbered from 0 without gaps")]
    PartitionNumbers { topic: String },
    #[error("topics {topic} and {other} have the same id")]
    SharedTopicId { topic: String, other: String },
}

/// One topic of an image.
#[derive(Debug)]
pub struct TopicState {
    /// Topic name.
    pub name: Arc<str>,
    /// Topic id, or [`NO_TOPIC_ID`].
    pub id: TopicId,
    /// `__consumer_offsets` and `__transaction_state`.
    pub internal: bool,
    /// The log's options.
    pub log_config: Arc<LogConfig>,
    /// `min.insync.replicas`.
    pub min_insync_replicas: i32,
    /// Replicas whose traffic counts towards the replication rates.
    pub throttled: Arc<Throttled>,
    /// Partitions by index.
    pub partitions: Vec<PartitionImage>,
}

impl TopicState {
    fn from_image(topic: TopicImage) -> Result<Self, ImageError> {
        let TopicImage {
            name,
            id,
            internal,
            config,
            mut partitions,
        } = topic;
        partitions.sort_unstable_by_key(|partition| partition.index);
        if !partitions
            .iter()
            .zip(0..)
            .all(|(partition, index)| partition.index == index)
        {
            return Err(ImageError::PartitionNumbers { topic: name });
        }
        Ok(TopicState {
            name: name.into(),
            id,
            internal,
            log_config: Arc::new(config.log),
            min_insync_replicas: config.min_insync_replicas,
            throttled: Arc::new(config.throttled),
            partitions,
        })
    }

    /// The partition of this index.
    pub fn partition(&self, index: i32) -> Option<&PartitionImage> {
        self.partitions.get(usize::try_from(index).ok()?)
    }
}

/// The broker's knowledge of its cluster.
#[derive(Clone)]
pub struct Image {
    version: u64,
    controller_id: i32,
    brokers: Arc<[BrokerImage]>,
    by_name: HashMap<Arc<str>, Arc<TopicState>>,
    by_id: HashMap<TopicId, Arc<TopicState>>,
}

impl Default for Image {
    /// Version 0: no broker, no topic, no controller.
    fn default() -> Self {
        Image {
            version: 0,
            controller_id: -1,
            brokers: Arc::new([]),
            by_name: HashMap::new(),
            by_id: HashMap::new(),
        }
    }
}

impl fmt::Debug for Image {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Image")
            .field("version", &self.version)
            .field("brokers", &self.brokers.len())
            .field("topics", &self.by_name.len())
            .finish()
    }
}

impl Image {
    /// The image after `delta`. Topics are removed first, so a delta can replace a topic by one of
    /// the same name.
    ///
    /// # Errors
    /// See [`ImageError`]; this image does not change.
    pub fn apply(&self, delta: ImageDelta) -> Result<Image, ImageError> {
        if delta.version <= self.version {
            let (current, offered) = (self.version, delta.version);
            return Err(ImageError::StaleVersion { current, offered });
        }
        let mut brokers = delta.brokers;
        brokers.sort_unstable_by_key(|broker| broker.id);
        let mut next = Image {
            version: delta.version,
            controller_id: delta.controller_id,
            brokers: brokers.into(),
            by_name: self.by_name.clone(),
            by_id: self.by_id.clone(),
        };
        for name in &delta.removed_topics {
            next.remove(name);
        }
        for topic in delta.topics {
            next.insert(TopicState::from_image(topic)?)?;
        }
        Ok(next)
    }

    fn remove(&mut self, name: &str) {
        if let Some(topic) = self.by_name.remove(name) {
            self.by_id.remove(&topic.id);
        }
    }

    fn insert(&mut self, topic: TopicState) -> Result<(), ImageError> {
        self.remove(&topic.name);
        if let Some(other) = self.by_id.get(&topic.id) {
            let (topic, other) = (topic.name.to_string(), other.name.to_string());
            return Err(ImageError::SharedTopicId { topic, other });
        }
        let topic = Arc::new(topic);
        if topic.id != NO_TOPIC_ID {
            self.by_id.insert(topic.id, Arc::clone(&topic));
        }
        self.by_name.insert(Arc::clone(&topic.name), topic);
        Ok(())
    }

    /// Rises with every change.
    pub fn version(&self) -> u64 {
        self.version
    }

    /// The controller's broker id, -1 for none.
    pub fn controller_id(&self) -> i32 {
        self.controller_id
    }

    /// Live brokers, ascending by id.
    pub fn brokers(&self) -> &[BrokerImage] {
        &self.brokers
    }

    /// The live broker of this id.
    pub fn broker(&self, id: i32) -> Option<&BrokerImage> {
        let index = self
            .brokers
            .binary_search_by_key(&id, |broker| broker.id)
            .ok()?;
        Some(&self.brokers[index])
    }

    /// A broker's address for clients of a listener; `None` if it is dead or lacks the listener.
    pub fn endpoint(&self, broker: i32, listener: &str) -> Option<NodeEndpoint<'_>> {
        endpoint_of(self.broker(broker)?, listener)
    }

    /// Endpoints of live brokers with the listener, ascending by id.
    pub fn endpoints<'a>(&'a self, listener: &'a str) -> impl Iterator<Item = NodeEndpoint<'a>> {
        self.brokers
            .iter()
            .filter_map(move |broker| endpoint_of(broker, listener))
    }

    /// Number of topics.
    pub fn topic_count(&self) -> usize {
        self.by_name.len()
    }

    /// All topics, in no order.
    pub fn topics(&self) -> impl Iterator<Item = &Arc<TopicState>> {
        self.by_name.values()
    }

    /// The topic of this name.
    pub fn topic(&self, name: &str) -> Option<&Arc<TopicState>> {
        self.by_name.get(name)
    }

    /// The topic of this id.
    pub fn topic_by_id(&self, id: &TopicId) -> Option<&Arc<TopicState>> {
        self.by_id.get(id)
    }

    /// A partition as last decided.
    pub fn partition(&self, topic: &str, index: i32) -> Option<&PartitionImage> {
        self.topic(topic)?.partition(index)
    }

    /// A partition's (leader or -1, leader epoch).
    pub fn leader(&self, topic: &str, index: i32) -> Option<(i32, i32)> {
        let partition = self.partition(topic, index)?;
        Some((partition.leader, partition.leader_epoch))
    }
}

fn endpoint_of<'a>(broker: &'a BrokerImage, listener: &str) -> Option<NodeEndpoint<'a>> {
    let (_, host, port) = broker
        .endpoints
        .iter()
        .find(|(name, ..)| name == listener)?;
    let rack = broker.rack.as_deref();
    Some(NodeEndpoint {
        node_id: broker.id,
        host,
        port: i32::from(*port),
        rack,
    })
}

#[cfg(any(test, feature = "testing"))]
pub mod testing {
    //! Images for tests.

    use super::*;
    use crate::seam::TopicConfig;

    /// A broker with one listener, `PLAINTEXT`, at `host-ID:9092`.
    pub fn broker(id: i32, rack: Option<&str>) -> BrokerImage {
        let endpoint = ("PLAINTEXT".to_owned(), format!("host-{id}"), 9092);
        BrokerImage {
            id,
            rack: rack.map(str::to_owned),
            endpoints: vec![endpoint],
        }
    }

    /// A partition on one replica.
    pub fn partition(index: i32, leader: i32) -> PartitionImage {
        let replicas = vec![leader];
        let (isr, offline) = (replicas.clone(), vec![]);
        PartitionImage {
            index,
            leader,
            leader_epoch: 5,
            replicas,
            isr,
            offline,
        }
    }

    /// A topic with id `[id; 16]` and partitions on broker 1.
    pub fn topic(name: &str, id: u8, partitions: i32) -> TopicImage {
        TopicImage {
            name: name.to_owned(),
            id: [id; 16],
            internal: name.starts_with("__"),
            config: TopicConfig {
                log: LogConfig::default(),
                min_insync_replicas: 1,
                throttled: Default::default(),
            },
            partitions: (0..partitions).map(|index| partition(index, 1)).collect(),
        }
    }

    /// An image with broker 1, the controller, and these topics.
    pub fn image(topics: Vec<TopicImage>) -> Image {
        let delta = ImageDelta {
            version: 1,
            controller_id: 1,
            brokers: vec![broker(1, Some("r1"))],
            topics,
            removed_topics: vec![],
        };
        Image::default().apply(delta).unwrap()
    }
}

#[cfg(test)]
mod tests {
    use super::testing::{broker, image, partition, topic};
    use super::*;

    fn delta(version: u64, topics: Vec<TopicImage>, removed: &[&str]) -> ImageDelta {
        ImageDelta {
            version,
            controller_id: 1,
            brokers: vec![broker(2, None), broker(1, Some("r1"))],
            topics,
            removed_topics: removed.iter().map(|name| (*name).to_owned()).collect(),
        }
    }

    #[test]
    fn unchanged_topics_are_shared_between_versions() {
        let first = image(vec![topic("a", 1, 2), topic("b", 2, 1)]);
        let second = first.apply(delta(2, vec![topic("b", 2, 3)], &[])).unwrap();
        assert!(Arc::ptr_eq(
            first.topic("a").unwrap(),
            second.topic("a").unwrap()
        ));
        assert_eq!(first.topic("b").unwrap().partitions.len(), 1);
        assert_eq!(second.topic("b").unwrap().partitions.len(), 3);
        assert_eq!(second.topic_by_id(&[2; 16]).unwrap().partitions.len(), 3);
        assert_eq!((first.version(), second.version()), (1, 2));
    }

    #[test]
    fn the_version_must_rise() {
        let first = image(vec![]);
        for offered in [0, 1] {
            let refused = first.apply(delta(offered, vec![], &[])).unwrap_err();
            assert_eq!(
                refused,
                ImageError::StaleVersion {
                    current: 1,
                    offered
                }
            );
        }
        assert_eq!(first.apply(delta(9, vec![], &[])).unwrap().version(), 9);
    }

    #[test]
    fn a_removed_or_recreated_topic_leaves_neither_name_nor_old_id() {
        let first = image(vec![topic("a", 1, 1), topic("b", 2, 1)]);
        let second = first
            .apply(delta(2, vec![topic("a", 7, 1)], &["a", "b", "none"]))
            .unwrap();
        assert_eq!(second.topic("a").unwrap().id, [7; 16]);
        assert!(second.topic_by_id(&[1; 16]).is_none());
        assert!(second.topic("b").is_none() && second.topic_by_id(&[2; 16]).is_none());
        // Replaced without an explicit removal.
        let third = second.apply(delta(3, vec![topic("a", 8, 1)], &[])).unwrap();
        assert!(third.topic_by_id(&[7; 16]).is_none());
        assert_eq!(third.topic_count(), 1);
        assert_eq!(first.topic_count(), 2);
    }

    #[test]
    fn malformed_deltas_are_refused_whole() {
        let first = image(vec![topic("a", 1, 1)]);
        let mut gap = topic("b", 2, 1);
        gap.partitions.push(partition(2, 1));
        let refused = first.apply(delta(2, vec![gap], &["a"])).unwrap_err();
        assert_eq!(refused, ImageError::PartitionNumbers { topic: "b".into() });
        let refused = first
            .apply(delta(2, vec![topic("b", 1, 1)], &[]))
            .unwrap_err();
        let (topic, other) = ("b".to_owned(), "a".to_owned());
        assert_eq!(refused, ImageError::SharedTopicId { topic, other });
        assert!(first.topic("a").is_some());
    }

    #[test]
    fn topics_without_an_id_live_by_name_only() {
        let first = image(vec![topic("a", 0, 1), topic("b", 0, 1)]);
        assert_eq!(first.topic_count(), 2);
        assert!(first.topic_by_id(&NO_TOPIC_ID).is_none());
    }

    #[test]
    fn brokers_are_found_by_id_and_listener() {
        let image = image(vec![topic("a", 1, 1)])
            .apply(delta(2, vec![], &[]))
            .unwrap();
        let ids: Vec<_> = image
            .endpoints("PLAINTEXT")
            .map(|end| end.node_id)
            .collect();
        assert_eq!(ids, [1, 2]);
        let one = image.endpoint(1, "PLAINTEXT").unwrap();
        assert_eq!((one.host, one.port, one.rack), ("host-1", 9092, Some("r1")));
        assert!(image.endpoint(1, "SSL").is_none() && image.endpoint(3, "PLAINTEXT").is_none());
        assert_eq!(image.leader("a", 0), Some((1, 5)));
        assert_eq!(image.leader("a", 1), None);
        assert_eq!(image.leader("a", -1), None);
    }
}
