//! What all threads of the plane share.

use std::ops::Deref;
use std::sync::Arc;

use crate::acceptor::{ConnectionLimits, Listeners, connections_max};
use crate::base::network_threads::NetworkThreads;
use crate::control::api::PlaneConfig;
use crate::control::event_queue::EventQueue;
use crate::follower::fetcher_manager::FetcherManager;
use crate::message::Inboxes;
use crate::requests::services::{Mailboxes, Services};
use crate::storage::log_dir::{LogDirState, Partition};
use crate::storage::log_manager::{LogDirs, LogManager, SpaceListener};
use crate::{leadership, stopping};

/// See the module.
#[derive(Debug)]
pub struct Shared {
    /// What requests are served from.
    pub services: Arc<Services>,
    /// One a network thread.
    pub inboxes: Arc<Inboxes>,
    /// The threads that follow other brokers.
    pub fetchers: Arc<FetcherManager>,
    /// The bounds on connections.
    pub limits: Arc<ConnectionLimits>,
    /// Sockets to accept from.
    pub listeners: Listeners,
    /// The principal of everyone who has not authenticated.
    pub anonymous: Arc<str>,
    /// What tests do on network threads.
    #[cfg(feature = "testing")]
    pub hook: crate::testing::Hook,
}

impl Shared {
    /// Errors: no file descriptor left.
    pub fn new(config: PlaneConfig, dirs: LogDirs) -> std::io::Result<Shared> {
        let inboxes = Arc::new(Inboxes::new(config.network_threads)?);
        let limits = ConnectionLimits::new(
            connections_max(config.max_connections),
            config.max_connections_per_ip,
        )?;
        let events = Arc::new(EventQueue::new()?);
        let network = Arc::clone(&inboxes) as Arc<dyn NetworkThreads>;
        let logs = Arc::new(LogManager::new(config, dirs, events, network));
        let mailboxes = Mailboxes {
            fetches: Arc::clone(&inboxes) as Arc<_>,
            look_ups: Arc::clone(&inboxes) as Arc<_>,
            validated: Arc::clone(&inboxes) as Arc<_>,
        };
        let services = Arc::new(Services::new(logs, mailboxes));
        Ok(Shared {
            inboxes,
            fetchers: Arc::new(FetcherManager::new(Arc::clone(&services))),
            services,
            limits,
            listeners: Listeners::default(),
            anonymous: Arc::from("User:ANONYMOUS"),
            #[cfg(feature = "testing")]
            hook: Default::default(),
        })
    }
}

impl Deref for Shared {
    type Target = Services;

    fn deref(&self) -> &Services {
        &self.services
    }
}

impl SpaceListener for Shared {
    fn open_logs(self: Arc<Self>, partitions: Vec<Arc<Partition>>) {
        leadership::load_again(&self, partitions);
    }

    fn close_logs(self: Arc<Self>, dir: &LogDirState) {
        stopping::close_again(&self, dir);
    }
}
