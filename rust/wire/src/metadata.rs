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

use crate::error::{DecodeError, Result};
use crate::message::{Field, NullableSince, body, fields};
use crate::reader::{Reader, Uuid};
use crate::writer::Writer;

/// First version with topic ids.
pub const TOPIC_IDS_SINCE: i16 = 10;
/// First version in which a topic of the reply may lack a name.
pub const NULL_NAMES_SINCE: i16 = 12;
/// "Not asked for" in the authorized operations of a reply.
pub const OPERATIONS_OMITTED: i32 = i32::MIN;

fields! {
    #[derive(Clone, Debug, PartialEq, Eq)]
    pub struct MetadataRequest<'a> {
        /// Requested topics; `None` for all.
        pub topics: Option<Vec<MetadataRequestTopic<'a>>> [by TopicsOrAll],
        /// Missing topics may be created.
        pub allow_auto_topic_creation: bool [in 4.., else true],
        pub include_cluster_authorized_operations: bool [in 8..=10, else false],
        pub include_topic_authorized_operations: bool [in 8.., else false],
    }
}

fields! {
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub struct MetadataRequestTopic<'a> {
        /// Topic id, zero when asked by name.
        pub id: Uuid [in TOPIC_IDS_SINCE.., else Uuid::default()],
        /// Name; may be null from version 10 on.
        pub name: Option<&'a str> [by NullableSince<TOPIC_IDS_SINCE>],
    }
}

body!(request METADATA from 0: MetadataRequest<'a>);

/// The topics of a request: all are null, but in version 0 none.
enum TopicsOrAll {}

impl<'a> Field<'a> for TopicsOrAll {
    type Value = Option<Vec<MetadataRequestTopic<'a>>>;

    fn read(reader: &mut Reader<'a>, version: i16) -> Result<Self::Value> {
        let topics = Option::<Vec<_>>::read(reader, version)?;
        match topics {
            None if version == 0 => Err(DecodeError::UnexpectedNull(-1)),
            Some(topics) if version == 0 && topics.is_empty() => Ok(None),
            topics => Ok(topics),
        }
    }

    fn write(value: &Self::Value, writer: &mut Writer<'_>, version: i16) {
        match value {
            None if version == 0 => writer.array_len(0),
            topics => Option::<Vec<_>>::write(topics, writer, version),
        }
    }

    fn min_bytes(version: i16, flexible: bool) -> usize {
        Option::<Vec<MetadataRequestTopic<'_>>>::min_bytes(version, flexible)
    }
}
