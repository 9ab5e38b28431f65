//! Fetch responses, and writing them around the record bytes.
#![allow(missing_docs)] // Docs say what the protocol's own names do not.

use std::borrow::Cow;

use super::{BATCHES_SINCE, ENDPOINTS_SINCE, FLEXIBLE_SINCE, THROTTLE_SINCE, TOPIC_IDS_SINCE};
use crate::error::Result;
use crate::error_code::ErrorCode;
use crate::leader::{CurrentLeader, NodeEndpoint};
use crate::message::{Field, TagSince, body, fields};
use crate::reader::{Reader, Uuid};
use crate::writer::Writer;

fields! {
    /// What stands at the start of a response.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub part FetchResponseHead {
        /// Throttle time in milliseconds.
        pub throttle_ms: i32 [in THROTTLE_SINCE.., else 0],
        /// Outcome of the whole request.
        pub error_code: ErrorCode [in 7.., else ErrorCode::NONE],
        /// The session, 0 = none.
        pub session_id: i32 [in 7.., else 0],
    }
}

fields! {
    /// A transaction whose records from `first_offset` on the reader must skip.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub struct AbortedTransaction {
        pub producer_id: i64,
        /// Its first offset in this partition.
        pub first_offset: i64,
    }
}

fields! {
    /// What stands before a partition's records.
    #[derive(Clone, Debug, PartialEq, Eq)]
    pub part FetchPartitionHead<'a> {
        pub index: i32,
        pub error_code: ErrorCode,
        /// High watermark, -1 unknown.
        pub high_watermark: i64,
        /// Last stable offset, -1 unknown.
        pub last_stable_offset: i64 [in BATCHES_SINCE.., else -1],
        /// Log start offset, -1 unknown.
        pub log_start_offset: i64 [in 5.., else -1],
        /// Aborted transactions in the records; null for read uncommitted.
        pub aborted: Option<Cow<'a, [AbortedTransaction]>> [in BATCHES_SINCE.., else None],
        /// The replica that this consumer should prefer, -1 none.
        pub preferred_read_replica: i32 [in 11.., else -1],
    }
}

impl FetchPartitionHead<'_> {
    /// An answer that holds only an error.
    pub fn failed(index: i32, error_code: ErrorCode) -> Self {
        FetchPartitionHead {
            index,
            error_code,
            high_watermark: -1,
            last_stable_offset: -1,
            log_start_offset: -1,
            aborted: None,
            preferred_read_replica: -1,
        }
    }
}

fields! {
    /// The end of the greatest epoch not above the requested one.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub struct EpochEndOffset {
        pub epoch: i32,
        pub end_offset: i64,
    }
}

fields! {
    /// A snapshot to be fetched instead (metadata quorum only).
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub struct SnapshotId {
        pub end_offset: i64,
        pub epoch: i32,
    }
}

/// The part behind a partition's records: tagged fields, from version 12 on, omitted if `None`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct FetchPartitionTail {
    /// The follower's log diverges from here on (KIP-595).
    pub diverging_epoch: Option<EpochEndOffset>,
    /// Where the leader is instead.
    pub current_leader: Option<CurrentLeader>,
    /// The follower must fetch this snapshot.
    pub snapshot_id: Option<SnapshotId>,
}

impl Field<'_> for FetchPartitionTail {
    type Value = Self;

    fn read(reader: &mut Reader<'_>, version: i16) -> Result<Self> {
        let mut tail = FetchPartitionTail::default();
        reader.tags(|tag, field| {
            match tag {
                0 => tail.diverging_epoch = Some(EpochEndOffset::read(field, version)?),
                1 => tail.current_leader = Some(CurrentLeader::read(field, version)?),
                2 => tail.snapshot_id = Some(SnapshotId::read(field, version)?),
                _ => return Ok(false),
            }
            Ok(true)
        })?;
        Ok(tail)
    }

    fn write(tail: &Self, writer: &mut Writer<'_>, version: i16) {
        if !writer.is_flexible() {
            return;
        }
        let FetchPartitionTail {
            diverging_epoch,
            current_leader,
            snapshot_id,
        } = tail;
        let count = [
            diverging_epoch.is_some(),
            current_leader.is_some(),
            snapshot_id.is_some(),
        ];
        writer.tag_count(count.into_iter().map(u32::from).sum());
        if let Some(diverging) = diverging_epoch {
            writer.tagged_field(0, |field| EpochEndOffset::write(diverging, field, version));
        }
        if let Some(leader) = current_leader {
            writer.tagged_field(1, |field| CurrentLeader::write(leader, field, version));
        }
        if let Some(snapshot) = snapshot_id {
            writer.tagged_field(2, |field| SnapshotId::write(snapshot, field, version));
        }
    }

    fn min_bytes(_version: i16, flexible: bool) -> usize {
        usize::from(flexible)
    }
}

