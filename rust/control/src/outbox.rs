//! Effects collected under locks or during a batch and delivered afterwards: each network thread
//! and the control plane are woken at most once.

use pyrklog_wire::ErrorCode;

use crate::internal_read_work::InternalReadWork;
use crate::seam::{Event, TicketOutcome};
use pyrklog_base::ids::{Place, TicketId};
use pyrklog_base::network_event::NetworkEvent;

/// Where an outbox delivers.
pub trait Delivery {
    /// Sends events to a network thread and empties `events`.
    fn tell_network_thread(&self, thread: usize, events: &mut Vec<NetworkEvent>);

    /// Sends events to the control plane and empties `events`.
    fn tell_control_plane(&self, events: &mut Vec<Event>);

    /// Submits a read.
    ///
    /// # Errors
    /// The work, if the readers' queue is full.
    fn begin_read(&self, work: InternalReadWork) -> Result<(), InternalReadWork>;
}

/// See the module.
#[derive(Debug)]
pub struct Outbox {
    network_thread: Option<usize>,
    threads: Vec<Vec<NetworkEvent>>,
    len: usize,
    tickets: Vec<Event>,
    reads: Vec<InternalReadWork>,
}

impl Outbox {
    /// For `threads` network threads and the control plane.
    pub fn new(threads: usize) -> Outbox {
        Outbox {
            network_thread: None,
            threads: (0..threads).map(|_| Vec::new()).collect(),
            len: 0,
            tickets: Vec::new(),
            reads: Vec::new(),
        }
    }

    /// The same, owned by a network thread.
    pub fn of_network_thread(self, index: usize) -> Outbox {
        Outbox {
            network_thread: Some(index),
            ..self
        }
    }

    /// The network thread that owns it, if any.
    pub fn network_thread(&self) -> Option<usize> {
        self.network_thread
    }

    /// Adds an event for a network thread.
    pub fn push(&mut self, thread: usize, event: NetworkEvent) {
        self.threads[thread].push(event);
        self.len += 1;
    }

    /// Whether it has events for its own network thread.
    pub fn has_own(&self) -> bool {
        let own = self.network_thread.and_then(|own| self.threads.get(own));
        own.is_some_and(|events| !events.is_empty())
    }

    /// Lets a connection's input continue.
    pub fn unblock(&mut self, place: Place) {
        self.push(place.thread, NetworkEvent::Unblock { token: place.token });
    }

    /// Completes a ticket.
    pub fn complete_ticket(&mut self, id: TicketId, outcome: TicketOutcome) {
        self.tickets.push(Event::Ticket { id, outcome });
    }

    /// Adds a read to begin.
    pub fn begin_read(&mut self, work: InternalReadWork) {
        self.reads.push(work);
    }

    /// Sends everything and keeps the memory.
    pub fn deliver(&mut self, to: &impl Delivery) {
        for work in self.reads.drain(..) {
            // The readers' queue is full: the control plane must retry.
            if let Err(work) = to.begin_read(work) {
                let (id, outcome) = (work.ticket, work.failed(ErrorCode::REQUEST_TIMED_OUT));
                self.tickets.push(Event::Ticket { id, outcome });
            }
        }
        if !self.tickets.is_empty() {
            to.tell_control_plane(&mut self.tickets);
        }
        if self.len == 0 {
            return;
        }
        for (thread, events) in self.threads.iter_mut().enumerate() {
            if !events.is_empty() {
                to.tell_network_thread(thread, events);
            }
        }
        self.len = 0;
    }
}
