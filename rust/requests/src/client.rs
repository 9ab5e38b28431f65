//! One client as its requests know it: who it is, what is under way for it, and what it is answered.
//! No socket.
//!
//! Replies leave in the order of the requests. Produce requests overlap: each is appended at once
//! and its answer waits in `pending`. Every other request starts only when all earlier ones have
//! been answered, and while it is under way (`exclusive`) nothing more is read.

use std::collections::VecDeque;
use std::net::IpAddr;
use std::sync::Arc;

use crate::fetch::delayed::FetchWork;
use crate::list_offsets::delayed::ListOffsetsWork;
use crate::out_queue::OutQueue;
use crate::outcome::Hold;
use crate::produce::delayed::PendingProduce;
use crate::produce::parked::Parked;
use crate::produce::refused_batches::RefusedBatches;
use crate::produce::validating::Validating;
use pyrklog_base::ids::{NEVER_MS, RequestId, Token};
use pyrklog_control::api::Session;

/// The one request that does not overlap with others, while it is under way.
#[derive(Debug)]
pub enum Exclusive {
    /// The control plane has it.
    Control {
        /// To recognise the answer.
        id: RequestId,
        /// For the response header.
        api_key: i16,
        /// For the response header.
        api_version: i16,
        /// For the response header.
        correlation_id: i32,
    },
    /// Metadata that waits for topics to be created.
    Metadata {
        /// To recognise the answer.
        id: RequestId,
        /// Version of the request.
        api_version: i16,
        /// For the response header.
        correlation_id: i32,
        /// The request's frame, to be answered from the image at that time.
        frame: Vec<u8>,
        /// Where its body starts.
        body_start: usize,
    },
    /// A fetch that waits for data, for readers or for its deadline.
    Fetch(Box<FetchWork>),
    /// Offsets that readers look up.
    ListOffsets(Box<ListOffsetsWork>),
    /// A produce request whose batches are validated elsewhere.
    Validating(Box<Validating>),
}

/// See the module.
#[derive(Debug)]
pub struct Client {
    /// Its name in messages.
    pub token: Token,
    /// Unique while the process lives.
    pub id: u64,
    /// Peer's address.
    pub host: IpAddr,
    /// Listener's name.
    pub listener: Arc<str>,
    /// Who it is.
    pub principal: Arc<str>,
    /// It is another broker's ([`crate::broker_connections`]).
    pub is_broker: bool,
    /// The peer's end is in the socket, behind what it sent; no event tells of it again.
    pub hung_up: bool,
    /// The peer's end was read: nothing more comes.
    pub ended: bool,
    /// To be sent.
    pub out: OutQueue,
    /// Produce requests whose answers are due, in order.
    pub pending: VecDeque<PendingProduce>,
    /// Batches that were refused and come again.
    pub refused: RefusedBatches,
    /// Number of the first one that is pending.
    pub first_sequence: u64,
    /// Memory of all of them.
    pub pending_bytes: usize,
    /// What it counts for in the memory of replies.
    pub reply_bytes: usize,
    /// Since when there has been output that the peer has not taken; [`NEVER_MS`] without any.
    pub unread_since_ms: i64,
    /// The request that nothing overlaps with.
    pub exclusive: Option<Exclusive>,
    /// What holds back the next frame.
    pub hold: Option<Hold>,
    /// It was woken for a place at the control plane, and has not tried to take it yet.
    pub has_turn: bool,
    /// The produce request that waits for its log directory, and those behind it.
    pub parked: Option<Parked>,
    /// Nothing more is worked on; it closes once everything is answered.
    pub is_closing: bool,
    /// Number of the last fetch wait.
    pub last_wait: u64,
    /// Its earliest timer.
    pub timer_ms: i64,
}

/// Who a client is.
#[derive(Clone, Debug)]
pub struct Peer {
    /// Number of its connection, unique while the process lives.
    pub id: u64,
    /// Its address.
    pub host: IpAddr,
    /// Name of the listener that it came to.
    pub listener: Arc<str>,
    /// Who it is.
    pub principal: Arc<str>,
}

impl Client {
    /// A client that just came.
    pub fn new(token: Token, peer: Peer) -> Client {
        Client {
            token,
            id: peer.id,
            host: peer.host,
            listener: peer.listener,
            principal: peer.principal,
            is_broker: false,
            hung_up: false,
            ended: false,
            out: OutQueue::default(),
            pending: VecDeque::new(),
            refused: RefusedBatches::default(),
            first_sequence: 0,
            pending_bytes: 0,
            reply_bytes: 0,
            unread_since_ms: NEVER_MS,
            exclusive: None,
            hold: None,
            has_turn: false,
            parked: None,
            is_closing: false,
            last_wait: 0,
            timer_ms: NEVER_MS,
        }
    }

    /// Whether the next frame has to wait for what is under way.
    pub fn is_busy(&self) -> bool {
        self.hold.is_some() || self.exclusive.is_some() || self.is_closing
    }

    /// Whether all is answered, and all answers have left.
    pub fn is_quiet(&self) -> bool {
        self.exclusive.is_none() && self.pending.is_empty() && self.out.is_empty()
    }

    /// A new number for what it waits for.
    pub fn next_wait(&mut self) -> u64 {
        self.last_wait += 1;
        self.last_wait
    }

    /// The number that the next produce request gets.
    pub fn next_sequence(&self) -> u64 {
        self.first_sequence + self.pending.len() as u64
    }

    /// A pending produce request by number; `None` when it was answered already.
    pub fn pending_mut(&mut self, sequence: u64) -> Option<&mut PendingProduce> {
        let index = sequence.checked_sub(self.first_sequence)?;
        self.pending.get_mut(usize::try_from(index).ok()?)
    }

    /// Who stands behind it, for the control plane.
    pub fn session(&self, client_id: Option<&str>) -> Session {
        Session {
            connection: self.id,
            principal: Arc::clone(&self.principal),
            host: self.host,
            client_id: client_id.map(str::to_owned),
            listener: Arc::clone(&self.listener),
        }
    }
}
