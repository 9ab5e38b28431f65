//! One client connection, as its network thread holds it: the socket, its input and its output.

use std::os::fd::OwnedFd;
use std::sync::Arc;

use crate::net::connection_balancer::Affinity;
use crate::net::connection_limits::{NewConnection, Permit};
use pyrklog_base::ids::{NEVER_MS, Token};
use pyrklog_base::receive::Received;
use pyrklog_requests::client::Client;
use pyrklog_requests::client_context::ClientContext;
use pyrklog_storage::reader_queue::Step;

/// With more output, a connection's next request waits until it is sent.
pub const OUTPUT_MAX_BYTES: usize = 256 * 1024;

/// The owner of the socket's sending side.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Sending {
    Own,
    /// The network thread, which waits for the socket to take more.
    Full,
    Reader,
}

#[derive(Debug)]
pub struct Connection {
    pub client: Client,
    /// The socket; a reader that sends holds it too.
    pub socket: Arc<OwnedFd>,
    _permit: Permit,
    pub received: Received,
    /// The socket may hold more input.
    pub readable: bool,
    pub sending: Sending,
    /// The socket may take more; set by its event while a reader sends.
    pub writable: bool,
    /// Current step of the reader that sends.
    pub sending_step: Arc<Step>,
    /// When to check it again; monotonic milliseconds, [`NEVER_MS`] while no reader sends.
    pub sending_due_ms: i64,
    /// When bytes last moved.
    pub active_ms: i64,
    pub partial_since_ms: i64,
    /// It is listed for a visit in this turn.
    pub is_listed: bool,
    /// Its answers wait for the next turn, in favour of the fetches that its requests have
    /// woken.
    pub is_flush_postponed: bool,
    /// Whether it should move to another thread.
    pub affinity: Affinity,
}

impl Connection {
    pub fn new(token: Token, new: NewConnection, principal: Arc<str>, now_ms: i64) -> Connection {
        let context =
            ClientContext::new(token, new.id, new.host, new.port, new.listener, principal);
        Connection {
            client: Client::new(context),
            socket: Arc::new(new.socket),
            _permit: new.permit,
            received: Received::default(),
            readable: true,
            sending: Sending::Own,
            writable: true,
            sending_step: Arc::default(),
            sending_due_ms: NEVER_MS,
            active_ms: now_ms,
            partial_since_ms: NEVER_MS,
            is_listed: false,
            is_flush_postponed: false,
            affinity: Affinity::default(),
        }
    }

    pub fn is_busy(&self) -> bool {
        self.client.is_busy() || self.sending == Sending::Reader
    }

    /// Whether nothing is under way.
    pub fn is_quiet(&self) -> bool {
        self.client.is_quiet() && self.sending != Sending::Reader
    }

    /// Whether its token is known only to its thread: between two requests.
    pub fn is_movable(&self) -> bool {
        let client = &self.client;
        let has_waiting_request = client.hold.is_some() || client.produces.room_wait.is_some();
        self.is_quiet() && !has_waiting_request && !client.is_closing && !client.context.ended
    }

    /// Another thread serves it from now on, under another token.
    pub fn arrive(&mut self, token: Token, now_ms: i64) {
        self.client.context.token = token;
        self.client.timer_ms = NEVER_MS;
        // Events of the earlier thread are lost: check the socket.
        self.readable = true;
        self.writable = true;
        self.is_listed = false;
        self.affinity.arrived(now_ms);
    }
}
