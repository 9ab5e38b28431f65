//! Names clients that use the old message formats in the log, each once.
//!
//! Operators learn which clients to renew: conversion costs time and memory, and Kafka 4 no longer
//! does it. The number of names remembered is bounded; beyond it new clients are not named.

use std::collections::HashSet;
use std::net::IpAddr;

use parking_lot::Mutex;
use pyrklog_wire::api::{self, key};
use pyrklog_wire::header::RequestHeader;
use pyrklog_wire::{fetch, produce};

use crate::client_context::ClientContext;
use pyrklog_control::event_queue::EventQueue;

/// Clients remembered.
const NAMED_MAX: usize = 1_000;

/// Notices in ten seconds.
const TOLD_MAX: u32 = 10;

/// Length limit of a client id in the log and in memory.
const CLIENT_ID_MAX_CHARS: usize = 100;

/// Clients named so far, by address and client id.
#[derive(Debug, Default)]
pub struct OldClients(Mutex<HashSet<(IpAddr, String)>>);

impl OldClients {
    /// Whether a client is to be named now.
    fn is_new(&self, host: IpAddr, client_id: &str) -> bool {
        let mut named = self.0.lock();
        named.len() < NAMED_MAX && named.insert((host, client_id.to_owned()))
    }

    /// A request of the client arrived.
    pub fn note(
        &self,
        client: &mut ClientContext,
        header: &RequestHeader<'_>,
        events: &EventQueue,
        now_ms: i64,
    ) {
        if client.is_old_noted || !is_old(header.api_key, header.api_version) {
            return;
        }
        client.is_old_noted = true;
        let client_id = header.client_id.unwrap_or_default();
        let client_id: String = client_id.chars().take(CLIENT_ID_MAX_CHARS).collect();
        if !self.is_new(client.host, &client_id) {
            return;
        }
        let name = api::lookup(header.api_key).map_or("", |row| row.name);
        let fields = vec![
            ("client_id", client_id),
            ("host", client.host.to_string()),
            ("request", format!("{name} v{}", header.api_version)),
        ];
        events.client_notice("old_client", TOLD_MAX, now_ms, fields);
    }
}

/// Whether a request's records have an old format.
fn is_old(api_key: i16, api_version: i16) -> bool {
    match api_key {
        key::PRODUCE => api_version < produce::BATCHES_SINCE,
        key::FETCH => api_version < fetch::BATCHES_SINCE,
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_client_is_named_once_and_the_names_are_bounded() {
        let clients = OldClients::default();
        let host = IpAddr::from([127, 0, 0, 1]);
        assert!(clients.is_new(host, "a"));
        assert!(!clients.is_new(host, "a"));
        assert!(clients.is_new(IpAddr::from([127, 0, 0, 2]), "a"));
        for number in 2..NAMED_MAX {
            assert!(clients.is_new(host, &number.to_string()));
        }
        assert!(!clients.is_new(host, "one too many"));
    }

    #[test]
    fn only_old_formats_count() {
        assert!(is_old(key::PRODUCE, 2) && !is_old(key::PRODUCE, 3));
        assert!(is_old(key::FETCH, 3) && !is_old(key::FETCH, 4));
        assert!(!is_old(key::METADATA, 0));
    }
}
