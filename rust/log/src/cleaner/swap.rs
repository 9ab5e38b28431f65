//! Puts a new segment in the place of those that it was made of.
//!
//! 1. `.cleaned` -> `.swap`, all its files; the directory is synced. From here on the new segment
//!    counts: an opening finishes what follows.
//! 2. The sources' bytes in the block cache are void; their files become `.deleted`, the `.log`s
//!    first and durably.
//! 3. `.log.swap` -> `.log`, durably; then the other files.
//!
//! Readers that hold a source read its renamed files to the end.

use std::io;
use std::sync::Arc;

use crate::cleaner::CleanError;
use crate::cleaner::copy::{Copied, name, remove};
use crate::disk::{missing_is_fine, sync_failed};
use crate::env::LogEnv;
use crate::folder::Folder;
use crate::log::Log;
use crate::names::{FileKind, INDEX_FILES, Suffix};
use crate::position::LogPosition;
use crate::retention::{RemovedSegments, Retiring};
use crate::segment::Segment;
use crate::transaction_index::SegmentAborted;

/// A new segment and its sources.
#[derive(Debug)]
pub struct SwapJob {
    env: Arc<LogEnv>,
    folder: Arc<Folder>,
    sources: Vec<Arc<Segment>>,
    new: Copied,
    /// That of the cleaning: the sources may reach further, where all is as it was.
    clean_end: i64,
    /// The log keeps its segments until the job is completed.
    holds: Option<Retiring>,
    /// Step 1 is done.
    is_decided: bool,
    /// Step 1 failed, and its files could not be removed.
    is_unclear: bool,
}

impl Log {
    /// Prepares the swap: retention, truncation and reopening wait from now on.
    ///
    /// # Errors
    /// `Stale` if the sources are no longer the log's, it is compacted no more, or it cannot be
    /// changed now. Then
    /// [`SwapJob::discard`] it.
    pub fn begin_swap(&mut self, job: &mut SwapJob) -> Result<(), CleanError> {
        let waits = self.truncating || self.is_swapping || self.is_leaving();
        let is_wanted = self.config.cleanup_compact;
        let cannot = waits || !is_wanted || self.poisoned().is_some();
        if cannot || self.cleaned_range(&job.sources).is_none() {
            return Err(CleanError::Stale);
        }
        self.is_swapping = true;
        job.holds = Some(Retiring::new(&self.retiring));
        Ok(())
    }

    /// The end of the cleaned segments that were installed since the log was opened, -1 for none.
    /// The checkpoint of a cleaning follows only after its last segment.
    #[must_use]
    pub fn swapped_end(&self) -> i64 {
        self.swapped_end
    }

    /// Installs the new segment. Returns the sources, whose files are to be deleted when due.
    /// After an error the log is as before, or poisoned if an opening might take the new segment.
    ///
    /// # Errors
    /// That of `result`.
    pub fn complete_swap(
        &mut self,
        job: SwapJob,
        result: io::Result<()>,
        now_ms: i64,
    ) -> Result<RemovedSegments, CleanError> {
        self.is_swapping = false;
        if let Err(error) = result {
            if job.is_decided || job.is_unclear {
                let path = self.folder.path();
                self.poison(format!("cleaning {} failed: {error}", path.display()));
            }
            return Err(error.into());
        }
        let Some(range) = self.cleaned_range(&job.sources).filter(|_| job.is_decided) else {
            self.poison("a cleaned segment's sources are gone");
            return Err(CleanError::Stale);
        };
        let sources_end = self.segments[range.end].base_offset();
        self.swapped_end = self.swapped_end.max(sources_end.min(job.clean_end));
        let Copied { segment, aborted } = job.new;
        for source in &job.sources {
            self.aborted.remove(&source.base_offset());
            if source.base_offset() != segment.base_offset() {
                self.snapshots.remove(&source.base_offset());
            }
        }
        if !aborted.is_empty() {
            let kept = SegmentAborted::Kept(aborted);
            self.aborted.insert(segment.base_offset(), kept);
        }
        self.forget_places(&job.sources);
        let _replaced: Vec<_> = Arc::make_mut(&mut self.segments)
            .splice(range, [segment])
            .collect();
        self.is_reshaped = true;
        self.put_away_aborted();
        let due_ms = now_ms.saturating_add(self.config.file_delete_delay_ms);
        Ok(RemovedSegments::renamed(
            job.env,
            job.folder,
            job.sources,
            due_ms,
        ))
    }

