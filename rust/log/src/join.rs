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

use std::collections::HashMap;
use std::io;
use std::sync::Arc;

use crate::cleaner::CleanError;
use crate::cleaner::copy::{Copied, Copier, name, remove};
use crate::config::LogConfig;
use crate::digest::BatchDigest;
use crate::disk::{self, OpenMode, missing_is_fine, sync_failed};
use crate::env::LogEnv;
use crate::folder::Folder;
use crate::leader_epochs::LeaderEpochs;
use crate::log::Log;
use crate::names::{FileKind, INDEX_FILES, Suffix};
use crate::retention::Retiring;
use crate::scan::{BatchFacts, BatchScanner, ScanError, WALK_CHUNK_BYTES};
use crate::segment::{Segment, SegmentBytes};
use crate::transaction_index::{AbortedTxn, SegmentAborted};
use crate::validate::validate_replica;
use crate::wait::Wait;
use pyrklog_wire::batch::{self, BatchHeader, HEADER_LEN};

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

/// A segment that is being received.
#[derive(Debug)]
pub struct Fill {
    plan: FillPlan,
    /// From the first batch on.
    copier: Option<Copier>,
    base_offset: i64,
    next: i64,
    digest: BatchDigest,
    /// Where transactions begin in it, by producer.
    open: HashMap<i64, i64>,
    /// Its abort markers by offset: the producer, and the first record of the transaction if that
    /// is in it, too.
    aborts: HashMap<i64, (i64, Option<i64>)>,
    /// Leader epochs of its batches, below those that are known.
    met: LeaderEpochs,
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
    /// Its files could not be removed after an error.
    is_unclear: bool,
}

