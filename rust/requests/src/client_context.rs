//! Who a client is, as handlers see it.

use std::net::IpAddr;
use std::sync::Arc;

use pyrklog_base::ids::Token;
use pyrklog_control::api::Session;

/// See the module.
#[derive(Clone, Debug)]
pub struct ClientContext {
    /// Its name in messages.
    pub token: Token,
    /// Number of its connection, unique while the process lives.
    pub id: u64,
    /// Its address.
    pub host: IpAddr,
    /// Name of the listener that it came to.
    pub listener: Arc<str>,
    /// Who it is.
    pub principal: Arc<str>,
    /// It is another broker ([`crate::broker_connections`]).
    pub is_broker: bool,
    /// The peer's end is in the socket, behind what it sent; no event tells of it again.
    pub hung_up: bool,
    /// The peer's end was read: nothing more comes.
    pub ended: bool,
    /// What it counts for in the memory of replies.
    pub reply_bytes: usize,
}

impl ClientContext {
    /// The peer sends nothing more, so that it is not kept waiting; its end may have come with the
    /// request.
    pub fn has_ended(&self) -> bool {
        self.hung_up || self.ended
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
