//! The parts of the plane, for those that stand above all of them.

use std::ops::Deref;
use std::sync::Arc;

use crate::follower::fetcher_manager::FetcherManager;
use crate::net::network::Network;
use pyrklog_control::api::PlaneConfig;
use pyrklog_storage::log_manager::LogDirs;

/// See the module.
#[derive(Debug)]
pub struct Shared {
    /// Connections, and what they are served from.
    pub network: Arc<Network>,
    /// The threads that follow other brokers.
    pub fetchers: Arc<FetcherManager>,
}

impl Shared {
    /// Errors: no file descriptor left.
    pub fn new(config: PlaneConfig, dirs: LogDirs) -> std::io::Result<Shared> {
        let network = Arc::new(Network::new(config, dirs)?);
        let fetchers = Arc::new(FetcherManager::new(Arc::clone(&network.services)));
        Ok(Shared { network, fetchers })
    }
}

impl Deref for Shared {
    type Target = Network;

    fn deref(&self) -> &Network {
        &self.network
    }
}
