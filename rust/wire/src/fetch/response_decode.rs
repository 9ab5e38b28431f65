//! Decoding of Fetch responses (load generator, followers, tests).
#![allow(missing_docs)] // Docs say what the protocol's own names do not.

use std::borrow::Cow;

use super::response::{
    AbortedTransaction, EpochEndOffset, FetchPartitionHead, FetchPartitionTail, FetchResponseHead,
    FetchResponseWriter, SnapshotId,
};
use super::{
    ENDPOINTS_SINCE, FLEXIBLE_SINCE, LOG_START_SINCE, RACK_SINCE, SESSIONS_SINCE, TOPIC_IDS_SINCE,
    check_version,
};
use crate::error::Result;
use crate::error_code::ErrorCode;
use crate::leader::{CurrentLeader, NodeEndpoint, decode_endpoint_tags};
use crate::reader::{Reader, Uuid};

/// A decoded response, record bytes borrowed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FetchResponse<'a> {
    /// Throttle time, error, session.
    pub head: FetchResponseHead,
    pub topics: Vec<FetchTopicResponse<'a>>,
    /// Where the leaders hinted at are.
    pub endpoints: Vec<NodeEndpoint<'a>>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FetchTopicResponse<'a> {
    /// Name, empty from version 13 on.
    pub name: &'a str,
    /// Topic id, zero below version 13.
    pub id: Uuid,
    pub partitions: Vec<FetchPartitionResponse<'a>>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FetchPartitionResponse<'a> {
    /// What stands before the records.
    pub head: FetchPartitionHead<'a>,
    /// Record batches, the last one possibly cut off.
    pub records: Option<&'a [u8]>,
    /// What stands after them.
    pub tail: FetchPartitionTail,
}

impl<'a> FetchResponse<'a> {
    pub fn decode(body: &'a [u8], version: i16) -> Result<Self> {
        check_version(version)?;
        let mut reader = Reader::new(body, version >= FLEXIBLE_SINCE);
        let mut head = FetchResponseHead {
            throttle_ms: reader.i32()?,
            error_code: ErrorCode::NONE,
            session_id: 0,
        };
        if version >= SESSIONS_SINCE {
            head.error_code = ErrorCode(reader.i16()?);
            head.session_id = reader.i32()?;
        }
        let topics = reader.array(3, |reader| decode_topic(reader, version))?;
        let endpoints = decode_endpoint_tags(&mut reader, version >= ENDPOINTS_SINCE)?;
        reader.expect_end()?;
        Ok(FetchResponse {
            head,
            topics,
            endpoints,
        })
    }

    /// Appends the body, record bytes and all.
    pub fn encode(&self, out: &mut Vec<u8>, version: i16) {
        let mut writer = FetchResponseWriter::begin(out, version, self.head, self.topics.len());
        for topic in &self.topics {
            writer.topic(topic.name, &topic.id, topic.partitions.len());
            for partition in &topic.partitions {
                writer.partition_head(&partition.head, partition.records.map(<[u8]>::len));
                writer
                    .out()
                    .extend_from_slice(partition.records.unwrap_or_default());
                writer.partition_tail(&partition.tail);
            }
        }
        writer.end(&self.endpoints);
    }
}

fn decode_topic<'a>(reader: &mut Reader<'a>, version: i16) -> Result<FetchTopicResponse<'a>> {
    let (name, id) = if version >= TOPIC_IDS_SINCE {
        ("", reader.uuid()?)
    } else {
        (reader.string()?, Uuid::default())
    };
    let partitions = reader.array(24, |reader| decode_partition(reader, version))?;
    reader.skip_tags()?;
    Ok(FetchTopicResponse {
        name,
        id,
        partitions,
    })
}

fn decode_partition<'a>(
    reader: &mut Reader<'a>,
    version: i16,
) -> Result<FetchPartitionResponse<'a>> {
    let index = reader.i32()?;
    let mut head = FetchPartitionHead::failed(index, ErrorCode(reader.i16()?));
    head.high_watermark = reader.i64()?;
    head.last_stable_offset = reader.i64()?;
    if version >= LOG_START_SINCE {
        head.log_start_offset = reader.i64()?;
    }
    let aborted = reader.nullable_array(16, |reader| {
        let aborted = AbortedTransaction {
            producer_id: reader.i64()?,
            first_offset: reader.i64()?,
        };
        reader.skip_tags()?;
        Ok(aborted)
    })?;
    head.aborted = aborted.map(Cow::Owned);
    if version >= RACK_SINCE {
        head.preferred_read_replica = reader.i32()?;
    }
    let records = reader.nullable_bytes()?;
    let mut tail = FetchPartitionTail::default();
    reader.tags(|tag, field| {
        match tag {
            0 => {
                let epoch = field.i32()?;
                let end_offset = field.i64()?;
                field.skip_tags()?;
                tail.diverging_epoch = Some(EpochEndOffset { epoch, end_offset });
            }
            1 => tail.current_leader = Some(CurrentLeader::decode(field)?),
            2 => {
                let end_offset = field.i64()?;
                let epoch = field.i32()?;
                field.skip_tags()?;
                tail.snapshot_id = Some(SnapshotId { end_offset, epoch });
            }
            _ => return Ok(false),
        }
        Ok(true)
    })?;
    Ok(FetchPartitionResponse {
        head,
        records,
        tail,
    })
}
