//! Frames, requests, responses and record batches as bytes. No I/O, no clock.
//!
//! Record bytes are never copied, and no unverified length or count leads to an allocation.

#![forbid(unsafe_code)]

pub mod api;
pub mod api_versions;
pub mod batch;
pub mod builder;
pub mod error;
pub mod error_code;
pub mod features;
pub mod fetch;
pub mod frame;
pub mod header;
pub mod heartbeat;
pub mod java_hash;
pub mod leader;
pub mod list_offsets;
pub mod membership;
mod message;
pub mod message_set;
pub mod metadata;
pub mod offset_commit;
pub mod offset_for_leader_epoch;
pub mod offset_records;
pub mod produce;
pub mod reader;
pub mod records;
pub mod replica_segments;
pub mod replica_start;
pub mod sasl;
pub mod span;
pub mod transactions;
pub mod varint;
pub mod writer;

pub use api::{ApiRow, Owner};
pub use batch::{BatchHeader, Batches, Compression, TimestampType};
pub use error::{DecodeError, Result};
pub use error_code::ErrorCode;
pub use header::RequestHeader;
pub use leader::{CurrentLeader, NodeEndpoint};
pub use reader::{Reader, Uuid};
pub use span::Span;
pub use writer::Writer;
