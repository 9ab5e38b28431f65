//! Renames a removed segment's files out of the way of a successor: a log that restarts or is
//! reopened may reuse the base offset before the files are deleted. They get unique names at once,
//! under which they are read on and deleted.

use std::io;
use std::path::PathBuf;
use std::sync::atomic::Ordering;

use crate::disk::{is_full, missing_is_fine};
use crate::names::{self, FileKind, INDEX_FILES};
use crate::segment::{OpenLog, Segment};

impl Segment {
    /// The present path of one of its files.
    pub fn path(&self, kind: FileKind) -> PathBuf {
        let is_renamed = match kind {
            FileKind::Log => &self.log_removed,
            _ => &self.removed,
        };
        match is_renamed.load(Ordering::Acquire) {
            true => self.removed_path(kind),
            false => self.folder.segment_file(self.base_offset, kind),
        }
    }

    fn removed_path(&self, kind: FileKind) -> PathBuf {
        let name = names::deleted_name(self.base_offset, kind, self.id);
        self.folder.file(&name)
    }

    /// Marks its files as gone.
    pub fn set_removed(&self) {
        self.log_removed.store(true, Ordering::Release);
        self.removed.store(true, Ordering::Release);
        if let Some(cached) = self.cached() {
            cached.forget();
        }
    }

    /// Removes the files, under their names. The `.log` goes first: without it the others are
    /// orphans, which the next opening removes.
    pub fn remove_files(&self) -> io::Result<()> {
        for kind in [FileKind::Log].into_iter().chain(INDEX_FILES) {
            missing_is_fine(self.env.disk().remove_file(&self.path(kind)))?;
        }
        self.set_removed();
        Ok(())
    }

    /// Whether retention or a truncation took it out of the log.
    pub fn is_removed(&self) -> bool {
        self.removed.load(Ordering::Acquire)
    }

    /// Renames the `.log` for its removal, under the lock that prevents opening it. If there is no
    /// space for another name, it is removed and stays open for holders of the segment.
    pub fn retire_log(&self) -> io::Result<()> {
        let mut log = self.log.lock();
        if self.log_removed.load(Ordering::Acquire) {
            return Ok(());
        }
        let path = self.path(FileKind::Log);
        let renamed = self.rename(FileKind::Log);
        if renamed.as_ref().is_err_and(is_full) {
            if log.is_none() {
                let file = self.open_for_reading(FileKind::Log)?;
                let writable = false;
                *log = Some(OpenLog { file, writable });
            }
            self.pinned.store(true, Ordering::Release);
            missing_is_fine(self.env.disk().remove_file(&path))?;
        } else {
            renamed?;
        }
        self.log_removed.store(true, Ordering::Release);
        Ok(())
    }

    /// The same for its other files. The snapshot at its start stays if a successor starts there.
    pub fn retire_others(&self, keeps_snapshot: bool) -> io::Result<()> {
        let _nobody_opens_them = self.indexes.lock();
        if self.removed.load(Ordering::Acquire) {
            return Ok(());
        }
        let leaves = |kind: &FileKind| !(keeps_snapshot && *kind == FileKind::Snapshot);
        for kind in others().filter(leaves) {
            match self.rename(kind) {
                Err(error) if is_full(&error) => {
                    missing_is_fine(self.env.disk().remove_file(&self.path(kind)))?;
                }
                renamed => renamed?,
            }
        }
        self.set_removed();
        Ok(())
    }

    fn rename(&self, kind: FileKind) -> io::Result<()> {
        let (from, to) = (self.path(kind), self.removed_path(kind));
        missing_is_fine(self.env.disk().rename(&from, &to))
    }

    pub fn remove_retired(&self) -> io::Result<()> {
        let remove = |kind| missing_is_fine(self.env.disk().remove_file(&self.removed_path(kind)));
        if self.log_removed.load(Ordering::Acquire) {
            remove(FileKind::Log)?;
        }
        // Some may have been renamed before an error.
        others().try_for_each(remove)
    }
}

/// A segment's files besides its `.log`; the snapshot is the one at its start.
fn others() -> impl Iterator<Item = FileKind> {
    INDEX_FILES.into_iter().chain([FileKind::Snapshot])
}
