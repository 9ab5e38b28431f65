//! Produce, versions 3 to 12.
//!
//! The request is decoded into spans of its frame, since the caller patches batches in place, and
//! reusable without allocation. The response is written as a stream.
//!
//! Version notes: 3 message format v2, transactional id; 5 log start offset; 8 record errors
//! (KIP-467); 9 flexible; 10 hints to the current leader (KIP-951); 11 TRANSACTION_ABORTABLE;
//! 12 enrols its partitions in the transaction (KIP-890).

mod repeated;
mod request;
mod response;

pub use request::{ProducePartition, ProduceRequest, ProduceTopic, TopicToProduce, encode_request};
pub use response::{
    ProducePartitionResponse, ProduceResponse, ProduceResponseWriter, ProduceTopicResponse,
    RecordError,
};

use crate::api::{self, PRODUCE_MIN_SERVED, key};
use crate::error::Result;

const FLEXIBLE_SINCE: i16 = 9;
const HINTS_SINCE: i16 = 10;

fn check_version(version: i16) -> Result<()> {
    api::check_version(key::PRODUCE, PRODUCE_MIN_SERVED, version)
}
