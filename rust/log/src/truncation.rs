//! Truncates the log's end.
//!
//! Steps: block appends; let the writer drain what is queued; cut segments, indexes, snapshots and
//! epochs in the files; load what is left; resume. The last segments go first, so a crash in
//! between leaves the log longer than wanted, never with a hole.

use std::io;
use std::sync::Arc;

use pyrklog_arena::{Arena, Slot};

use crate::at_end::StartAtEnd;
use crate::cache::LogCache;
use crate::config::LogConfig;
use crate::disk::{self, OpenMode, missing_is_fine};
use crate::env::LogEnv;
use crate::folder::Folder;
use crate::log::Log;
use crate::names::{self, FileKind, INDEX_FILES};
use crate::offset_index::OffsetIndex;
use crate::open::{Expiry, Loaded, Loader, OpenError, OpenReport, OpenState, spare};
use crate::opening::next_opening;
use crate::partition_metadata::PartitionMetadata;
use crate::position::LogPosition;
use crate::scan::{BatchScanner, WALK_CHUNK_BYTES};
use crate::segment::{Segment, SegmentBytes};
use crate::sync_state::Ages;
use crate::time_index::TimeIndex;
use crate::transaction_index::{TransactionIndex, kept};
use crate::wait::Wait;

/// Why a truncation cannot begin yet.
#[derive(Debug, thiserror::Error)]
pub enum TruncateError {
    /// Writes are queued or under way, or retention renames files. Appends are blocked: let the
    /// writer finish, then begin again.
    #[error("writes are on their way")]
    Busy,
    /// A write or sync of this log or its directory failed earlier.
    #[error("{0}")]
    Poisoned(String),
}

/// Cuts the files. See [`Log::begin_truncation`].
#[derive(Debug)]
pub struct TruncateJob {
    env: Arc<LogEnv>,
    folder: Arc<Folder>,
    config: Arc<LogConfig>,
    segments: Arc<Vec<Arc<Segment>>>,
    snapshots: Vec<i64>,
    offset: i64,
    /// Nothing is kept: the log restarts at the offset.
    restarts: bool,
    /// What the restarted log begins with.
    at_end: Option<StartAtEnd>,
    log_start: i64,
    expiry: Expiry,
    jitter_seed: u64,
    loaded: Option<Loaded>,
    /// Its blocks are invalidated before any file is cut.
    slot: Option<(Arc<Arena>, Slot)>,
}

impl Log {
    /// Begins to truncate the log to `offset`, or to the start of the batch that holds it; `None`
    /// if it ends there already. Appends are refused until [`Log::complete_truncation`]. Write the
    /// recovery point checkpoint afterwards.
    ///
    /// # Errors
    /// [`TruncateError`].
    pub fn begin_truncation(
        &mut self,
        offset: i64,
        now_ms: i64,
        producer_id_expiration_ms: i64,
    ) -> Result<Option<TruncateJob>, TruncateError> {
        if self.poisoned().is_none() && offset >= self.end.offset {
            self.truncating = false;
            return Ok(None);
        }
        self.truncate_job(offset, false, now_ms, producer_id_expiration_ms)
            .map(Some)
    }

    /// Begins to discard everything, so that the empty log continues at `offset`: for a follower
    /// whose log ends below its leader's first offset, or that has to begin lower. Write
    /// [`Log::log_start_row`] before the job is executed. See [`Log::begin_truncation`].
    ///
    /// # Errors
    /// [`TruncateError`].
    pub fn begin_restart(
        &mut self,
        offset: i64,
        now_ms: i64,
        producer_id_expiration_ms: i64,
    ) -> Result<TruncateJob, TruncateError> {
        self.truncate_job(offset, true, now_ms, producer_id_expiration_ms)
    }

    /// The same, but the log is as if it had begun there: it knows the epochs and producers of what
    /// it lacks. See [`Log::is_partial`].
    ///
    /// # Errors
    /// [`TruncateError`].
    pub fn begin_at_end(
        &mut self,
        start: &StartAtEnd,
        now_ms: i64,
        producer_id_expiration_ms: i64,
    ) -> Result<TruncateJob, TruncateError> {
        let job = self.begin_restart(start.offset(), now_ms, producer_id_expiration_ms)?;
        Ok(TruncateJob {
            at_end: Some(start.clone()),
            ..job
        })
    }

    /// Drops epochs at the log end without records. Queue the log at its writer if
    /// [`Log::has_unwritten`].
    pub fn forget_empty_epochs(&mut self) {
        if self.epochs.truncate_from_end(self.end.offset) {
            self.write_epochs();
        }
    }

