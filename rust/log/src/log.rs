//! One partition's log: the state under the partition's lock.
//!
//! Order of the offsets:
//!
//! ```text
//! log start <= last stable offset <= high watermark <= durable end offset <= log end
//!                                    recovery point <= written <= log end
//! ```
//!
//! *Log end*: end of what was appended. *Written*: below it the files have everything. *Durable end
//! offset*: below it the flush settings' promise holds; acknowledgements and visibility stop there.
//! *High watermark*: below it every in-sync replica has the data. *Last stable offset*: first
//! offset of the oldest open transaction. *Recovery point*: below it everything was synced.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::sync::atomic::AtomicUsize;

use crate::batch_info::BatchInfo;
use crate::cache::{LogCache, may_go_behind};
use crate::config::LogConfig;
use crate::env::LogEnv;
use crate::folder::Folder;
use crate::leader_epochs::LeaderEpochs;
use crate::leave::Leave;
use crate::names;
use crate::position::{LogPosition, RecentPositions};
use crate::producer_state::guards::{Afterwards, GuardNumber, GuardOwner};
use crate::producer_state::verification::Verification;
use crate::producer_state::{OutOfTurn, ProducerError, ProducerStates};
use crate::segment::{ActiveSegment, Segment};
use crate::sync_state::SyncState;
use crate::tail::{Tail, Unwritten};
use crate::transaction_index::SegmentAborted;
use crate::write_behind::{Completed, INDEX_BATCH_BYTES, INDEX_BEHIND_BYTES, WriteJob};

/// The commit log of one partition. The crate's documentation says who may call what.
#[derive(Debug)]
pub struct Log {
    pub(crate) env: Arc<LogEnv>,
    pub(crate) folder: Arc<Folder>,
    pub(crate) config: Arc<LogConfig>,
    /// Never empty, ascending; the last is the active one. Copied on a change while a reader holds
    /// it.
    pub(crate) segments: Arc<Vec<Arc<Segment>>>,
    pub(crate) active: ActiveSegment,
    pub(crate) tail: Tail,
    /// Bytes of the current write job.
    pub(crate) in_flight: Option<Unwritten>,
    pub(crate) cache: Option<LogCache>,
    pub(crate) end: LogPosition,
    /// The files have everything before it.
    pub(crate) written: LogPosition,
    pub(crate) durable_end: LogPosition,
    pub(crate) high_watermark: LogPosition,
    pub(crate) log_start: i64,
    pub(crate) recent: RecentPositions,
    pub(crate) epochs: LeaderEpochs,
    /// The file is to be written before the next batch: it lacks an epoch without a batch yet, or
    /// has one that never got any.
    pub(crate) epochs_unwritten: bool,
    pub(crate) producers: ProducerStates,
    /// Offsets of the producer snapshots in the folder.
    pub(crate) snapshots: BTreeSet<i64>,
    /// Bytes of producers' batches since the last snapshot, and the last snapshot that is not at a
    /// segment's start.
    pub(crate) unsaved_bytes: usize,
    pub(crate) spare_snapshot: Option<i64>,
    /// Transaction indexes by segment base offset, where they have entries.
    pub(crate) aborted: BTreeMap<i64, SegmentAborted>,
    pub(crate) sync: SyncState,
    pub(crate) truncating: bool,
    /// Where a log that is being discarded begins anew.
    pub(crate) restart: Option<i64>,
    /// A copy of it moves to another log directory.
    pub(crate) leave: Leave,
    /// A cleaned segment takes the place of others.
    pub(crate) is_swapping: bool,
    /// See [`Log::swapped_end`].
    pub(crate) swapped_end: i64,
    /// What the cleaner's checkpoint said when it was opened.
    pub(crate) cleaned_at_open: i64,
    /// See [`Log::opening`].
    pub(crate) opening: i64,
    /// Segments were replaced or removed since [`Log::check_invariants`] last looked at each.
    pub(crate) is_reshaped: bool,
    /// The content of the file `partial`, if there is one.
    pub(crate) partial: Option<Arc<[u8]>>,
    /// Held by the segment that is being back-filled: its files have their names for themselves.
    pub(crate) filling: Arc<()>,
    /// Removals whose files still have their names ([`crate::RemovedSegments::rename`]).
    pub(crate) retiring: Arc<AtomicUsize>,
    pub(crate) poison: Option<String>,
    /// It is poisoned, but what was appended is still written.
    pub(crate) is_sealed: bool,
    pub(crate) jitter_seed: u64,
}

