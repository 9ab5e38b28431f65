//! [`DataPlane`]: the commands of the seam. Only [`DataPlane::open`], which reads the directories'
//! names, blocks on a disk; none blocks on a network.

mod digests;
mod log_ends;
mod opening;
mod rates;
mod requests;
mod transactions;

use std::io;
use std::net::TcpListener;
use std::os::fd::{OwnedFd, RawFd};
use std::sync::atomic::Ordering;
use std::sync::{Arc, Weak};

use parking_lot::Mutex;
use pyrklog_log::Left;
use pyrklog_log::disk::{Disk, RealDisk};

use crate::net::connection_limits::connections_max;
use crate::net::listeners::Listener;
use crate::net::network::Network;
use crate::replica_manager::ReplicaManager;
use crate::threads::Threads;
use crate::{housekeeping, internal_append, leadership, report, shutdown, stopping};
use pyrklog_base::clock::mono_ms;
use pyrklog_base::ids::TicketId;
use pyrklog_control::commit_batch::CommitBatch;
use pyrklog_control::image::ImageError;
use pyrklog_control::offset_commit::OffsetCommit;
use pyrklog_control::seam::{
    Behind, CleanerConfig, ConnectionQuotas, Event, FollowerSpec, FoundPartition, ImageDelta,
    InternalAppend, LeaderSpec, NewRecord, PlaneConfig, StopSpec, TicketOutcome,
};
use pyrklog_replica::partition::TopicSettings;
use pyrklog_storage::log_dir_state::Partition;
use pyrklog_storage::moves::requests::alter_log_dirs;
use pyrklog_storage::{begin_internal_read, kept_arena};

/// The kernel's queue of connections that wait to be accepted.
const LISTEN_BACKLOG: i32 = 1024;

/// Why a plane cannot be opened. Each is one sentence for the operator.
#[derive(Debug, thiserror::Error)]
pub enum OpenError {
    /// Another process holds a directory's `.lock`.
    #[error("{0}")]
    Locked(String),
    /// `meta.properties` is of a newer format or damaged, or two directories contradict each other.
    #[error("{0}")]
    Foreign(String),
    /// `meta.properties` names another cluster.
    #[error("{0}")]
    OtherCluster(String),
    /// `meta.properties` names another broker.
    #[error("{0}")]
    OtherBroker(String),
    /// No log directory can be used at all.
    #[error("{0}")]
    NoLogDir(String),
    /// An option makes no sense.
    #[error("{0}")]
    Config(String),
    /// The system refuses (file descriptors).
    #[error(transparent)]
    Io(#[from] io::Error),
}

/// The plane was shut down.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the data plane was shut down")]
pub struct Closed;

/// The running data plane. Dropped without [`DataPlane::shutdown`], it ends as by a kill:
/// acknowledged records are in the files, nothing is synced or marked clean.
#[derive(Debug)]
pub struct DataPlane {
    network: Arc<Network>,
    replicas: Arc<ReplicaManager>,
    threads: Arc<Threads>,
    /// Commands change state one at a time; set once the plane ends.
    is_closed: Mutex<bool>,
    ending: Mutex<Option<std::thread::JoinHandle<()>>>,
}

impl DataPlane {
    /// Creates and locks the log directories, checks or writes `meta.properties`, lists the
    /// partition folders. If some of several directories cannot be read, [`Event::LogDirFailed`]
    /// reports each.
    ///
    /// # Errors
    /// A directory is locked or foreign, or none can be used.
    pub fn open(config: PlaneConfig) -> Result<DataPlane, OpenError> {
        // Each thread of a broker allocates little, in places of its own. Huge pages of 2 MB would
        // take twice the memory, and filling them with zeros costs throughput (benchmarks.md).
        let _unknown_to_this_kernel = rustix::thread::disable_transparent_huge_pages(true);
        DataPlane::open_on(config, Arc::new(RealDisk))
    }

