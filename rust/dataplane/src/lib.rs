//! Connections, following, and the plane as a whole.
//!
//! Users need [`DataPlane`] and [`seam`], the types that cross the seam. `net` holds connections,
//! `follower` fetches from other leaders; requests, partitions and logs are crates of their own.
//! Network and fetch threads never wait for a disk: writers, syncers, readers, log loaders and the
//! cache janitors do (`design.md`, section 2). No pyo3.

#![forbid(unsafe_code)]

#[cfg(feature = "sim")]
pub mod sim;
#[cfg(feature = "testing")]
pub mod testing;

pub mod arena_tools;
mod follower;
mod housekeeping;
mod internal_append;
mod leadership;
mod net;
mod plane;
mod replica_manager;
mod report;
mod shutdown;
mod stopping;
mod threads;
mod write_markers;

pub use plane::{Closed, DataPlane, OpenError};
pub use pyrklog_base::clock::set_ahead_ms;
pub use pyrklog_control::commit_batch::{CommitBatch, commit_error};
pub use pyrklog_control::heartbeat::Heartbeat;
pub use pyrklog_control::offset_commit::OffsetCommit;
pub use pyrklog_control::offset_table::{
    CommittedOffset, OffsetExpiry, OffsetTable, TopicPartition,
};
pub use pyrklog_control::{image, latency, seam};
