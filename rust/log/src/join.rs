//! Puts older records before the first segment of a log that began at another one's end
//! (`expansion.md`, section 6).
//!
//! 1. [`Fill`] takes batches in order and checks each. It writes `.log.fill`, and in the end the
//!    indexes, as `.fill`, too; all durable.
//! 2. [`JoinJob::execute`] gives the indexes their names, durably, then the `.log`.
//! 3. [`Log::complete_join`] makes the segment the first of the log.
//!
//! An opening removes what is `.fill`, and indexes without a `.log`. Once the `.log` has its name,
//! the segment is whole, and an opening takes it as the log's first.

use std::io;
use std::sync::Arc;

mod fill;

pub use self::fill::Fill;
use crate::at_end::{FillOrigin, PartialFile};
use crate::cleaner::CleanError;
use crate::cleaner::copy::{Copied, name, remove};
use crate::config::LogConfig;
use crate::disk::{self, OpenMode, missing_is_fine, sync_failed};
use crate::env::LogEnv;
use crate::folder::Folder;
use crate::leader_epochs::LeaderEpochs;
use crate::log::Log;
use crate::names::{self, FileKind, INDEX_FILES, Suffix};
use crate::retention::Retiring;
use crate::segment::Segment;
use crate::transaction_index::SegmentAborted;

/// Why records cannot become a segment.
#[derive(Debug, thiserror::Error)]
pub enum FillError {
    /// A disk error.
    #[error(transparent)]
    Io(#[from] io::Error),
    /// They are not the records that the log lacks: their source is wrong.
    #[error("{0}")]
    Unfit(String),
    /// The log has changed since: plan anew.
    #[error("the log has changed")]
    Stale,
}

impl FillError {
    /// A lack of space, descriptors or memory: it may be tried again later.
    pub fn may_pass(&self) -> bool {
        matches!(self, Self::Io(error) if disk::may_pass(error))
    }

    fn unfit(reason: impl Into<String>) -> Self {
        Self::Unfit(reason.into())
    }
}

impl From<CleanError> for FillError {
    fn from(error: CleanError) -> Self {
        match error {
            CleanError::Io(error) => Self::Io(error),
            error => Self::Unfit(error.to_string()),
        }
    }
}

/// What a segment before the log's first one is to hold. There is one at a time of a log.
#[derive(Debug)]
pub struct FillPlan {
    env: Arc<LogEnv>,
    folder: Arc<Folder>,
    config: Arc<LogConfig>,
    partial: Arc<[u8]>,
    _filling: Arc<()>,
    epochs: LeaderEpochs,
    begin: i64,
    end: i64,
    /// Of a compacted log: where its records come from.
    origin: Option<FillOrigin>,
    #[cfg(feature = "sim")]
    injected: InjectedFaults,
}

/// Bugs that a simulation plants.
#[cfg(feature = "sim")]
#[derive(Clone, Copy, Debug, Default)]
pub struct InjectedFaults {
    /// Records of any leader epoch are taken.
    pub takes_any_epoch: bool,
    /// The last batch is left out.
    pub leaves_gap: bool,
}

/// A segment whose files are complete; see [`Log::begin_join`].
#[derive(Debug)]
pub struct JoinJob {
    plan: FillPlan,
    new: Copied,
    met: LeaderEpochs,
    /// The first segment so far: it needs a file, or the new one would be taken for the active one.
    first: Option<Arc<Segment>>,
    /// The log keeps its segments until the job is completed.
    holds: Option<Retiring>,
    /// The file `partial` says this now.
    noted: Option<Arc<[u8]>>,
    /// Its files could not be removed after an error.
    is_unclear: bool,
}

impl Log {
    /// Plans a segment with the records from `begin` to the log's start. `None` if the log lacks
    /// nothing, if it is compacted, or while another segment is planned or the log cannot be
    /// changed. Memory only.
    pub fn plan_fill(&self, begin: i64) -> Option<FillPlan> {
        self.plan_from(begin, None)
    }

    /// The same of a compacted log: offsets may be left out. Ask [`Log::may_fill_from`] first.
    pub fn plan_compacted_fill(&self, begin: i64, origin: FillOrigin) -> Option<FillPlan> {
        self.plan_from(begin, Some(origin))
    }