/// Encodes a response part by part, without the record bytes.
///
/// Order of calls: `begin`; for each topic `topic`, and for each of its partitions `partition_head`
/// (the record bytes belong where the vector then ends) and `partition_tail`; then `end`. A topic
/// ends after its announced number of partitions; debug builds check the counts.
#[derive(Debug)]
pub struct FetchResponseWriter<'a> {
    writer: Writer<'a>,
    version: i16,
    topics_left: usize,
    partitions_left: usize,
}

impl<'a> FetchResponseWriter<'a> {
    /// Starts the body. `version` is one of 0 to 17.
    pub fn begin(
        out: &'a mut Vec<u8>,
        version: i16,
        head: FetchResponseHead,
        topic_count: usize,
    ) -> Self {
        let mut writer = Writer::new(out, version >= FLEXIBLE_SINCE);
        FetchResponseHead::write(&head, &mut writer, version);
        writer.array_len(topic_count);
        FetchResponseWriter {
            writer,
            version,
            topics_left: topic_count,
            partitions_left: 0,
        }
    }

    /// Starts a topic; writes name or id by version.
    pub fn topic(&mut self, name: &str, id: &Uuid, partition_count: usize) {
        debug_assert!(
            self.topics_left > 0 && self.partitions_left == 0,
            "topics miscounted"
        );
        self.topics_left -= 1;
        self.partitions_left = partition_count;
        if self.version >= TOPIC_IDS_SINCE {
            self.writer.uuid(*id);
        } else {
            self.writer.string(name);
        }
        self.writer.array_len(partition_count);
        if partition_count == 0 {
            self.writer.no_tags();
        }
    }

    /// Appends a partition up to its `records_len` record bytes; returns the vector's length, where
    /// they belong. `None` is null; brokers send 0 instead, since some clients take null for an
    /// error.
    pub fn partition_head(
        &mut self,
        head: &FetchPartitionHead<'_>,
        records_len: Option<usize>,
    ) -> usize {
        debug_assert!(self.partitions_left > 0, "partitions miscounted");
        let writer = &mut self.writer;
        FetchPartitionHead::write(head, writer, self.version);
        writer.nullable_len(records_len);
        writer.position()
    }

    /// The vector, for callers that append record bytes themselves.
    pub fn out(&mut self) -> &mut Vec<u8> {
        self.writer.out()
    }

    /// Appends what follows a partition's record bytes.
    pub fn partition_tail(&mut self, tail: &FetchPartitionTail) {
        FetchPartitionTail::write(tail, &mut self.writer, self.version);
        self.partitions_left -= 1;
        if self.partitions_left == 0 {
            self.writer.no_tags();
        }
    }

    /// Ends the body. Endpoints of hinted leaders are omitted below version 16.
    pub fn end(mut self, endpoints: &[NodeEndpoint<'_>]) {
        debug_assert!(
            self.topics_left == 0 && self.partitions_left == 0,
            "body incomplete"
        );
        let endpoints = Cow::Borrowed(endpoints);
        TagSince::<Cow<[_]>, ENDPOINTS_SINCE>::write(&endpoints, &mut self.writer, self.version);
    }
}

fields! {
    /// A decoded response, record bytes borrowed (load generator, followers, tests).
    #[derive(Clone, Debug, PartialEq, Eq)]
    pub part FetchResponse<'a> {
        /// Throttle time, error, session.
        pub head: FetchResponseHead,
        pub topics: Vec<FetchTopicResponse<'a>>,
        /// Where the leaders hinted at are.
        pub endpoints: Vec<NodeEndpoint<'a>> [by TagSince<Vec<NodeEndpoint<'a>>, ENDPOINTS_SINCE>],
    }
}

fields! {
    #[derive(Clone, Debug, PartialEq, Eq)]
    pub struct FetchTopicResponse<'a> {
        pub name: &'a str [in ..TOPIC_IDS_SINCE, else ""],
        /// Topic id, zero below version 13.
        pub id: Uuid [in TOPIC_IDS_SINCE.., else Uuid::default()],
        pub partitions: Vec<FetchPartitionResponse<'a>>,
    }
}

fields! {
    #[derive(Clone, Debug, PartialEq, Eq)]
    pub part FetchPartitionResponse<'a> {
        /// What stands before the records.
        pub head: FetchPartitionHead<'a>,
        /// Record batches, or messages below version 4, the last one possibly cut off.
        pub records: Option<&'a [u8]>,
        /// What stands after them.
        pub tail: FetchPartitionTail,
    }
}

body!(response FETCH from 0: FetchResponse<'a>);
