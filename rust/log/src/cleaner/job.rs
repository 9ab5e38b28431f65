//! One cleaning of one log: the map of last offsets, then group after group.

use std::collections::{HashMap, VecDeque};
use std::io;
use std::ops::Range;
use std::sync::Arc;

use pyrklog_wire::batch;

use crate::batch_info::BatchInfo;
use crate::cleaner::batch::{Findings, GrowthLimits, Outcome, RecordRules, clean, damaged, learn};
use crate::cleaner::copy::{Copied, Copier, remove};
use crate::cleaner::group::groups;
use crate::cleaner::offset_map::SLOT_BYTES;
use crate::cleaner::transactions::CleanedTransactions;
use crate::cleaner::{CleanError, CleaningPlan, OffsetMap, Pace, SwapJob};
use crate::env::LogEnv;
use crate::folder::Folder;
use crate::log::Log;
use crate::names::Suffix;
use crate::producer_state::LastRecord;
use crate::scan::{BatchFacts, Met, ScanError, WALK_CHUNK_BYTES};
use crate::segment::Segment;
use crate::transaction_index::{AbortedTxn, SegmentAborted, entries};
use crate::wait::Wait;

/// The least number of keys that a map is made for.
const SLOTS_MIN: u64 = 1024;

/// Bounds of the map.
#[derive(Clone, Copy, Debug)]
pub struct MapLimits {
    /// Memory: this thread's share of `log.cleaner.dedupe.buffer.size`.
    pub buffer_bytes: usize,
    /// `log.cleaner.io.buffer.load.factor`.
    pub load_factor: f64,
    /// Of the keys' hash.
    pub seed: u64,
}

/// What a cleaning did so far.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CleaningStats {
    /// Bytes read to build the map.
    pub map_bytes: u64,
    /// Keys in the map.
    pub keys: usize,
    /// The map was full before the end of the dirty part.
    pub is_map_full: bool,
    /// Bytes of the segments that were copied.
    pub bytes_before: u64,
    /// Bytes of the new segments.
    pub bytes_after: u64,
    /// Batches that went as a whole.
    pub batches_removed: u64,
}

/// A cleaning. See [`crate::cleaner`].
#[derive(Debug)]
pub struct CleanJob {
    env: Arc<LogEnv>,
    folder: Arc<Folder>,
    plan: CleaningPlan,
    map: OffsetMap,
    /// The map knows all dirty batches below.
    whole_end: i64,
    /// From the first segment on, but for those in `aborted_files`.
    aborted: Vec<AbortedTxn>,
    /// Segments whose transactions are in their files, and how many.
    aborted_files: Vec<(Arc<Segment>, usize)>,
    /// Of the walk that copies, over all groups.
    transactions: CleanedTransactions,
    last_records: HashMap<i64, LastRecord>,
    groups: VecDeque<Range<usize>>,
    stats: CleaningStats,
}

impl Log {
    /// Whether the job is one of this log, not of one whose place it took.
    pub fn is_cleaned_by(&self, job: &CleanJob) -> bool {
        Arc::ptr_eq(&self.folder, &job.folder)
    }

    /// Begins to clean. `None` if the segments are no longer the log's. Memory only.
    pub fn begin_cleaning(&self, plan: CleaningPlan) -> Option<CleanJob> {
        let _still_there = self.cleaned_range(&plan.segments)?;
        let first = plan.segments.first()?.base_offset();
        let mut aborted = Vec::new();
        let mut aborted_files = Vec::new();
        for (base_offset, of_segment) in self.aborted.range(first..) {
            match of_segment {
                SegmentAborted::Kept(index) => aborted.extend_from_slice(index.entries()),
                SegmentAborted::InFile(entries) => {
                    let segment = &self.segments[self.segment_index(*base_offset)];
                    aborted_files.push((Arc::clone(segment), *entries));
                }
            }
        }
        Some(CleanJob {
            env: self.env.clone(),
            folder: self.folder.clone(),
            map: OffsetMap::new(0, 0.0, 0),
            whole_end: plan.first_dirty,
            transactions: CleanedTransactions::new(Vec::new()),
            aborted,
            aborted_files,
            last_records: self.producers.last_records(),
            groups: VecDeque::new(),
            stats: CleaningStats::default(),
            plan,
        })
    }

    /// Where these segments stand in the log, all of them and in this order, before the active one.
    pub(super) fn cleaned_range(&self, sources: &[Arc<Segment>]) -> Option<Range<usize>> {
        let first = sources.first()?.base_offset();
        let start = self
            .segments
            .binary_search_by_key(&first, |s| s.base_offset())
            .ok()?;
        let range = start..start + sources.len();
        let held = self.segments.get(range.clone())?;
        let are_same = held
            .iter()
            .zip(sources)
            .all(|(one, other)| Arc::ptr_eq(one, other));
        (are_same && range.end < self.segments.len()).then_some(range)
    }
}

