//! The log directories, their partitions, and what their threads share.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicI64, Ordering};
use std::sync::{Arc, OnceLock, Weak};

use pyrklog_log::ConversionListener;
use pyrklog_log::disk::{LogDirKey, is_exhausted};
use pyrklog_wire::ErrorCode;

use crate::internal_read::InternalReadJob;
use crate::log_dir_state::{FailureListener, LogDirState, Partition, Registry};
use crate::log_loader::LogLoader;
use crate::moves::Moves;
use crate::partition_dirs::PartitionDirs;
use crate::reader_pool::ReaderPool;
use crate::reader_queue::Kind;
use pyrklog_base::network_event::NetworkEvent;
use pyrklog_base::network_threads::NetworkThreads;
use pyrklog_base::unguessable::Unguessable;
use pyrklog_control::event_queue::EventQueue;
use pyrklog_control::internal_read_work::InternalReadWork;
use pyrklog_control::outbox::{Delivery, Outbox};
use pyrklog_control::seam::{Event, FailedPartition, PlaneConfig};
use pyrklog_control::statistics::Statistics;
use pyrklog_control::tickets::Tickets;
use pyrklog_replica::partition::{PartitionState, Role};

/// See the module.
#[derive(Debug)]
pub struct LogManager {
    /// Fixed options.
    pub config: PlaneConfig,
    /// Events to the control plane.
    pub events: Arc<EventQueue>,
    /// Numbers of commands.
    pub tickets: Tickets,
    /// The hosted partitions.
    pub registry: Arc<Registry>,
    /// Which directory holds which partition.
    pub partition_dirs: PartitionDirs,
    /// The log directories that could be opened.
    pub dirs: Vec<Arc<LogDirState>>,
    /// Those that could not: (path, reason).
    pub unusable_dirs: Vec<(PathBuf, String)>,
    /// Moves between them.
    pub moves: Moves,
    /// Work for the readers.
    pub readers: Arc<ReaderPool>,
    /// Counters.
    pub statistics: Arc<Statistics>,
    /// Slow commands.
    pub loader: Arc<LogLoader>,
    /// Of this broker's registration; -1 before the first.
    pub broker_epoch: AtomicI64,
    /// Random numbers for names of deleted folders.
    pub names: Unguessable,
    /// `producer.id.expiration.ms`, which changes at run time.
    pub producer_id_expiration_ms: AtomicI64,
    /// The plane is shutting down.
    pub is_stopping: AtomicBool,
    space_listener: OnceLock<Weak<dyn SpaceListener>>,
    network: Arc<dyn NetworkThreads>,
    /// A simulation drives the plane; no thread is started.
    #[cfg(feature = "sim")]
    pub is_simulated: AtomicBool,
}

/// Is told when a full directory has space again.
pub trait SpaceListener: std::fmt::Debug + Send + Sync {
    /// These partitions' logs could not be opened for lack of space.
    fn open_logs(self: Arc<Self>, partitions: Vec<Arc<Partition>>);

    /// Logs of `dir` could not be closed for lack of space.
    fn close_logs(self: Arc<Self>, dir: &LogDirState);
}

/// The log directories of a broker.
#[derive(Debug)]
pub struct LogDirs {
    /// Those that could be opened.
    pub usable: Vec<Arc<LogDirState>>,
    /// Those that could not: (path, reason).
    pub unusable: Vec<(PathBuf, String)>,
    /// Which of them holds which partition.
    pub partition_dirs: PartitionDirs,
    /// Copies that were found.
    pub moves: Moves,
}

