//! Answers to Metadata, versions 0 to 12, from the image.
//!
//! By Kafka 3.9's rules a request with topic ids is about those alone. A dead leader gives
//! LEADER_NOT_AVAILABLE; one without the client's listener LISTENER_NOT_FOUND (before version 6
//! LEADER_NOT_AVAILABLE); both with leader -1. An unreachable leader counts as dead before the
//! controller decides. Version 0 omits unreachable replicas and says REPLICA_NOT_AVAILABLE.

pub mod handle;

use std::borrow::Cow;
use std::collections::HashSet;

use pyrklog_wire::ErrorCode;
use pyrklog_wire::metadata::{
    MetadataHead, MetadataPartition, MetadataRequest, MetadataRequestTopic, MetadataResponseWriter,
    MetadataTopic, OPERATIONS_OMITTED,
};

use pyrklog_base::ids::{TOPIC_NAME_BYTES_MAX, TopicId};
use pyrklog_control::image::{Image, NO_TOPIC_ID, TopicState};
use pyrklog_control::seam::PartitionImage;

/// About the size of a topic in an answer, without partitions.
const TOPIC_REPLY_BYTES: usize = 64;

const ASK_BY_ID_SINCE: i16 = 12;

const LISTENER_NOT_FOUND_SINCE: i16 = 6;

/// All topic operations, one bit each by ACL code: read 3, write 4, create 5, delete 6, alter 7,
/// describe 8, describe configs 10, alter configs 11.
const TOPIC_OPERATIONS: i32 = 0b1101_1111_1000;

/// All cluster operations: create 5, alter 7, describe 8, cluster action 9, describe configs 10,
/// alter configs 11, idempotent write 12.
const CLUSTER_OPERATIONS: i32 = 0b1_1111_1010_0000;

/// Known topics of these names have [`TopicState::internal`].
const INTERNAL_TOPICS: [&str; 2] = ["__consumer_offsets", "__transaction_state"];

/// Kafka's rule: 1 to 249 of `[a-zA-Z0-9._-]`, but not `.` or `..`.
pub fn is_legal_topic_name(name: &str) -> bool {
    let legal = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'.' | b'_' | b'-');
    (1..=TOPIC_NAME_BYTES_MAX).contains(&name.len())
        && name != "."
        && name != ".."
        && name.bytes().all(legal)
}

/// Topics that are missing and may be created: the control plane tries before [`answer`]. Names are
/// legal and unique. `auto_create` is `auto.create.topics.enable`.
pub fn missing_topics(
    image: &Image,
    request: &MetadataRequest<'_>,
    version: i16,
    auto_create: bool,
) -> Vec<String> {
    match Asked::of(request, version) {
        Asked::Names(names) if auto_create && request.allow_auto_topic_creation => names
            .into_iter()
            .filter(|name| image.topic(name).is_none() && is_legal_topic_name(name))
            .map(str::to_owned)
            .collect(),
        _ => Vec::new(),
    }
}

/// About the answer's size, without what it repeats of the request.
pub fn reply_bytes(image: &Image, request: &MetadataRequest<'_>, version: i16) -> usize {
    let of_known = |topic: &TopicState| {
        let replicas = topic.partitions.first().map_or(0, |one| one.replicas.len());
        // 32 bytes, and two or three lists of broker ids.
        TOPIC_REPLY_BYTES + topic.partitions.len() * (32 + 12 * replicas)
    };
    let of_topics: usize = match Asked::of(request, version) {
        Asked::All => image.topics().map(|topic| of_known(topic)).sum(),
        Asked::Names(names) => {
            let known = names.into_iter().filter_map(|name| image.topic(name));
            known.map(|topic| of_known(topic)).sum()
        }
        Asked::Ids(ids) => {
            let known = ids.iter().filter_map(|id| image.topic_by_id(id));
            known.map(|topic| of_known(topic)).sum()
        }
        Asked::Nonsense(_) => 0,
    };
    let asked = request.topics.as_ref().map_or(0, Vec::len);
    of_topics + asked * TOPIC_REPLY_BYTES
}