impl Log {
    /// Plans a segment with the records from `begin` to the log's start. `None` if the log lacks
    /// nothing, or while another segment is planned or the log cannot be changed. Memory only.
    pub fn plan_fill(&self, begin: i64) -> Option<FillPlan> {
        let partial = self.partial.clone()?;
        let epochs = self.epochs_known();
        let is_asked = 0 <= begin && begin < self.log_start;
        let can_join = self.segments[0].base_offset() == self.log_start && self.may_join();
        let is_filling = Arc::strong_count(&self.filling) > 1;
        if !is_asked || !can_join || is_filling || self.config.cleanup_compact {
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
        let fits = first.base_offset() == job.plan.end && !is_compacted;
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

    /// Begins to receive.
    pub fn open(self) -> Fill {
        Fill {
            copier: None,
            base_offset: self.begin,
            next: self.begin,
            digest: BatchDigest::default(),
            open: HashMap::new(),
            aborts: HashMap::new(),
            met: LeaderEpochs::new(),
            plan: self,
        }
    }

    fn path(&self, base_offset: i64, kind: FileKind, suffix: Suffix) -> std::path::PathBuf {
        self.folder.file(&name(base_offset, kind, suffix))
    }
}

impl Fill {
    /// Whether the log is the one that it was planned for, in its place: it has not begun anew, nor
    /// moved to another directory.
    pub fn is_of(&self, log: &Log) -> bool {
        self.plan.is_of(log)
    }

    /// Offset of the next record.
    pub fn next_offset(&self) -> i64 {
        self.next
    }

    /// Whether all records are there.
    pub fn is_complete(&self) -> bool {
        self.next == self.plan.end
    }

    /// Takes the next batches. The last one may be incomplete, and is left out, as are those behind
    /// the segment's end. The caller must hold no lock.
    ///
    /// # Errors
    /// [`FillError`]: [`Fill::discard`] it.
    pub fn add(&mut self, records: &[u8]) -> Result<(), FillError> {
        let mut begin = 0;
        while !self.is_complete() && records.len() - begin >= HEADER_LEN {
            let rest = &records[begin..];
            let header = BatchHeader::parse(rest);
            let len = header.map_err(|error| self.unfit(&error))?.total_len();
            if len > rest.len() {
                break;
            }
            self.add_batch(&rest[..len])?;
            begin += len;
        }
        Ok(())
    }

    fn add_batch(&mut self, bytes: &[u8]) -> Result<(), FillError> {
        let info = validate_replica(bytes).map_err(|error| self.unfit(&error.message))?;
        let (base_offset, end) = (info.base_offset, info.last_offset() + 1);
        // The first one may begin before the source's log start, which lies within it.
        let follows = match self.copier {
            None => base_offset <= self.next && end > self.next,
            Some(_) => base_offset == self.next,
        };
        if !follows || end > self.plan.end {
            let range = format!("a batch of {base_offset} to {}", end - 1);
            return Err(self.unfit(&range));
        }
        self.check_epoch(info.partition_leader_epoch)?;
        if self.copier.is_some() && self.plan.leaves_out(end) {
            self.next = end;
            return Ok(());
        }
        if self.copier.is_none() {
            self.base_offset = base_offset;
            let FillPlan {
                env,
                folder,
                config,
                ..
            } = &self.plan;
            self.copier = Some(Copier::new(env, folder, base_offset, Suffix::Fill, config)?);
        }
        let facts = BatchFacts {
            size: bytes.len() as u32,
            last_offset: info.last_offset(),
            max_timestamp: info.max_timestamp,
        };
        if let Some(copier) = &mut self.copier {
            copier.add(bytes, facts)?;
        }
        // Its bytes have the stored checksum.
        self.digest.add(&info, info.crc);
        if let Some(marker) = info.marker {
            let first = self.open.remove(&info.producer_id);
            if !marker.commit {
                self.aborts
                    .insert(info.base_offset, (info.producer_id, first));
            }
        } else if info.is_transactional() && !info.is_control() {
            self.open.entry(info.producer_id).or_insert(base_offset);
        }
        self.next = end;
        Ok(())
    }

    /// The epoch of the batch at the next offset. Below those that are known they rise.
    fn check_epoch(&mut self, epoch: i32) -> Result<(), FillError> {
        // The first one known may begin within the segment's first batch.
        let known = self.plan.epochs.epoch_for_offset(self.next);
        let expected = match known {
            Some(known) => known..=known,
            None => {
                let first = self.met.latest().map_or(-1, |latest| latest.epoch);
                let next = self.plan.epochs.earliest();
                first..=next.map_or(i32::MAX, |next| next.epoch)
            }
        };
        if !expected.contains(&epoch) && !self.plan.takes_any_epoch() {
            return Err(self.unfit(&format!("a batch of epoch {epoch}, not of {expected:?}")));
        }
        if known.is_none() {
            self.met.assign(epoch, self.next);
        }
        Ok(())
    }

    fn unfit(&self, what: &dyn std::fmt::Display) -> FillError {
        FillError::unfit(format!("at offset {}: {what}", self.next))
    }

    /// Completes the files, makes them durable, and reads the records back. `aborted`: the source's
    /// transaction index; entries outside of the segment are left out. `modified_ms`: when the
    /// source's file was last changed. The caller must hold no lock.
    ///
    /// # Errors
    /// [`FillError`]; nothing is left of the files, unless the disk fails.
    pub fn finish(
        mut self,
        aborted: &[AbortedTxn],
        modified_ms: i64,
    ) -> Result<JoinJob, FillError> {
        let finished = self.try_finish(aborted, modified_ms);
        if finished.is_err() {
            self.discard()?;
        }
        let new = finished?;
        Ok(JoinJob {
            plan: self.plan,
            new,
            met: self.met,
            first: None,
            holds: None,
            is_unclear: false,
        })
    }

    fn try_finish(
        &mut self,
        aborted: &[AbortedTxn],
        modified_ms: i64,
    ) -> Result<Copied, FillError> {
        if !self.is_complete() {
            return Err(self.unfit(&format!("the segment goes on to {}", self.plan.end)));
        }
        let Some(mut copier) = self.copier.take() else {
            return Err(FillError::Stale);
        };
        let within = self.base_offset..self.plan.end;
        for txn in aborted.iter().filter(|t| within.contains(&t.last_offset)) {
            self.check_aborted(txn)?;
            copier.add_aborted(*txn)?;
        }
        if let Some((offset, (id, _))) = self.aborts.iter().find(|(_, one)| one.1.is_some()) {
            let missing = format!("no aborted transaction of producer {id} ends at {offset}");
            return Err(self.unfit(&missing));
        }
        let new = copier.finish(modified_ms)?;
        self.read_back(new.segment.size())?;
        Ok(new)
    }

    /// Consumers would drop other records, or see what was aborted.
    fn check_aborted(&mut self, txn: &AbortedTxn) -> Result<(), FillError> {
        let met = self.aborts.remove(&txn.last_offset);
        let fits = met.is_some_and(|(producer_id, first)| {
            let begins = first.is_none_or(|first| txn.first_offset <= first);
            producer_id == txn.producer_id && begins && txn.first_offset < txn.last_offset
        });
        match fits {
            true => Ok(()),
            false => Err(self.unfit(&format!("an aborted transaction: {txn:?}"))),
        }
    }

    /// Compares the file with what was received.
    fn read_back(&self, size: u64) -> Result<(), FillError> {
        let path = self
            .plan
            .path(self.base_offset, FileKind::Log, Suffix::Fill);
        let file = self.plan.env.disk().open(&path, OpenMode::Read)?;
        let bytes = SegmentBytes::of_file(file);
        let mut scanner = BatchScanner::new(bytes, 0, size, WALK_CHUNK_BYTES, Wait::PastCache);
        let mut digest = BatchDigest::default();
        loop {
            match scanner.next_whole() {
                Ok(Some((met, bytes))) => digest.add(&met.header, batch::compute_crc(bytes)),
                Ok(None) if digest == self.digest => return Ok(()),
                Err(ScanError::Io(error)) => return Err(error.into()),
                Ok(None) | Err(ScanError::NotABatch { .. }) => {
                    let path = path.display();
                    return Err(FillError::unfit(format!("{path} is not what was written")));
                }
            }
        }
    }

    /// Removes the files.
    ///
    /// # Errors
    /// A disk error.
    pub fn discard(&self) -> io::Result<()> {
        remove(
            &self.plan.env,
            &self.plan.folder,
            self.base_offset,
            Suffix::Fill,
        )
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
