//! Fetch, versions 0 to 17.
//!
//! The request is decoded into spans of its frame and reusable without allocation. The response is
//! a stream with gaps for record bytes, which the caller sends from elsewhere without a copy.
//!
//! Version notes: 0 to 3 message sets ([`crate::message_set`]), of format 0 below 2; 1 throttle
//! time; 3 limit of the whole answer; 4 isolation level and aborted transactions; 5 log start
//! offset; 7 sessions (KIP-227); 9 current leader epoch (KIP-320); 11 rack and preferred replica
//! (KIP-392); 12 flexible, diverging epoch (KIP-595); 13 topic ids instead of names (KIP-516); 15
//! replica state (KIP-903); 16 endpoints of hinted leaders (KIP-951); 17 directory ids (KIP-853).

mod request;
mod response;

pub use request::{
    FetchPartition, FetchRequest, FetchRequestToWrite, FetchTopic, FetchTopicToWrite,
};
pub use response::{
    AbortedTransaction, EpochEndOffset, FetchPartitionHead, FetchPartitionResponse,
    FetchPartitionTail, FetchResponse, FetchResponseHead, FetchResponseWriter, FetchTopicResponse,
    SnapshotId,
};

use crate::api::{self, key};
use crate::error::Result;

const MIN_VERSION: i16 = 0;
const THROTTLE_SINCE: i16 = 1;
/// First version that understands messages of format 1.
pub const FORMAT_1_SINCE: i16 = 2;
/// First version with a limit of the whole answer. Before it, the limits of partitions held for the
/// first batch, too.
pub const MAX_BYTES_SINCE: i16 = 3;
/// As the epoch of no replica: a consumer that back-fills another replica.
pub const BACK_FILL_EPOCH: i64 = -2;
/// First version with record batches, isolation levels and aborted transactions.
pub const BATCHES_SINCE: i16 = 4;
const SESSIONS_SINCE: i16 = 7;
const RACK_SINCE: i16 = 11;
const FLEXIBLE_SINCE: i16 = 12;
/// First version that names topics by id.
pub const TOPIC_IDS_SINCE: i16 = 13;
const REPLICA_STATE_SINCE: i16 = 15;
const ENDPOINTS_SINCE: i16 = 16;
const DIRECTORY_SINCE: i16 = 17;

fn check_version(version: i16) -> Result<()> {
    api::check_version(key::FETCH, MIN_VERSION, version)
}
