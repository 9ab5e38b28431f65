//! Taking a segment's files out of the way of a successor: its base offset may be used again, by a
//! log that begins anew, or is opened anew, before the files are removed. So they get names at once
//! that no other segment has, and under these alone they are read on and removed.

use std::io;
use std::path::PathBuf;
use std::sync::atomic::Ordering;

use crate::disk::{is_full, missing_is_fine};
use crate::names::{self, FileKind};
use crate::segment::{OpenLog, Segment};

/// Every file that a segment may have besides its `.log`; the snapshot is the one that it starts with.
const OTHER_FILES: [FileKind; 4] = [
    FileKind::OffsetIndex,
    FileKind::TimeIndex,
    FileKind::TransactionIndex,
    FileKind::Snapshot,
];

impl Segment {
    /// The path of one of its files, as it is named now.
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

    /// Notes that its files are gone.
    pub fn set_removed(&self) {
        self.log_removed.store(true, Ordering::Release);
        self.removed.store(true, Ordering::Release);
        if let Some(cached) = self.cached() {
            cached.forget();
        }
    }

    /// Whether retention or a truncation took it out of the log.
    pub fn is_removed(&self) -> bool {
        self.removed.load(Ordering::Acquire)
    }

    /// Renames the `.log` for its removal. Nobody opens it by name meanwhile. Where there is no space
    /// for another name it is removed, and stays open for those who hold the segment.
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

    /// The same for its other files.
    pub fn retire_others(&self) -> io::Result<()> {
        let _nobody_opens_them = self.indexes.lock();
        if self.removed.load(Ordering::Acquire) {
            return Ok(());
        }
        for kind in OTHER_FILES {
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

    /// Removes those of its files that were renamed for it.
    pub fn remove_retired(&self) -> io::Result<()> {
        let remove = |kind| missing_is_fine(self.env.disk().remove_file(&self.removed_path(kind)));
        if self.log_removed.load(Ordering::Acquire) {
            remove(FileKind::Log)?;
        }
        // Some of them may have been renamed before an error came.
        OTHER_FILES.into_iter().try_for_each(remove)
    }
}
