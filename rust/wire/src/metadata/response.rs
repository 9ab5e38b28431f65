//! Metadata responses.
#![allow(missing_docs)] // Docs say what the protocol's own names do not.

use std::borrow::Cow;

use super::{
    CLUSTER_OPERATIONS_UNTIL, FLEXIBLE_SINCE, NULL_NAMES_SINCE, OPERATIONS_OMITTED,
    OPERATIONS_SINCE, TOPIC_IDS_SINCE, check_version,
};
use crate::error::Result;
use crate::error_code::ErrorCode;
use crate::leader::NodeEndpoint;
use crate::reader::{Reader, Uuid};
use crate::writer::Writer;

const RACK_SINCE: i16 = 1;
const CONTROLLER_SINCE: i16 = 1;
const CLUSTER_ID_SINCE: i16 = 2;
const THROTTLE_SINCE: i16 = 3;
const OFFLINE_SINCE: i16 = 5;
const LEADER_EPOCH_SINCE: i16 = 7;

/// What stands before the topics.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MetadataHead<'a> {
    /// Throttle time in milliseconds (version 3 on).
    pub throttle_ms: i32,
    /// Live brokers; racks from version 1 on.
    pub brokers: Vec<NodeEndpoint<'a>>,
    /// Cluster id (version 2 on).
    pub cluster_id: Option<&'a str>,
    /// The controller's broker id, -1 none (version 1 on).
    pub controller_id: i32,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MetadataTopic<'a> {
    pub error_code: ErrorCode,
    /// Name; may be null from version 12 on; written as empty before.
    pub name: Option<&'a str>,
    /// Topic id, zero unknown (version 10 on).
    pub id: Uuid,
    /// `__consumer_offsets` and its like (version 1 on).
    pub is_internal: bool,
    pub partitions: Vec<MetadataPartition<'a>>,
    /// One bit an operation, or [`OPERATIONS_OMITTED`] (version 8 on).
    pub authorized_operations: i32,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MetadataPartition<'a> {
    pub error_code: ErrorCode,
    pub index: i32,
    /// Leader's broker id, -1 none.
    pub leader_id: i32,
    /// Leader epoch, -1 unknown (version 7 on).
    pub leader_epoch: i32,
    pub replicas: Cow<'a, [i32]>,
    pub isr: Cow<'a, [i32]>,
    /// Offline replicas (version 5 on).
    pub offline: Cow<'a, [i32]>,
}

/// Encodes a response. As many topics as announced must follow.
#[derive(Debug)]
pub struct MetadataResponseWriter<'a> {
    writer: Writer<'a>,
    version: i16,
    topics_left: usize,
}

impl<'a> MetadataResponseWriter<'a> {
    /// Starts the body. `version` is one of 0 to 12.
    pub fn begin(
        out: &'a mut Vec<u8>,
        version: i16,
        head: &MetadataHead<'_>,
        topic_count: usize,
    ) -> Self {
        let mut writer = Writer::new(out, version >= FLEXIBLE_SINCE);
        if version >= THROTTLE_SINCE {
            writer.i32(head.throttle_ms);
        }
        writer.array(&head.brokers, |writer, broker| {
            writer.i32(broker.node_id);
            writer.string(broker.host);
            writer.i32(broker.port);
            if version >= RACK_SINCE {
                writer.nullable_string(broker.rack);
            }
            writer.no_tags();
        });
        if version >= CLUSTER_ID_SINCE {
            writer.nullable_string(head.cluster_id);
        }
        if version >= CONTROLLER_SINCE {
            writer.i32(head.controller_id);
        }
        writer.array_len(topic_count);
        MetadataResponseWriter {
            writer,
            version,
            topics_left: topic_count,
        }
    }

    pub fn topic(&mut self, topic: &MetadataTopic<'_>) {
        debug_assert!(self.topics_left > 0, "topics miscounted");
        self.topics_left -= 1;
        encode_topic(self.writer.out(), self.version, topic);
    }

    pub fn end(mut self, cluster_authorized_operations: i32) {
        debug_assert!(self.topics_left == 0, "body incomplete");
        if (OPERATIONS_SINCE..=CLUSTER_OPERATIONS_UNTIL).contains(&self.version) {
            self.writer.i32(cluster_authorized_operations);
        }
        self.writer.no_tags();
    }
}

