//! Threads and sockets of the broker: network threads, partitions, writers, readers, purgatory.
//!
//! [`DataPlane`] is the whole of it for its user; [`api`] holds the types that cross the seam. The
//! parts, in the order in which a request meets them: `acceptor`, `network_thread` (with
//! `connection`, `input`, `output`), `dispatch`, then one module an API; `partition` and `registry`
//! under them; `writer`, `syncer` and `reader` beside them, which alone touch a disk.
//! `design.md` says who may wait for whom. No pyo3.

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

pub use plane::{Closed, DataPlane, OpenError};
pub use pyrklog_control::commit_batch::{CommitBatch, commit_error};
pub use pyrklog_control::heartbeat::Heartbeat;
pub use pyrklog_control::offset_commit::OffsetCommit;
pub use pyrklog_control::offset_table::{
    CommittedOffset, OffsetExpiry, OffsetTable, TopicPartition,
};
pub use pyrklog_control::{api, image};
