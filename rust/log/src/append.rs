//! Appends one validated batch.

use std::sync::Arc;

use pyrklog_wire::ErrorCode;
use pyrklog_wire::batch::{self, NO_TIMESTAMP};

use crate::batch_info::BatchInfo;
use crate::cache::may_go_behind;
use crate::log::Log;
use crate::names::snapshot_name;
use crate::position::{LogPosition, SegmentPosition};
use crate::producer_state::{Check, Origin, ProducerError};
use crate::scan::BatchFacts;
use crate::segment::{ActiveSegment, Crowd, Segment, fits_relative};
use crate::transaction_index::{SegmentAborted, TransactionIndex};

/// A log with this many unsynced segments, whose files are open, rolls none because of age.
/// Otherwise batches with leaping timestamps would roll one each. The directory has a limit too
/// ([`LogEnv::has_many_unsynced`]), beyond which even small segments grow.
const UNSYNCED_SEGMENTS_MAX: usize = 16;

/// The result of an append.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Appended {
    /// Offset of the first record; for a duplicate that of the original.
    pub base_offset: i64,
    /// Offset of the last record. The batch may be acknowledged when the durable end offset is
    /// above it. This holds for a duplicate as well: its original may still be unwritten.
    pub last_offset: i64,
    /// The broker's timestamp under LogAppendTime, else -1; the original's for a duplicate.
    pub log_append_time_ms: i64,
    /// The log start offset.
    pub log_start_offset: i64,
    /// The producer had sent it before; nothing was appended.
    pub duplicate: bool,
    /// Bytes added to the tail; 0 for a duplicate.
    pub appended_bytes: usize,
    /// The log was idle: queue it at its directory's writer.
    pub wake_writer: bool,
    /// It moved the durable end offset past itself: it is in the block cache and may be written
    /// later. False for a duplicate.
    pub durable_end_moved: bool,
}

/// Why a batch was not appended; nothing changed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[allow(missing_docs)] // The messages name variants and fields.
pub enum AppendError {
    /// A write or sync of this log or its directory failed earlier.
    #[error("{0}")]
    Poisoned(String),
    #[error("the disk of the log directory is full")]
    ReadOnly,
    #[error("the log is being truncated")]
    Truncating,
    #[error("the log gives way to its copy in another log directory")]
    Leaving,
    #[error(transparent)]
    Producer(#[from] ProducerError),
    #[error("a batch with base offset {base_offset} cannot follow the log end offset {end_offset}")]
    NotBehindEnd { base_offset: i64, end_offset: i64 },
    #[error("a gap needs another segment, and too many are not synced yet")]
    Crowded,
}

impl AppendError {
    /// The protocol's error code.
    pub fn code(&self) -> ErrorCode {
        match self {
            Self::Poisoned(_) | Self::ReadOnly => ErrorCode::KAFKA_STORAGE_ERROR,
            Self::Truncating | Self::Leaving => ErrorCode::NOT_LEADER_OR_FOLLOWER,
            Self::Producer(error) => error.code(),
            Self::NotBehindEnd { .. } => ErrorCode::UNKNOWN_SERVER_ERROR,
            Self::Crowded => ErrorCode::THROTTLING_QUOTA_EXCEEDED,
        }
    }
}

impl Log {
    /// Appends a marker of transaction version 2. Its epoch is that of the producer's next
    /// transaction, which it does not end: the guard of that one stays.
    ///
    /// # Errors
    /// [`AppendError`], also where a transaction of this epoch is open.
    pub fn append_bumped_marker(
        &mut self,
        marker: &mut [u8],
        info: &BatchInfo,
        leader_epoch: i32,
        now_ms: i64,
    ) -> Result<Appended, AppendError> {
        self.producers.check_bumped_epoch(info)?;
        let producer = (info.producer_id, info.producer_epoch);
        let guards = self.producers.take_guards(producer);
        let appended = self.append(marker, info, Origin::Coordinator, leader_epoch, now_ms);
        self.producers.restore_guards(guards);
        appended
    }

