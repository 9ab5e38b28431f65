//! Metadata, versions 0 to 12.
//!
//! Version notes: 0 an empty list asks for all topics; 1 null does, rack, controller and internal
//! flag; 2 cluster id; 3 throttle time; 4 topic creation is optional; 5 offline replicas; 7 leader
//! epoch; 8 authorized operations; 9 flexible; 10 topic ids; 11 no cluster authorized operations;
//! 12 topics without a name.
#![allow(missing_docs)] // Docs say what the protocol's own names do not.

mod response;

pub use response::{
    MetadataHead, MetadataPartition, MetadataResponse, MetadataResponseWriter, MetadataTopic,
};

use crate::api::{self, key};
use crate::error::{DecodeError, Result};
use crate::reader::{Reader, Uuid};
use crate::writer::Writer;

const CREATION_SINCE: i16 = 4;
const OPERATIONS_SINCE: i16 = 8;
const CLUSTER_OPERATIONS_UNTIL: i16 = 10;
/// First flexible version.
pub const FLEXIBLE_SINCE: i16 = 9;
/// First version with topic ids.
pub const TOPIC_IDS_SINCE: i16 = 10;
/// First version in which a topic of the reply may lack a name.
pub const NULL_NAMES_SINCE: i16 = 12;
/// "Not asked for" in the authorized operations of a reply.
pub const OPERATIONS_OMITTED: i32 = i32::MIN;

fn check_version(version: i16) -> Result<()> {
    api::check_version(key::METADATA, 0, version)
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MetadataRequest<'a> {
    /// Requested topics; `None` for all.
    pub topics: Option<Vec<MetadataRequestTopic<'a>>>,
    /// Missing topics may be created (always before version 4).
    pub allow_auto_topic_creation: bool,
    /// Version 8 to 10.
    pub include_cluster_authorized_operations: bool,
    /// Version 8 on.
    pub include_topic_authorized_operations: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MetadataRequestTopic<'a> {
    /// Topic id, zero when asked by name (version 10 on).
    pub id: Uuid,
    /// Name; may be null from version 10 on.
    pub name: Option<&'a str>,
}

impl<'a> MetadataRequest<'a> {
    /// Decodes a body; later bytes are ignored, as in Kafka.
    pub fn decode(body: &'a [u8], version: i16) -> Result<Self> {
        check_version(version)?;
        let mut reader = Reader::of_request(body, 0, version >= FLEXIBLE_SINCE);
        let topics = reader.nullable_array(2, |reader| {
            let has_id = version >= TOPIC_IDS_SINCE;
            let id = if has_id {
                reader.uuid()?
            } else {
                Uuid::default()
            };
            let name = if has_id {
                reader.nullable_string()?
            } else {
                Some(reader.string()?)
            };
            reader.skip_tags()?;
            Ok(MetadataRequestTopic { id, name })
        })?;
        let topics = match topics {
            None if version == 0 => return Err(DecodeError::UnexpectedNull(-1)),
            Some(topics) if version == 0 && topics.is_empty() => None,
            topics => topics,
        };
        let allow_auto_topic_creation = version < CREATION_SINCE || reader.bool()?;
        let has_cluster = (OPERATIONS_SINCE..=CLUSTER_OPERATIONS_UNTIL).contains(&version);
        let include_cluster_authorized_operations = has_cluster && reader.bool()?;
        let include_topic_authorized_operations = version >= OPERATIONS_SINCE && reader.bool()?;
        reader.skip_tags()?;
        Ok(MetadataRequest {
            topics,
            allow_auto_topic_creation,
            include_cluster_authorized_operations,
            include_topic_authorized_operations,
        })
    }

    pub fn encode(&self, out: &mut Vec<u8>, version: i16) {
        let mut writer = Writer::new(out, version >= FLEXIBLE_SINCE);
        match &self.topics {
            None if version == 0 => writer.array_len(0),
            topics => writer.nullable_array(topics.as_deref(), |writer, topic| {
                if version >= TOPIC_IDS_SINCE {
                    writer.uuid(&topic.id);
                    writer.nullable_string(topic.name);
                } else {
                    writer.string(topic.name.unwrap_or_default());
                }
                writer.no_tags();
            }),
        }
        if version >= CREATION_SINCE {
            writer.bool(self.allow_auto_topic_creation);
        }
        if (OPERATIONS_SINCE..=CLUSTER_OPERATIONS_UNTIL).contains(&version) {
            writer.bool(self.include_cluster_authorized_operations);
        }
        if version >= OPERATIONS_SINCE {
            writer.bool(self.include_topic_authorized_operations);
        }
        writer.no_tags();
    }
}
