//! The sockets to accept from.

use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use parking_lot::Mutex;

/// A bound socket.
#[derive(Debug)]
pub struct Listener {
    /// Listener's name.
    pub name: Arc<str>,
    /// The socket, nonblocking.
    pub socket: OwnedFd,
    /// Whether it is the one between brokers, and not the one of clients too.
    pub for_brokers: bool,
}

/// The listeners, and the order to end.
#[derive(Debug, Default)]
pub struct Listeners {
    added: Mutex<Vec<Listener>>,
    stopping: AtomicBool,
}

impl Listeners {
    /// Hands a listener to the acceptor thread, which has to be woken to look.
    pub fn add(&self, listener: Listener) {
        self.added.lock().push(listener);
    }

    /// Takes those that were added.
    pub fn take_added(&self) -> Vec<Listener> {
        std::mem::take(&mut *self.added.lock())
    }

    /// Whether the acceptor is to end.
    pub fn is_stopping(&self) -> bool {
        self.stopping.load(Ordering::Acquire)
    }

    /// Ends the acceptor at its next look; its listeners close.
    pub fn stop(&self) {
        self.stopping.store(true, Ordering::Release);
    }
}