impl LogManager {
    /// For directories that were just opened.
    pub fn new(
        config: PlaneConfig,
        dirs: LogDirs,
        events: Arc<EventQueue>,
        network: Arc<dyn NetworkThreads>,
    ) -> Arc<LogManager> {
        let keys = dirs.usable.iter();
        let keys = keys.map(|dir| LogDirKey::of_log_dir(dir.path())).collect();
        let logs = Arc::new(LogManager {
            events,
            tickets: Tickets::default(),
            registry: Arc::default(),
            partition_dirs: dirs.partition_dirs,
            moves: dirs.moves,
            readers: Arc::new(ReaderPool::new(keys, config.reader_threads)),
            loader: Arc::new(LogLoader::new(
                config.recovery_threads_per_dir,
                dirs.usable.len(),
            )),
            broker_epoch: AtomicI64::new(-1),
            names: Unguessable::default(),
            producer_id_expiration_ms: AtomicI64::new(config.producer_id_expiration_ms),
            is_stopping: AtomicBool::new(false),
            space_listener: OnceLock::new(),
            dirs: dirs.usable,
            unusable_dirs: dirs.unusable,
            statistics: Arc::new(Statistics::new(network.count())),
            network,
            #[cfg(feature = "sim")]
            is_simulated: AtomicBool::new(false),
            config,
        });
        for dir in &logs.dirs {
            let listener: Weak<LogManager> = Arc::downgrade(&logs);
            dir.env().set_conversion_listener(listener.clone());
            dir.set_failure_listener(listener);
        }
        logs
    }

    /// Sets the listener, once.
    pub fn set_space_listener(&self, listener: Weak<dyn SpaceListener>) {
        let _first_stays = self.space_listener.set(listener);
    }

    /// The listener; `None` once the plane has ended.
    pub fn space_listener(&self) -> Option<Arc<dyn SpaceListener>> {
        self.space_listener.get()?.upgrade()
    }

    /// Whether the plane is shutting down.
    pub fn is_ending(&self) -> bool {
        self.is_stopping.load(Ordering::Acquire)
    }

    /// Whether a simulation drives the plane.
    #[cfg(feature = "sim")]
    pub fn is_simulated(&self) -> bool {
        self.is_simulated.load(Ordering::Relaxed)
    }

    /// Number of network threads.
    pub fn network_threads(&self) -> usize {
        self.network.count()
    }

    /// Sends an event to a network thread.
    pub fn tell(&self, thread: usize, event: NetworkEvent) {
        self.network.tell(thread, &mut vec![event]);
    }

    /// A new outbox.
    pub fn outbox(&self) -> Outbox {
        Outbox::new(self.network.count())
    }

    /// Fails `dir` after a write or sync failed: its partitions go offline, waiting requests fail,
    /// and the control plane is told once.
    pub fn fail_dir(&self, dir: &Arc<LogDirState>, reason: String) {
        dir.env().poison(reason.clone());
        if !dir.announce_failure() {
            return;
        }
        let mut outbox = self.outbox();
        let mut partitions = Vec::new();
        for partition in self.registry.load().partitions_in(dir) {
            partitions.push((partition.topic.name.to_string(), partition.index));
            let mut state = partition.lock();
            if matches!(state.role, Role::Leader | Role::Follower) {
                state.role = Role::Offline;
                state.fail_waiters(ErrorCode::KAFKA_STORAGE_ERROR, &mut outbox);
            }
        }
        dir.unmute(&mut outbox);
        outbox.deliver(self);
        partitions.sort();
        self.events.push(Event::LogDirFailed {
            path: dir.path().to_owned(),
            reason,
            partitions,
        });
    }

    /// Tells the operator about a log directory.
    pub fn dir_notice(
        &self,
        dir: &LogDirState,
        event: &'static str,
        level: &'static str,
        reason: String,
    ) {
        let log_dir = dir.path().display().to_string();
        let fields = vec![("log_dir", log_dir), ("reason", reason)];
        self.events.notice(event, level, fields);
    }

    /// Tells the operator of an error in a partition.
    pub fn partition_error(&self, topic: &str, index: i32, event: &'static str, reason: String) {
        let fields = vec![
            ("topic", topic.to_owned()),
            ("partition", index.to_string()),
            ("reason", reason),
        ];
        self.events.notice(event, "error", fields);
    }

    /// Tells the control plane, and so the controller, of a partition that is offline until the next
    /// start.
    pub fn tell_of_failed(&self, partition: &Partition, reason: String) {
        self.events.push(Event::PartitionFailed(FailedPartition {
            topic: partition.topic.name.to_string(),
            topic_id: partition.topic.id,
            partition: partition.index,
            reason,
        }));
    }