/// The producer state is saved after this many bytes, so that a start after a kill need not walk a
/// whole segment. With many producers, whose snapshot is large, it is saved less often.
const SNAPSHOT_EVERY_BYTES: usize = 4 << 20;
const SNAPSHOT_EVERY_BYTES_A_PRODUCER: usize = 1024;

/// Interval without producers, when a snapshot only says that there are none.
const SNAPSHOT_EVERY_BYTES_WITHOUT: usize = 8 << 20;

impl Log {
    /// Offset of the first record that may be read.
    pub fn log_start_offset(&self) -> i64 {
        self.log_start
    }

    /// What the checkpoint of log starts is to say. A log that is being discarded to begin at a
    /// lower offset has that row before its files go: a higher one would be taken for the start of
    /// the empty log that a kill leaves, and what lies between would be missing for ever.
    pub fn log_start_row(&self) -> i64 {
        self.restart
            .map_or(self.log_start, |offset| offset.min(self.log_start))
    }

    /// Offset of the next record.
    pub fn log_end_offset(&self) -> i64 {
        self.end.offset
    }

    /// Offset behind the last batch that is no transaction marker, as far as it is known: from there
    /// to the log end are only markers. Never below it; a truncation to a marker, or an opening with
    /// hundreds of markers at the end, may leave it above.
    pub fn data_end_offset(&self) -> i64 {
        self.active.data_end.clamp(self.log_start, self.end.offset)
    }

    /// Records below it may be acknowledged, as far as this replica is concerned.
    pub fn durable_end_offset(&self) -> i64 {
        self.durable_end.offset
    }

    /// Records below it are on every in-sync replica.
    pub fn high_watermark(&self) -> i64 {
        self.high_watermark.offset
    }

    /// Records below it belong to no open transaction.
    pub fn last_stable_offset(&self) -> i64 {
        self.stable_position().offset
    }

    /// The newest leader epoch in the log.
    pub fn latest_epoch(&self) -> Option<i32> {
        self.epochs.latest().map(|entry| entry.epoch)
    }

    /// Bytes of all batches, including the tail's.
    pub fn size_bytes(&self) -> u64 {
        let closed = &self.segments[..self.segments.len() - 1];
        closed.iter().map(|segment| segment.size()).sum::<u64>() + u64::from(self.active.size)
    }

    /// Number of segments, including the active one.
    pub fn segment_count(&self) -> usize {
        self.segments.len()
    }

    /// See [`ProducerStates::has_all_before`].
    pub fn has_all_before(&self, info: &BatchInfo) -> bool {
        self.producers.has_all_before(info)
    }

    /// See [`ProducerStates::out_of_turn`].
    pub fn out_of_turn(&self, info: &BatchInfo) -> Option<OutOfTurn> {
        self.producers.out_of_turn(info)
    }

    /// The state of its producers.
    pub fn producers(&self) -> &ProducerStates {
        &self.producers
    }

    /// See [`ProducerStates::begin_verification`].
    ///
    /// # Errors
    /// The producer has a newer epoch.
    pub fn begin_verification(
        &mut self,
        owner: GuardOwner,
        sequence: i32,
        now_ms: i64,
    ) -> Result<Verification, ProducerError> {
        self.producers.begin_verification(owner, sequence, now_ms)
    }

