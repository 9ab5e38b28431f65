//! Incremental fetch sessions (KIP-227, with topic ids KIP-516), by Kafka 3.9's rules.
//!
//! A client names its partitions once; later requests of the session carry only what changed, and
//! the answers only partitions that have something to say. A session lives between requests in the
//! [`SessionCache`]; during a request it is out, inside the request's [`FetchContext`].
//!
//! A request looks at the partitions that are due: those that it names, those that had something to
//! say last time, and those that have changed since, as their watch says (reads.md, "Fetch
//! sessions").
//!
//! | request | meaning |
//! |---|---|
//! | epoch -1 | full, without a session; ends the session it names |
//! | epoch 0 | full; ends the session it names, and a new one is made if the cache has room |
//! | epoch > 0 | incremental: adds, changes and forgets partitions of the session it names |
//!
//! No clock and no random source: time and fresh ids are arguments.

mod cache;
mod context;
mod session;
mod shard;
mod watching;

pub use cache::SessionCache;
pub use context::{FetchContext, Outcome};
pub use session::Target;
pub use watching::Reader;

/// "No session".
pub const NO_SESSION_ID: i32 = 0;
/// Epoch of a full request that wants a session.
pub const INITIAL_EPOCH: i32 = 0;
/// Epoch of a full request that wants none.
pub const FINAL_EPOCH: i32 = -1;

/// The epoch that a session's next request must have.
fn next_epoch(epoch: i32) -> i32 {
    match epoch {
        i32::MAX => 1,
        epoch => epoch + 1,
    }
}

#[cfg(test)]
mod tests;