impl CleanJob {
    /// Reads the dirty part, and learns the last offset of each key: of all of it, or up to where
    /// the map is full. The caller must hold no lock.
    ///
    /// # Errors
    /// [`CleanError`].
    pub fn build_map(&mut self, limits: MapLimits, pace: &mut dyn Pace) -> Result<(), CleanError> {
        self.load_aborted()?;
        // A record takes more than a byte, so that a small log needs no more.
        let needed = self.plan.dirty_bytes.max(SLOTS_MIN);
        let slots =
            (limits.buffer_bytes / SLOT_BYTES).min(usize::try_from(needed).unwrap_or(usize::MAX));
        self.map = OffsetMap::new(slots, limits.load_factor, limits.seed);
        let is_before = |segment: &Arc<Segment>| segment.base_offset() <= self.plan.first_dirty;
        let from = self
            .plan
            .segments
            .partition_point(is_before)
            .saturating_sub(1);
        // The markers of earlier ones are not met.
        let start = self.plan.segments[from].base_offset();
        let mut aborted = std::mem::take(&mut self.aborted);
        aborted.retain(|txn| txn.last_offset >= start);
        let mut transactions = CleanedTransactions::new(aborted);
        for i in from..self.plan.segments.len() {
            let segment = Arc::clone(&self.plan.segments[i]);
            if !self.map_segment(&segment, &mut transactions, pace)? {
                self.stats.is_map_full = true;
                break;
            }
        }
        if !self.stats.is_map_full {
            self.map.note(self.plan.end - 1);
        }
        self.stats.keys = self.map.len();
        let end = self.end();
        let is_cleaned = |segment: &Arc<Segment>| segment.base_offset() < end;
        let count = self.plan.segments.partition_point(is_cleaned);
        let behind = self.plan.segments.get(count);
        let behind = behind.map_or(self.plan.end, |segment| segment.base_offset());
        self.groups = groups(&self.plan.segments[..count], behind, &self.plan.config).into();
        Ok(())
    }

    /// Learns the aborted transactions that reach into what is cleaned.
    fn load_aborted(&mut self) -> Result<(), CleanError> {
        for (segment, count) in std::mem::take(&mut self.aborted_files) {
            let file = segment.transaction_index(Wait::Blocking);
            let found = file.and_then(|file| entries(&*file, 0, count, Wait::Blocking));
            self.aborted.extend(found.map_err(stale_if_gone)?);
        }
        let end = self.plan.end;
        self.aborted.retain(|txn| txn.first_offset < end);
        self.transactions = CleanedTransactions::new(self.aborted.clone());
        Ok(())
    }

    /// False if the map is full.
    fn map_segment(
        &mut self,
        segment: &Arc<Segment>,
        transactions: &mut CleanedTransactions,
        pace: &mut dyn Pace,
    ) -> Result<bool, CleanError> {
        let mut scanner = segment.walk(0, WALK_CHUNK_BYTES);
        let dirty = self.plan.first_dirty..self.plan.end;
        while let Some((met, bytes)) = next_whole(scanner.next_whole(), segment)? {
            let info = checked(&met, bytes)?;
            self.stats.map_bytes += bytes.len() as u64;
            if !pace.pass(bytes.len() as u64) {
                return Err(CleanError::Stopped);
            }
            if info.is_control() {
                transactions.end(&info);
            } else if !transactions.meet(&info)
                && !learn(&mut self.map, &info, bytes, dirty.clone())?
            {
                return Ok(false);
            }
            if info.last_offset() >= dirty.start {
                self.map.note(info.last_offset());
                self.whole_end = info.last_offset() + 1;
            }
        }
        Ok(true)
    }

    /// Copies the next segments into one. `None` after the last: [`CleanJob::end`] is clean then.
    /// Hand the result to [`Log::begin_swap`]. The caller must hold no lock.
    ///
    /// # Errors
    /// [`CleanError`]; nothing is left of the copy, unless the disk fails.
    pub fn next_group(&mut self, pace: &mut dyn Pace) -> Result<Option<SwapJob>, CleanError> {
        let Some(group) = self.groups.pop_front() else {
            return Ok(None);
        };
        let sources = self.plan.segments[group].to_vec();
        let base_offset = sources[0].base_offset();
        let copied = self.copy(&sources, pace);
        if copied.is_err() {
            // What stays is removed by the next cleaning or opening.
            let _removed = remove(&self.env, &self.folder, base_offset, Suffix::Cleaned);
        }
        let copied = copied?;
        self.stats.bytes_before += sources.iter().map(|s| s.size()).sum::<u64>();
        self.stats.bytes_after += copied.segment.size();
        let (env, folder) = (self.env.clone(), self.folder.clone());
        Ok(Some(SwapJob::new(env, folder, sources, copied, self.end())))
    }

