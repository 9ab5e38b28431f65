//! The network threads, as those know them who only tell them something.

use std::fmt::Debug;

use crate::network_event::NetworkEvent;

/// See the module.
pub trait NetworkThreads: Debug + Send + Sync {
    /// How many there are.
    fn count(&self) -> usize;

    /// Tells one of them, with one wake at most, and leaves `events` empty.
    fn tell(&self, thread: usize, events: &mut Vec<NetworkEvent>);
}