    /// The same on another disk (tests).
    ///
    /// # Errors
    /// As [`DataPlane::open`].
    pub fn open_on(config: PlaneConfig, disk: Arc<dyn Disk>) -> Result<DataPlane, OpenError> {
        if config.log_dirs.is_empty() {
            return Err(OpenError::Config("log.dirs names no directory".into()));
        }
        if !(1..=256).contains(&config.network_threads) {
            let message = "num.network.threads must be between 1 and 256";
            return Err(OpenError::Config(message.into()));
        }
        if let Some(dir) = &config.cache.dir {
            kept_arena::sweep_set_aside(dir);
        }
        let (dirs, cache_notes) = opening::open_dirs(&config, &disk)?;
        let network = Arc::new(Network::new(config, dirs)?);
        let replicas = Arc::new(ReplicaManager::new(&network.services));
        let listener: Weak<ReplicaManager> = Arc::downgrade(&replicas);
        network.logs.set_space_listener(listener);
        opening::tell_of_opening(&network.logs);
        for (path, (level, reason)) in cache_notes {
            let log_dir = path.display().to_string();
            let fields = vec![("log_dir", log_dir), ("reason", reason)];
            network.events.notice("block_cache", level, fields);
        }
        Ok(DataPlane {
            network,
            replicas,
            threads: Arc::default(),
            is_closed: Mutex::new(false),
            ending: Mutex::new(None),
        })
    }

    #[cfg(any(test, feature = "sim"))]
    pub(crate) fn network(&self) -> &Arc<Network> {
        &self.network
    }

    #[cfg(feature = "sim")]
    pub(crate) fn replicas(&self) -> &Arc<ReplicaManager> {
        &self.replicas
    }

    /// Calls `hook` on each network thread; to be set before the first [`DataPlane::listen`].
    #[cfg(feature = "testing")]
    pub fn set_network_hook(&self, hook: crate::testing::NetworkHook) {
        self.network.hook.set(hook);
    }

    /// From now on connections move between the network threads as often as they can.
    #[cfg(feature = "testing")]
    pub fn be_restless(&self) {
        self.network.hook.be_restless();
    }

    /// Breaks an invariant of a hosted partition: its leader epoch falls.
    #[cfg(any(feature = "testing", feature = "sim"))]
    pub fn break_invariant(&self, topic: &str, partition: i32) {
        if let Some(partition) = self.network.registry.partition(topic, partition) {
            partition.lock().leader_epoch -= 1;
        }
    }

    /// The same, in its log.
    #[cfg(feature = "testing")]
    pub fn break_log_invariant(&self, topic: &str, partition: i32) {
        if let Some(partition) = self.network.registry.partition(topic, partition)
            && let Some(log) = &mut partition.lock().log
        {
            log.break_invariant();
        }
    }

    /// What the folders hold, in order of topic and partition.
    pub fn found_partitions(&self) -> Vec<FoundPartition> {
        self.network.partition_dirs.list(&self.network.dirs)
    }

    /// How each usable log directory was left when the broker was last registered.
    pub fn pasts(&self) -> Vec<Left> {
        self.network
            .dirs
            .iter()
            .map(|dir| dir.files.left())
            .collect()
    }

    /// Binds a listener and accepts from it; returns the port. The first call starts the threads. A
    /// listener for brokers only accepts some even when clients have taken every connection.
    ///
    /// # Errors
    /// The address cannot be bound, or the plane was shut down.
    pub fn listen(
        &self,
        listener: &str,
        host: &str,
        port: u16,
        for_brokers: bool,
    ) -> io::Result<u16> {
        let closed = self.is_closed.lock();
        if *closed {
            return Err(io::Error::other(Closed));
        }
        let socket = TcpListener::bind((host, port))?;
        socket.set_nonblocking(true)?;
        rustix::net::listen(&socket, LISTEN_BACKLOG)?;
        let port = socket.local_addr()?.port();
        self.threads.start_storage(&self.network)?;
        self.threads.start_network(&self.network)?;
        self.network.listeners.add(Listener {
            name: Arc::from(listener),
            socket: OwnedFd::from(socket),
            for_brokers,
        });
        self.network.limits.wake();
        Ok(port)
    }

    /// Swaps in a new image; topic options reach open logs at once.
    ///
    /// # Errors
    /// An older version, or an image that contradicts itself; nothing has changed then.
    pub fn apply_image(&self, delta: ImageDelta) -> Result<(), ImageError> {
        let _one_at_a_time = self.is_closed.lock();
        let changed: Vec<String> = delta
            .topics
            .iter()
            .map(|topic| topic.name.clone())
            .collect();
        let image = Arc::new(self.network.image.load().apply(delta)?);
        self.network.image.store(Arc::clone(&image));
        self.network.unreachable_leaders.keep_known(&image);
        let hosted = self.network.registry.load();
        let mut outbox = self.network.outbox();
        for name in &changed {
            let (Some(hosted), Some(topic)) = (hosted.topic(name), image.topic(name)) else {
                continue;
            };
            if hosted.topic.id != topic.id {
                continue;
            }
            hosted.topic.set_settings(TopicSettings::new(topic));
            for partition in hosted.partitions() {
                let mut state = partition.lock();
                if let Some(log) = &mut state.log {
                    log.set_config(Arc::clone(&topic.log_config));
                }
                // Fewer replicas may be enough for the high watermark now.
                if state.raise_high_watermark_without_growth(&mut outbox) {
                    partition.dir().syncer.high_watermark_moved();
                }
                state.tell_fetches_later();
                drop(state);
                let flush_ms = topic.log_config.flush_ms;
                partition.dir().syncer.need_flush_ms(flush_ms);
            }
        }
        outbox.deliver(&*self.network.logs);
        Ok(())
    }

