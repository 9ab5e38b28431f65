//! Messages to network threads.

use std::ops::Deref;
use std::sync::Arc;

use crate::net::connection::Connection;
use crate::net::connection_limits::NewConnection;
use crate::net::send_job::SendWork;
use pyrklog_base::ids::{Place, Token};
use pyrklog_base::inbox::Inbox;
use pyrklog_base::mailbox::Mailbox;
use pyrklog_base::network_event::NetworkEvent;
use pyrklog_base::network_threads::NetworkThreads;
use pyrklog_requests::cold_reads::FetchJob;
use pyrklog_requests::list_offsets::delayed::LookUpJob;
use pyrklog_requests::produce::validators::ValidateJob;

#[derive(Debug)]
pub enum Message {
    /// An event that the base crate can express.
    Event(NetworkEvent),
    Connect(Box<NewConnection>),
    /// A connection of another thread moves here.
    Move(Box<Connection>),
    /// A reader has done a fetch's reads of one queue.
    FetchRead {
        token: Token,
        job: Box<FetchJob>,
    },
    /// The batches of a produce request are validated.
    Validated {
        token: Token,
        job: Box<ValidateJob>,
    },
    /// A reader has done the time look-ups of a ListOffsets request in one log directory.
    OffsetsListed {
        token: Token,
        job: Box<LookUpJob>,
    },
    /// A reader gives back the sending side of a socket.
    Sent {
        token: Token,
        work: Box<SendWork>,
    },
}

impl From<NetworkEvent> for Message {
    fn from(event: NetworkEvent) -> Message {
        Message::Event(event)
    }
}

#[derive(Debug)]
pub struct Inboxes(Vec<Arc<Inbox<Message>>>);

impl Inboxes {
    /// For so many threads. Errors: no file descriptor left.
    pub fn new(threads: usize) -> std::io::Result<Inboxes> {
        let inboxes = (0..threads).map(|_| Inbox::new().map(Arc::new));
        Ok(Inboxes(inboxes.collect::<Result<_, _>>()?))
    }
}

impl Deref for Inboxes {
    type Target = [Arc<Inbox<Message>>];

    fn deref(&self) -> &Self::Target {
        &self.0
    }
}

impl NetworkThreads for Inboxes {
    fn count(&self) -> usize {
        self.0.len()
    }

    fn tell(&self, thread: usize, events: &mut Vec<NetworkEvent>) {
        self.0[thread].send_all(events);
    }
}

/// Each kind of job comes back as a message of its own.
macro_rules! mailbox {
    ($job:ty, $message:ident { $field:ident }) => {
        impl Mailbox<Box<$job>> for Inboxes {
            fn post(&self, place: Place, $field: Box<$job>) {
                let token = place.token;
                self.0[place.thread].send(Message::$message { token, $field });
            }
        }
    };
}

mailbox!(FetchJob, FetchRead { job });
mailbox!(ValidateJob, Validated { job });
mailbox!(LookUpJob, OffsetsListed { job });
mailbox!(SendWork, Sent { work });