    /// See [`ProducerStates::begin_verification_of`].
    ///
    /// # Errors
    /// The producer has a newer epoch.
    pub fn begin_verification_of(
        &mut self,
        info: &BatchInfo,
        transactional_id: u64,
        now_ms: i64,
    ) -> Result<Verification, ProducerError> {
        self.producers
            .begin_verification_of(info, transactional_id, now_ms)
    }

    /// See [`ProducerStates::end_verification`].
    pub fn end_verification(
        &mut self,
        owner: GuardOwner,
        number: GuardNumber,
        afterwards: Afterwards,
    ) {
        self.producers.end_verification(owner, number, afterwards);
    }

    /// See [`ProducerStates::void_guards`].
    pub fn void_guards(&mut self) {
        self.producers.void_guards();
    }

    /// Number of producers with state.
    pub fn producer_count(&self) -> usize {
        self.producers.len()
    }

    /// The options in force.
    pub fn config(&self) -> &Arc<LogConfig> {
        &self.config
    }

    /// Sets the options, from the next append on.
    pub fn set_config(&mut self, config: Arc<LogConfig>) {
        self.config = config;
    }

    /// What the logs of the directory share.
    pub fn env(&self) -> &Arc<LogEnv> {
        &self.env
    }

    /// Why the log refuses everything, if it does.
    pub fn poisoned(&self) -> Option<&str> {
        self.poison.as_deref().or_else(|| self.env.poisoned())
    }

    /// Makes the log refuse everything from now on.
    pub fn poison(&mut self, reason: impl Into<String>) {
        self.poison.get_or_insert(reason.into());
        self.is_sealed = false;
    }

    /// The same, but what was appended is still written.
    pub fn seal(&mut self, reason: impl Into<String>) {
        if self.poison.is_none() {
            self.poison = Some(reason.into());
            self.is_sealed = true;
        }
    }

    /// Whether what was appended is written.
    pub fn writes(&self) -> bool {
        self.env.poisoned().is_none() && (self.poison.is_none() || self.is_sealed)
    }

    /// This broker leads from now on: `epoch` starts at the log end, unless a newer one is known.
    /// If true, queue the log at its writer.
    ///
    /// The file gets the epoch with its first batch, since opening a log drops epochs without any.
    /// So a start with thousands of partitions writes nothing. A new folder gets its file at once.
    pub fn assign_epoch_start(&mut self, epoch: i32) -> bool {
        let wake = self.is_idle();
        if epoch >= 0 && self.epochs.assign(epoch, self.end.offset) {
            self.epochs_unwritten = true;
            if self.sync.new_folder {
                self.write_epochs();
            }
        }
        wake && !self.tail.is_empty()
    }

    /// (epoch, end offset) of the newest epoch at or below `epoch`; (-1, -1) if unknown
    /// (OffsetForLeaderEpoch, KIP-101 and KIP-279).
    pub fn end_offset_for_epoch(&self, epoch: i32) -> (i32, i64) {
        self.epochs.end_offset_for(epoch, self.end.offset)
    }

    /// Raises the high watermark, at most to the durable end offset; true if it moved.
    pub fn advance_high_watermark(&mut self, offset: i64) -> bool {
        let offset = offset.min(self.durable_end.offset);
        if offset <= self.high_watermark.offset {
            return false;
        }
        self.high_watermark = if offset == self.durable_end.offset {
            self.durable_end
        } else {
            LogPosition {
                offset,
                place: self.recent.find(offset),
            }
        };
        self.producers.on_high_watermark(offset);
        true
    }

    /// Raises the high watermark beyond the durable end offset: a bug that a simulation plants.
    #[cfg(feature = "sim")]
    pub fn force_high_watermark(&mut self, offset: i64) {
        let offset = offset.min(self.end.offset);
        if offset > self.high_watermark.offset.max(self.durable_end.offset) {
            self.high_watermark = LogPosition::unplaced(offset);
        }
    }

