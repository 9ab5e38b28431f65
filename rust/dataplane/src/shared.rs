//! What all threads of the plane share.

use std::collections::hash_map::RandomState;
use std::hash::BuildHasher;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicI64, AtomicU64, Ordering};
use std::time::Duration;

use arc_swap::ArcSwap;
use parking_lot::Mutex;
use pyrklog_log::disk::LogDirKey;
use pyrklog_wire::ErrorCode;

use crate::acceptor::{ConnectionLimits, Listeners, connections_max};
use crate::base::clock::mono_ms;
use crate::base::memory_budget::MemoryBudget;
use crate::base::network_event::NetworkEvent;
use crate::base::replication_quota::ReplicationQuotas;
use crate::base::reply_memory::ReplyMemory;
use crate::commands::CommandQueue;
use crate::control::api::{Event, PlaneConfig};
use crate::control::event_queue::EventQueue;
use crate::control::image::Image;
use crate::control::internal_read_work::InternalReadWork;
use crate::control::outbox::{Delivery, Outbox};
use crate::control::request_channel::{RequestChannel, Waiting};
use crate::control::statistics::Statistics;
use crate::fetch_session::SessionCache;
use crate::follower::Fetchers;
use crate::internal_read::InternalReadJob;
use crate::log_dir::LogDirState;
use crate::log_dir::Partition;
use crate::log_dir::Registry;
use crate::message::Inboxes;
use crate::placement::Placement;
use crate::reader_pool::ReaderPool;
use crate::refused::RefusedRoom;
use crate::replica::partition::Role;
use crate::replica::unreachable_leaders::UnreachableLeaders;
use crate::validators::Validators;

/// See the module.
#[derive(Debug)]
pub struct Shared {
    /// Fixed options.
    pub config: PlaneConfig,
    /// The way up.
    pub events: Arc<EventQueue>,
    /// Requests at the control plane.
    pub channel: Arc<RequestChannel>,
    /// What the control plane wants everyone to know.
    pub image: Arc<ArcSwap<Image>>,
    /// The partitions held here.
    pub registry: Arc<Registry>,
    /// Where partitions lie.
    pub placement: Placement,
    /// The log directories that could be opened.
    pub dirs: Vec<Arc<LogDirState>>,
    /// Those that could not: (path, why).
    pub unusable_dirs: Vec<(PathBuf, String)>,
    /// One a network thread.
    pub inboxes: Arc<Inboxes>,
    /// Work for the readers.
    pub readers: Arc<ReaderPool>,
    /// Slow commands.
    pub commands: CommandQueue,
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
    /// Counters.
    pub statistics: Arc<Statistics>,
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
    pub fn new(
        config: PlaneConfig,
        dirs: Vec<Arc<LogDirState>>,
        unusable_dirs: Vec<(PathBuf, String)>,
        placement: Placement,
    ) -> std::io::Result<Shared> {
        let threads = config.network_threads;
        let inboxes = Arc::new(Inboxes::new(threads)?);
        let budget = Arc::new(MemoryBudget::new(config.receive_buffers_max_bytes));
        Ok(Shared {
            events: Arc::new(EventQueue::new()?),
            channel: Arc::new(RequestChannel::new(
                config.control_queue_max_requests,
                Arc::clone(&budget),
                Waiting::beside(config.receive_buffers_max_bytes),
            )),
            image: Arc::new(ArcSwap::from_pointee(Image::default())),
            registry: Arc::default(),
            placement,
            commands: CommandQueue::new(config.recovery_threads_per_dir, dirs.len()),
            readers: Arc::new(ReaderPool::new(
                dirs.iter()
                    .map(|dir| LogDirKey::of_log_dir(dir.path()))
                    .collect(),
                config.reader_threads,
            )),
            dirs,
            unusable_dirs,
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
            statistics: Arc::new(Statistics::new(threads)),
            anonymous: Arc::from("User:ANONYMOUS"),
            is_stopping: AtomicBool::new(false),
            #[cfg(feature = "testing")]
            hook: Default::default(),
            #[cfg(feature = "sim")]
            by_hand: AtomicBool::new(false),
            session_seed: RandomState::new(),
            session_count: AtomicU64::new(0),
            config,
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

    /// An outbox for any thread.
    pub fn outbox(&self) -> Outbox {
        Outbox::new(self.inboxes.len())
    }

    /// A write or sync in `dir` failed: nothing of it is served any more. Its partitions go
    /// offline, whoever waits for them is told, and so is the control plane, once.
    pub fn fail_dir(&self, dir: &Arc<LogDirState>, reason: String) {
        dir.env().poison(reason.clone());
        if !dir.announce_failure() {
            return;
        }
        let mut outbox = self.outbox();
        let mut partitions = Vec::new();
        for partition in self.registry.load().partitions() {
            if !Arc::ptr_eq(&partition.dir, dir) {
                continue;
            }
            partitions.push((partition.topic.name.to_string(), partition.index));
            let mut state = partition.lock();
            if matches!(state.role, Role::Leader | Role::Follower) {
                state.role = Role::Offline;
                state.fail_waiters(ErrorCode::KAFKA_STORAGE_ERROR, &mut outbox);
            }
        }
        dir.unpark(&mut outbox);
        outbox.deliver(self);
        partitions.sort();
        self.events.push(Event::LogDirFailed {
            path: dir.path().to_owned(),
            reason,
            partitions,
        });
    }

    /// Something found no space left in `dir`: it takes no records until its writer finds some. What
    /// it has is served, and whoever waits for room there is told.
    pub fn disk_full(&self, dir: &Arc<LogDirState>, reason: String) {
        if dir.has_failed() || dir.env().set_full(true) {
            return;
        }
        let fields = vec![
            ("log_dir", dir.path().display().to_string()),
            ("reason", reason),
            (
                "effect",
                "read-only until there is space: nothing acknowledged is lost".to_owned(),
            ),
        ];
        self.events.notice("log_dir_full", "error", fields);
        let mut outbox = self.outbox();
        dir.unpark(&mut outbox);
        outbox.deliver(self);
        dir.writer.hurry();
    }

    /// `dir` takes records again.
    pub fn disk_has_space(&self, dir: &LogDirState) {
        dir.set_lacks_space(false);
        if dir.env().set_full(false) {
            let fields = vec![("log_dir", dir.path().display().to_string())];
            self.events.notice("log_dir_has_space", "info", fields);
        }
    }

    /// Whether any log directory cannot be used: what it holds cannot be known then.
    pub fn has_failed_dir(&self) -> bool {
        !self.unusable_dirs.is_empty() || self.dirs.iter().any(|dir| dir.has_failed())
    }
}

impl Delivery for Shared {
    fn tell_network_thread(&self, thread: usize, events: &mut Vec<NetworkEvent>) {
        self.inboxes[thread].send_all(events);
    }

    fn tell_control_plane(&self, events: &mut Vec<Event>) {
        self.events.push_all(events);
    }

    fn begin_read(&self, work: InternalReadWork) -> Result<(), InternalReadWork> {
        let queue = self.readers.for_internal(work.dir);
        let job = Box::new(InternalReadJob {
            work,
            registry: Arc::clone(&self.registry),
            statistics: Arc::clone(&self.statistics),
            events: Arc::clone(&self.events),
        });
        self.readers.submit(queue, job).map_err(|job| job.work)
    }
}
