//! ListOffsets, versions 1 to 9.
//!
//! Version notes: 2 isolation level; 4 leader epochs (KIP-320); 6 flexible; 7 max timestamp
//! (KIP-734); 8 earliest local (KIP-405); 9 latest tiered (KIP-1005).
#![allow(missing_docs)] // Docs say what the protocol's own names do not.

use crate::api::{self, key};
use crate::error::Result;
use crate::error_code::ErrorCode;
use crate::reader::Reader;
use crate::writer::Writer;

/// Query: the offset after the last visible record.
pub const LATEST_TIMESTAMP: i64 = -1;
/// Query: the log start offset.
pub const EARLIEST_TIMESTAMP: i64 = -2;
/// Query: the record with the greatest timestamp (version 7 on).
pub const MAX_TIMESTAMP: i64 = -3;
/// Query: the first local offset, which is the log start offset without tiers (version 8).
pub const EARLIEST_LOCAL_TIMESTAMP: i64 = -4;
/// Query: the last offset in the remote tier (version 9).
pub const LATEST_TIERED_TIMESTAMP: i64 = -5;

const MIN_VERSION: i16 = 1;
const ISOLATION_SINCE: i16 = 2;
const THROTTLE_SINCE: i16 = 2;
const LEADER_EPOCH_SINCE: i16 = 4;
const FLEXIBLE_SINCE: i16 = 6;

fn check_version(version: i16) -> Result<()> {
    api::check_version(key::LIST_OFFSETS, MIN_VERSION, version)
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ListOffsetsRequest<'a> {
    /// The follower's broker id, -1 for a consumer, -2 for debugging.
    pub replica_id: i32,
    /// 0 = read uncommitted, 1 = read committed (version 2 on).
    pub isolation_level: i8,
    pub topics: Vec<ListOffsetsTopic<'a>>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ListOffsetsTopic<'a> {
    pub name: &'a str,
    pub partitions: Vec<ListOffsetsPartition>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ListOffsetsPartition {
    pub index: i32,
    /// The client's leader epoch, -1 unknown (version 4 on).
    pub current_leader_epoch: i32,
    /// Milliseconds, or one of the queries of this module.
    pub timestamp: i64,
}

impl<'a> ListOffsetsRequest<'a> {
    /// Decodes a body; later bytes are ignored, as in Kafka.
    pub fn decode(body: &'a [u8], version: i16) -> Result<Self> {
        check_version(version)?;
        let mut reader = Reader::of_request(body, 0, version >= FLEXIBLE_SINCE);
        let replica_id = reader.i32()?;
        let isolation_level = if version >= ISOLATION_SINCE {
            reader.i8()?
        } else {
            0
        };
        let topics = reader.array(3, |reader| {
            let name = reader.string()?;
            let partitions = reader.array(12, |reader| {
                let index = reader.i32()?;
                let has_epoch = version >= LEADER_EPOCH_SINCE;
                let current_leader_epoch = if has_epoch { reader.i32()? } else { -1 };
                let timestamp = reader.i64()?;
                reader.skip_tags()?;
                Ok(ListOffsetsPartition {
                    index,
                    current_leader_epoch,
                    timestamp,
                })
            })?;
            reader.skip_tags()?;
            Ok(ListOffsetsTopic { name, partitions })
        })?;
        reader.skip_tags()?;
        Ok(ListOffsetsRequest {
            replica_id,
            isolation_level,
            topics,
        })
    }

    pub fn encode(&self, out: &mut Vec<u8>, version: i16) {
        let mut writer = Writer::new(out, version >= FLEXIBLE_SINCE);
        writer.i32(self.replica_id);
        if version >= ISOLATION_SINCE {
            writer.i8(self.isolation_level);
        }
        writer.array(&self.topics, |writer, topic| {
            writer.string(topic.name);
            writer.array(&topic.partitions, |writer, partition| {
                writer.i32(partition.index);
                if version >= LEADER_EPOCH_SINCE {
                    writer.i32(partition.current_leader_epoch);
                }
                writer.i64(partition.timestamp);
                writer.no_tags();
            });
            writer.no_tags();
        });
        writer.no_tags();
    }
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ListOffsetsResponse<'a> {
    /// Throttle time in milliseconds (version 2 on).
    pub throttle_ms: i32,
    pub topics: Vec<ListOffsetsTopicResponse<'a>>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ListOffsetsTopicResponse<'a> {
    pub name: &'a str,
    pub partitions: Vec<ListOffsetsPartitionResponse>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ListOffsetsPartitionResponse {
    pub index: i32,
    pub error_code: ErrorCode,
    /// The record's timestamp; -1 for none, latest and earliest.
    pub timestamp: i64,
    /// The offset; -1 when no record fits.
    pub offset: i64,
    /// Epoch of the record's leader, -1 unknown (version 4 on).
    pub leader_epoch: i32,
}

impl ListOffsetsPartitionResponse {
    /// Only an error, or with NONE "no such record".
    pub fn none(index: i32, error_code: ErrorCode) -> Self {
        ListOffsetsPartitionResponse {
            index,
            error_code,
            timestamp: -1,
            offset: -1,
            leader_epoch: -1,
        }
    }
}

impl<'a> ListOffsetsResponse<'a> {
    pub fn decode(body: &'a [u8], version: i16) -> Result<Self> {
        check_version(version)?;
        let mut reader = Reader::new(body, version >= FLEXIBLE_SINCE);
        let throttle_ms = if version >= THROTTLE_SINCE {
            reader.i32()?
        } else {
            0
        };
        let topics = reader.array(3, |reader| {
            let name = reader.string()?;
            let partitions = reader.array(22, |reader| {
                let index = reader.i32()?;
                let error_code = ErrorCode(reader.i16()?);
                let timestamp = reader.i64()?;
                let offset = reader.i64()?;
                let has_epoch = version >= LEADER_EPOCH_SINCE;
                let leader_epoch = if has_epoch { reader.i32()? } else { -1 };
                reader.skip_tags()?;
                Ok(ListOffsetsPartitionResponse {
                    index,
                    error_code,
                    timestamp,
                    offset,
                    leader_epoch,
                })
            })?;
            reader.skip_tags()?;
            Ok(ListOffsetsTopicResponse { name, partitions })
        })?;
        reader.skip_tags()?;
        reader.expect_end()?;
        Ok(ListOffsetsResponse {
            throttle_ms,
            topics,
        })
    }

    pub fn encode(&self, out: &mut Vec<u8>, version: i16) {
        let mut writer = Writer::new(out, version >= FLEXIBLE_SINCE);
        if version >= THROTTLE_SINCE {
            writer.i32(self.throttle_ms);
        }
        writer.array(&self.topics, |writer, topic| {
            writer.string(topic.name);
            writer.array(&topic.partitions, |writer, partition| {
                writer.i32(partition.index);
                writer.i16(partition.error_code.0);
                writer.i64(partition.timestamp);
                writer.i64(partition.offset);
                if version >= LEADER_EPOCH_SINCE {
                    writer.i32(partition.leader_epoch);
                }
                writer.no_tags();
            });
            writer.no_tags();
        });
        writer.no_tags();
    }
}
