//! What all threads of the plane share.

use std::collections::hash_map::RandomState;
use std::hash::BuildHasher;
use std::ops::Deref;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicI64, AtomicU64, Ordering};
use std::time::Duration;

use arc_swap::ArcSwap;
use parking_lot::Mutex;

use crate::acceptor::{ConnectionLimits, Listeners, connections_max};
use crate::base::clock::mono_ms;
use crate::base::memory_budget::MemoryBudget;
use crate::base::network_threads::NetworkThreads;
use crate::base::replication_quota::ReplicationQuotas;
use crate::base::reply_memory::ReplyMemory;
use crate::control::api::PlaneConfig;
use crate::control::event_queue::EventQueue;
use crate::control::image::Image;
use crate::control::request_channel::{RequestChannel, Waiting};
use crate::fetch_session::SessionCache;
use crate::follower::Fetchers;
use crate::message::Inboxes;
use crate::refused::RefusedRoom;
use crate::replica::unreachable_leaders::UnreachableLeaders;
use crate::storage::log_dir::{LogDirState, Partition};
use crate::storage::log_loader::{LoaderContext, LogLoader};
use crate::storage::log_manager::{LogDirs, LogManager, SpaceListener};
use crate::validators::Validators;
use crate::{leadership, stopping};

/// See the module.
#[derive(Debug)]
pub struct Shared {
    /// Log directories and partitions.
    pub logs: Arc<LogManager>,
    /// Requests at the control plane.
    pub channel: Arc<RequestChannel>,
    /// What the control plane wants everyone to know.
    pub image: Arc<ArcSwap<Image>>,
    /// One a network thread.
    pub inboxes: Arc<Inboxes>,
    /// Slow commands.
    pub commands: LogLoader<Shared>,
    /// The threads that validate what expands to much.
    pub validators: Validators,
    /// The threads that follow other brokers.
    pub fetchers: Fetchers,
    /// Leaders that have just gone.
    pub unreachable_leaders: UnreachableLeaders,
    /// How fast throttled replicas are copied.
    pub quotas: ReplicationQuotas,
    /// Of this broker's registration, -1 before the first.
    pub broker_epoch: AtomicI64,
    /// Fetch sessions (KIP-227).
    pub sessions: Mutex<SessionCache>,
    /// The bound on receive memory.
    pub budget: Arc<MemoryBudget>,
    /// The bound on the memory of replies.
    pub replies: ReplyMemory,
    /// Connections that remember many refused batches.
    pub refused_room: Arc<RefusedRoom>,
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
    /// A simulation drives the plane: no thread is started.
    #[cfg(feature = "sim")]
    pub by_hand: AtomicBool,
    session_seed: RandomState,
    session_count: AtomicU64,
}

impl Shared {
    /// Errors: no file descriptor left.
    pub fn new(config: PlaneConfig, dirs: LogDirs) -> std::io::Result<Shared> {
        let threads = config.network_threads;
        let inboxes = Arc::new(Inboxes::new(threads)?);
        let budget = Arc::new(MemoryBudget::new(config.receive_buffers_max_bytes));
        Ok(Shared {
            channel: Arc::new(RequestChannel::new(
                config.control_queue_max_requests,
                Arc::clone(&budget),
                Waiting::beside(config.receive_buffers_max_bytes),
            )),
            image: Arc::new(ArcSwap::from_pointee(Image::default())),
            commands: LogLoader::new(config.recovery_threads_per_dir, dirs.usable.len()),
            logs: Arc::new(LogManager::new(
                config.clone(),
                dirs,
                Arc::new(EventQueue::new()?),
                Arc::clone(&inboxes) as Arc<dyn NetworkThreads>,
            )),
            inboxes,
            validators: Validators::new(
                threads,
                config.receive_buffers_max_bytes,
                Arc::clone(&budget),
            ),
            fetchers: Fetchers::default(),
            unreachable_leaders: UnreachableLeaders::default(),
            quotas: ReplicationQuotas::default(),
            broker_epoch: AtomicI64::new(-1),
            sessions: Mutex::new(SessionCache::within(
                config.fetch_session_slots,
                config.receive_buffers_max_bytes / 2,
            )),
            budget,
            replies: ReplyMemory::new(config.receive_buffers_max_bytes, config.cluster.is_some()),
            refused_room: Arc::default(),
            limits: ConnectionLimits::new(
                connections_max(config.max_connections),
                config.max_connections_per_ip,
            )?,
            listeners: Listeners::default(),
            anonymous: Arc::from("User:ANONYMOUS"),
            is_stopping: AtomicBool::new(false),
            #[cfg(feature = "testing")]
            hook: Default::default(),
            #[cfg(feature = "sim")]
            by_hand: AtomicBool::new(false),
            session_seed: RandomState::new(),
            session_count: AtomicU64::new(0),
        })
    }

    /// A fetch session id that cannot be guessed: 1 to 2^31-1.
    pub fn fresh_session_id(&self) -> i32 {
        let count = self.session_count.fetch_add(1, Ordering::Relaxed);
        let id = (self.session_seed.hash_one(count) & 0x7fff_ffff) as i32;
        id.max(1)
    }

    /// A number that names nothing else (names of deleted folders).
    pub fn unique(&self) -> u128 {
        let count = self.session_count.fetch_add(1, Ordering::Relaxed);
        let half = |half: u8| u128::from(self.session_seed.hash_one((count, half)));
        half(0) << 64 | half(1)
    }

    /// So many bytes of a followed partition have come.
    pub fn count_followed(&self, partition: &Partition, bytes: usize) {
        let quota = &self.quotas.follower;
        if quota.is_limited() && partition.is_throttled_following(self.config.node_id) {
            quota.count(bytes, mono_ms());
        }
    }

    /// Whether a simulation drives the plane.
    #[cfg(feature = "sim")]
    pub fn is_by_hand(&self) -> bool {
        self.by_hand.load(Ordering::Relaxed)
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
    type Target = LogManager;

    fn deref(&self) -> &LogManager {
        &self.logs
    }
}

impl LoaderContext for Shared {
    fn log_loader(&self) -> &LogLoader<Shared> {
        &self.commands
    }

    #[cfg(feature = "sim")]
    fn is_by_hand(&self) -> bool {
        self.by_hand.load(Ordering::Relaxed)
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
