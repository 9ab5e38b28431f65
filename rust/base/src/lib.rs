//! What every room may use. Knows no sockets or files.

#![forbid(unsafe_code)]

pub mod alarm;
pub mod by_host;
pub mod clock;
pub mod hash;
pub mod ids;
pub mod inbox;
pub mod injected_faults;
pub mod mailbox;
pub mod memory_budget;
pub mod network_event;
pub mod network_threads;
pub mod pace;
pub mod receive;
pub mod replication_quota;
pub mod reply_memory;
pub mod timers;
pub mod unguessable;
#[cfg(any(test, feature = "testing"))]
pub mod waiting;
pub mod waiting_memory;