/// The client, and facts besides the image.
#[derive(Clone, Copy, Debug)]
pub struct MetadataParams<'a> {
    /// The client's listener, which selects the endpoints.
    pub listener: &'a str,
    /// Cluster id.
    pub cluster_id: &'a str,
    /// Unreachable leaders, which the image still has.
    pub absent: &'a [i32],
    /// Error codes of topics that could not be created.
    pub errors: &'a [(String, i16)],
}

/// Appends the answer's body.
pub fn answer(
    image: &Image,
    request: &MetadataRequest<'_>,
    version: i16,
    params: MetadataParams<'_>,
    out: &mut Vec<u8>,
) {
    let asked = Asked::of(request, version);
    if let Asked::Nonsense(topics) = asked {
        refuse(topics, version, out);
        return;
    }
    let view = View::new(
        image,
        version,
        params,
        request.include_topic_authorized_operations,
    );
    let head = MetadataHead {
        throttle_ms: 0,
        brokers: image.endpoints(params.listener).collect(),
        cluster_id: Some(params.cluster_id),
        controller_id: image.controller_id(),
    };
    let count = match &asked {
        Asked::All => image.topic_count(),
        Asked::Names(names) => names.len(),
        Asked::Ids(ids) => ids.len(),
        Asked::Nonsense(_) => 0,
    };
    let mut writer = MetadataResponseWriter::begin(out, version, &head, count);
    match asked {
        Asked::All => image
            .topics()
            .for_each(|topic| writer.topic(&view.known(topic))),
        Asked::Names(names) => {
            names
                .into_iter()
                .for_each(|name| writer.topic(&view.by_name(name)));
        }
        Asked::Ids(ids) => ids.into_iter().for_each(|id| writer.topic(&view.by_id(id))),
        Asked::Nonsense(_) => {}
    }
    writer.end(match request.include_cluster_authorized_operations {
        true => CLUSTER_OPERATIONS,
        false => OPERATIONS_OMITTED,
    });
}

/// Requested topics, each once, in request order.
enum Asked<'r> {
    All,
    Names(Vec<&'r str>),
    Ids(Vec<TopicId>),
    /// A topic without name and id, or an id before version 12: refused.
    Nonsense(&'r [MetadataRequestTopic<'r>]),
}

impl<'r> Asked<'r> {
    fn of(request: &'r MetadataRequest<'r>, version: i16) -> Self {
        let Some(topics) = &request.topics else {
            return Asked::All;
        };
        let has_id = |topic: &MetadataRequestTopic<'_>| topic.id != NO_TOPIC_ID;
        let is_nonsense = |topic: &MetadataRequestTopic<'_>| {
            if has_id(topic) {
                version < ASK_BY_ID_SINCE
            } else {
                topic.name.is_none()
            }
        };
        if topics.iter().any(is_nonsense) {
            return Asked::Nonsense(topics);
        }
        if topics.iter().any(has_id) {
            let ids = topics
                .iter()
                .filter(|topic| has_id(topic))
                .map(|topic| topic.id);
            return Asked::Ids(once_each(ids, topics.len()));
        }
        Asked::Names(once_each(
            topics.iter().filter_map(|topic| topic.name),
            topics.len(),
        ))
    }
}

fn once_each<T: Copy + Eq + std::hash::Hash>(
    items: impl Iterator<Item = T>,
    count: usize,
) -> Vec<T> {
    if count < 2 {
        return items.collect();
    }
    let mut seen = HashSet::with_capacity(count);
    items.filter(|item| seen.insert(*item)).collect()
}

/// Kafka's answer to nonsense: no brokers, INVALID_REQUEST for each topic.
fn refuse(topics: &[MetadataRequestTopic<'_>], version: i16, out: &mut Vec<u8>) {
    let head = MetadataHead {
        throttle_ms: 0,
        brokers: vec![],
        cluster_id: None,
        controller_id: -1,
    };
    let mut writer = MetadataResponseWriter::begin(out, version, &head, topics.len());
    for topic in topics {
        let name = Some(topic.name.unwrap_or_default());
        let mut refused = failed(name, ErrorCode::INVALID_REQUEST);
        refused.id = topic.id;
        writer.topic(&refused);
    }
    writer.end(OPERATIONS_OMITTED);
}

fn failed(name: Option<&str>, error_code: ErrorCode) -> MetadataTopic<'_> {
    MetadataTopic {
        error_code,
        name,
        id: NO_TOPIC_ID,
        is_internal: false,
        partitions: vec![],
        authorized_operations: OPERATIONS_OMITTED,
    }
}

