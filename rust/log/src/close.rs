//! Closes a log in order and moves its folder.

use std::io;

use crate::disk;
use crate::log::Log;
use crate::names::snapshot_name;
use crate::segment::ActiveSegment;

impl Log {
    /// Writes what a clean start needs: the tail, remaining index entries, the producer state.
    /// Syncs nothing: [`crate::LogDir::sync_all`] does that for the whole directory. Does I/O; only
    /// for log loaders and the plane's end, without another job of the log under way. The log takes
    /// no appends afterwards.
    ///
    /// # Errors
    /// A disk error, or the log is poisoned. The directory must not be marked clean then.
    pub fn close_cleanly(&mut self) -> io::Result<()> {
        self.write_rest()?;
        if let Some(reason) = self.poisoned() {
            return Err(io::Error::other(reason.to_owned()));
        }
        self.truncating = true;
        self.finish_files()
    }

    /// Writes what was appended and not written, also to a sealed log. Does I/O, as
    /// [`Log::close_cleanly`] does.
    ///
    /// # Errors
    /// A disk error, or the log writes nothing any more and some records are not in the files.
    pub fn write_rest(&mut self) -> io::Result<()> {
        while let Some(mut job) = self.take_writes() {
            let result = job.execute();
            let failed = result
                .as_ref()
                .err()
                .map(|error| io::Error::new(error.kind(), error.to_string()));
            self.complete_writes(job, result);
            if let Some(error) = failed {
                return Err(error);
            }
        }
        if self.has_unwritten() {
            let reason = self
                .poisoned()
                .unwrap_or("some records are not written yet");
            return Err(io::Error::other(reason.to_owned()));
        }
        Ok(())
    }

    /// Index entries and the producer state, behind the last record.
    pub(crate) fn finish_files(&mut self) -> io::Result<()> {
        if self.active.size > 0 {
            self.active.indexes.add_largest(true);
            let ActiveSegment {
                segment, indexes, ..
            } = &mut self.active;
            segment.write_index_tails(indexes)?;
            indexes.set_taken();
        }
        let end = self.end.offset;
        if self.size_bytes() > 0 && !self.snapshots.contains(&end) {
            let content = crate::snapshot::encode(&self.producers.snapshot_entries());
            let path = self.folder.file(&snapshot_name(end));
            disk::replace_file_unsynced(self.env.disk(), &path, &content)?;
            self.snapshots.insert(end);
        }
        Ok(())
    }

    /// Everything written is durable, after [`crate::LogDir::sync_all`].
    pub fn all_synced(&mut self) {
        self.sync.recovery_point = self.written.offset;
        let (synced, end) = (self.written.offset, self.end.offset);
        self.sync.ages.forget_below(synced, end);
    }

    /// The log could not be closed and is dropped: the cache may have the only copy of acknowledged
    /// records, which another opening in this run would take for written. It is refused then, and
    /// the directory is not marked clean.
    pub fn keep_unwritten(&self, reason: &str) {
        let cache = self.cache.as_ref();
        if let Some((name, found)) = cache.and_then(|cache| cache.unwritten(&self.segments)) {
            self.env.quarantine(name, found, reason);
        }
    }

    /// Frees the log's blocks in the cache after its folder was deleted.
    pub fn release_blocks(&self) {
        if let Some(cache) = &self.cache {
            cache.release();
        }
    }

    /// The folder was renamed for deletion: files opened from now on are looked for there.
    pub fn folder_moved(&self, path: &std::path::Path) {
        self.folder.moved(path);
    }
}
