//! Messages gathered by a thread while it holds locks or works through a batch, delivered
//! afterwards: each network thread is woken at most once, however many of its requests are done,
//! and so is the control plane.

use std::sync::Arc;

use pyrklog_wire::ErrorCode;

use crate::api::{Event, TicketId, TicketOutcome};
use crate::events::EventQueue;
use crate::inbox::{Inbox, Message};
use crate::internal_read::InternalReadWork;
use crate::reader::Job;
use crate::reader_pool::ReaderPool;
use crate::request_channel::Place;

/// See the module.
#[derive(Debug)]
pub struct Outbox {
    network_thread: Option<usize>,
    threads: Vec<Vec<Message>>,
    len: usize,
    events: Arc<EventQueue>,
    readers: Arc<ReaderPool>,
    tickets: Vec<Event>,
    reads: Vec<InternalReadWork>,
}

impl Outbox {
    /// For `threads` network threads, the control plane and the readers.
    pub fn new(threads: usize, events: Arc<EventQueue>, readers: Arc<ReaderPool>) -> Outbox {
        Outbox {
            network_thread: None,
            threads: (0..threads).map(|_| Vec::new()).collect(),
            len: 0,
            events,
            readers,
            tickets: Vec::new(),
            reads: Vec::new(),
        }
    }

    /// The same, of a network thread.
    pub fn of_network_thread(self, index: usize) -> Outbox {
        Outbox {
            network_thread: Some(index),
            ..self
        }
    }

    /// The network thread whose it is, if it is one's.
    pub fn network_thread(&self) -> Option<usize> {
        self.network_thread
    }

    /// Adds a message for a network thread.
    pub fn push(&mut self, thread: usize, message: Message) {
        self.threads[thread].push(message);
        self.len += 1;
    }

    /// Whether it holds messages for the network thread whose it is.
    pub fn has_own(&self) -> bool {
        let own = self.network_thread.and_then(|own| self.threads.get(own));
        own.is_some_and(|messages| !messages.is_empty())
    }

    /// Tells a connection that its input may go on.
    pub fn unblock(&mut self, place: Place) {
        self.push(place.thread, Message::Unblock { token: place.token });
    }

    /// A ticket is done.
    pub fn complete_ticket(&mut self, id: TicketId, outcome: TicketOutcome) {
        self.tickets.push(Event::Ticket { id, outcome });
    }

    /// A read may begin.
    pub fn begin_read(&mut self, work: InternalReadWork) {
        self.reads.push(work);
    }

    /// Sends everything; the memory stays for the next batch.
    pub fn deliver(&mut self, inboxes: &[Arc<Inbox>]) {
        for work in self.reads.drain(..) {
            let queue = self.readers.for_internal(work.dir);
            // A queue that is full asks the control plane to try again.
            if let Err(Job::InternalRead(work)) =
                self.readers.submit(queue, Job::InternalRead(work))
            {
                let outcome = work.failed(ErrorCode::REQUEST_TIMED_OUT);
                self.tickets.push(Event::Ticket {
                    id: work.ticket,
                    outcome,
                });
            }
        }
        if !self.tickets.is_empty() {
            self.events.push_all(&mut self.tickets);
        }
        if self.len == 0 {
            return;
        }
        for (batch, inbox) in self.threads.iter_mut().zip(inboxes) {
            inbox.send_all(batch);
        }
        self.len = 0;
    }
}
