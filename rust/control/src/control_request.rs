//! A request for the control plane, and who asks.

use std::net::IpAddr;
use std::sync::Arc;

use pyrklog_base::ids::RequestId;

/// Who stands behind a connection (design, section 4: a session over a transport).
#[derive(Clone, Debug)]
pub struct Session {
    /// Connection number, unique while the process lives.
    pub connection: u64,
    /// `User:ANONYMOUS` until authentication exists.
    pub principal: Arc<str>,
    /// Peer's address.
    pub host: IpAddr,
    /// From the request header.
    pub client_id: Option<String>,
    /// Listener name.
    pub listener: Arc<str>,
}

/// A request for Python.
#[derive(Debug)]
pub struct ControlRequest {
    /// To `reply`.
    pub id: RequestId,
    /// API key.
    pub api_key: i16,
    /// API version, already checked against the table.
    pub api_version: i16,
    /// Who asked.
    pub session: Session,
    /// The bytes after the request header.
    pub body: Vec<u8>,
}