    /// Whether records of a compacted log may come from this one, which is clean below an offset.
    ///
    /// A cleaner that removes a tombstone has removed before what it deleted. So in one log, read
    /// from its end, no tombstone is missed whose older values are still to come. Of another log
    /// there are none if it is clean beyond the offset where this one began.
    pub fn may_fill_from(&self, origin: FillOrigin, cleaned_end: i64) -> bool {
        let partial = self.partial.as_deref().and_then(PartialFile::parse);
        partial.is_some_and(|partial| {
            let has_joined = self.log_start < partial.start;
            let is_clean = partial.origin.is_some() && cleaned_end >= partial.start;
            !has_joined || partial.origin == Some(origin) || is_clean
        })
    }

    fn plan_from(&self, begin: i64, origin: Option<FillOrigin>) -> Option<FillPlan> {
        let partial = self.partial.clone()?;
        let epochs = self.epochs_known();
        let is_asked = 0 <= begin && begin < self.log_start;
        let can_join = self.segments[0].base_offset() == self.log_start && self.may_join();
        let is_filling = Arc::strong_count(&self.filling) > 1;
        let fits = self.config.cleanup_compact == origin.is_some();
        if !is_asked || !can_join || is_filling || !fits {
            return None;
        }
        Some(FillPlan {
            env: self.env.clone(),
            folder: self.folder.clone(),
            config: self.config.clone(),
            epochs,
            partial,
            _filling: Arc::clone(&self.filling),
            begin,
            end: self.log_start,
            origin,
            #[cfg(feature = "sim")]
            injected: InjectedFaults::default(),
        })
    }

    /// Its own leader epochs behind those of the log at whose end it began.
    fn epochs_known(&self) -> LeaderEpochs {
        match self.others_epochs() {
            Some(others) => self.epochs.with_older(&others),
            None => self.epochs.clone(),
        }
    }

    /// Where records were deleted that this leader still has, as those before it had not, the log
    /// takes back what is left of them in its first segment, as an opening does. True if something
    /// changed: queue the log at its writer if [`Log::has_unwritten`].
    pub fn take_back(&mut self, leader_log_start: i64) -> bool {
        let start = leader_log_start.max(self.segments[0].base_offset());
        let waits = !self.is_partial() || !self.may_join();
        if waits || start >= self.log_start {
            return false;
        }
        self.log_start = start;
        self.epochs = self.epochs_known();
        self.epochs.truncate_from_start(start);
        self.write_epochs();
        true
    }

    fn may_join(&self) -> bool {
        let waits = self.truncating || self.is_swapping || self.is_leaving() || self.is_retiring();
        !waits && !self.leave.is_held() && self.poisoned().is_none()
    }

    /// Prepares the join: retention, truncation and reopening wait from now on.
    ///
    /// # Errors
    /// `Stale` if the log has changed since it was planned, or cannot be changed now. Then
    /// [`JoinJob::discard`] it.
    pub fn begin_join(&mut self, job: &mut JoinJob) -> Result<(), FillError> {
        let first = &self.segments[0];
        let is_compacted = self.config.cleanup_compact;
        let fits = first.base_offset() == job.plan.end && job.plan.has_gaps() == is_compacted;
        if !job.plan.is_of(self) || !fits || !self.may_join() {
            return Err(FillError::Stale);
        }
        job.first = Some(first.clone());
        job.holds = Some(Retiring::new(&self.retiring));
        self.is_swapping = true;
        Ok(())
    }

    /// Makes the segment the log's first one. Write the log start checkpoint afterwards, before the
    /// log becomes whole; queue the log at its writer if [`Log::has_unwritten`]. After an error the
    /// log is as before, or poisoned if an opening might take the segment.
    ///
    /// # Errors
    /// That of `result`.
    pub fn complete_join(&mut self, job: JoinJob, result: io::Result<()>) -> Result<(), FillError> {
        self.is_swapping = false;
        if let Some(noted) = job.noted {
            self.partial = Some(noted);
        }
        if let Err(error) = result {
            if job.is_unclear {
                let path = self.folder.path();
                self.poison(format!("a back-fill of {} failed: {error}", path.display()));
            }
            return Err(error.into());
        }
        let Copied { segment, aborted } = job.new;
        if !aborted.is_empty() {
            let kept = SegmentAborted::Kept(aborted);
            self.aborted.insert(segment.base_offset(), kept);
        }
        Arc::make_mut(&mut self.segments).insert(0, segment);
        self.is_reshaped = true;
        self.put_away_aborted();
        // Meanwhile the leader may have deleted more than the log lacked.
        if self.log_start == job.plan.end {
            self.log_start = job.plan.begin;
            let older = job.plan.epochs.with_older(&job.met);
            self.epochs = self.epochs.with_older(&older);
            self.epochs.truncate_from_start(self.log_start);
            self.write_epochs();
        }
        Ok(())
    }
}

impl FillPlan {
    /// Whether the log is the one that it was planned for, in its place.
    fn is_of(&self, log: &Log) -> bool {
        let partial = log.partial.as_ref();
        let is_same = partial.is_some_and(|partial| Arc::ptr_eq(partial, &self.partial));
        is_same && Arc::ptr_eq(&log.folder, &self.folder)
    }

