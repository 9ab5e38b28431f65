//! Questions about offsets and leader epochs.

use std::collections::BTreeMap;
use std::sync::Arc;

use pyrklog_wire::ErrorCode;
use pyrklog_wire::list_offsets::{ListOffsetsPartition, ListOffsetsRequest, ListOffsetsTopic};
use pyrklog_wire::offset_for_leader_epoch::{EpochPartition, EpochRequest, EpochTopic};

/// Which records a reader sees.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Isolation {
    /// All.
    ReadUncommitted,
    /// Those of no transaction and of committed ones.
    ReadCommitted,
}

impl Isolation {
    /// As on the wire.
    pub fn level(self) -> i8 {
        i8::from(self == Isolation::ReadCommitted)
    }
}

/// The offset at a time.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OffsetQuery {
    /// Topic.
    pub topic: Arc<str>,
    /// Partition.
    pub partition: i32,
    /// Milliseconds, or -1 for the latest and -2 for the earliest offset.
    pub timestamp: i64,
}

impl OffsetQuery {
    pub(crate) fn place(&self) -> (&str, i32) {
        (&self.topic, self.partition)
    }
}

/// What a leader says of an [`OffsetQuery`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OffsetAnswer {
    /// NONE, or why there is no answer.
    pub error: ErrorCode,
    /// The offset, -1 if no record is so late.
    pub offset: i64,
    /// Leader epoch of the record at the offset, -1 unknown.
    pub leader_epoch: i32,
}

/// The end of a leader epoch.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EpochQuery {
    /// Topic.
    pub topic: Arc<str>,
    /// Partition.
    pub partition: i32,
    /// The leader's present epoch, as metadata said.
    pub current_leader_epoch: i32,
    /// The epoch asked about.
    pub leader_epoch: i32,
}

impl EpochQuery {
    pub(crate) fn place(&self) -> (&str, i32) {
        (&self.topic, self.partition)
    }
}

/// What a leader says of an [`EpochQuery`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct EpochEnd {
    /// NONE, or why there is no answer.
    pub error: ErrorCode,
    /// The greatest epoch of the leader's log not above the one asked about, -1 for none.
    pub leader_epoch: i32,
    /// Its end offset, -1 for none.
    pub end_offset: i64,
}

/// A ListOffsets request for queries of distinct partitions.
pub(crate) fn list_offsets(isolation: Isolation, queries: &[&OffsetQuery]) -> ListOffsetsOwned {
    let mut topics: BTreeMap<Arc<str>, Vec<ListOffsetsPartition>> = BTreeMap::new();
    for query in queries {
        let partitions = topics.entry(Arc::clone(&query.topic)).or_default();
        partitions.push(ListOffsetsPartition {
            index: query.partition,
            current_leader_epoch: -1,
            timestamp: query.timestamp,
            max_offsets: 1,
        });
    }
    ListOffsetsOwned { isolation, topics }
}

pub(crate) struct ListOffsetsOwned {
    isolation: Isolation,
    topics: BTreeMap<Arc<str>, Vec<ListOffsetsPartition>>,
}

impl ListOffsetsOwned {
    pub fn encode(&self, out: &mut Vec<u8>, version: i16) {
        let topics = self
            .topics
            .iter()
            .map(|(name, partitions)| ListOffsetsTopic {
                name,
                partitions: partitions.clone(),
            });
        let request = ListOffsetsRequest {
            replica_id: -1,
            isolation_level: self.isolation.level(),
            topics: topics.collect(),
        };
        request.encode(out, version);
    }
}

/// Writes an OffsetForLeaderEpoch request.
pub(crate) fn encode_epochs(queries: &[&EpochQuery], out: &mut Vec<u8>, version: i16) {
    let mut topics: BTreeMap<&str, Vec<EpochPartition>> = BTreeMap::new();
    for query in queries {
        topics
            .entry(&query.topic)
            .or_default()
            .push(EpochPartition {
                index: query.partition,
                current_leader_epoch: query.current_leader_epoch,
                leader_epoch: query.leader_epoch,
            });
    }
    let topics = topics.into_iter();
    let request = EpochRequest {
        replica_id: -1,
        topics: topics
            .map(|(name, partitions)| EpochTopic { name, partitions })
            .collect(),
    };
    request.encode(out, version);
}
