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
use pyrklog_requests::list_offsets::delayed_list_offsets::LookUpJob;
use pyrklog_requests::produce::validators::ValidateJob;
use pyrklog_requests::resume::JobDone;

#[derive(Debug)]
pub enum Message {
    /// An event that the base crate can express.
    Event(NetworkEvent),
    Connect(Box<NewConnection>),
    /// A connection of another thread moves here.
    Move(Box<Connection>),
    /// Work for a connection's delayed request is done.
    Job {
        token: Token,
        job: JobDone,
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

macro_rules! mailbox {
    ($job:ty, $kind:ident) => {
        impl Mailbox<Box<$job>> for Inboxes {
            fn post(&self, place: Place, job: Box<$job>) {
                let (token, job) = (place.token, JobDone::$kind(job));
                self.0[place.thread].send(Message::Job { token, job });
            }
        }
    };
}
mailbox!(FetchJob, Fetch);
mailbox!(ValidateJob, Produce);
mailbox!(LookUpJob, ListOffsets);

impl Mailbox<Box<SendWork>> for Inboxes {
    fn post(&self, place: Place, work: Box<SendWork>) {
        let token = place.token;
        self.0[place.thread].send(Message::Sent { token, work });
    }
}
