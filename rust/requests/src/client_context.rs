//! A client's identity for handlers.

use std::net::IpAddr;
use std::sync::Arc;

use pyrklog_base::ids::Token;
use pyrklog_control::seam::{Session, Software};

/// See the module.
#[derive(Clone, Debug)]
pub struct ClientContext {
    /// Identifies it in messages.
    pub token: Token,
    /// Connection number, unique in the process.
    pub id: u64,
    /// Its address.
    pub host: IpAddr,
    /// Its port.
    pub port: u16,
    /// Listener name.
    pub listener: Arc<str>,
    /// Principal.
    pub principal: Arc<str>,
    /// What it calls itself ([`crate::api_versions::note_software`]).
    pub software: Option<Arc<Software>>,
    /// It is another broker ([`crate::broker_connections`]).
    pub is_broker: bool,
    /// The peer's end is in the socket behind its data; no event reports it again.
    pub hung_up: bool,
    /// The peer's end was read: nothing more comes.
    pub ended: bool,
    /// It was looked at for being an old client ([`crate::old_clients`]).
    pub is_old_noted: bool,
    /// Its counted reply memory.
    pub reply_bytes: usize,
}

impl ClientContext {
    /// Of a client that has just connected.
    pub fn new(
        token: Token,
        id: u64,
        host: IpAddr,
        port: u16,
        listener: Arc<str>,
        principal: Arc<str>,
    ) -> ClientContext {
        ClientContext {
            token,
            id,
            host,
            port,
            listener,
            principal,
            software: None,
            is_broker: false,
            hung_up: false,
            ended: false,
            is_old_noted: false,
            reply_bytes: 0,
        }
    }

    /// Whether the peer sends nothing more, so that its requests need not wait; its end may have
    /// come with the request.
    pub fn has_ended(&self) -> bool {
        self.hung_up || self.ended
    }

    /// Its session for the control plane.
    pub fn session(&self, client_id: Option<&str>) -> Session {
        Session {
            connection: self.id,
            principal: Arc::clone(&self.principal),
            host: self.host,
            port: self.port,
            client_id: client_id.map(str::to_owned),
            listener: Arc::clone(&self.listener),
            software: self.software.clone(),
        }
    }
}
