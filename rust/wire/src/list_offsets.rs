//! ListOffsets, versions 0 to 9.
//!
//! Version notes: 0 several offsets, where segments begin, and no timestamp; 2 isolation level; 4
//! leader epochs (KIP-320); 6 flexible; 7 max timestamp (KIP-734); 8 earliest local (KIP-405); 9
//! latest tiered (KIP-1005).
#![allow(missing_docs)] // Docs say what the protocol's own names do not.

use crate::error::Result;
use crate::error_code::ErrorCode;
use crate::message::{Field, body, fields};
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
/// Ours: the lowest offset that consumers fetched from this replica within a while, or `i64::MAX`.
pub const LOWEST_CONSUMED_TIMESTAMP: i64 = -20_012;

fields! {
    #[derive(Clone, Debug, PartialEq, Eq)]
    pub struct ListOffsetsRequest<'a> {
        /// The follower's broker id, -1 for a consumer, -2 for debugging.
        pub replica_id: i32,
        /// 0 = read uncommitted, 1 = read committed.
        pub isolation_level: i8 [in 2.., else 0],
        pub topics: Vec<ListOffsetsTopic<'a>>,
    }
}

fields! {
    #[derive(Clone, Debug, PartialEq, Eq)]
    pub struct ListOffsetsTopic<'a> {
        pub name: &'a str,
        pub partitions: Vec<ListOffsetsPartition>,
    }
}

fields! {
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub struct ListOffsetsPartition {
        pub index: i32,
        /// The client's leader epoch, -1 unknown.
        pub current_leader_epoch: i32 [in 4.., else -1],
        /// Milliseconds, or one of the queries of this module.
        pub timestamp: i64,
        /// How many offsets to name (version 0).
        pub max_offsets: i32 [in ..1, else 1],
    }
}

body!(request LIST_OFFSETS from 0: ListOffsetsRequest<'a>);

fields! {
    #[derive(Clone, Debug, PartialEq, Eq)]
    pub struct ListOffsetsResponse<'a> {
        /// Throttle time in milliseconds.
        pub throttle_ms: i32 [in 2.., else 0],
        pub topics: Vec<ListOffsetsTopicResponse<'a>>,
    }
}

fields! {
    #[derive(Clone, Debug, PartialEq, Eq)]
    pub struct ListOffsetsTopicResponse<'a> {
        pub name: &'a str,
        pub partitions: Vec<ListOffsetsPartitionResponse>,
    }
}

fields! {
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub struct ListOffsetsPartitionResponse {
        pub index: i32,
        pub error_code: ErrorCode,
        /// The record's timestamp; -1 for none, latest and earliest.
        pub timestamp: i64,
        /// The offset; -1 when no record fits.
        pub offset: i64,
        /// Epoch of the record's leader, -1 unknown.
        pub leader_epoch: i32 [in 4.., else -1],
    }
}

body!(response LIST_OFFSETS from 1: ListOffsetsResponse<'a>);

fields! {
    /// The answer of version 0.
    #[derive(Clone, Debug, PartialEq, Eq)]
    pub struct OldListOffsetsResponse<'a> {
        pub topics: Vec<OldListOffsetsTopicResponse<'a>>,
    }
}

fields! {
    #[derive(Clone, Debug, PartialEq, Eq)]
    pub struct OldListOffsetsTopicResponse<'a> {
        pub name: &'a str,
        pub partitions: Vec<OldListOffsetsPartitionResponse>,
    }
}

fields! {
    #[derive(Clone, Debug, PartialEq, Eq)]
    pub struct OldListOffsetsPartitionResponse {
        pub index: i32,
        pub error_code: ErrorCode,
        /// Descending.
        pub offsets: Vec<i64>,
    }
}

body!(response LIST_OFFSETS from 0: OldListOffsetsResponse<'a>);

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