/// Appends one topic in the form of `version`.
fn encode_topic(out: &mut Vec<u8>, version: i16, topic: &MetadataTopic<'_>) {
    let mut writer = Writer::new(out, version >= FLEXIBLE_SINCE);
    writer.i16(topic.error_code.0);
    if version >= NULL_NAMES_SINCE {
        writer.nullable_string(topic.name);
    } else {
        writer.string(topic.name.unwrap_or_default());
    }
    if version >= TOPIC_IDS_SINCE {
        writer.uuid(&topic.id);
    }
    if version >= 1 {
        writer.bool(topic.is_internal);
    }
    writer.array(&topic.partitions, |writer, partition| {
        writer.i16(partition.error_code.0);
        writer.i32(partition.index);
        writer.i32(partition.leader_id);
        if version >= LEADER_EPOCH_SINCE {
            writer.i32(partition.leader_epoch);
        }
        writer.array(&partition.replicas, |writer, id| writer.i32(*id));
        writer.array(&partition.isr, |writer, id| writer.i32(*id));
        if version >= OFFLINE_SINCE {
            writer.array(&partition.offline, |writer, id| writer.i32(*id));
        }
        writer.no_tags();
    });
    if version >= OPERATIONS_SINCE {
        writer.i32(topic.authorized_operations);
    }
    writer.no_tags();
}

/// A decoded response (load generator, tests).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MetadataResponse<'a> {
    /// What stands before the topics.
    pub head: MetadataHead<'a>,
    pub topics: Vec<MetadataTopic<'a>>,
    /// One bit an operation, or [`OPERATIONS_OMITTED`] (versions 8 to 10).
    pub cluster_authorized_operations: i32,
}

impl<'a> MetadataResponse<'a> {
    pub fn decode(body: &'a [u8], version: i16) -> Result<Self> {
        check_version(version)?;
        let mut reader = Reader::new(body, version >= FLEXIBLE_SINCE);
        let throttle_ms = if version >= THROTTLE_SINCE {
            reader.i32()?
        } else {
            0
        };
        let brokers = reader.array(10, |reader| {
            let node_id = reader.i32()?;
            let host = reader.string()?;
            let port = reader.i32()?;
            let rack = if version >= RACK_SINCE {
                reader.nullable_string()?
            } else {
                None
            };
            reader.skip_tags()?;
            Ok(NodeEndpoint {
                node_id,
                host,
                port,
                rack,
            })
        })?;
        let cluster_id = if version >= CLUSTER_ID_SINCE {
            reader.nullable_string()?
        } else {
            None
        };
        let controller_id = if version >= CONTROLLER_SINCE {
            reader.i32()?
        } else {
            -1
        };
        let topics = reader.array(5, |reader| decode_topic(reader, version))?;
        let has_cluster = (OPERATIONS_SINCE..=CLUSTER_OPERATIONS_UNTIL).contains(&version);
        let cluster_authorized_operations = if has_cluster {
            reader.i32()?
        } else {
            OPERATIONS_OMITTED
        };
        reader.skip_tags()?;
        reader.expect_end()?;
        let head = MetadataHead {
            throttle_ms,
            brokers,
            cluster_id,
            controller_id,
        };
        Ok(MetadataResponse {
            head,
            topics,
            cluster_authorized_operations,
        })
    }

    pub fn encode(&self, out: &mut Vec<u8>, version: i16) {
        let mut writer = MetadataResponseWriter::begin(out, version, &self.head, self.topics.len());
        for topic in &self.topics {
            writer.topic(topic);
        }
        writer.end(self.cluster_authorized_operations);
    }
}

fn decode_topic<'a>(reader: &mut Reader<'a>, version: i16) -> Result<MetadataTopic<'a>> {
    let error_code = ErrorCode(reader.i16()?);
    let name = if version >= NULL_NAMES_SINCE {
        reader.nullable_string()?
    } else {
        Some(reader.string()?)
    };
    let id = if version >= TOPIC_IDS_SINCE {
        reader.uuid()?
    } else {
        Uuid::default()
    };
    let is_internal = version >= 1 && reader.bool()?;
    let partitions = reader.array(12, |reader| decode_partition(reader, version))?;
    let authorized_operations = if version >= OPERATIONS_SINCE {
        reader.i32()?
    } else {
        OPERATIONS_OMITTED
    };
    reader.skip_tags()?;
    Ok(MetadataTopic {
        error_code,
        name,
        id,
        is_internal,
        partitions,
        authorized_operations,
    })
}

fn decode_partition<'a>(reader: &mut Reader<'a>, version: i16) -> Result<MetadataPartition<'a>> {
    let error_code = ErrorCode(reader.i16()?);
    let index = reader.i32()?;
    let leader_id = reader.i32()?;
    let leader_epoch = if version >= LEADER_EPOCH_SINCE {
        reader.i32()?
    } else {
        -1
    };
    let replicas = reader.array(4, |reader| reader.i32())?.into();
    let isr = reader.array(4, |reader| reader.i32())?.into();
    let offline = match version >= OFFLINE_SINCE {
        true => reader.array(4, |reader| reader.i32())?.into(),
        false => Cow::Borrowed(&[][..]),
    };
    reader.skip_tags()?;
    Ok(MetadataPartition {
        error_code,
        index,
        leader_id,
        leader_epoch,
        replicas,
        isr,
        offline,
    })
}