    /// A call failed by an error that may pass: `dir` lacks space, or the process descriptors or
    /// memory, which say nothing of the disk. Wakes its writer, which tries again
    /// ([`crate::shortage`]).
    pub fn fall_short(&self, dir: &Arc<LogDirState>, doing: &str, error: &io::Error) {
        let reason = format!("{doing}: {error}");
        if !is_exhausted(error) {
            return self.make_read_only(dir, reason);
        }
        if !dir.has_failed() && !dir.set_exhausted(error) {
            self.dir_notice(dir, "log_dir_waits", "warning", reason);
            dir.writer.hurry();
        }
    }

    /// Calls in `dir` find descriptors and memory again; returns whether they did not.
    pub fn end_exhausted(&self, dir: &LogDirState) -> bool {
        let was_exhausted = dir.end_exhausted();
        if was_exhausted {
            let fields = vec![("log_dir", dir.path().display().to_string())];
            self.events.notice("log_dir_goes_on", "info", fields);
        }
        was_exhausted
    }

    /// `dir` lacks space: it takes no records until its writer finds some ([`crate::shortage`]). It
    /// still serves its records. Answers the requests that wait for room.
    pub fn make_read_only(&self, dir: &Arc<LogDirState>, reason: String) {
        if dir.has_failed() || dir.env().set_read_only(true) {
            return;
        }
        let fields = vec![
            ("log_dir", dir.path().display().to_string()),
            ("reason", reason),
            (
                "effect",
                "read-only until there is space; acknowledged records are kept".to_owned(),
            ),
        ];
        self.events.notice("log_dir_full", "error", fields);
        let mut outbox = self.outbox();
        dir.unmute(&mut outbox);
        outbox.deliver(self);
        dir.writer.hurry();
    }

    /// Lets `dir` take records again.
    pub fn make_writable(&self, dir: &LogDirState) {
        if dir.env().set_read_only(false) {
            let fields = vec![("log_dir", dir.path().display().to_string())];
            self.events.notice("log_dir_has_space", "info", fields);
        }
    }

    /// Whether a log directory is unusable, so that its contents are unknown.
    pub fn has_failed_dir(&self) -> bool {
        !self.unusable_dirs.is_empty() || self.dirs.iter().any(|dir| dir.has_failed())
    }
}

impl ConversionListener for LogManager {
    fn begins(&self, folder: &Path, segments: usize, bytes: u64) {
        let fields = vec![
            ("folder", folder.display().to_string()),
            ("segments", segments.to_string()),
            ("bytes", bytes.to_string()),
        ];
        let event = "log_conversion_begins";
        self.events.notice(event, "info", fields);
    }

    fn may_go_on(&self) -> bool {
        !self.is_ending()
    }
}

impl FailureListener for LogManager {
    fn partition_failed(&self, partition: &Partition, state: &mut PartitionState, reason: String) {
        let mut outbox = self.outbox();
        state.fail_waiters(ErrorCode::KAFKA_STORAGE_ERROR, &mut outbox);
        partition.dir().unmute(&mut outbox);
        outbox.deliver(self);
        match state.role {
            // Nobody counts on it, and its name may be placed anew.
            Role::Stopped => {
                let (topic, index) = (&partition.topic.name, partition.index);
                self.partition_error(topic, index, "partition_offline", reason);
            }
            _ => self.tell_of_failed(partition, reason),
        }
    }
}

impl Delivery for LogManager {
    fn tell_network_thread(&self, thread: usize, events: &mut Vec<NetworkEvent>) {
        self.network.tell(thread, events);
    }

    fn tell_control_plane(&self, events: &mut Vec<Event>) {
        self.events.push_all(events);
    }

    fn begin_read(&self, work: InternalReadWork) -> Result<(), InternalReadWork> {
        let queue = self.readers.for_kind(work.dir, Kind::Internal);
        let job = Box::new(InternalReadJob {
            work,
            registry: Arc::clone(&self.registry),
            statistics: Arc::clone(&self.statistics),
            events: Arc::clone(&self.events),
        });
        self.readers.submit(queue, job).map_err(|job| job.work)
    }
}
