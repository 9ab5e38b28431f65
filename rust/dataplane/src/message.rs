//! What a network thread is told.

use crate::acceptor::NewConnection;
use crate::base::ids::Token;
use crate::base::network_event::NetworkEvent;
use crate::cold_reads::FetchJob;
use crate::connection::Connection;
use crate::list_offsets::LookUpJob;
use crate::reader::SendWork;
use crate::validators::ValidateJob;

/// See the module.
#[derive(Debug)]
pub enum Message {
    /// What needs no more than the base to say it.
    Event(NetworkEvent),
    /// A connection was accepted for this thread.
    Connect(Box<NewConnection>),
    /// A connection that another thread served moves here.
    Move(Box<Connection>),
    /// A reader has done a fetch's reads of one queue.
    FetchRead {
        /// The connection.
        token: Token,
        /// The reads, with what they found.
        job: Box<FetchJob>,
    },
    /// The batches of a produce request are validated.
    Validated {
        /// The connection.
        token: Token,
        /// The request, with what was found.
        job: Box<ValidateJob>,
    },
    /// A reader has done the time look-ups of a ListOffsets request in one log directory.
    OffsetsListed {
        /// The connection.
        token: Token,
        /// The look-ups, with what they found.
        job: Box<LookUpJob>,
    },
    /// A reader gives back the sending side of a socket.
    Sent {
        /// The connection.
        token: Token,
        /// What is left to send, and how it ended.
        work: Box<SendWork>,
    },
}

impl From<NetworkEvent> for Message {
    fn from(event: NetworkEvent) -> Message {
        Message::Event(event)
    }
}
