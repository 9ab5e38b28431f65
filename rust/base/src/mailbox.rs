//! Returns a job's result to the connection that waits for it.

use std::fmt::Debug;

use crate::ids::Place;

/// Delivers results of one kind to connections.
pub trait Mailbox<T>: Debug + Send + Sync {
    /// Hands `item` to the network thread of `place`; dropped if the connection is closed.
    fn post(&self, place: Place, item: T);
}