    /// Removes producers that were silent for `expiration_ms` and have no open transaction; returns
    /// their number.
    pub fn expire_producers(&mut self, now_ms: i64, expiration_ms: i64) -> usize {
        self.producers.expire(now_ms, expiration_ms)
    }

    pub(crate) fn stable_position(&self) -> LogPosition {
        match self.producers.first_unstable() {
            Some(open) if open.first_offset < self.high_watermark.offset => {
                if open.first_offset < self.log_start {
                    return LogPosition::unplaced(self.log_start);
                }
                LogPosition {
                    offset: open.first_offset,
                    place: open.place,
                }
            }
            _ => self.high_watermark,
        }
    }

    pub(crate) fn assign_epoch(&mut self, epoch: i32, start_offset: i64) {
        let is_new = epoch >= 0 && self.epochs.assign(epoch, start_offset);
        if is_new || self.epochs_unwritten {
            self.write_epochs();
        }
    }

    /// While the log is held nothing is written: its copy gets the epochs, or else the next batch
    /// brings them.
    pub(crate) fn write_epochs(&mut self) {
        self.epochs_unwritten = self.is_held();
        if self.epochs_unwritten {
            return;
        }
        let content = self.epochs.encode().into_bytes();
        self.tail
            .push_file(names::LEADER_EPOCH_CHECKPOINT.to_owned(), content);
    }

    /// Whether a kill would lose bytes that wait to be written.
    #[inline]
    pub(crate) fn has_heap_bytes(&self) -> bool {
        self.tail.heap_bytes() > 0 || self.in_flight.is_some_and(|job| job.heap_bytes > 0)
    }

    pub(crate) fn set_durable_end(&mut self, end: LogPosition) {
        self.durable_end = end;
        if let Some(place) = end.place {
            self.recent.push(end.offset, place);
        }
    }

    /// Nothing is queued and no write is under way, so the next addition must wake the writer.
    #[inline]
    pub(crate) fn is_idle(&self) -> bool {
        self.tail.is_empty() && self.in_flight.is_none()
    }
}

impl Log {
    /// Whether a write is queued or under way.
    pub fn has_unwritten(&self) -> bool {
        !self.is_idle()
    }

    /// Batches that are not in files yet.
    pub fn unwritten(&self) -> Unwritten {
        let in_flight = self.in_flight.unwrap_or_default();
        let waiting = self.tail.unwritten();
        Unwritten {
            bytes: waiting.bytes + in_flight.bytes,
            heap_bytes: waiting.heap_bytes + in_flight.heap_bytes,
            snapshot_bytes: waiting.snapshot_bytes + in_flight.snapshot_bytes,
        }
    }

    /// Bytes of batches that no write job has taken.
    pub fn waiting_bytes(&self) -> usize {
        self.tail.batch_bytes()
    }

    /// Whether something is queued and no write is under way.
    pub fn is_ready_to_write(&self) -> bool {
        !self.tail.is_empty() && self.in_flight.is_none()
    }

    /// Whether a write is under way.
    pub fn is_being_written(&self) -> bool {
        self.in_flight.is_some()
    }

    /// Whether everything queued may wait: it is in the block cache and acknowledged.
    pub fn may_write_later(&self) -> bool {
        !self.truncating && !self.tail.has_other_steps()
    }

    /// Takes the whole tail for the writer. `None` if nothing is queued, a job is under way, or the
    /// log is poisoned and not sealed.
    pub fn take_writes(&mut self) -> Option<WriteJob> {
        self.take_unwritten(false)
    }

    /// The same, but a partial last page stays if it is better written later.
    pub fn take_whole_pages(&mut self) -> Option<WriteJob> {
        self.take_unwritten(true)
    }

