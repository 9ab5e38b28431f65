//! The writer's job of bringing a log's tail to the files.
//!
//! An append copies its batch to the [`Tail`]; the directory's writer takes the whole tail as a
//! [`WriteJob`], executes it without the log's lock, and gives it back. At most one job of a log is
//! on its way, so steps reach the files in the order in which they were queued.

use std::io;
use std::sync::Arc;

use crate::env::LogEnv;
use crate::folder::Folder;
use crate::position::LogPosition;
use crate::sync_job::SyncJob;
use crate::tail::Tail;

/// Index entries are handed to the writer when there are this many bytes of them, and always when
/// a segment is closed. Recovery rebuilds the indexes of whatever was not synced, so an index file
/// may lag behind its `.log`.
pub(crate) const INDEX_BATCH_BYTES: usize = 2048;
/// They are also handed to the writer where the last one in the file is so far behind: after a kill
/// all batches behind it are looked for.
pub(crate) const INDEX_BEHIND_BYTES: u32 = 256 << 10;

/// What the writer does for one log in one turn. See [`crate::Log::take_writes`].
#[derive(Debug)]
pub struct WriteJob {
    env: Arc<LogEnv>,
    folder: Arc<Folder>,
    pub(crate) tail: Tail,
    /// Steps of the tail that are done.
    done: usize,
    /// The log end offset once the job is done.
    pub(crate) end: LogPosition,
    /// The gate opens only after a sync (`flush.messages`).
    pub(crate) sync: Option<SyncJob>,
}

impl WriteJob {
    pub(crate) fn new(
        env: &Arc<LogEnv>,
        folder: &Arc<Folder>,
        tail: Tail,
        end: LogPosition,
        sync: Option<SyncJob>,
    ) -> Self {
        Self {
            env: env.clone(),
            folder: folder.clone(),
            tail,
            done: 0,
            end,
            sync,
        }
    }

    /// Bytes of batches that the job writes.
    pub fn size_bytes(&self) -> usize {
        self.tail.batch_bytes()
    }

    /// Writes; must not be called with the log's lock held.
    ///
    /// # Errors
    /// The disk's. The state of the files is then unknown: hand the error to
    /// [`crate::Log::complete_writes`] and poison the directory; never try again. But where it is
    /// only that there is no space left ([`disk::is_full`]), the job may be kept and executed again:
    /// it goes on with the step that failed, which writes the same bytes at the same place.
    pub fn execute(&mut self) -> io::Result<()> {
        self.tail.execute(&self.env, &self.folder, &mut self.done)?;
        match &mut self.sync {
            Some(sync) => sync.execute(),
            None => Ok(()),
        }
    }

    pub(crate) fn closes_segment(&self) -> bool {
        self.tail.closes_segment()
    }
}

/// What [`crate::Log::complete_writes`] has to tell.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Completed {
    /// The gate moved: look at the high watermark and at waiting acknowledgements.
    pub gate_moved: bool,
    /// Bytes of batches that are now in files.
    pub written_bytes: usize,
    /// With the gate, at most so many became readable.
    pub readable_bytes: usize,
    /// There is more to write: queue the log at its writer again.
    pub more: bool,
    /// A segment was completed: the syncer should call [`crate::Log::take_sync`].
    pub rolled: bool,
}