    /// Cancels a truncation that was busy; appends go through again.
    pub fn give_up_truncation(&mut self) {
        self.truncating = false;
    }

    fn truncate_job(
        &mut self,
        offset: i64,
        restarts: bool,
        now_ms: i64,
        producer_id_expiration_ms: i64,
    ) -> Result<TruncateJob, TruncateError> {
        if let Some(reason) = self.poisoned() {
            return Err(TruncateError::Poisoned(reason.to_owned()));
        }
        self.truncating = true;
        if self.has_unwritten() || self.sync.in_flight || self.is_retiring() {
            return Err(TruncateError::Busy);
        }
        self.restart = restarts.then_some(offset);
        Ok(TruncateJob {
            env: self.env.clone(),
            folder: self.folder.clone(),
            config: self.config.clone(),
            segments: self.segments.clone(),
            snapshots: self.snapshots.iter().copied().collect(),
            offset,
            restarts,
            at_end: None,
            log_start: self.log_start,
            expiry: Expiry {
                now_ms,
                expiration_ms: producer_id_expiration_ms,
            },
            jitter_seed: self.jitter_seed,
            loaded: None,
            slot: self.cache.as_ref().and_then(LogCache::slot_now),
        })
    }

    /// Installs what is left and lets appends through; after an error the log is poisoned.
    pub fn complete_truncation(&mut self, job: TruncateJob, result: Result<(), OpenError>) {
        self.truncating = false;
        self.restart = None;
        if let (Some(cache), Some((_, slot))) = (&mut self.cache, &job.slot) {
            cache.set_slot(*slot);
        }
        let recovery_point = self.recovery_point();
        let loaded = match (result, job.loaded) {
            (Ok(()), Some(loaded)) => loaded,
            (Ok(()), None) => return self.poison("a truncation was completed but not executed"),
            (Err(error), _) => {
                let path = self.folder.path();
                return self.poison(format!("truncating {} failed: {error}", path.display()));
            }
        };
        let end_offset = loaded.end_offset;
        self.leave.note_cut(end_offset);
        self.swapped_end = self.swapped_end.min(end_offset);
        self.cleaned_at_open = self.cleaned_at_open.min(end_offset);
        if job.restarts || end_offset < self.high_watermark.offset {
            self.opening = next_opening();
        }
        self.end = LogPosition::at(end_offset, loaded.active.base_offset(), loaded.active.size);
        self.durable_end = self.end;
        self.written = self.end;
        if job.restarts || self.high_watermark.offset >= end_offset {
            self.high_watermark = self.end;
        }
        self.log_start = loaded.state.log_start;
        self.partial = loaded.state.partial;
        self.recent.clear();
        self.spare_snapshot = spare(&loaded.state.snapshots, &loaded.state.segments);
        self.segments = Arc::new(loaded.state.segments);
        self.is_reshaped = true;
        self.active = loaded.active;
        self.epochs = loaded.state.epochs;
        self.epochs_unwritten = false;
        if loaded.epochs_due {
            self.write_epochs();
        }
        self.producers = loaded.state.producers;
        self.producers.on_high_watermark(self.high_watermark.offset);
        if let (Some(cache), false) = (&mut self.cache, self.producers.is_empty()) {
            cache.note_producer();
        }
        self.snapshots = loaded.state.snapshots;
        self.aborted = kept(loaded.state.aborted);
        self.put_away_aborted();
        self.sync.recovery_point = match job.restarts {
            true => end_offset,
            false => recovery_point.min(end_offset),
        };
        let synced = self.sync.recovery_point.max(self.log_start);
        self.sync.ages = Ages::left_unsynced(synced, end_offset);
        // Unsynced data stays unsynced, in new segment objects.
        let unsynced = |segment: &&Arc<Segment>| {
            let next = self
                .segments
                .partition_point(|s| s.base_offset() <= segment.base_offset());
            let end = self
                .segments
                .get(next)
                .map_or(end_offset, |next| next.base_offset());
            end > self.sync.recovery_point
        };
        self.sync.segments = self.segments.iter().filter(unsynced).cloned().collect();
    }
}