    /// Positions in the sources mean nothing in the new segment.
    fn forget_places(&mut self, sources: &[Arc<Segment>]) {
        self.recent.clear();
        let is_theirs = |position: &LogPosition| {
            let base = position.place.map(|place| place.segment_base);
            sources
                .iter()
                .any(|source| Some(source.base_offset()) == base)
        };
        for position in [
            &mut self.high_watermark,
            &mut self.durable_end,
            &mut self.written,
        ] {
            if is_theirs(position) {
                *position = LogPosition::unplaced(position.offset);
            }
        }
    }
}

impl SwapJob {
    pub(super) fn new(
        env: Arc<LogEnv>,
        folder: Arc<Folder>,
        sources: Vec<Arc<Segment>>,
        new: Copied,
        clean_end: i64,
    ) -> Self {
        Self {
            env,
            folder,
            sources,
            new,
            clean_end,
            holds: None,
            is_decided: false,
            is_unclear: false,
        }
    }

    /// Renames the files. After an error that may pass a job that [`SwapJob::is_decided`] can be
    /// executed again. The caller must hold no lock.
    ///
    /// # Errors
    /// A disk error: hand it to [`Log::complete_swap`].
    pub fn execute(&mut self) -> io::Result<()> {
        let folder = Arc::clone(&self.folder);
        folder.in_place(|| {
            let renamed = self.rename_files();
            if renamed.is_err() && !self.is_decided {
                self.is_unclear = self.discard().is_err();
            }
            renamed
        })
    }

    /// Whether an opening would take the new segment.
    pub fn is_decided(&self) -> bool {
        self.is_decided
    }

    /// Removes the new segment's files, if it was not decided that they count.
    ///
    /// # Errors
    /// A disk error.
    pub fn discard(&self) -> io::Result<()> {
        if self.is_decided {
            return Ok(());
        }
        let base_offset = self.new.segment.base_offset();
        // First, so that the set is known to be incomplete.
        self.rename(FileKind::Log, Suffix::Swap, Suffix::Cleaned)?;
        remove(&self.env, &self.folder, base_offset, Suffix::Swap)?;
        remove(&self.env, &self.folder, base_offset, Suffix::Cleaned)
    }

    fn rename_files(&mut self) -> io::Result<()> {
        let base_offset = self.new.segment.base_offset();
        if !self.is_decided {
            // Any file that is `.cleaned` still says that the set is incomplete.
            for kind in INDEX_FILES.into_iter().chain([FileKind::Log]) {
                self.rename(kind, Suffix::Cleaned, Suffix::Swap)?;
            }
            self.sync_dir()?;
            self.is_decided = true;
        }
        for source in &self.sources {
            if let Some(cached) = source.cached() {
                cached.cut(0);
            }
            source.retire_log()?;
        }
        self.sync_dir()?;
        for source in &self.sources {
            source.retire_others(source.base_offset() == base_offset)?;
        }
        self.sync_dir()?;
        self.rename(FileKind::Log, Suffix::Swap, Suffix::None)?;
        // Else a power loss could leave the other files without it, and they would go.
        self.sync_dir()?;
        for kind in INDEX_FILES {
            self.rename(kind, Suffix::Swap, Suffix::None)?;
        }
        self.sync_dir()
    }

    fn rename(&self, kind: FileKind, from: Suffix, to: Suffix) -> io::Result<()> {
        let base_offset = self.new.segment.base_offset();
        let path = |suffix| self.folder.file(&name(base_offset, kind, suffix));
        missing_is_fine(self.env.disk().rename(&path(from), &path(to)))
    }

    fn sync_dir(&self) -> io::Result<()> {
        let synced = self.env.disk().sync_dir(&self.folder.path());
        synced.map_err(sync_failed)
    }
}
