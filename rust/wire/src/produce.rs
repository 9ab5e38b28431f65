//! Produce, versions 0 to 12.
//!
//! The request is decoded into spans of its frame, since the caller patches batches in place, and
//! reusable without allocation. The response is written as a stream.
//!
//! Version notes: 0 to 2 message sets ([`crate::message_set`]); 1 throttle time; 2 append time; 3
//! record batches, transactional id; 5 log start offset; 8 record errors (KIP-467); 9 flexible; 10
//! hints to the current leader (KIP-951); 11 TRANSACTION_ABORTABLE; 12 enrols its partitions in
//! the transaction (KIP-890).
//!
//! ProduceAt, a private API, has the body of version 11. Each batch brings its own base offset, and
//! each partition says where its log is to end before: else it is refused (mirroring.md).

mod repeated;
mod request;
mod response;

pub use request::{
    PartitionToProduceAt, ProducePartition, ProduceRequest, ProduceTopic, TopicToProduce,
    encode_request, encode_request_at,
};
pub use response::{
    ProducePartitionResponse, ProduceResponse, ProduceResponseWriter, ProduceTopicResponse,
    RecordError,
};

use crate::api::{self, key};
use crate::error::Result;

const MIN_VERSION: i16 = 0;
/// First version with a transactional id, and with record batches alone.
pub const BATCHES_SINCE: i16 = 3;
const THROTTLE_SINCE: i16 = 1;
const FLEXIBLE_SINCE: i16 = 9;
const HINTS_SINCE: i16 = 10;

fn check_version(version: i16) -> Result<()> {
    api::check_version(key::PRODUCE, MIN_VERSION, version)
}
