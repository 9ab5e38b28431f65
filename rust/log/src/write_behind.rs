//! The writer's job of writing a log's tail to the files.
//!
//! An append copies its batch to the [`Tail`]. The writer takes the whole tail as a [`WriteJob`],
//! executes it without the log's lock, and gives it back. A log has at most one job under way, so
//! steps reach the files in order.

use std::io;
use std::sync::Arc;

use crate::env::LogEnv;
use crate::folder::Folder;
use crate::position::LogPosition;
use crate::sync_job::SyncJob;
use crate::tail::Tail;

/// Index entries go to the writer once they have this many bytes, and when a segment is closed. An
/// index file may lag behind its `.log`, since recovery rebuilds indexes of unsynced data.
pub(crate) const INDEX_BATCH_BYTES: usize = 2048;
/// They also go to the writer if the last one in the file is this far behind: after a kill all
/// batches behind it are searched.
pub(crate) const INDEX_BEHIND_BYTES: u32 = 256 << 10;

/// The writer's work for one log in one turn. See [`crate::Log::take_writes`].
#[derive(Debug)]
pub struct WriteJob {
    pub(crate) env: Arc<LogEnv>,
    pub(crate) folder: Arc<Folder>,
    pub(crate) tail: Tail,
    pub(crate) done: usize,
    /// The log end offset once the job is done.
    pub(crate) end: LogPosition,
    /// A sync that must precede the durable end offset (`flush.messages`).
    pub(crate) sync: Option<SyncJob>,
}

impl WriteJob {
    /// Bytes of batches that the job writes.
    pub fn size_bytes(&self) -> usize {
        self.tail.batch_bytes()
    }

    /// Writes; the caller must not hold the log's lock.
    ///
    /// # Errors
    /// A disk error. The files' state is then unknown: hand it to [`crate::Log::complete_writes`],
    /// poison the directory, and never try again. For lack of space ([`disk::is_full`]) the job may
    /// be kept and executed again: it repeats the failed step with the same bytes at the same
    /// place.
    pub fn execute(&mut self) -> io::Result<()> {
        self.tail.execute(&self.env, &self.folder, &mut self.done)?;
        match &mut self.sync {
            Some(sync) => sync.execute(),
            None => Ok(()),
        }
    }
}

/// The outcome for [`crate::Log::complete_writes`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Completed {
    /// The durable end offset moved: check high watermark and waiting acknowledgements.
    pub durable_end_moved: bool,
    /// Bytes of batches that are now in files.
    pub written_bytes: usize,
    /// Upper bound of the bytes that became readable with it.
    pub readable_bytes: usize,
    /// There is more to write: queue the log at its writer again.
    pub more: bool,
    /// A segment was completed: the syncer should call [`crate::Log::take_sync`].
    pub rolled: bool,
}
