//! One log directory at run time: its queues, its back-pressure, and whether it has failed.

use std::io;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use parking_lot::Mutex;
use pyrklog_log::{DeletedFolder, LogDir, LogEnv};

use crate::api::CacheConfig;
use crate::outbox::Outbox;
use crate::parking::Park;
use crate::partition::Partition;
use crate::syncer::SyncerQueue;
use crate::writer::WriterQueue;

/// No more of a volume may be unwritten than this share, so that the reserve stays small.
const VOLUME_SHARE: u64 = 20;

/// The reserve is more than what may be unwritten by this share: indexes, blocks that are not full.
const RESERVE_MORE_SHARE: usize = 4;

/// See the module.
#[derive(Debug)]
pub struct LogDirState {
    /// Position in `log.dirs`.
    pub index: usize,
    /// Files, lock and checkpoints.
    pub files: LogDir,
    /// Partitions with something to write.
    pub writer: WriterQueue,
    /// Slow work.
    pub syncer: SyncerQueue,
    /// Who waits for room.
    pub park: Park,
    /// Partitions placed here, for the choice of a new one's directory.
    pub partitions: AtomicUsize,
    unwritten_bytes: AtomicUsize,
    unwritten_max_bytes: usize,
    /// Space that is set aside for them.
    pub reserve_bytes: u64,
    /// Partitions whose logs could not be opened for lack of space.
    waiting_for_space: Mutex<Vec<Arc<Partition>>>,
    /// A partition is written when so many of its bytes wait; fewer of them wait for the writer's
    /// next look.
    pub flush_bytes: usize,
    is_announced: AtomicBool,
    /// Logs that were given up and are not closed in order: while there are any, the directory is
    /// not clean.
    pub unclosed: AtomicUsize,
    /// Held while rows are gathered and written, and while those of a deleted partition are taken
    /// out: what was gathered before must not be written afterwards.
    pub checkpoints: Mutex<()>,
}

impl LogDirState {
    /// A directory that was just opened.
    pub fn new(
        index: usize,
        files: LogDir,
        unwritten_max_bytes: usize,
        cache: &CacheConfig,
        park: Park,
    ) -> Arc<LogDirState> {
        let unwritten_max_bytes = unwritten_max_bytes.min(share_of_volume(&files)).max(1);
        Arc::new(LogDirState {
            index,
            files,
            writer: WriterQueue::new(cache.flush_ms),
            flush_bytes: cache.flush_bytes.max(1),
            syncer: SyncerQueue::default(),
            partitions: AtomicUsize::new(0),
            unwritten_bytes: AtomicUsize::new(0),
            unwritten_max_bytes,
            reserve_bytes: (unwritten_max_bytes + unwritten_max_bytes / RESERVE_MORE_SHARE) as u64,
            waiting_for_space: Mutex::default(),
            is_announced: AtomicBool::new(false),
            park,
            unclosed: AtomicUsize::new(0),
            checkpoints: Mutex::default(),
        })
    }

    /// The directory's path.
    pub fn path(&self) -> &Path {
        self.files.path()
    }

    /// Shared by its logs.
    pub fn env(&self) -> &Arc<LogEnv> {
        self.files.env()
    }

    /// Whether it refuses everything since a write or sync failed.
    pub fn has_failed(&self) -> bool {
        self.env().poisoned().is_some()
    }

    /// Whether it takes no records for lack of space.
    pub fn is_read_only(&self) -> bool {
        self.env().is_full()
    }

    /// A partition's log is to be opened once there is space.
    pub fn wait_for_space(&self, partition: Arc<Partition>) {
        self.waiting_for_space.lock().push(partition);
    }

    /// Partitions that wait for space to be opened.
    pub fn take_waiting_for_space(&self) -> Vec<Arc<Partition>> {
        std::mem::take(&mut *self.waiting_for_space.lock())
    }

    /// True for the first caller: it tells of the failure.
    pub fn announce_failure(&self) -> bool {
        !self.is_announced.swap(true, Ordering::AcqRel)
    }

    /// Appended bytes that are not in files yet.
    pub fn unwritten_bytes(&self) -> usize {
        self.unwritten_bytes.load(Ordering::Relaxed)
    }

    /// Bytes were appended.
    pub fn appended(&self, bytes: usize) {
        let before = self.unwritten_bytes.fetch_add(bytes, Ordering::SeqCst);
        if before + bytes > self.unwritten_max_bytes / 2 {
            // Many partitions, none of which has much, may use up the room together.
            self.writer.hurry();
        }
    }

    /// Bytes were written, or given up.
    pub fn written(&self, bytes: usize) {
        self.unwritten_bytes.fetch_sub(bytes, Ordering::SeqCst);
    }

    /// Whether producing must wait (`pyrklog.unwritten.max.bytes`); never on a directory that has
    /// failed or takes no records, which answers with its error.
    pub fn is_full(&self) -> bool {
        self.unwritten_bytes.load(Ordering::SeqCst) >= self.unwritten_max_bytes && !self.refuses()
    }

    fn refuses(&self) -> bool {
        self.has_failed() || self.is_read_only()
    }

    /// Whether appends that cannot be held back must be refused: those of the control plane may
    /// fill as much again as those of clients.
    pub fn is_overfull(&self) -> bool {
        let max_bytes = self.unwritten_max_bytes.saturating_mul(2);
        self.unwritten_bytes.load(Ordering::SeqCst) >= max_bytes && !self.refuses()
    }

    /// After the count fell: lets parked connections go on once half of the room is free again,
    /// as many as it is for.
    pub fn unpark(&self, outbox: &mut Outbox) {
        if !self.park.is_used() {
            return;
        }
        let unwritten_bytes = self.unwritten_bytes.load(Ordering::SeqCst);
        if unwritten_bytes == 0 || self.refuses() {
            // Nothing may come that would wake the rest.
            self.park.wake(usize::MAX, outbox);
        } else if unwritten_bytes <= self.unwritten_max_bytes / 2 {
            let room_bytes = self.unwritten_max_bytes - unwritten_bytes;
            self.park.wake(room_bytes, outbox);
        }
    }

    /// Renames a partition's folder out of the way and forgets its rows of the checkpoints; see
    /// [`LogDir::delete_folder`].
    pub fn delete_folder(
        &self,
        topic: &str,
        partition: i32,
        unique: u128,
    ) -> io::Result<Option<DeletedFolder>> {
        let _no_checkpoint_between = self.checkpoints.lock();
        self.files.delete_folder(topic, partition, unique)
    }
}

fn share_of_volume(files: &LogDir) -> usize {
    let space = files.space();
    let bytes = space.map_or(u64::MAX, |space| space.total_bytes / VOLUME_SHARE);
    usize::try_from(bytes).unwrap_or(usize::MAX)
}
