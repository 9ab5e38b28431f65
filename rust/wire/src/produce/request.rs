//! Produce requests.
#![allow(missing_docs)] // Docs say what the protocol's own names do not.

use super::{BATCHES_SINCE, FLEXIBLE_SINCE, check_version};
use crate::error::Result;
use crate::reader::Reader;
use crate::span::{Span, clear_reusable};
use crate::writer::Writer;

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
                reader.skip_tags()?;
                self.partitions.push(ProducePartition {
                    topic,
                    index,
                    records,
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