    fn copy(
        &mut self,
        sources: &[Arc<Segment>],
        pace: &mut dyn Pace,
    ) -> Result<Copied, CleanError> {
        let base_offset = sources[0].base_offset();
        let (env, folder, config) = (&self.env, &self.folder, &self.plan.config);
        let mut copier = Copier::new(env, folder, base_offset, Suffix::Cleaned, config)?;
        let mut changed = Vec::new();
        copier.expect(sources.iter().map(|s| s.size()).sum());
        for segment in sources {
            let mut scanner = segment.walk(0, WALK_CHUNK_BYTES);
            while let Some((met, bytes)) = next_whole(scanner.next_whole(), segment)? {
                let info = checked(&met, bytes)?;
                let written = self.copy_batch(&info, bytes, &mut changed, &mut copier)?;
                if !pace.pass((bytes.len() + written) as u64) {
                    return Err(CleanError::Stopped);
                }
            }
        }
        copier.finish(modified_ms(sources)?)
    }

    /// Returns the bytes that it takes now.
    fn copy_batch(
        &mut self,
        info: &BatchInfo,
        bytes: &[u8],
        changed: &mut Vec<u8>,
        copier: &mut Copier,
    ) -> Result<usize, CleanError> {
        let mut findings = Findings {
            stays_empty: self.is_producers_last(info),
            ..Findings::default()
        };
        let mut aborted = None;
        if info.is_control() {
            let end = self.transactions.end(info);
            let is_due = |horizon| self.plan.now_ms >= horizon;
            findings.ends_nothing = end.is_empty;
            findings.discards = end.is_empty && info.delete_horizon().is_some_and(is_due);
            aborted = end.aborted;
        } else {
            findings.discards = self.transactions.meet(info);
        }
        let limits = GrowthLimits::new(copier.room_bytes());
        copier.passed(bytes.len());
        let outcome = match info.base_offset < self.end() {
            true => {
                let rules = RecordRules {
                    map: &self.map,
                    now_ms: self.plan.now_ms,
                    delete_retention_ms: self.plan.rules.delete_retention_ms,
                    limits,
                };
                clean(&rules, info, bytes, findings, changed)?
            }
            // Still dirty: the map may not know what replaces its records.
            false => Outcome::Same,
        };
        let bytes = match outcome {
            Outcome::Same => bytes,
            Outcome::Changed => &changed[..],
            Outcome::Gone => {
                self.stats.batches_removed += 1;
                return Ok(0);
            }
        };
        let header = batch::BatchHeader::parse(bytes).map_err(|error| damaged(info, error))?;
        let facts = BatchFacts {
            size: bytes.len() as u32,
            last_offset: header.last_offset(),
            max_timestamp: header.max_timestamp,
        };
        copier.add(bytes, facts)?;
        if let Some(txn) = aborted {
            copier.add_aborted(txn)?;
        }
        Ok(bytes.len())
    }

    /// Whether the batch must stay so that its producer's sequence, or epoch, stays known.
    fn is_producers_last(&self, info: &BatchInfo) -> bool {
        let last = self.last_records.get(&info.producer_id);
        info.has_producer()
            && last.is_some_and(|last| match last.offset {
                Some(offset) => offset == info.last_offset(),
                None => info.is_control() && info.producer_epoch == last.epoch,
            })
    }

    /// What lies below is clean after the last group, for the checkpoint.
    pub fn end(&self) -> i64 {
        match self.stats.is_map_full && self.whole_end > self.plan.first_dirty {
            true => self.whole_end,
            // The first dirty batch has more keys than the map, so that only a part of it is clean.
            false => self.map.latest() + 1,
        }
    }

    /// What was done so far.
    pub fn stats(&self) -> CleaningStats {
        self.stats
    }
}

/// Of the last one: the newest.
fn modified_ms(sources: &[Arc<Segment>]) -> Result<i64, CleanError> {
    let Some(last) = sources.last() else {
        return Err(CleanError::Stale);
    };
    last.load_modified_ms().map_err(stale_if_gone)
}

fn stale_if_gone(error: io::Error) -> CleanError {
    match error.kind() {
        // Retention has renamed it.
        io::ErrorKind::NotFound => CleanError::Stale,
        _ => error.into(),
    }
}

fn next_whole<'a>(
    next: Result<Option<(Met, &'a [u8])>, ScanError>,
    segment: &Segment,
) -> Result<Option<(Met, &'a [u8])>, CleanError> {
    next.map_err(|error| match error {
        // Its files are gone already.
        ScanError::Io(_) if segment.is_removed() => CleanError::Stale,
        ScanError::Io(error) => error.into(),
        ScanError::NotABatch { position, reason } => {
            let base_offset = segment.base_offset();
            CleanError::Corrupt(format!(
                "segment {base_offset} has no batch at position {position}: {reason}"
            ))
        }
    })
}

/// A batch that may be trusted.
fn checked(met: &Met, bytes: &[u8]) -> Result<BatchInfo, CleanError> {
    batch::verify_crc(bytes).map_err(|error| damaged(&met.header, error))?;
    BatchInfo::parse(bytes).map_err(|error| damaged(&met.header, error))
}