    /// Appends one validated batch to the tail in memory.
    ///
    /// For a leader (`Origin::Client`, `Origin::Coordinator`) sets offsets and `leader_epoch` in
    /// `batch`; both lie outside its CRC. A replicated batch keeps its own, a copied one
    /// (`Origin::Copy`) its offsets. `info` comes from
    /// validation; `batch` is exactly one batch. Takes constant time, without I/O; with a block cache
    /// on average without allocation.
    ///
    /// # Errors
    /// [`AppendError`]; the log is unchanged.
    pub fn append(
        &mut self,
        batch: &mut [u8],
        info: &BatchInfo,
        origin: Origin,
        leader_epoch: i32,
        now_ms: i64,
    ) -> Result<Appended, AppendError> {
        self.check_open()?;
        if let Check::Duplicate(original) = self.producers.check(info, origin)? {
            return Ok(Appended {
                base_offset: original.base_offset,
                last_offset: original.last_offset,
                log_append_time_ms: original.timestamp,
                log_start_offset: self.log_start,
                duplicate: true,
                appended_bytes: 0,
                wake_writer: false,
                durable_end_moved: false,
            });
        }
        let wake_writer = self.is_idle();
        let base_offset = self.place_batch(batch, info, origin, leader_epoch)?;
        let facts = BatchFacts {
            size: info.total_len() as u32,
            last_offset: base_offset + i64::from(info.last_offset_delta),
            max_timestamp: info.max_timestamp,
        };
        let crowd = self.crowd();
        if self.active.must_roll(facts, &self.config, now_ms, crowd) {
            // A gap lies within a segment where one can span it, since one between segments looks
            // like lost records when the log is opened.
            let end_offset = self.end.offset;
            let spans = fits_relative(facts.last_offset, end_offset);
            self.roll(if spans { end_offset } else { base_offset }, now_ms);
        }
        if let Some(cache) = &mut self.cache {
            cache.set_transient(origin == Origin::Replication);
            if info.has_producer() {
                cache.note_producer();
            }
        }
        let (place, durable_end_moved) = self.push_to_tail(batch, facts, now_ms);
        self.update_producer(info, base_offset, place);
        let position = self.active.size;
        self.end = LogPosition::at(facts.last_offset + 1, place.segment_base, position);
        if !info.is_control() {
            self.active.data_end = self.end.offset;
        }
        if durable_end_moved {
            self.set_durable_end(self.end);
        }
        Ok(Appended {
            base_offset,
            last_offset: facts.last_offset,
            log_append_time_ms: if info.is_log_append_time() {
                info.max_timestamp
            } else {
                NO_TIMESTAMP
            },
            log_start_offset: self.log_start,
            duplicate: false,
            appended_bytes: batch.len(),
            wake_writer,
            durable_end_moved,
        })
    }

    /// Whether it takes records at all.
    #[inline]
    fn check_open(&self) -> Result<(), AppendError> {
        if let Some(reason) = self.poisoned() {
            return Err(AppendError::Poisoned(reason.to_owned()));
        }
        if self.env.is_read_only() {
            return Err(AppendError::ReadOnly);
        }
        if self.truncating {
            return Err(AppendError::Truncating);
        }
        match self.leave.is_held() {
            true => Err(AppendError::Leaving),
            false => Ok(()),
        }
    }

    fn crowd(&self) -> Crowd {
        let is_crowded = self.env.has_many_unsynced();
        Crowd {
            may_age: is_crowded || self.sync.segments.len() >= UNSYNCED_SEGMENTS_MAX,
            may_grow: is_crowded,
        }
    }

    /// Returns the batch's base offset. A leader also patches offset and epoch.
    fn place_batch(
        &mut self,
        batch: &mut [u8],
        info: &BatchInfo,
        origin: Origin,
        leader_epoch: i32,
    ) -> Result<i64, AppendError> {
        if origin == Origin::Replication {
            let base_offset = self.behind_end(info)?;
            let start = self.config.epoch_start(base_offset, self.end.offset);
            self.assign_epoch(info.partition_leader_epoch, start);
            return Ok(base_offset);
        }
        let base_offset = match origin {
            Origin::Copy => self.place_of_copy(info)?,
            _ => self.end.offset,
        };
        batch::set_base_offset(batch, base_offset);
        batch::set_partition_leader_epoch(batch, leader_epoch);
        self.assign_epoch(leader_epoch, self.end.offset);
        Ok(base_offset)
    }

    /// The base offset that a client's batch brings. A gap that no segment can span makes another
    /// one: a client that makes many waits for the syncer.
    fn place_of_copy(&self, info: &BatchInfo) -> Result<i64, AppendError> {
        let base_offset = self.behind_end(info)?;
        let last_offset = base_offset + i64::from(info.last_offset_delta);
        match self.active.spans(last_offset) || !self.crowd().may_age {
            true => Ok(base_offset),
            false => Err(AppendError::Crowded),
        }
    }

