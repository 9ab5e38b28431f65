//! What the acceptor and the network threads share.

use std::ops::Deref;
use std::sync::Arc;

use crate::net::connection_limits::{ConnectionLimits, connections_max};
#[cfg(feature = "testing")]
use crate::net::hook::Hook;
use crate::net::listeners::Listeners;
use crate::net::message::Inboxes;
use pyrklog_base::network_threads::NetworkThreads;
use pyrklog_control::event_queue::EventQueue;
use pyrklog_control::seam::{ConnectionQuotas, PlaneConfig};
use pyrklog_requests::services::{Mailboxes, Services};
use pyrklog_storage::log_manager::{LogDirs, LogManager};

#[derive(Debug)]
pub struct Network {
    pub services: Arc<Services>,
    /// One per network thread.
    pub inboxes: Arc<Inboxes>,
    pub limits: Arc<ConnectionLimits>,
    pub listeners: Listeners,
    /// The principal of unauthenticated clients.
    pub anonymous: Arc<str>,
    #[cfg(feature = "testing")]
    pub hook: Hook,
}

impl Network {
    /// For log directories that were just opened. Errors: no file descriptor left.
    pub fn new(config: PlaneConfig, dirs: LogDirs) -> std::io::Result<Network> {
        let inboxes = Arc::new(Inboxes::new(config.network_threads)?);
        let limits = ConnectionLimits::new(ConnectionQuotas::new(
            connections_max(config.max_connections),
            config.max_connections_per_ip,
        ))?;
        let events = Arc::new(EventQueue::new()?);
        let network = Arc::clone(&inboxes) as Arc<dyn NetworkThreads>;
        let logs = LogManager::new(config, dirs, events, network);
        let mailboxes = Mailboxes {
            fetches: Arc::clone(&inboxes) as Arc<_>,
            look_ups: Arc::clone(&inboxes) as Arc<_>,
            validated: Arc::clone(&inboxes) as Arc<_>,
        };
        Ok(Network {
            services: Arc::new(Services::new(logs, mailboxes)),
            inboxes,
            limits,
            listeners: Listeners::default(),
            anonymous: Arc::from("User:ANONYMOUS"),
            #[cfg(feature = "testing")]
            hook: Hook::default(),
        })
    }
}

impl Deref for Network {
    type Target = Services;

    fn deref(&self) -> &Services {
        &self.services
    }
}