    /// This broker leads these partitions: opens, recovers or creates their logs, then serves them.
    /// Until then clients get NOT_LEADER_OR_FOLLOWER. Completes as [`TicketOutcome::Partitions`].
    pub fn become_leaders(&self, specs: Vec<LeaderSpec>) -> Result<TicketId, Closed> {
        self.command(|| leadership::become_leaders(&self.replicas, specs))
    }

    /// This broker follows others in these partitions: opens, recovers or creates their logs, then
    /// fetches from the leaders. Clients get NOT_LEADER_OR_FOLLOWER at once. Completes as
    /// [`TicketOutcome::Partitions`], when the logs are open.
    pub fn become_followers(&self, specs: Vec<FollowerSpec>) -> Result<TicketId, Closed> {
        self.command(|| leadership::become_followers(&self.replicas, specs))
    }

    /// The in-sync replicas of a partition that this broker leads in this epoch. `isr` is what the
    /// controller has recorded and `min.insync.replicas` counts; `members` are these and those
    /// about to join, for which the high watermark waits already. `is_held` as in
    /// [`seam::LeaderSpec::is_held`]. False if this broker does not lead in that epoch.
    pub fn set_isr(
        &self,
        topic: &str,
        partition: i32,
        leader_epoch: i32,
        members: &[i32],
        isr: &[i32],
        is_held: bool,
    ) -> bool {
        let Some(partition) = self.network.registry.partition(topic, partition) else {
            return false;
        };
        let mut outbox = self.network.outbox();
        let mut state = partition.lock();
        let is_set = state.set_isr(leader_epoch, members, isr, is_held);
        if is_set && state.raise_high_watermark(usize::MAX, &mut outbox) {
            partition.dir().syncer.high_watermark_moved();
        }
        drop(state);
        outbox.deliver(&*self.network.logs);
        is_set
    }

    /// In-sync followers that have not been caught up for longer than `max_lag_ms`
    /// (`replica.lag.time.max.ms`), of all partitions that this broker leads.
    pub fn lagging_followers(&self, max_lag_ms: i64) -> Vec<Behind> {
        let now_ms = mono_ms();
        let hosted = self.network.registry.load();
        let behind = |partition: &Arc<Partition>| {
            let state = partition.lock();
            let brokers = state.behind(now_ms, max_lag_ms);
            (!brokers.is_empty()).then(|| Behind {
                topic: partition.topic.name.to_string(),
                partition: partition.index,
                leader_epoch: state.leader_epoch,
                brokers,
            })
        };
        hosted.partitions().filter_map(behind).collect()
    }

    /// Limits of connections for all that come from now on. `max` is cut to what the process's
    /// descriptors allow.
    pub fn set_connection_quotas(&self, quotas: ConnectionQuotas) {
        let quotas = ConnectionQuotas {
            max: connections_max(quotas.max),
            ..quotas
        };
        self.network.limits.set_quotas(quotas, mono_ms());
    }

    /// `num.io.threads` from now on.
    pub fn set_io_threads(&self, threads: usize) {
        self.network.readers.set_io_threads(threads);
    }

    /// `num.recovery.threads.per.data.dir` from now on.
    pub fn set_recovery_threads_per_dir(&self, threads: usize) {
        self.network.loader.set_per_dir(threads);
    }

    /// `producer.id.expiration.ms` from now on.
    pub fn set_producer_id_expiration_ms(&self, expiration_ms: i64) {
        self.network
            .producer_id_expiration_ms
            .store(expiration_ms, Ordering::Relaxed);
    }

    /// Changes options of compaction.
    pub fn set_cleaner(&self, config: CleanerConfig) {
        if let Err(error) = self.threads.set_cleaner(&self.network, config) {
            self.tell_of_threads(&error);
        }
    }

    /// This broker is registered under this epoch, and the cluster knows [`DataPlane::pasts`].
    pub fn set_broker_epoch(&self, epoch: i64) {
        self.network.broker_epoch.store(epoch, Ordering::Relaxed);
        housekeeping::registered(&self.network.services);
    }

