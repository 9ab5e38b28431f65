//! Threads and sockets of the broker: network threads, partitions, writers, readers, purgatory.
//!
//! [`DataPlane`] is the whole of it for its user; [`api`] holds the types that cross the seam. The
//! parts, in the order in which a request meets them: `acceptor`, `network_thread` (with
//! `connection`, `input`, `output`), `dispatch`, then one module an API; `partition` and `registry`
//! under them; `writer`, `syncer` and `reader` beside them, which alone touch a disk.
//! `docs/design.md` says who may wait for whom. No pyo3.

#![forbid(unsafe_code)]

pub mod api;
pub mod api_versions;
pub mod fetch_session;
pub mod image;
pub mod memory_budget;
mod metadata;
#[cfg(feature = "sim")]
pub mod sim;
#[cfg(feature = "testing")]
pub mod testing;

mod acceptor;
mod alarm;
mod answers;
pub mod arena_tools;
mod block_cache;
mod checkpoints;
mod clock;
mod cold_reads;
mod commands;
mod connection;
mod connections;
mod context;
mod dispatch;
mod events;
mod fetch;
mod fetch_read;
mod fetch_reply;
mod fetch_work;
mod follower;
mod followers;
mod full_disk;
mod hash;
mod heartbeat;
mod heavy;
mod housekeeping;
mod inbox;
mod input;
mod internal_append;
mod internal_read;
mod internal_waiters;
mod janitor;
mod kept_cache;
mod kept_room;
mod leadership;
mod list_offsets;
mod log_dir;
mod network_thread;
mod offset_commit;
mod offset_for_leader_epoch;
mod offset_table;
mod out_queue;
mod outbox;
mod outlet;
mod output;
mod pace;
mod parking;
mod partition;
mod peers;
mod pending_produce;
mod placement;
mod plane;
mod planted;
mod policy;
mod produce;
mod produce_old;
mod read_path;
mod reader;
mod reader_pool;
mod reader_queue;
mod receive;
mod refused;
mod registry;
mod replica_digest;
mod replica_selector;
mod replication_quota;
mod replies;
mod reply_memory;
mod report;
mod request_channel;
mod shared;
mod shutdown;
mod statistics;
mod steering;
mod stopping;
mod sweep;
mod syncer;
mod threads;
mod timers;
mod validators;
mod verdicts;
mod waiting_memory;
mod writer;
mod writer_queue;

pub use heartbeat::Heartbeat;
pub use offset_commit::{CommitBatch, OffsetCommit, commit_error};
pub use offset_table::{CommittedOffset, OffsetExpiry, OffsetTable, TopicPartition};
pub use plane::{Closed, DataPlane, OpenError};
