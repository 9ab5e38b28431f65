//! Threads and sockets of the broker: network threads, partitions, writers, readers, purgatory.
//!
//! [`DataPlane`] is the whole of it for its user; [`api`] holds the types that cross the seam. The
//! parts, in the order in which a request meets them: `acceptor`, `network_thread` (with
//! `connection`, `input`, `output`), `dispatch`, then one module an API; `partition` and `registry`
//! under them; `writer`, `syncer` and `reader` beside them, which alone touch a disk.
//! `docs/design.md` says who may wait for whom. No pyo3.

#![forbid(unsafe_code)]

pub mod api_versions;
pub mod fetch_session;
mod metadata;
#[cfg(feature = "sim")]
pub mod sim;
#[cfg(feature = "testing")]
pub mod testing;

mod acceptor;
mod answers;
pub mod arena_tools;
mod base;
mod cold_reads;
mod connection;
mod connections;
mod context;
mod control;
mod dispatch;
mod fetch;
mod fetch_read;
mod fetch_reply;
mod fetch_work;
mod follower;
mod heavy;
mod housekeeping;
mod input;
mod internal_append;
mod leadership;
mod list_offsets;
mod message;
mod network_thread;
mod offset_for_leader_epoch;
mod out_queue;
mod outlet;
mod output;
mod parking;
mod peers;
mod pending_produce;
mod plane;
mod produce;
mod produce_old;
mod read_path;
mod refused;
mod replica;
mod replies;
mod report;
mod send_job;
mod shared;
mod shutdown;
mod steering;
mod stopping;
mod storage;
mod sweep;
mod threads;
mod validators;
mod verdicts;

pub use control::commit_batch::{CommitBatch, commit_error};
pub use control::heartbeat::Heartbeat;
pub use control::offset_commit::OffsetCommit;
pub use control::offset_table::{CommittedOffset, OffsetExpiry, OffsetTable, TopicPartition};
pub use control::{api, image};
pub use plane::{Closed, DataPlane, OpenError};