    /// Stops serving these partitions; with `delete`, removes them. Completes as
    /// [`TicketOutcome::Partitions`]; a missing partition counts as done.
    pub fn stop_partitions(&self, specs: Vec<StopSpec>) -> Result<TicketId, Closed> {
        self.command(|| stopping::stop_partitions(&self.replicas, specs))
    }

    /// Moves log start offsets: (topic, partition, offset; -1 = high watermark). Completes as
    /// [`TicketOutcome::DeleteRecords`].
    pub fn delete_records(&self, targets: Vec<(String, i32, i64)>) -> Result<TicketId, Closed> {
        self.command(|| housekeeping::delete_records(&self.network.services, &targets))
    }

    /// Moves replicas to other log directories while they are used, or ends such moves: (topic,
    /// partition, path of the directory as [`DataPlane::describe_log_dirs`] names it). Error codes
    /// in order; 0: the move is under way, or the replica is there. `moving-replicas.md`.
    pub fn alter_log_dirs(&self, wanted: &[(String, i32, String)]) -> Result<Vec<i16>, Closed> {
        self.command(|| {
            let image = self.network.image.load();
            let codes = alter_log_dirs(&self.network.logs, &image, wanted);
            codes.into_iter().map(|code| code.0).collect()
        })
    }

    /// Sizes of directories and partitions. Completes as [`TicketOutcome::LogDirs`].
    pub fn describe_log_dirs(&self) -> Result<TicketId, Closed> {
        self.command(|| housekeeping::describe_log_dirs(&self.network.services))
    }

    /// Appends one batch to a partition of an internal topic that this broker leads. The batch is
    /// built and enters the log within the call, in memory, so the log has batches in the order of
    /// the calls. Completes as [`TicketOutcome::InternalAppended`] once the high watermark has
    /// passed the batch, in this leader epoch or in a later one that this broker leads without
    /// having followed in between, or with an error:
    ///
    /// - NOT_LEADER_OR_FOLLOWER: not hosted, not served yet or not any more, or `expected_epoch` is
    ///   later than its leader epoch or of an earlier time as leader, at the call;
    /// - NOT_ENOUGH_REPLICAS: fewer in-sync replicas than `min.insync.replicas`, or than there are
    ///   replicas where those are fewer;
    /// - KAFKA_STORAGE_ERROR: its log directory failed;
    /// - REQUEST_TIMED_OUT: the log directory is so far behind that it takes nothing more;
    /// - MESSAGE_TOO_LARGE, RECORD_LIST_TOO_LARGE, INVALID_TIMESTAMP, INVALID_RECORD (no records),
    ///   UNSUPPORTED_COMPRESSION_TYPE, INVALID_PRODUCER_EPOCH: as of a produce request;
    ///   INVALID_TXN_STATE: the guard is void, and the producer's transaction is not open;
    ///   INVALID_TOPIC_EXCEPTION: not an internal topic.
    pub fn append_internal<'r>(
        &self,
        append: &InternalAppend<'_>,
        records: impl IntoIterator<Item = impl Into<NewRecord<'r>>>,
    ) -> Result<TicketId, Closed> {
        self.command(|| internal_append::append_internal(&self.network.services, append, records))
    }

    /// Appends staged offset commits as one batch, in order, to their groups' partition of
    /// `__consumer_offsets`, like [`DataPlane::append_internal`]. Answers them when that is over;
    /// their tables have them by then. Clients get errors translated by [`crate::commit_error`].
    pub fn append_commits(
        &self,
        append: &InternalAppend<'_>,
        commits: Vec<Arc<OffsetCommit>>,
    ) -> Result<Arc<CommitBatch>, Closed> {
        self.command(|| internal_append::append_commits(&self.network.services, append, commits))
    }

    /// Answers the unanswered commits with REQUEST_TIMED_OUT.
    pub fn time_out_commits(&self, batch: &CommitBatch) {
        let mut outbox = self.network.outbox();
        batch.time_out(&mut outbox);
        outbox.deliver(&*self.network.logs);
    }

