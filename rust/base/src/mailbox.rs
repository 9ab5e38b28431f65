//! The way back from a thread that does a job to the connection that waits for it.

use std::fmt::Debug;

use crate::ids::Place;

/// Takes results of one kind to connections.
pub trait Mailbox<T>: Debug + Send + Sync {
    /// Hands `item` to the network thread of `place`; dropped where the connection is gone.
    fn post(&self, place: Place, item: T);
}
