//! Why a request has no answer.

use std::io;

use pyrklog_wire::{DecodeError, ErrorCode};
use thiserror::Error;

/// Short form for this crate's results.
pub type Result<T> = std::result::Result<T, ClientError>;

/// A request failed. The sentences are for the user.
#[derive(Debug, Error)]
#[allow(missing_docs)] // The messages name variants and fields.
pub enum ClientError {
    /// [`crate::Cancel::cancel`] was called.
    #[error("cancelled")]
    Cancelled,
    /// A setting that cannot be used.
    #[error("{0}")]
    Config(String),
    /// The broker cannot be reached, or the connection broke.
    #[error("broker {address}: {doing}: {source}")]
    Connection {
        address: String,
        doing: &'static str,
        source: io::Error,
    },
    #[error("broker {address}: no answer to {doing} within {seconds:.1} s")]
    TimedOut {
        address: String,
        doing: &'static str,
        seconds: f64,
    },
    /// Another protocol, or a broker that breaks this one.
    #[error("broker {address} does not follow Kafka's protocol: {reason}")]
    Protocol { address: String, reason: String },
    #[error(
        "broker {address} has no {api} of version {min} to {max}, but {found}; Kafka 0.11 or newer \
         is needed"
    )]
    Unsupported {
        address: String,
        api: &'static str,
        min: i16,
        max: i16,
        found: String,
    },
    /// Certificates, or no TLS at all.
    #[error("broker {address}: TLS failed: {reason}")]
    Tls { address: String, reason: String },
    /// SASL.
    #[error("broker {address}: authentication by {mechanism} failed: {reason}")]
    Authentication {
        address: String,
        mechanism: &'static str,
        reason: String,
    },
    /// An answer that is nothing but an error.
    #[error("broker {address} refused {api}: {code}")]
    Refused {
        address: String,
        api: &'static str,
        code: ErrorCode,
    },
}

impl ClientError {
    /// Whether the same request may succeed later or at another broker.
    pub fn is_retriable(&self) -> bool {
        matches!(self, Self::Connection { .. } | Self::TimedOut { .. })
    }

    pub(crate) fn protocol(address: &str, reason: impl ToString) -> Self {
        Self::Protocol {
            address: address.to_owned(),
            reason: reason.to_string(),
        }
    }

    pub(crate) fn decode(address: &str) -> impl Fn(DecodeError) -> Self + '_ {
        move |error| Self::protocol(address, error)
    }
}
