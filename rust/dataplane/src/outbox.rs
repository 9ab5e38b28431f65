//! Messages gathered by a thread while it holds locks or works through a batch, delivered
//! afterwards: each network thread is woken at most once, however many of its requests are done.

use std::sync::Arc;

use crate::inbox::{Inbox, Message};
use crate::request_channel::Place;

/// See the module.
#[derive(Debug)]
pub struct Outbox {
    threads: Vec<Vec<Message>>,
    len: usize,
}

impl Outbox {
    /// For `threads` network threads.
    pub fn new(threads: usize) -> Outbox {
        Outbox {
            threads: (0..threads).map(|_| Vec::new()).collect(),
            len: 0,
        }
    }

    /// Adds a message for a network thread.
    pub fn push(&mut self, thread: usize, message: Message) {
        self.threads[thread].push(message);
        self.len += 1;
    }

    /// Tells a connection that its input may go on.
    pub fn unblock(&mut self, place: Place) {
        self.push(place.thread, Message::Unblock { token: place.token });
    }

    /// Sends everything; the memory stays for the next batch.
    pub fn deliver(&mut self, inboxes: &[Arc<Inbox>]) {
        if self.len == 0 {
            return;
        }
        for (batch, inbox) in self.threads.iter_mut().zip(inboxes) {
            inbox.send_all(batch);
        }
        self.len = 0;
    }
}
