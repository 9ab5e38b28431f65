//! OffsetForLeaderEpoch, versions 2 to 4 (KIP-101, KIP-279, KIP-320).
//!
//! Version notes: 3 replica id; 4 flexible.
#![allow(missing_docs)] // Docs say what the protocol's own names do not.

use crate::api::{self, key};
use crate::error::Result;
use crate::error_code::ErrorCode;
use crate::reader::Reader;
use crate::writer::Writer;

const MIN_VERSION: i16 = 2;
const REPLICA_ID_SINCE: i16 = 3;
const FLEXIBLE_SINCE: i16 = 4;

/// The replica id of a consumer or an unknown peer.
pub const NO_REPLICA: i32 = -2;

fn check_version(version: i16) -> Result<()> {
    api::check_version(key::OFFSET_FOR_LEADER_EPOCH, MIN_VERSION, version)
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EpochRequest<'a> {
    /// The follower's broker id, -1 for a consumer, [`NO_REPLICA`] unknown (version 3 on).
    pub replica_id: i32,
    pub topics: Vec<EpochTopic<'a>>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EpochTopic<'a> {
    pub name: &'a str,
    pub partitions: Vec<EpochPartition>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct EpochPartition {
    pub index: i32,
    /// Leader epoch that the client knows, -1 unknown.
    pub current_leader_epoch: i32,
    /// The epoch asked about.
    pub leader_epoch: i32,
}

impl<'a> EpochRequest<'a> {
    /// Decodes a body; later bytes are ignored, as in Kafka.
    pub fn decode(body: &'a [u8], version: i16) -> Result<Self> {
        check_version(version)?;
        let mut reader = Reader::of_request(body, 0, version >= FLEXIBLE_SINCE);
        let has_replica = version >= REPLICA_ID_SINCE;
        let replica_id = if has_replica {
            reader.i32()?
        } else {
            NO_REPLICA
        };
        let topics = reader.array(3, |reader| {
            let name = reader.string()?;
            let partitions = reader.array(12, |reader| {
                let index = reader.i32()?;
                let current_leader_epoch = reader.i32()?;
                let leader_epoch = reader.i32()?;
                reader.skip_tags()?;
                Ok(EpochPartition {
                    index,
                    current_leader_epoch,
                    leader_epoch,
                })
            })?;
            reader.skip_tags()?;
            Ok(EpochTopic { name, partitions })
        })?;
        reader.skip_tags()?;
        Ok(EpochRequest { replica_id, topics })
    }

    pub fn encode(&self, out: &mut Vec<u8>, version: i16) {
        let mut writer = Writer::new(out, version >= FLEXIBLE_SINCE);
        if version >= REPLICA_ID_SINCE {
            writer.i32(self.replica_id);
        }
        writer.array(&self.topics, |writer, topic| {
            writer.string(topic.name);
            writer.array(&topic.partitions, |writer, partition| {
                writer.i32(partition.index);
                writer.i32(partition.current_leader_epoch);
                writer.i32(partition.leader_epoch);
                writer.no_tags();
            });
            writer.no_tags();
        });
        writer.no_tags();
    }
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EpochResponse<'a> {
    /// Throttle time in milliseconds.
    pub throttle_ms: i32,
    pub topics: Vec<EpochTopicResponse<'a>>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EpochTopicResponse<'a> {
    pub name: &'a str,
    pub partitions: Vec<EpochPartitionResponse>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct EpochPartitionResponse {
    pub error_code: ErrorCode,
    pub index: i32,
    /// The greatest epoch not above the requested one, -1 for none or a future one.
    pub leader_epoch: i32,
    /// Its end offset, -1 for none or a future one.
    pub end_offset: i64,
}

impl<'a> EpochResponse<'a> {
    pub fn decode(body: &'a [u8], version: i16) -> Result<Self> {
        check_version(version)?;
        let mut reader = Reader::new(body, version >= FLEXIBLE_SINCE);
        let throttle_ms = reader.i32()?;
        let topics = reader.array(3, |reader| {
            let name = reader.string()?;
            let partitions = reader.array(18, |reader| {
                let error_code = ErrorCode(reader.i16()?);
                let index = reader.i32()?;
                let leader_epoch = reader.i32()?;
                let end_offset = reader.i64()?;
                reader.skip_tags()?;
                Ok(EpochPartitionResponse {
                    error_code,
                    index,
                    leader_epoch,
                    end_offset,
                })
            })?;
            reader.skip_tags()?;
            Ok(EpochTopicResponse { name, partitions })
        })?;
        reader.skip_tags()?;
        reader.expect_end()?;
        Ok(EpochResponse {
            throttle_ms,
            topics,
        })
    }

    pub fn encode(&self, out: &mut Vec<u8>, version: i16) {
        let mut writer = Writer::new(out, version >= FLEXIBLE_SINCE);
        writer.i32(self.throttle_ms);
        writer.array(&self.topics, |writer, topic| {
            writer.string(topic.name);
            writer.array(&topic.partitions, |writer, partition| {
                writer.i16(partition.error_code.0);
                writer.i32(partition.index);
                writer.i32(partition.leader_epoch);
                writer.i64(partition.end_offset);
                writer.no_tags();
            });
            writer.no_tags();
        });
        writer.no_tags();
    }
}
