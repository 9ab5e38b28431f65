//! A client as its requests know it: identity, requests under way, output. No socket.
//!
//! Replies leave in request order. Produce requests overlap: each is appended at once, and its
//! reply waits in `produces`. Any other request starts only after all earlier ones are answered,
//! and nothing is read while it is under way (`delayed`).
//!
//! Handlers get a [`ClientContext`] and an output and return what to do ([`crate::handled`]);
//! [`crate::carry_out`] does it.

use crate::client_context::ClientContext;
use crate::delayed::Delayed;
use crate::out_queue::OutQueue;
use crate::outcome::Hold;
use crate::produce::queue::ProduceQueue;
use crate::request_time::ClientTimes;
use pyrklog_base::ids::NEVER_MS;

/// See the module.
#[derive(Debug)]
pub struct Client {
    /// Identity.
    pub context: ClientContext,
    /// Output.
    pub out: OutQueue,
    /// Produce requests that await their replies.
    pub produces: ProduceQueue,
    /// Since when the peer has left output unread; [`NEVER_MS`] without output.
    pub unread_since_ms: i64,
    /// The request that does not overlap with others.
    pub delayed: Option<Delayed>,
    /// What holds back the next frame.
    pub hold: Option<Hold>,
    /// It was woken for a place at the control plane and has not tried to take it yet.
    pub has_turn: bool,
    /// No further requests; it closes once everything is answered.
    pub is_closing: bool,
    /// Its earliest timer.
    pub timer_ms: i64,
    /// How long its requests take.
    pub times: ClientTimes,
}

impl Client {
    /// A new client.
    pub fn new(context: ClientContext) -> Client {
        Client {
            context,
            out: OutQueue::default(),
            produces: ProduceQueue::default(),
            unread_since_ms: NEVER_MS,
            delayed: None,
            hold: None,
            has_turn: false,
            is_closing: false,
            timer_ms: NEVER_MS,
            times: ClientTimes::default(),
        }
    }

    /// Whether the next frame must wait.
    pub fn is_busy(&self) -> bool {
        self.hold.is_some() || self.delayed.is_some() || self.is_closing
    }

    /// Whether everything is answered and sent.
    pub fn is_quiet(&self) -> bool {
        self.delayed.is_none() && self.produces.is_empty() && self.out.is_empty()
    }
}
