//! What changing the roles of partitions needs: the partitions and the fetchers.

use std::ops::Deref;
use std::sync::Arc;

use pyrklog_requests::services::Services;

use crate::follower::fetcher_manager::FetcherManager;

/// See the module; its work is in [`crate::leadership`] and [`crate::stopping`].
#[derive(Debug)]
pub struct ReplicaManager {
    pub services: Arc<Services>,
    pub fetchers: Arc<FetcherManager>,
}

impl ReplicaManager {
    pub fn new(services: &Arc<Services>) -> ReplicaManager {
        ReplicaManager {
            fetchers: Arc::new(FetcherManager::new(Arc::clone(services))),
            services: Arc::clone(services),
        }
    }
}

impl Deref for ReplicaManager {
    type Target = Services;

    fn deref(&self) -> &Services {
        &self.services
    }
}