/// The image as one client sees it.
struct View<'a> {
    image: &'a Image,
    version: i16,
    params: MetadataParams<'a>,
    /// Live brokers that the client can reach, ascending.
    reachable: Vec<i32>,
    topic_operations: i32,
}

impl<'a> View<'a> {
    fn new(
        image: &'a Image,
        version: i16,
        params: MetadataParams<'a>,
        with_operations: bool,
    ) -> Self {
        View {
            image,
            version,
            params,
            reachable: image
                .endpoints(params.listener)
                .map(|end| end.node_id)
                .collect(),
            topic_operations: if with_operations {
                TOPIC_OPERATIONS
            } else {
                OPERATIONS_OMITTED
            },
        }
    }

    fn by_name<'t>(&self, name: &'t str) -> MetadataTopic<'t>
    where
        'a: 't,
    {
        if let Some(topic) = self.image.topic(name) {
            return self.known(topic);
        }
        let told = self.params.errors.iter().find(|(topic, _)| topic == name);
        let error_code = match told {
            Some((_, code)) => ErrorCode(*code),
            None if is_legal_topic_name(name) => ErrorCode::UNKNOWN_TOPIC_OR_PARTITION,
            None => ErrorCode::INVALID_TOPIC_EXCEPTION,
        };
        MetadataTopic {
            is_internal: INTERNAL_TOPICS.contains(&name),
            authorized_operations: self.topic_operations,
            ..failed(Some(name), error_code)
        }
    }

    fn by_id(&self, id: TopicId) -> MetadataTopic<'a> {
        match self.image.topic_by_id(&id) {
            Some(topic) => self.known(topic),
            None => MetadataTopic {
                id,
                ..failed(None, ErrorCode::UNKNOWN_TOPIC_ID)
            },
        }
    }

    fn known(&self, topic: &'a TopicState) -> MetadataTopic<'a> {
        MetadataTopic {
            error_code: ErrorCode::NONE,
            name: Some(&topic.name),
            id: topic.id,
            is_internal: topic.internal,
            partitions: topic
                .partitions
                .iter()
                .map(|part| self.partition(part))
                .collect(),
            authorized_operations: self.topic_operations,
        }
    }

    fn is_reachable(&self, broker: i32) -> bool {
        self.reachable.binary_search(&broker).is_ok()
    }

    fn is_absent(&self, broker: i32) -> bool {
        self.params.absent.contains(&broker)
    }

    fn partition(&self, partition: &'a PartitionImage) -> MetadataPartition<'a> {
        let replicas = self.visible(&partition.replicas);
        let isr = self.visible(&partition.isr);
        let has_leader = self.is_reachable(partition.leader) && !self.is_absent(partition.leader);
        let error_code = if !has_leader {
            self.leader_error(partition.leader)
        } else if replicas.len() < partition.replicas.len() || isr.len() < partition.isr.len() {
            ErrorCode::REPLICA_NOT_AVAILABLE
        } else {
            ErrorCode::NONE
        };
        MetadataPartition {
            error_code,
            index: partition.index,
            leader_id: if has_leader { partition.leader } else { -1 },
            leader_epoch: partition.leader_epoch,
            replicas,
            isr,
            offline: Cow::Borrowed(&partition.offline),
        }
    }

    fn leader_error(&self, leader: i32) -> ErrorCode {
        let is_alive = self.image.broker(leader).is_some() && !self.is_absent(leader);
        if is_alive && self.version >= LISTENER_NOT_FOUND_SINCE {
            ErrorCode::LISTENER_NOT_FOUND
        } else {
            ErrorCode::LEADER_NOT_AVAILABLE
        }
    }

    /// Replicas as this version shows them: version 0 only reachable ones.
    fn visible(&self, replicas: &'a [i32]) -> Cow<'a, [i32]> {
        if self.version > 0 || replicas.iter().all(|id| self.is_reachable(*id)) {
            return Cow::Borrowed(replicas);
        }
        replicas
            .iter()
            .copied()
            .filter(|id| self.is_reachable(*id))
            .collect()
    }
}

#[cfg(test)]
mod tests;
