//! State of the hosted replicas: logs, roles, in-sync replicas, waiters. No socket, no thread.

#![forbid(unsafe_code)]

pub mod consumed;
pub mod directory;
pub mod fetch_watch;
pub mod hosted_partitions;
pub mod internal_waiters;
pub mod partition;
pub mod replica_progress;
pub mod replica_selector;
pub mod served_bytes;
pub mod unreachable_leaders;
pub mod waiters;
