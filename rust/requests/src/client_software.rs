//! Tells the control plane the software of clients (KIP-511), each once.
//!
//! The number of clients remembered is bounded; when it is reached they are forgotten, and told
//! anew.

use std::collections::HashSet;
use std::net::IpAddr;

use parking_lot::Mutex;
use pyrklog_control::event_queue::EventQueue;
use pyrklog_wire::api_versions::ApiVersionsRequest;

use crate::request::Request;

/// Clients remembered.
const SEEN_MAX: usize = 1_000;

/// Clients told in ten seconds: a fraction of the notices that may wait.
const TOLD_MAX: u32 = 200;

/// Length limit of a client's id, and of the name and the version of its software.
const NAME_MAX_CHARS: usize = 100;

/// Address, client id, name and version of the software.
type Client = (IpAddr, String, String, String);

/// Clients told so far.
#[derive(Debug, Default)]
pub struct ClientSoftware(Mutex<HashSet<Client>>);

impl ClientSoftware {
    /// Whether a client is to be told now.
    fn is_new(&self, client: &Client) -> bool {
        let mut seen = self.0.lock();
        if seen.contains(client) {
            return false;
        }
        if seen.len() >= SEEN_MAX {
            seen.clear();
        }
        seen.insert(client.clone())
    }

    /// A client has sent ApiVersions, well formed.
    pub fn note(
        &self,
        request: &Request<'_>,
        asked: &ApiVersionsRequest<'_>,
        events: &EventQueue,
        now_ms: i64,
    ) {
        let client = (
            request.client.host,
            shortened(request.header.client_id.unwrap_or_default()),
            shortened(asked.client_software_name),
            shortened(asked.client_software_version),
        );
        if !self.is_new(&client) {
            return;
        }
        let (host, client_id, name, version) = client;
        let fields = vec![
            ("client_id", client_id),
            ("host", host.to_string()),
            ("software_name", name),
            ("software_version", version),
        ];
        events.client_notice("client_seen", TOLD_MAX, now_ms, fields);
    }
}

fn shortened(text: &str) -> String {
    text.chars().take(NAME_MAX_CHARS).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn client(number: usize) -> Client {
        let host = IpAddr::from([127, 0, 0, 1]);
        (
            host,
            number.to_string(),
            "librdkafka".into(),
            "2.5.0".into(),
        )
    }

    #[test]
    fn a_client_is_told_once_until_too_many_were() {
        let clients = ClientSoftware::default();
        for number in 0..SEEN_MAX {
            assert!(clients.is_new(&client(number)));
            assert!(!clients.is_new(&client(number)));
        }
        assert!(clients.is_new(&client(SEEN_MAX)));
        assert!(clients.is_new(&client(0)), "forgotten");
        assert!(!clients.is_new(&client(SEEN_MAX)));
    }

    #[test]
    fn names_are_cut() {
        assert_eq!(shortened(&"é".repeat(500)).chars().count(), NAME_MAX_CHARS);
    }
}