    /// Offsets may be left out, as compaction does.
    fn has_gaps(&self) -> bool {
        self.origin.is_some()
    }

    /// The first offset.
    pub fn begin(&self) -> i64 {
        self.begin
    }

    /// The offset behind the last one.
    pub fn end(&self) -> i64 {
        self.end
    }

    /// The same with bugs.
    #[cfg(feature = "sim")]
    #[must_use]
    pub fn with_faults(mut self, injected: InjectedFaults) -> FillPlan {
        self.injected = injected;
        self
    }

    #[cfg(feature = "sim")]
    fn takes_any_epoch(&self) -> bool {
        self.injected.takes_any_epoch
    }

    #[cfg(not(feature = "sim"))]
    fn takes_any_epoch(&self) -> bool {
        false
    }

    #[cfg(feature = "sim")]
    fn leaves_out(&self, end: i64) -> bool {
        self.injected.leaves_gap && end == self.end
    }

    #[cfg(not(feature = "sim"))]
    fn leaves_out(&self, _end: i64) -> bool {
        false
    }

    fn path(&self, base_offset: i64, kind: FileKind, suffix: Suffix) -> std::path::PathBuf {
        self.folder.file(&name(base_offset, kind, suffix))
    }
}

impl JoinJob {
    /// Gives the files their names. The caller must hold no lock.
    ///
    /// # Errors
    /// A disk error: hand it to [`Log::complete_join`].
    pub fn execute(&mut self) -> io::Result<()> {
        let folder = Arc::clone(&self.plan.folder);
        folder.in_place(|| {
            self.note_origin()?;
            let named = self.name_files();
            if named.is_err() {
                self.is_unclear = self.remove_named().is_err();
            }
            named
        })
    }

    /// Removes the files of a job that was not begun.
    ///
    /// # Errors
    /// A disk error.
    pub fn discard(&self) -> io::Result<()> {
        let FillPlan { env, folder, .. } = &self.plan;
        remove(env, folder, self.new.segment.base_offset(), Suffix::Fill)
    }

    /// Before the first segment from another log is the log's, `partial` names that log.
    fn note_origin(&mut self) -> io::Result<()> {
        let Some(partial) = PartialFile::parse(&self.plan.partial) else {
            return Ok(());
        };
        if partial.origin == self.plan.origin {
            return Ok(());
        }
        let origin = self.plan.origin;
        let content = PartialFile { origin, ..partial }.encode().into_bytes();
        let path = self.plan.folder.file(names::PARTIAL);
        disk::replace_file(self.plan.env.disk(), &path, &content)?;
        self.noted = Some(content.into());
        Ok(())
    }

    fn name_files(&self) -> io::Result<()> {
        let disk = self.plan.env.disk();
        if let Some(first) = &self.first {
            // Without any file the new segment would be the last one, and recovery drop the
            // snapshot that the log began with.
            let _created = disk.open(&first.path(FileKind::Log), OpenMode::Create)?;
        }
        for kind in INDEX_FILES {
            missing_is_fine(self.rename(kind))?;
        }
        self.sync_dir()?;
        self.rename(FileKind::Log)?;
        self.sync_dir()
    }

    fn rename(&self, kind: FileKind) -> io::Result<()> {
        let base_offset = self.new.segment.base_offset();
        let path = |suffix| self.plan.path(base_offset, kind, suffix);
        let disk = self.plan.env.disk();
        disk.rename(&path(Suffix::Fill), &path(Suffix::None))
    }

    fn sync_dir(&self) -> io::Result<()> {
        let disk = self.plan.env.disk();
        disk.sync_dir(&self.plan.folder.path()).map_err(sync_failed)
    }

    /// The `.log` first, and durably: without it the others are orphans.
    fn remove_named(&self) -> io::Result<()> {
        let base_offset = self.new.segment.base_offset();
        let disk = self.plan.env.disk();
        let log = self.plan.path(base_offset, FileKind::Log, Suffix::None);
        missing_is_fine(disk.remove_file(&log))?;
        disk.sync_dir(&self.plan.folder.path())?;
        let FillPlan { env, folder, .. } = &self.plan;
        remove(env, folder, base_offset, Suffix::None)?;
        remove(env, folder, base_offset, Suffix::Fill)
    }
}