impl TruncateJob {
    /// Cuts the files. The caller must hold no lock.
    ///
    /// # Errors
    /// [`OpenError`]: hand it to [`Log::complete_truncation`], or execute the job again if it
    /// [`OpenError::may_pass`].
    pub fn execute(&mut self) -> Result<(), OpenError> {
        if let Some((arena, slot)) = &mut self.slot {
            // Everything was written, so nothing is lost, and no block can come back after a kill.
            *slot = arena.kill_blocks(*slot);
        }
        let disk = self.env.disk();
        let marker = self.folder.file(names::TRUNCATION);
        disk.open(&marker, OpenMode::Create)?;
        for &offset in self
            .snapshots
            .iter()
            .filter(|offset| self.restarts || **offset > self.offset)
        {
            missing_is_fine(
                disk.remove_file(&self.folder.segment_file(offset, FileKind::Snapshot)),
            )?;
        }
        let kept = match self.restarts {
            true => 0,
            false => self
                .segments
                .partition_point(|s| s.base_offset() <= self.offset),
        };
        for segment in self.segments[kept..].iter().rev() {
            segment.remove_files()?;
        }
        if let Some(last) = self.segments[..kept].last() {
            self.cut_segment(last)?;
        }
        if self.restarts {
            let epochs = self.folder.file(names::LEADER_EPOCH_CHECKPOINT);
            missing_is_fine(disk.remove_file(&epochs))?;
            missing_is_fine(disk.remove_file(&self.folder.file(names::PARTIAL)))?;
            let metadata = self.folder.file(names::PARTITION_METADATA);
            PartitionMetadata::mark(disk, &metadata, self.at_end.is_some())?;
        }
        if let Some(start) = &self.at_end {
            start.write(disk, &self.folder)?;
        }
        disk.sync_dir(&self.folder.path())?;
        missing_is_fine(disk.remove_file(&marker))?;
        let loader = Loader {
            env: &self.env,
            folder: &self.folder,
            config: &self.config,
            expiry: self.expiry,
            jitter_seed: self.jitter_seed,
            blocks: Default::default(),
            is_same_boot: false,
            had_no_producers: false,
            is_unseen: false,
            converts: true,
        };
        let state = OpenState {
            clean: true,
            recovery_point: self.offset,
            cleaned_end: self.offset,
            log_start_offset: match self.restarts {
                true => self.offset,
                false => self.log_start.min(self.offset),
            },
            high_watermark: self.offset,
        };
        let loaded = loader.load(state, OpenReport::default())?;
        loader.write_epochs(&loaded.state.epochs)?;
        self.loaded = Some(loaded);
        Ok(())
    }

    fn cut_segment(&self, segment: &Arc<Segment>) -> Result<(), OpenError> {
        if segment.written() == 0 {
            return Ok(());
        }
        let file = segment.log_file(Wait::Blocking)?;
        let mut end = 0;
        // An earlier try may have cut it.
        let len = segment.written().min(file.len()?);
        let file = SegmentBytes::of_file(file);
        let mut scanner = BatchScanner::new(file, 0, len, WALK_CHUNK_BYTES, Wait::Blocking);
        while let Some(met) = scanner.next_header().map_err(io::Error::from)? {
            if met.header.last_offset() >= self.offset {
                break;
            }
            end = met.end();
        }
        // The indexes first: missing entries are harmless, surplus ones are not.
        self.cut_indexes(segment, end)?;
        let file = segment.log_file_for_writing()?;
        file.set_len(end)?;
        Ok(file.sync_data()?)
    }

    fn cut_indexes(&self, segment: &Arc<Segment>, end: u64) -> io::Result<()> {
        let disk = self.env.disk();
        let base_offset = segment.base_offset();
        for kind in INDEX_FILES {
            let path = segment.path(kind);
            let content = disk::if_exists(disk::read_file(disk, &path, i32::MAX as u64))?;
            let Some(content) = content else { continue };
            let size = segment.written();
            let keep = match kind {
                FileKind::OffsetIndex => {
                    OffsetIndex::load(base_offset, i32::MAX as usize, &content, size)
                        .map(|mut index| index.truncate_to(self.offset))
                        .ok()
                }
                FileKind::TimeIndex => TimeIndex::load(base_offset, i32::MAX as usize, &content)
                    .map(|mut index| index.truncate_to(self.offset))
                    .ok(),
                _ => TransactionIndex::load(base_offset, &content)
                    .map(|mut index| index.truncate_to(self.offset))
                    .ok(),
            };
            let file = disk.open(&path, OpenMode::Write)?;
            // An unreadable index is emptied and rebuilt when the segment is loaded.
            file.set_len(if end == 0 {
                0
            } else {
                keep.unwrap_or(0) as u64
            })?;
        }
        Ok(())
    }
}
