//! Builds the state of a log from the files of its folder.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;
use std::sync::Arc;

use crate::at_end::{PARTIAL_BYTES_MAX, epochs_of};
use crate::config::LogConfig;
use crate::dir_cache::FoundSegments;
use crate::disk;
use crate::env::LogEnv;
use crate::folder::Folder;
use crate::leader_epochs::LeaderEpochs;
use crate::names::{self, FileKind};
use crate::open::files::FolderFiles;
use crate::open::producers::Expiry;
use crate::open::unwritten::Unwritten;
use crate::open::{OpenError, OpenReport, OpenState, files};
use crate::partition_metadata::PartitionMetadata;
use crate::producer_state::ProducerStates;
use crate::segment::{ActiveSegment, Segment};
use crate::transaction_index::TransactionIndex;

/// Loads a folder; used for opening and truncating.
pub(crate) struct Loader<'a> {
    pub env: &'a Arc<LogEnv>,
    pub folder: &'a Arc<Folder>,
    pub config: &'a LogConfig,
    pub expiry: Expiry,
    pub jitter_seed: u64,
    pub blocks: FoundSegments,
    /// The previous run was in the same boot.
    pub is_same_boot: bool,
    /// As recorded beside the blocks.
    pub had_no_producers: bool,
    /// As another broker left it.
    pub is_unseen: bool,
    /// Segments of old formats become new ones; else the folder is refused.
    pub converts: bool,
}

/// What a log holds, as far as it is loaded.
#[derive(Debug)]
pub(crate) struct LoadedState {
    pub report: OpenReport,
    /// The content of the file `partial`, if there is one.
    pub partial: Option<Arc<[u8]>>,
    pub log_start: i64,
    pub segments: Vec<Arc<Segment>>,
    pub epochs: LeaderEpochs,
    pub epochs_changed: bool,
    pub producers: ProducerStates,
    pub snapshots: BTreeSet<i64>,
    pub aborted: BTreeMap<i64, TransactionIndex>,
    /// Segments with an unreadable transaction index.
    pub aborted_unread: BTreeSet<i64>,
    pub unsynced: Vec<Arc<Segment>>,
    pub unwritten: Vec<Unwritten>,
    /// Everything below was synced.
    pub synced_end: i64,
    /// Everything below was compacted.
    pub cleaned_end: i64,
}

#[derive(Debug)]
pub(crate) struct Loaded {
    pub state: LoadedState,
    pub active: ActiveSegment,
    pub end_offset: i64,
    pub epochs_unwritten: bool,
    /// The file must be written before anything else: there was no space for it.
    pub epochs_due: bool,
    pub recovery_point: i64,
}

/// Which segments are looked through for messages of old formats.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Suspects {
    /// Those that begin before the first leader epoch.
    WithoutEpoch,
    /// All.
    All,
}

/// The active segment and the log end offset.
pub(super) type Opened = (ActiveSegment, i64);

impl LoadedState {
    /// A batch of the epoch lies at `offset`.
    pub fn note_epoch(&mut self, epoch: i32, offset: i64) {
        if self
            .epochs
            .latest()
            .is_none_or(|newest| epoch > newest.epoch)
        {
            self.epochs_changed |= self.epochs.assign(epoch, offset);
        }
    }
}

