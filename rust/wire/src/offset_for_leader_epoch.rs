//! OffsetForLeaderEpoch, versions 0 to 4 (KIP-101, KIP-279, KIP-320).
//!
//! Version notes: 1 the epoch found; 2 the client's epoch, throttle time; 3 replica id; 4 flexible.
#![allow(missing_docs)] // Docs say what the protocol's own names do not.

use crate::error::Result;
use crate::error_code::ErrorCode;
use crate::message::{Field, body, fields};
use crate::reader::Reader;
use crate::writer::Writer;

/// The replica id of a consumer or an unknown peer.
pub const NO_REPLICA: i32 = -2;

fields! {
    #[derive(Clone, Debug, PartialEq, Eq)]
    pub struct EpochRequest<'a> {
        /// The follower's broker id, -1 for a consumer, [`NO_REPLICA`] unknown.
        pub replica_id: i32 [in 3.., else NO_REPLICA],
        pub topics: Vec<EpochTopic<'a>>,
    }
}

fields! {
    #[derive(Clone, Debug, PartialEq, Eq)]
    pub struct EpochTopic<'a> {
        pub name: &'a str,
        pub partitions: Vec<EpochPartition>,
    }
}

fields! {
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub struct EpochPartition {
        pub index: i32,
        /// Leader epoch that the client knows, -1 unknown.
        pub current_leader_epoch: i32 [in 2.., else -1],
        /// The epoch asked about.
        pub leader_epoch: i32,
    }
}

body!(request OFFSET_FOR_LEADER_EPOCH from 0: EpochRequest<'a>);

fields! {
    #[derive(Clone, Debug, PartialEq, Eq)]
    pub struct EpochResponse<'a> {
        /// Throttle time in milliseconds.
        pub throttle_ms: i32 [in 2.., else 0],
        pub topics: Vec<EpochTopicResponse<'a>>,
    }
}

fields! {
    #[derive(Clone, Debug, PartialEq, Eq)]
    pub struct EpochTopicResponse<'a> {
        pub name: &'a str,
        pub partitions: Vec<EpochPartitionResponse>,
    }
}

fields! {
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub struct EpochPartitionResponse {
        pub error_code: ErrorCode,
        pub index: i32,
        /// The greatest epoch not above the requested one, -1 for none or a future one.
        pub leader_epoch: i32 [in 1.., else -1],
        /// Its end offset, -1 for none or a future one.
        pub end_offset: i64,
    }
}

body!(response OFFSET_FOR_LEADER_EPOCH from 0: EpochResponse<'a>);
