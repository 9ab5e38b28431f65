//! Produce requests.
#![allow(missing_docs)] // Docs say what the protocol's own names do not.

use super::{BATCHES_SINCE, FLEXIBLE_SINCE, check_version};
use crate::api::{self, key};
use crate::error::Result;
use crate::reader::Reader;
use crate::span::{Span, clear_reusable};
use crate::writer::Writer;

/// Of a partition of ProduceAt: where the log is to end before.
const EXPECTED_END_TAG: u32 = 0;

/// A Produce request as spans of its frame. Reuse it: [`ProduceRequest::decode`] keeps its vectors'
/// memory.
#[derive(Clone, Debug, Default)]
pub struct ProduceRequest {
    pub transactional_id: Option<Span>,
    /// 0, 1 or -1 (all); the caller refuses others.
    pub acks: i16,
    /// How long the reply may wait for replicas, in milliseconds.
    pub timeout_ms: i32,
    pub topics: Vec<ProduceTopic>,
    /// Partitions of all topics, in order.
    pub partitions: Vec<ProducePartition>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ProduceTopic {
    /// Name; valid UTF-8.
    pub name: Span,
    /// Index of its first partition in [`ProduceRequest::partitions`].
    pub first_partition: usize,
    pub partition_count: usize,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ProducePartition {
    /// Index of its topic in [`ProduceRequest::topics`].
    pub topic: usize,
    pub index: i32,
    /// The record batches, or a message set below version 3, unchecked; `None` for null.
    pub records: Option<Span>,
    /// Of ProduceAt: where the log is to end before, -1 if the request does not say; else `None`.
    pub expected_end: Option<i64>,
}

impl ProduceRequest {
    /// Decodes the request whose body starts at `body_start` of `frame`; spans count from the start
    /// of `frame`. Later bytes are ignored, as in Kafka.
    ///
    /// # Errors
    /// `UnsupportedVersion` below 0 and above 12, else malformed bytes. The content is then
    /// unspecified.
    pub fn decode(&mut self, frame: &[u8], body_start: usize, version: i16) -> Result<()> {
        check_version(version)?;
        self.read(frame, body_start, version, |reader| {
            reader.skip_tags()?;
            Ok(None)
        })
    }

    /// Decodes a ProduceAt request in the same way: the body of a flexible Produce, in which each
    /// partition has the tagged field 0, an INT64.
    ///
    /// # Errors
    /// `UnsupportedVersion` of a version that is not flexible, else as [`ProduceRequest::decode`].
    pub fn decode_at(&mut self, frame: &[u8], body_start: usize, version: i16) -> Result<()> {
        api::check_version(key::PRODUCE_AT, FLEXIBLE_SINCE, version)?;
        self.read(frame, body_start, version, |reader| {
            let mut end = -1;
            reader.tags(|tag, field| {
                if tag == EXPECTED_END_TAG {
                    end = field.i64()?;
                }
                Ok(tag == EXPECTED_END_TAG)
            })?;
            Ok(Some(end))
        })
    }

    /// `read_end` reads what a partition's tagged fields say.
    #[inline]
    fn read(
        &mut self,
        frame: &[u8],
        body_start: usize,
        version: i16,
        read_end: impl Fn(&mut Reader<'_>) -> Result<Option<i64>>,
    ) -> Result<()> {
        clear_reusable(&mut self.topics);
        clear_reusable(&mut self.partitions);
        let mut reader = Reader::of_request(frame, body_start, version >= FLEXIBLE_SINCE);
        self.transactional_id = match version >= BATCHES_SINCE {
            true => reader.nullable_string_span()?,
            false => None,
        };
        self.acks = reader.i16()?;
        self.timeout_ms = reader.i32()?;
        let topic_count = reader.array_len(3)?;
        for topic in 0..topic_count {
            let name = reader.string_span()?;
            let partition_count = reader.array_len(5)?;
            let first_partition = self.partitions.len();
            for _ in 0..partition_count {
                let index = reader.i32()?;
                let records = reader.nullable_bytes_span()?;
                let expected_end = read_end(&mut reader)?;
                self.partitions.push(ProducePartition {
                    topic,
                    index,
                    records,
                    expected_end,
                });
            }
            reader.skip_tags()?;
            self.topics.push(ProduceTopic {
                name,
                first_partition,
                partition_count,
            });
        }
        reader.skip_tags()
    }

    pub fn partitions_of(&self, topic: &ProduceTopic) -> &[ProducePartition] {
        &self.partitions[topic.first_partition..][..topic.partition_count]
    }
}

/// A topic of a request to be written.
#[derive(Clone, Copy, Debug)]
pub struct TopicToProduce<'a> {
    pub name: &'a str,
    /// (partition index, record batches or null).
    pub partitions: &'a [(i32, Option<&'a [u8]>)],
}

/// Appends the body of a request (load generator, tests).
pub fn encode_request(
    out: &mut Vec<u8>,
    version: i16,
    transactional_id: Option<&str>,
    acks: i16,
    timeout_ms: i32,
    topics: &[TopicToProduce<'_>],
) {
    let mut writer = Writer::new(out, version >= FLEXIBLE_SINCE);
    if version >= BATCHES_SINCE {
        writer.nullable_string(transactional_id);
    }
    writer.i16(acks);
    writer.i32(timeout_ms);
    writer.array(topics, |writer, topic| {
        writer.string(topic.name);
        writer.array(topic.partitions, |writer, (index, records)| {
            writer.i32(*index);
            writer.nullable_bytes(*records);
            writer.no_tags();
        });
        writer.no_tags();
    });
    writer.no_tags();
}

/// A partition of a ProduceAt request to be written.
#[derive(Clone, Copy, Debug)]
pub struct PartitionToProduceAt<'a> {
    pub index: i32,
    /// Where the log is to end before.
    pub expected_end: i64,
    /// One batch.
    pub records: &'a [u8],
}

/// Appends the body of a ProduceAt request: topics with their partitions, for all replicas in sync.
pub fn encode_request_at(
    out: &mut Vec<u8>,
    timeout_ms: i32,
    topics: &[(&str, Vec<PartitionToProduceAt<'_>>)],
) {
    let mut writer = Writer::new(out, true);
    writer.nullable_string(None);
    writer.i16(-1);
    writer.i32(timeout_ms);
    writer.array(topics, |writer, (name, partitions)| {
        writer.string(name);
        writer.array(partitions, |writer, partition| {
            writer.i32(partition.index);
            writer.nullable_bytes(Some(partition.records));
            writer.tag_count(1);
            writer.tagged_field(EXPECTED_END_TAG, |field| field.i64(partition.expected_end));
        });
        writer.no_tags();
    });
    writer.no_tags();
}
