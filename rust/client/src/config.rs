//! Where the cluster is, and how to speak to it.

use std::fmt;
use std::time::Duration;

use crate::error::{ClientError, Result};
use crate::sasl::Credentials;
use crate::tls::Tls;

/// Host and port of a broker.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Address {
    /// Name or address, an IPv6 one without brackets.
    pub host: String,
    /// TCP port.
    pub port: u16,
}

impl fmt::Display for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.host.contains(':') {
            true => write!(f, "[{}]:{}", self.host, self.port),
            false => write!(f, "{}:{}", self.host, self.port),
        }
    }
}

impl Address {
    /// Reads `host:port` or `[IPv6]:port`.
    ///
    /// # Errors
    /// `Config`.
    pub fn parse(text: &str) -> Result<Address> {
        let bad = || ClientError::Config(format!("'{text}' is not HOST:PORT"));
        let (host, port) = text.trim().rsplit_once(':').ok_or_else(bad)?;
        let host = match host.strip_prefix('[') {
            Some(rest) => rest.strip_suffix(']').ok_or_else(bad)?,
            None if host.contains(':') => return Err(bad()),
            None => host,
        };
        let port = port.parse::<u16>().map_err(|_| bad())?;
        if host.is_empty() || port == 0 {
            return Err(bad());
        }
        Ok(Address {
            host: host.to_owned(),
            port,
        })
    }

    /// Reads addresses with commas between them, at least one.
    ///
    /// # Errors
    /// `Config`.
    pub fn parse_list(text: &str) -> Result<Vec<Address>> {
        text.split(',')
            .filter(|part| !part.trim().is_empty())
            .map(Address::parse)
            .collect::<Result<Vec<_>>>()
            .and_then(|all| match all.is_empty() {
                true => Err(ClientError::Config(
                    "bootstrap servers name no broker".into(),
                )),
                false => Ok(all),
            })
    }
}

/// How connections are protected, and who the client says it is. By default neither.
#[derive(Clone, Debug, Default)]
pub struct Security {
    /// `None` for plain text.
    pub tls: Option<Tls>,
    /// `None` for listeners without SASL.
    pub credentials: Option<Credentials>,
}

/// What all connections of a client share.
#[derive(Clone, Debug)]
pub struct ClientConfig {
    /// The first brokers to ask, in order.
    pub bootstrap: Vec<Address>,
    /// What the client calls itself, at most 32,767 bytes.
    pub client_id: String,
    /// For TCP and the first exchange of versions.
    pub connect_timeout: Duration,
    /// For the answer to a request.
    pub request_timeout: Duration,
    /// TLS and SASL.
    pub security: Security,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_are_read_and_written_alike() {
        for text in ["localhost:9092", "10.0.0.1:1", "[::1]:65535", "a.b-c:80"] {
            assert_eq!(Address::parse(text).unwrap().to_string(), text);
        }
        let both = Address::parse_list(" a:1, b:2 ,").unwrap();
        assert_eq!(both.iter().map(|a| a.port).collect::<Vec<_>>(), [1, 2]);
    }

    #[test]
    fn what_is_no_address_is_named() {
        for text in [
            "",
            "host",
            ":1",
            "host:",
            "host:0",
            "host:65536",
            "::1:9",
            "[::1:9",
        ] {
            let error = Address::parse(text).unwrap_err().to_string();
            assert!(error.contains(text), "{error}");
        }
        assert!(Address::parse_list(" , ").is_err());
    }
}
