//! One client as its requests know it: who it is, what is under way for it, and what it is answered.
//! No socket.
//!
//! Replies leave in the order of the requests. Produce requests overlap: each is appended at once
//! and its reply waits in `produces`. Every other request starts only when all earlier ones have
//! been answered, and while it is under way (`delayed`) nothing more is read.
//!
//! Handlers see a [`ClientContext`] and an output, and return what is to be done
//! ([`crate::handled`]); [`crate::carry_out`] does it.

use std::net::IpAddr;
use std::sync::Arc;

use crate::client_context::ClientContext;
use crate::delayed::Delayed;
use crate::out_queue::OutQueue;
use crate::outcome::Hold;
use crate::produce::queue::ProduceQueue;
use pyrklog_base::ids::{NEVER_MS, Token};

/// See the module.
#[derive(Debug)]
pub struct Client {
    /// Who it is.
    pub context: ClientContext,
    /// To be sent.
    pub out: OutQueue,
    /// Produce requests whose replies are due.
    pub produces: ProduceQueue,
    /// Since when there has been output that the peer has not taken; [`NEVER_MS`] without any.
    pub unread_since_ms: i64,
    /// The request that nothing overlaps with.
    pub delayed: Option<Delayed>,
    /// What holds back the next frame.
    pub hold: Option<Hold>,
    /// It was woken for a place at the control plane, and has not tried to take it yet.
    pub has_turn: bool,
    /// Nothing more is worked on; it closes once everything is answered.
    pub is_closing: bool,
    /// Its earliest timer.
    pub timer_ms: i64,
}

/// Where a client came from.
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
            context: ClientContext {
                token,
                id: peer.id,
                host: peer.host,
                listener: peer.listener,
                principal: peer.principal,
                is_broker: false,
                hung_up: false,
                ended: false,
                reply_bytes: 0,
            },
            out: OutQueue::default(),
            produces: ProduceQueue::default(),
            unread_since_ms: NEVER_MS,
            delayed: None,
            hold: None,
            has_turn: false,
            is_closing: false,
            timer_ms: NEVER_MS,
        }
    }

    /// Whether the next frame has to wait for what is under way.
    pub fn is_busy(&self) -> bool {
        self.hold.is_some() || self.delayed.is_some() || self.is_closing
    }

    /// Whether all is answered, and all answers have left.
    pub fn is_quiet(&self) -> bool {
        self.delayed.is_none() && self.produces.is_empty() && self.out.is_empty()
    }
}
