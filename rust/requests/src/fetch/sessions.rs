//! Incremental fetch sessions (KIP-227; topic ids KIP-516), by Kafka 3.9's rules.
//!
//! A client names its partitions once. Later requests carry only changes, and answers only
//! partitions with news. Between requests a session is in the [`SessionCache`]; during a request it
//! is in the request's [`FetchContext`].
//!
//! A request looks at the partitions that are due: those it names, those with something to report
//! last time, and those that changed since, according to their watch (reads.md, "Fetch sessions").
//!
//! | request | meaning |
//! |---|---|
//! | epoch -1 | full, without a session; ends the session it names |
//! | epoch 0 | full; ends the session it names, and makes one if the cache has room |
//! | epoch > 0 | incremental: adds, changes and forgets partitions of its session |
//!
//! No clock and no random source: time and fresh ids are arguments.

mod cache;
mod context;
mod session;
mod shard;
mod watching;

pub use cache::SessionCache;
pub use context::{FetchContext, PartitionOutcome};
pub use session::Target;
pub use watching::SessionReader;

/// "No session".
pub const NO_SESSION_ID: i32 = 0;
/// Epoch of a full request that wants a session.
pub const INITIAL_EPOCH: i32 = 0;
/// Epoch of a full request that wants none.
pub const FINAL_EPOCH: i32 = -1;

/// Epoch of a session's next request.
fn next_epoch(epoch: i32) -> i32 {
    match epoch {
        i32::MAX => 1,
        epoch => epoch + 1,
    }
}

#[cfg(test)]
mod tests;
