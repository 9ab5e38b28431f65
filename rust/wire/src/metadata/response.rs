//! Metadata responses.
#![allow(missing_docs)] // Docs say what the protocol's own names do not.

use std::borrow::Cow;

use super::{NULL_NAMES_SINCE, OPERATIONS_OMITTED, TOPIC_IDS_SINCE};
use crate::api::{is_flexible, key};
use crate::error::Result;
use crate::error_code::ErrorCode;
use crate::leader::NodeEndpoint;
use crate::message::{Field, NullableSince, body, fields};
use crate::reader::{Reader, Uuid};
use crate::writer::Writer;

fields! {
    /// What stands before the topics.
    #[derive(Clone, Debug, PartialEq, Eq)]
    pub part MetadataHead<'a> {
        /// Throttle time in milliseconds.
        pub throttle_ms: i32 [in 3.., else 0],
        /// Live brokers.
        pub brokers: Vec<NodeEndpoint<'a>>,
        pub cluster_id: Option<&'a str> [in 2.., else None],
        /// The controller's broker id, -1 none.
        pub controller_id: i32 [in 1.., else -1],
    }
}

fields! {
    #[derive(Clone, Debug, PartialEq, Eq)]
    pub struct MetadataTopic<'a> {
        pub error_code: ErrorCode,
        /// Name; may be null from version 12 on; written as empty before.
        pub name: Option<&'a str> [by NullableSince<NULL_NAMES_SINCE>],
        /// Topic id, zero unknown.
        pub id: Uuid [in TOPIC_IDS_SINCE.., else Uuid::default()],
        /// `__consumer_offsets` and its like.
        pub is_internal: bool [in 1.., else false],
        pub partitions: Vec<MetadataPartition<'a>>,
        /// One bit an operation, or [`OPERATIONS_OMITTED`].
        pub authorized_operations: i32 [in 8.., else OPERATIONS_OMITTED],
    }
}

fields! {
    #[derive(Clone, Debug, PartialEq, Eq)]
    pub struct MetadataPartition<'a> {
        pub error_code: ErrorCode,
        pub index: i32,
        /// Leader's broker id, -1 none.
        pub leader_id: i32,
        /// Leader epoch, -1 unknown.
        pub leader_epoch: i32 [in 7.., else -1],
        pub replicas: Cow<'a, [i32]>,
        pub isr: Cow<'a, [i32]>,
        /// Offline replicas.
        pub offline: Cow<'a, [i32]> [in 5.., else Cow::default()],
    }
}

fields! {
    /// A decoded response (load generator, tests).
    #[derive(Clone, Debug, PartialEq, Eq)]
    pub struct MetadataResponse<'a> {
        /// What stands before the topics.
        pub head: MetadataHead<'a>,
        pub topics: Vec<MetadataTopic<'a>>,
        /// One bit an operation, or [`OPERATIONS_OMITTED`].
        pub cluster_authorized_operations: i32 [in 8..=10, else OPERATIONS_OMITTED],
    }
}

body!(response METADATA from 0: MetadataResponse<'a>);

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
        let mut writer = Writer::new(out, is_flexible(key::METADATA, version));
        MetadataHead::write(head, &mut writer, version);
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
        MetadataTopic::write(topic, &mut self.writer, self.version);
    }

    pub fn end(mut self, cluster_authorized_operations: i32) {
        debug_assert!(self.topics_left == 0, "body incomplete");
        if (8..=10).contains(&self.version) {
            self.writer.i32(cluster_authorized_operations);
        }
        self.writer.no_tags();
    }
}
