//! The sockets to accept from.

use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use parking_lot::Mutex;

#[derive(Debug)]
pub struct Listener {
    pub name: Arc<str>,
    /// Nonblocking.
    pub socket: OwnedFd,
    /// Whether it is for brokers only.
    pub for_brokers: bool,
}

/// The listeners, and the order to end.
#[derive(Debug, Default)]
pub struct Listeners {
    added: Mutex<Vec<Listener>>,
    stopping: AtomicBool,
}

impl Listeners {
    /// Hands a listener to the acceptor thread, which must then be woken.
    pub fn add(&self, listener: Listener) {
        self.added.lock().push(listener);
    }

    pub fn take_added(&self) -> Vec<Listener> {
        std::mem::take(&mut *self.added.lock())
    }

    pub fn is_stopping(&self) -> bool {
        self.stopping.load(Ordering::Acquire)
    }

    /// Ends the acceptor when it next checks; its listeners close.
    pub fn stop(&self) {
        self.stopping.store(true, Ordering::Release);
    }
}
