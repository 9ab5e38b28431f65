//! Why a run failed. Error codes in replies are counted instead, and reported.

use std::fmt;
use std::io;

/// Short form for this crate's results.
pub type Result<T> = std::result::Result<T, Failure>;

/// Ends a run; the text is for the user.
#[derive(Debug)]
pub enum Failure {
    /// The connection, while doing what the text says.
    Connection(String, io::Error),
    /// A reply that does not follow the protocol.
    Protocol(String),
    /// The broker cannot do it, for instance because the topic is missing.
    Refused(String),
    /// The broker cannot do it yet, for instance because a topic is new.
    NotYet(String),
    /// No reply in time.
    TimedOut(String),
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Failure::Connection(doing, error) => write!(f, "{doing}: {error}"),
            Failure::Protocol(text)
            | Failure::Refused(text)
            | Failure::NotYet(text)
            | Failure::TimedOut(text) => f.write_str(text),
        }
    }
}

impl std::error::Error for Failure {}

impl From<pyrklog_wire::DecodeError> for Failure {
    fn from(error: pyrklog_wire::DecodeError) -> Self {
        Failure::Protocol(format!("a reply does not follow the protocol: {error}"))
    }
}
