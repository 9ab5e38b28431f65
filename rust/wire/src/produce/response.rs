//! Produce responses.
#![allow(missing_docs)] // Docs say what the protocol's own names do not.

use std::borrow::Cow;

use super::{FLEXIBLE_SINCE, HINTS_SINCE, check_version};
use crate::error::Result;
use crate::error_code::ErrorCode;
use crate::leader::{CurrentLeader, NodeEndpoint, decode_endpoint_tags, encode_endpoint_tags};
use crate::reader::Reader;
use crate::writer::Writer;

/// Why one record was refused (version 8 on).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RecordError<'a> {
    /// Index of the record in its batch.
    pub batch_index: i32,
    /// What is wrong with it.
    pub message: Option<Cow<'a, str>>,
}

/// The answer for one partition.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ProducePartitionResponse<'a> {
    pub index: i32,
    pub error_code: ErrorCode,
    /// Offset of the first record, -1 unknown.
    pub base_offset: i64,
    /// Milliseconds, -1 unless the topic has LogAppendTime.
    pub log_append_time_ms: i64,
    /// Log start offset, -1 unknown (version 5 on).
    pub log_start_offset: i64,
    /// Records refused (version 8 on).
    pub record_errors: Vec<RecordError<'a>>,
    /// One sentence (version 8 on).
    pub error_message: Option<Cow<'a, str>>,
    /// Where the leader is instead (version 10 on).
    pub current_leader: Option<CurrentLeader>,
}

impl ProducePartitionResponse<'_> {
    /// An answer that holds only an error.
    pub fn failed(index: i32, error_code: ErrorCode) -> Self {
        ProducePartitionResponse {
            index,
            error_code,
            base_offset: -1,
            log_append_time_ms: -1,
            log_start_offset: -1,
            record_errors: Vec::new(),
            error_message: None,
            current_leader: None,
        }
    }
}

/// Encodes a response part by part. A topic ends after its announced number of partitions; debug
/// builds check the counts.
#[derive(Debug)]
pub struct ProduceResponseWriter<'a> {
    writer: Writer<'a>,
    version: i16,
    topics_left: usize,
    partitions_left: usize,
}

impl<'a> ProduceResponseWriter<'a> {
    /// Starts the body. `version` is one of 3 to 11.
    pub fn begin(out: &'a mut Vec<u8>, version: i16, topic_count: usize) -> Self {
        let mut writer = Writer::new(out, version >= FLEXIBLE_SINCE);
        writer.array_len(topic_count);
        ProduceResponseWriter {
            writer,
            version,
            topics_left: topic_count,
            partitions_left: 0,
        }
    }

    pub fn topic(&mut self, name: &str, partition_count: usize) {
        debug_assert!(
            self.topics_left > 0 && self.partitions_left == 0,
            "topics miscounted"
        );
        self.topics_left -= 1;
        self.partitions_left = partition_count;
        self.writer.string(name);
        self.writer.array_len(partition_count);
        if partition_count == 0 {
            self.writer.no_tags();
        }
    }

    pub fn partition(&mut self, answer: &ProducePartitionResponse<'_>) {
        debug_assert!(self.partitions_left > 0, "partitions miscounted");
        let writer = &mut self.writer;
        writer.i32(answer.index);
        writer.i16(answer.error_code.0);
        writer.i64(answer.base_offset);
        writer.i64(answer.log_append_time_ms);
        if self.version >= 5 {
            writer.i64(answer.log_start_offset);
        }
        if self.version >= 8 {
            writer.array(&answer.record_errors, |writer, error| {
                writer.i32(error.batch_index);
                writer.nullable_string(error.message.as_deref());
                writer.no_tags();
            });
            writer.nullable_string(answer.error_message.as_deref());
        }
        match answer.current_leader {
            Some(leader) if self.version >= HINTS_SINCE => {
                writer.tag_count(1);
                writer.tagged_field(0, |field| leader.encode(field));
            }
            _ => writer.no_tags(),
        }
        self.partitions_left -= 1;
        if self.partitions_left == 0 {
            writer.no_tags();
        }
    }

    /// Ends the body. Endpoints of hinted leaders are omitted below version 10.
    pub fn end(mut self, throttle_ms: i32, endpoints: &[NodeEndpoint<'_>]) {
        debug_assert!(
            self.topics_left == 0 && self.partitions_left == 0,
            "body incomplete"
        );
        self.writer.i32(throttle_ms);
        encode_endpoint_tags(&mut self.writer, self.version >= HINTS_SINCE, endpoints);
    }
}

/// A decoded response (load generator, tests).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ProduceResponse<'a> {
    pub topics: Vec<ProduceTopicResponse<'a>>,
    /// Throttle time in milliseconds.
    pub throttle_ms: i32,
    /// Where the leaders hinted at are.
    pub endpoints: Vec<NodeEndpoint<'a>>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ProduceTopicResponse<'a> {
    pub name: &'a str,
    pub partitions: Vec<ProducePartitionResponse<'a>>,
}

impl<'a> ProduceResponse<'a> {
    pub fn decode(body: &'a [u8], version: i16) -> Result<Self> {
        check_version(version)?;
        let mut reader = Reader::new(body, version >= FLEXIBLE_SINCE);
        let topics = reader.array(2, |reader| {
            let name = reader.string()?;
            let partitions = reader.array(22, |reader| decode_partition(reader, version))?;
            reader.skip_tags()?;
            Ok(ProduceTopicResponse { name, partitions })
        })?;
        let throttle_ms = reader.i32()?;
        let endpoints = decode_endpoint_tags(&mut reader, version >= HINTS_SINCE)?;
        reader.expect_end()?;
        Ok(ProduceResponse {
            topics,
            throttle_ms,
            endpoints,
        })
    }

    pub fn encode(&self, out: &mut Vec<u8>, version: i16) {
        let mut writer = ProduceResponseWriter::begin(out, version, self.topics.len());
        for topic in &self.topics {
            writer.topic(topic.name, topic.partitions.len());
            for partition in &topic.partitions {
                writer.partition(partition);
            }
        }
        writer.end(self.throttle_ms, &self.endpoints);
    }
}

fn decode_partition<'a>(
    reader: &mut Reader<'a>,
    version: i16,
) -> Result<ProducePartitionResponse<'a>> {
    let index = reader.i32()?;
    let mut answer = ProducePartitionResponse::failed(index, ErrorCode(reader.i16()?));
    answer.base_offset = reader.i64()?;
    answer.log_append_time_ms = reader.i64()?;
    if version >= 5 {
        answer.log_start_offset = reader.i64()?;
    }
    if version >= 8 {
        answer.record_errors = reader.array(5, |reader| {
            let batch_index = reader.i32()?;
            let message = reader.nullable_string()?.map(Cow::Borrowed);
            reader.skip_tags()?;
            Ok(RecordError {
                batch_index,
                message,
            })
        })?;
        answer.error_message = reader.nullable_string()?.map(Cow::Borrowed);
    }
    reader.tags(|tag, field| {
        let known = tag == 0 && version >= HINTS_SINCE;
        if known {
            answer.current_leader = Some(CurrentLeader::decode(field)?);
        }
        Ok(known)
    })?;
    Ok(answer)
}
