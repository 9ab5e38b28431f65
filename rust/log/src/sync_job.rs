//! The syncer's job of making written data durable.

use std::io;
use std::sync::Arc;

use crate::disk::{OpenMode, if_exists};
use crate::env::LogEnv;
use crate::folder::Folder;
use crate::names::FileKind;
use crate::segment::Segment;

/// Makes written data durable. See [`crate::Log::take_sync`].
#[derive(Debug)]
pub struct SyncJob {
    pub(crate) env: Arc<LogEnv>,
    pub(crate) folder: Arc<Folder>,
    /// Segments with unsynced data, in order.
    pub(crate) segments: Vec<Arc<Segment>>,
    /// Those that were closed before their sync, so that all of their data is durable.
    pub(crate) closed: Vec<Arc<Segment>>,
    /// Small files that were replaced since the last sync.
    pub(crate) files: Vec<String>,
    /// Everything below is durable once the job is done.
    pub(crate) end: i64,
    pub(crate) new_folder: bool,
}

impl SyncJob {
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

    /// Whether all of a segment's files were made durable.
    pub(crate) fn has_closed(&self, segment: &Arc<Segment>) -> bool {
        self.closed
            .iter()
            .any(|closed| Arc::ptr_eq(closed, segment))
    }

    /// A file that retention removed needs no sync.
    fn sync_file(&self, path: &std::path::Path) -> io::Result<()> {
        match if_exists(self.env.disk().open(path, OpenMode::Write))? {
            Some(file) => file.sync_data(),
            None => Ok(()),
        }
    }
}
