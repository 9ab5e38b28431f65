//! What all threads of the plane share.

use std::ops::Deref;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicI64, Ordering};
use std::time::Duration;

use crate::acceptor::{ConnectionLimits, Listeners, connections_max};
use crate::base::clock::mono_ms;
use crate::base::network_threads::NetworkThreads;
use crate::base::unguessable::Unguessable;
use crate::control::api::PlaneConfig;
use crate::control::event_queue::EventQueue;
use crate::follower::Fetchers;
use crate::message::Inboxes;
use crate::requests::services::{Mailboxes, Services};
use crate::storage::log_dir::{LogDirState, Partition};
use crate::storage::log_loader::{LoaderContext, LogLoader};
use crate::storage::log_manager::{LogDirs, LogManager, SpaceListener};
use crate::{leadership, stopping};

/// See the module.
#[derive(Debug)]
pub struct Shared {
    /// What requests are served from.
    pub services: Arc<Services>,
    /// Numbers that name nothing else.
    pub names: Unguessable,
    /// One a network thread.
    pub inboxes: Arc<Inboxes>,
    /// Slow commands.
    pub commands: LogLoader<Shared>,
    /// The threads that follow other brokers.
    pub fetchers: Fetchers,
    /// Of this broker's registration, -1 before the first.
    pub broker_epoch: AtomicI64,
    /// The bounds on connections.
    pub limits: Arc<ConnectionLimits>,
    /// Sockets to accept from.
    pub listeners: Listeners,
    /// The principal of everyone who has not authenticated.
    pub anonymous: Arc<str>,
    /// The plane ends, orderly or not.
    pub is_stopping: AtomicBool,
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
        let loader = LogLoader::new(config.recovery_threads_per_dir, dirs.usable.len());
        let events = Arc::new(EventQueue::new()?);
        let network = Arc::clone(&inboxes) as Arc<dyn NetworkThreads>;
        let logs = Arc::new(LogManager::new(config, dirs, events, network));
        let mailboxes = Mailboxes {
            fetches: Arc::clone(&inboxes) as Arc<_>,
            look_ups: Arc::clone(&inboxes) as Arc<_>,
            validated: Arc::clone(&inboxes) as Arc<_>,
        };
        Ok(Shared {
            services: Arc::new(Services::new(logs, mailboxes)),
            names: Unguessable::default(),
            inboxes,
            commands: loader,
            fetchers: Fetchers::default(),
            broker_epoch: AtomicI64::new(-1),
            limits,
            listeners: Listeners::default(),
            anonymous: Arc::from("User:ANONYMOUS"),
            is_stopping: AtomicBool::new(false),
            #[cfg(feature = "testing")]
            hook: Default::default(),
        })
    }

    /// So many bytes of a followed partition have come.
    pub fn count_followed(&self, partition: &Partition, bytes: usize) {
        let quota = &self.quotas.follower;
        if quota.is_limited() && partition.is_throttled_following(self.config.node_id) {
            quota.count(bytes, mono_ms());
        }
    }

    /// Waits a moment for what the writers have in hand.
    pub fn await_writers(self: &Arc<Self>, moment: Duration) {
        #[cfg(feature = "sim")]
        if self.is_by_hand() {
            return crate::sim::write_all(self);
        }
        std::thread::sleep(moment);
    }

    /// Whether the plane ends.
    pub fn is_ending(&self) -> bool {
        self.is_stopping.load(Ordering::Acquire)
    }
}

impl Deref for Shared {
    type Target = Services;

    fn deref(&self) -> &Services {
        &self.services
    }
}

impl LoaderContext for Shared {
    fn log_loader(&self) -> &LogLoader<Shared> {
        &self.commands
    }

    #[cfg(feature = "sim")]
    fn is_by_hand(&self) -> bool {
        self.logs.is_by_hand()
    }

    #[cfg(not(feature = "sim"))]
    fn is_by_hand(&self) -> bool {
        false
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
