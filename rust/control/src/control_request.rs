//! A request for the control plane and its client.

use std::net::IpAddr;
use std::sync::Arc;

use pyrklog_base::ids::RequestId;

/// What a client calls itself in ApiVersions (KIP-511).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Software {
    /// For instance `librdkafka`.
    pub name: Box<str>,
    /// Its version.
    pub version: Box<str>,
}

/// A connection's client.
#[derive(Clone, Debug)]
pub struct Session {
    /// Connection number, unique in the process.
    pub connection: u64,
    /// `User:ANONYMOUS` without authentication.
    pub principal: Arc<str>,
    /// Peer's address.
    pub host: IpAddr,
    /// Peer's port.
    pub port: u16,
    /// From the request header.
    pub client_id: Option<String>,
    /// Listener name.
    pub listener: Arc<str>,
    /// `None` until the client has told it.
    pub software: Option<Arc<Software>>,
}

/// A request for the control plane.
#[derive(Debug)]
pub struct ControlRequest {
    /// For `reply`.
    pub id: RequestId,
    /// API key.
    pub api_key: i16,
    /// API version, already checked.
    pub api_version: i16,
    /// The client.
    pub session: Session,
    /// Bytes after the request header.
    pub body: Vec<u8>,
}
