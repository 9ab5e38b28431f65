//! The syncer's job of making written data durable.

use std::io;
use std::sync::Arc;

use crate::disk::OpenMode;
use crate::env::LogEnv;
use crate::folder::Folder;
use crate::names::FileKind;
use crate::segment::Segment;

/// Makes written data durable. See [`crate::Log::take_sync`].
#[derive(Debug)]
pub struct SyncJob {
    env: Arc<LogEnv>,
    folder: Arc<Folder>,
    /// Segments with unsynced data, in order.
    segments: Vec<Arc<Segment>>,
    /// Those that were closed before their sync, so that all of their data is durable.
    closed: Vec<Arc<Segment>>,
    /// Small files that were replaced since the last sync.
    pub(crate) files: Vec<String>,
    /// Everything below is durable once the job is done.
    pub(crate) end: i64,
    new_folder: bool,
}

impl SyncJob {
    pub(crate) fn new(
        env: &Arc<LogEnv>,
        folder: &Arc<Folder>,
        segments: Vec<Arc<Segment>>,
        files: Vec<String>,
        end: i64,
        new_folder: bool,
    ) -> Self {
        Self {
            env: env.clone(),
            folder: folder.clone(),
            segments,
            closed: Vec::new(),
            files,
            end,
            new_folder,
        }
    }

    /// Syncs each segment's `.log`, the indexes of closed ones, the small files, then the folder.
    /// The caller must not hold the log's lock.
    ///
    /// # Errors
    /// A disk error, for [`crate::Log::complete_sync`] to judge.
    pub fn execute(&mut self) -> io::Result<()> {
        for segment in &self.segments {
            // Read before the sync: later writes are not covered.
            let is_closed = segment.is_closed();
            if segment.is_removed() || (segment.written() == 0 && !is_closed) {
                continue;
            }
            segment.log_file_for_writing()?.sync_data()?;
            if is_closed {
                self.closed.push(Arc::clone(segment));
                self.sync_file(&segment.path(FileKind::OffsetIndex))?;
                self.sync_file(&segment.path(FileKind::TimeIndex))?;
            }
            self.sync_file(&segment.path(FileKind::TransactionIndex))?;
        }
        for name in &self.files {
            self.sync_file(&self.folder.file(name))?;
        }
        let path = self.folder.path();
        self.env.disk().sync_dir(&path)?;
        match path.parent() {
            Some(log_dir) if self.new_folder => self.env.disk().sync_dir(log_dir),
            _ => Ok(()),
        }
    }

    /// The small files, and whether the folder's own entry was to be synced.
    pub(crate) fn into_rest(self) -> (Vec<String>, bool) {
        (self.files, self.new_folder)
    }

    /// Whether all of a segment's files were made durable.
    pub(crate) fn has_closed(&self, segment: &Arc<Segment>) -> bool {
        self.closed
            .iter()
            .any(|closed| Arc::ptr_eq(closed, segment))
    }

    /// A file that retention removed needs no sync.
    fn sync_file(&self, path: &std::path::Path) -> io::Result<()> {
        match self.env.disk().open(path, OpenMode::Write) {
            Ok(file) => file.sync_data(),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
            Err(error) => Err(error),
        }
    }
}
