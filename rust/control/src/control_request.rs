//! A request for the control plane and its client.

use std::net::IpAddr;
use std::sync::Arc;

use pyrklog_base::ids::RequestId;

/// A connection's client.
#[derive(Clone, Debug)]
pub struct Session {
    /// Connection number, unique in the process.
    pub connection: u64,
    /// `User:ANONYMOUS` without authentication.
    pub principal: Arc<str>,
    /// Peer's address.
    pub host: IpAddr,
    /// From the request header.
    pub client_id: Option<String>,
    /// Listener name.
    pub listener: Arc<str>,
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