    /// The base offset that a batch brings.
    fn behind_end(&self, info: &BatchInfo) -> Result<i64, AppendError> {
        let (base_offset, end_offset) = (info.base_offset, self.end.offset);
        match base_offset >= end_offset {
            true => Ok(base_offset),
            false => Err(AppendError::NotBehindEnd {
                base_offset,
                end_offset,
            }),
        }
    }

    /// Returns the batch's place, and whether it went to the block cache.
    fn push_to_tail(
        &mut self,
        batch: &[u8],
        facts: BatchFacts,
        now_ms: i64,
    ) -> (SegmentPosition, bool) {
        let position = self.active.size;
        let is_cached = self.append_to_cache(position, batch, now_ms);
        if is_cached {
            let end = position + facts.size;
            self.active.segment.set_size(u64::from(end));
            self.tail.push_cached(&self.active.segment, position, end);
        } else {
            self.tail.push_batch(&self.active.segment, position, batch);
        }
        self.note_unsynced_active();
        let offset = self.end.offset;
        self.sync.ages.note(offset, now_ms, self.config.flush_ms);
        self.active
            .appended(facts, self.config.index_interval_bytes);
        let segment_base = self.active.base_offset();
        let place = SegmentPosition {
            segment_base,
            position,
        };
        (place, is_cached)
    }

    /// While heap bytes are unwritten, later batches go to the heap too: acknowledging a batch
    /// behind bytes that a kill loses would break the log.
    fn append_to_cache(&mut self, position: u32, batch: &[u8], now_ms: i64) -> bool {
        let has_heap_bytes = self.has_heap_bytes();
        let Some(cache) = &mut self.cache else {
            return false;
        };
        cache.set_now(now_ms);
        !has_heap_bytes
            && may_go_behind(&self.config)
            && cache.append(&self.active.segment, position, batch)
    }

    fn note_unsynced_active(&mut self) {
        let segment = &self.active.segment;
        let last = self.sync.segments.last();
        if !last.is_some_and(|last| Arc::ptr_eq(last, segment)) {
            self.sync.segments.push(segment.clone());
        }
    }

    fn update_producer(&mut self, info: &BatchInfo, base_offset: i64, place: SegmentPosition) {
        self.unsaved_bytes += info.total_len();
        let Some(aborted) = self.producers.update(info, base_offset, Some(place)) else {
            return;
        };
        let segment = &self.active.segment;
        let base_offset = segment.base_offset();
        let kept = || SegmentAborted::Kept(TransactionIndex::new(base_offset));
        let index = self.aborted.entry(base_offset).or_insert_with(kept);
        let SegmentAborted::Kept(index) = index else {
            return;
        };
        let position = index.size_bytes();
        if let Ok(entry) = index.append(aborted) {
            self.tail.push_entries(
                segment,
                crate::names::FileKind::TransactionIndex,
                position,
                &entry,
            );
        }
    }

    /// Closes the active segment and starts the next one at `base_offset`: the log end, or beyond
    /// it for a replica. The writer completes the old segment's files, saves the producer state,
    /// and creates the new files, in this order.
    pub(crate) fn roll(&mut self, base_offset: i64, now_ms: i64) {
        // Its indexes get their last entries now, even if its batches were synced before.
        self.note_unsynced_active();
        let segment = Segment::new(&self.env, &self.folder, base_offset, 0, false);
        let mut next = ActiveSegment::new(segment.clone(), &self.config, self.jitter_seed, now_ms);
        next.data_end = self.active.data_end;
        let mut closed = std::mem::replace(&mut self.active, next);
        closed.indexes.add_largest(true);
        self.tail.push_close(closed);
        self.queue_snapshot(base_offset);
        // A snapshot at this offset now belongs to the new segment.
        self.spare_snapshot = self.spare_snapshot.filter(|spare| *spare != base_offset);
        self.tail.push_create(&segment);
        Arc::make_mut(&mut self.segments).push(segment);
        self.end = LogPosition::at(self.end.offset, base_offset, 0);
    }

    /// Saves the producer state as of the log end.
    pub(crate) fn queue_snapshot(&mut self, offset: i64) {
        let entries = self.producers.entries_unsorted();
        self.tail.push_snapshot(snapshot_name(offset), entries);
        self.snapshots.insert(offset);
        self.unsaved_bytes = 0;
    }
}