    fn take_unwritten(&mut self, may_hold_back: bool) -> Option<WriteJob> {
        if self.tail.is_empty() || self.in_flight.is_some() || !self.writes() {
            return None;
        }
        let unsynced_records = self.end.offset - self.sync.recovery_point;
        let is_sync_due = unsynced_records >= self.config.flush_messages;
        let held = match may_hold_back && !is_sync_due && !self.truncating {
            true => self.tail.hold_back_page(self.env.direct_min_bytes()),
            false => None,
        };
        let index_bytes = self.active.indexes.untaken_bytes();
        let lags = self.active.bytes_behind_index() >= INDEX_BEHIND_BYTES;
        if index_bytes >= INDEX_BATCH_BYTES || index_bytes > 0 && lags {
            self.tail.push_index_entries(&mut self.active);
        }
        self.save_producers();
        let end = match &held {
            None => self.end,
            // For a part the end of its last batch is unknown, but not the segment that it begins.
            Some(_) if self.tail.closes_segment() => {
                let base_offset = self.active.base_offset();
                LogPosition::at(base_offset, base_offset, 0)
            }
            Some(_) => self.written,
        };
        let tail = std::mem::replace(&mut self.tail, held.unwrap_or_default());
        self.in_flight = Some(tail.unwritten());
        let sync = is_sync_due.then(|| {
            self.sync.note_files(&tail);
            self.sync_job(self.sync.segments.clone(), self.end.offset)
        });
        Some(WriteJob {
            env: self.env.clone(),
            folder: self.folder.clone(),
            tail,
            done: 0,
            end,
            sync,
        })
    }

    /// Whether the job is one of this log, not of one whose place it took.
    pub fn is_written_by(&self, job: &WriteJob) -> bool {
        Arc::ptr_eq(&self.folder, &job.folder)
    }

    /// Takes an executed job back and moves the durable end offset. After an error the log is
    /// poisoned, and the owner should poison the directory.
    pub fn complete_writes(&mut self, job: WriteJob, result: std::io::Result<()>) -> Completed {
        self.in_flight = None;
        if let Err(error) = result {
            self.poison(format!(
                "writing {} failed: {error}",
                self.folder.path().display()
            ));
            return Completed::default();
        }
        let durable_end = self.durable_end_after(job.end);
        let completed = Completed {
            durable_end_moved: durable_end.offset > self.durable_end.offset,
            written_bytes: job.size_bytes(),
            readable_bytes: job.size_bytes() + self.tail.batch_bytes(),
            more: !self.tail.is_empty(),
            rolled: job.tail.closes_segment(),
        };
        self.written = job.end;
        if completed.durable_end_moved {
            self.set_durable_end(durable_end);
        }
        let WriteJob { tail, sync, .. } = job;
        match sync {
            Some(sync) => self.synced(&sync),
            None => self.sync.note_files(&tail),
        }
        if completed.rolled {
            self.put_away_aborted();
        }
        completed
    }

    /// Saves the producer state if due and drops the previous snapshot within the segment.
    fn save_producers(&mut self) {
        let every = match self.producers.len() {
            0 => SNAPSHOT_EVERY_BYTES_WITHOUT,
            count => SNAPSHOT_EVERY_BYTES.max(count * SNAPSHOT_EVERY_BYTES_A_PRODUCER),
        };
        if self.unsaved_bytes < every {
            return;
        }
        let end = self.end.offset;
        self.queue_snapshot(end);
        if let Some(before) = self.spare_snapshot.replace(end)
            && before != end
            && self.snapshots.remove(&before)
        {
            self.tail.push_removal(names::snapshot_name(before));
        }
    }

    /// The durable end offset once everything before `written` is in the files. Moves bytes that
    /// gathered on the heap to the block cache if it has room: under steady load the heap would
    /// never be empty.
    fn durable_end_after(&mut self, written: LogPosition) -> LogPosition {
        let may_go_behind = may_go_behind(&self.config);
        let cache = self.cache.as_mut().filter(|_| may_go_behind);
        if cache.is_some_and(|cache| self.tail.move_to_cache(cache)) {
            self.end
        } else {
            written
        }
    }
}
