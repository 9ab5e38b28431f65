//! The network threads, for rooms that only send them events.

use std::fmt::Debug;

use crate::network_event::NetworkEvent;

/// See the module.
pub trait NetworkThreads: Debug + Send + Sync {
    /// Their number.
    fn count(&self) -> usize;

    /// Sends events to one thread, with at most one wake, and empties `events`.
    fn tell(&self, thread: usize, events: &mut Vec<NetworkEvent>);
}