    /// Reads whole batches of a partition of an internal topic, from the one that holds `offset`
    /// (or the log start offset, if that is higher) up to the log end offset as of the call; waits
    /// until that is written. Returns about `max_bytes`, in the log and decompressed, but at least
    /// one batch, which may be a damaged one. Completes as [`TicketOutcome::InternalRead`], with
    /// NOT_LEADER_OR_FOLLOWER, KAFKA_STORAGE_ERROR, OFFSET_OUT_OF_RANGE (beyond the log end),
    /// INVALID_TOPIC_EXCEPTION (not internal) or REQUEST_TIMED_OUT (too many reads of its log
    /// directory wait: try again).
    pub fn read_internal(
        &self,
        topic: &str,
        partition: i32,
        offset: i64,
        max_bytes: usize,
    ) -> Result<TicketId, Closed> {
        self.command(|| {
            self.start_readers();
            begin_internal_read::read_internal(&self.network, topic, partition, offset, max_bytes)
        })
    }

    /// Reads a partition of an internal topic from its log start to its log end offset as of the
    /// call, once that is written, about `max_bytes` at a time, and keeps the last value of each
    /// key; see [`pyrklog_control::live_records`]. Completes as [`TicketOutcome::InternalLoaded`], with the
    /// errors of [`DataPlane::read_internal`].
    pub fn load_internal(
        &self,
        topic: &str,
        partition: i32,
        max_bytes: usize,
    ) -> Result<TicketId, Closed> {
        self.command(|| {
            self.start_readers();
            begin_internal_read::load_internal(&self.network, topic, partition, max_bytes)
        })
    }

    /// The control plane may read before it listens.
    fn start_readers(&self) {
        if let Err(error) = self.threads.start_readers(&self.network) {
            self.tell_of_threads(&error);
        }
    }

    fn tell_of_threads(&self, error: &io::Error) {
        let fields = vec![("reason", error.to_string())];
        self.network
            .events
            .notice("threads_failed", "error", fields);
    }

    /// Runs a command, after earlier ones.
    fn command<T>(&self, act: impl FnOnce() -> T) -> Result<T, Closed> {
        let closed = self.is_closed.lock();
        if *closed {
            return Err(Closed);
        }
        if let Err(error) = self.threads.start_storage(&self.network) {
            self.tell_of_threads(&error);
        }
        Ok(act())
    }

    /// Counters by name.
    pub fn statistics(&self) -> Vec<(String, u64)> {
        report::statistics(&self.network)
    }

    /// Histograms by name ([`report::times`]).
    pub fn times(&self) -> Vec<(String, Vec<u64>)> {
        report::times(&self.network)
    }

    /// Ends in order, within `grace_ms` for what is in flight. Completes as
    /// [`TicketOutcome::Shutdown`]. A second call has no effect.
    pub fn shutdown(&self, grace_ms: i64) -> TicketId {
        let ticket = self.network.tickets.next();
        let was_closed = std::mem::replace(&mut *self.is_closed.lock(), true);
        if was_closed {
            return ticket;
        }
        let (network, threads) = (Arc::clone(&self.network), Arc::clone(&self.threads));
        let fetchers = Arc::clone(&self.replicas.fetchers);
        let end = move || {
            let is_clean = shutdown::end_in_order(&network, &fetchers, &threads, grace_ms);
            let outcome = TicketOutcome::Shutdown(is_clean);
            network.events.complete(ticket, outcome);
        };
        match std::thread::Builder::new()
            .name("shutdown".into())
            .spawn(end.clone())
        {
            Ok(thread) => *self.ending.lock() = Some(thread),
            Err(_) => end(),
        }
        ticket
    }

    /// Ends a failed start: restores what an orderly end had left, and removes a cache created
    /// meanwhile. What an earlier life left unfinished stays for the next start. No effect after
    /// [`DataPlane::shutdown`].
    pub fn abandon(&self) {
        let was_closed = std::mem::replace(&mut *self.is_closed.lock(), true);
        if was_closed {
            return;
        }
        let mut dirs = self.network.dirs.iter();
        match dirs.any(|dir| dir.env().has_reattached_cache()) {
            true => shutdown::end_at_once(&self.network, &self.replicas.fetchers, &self.threads),
            false => drop(shutdown::end_in_order(
                &self.network,
                &self.replicas.fetchers,
                &self.threads,
                0,
            )),
        }
    }

    /// Readable while events wait; stays the plane's own.
    pub fn event_fd(&self) -> RawFd {
        self.network.events.fd()
    }

    /// Takes up to `max` events.
    pub fn drain_events(&self, max: usize) -> Vec<Event> {
        self.network.events.drain(max)
    }
}

impl Drop for DataPlane {
    fn drop(&mut self) {
        match self.ending.get_mut().take() {
            Some(ending) => {
                let _ = ending.join();
            }
            None => shutdown::end_at_once(&self.network, &self.replicas.fetchers, &self.threads),
        }
    }
}
