//! Produce responses.
#![allow(missing_docs)] // Docs say what the protocol's own names do not.

use std::borrow::Cow;

use super::{FLEXIBLE_SINCE, HINTS_SINCE, THROTTLE_SINCE};
use crate::error::Result;
use crate::error_code::ErrorCode;
use crate::leader::{CurrentLeader, NodeEndpoint};
use crate::message::{Field, TagSince, body, fields};
use crate::reader::Reader;
use crate::writer::Writer;

fields! {
    /// Why one record was refused.
    #[derive(Clone, Debug, PartialEq, Eq)]
    pub struct RecordError<'a> {
        /// Index of the record in its batch.
        pub batch_index: i32,
        /// What is wrong with it.
        pub message: Option<Cow<'a, str>>,
    }
}

fields! {
    /// The answer for one partition.
    #[derive(Clone, Debug, PartialEq, Eq)]
    pub part ProducePartitionResponse<'a> {
        pub index: i32,
        pub error_code: ErrorCode,
        /// Offset of the first record, -1 unknown.
        pub base_offset: i64,
        /// Milliseconds, -1 unless the topic has LogAppendTime.
        pub log_append_time_ms: i64 [in 2.., else -1],
        /// Log start offset, -1 unknown.
        pub log_start_offset: i64 [in 5.., else -1],
        /// Records refused.
        pub record_errors: Vec<RecordError<'a>> [in 8.., else Vec::new()],
        /// One sentence.
        pub error_message: Option<Cow<'a, str>> [in 8.., else None],
        /// Where the leader is instead (version 10 on).
        pub current_leader: Option<CurrentLeader> [by TagSince<Option<CurrentLeader>, HINTS_SINCE>],
    }
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
    /// Starts the body. `version` is one of 0 to 11.
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
        ProducePartitionResponse::write(answer, &mut self.writer, self.version);
        self.partitions_left -= 1;
        if self.partitions_left == 0 {
            self.writer.no_tags();
        }
    }

    /// Ends the body. Endpoints of hinted leaders are omitted below version 10.
    pub fn end(mut self, throttle_ms: i32, endpoints: &[NodeEndpoint<'_>]) {
        debug_assert!(
            self.topics_left == 0 && self.partitions_left == 0,
            "body incomplete"
        );
        if self.version >= THROTTLE_SINCE {
            self.writer.i32(throttle_ms);
        }
        let endpoints = Cow::Borrowed(endpoints);
        TagSince::<Cow<[_]>, HINTS_SINCE>::write(&endpoints, &mut self.writer, self.version);
    }
}

fields! {
    /// A decoded response (load generator, tests).
    #[derive(Clone, Debug, PartialEq, Eq)]
    pub part ProduceResponse<'a> {
        pub topics: Vec<ProduceTopicResponse<'a>>,
        /// Throttle time in milliseconds.
        pub throttle_ms: i32 [in THROTTLE_SINCE.., else 0],
        /// Where the leaders hinted at are.
        pub endpoints: Vec<NodeEndpoint<'a>> [by TagSince<Vec<NodeEndpoint<'a>>, HINTS_SINCE>],
    }
}

fields! {
    #[derive(Clone, Debug, PartialEq, Eq)]
    pub struct ProduceTopicResponse<'a> {
        pub name: &'a str,
        pub partitions: Vec<ProducePartitionResponse<'a>>,
    }
}

body!(response PRODUCE from 0: ProduceResponse<'a>);
