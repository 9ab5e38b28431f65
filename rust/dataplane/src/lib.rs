//! Threads and sockets of the broker: network threads, partitions, writers, readers, purgatory.
//!
//! [`DataPlane`] is the whole of it for its user; [`api`] holds the types that cross the seam. The
//! parts, in the order in which a request meets them: `acceptor`, `network_thread` (with
//! `connection`, `input`, `output`), `dispatch`, then one module an API; `partition` and `registry`
//! under them; `writer`, `syncer` and `reader` beside them, which alone touch a disk.
//! `docs/design.md` says who may wait for whom. No pyo3.

#![forbid(unsafe_code)]

#[cfg(feature = "sim")]
pub mod sim;
#[cfg(feature = "testing")]
pub mod testing;

pub mod arena_tools;
mod base;
mod control;
mod follower;
mod housekeeping;
mod internal_append;
mod leadership;
mod net;
mod plane;
mod replica;
mod report;
mod requests;
mod shared;
mod shutdown;
mod stopping;
mod storage;
mod threads;

pub use control::commit_batch::{CommitBatch, commit_error};
pub use control::heartbeat::Heartbeat;
pub use control::offset_commit::OffsetCommit;
pub use control::offset_table::{CommittedOffset, OffsetExpiry, OffsetTable, TopicPartition};
pub use control::{api, image};
pub use plane::{Closed, DataPlane, OpenError};