impl Loader<'_> {
    /// Loads the folder as `state` says it was left; goes on with `report`.
    pub fn load(&self, state: OpenState, report: OpenReport) -> Result<Loaded, OpenError> {
        match self.load_files(state, Suspects::WithoutEpoch, report.clone()) {
            // The epochs belong to other segments.
            Err(OpenError::OldFormat { .. }) => self.load_files(state, Suspects::All, report),
            loaded => loaded,
        }
    }

    fn load_files(
        &self,
        state: OpenState,
        suspects: Suspects,
        mut report: OpenReport,
    ) -> Result<Loaded, OpenError> {
        let files = files::finish_interrupted(self.env, self.folder, &mut report.notes)?;
        let (known, note) = self.known_epochs(&files)?;
        report.notes.extend(note);
        let suspects = match suspects {
            Suspects::WithoutEpoch => Some(&known),
            Suspects::All => None,
        };
        let mut files = self.convert_old_segments(files, &state, suspects, &mut report)?;
        let logs = files.take(FileKind::Log);
        let segments = self.segments(&logs, state.log_start_offset)?;
        let partial = self.read_partial(&files)?;
        let known = match partial.as_deref().and_then(epochs_of) {
            // Its own file lacks those of segments that were joined just before a kill.
            Some(others) if known.earliest().is_some() => known.with_older(&others),
            _ => known,
        };
        let log_start = match partial {
            // The checkpoint is written after a segment was joined, and may not know it yet.
            Some(_) => segments[0].base_offset(),
            None => state.log_start_offset.max(segments[0].base_offset()),
        };
        let mut loading = LoadedState {
            report,
            partial,
            log_start,
            epochs: LeaderEpochs::new(),
            epochs_changed: false,
            producers: ProducerStates::new(),
            snapshots: files.take(FileKind::Snapshot),
            aborted: BTreeMap::new(),
            aborted_unread: BTreeSet::new(),
            unsynced: Vec::new(),
            unwritten: Vec::new(),

            synced_end: state.recovery_point,
            cleaned_end: state.cleaned_end,
            segments,
        };
        let indexed = files.take(FileKind::TransactionIndex);
        self.load_transaction_indexes(&indexed, &mut loading)?;
        let damaged = loading.aborted_unread.first().copied();
        let recover_from = match (state.clean, damaged) {
            (true, None) => None,
            (true, Some(base_offset)) => Some(base_offset),
            (false, damaged) => Some(state.recovery_point.min(damaged.unwrap_or(i64::MAX))),
        };
        self.load_epochs(known, &mut loading)?;
        let is_same = self.is_same_boot && !self.has_changed_file(&loading.segments);
        let is_as_left = self.has_unwritten() || damaged.is_none() && is_same;
        let opened = match recover_from {
            _ if is_as_left && (!state.clean || self.has_unwritten()) => {
                self.open_as_killed(&mut loading)?
            }
            None => self.open_clean(&mut loading)?,
            Some(offset) => self.open_unclean(&mut loading, offset)?,
        };
        if files.was_truncating {
            self.settle_truncation(&opened.0)?;
        }
        self.finish(loading, opened, state)
    }

    fn read_partial(&self, files: &FolderFiles) -> Result<Option<Arc<[u8]>>, OpenError> {
        if !files.is_partial {
            return Ok(None);
        }
        let disk = self.env.disk();
        let path = self.folder.file(names::PARTIAL);
        let content = disk::read_file(disk, &path, PARTIAL_BYTES_MAX)?;
        // A copy that was moved here from another directory says nothing yet.
        PartitionMetadata::mark(disk, &self.folder.file(names::PARTITION_METADATA), true)?;
        Ok(Some(content.into()))
    }

    /// Makes a truncation durable: cut batches must not come back behind later ones.
    fn settle_truncation(&self, active: &ActiveSegment) -> Result<(), OpenError> {
        let disk = self.env.disk();
        if disk.exists(&active.segment.path(FileKind::Log))? {
            active.segment.log_file_for_writing()?.sync_data()?;
        }
        disk.sync_dir(&self.folder.path())?;
        let marker = self.folder.file(names::TRUNCATION);
        Ok(disk::missing_is_fine(disk.remove_file(&marker))?)
    }

    /// The segments of folder and block cache by base offset; an empty one if there is none.
    fn segments(
        &self,
        logs: &BTreeSet<i64>,
        log_start_offset: i64,
    ) -> Result<Vec<Arc<Segment>>, OpenError> {
        let mut bases = logs.clone();
        let unwritten = self.blocks.iter();
        let unwritten = unwritten.filter(|(_, blocks)| blocks.unwritten_from().is_some());
        bases.extend(unwritten.map(|(base_offset, _)| *base_offset));
        let mut segments = Vec::with_capacity(bases.len().max(1));
        let last = bases.last().copied();
        let mut behind: Option<i64> = None;
        for &base_offset in &bases {
            let size = if logs.contains(&base_offset) {
                self.segment_size(base_offset)?
            } else {
                0
            };
            if let Some(earlier) = behind.filter(|_| size > 0) {
                return Err(OpenError::Corrupt(format!(
                    "segment {base_offset} of {} has {size} bytes, though {earlier} before it is not whole",
                    self.folder.path().display()
                )));
            }
            let blocks = self.blocks.get(&base_offset);
            let is_whole = blocks.is_none_or(|blocks| blocks.unwritten_from().is_none());
            let closed = Some(base_offset) != last && is_whole;
            let segment = Segment::new(self.env, self.folder, base_offset, size, closed);
            self.attach_blocks(&segment, size)?;
            if !is_whole {
                behind = Some(base_offset);
            }
            segments.push(segment);
        }
        if segments.is_empty() {
            let base_offset = log_start_offset.max(0);
            let segment = Segment::new(self.env, self.folder, base_offset, 0, false);
            segments.push(segment);
        }
        Ok(segments)
    }

    fn segment_size(&self, base_offset: i64) -> Result<u64, OpenError> {
        let path = self.folder.segment_file(base_offset, FileKind::Log);
        let size = self.env.disk().file_len(&path)?;
        if i32::try_from(size).is_err() {
            let path = path.display();
            let message = format!("{path} has {size} bytes, more than a segment can");
            return Err(OpenError::Corrupt(message));
        }
        Ok(size)
    }

    fn open_as_killed(&self, loading: &mut LoadedState) -> Result<Opened, OpenError> {
        if let Some(opened) = self.open_again(loading)? {
            return Ok(opened);
        }
        if self.has_unwritten() {
            let path = self.folder.path();
            return Err(OpenError::Corrupt(format!(
                "the files in {} contradict their records in the block cache",
                path.display()
            )));
        }
        loading.unsynced.clear();
        loading.unwritten.clear();
        self.open_unclean(loading, loading.synced_end)
    }

    fn open_clean(&self, loading: &mut LoadedState) -> Result<Opened, OpenError> {
        let last = loading
            .segments
            .last()
            .expect("a log has at least one segment")
            .clone();
        let Some(tail) = self.load_tail(&last, None, &mut loading.report)? else {
            // The active segment does not end with a whole batch, so the shutdown was not clean.
            return self.open_unclean(loading, last.base_offset());
        };
        self.load_producers(loading, tail.end_offset, tail.end_offset, &[])?;
        Ok((tail.active, tail.end_offset))
    }

    fn open_unclean(&self, loading: &mut LoadedState, offset: i64) -> Result<Opened, OpenError> {
        let after = loading
            .segments
            .partition_point(|segment| segment.base_offset() <= offset);
        let first = after.saturating_sub(1);
        let base_offset = loading.segments[first].base_offset();
        // Later snapshots may describe lost batches.
        for offset in loading.snapshots.split_off(&(base_offset + 1)) {
            let path = self.folder.segment_file(offset, FileKind::Snapshot);
            self.env.disk().remove_file(&path)?;
        }
        self.load_producers(loading, base_offset, base_offset, &[])?;
        loading.epochs_changed |= loading.epochs.truncate_from_end(base_offset);
        let recovered = self.recover(loading, first)?;
        let end_offset = recovered.end_offset;
        let active = self.active_from_recovered(loading, recovered);
        Ok((active, end_offset))
    }

    /// Loads the producers after a kill, with the indexes of some segments in memory. Adds aborted
    /// transactions that their segment's index lacks.
    pub(super) fn load_producers_again(
        &self,
        loading: &mut LoadedState,
        end: i64,
        tails: &[ActiveSegment],
    ) -> Result<(), OpenError> {
        let unread = loading.aborted_unread.first().copied();
        if self.had_no_producers && unread.is_none() && reaches_end(&loading.segments) {
            return Ok(());
        }
        // An unreadable index is rebuilt from its segment's first batch on.
        let start = loading.log_start.min(end);
        let newest = unread.map_or(end, |base_offset| base_offset.clamp(start, end));
        let aborted = self.load_producers(loading, end, newest, tails)?;
        self.enter_aborted(loading, aborted)
    }

    fn finish(
        &self,
        mut loading: LoadedState,
        (mut active, mut end_offset): Opened,
        state: OpenState,
    ) -> Result<Loaded, OpenError> {
        let log_start = loading.log_start;
        let mut as_left = state.clean && loading.report.recovered_segments == 0;
        if log_start > end_offset {
            as_left = false;
            // The records between were lost, and the remaining ones deleted before.
            loading.report.notes.push(format!(
                "starting over at {log_start}: the log ended at {end_offset}"
            ));
            for segment in std::mem::take(&mut loading.segments) {
                segment.remove_files()?;
            }
            self.env.disk().sync_dir(&self.folder.path())?;
            let segment = Segment::new(self.env, self.folder, log_start, 0, false);
            active = ActiveSegment::new(
                segment.clone(),
                self.config,
                self.jitter_seed,
                self.expiry.now_ms,
            );
            loading.segments.push(segment);
            loading.unsynced.clear();
            loading.unwritten.clear();
            loading.aborted.clear();
            loading.producers = ProducerStates::new();
            end_offset = log_start;
        }
        let (epochs_unwritten, epochs_due) =
            self.settle_epochs(&mut loading, log_start..end_offset, as_left)?;
        self.remove_stray_snapshots(&mut loading, end_offset)?;
        loading.producers.on_log_start(log_start);
        loading.report.checkpoint_is_stale = state.recovery_point > end_offset;
        let recovery_point = if loading.unsynced.is_empty() {
            end_offset
        } else {
            state.recovery_point.clamp(0, end_offset)
        };
        Ok(Loaded {
            state: loading,
            active,
            end_offset,
            epochs_unwritten,
            epochs_due,
            recovery_point,
        })
    }

    /// Drops epochs outside the log and writes the file. Returns whether it remains to be written:
    /// (before the next batch, before anything else).
    fn settle_epochs(
        &self,
        loading: &mut LoadedState,
        log: Range<i64>,
        as_left: bool,
    ) -> Result<(bool, bool), OpenError> {
        let mut trimmed = loading.epochs.truncate_from_end(log.end);
        trimmed |= loading.epochs.truncate_from_start(log.start);
        // In an orderly closed log this only drops epochs without a batch. The file may keep them
        // until the next batch, since every opening drops them.
        let epochs_unwritten = trimmed && as_left && !loading.epochs_changed;
        let mut epochs_due = false;
        if (trimmed || loading.epochs_changed) && !epochs_unwritten {
            match self.write_epochs(&loading.epochs) {
                Err(error) if error.may_pass() => epochs_due = true,
                result => result?,
            }
        }
        Ok((epochs_unwritten, epochs_due))
    }

    /// Removes snapshots that neither start a segment nor are the newest, and those behind the end,
    /// which would be wrong later.
    fn remove_stray_snapshots(&self, loading: &mut LoadedState, end: i64) -> Result<(), OpenError> {
        let bases: BTreeSet<i64> = loading.segments.iter().map(|s| s.base_offset()).collect();
        let newest = loading.snapshots.range(..=end).next_back().copied();
        let is_stray =
            |offset: &i64| *offset > end || (!bases.contains(offset) && Some(*offset) != newest);
        let stray: Vec<i64> = loading.snapshots.iter().copied().filter(is_stray).collect();
        for offset in stray {
            let path = self.folder.segment_file(offset, FileKind::Snapshot);
            self.env.disk().remove_file(&path)?;
            loading.snapshots.remove(&offset);
        }
        Ok(())
    }

    pub(super) fn save_snapshot(
        &self,
        loading: &mut LoadedState,
        offset: i64,
    ) -> Result<(), OpenError> {
        let content = crate::snapshot::encode(&loading.producers.snapshot_entries());
        let path = self.folder.segment_file(offset, FileKind::Snapshot);
        disk::replace_file_unsynced(self.env.disk(), &path, &content)?;
        loading.snapshots.insert(offset);
        Ok(())
    }
}

/// Whether the block cache holds the log's last bytes, so that the notes beside them cover the
/// whole log.
fn reaches_end(segments: &[Arc<Segment>]) -> bool {
    segments.last().is_some_and(|last| {
        let blocks_end = last.cached().and_then(|cached| cached.end());
        blocks_end.is_some_and(|end| u64::from(end) == last.size())
    })
}
