//! A client's side of Kafka's protocol: connections, version negotiation, metadata, offsets.
//!
//! [`Connection`] is one broker's socket that never blocks; [`Client`] asks a cluster and waits for
//! the answers. Both give up as soon as their [`Cancel`] is used. What arrives is not trusted: no
//! announced length or count is allocated before its bytes are there.
//!
//! Records are not looked at here: `rust/scan` reads them, and a producer can stand on the same
//! connections.

#![forbid(unsafe_code)]

mod backoff;
mod client;
mod config;
mod connection;
mod error;
mod http;
mod metadata;
mod offsets;
mod open;
mod sasl;
mod secret;
mod tls;
mod transport;
mod versions;
mod wake;

pub use backoff::Backoff;
pub use client::{Client, Opener};
pub use config::{Address, ClientConfig, Security};
pub use connection::{Arrival, Connection, Frame};
pub use error::{ClientError, Result};
pub use http::{HttpAnswer, http_get};
pub use metadata::{Broker, Metadata, Partition, Topic};
pub use offsets::{EpochEnd, EpochQuery, Isolation, OffsetAnswer, OffsetQuery};
pub use sasl::Credentials;
pub use sasl::scram::Hash;
pub use sasl::tokens::{Token, TokenSource, Tokens};
pub use secret::Secret;
pub use tls::{Pem, Tls, TlsSettings};
pub use versions::{Api, ApiRanges, api};
pub use wake::{Cancel, Ready, Waker, wait};
