//! Deletes from the log's start: by time, by size, and below the log start offset.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use crate::env::LogEnv;
use crate::folder::Folder;
use crate::log::Log;
use crate::read::ReadError;
use crate::segment::Segment;

/// The segments whose age retention needs.
#[derive(Debug)]
pub struct RetentionCandidates {
    segments: Vec<Arc<Segment>>,
    expired_before_ms: i64,
}

impl RetentionCandidates {
    /// Reads the newest timestamps of the oldest segments up to the first that is not expired, each
    /// once in the segment's life. The caller must hold no lock.
    ///
    /// # Errors
    /// A disk error.
    pub fn load(&self) -> io::Result<()> {
        for segment in &self.segments {
            if segment.load_newest_ms()? >= self.expired_before_ms {
                break;
            }
        }
        Ok(())
    }
}

/// The outcome of retention.
#[derive(Debug, Default)]
pub struct Retention {
    /// Segments taken out of the log: `rename` them now and `delete` them later.
    pub removed: Option<RemovedSegments>,
    /// The log was idle and something was queued for the writer.
    pub wake_writer: bool,
    /// The active segment was rolled because all of it has expired: plan again once it is written.
    pub again: bool,
}

/// Segments that were taken out of the log.
#[derive(Debug)]
pub struct RemovedSegments {
    env: Arc<LogEnv>,
    folder: Arc<Folder>,
    segments: Vec<Arc<Segment>>,
    /// The log waits for [`RemovedSegments::rename`] before it reuses the names.
    retiring: Option<Retiring>,
    /// When [`RemovedSegments::delete`] is due (`file.delete.delay.ms`).
    pub due_ms: i64,
}

/// Counted while it lives.
#[derive(Debug)]
pub(crate) struct Retiring(Arc<AtomicUsize>);

impl Retiring {
    pub fn new(count: &Arc<AtomicUsize>) -> Retiring {
        count.fetch_add(1, Ordering::AcqRel);
        Retiring(Arc::clone(count))
    }
}

impl Drop for Retiring {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::AcqRel);
    }
}

impl Log {
    /// Whether removed segments still have segment names, which a restarted or reopened log might
    /// use.
    pub fn is_retiring(&self) -> bool {
        self.retiring.load(Ordering::Acquire) > 0
    }

    /// The segments that retention examines next. Memory only.
    pub fn retention_candidates(&self, now_ms: i64) -> RetentionCandidates {
        let closed = &self.segments[..self.segments.len() - 1];
        let by_time = self.config.cleanup_delete && self.config.retention_ms >= 0;
        RetentionCandidates {
            segments: if by_time { closed.to_vec() } else { Vec::new() },
            expired_before_ms: now_ms.saturating_sub(self.config.retention_ms.max(0)),
        }
    }

    /// Takes segments out of the log that Kafka's rules no longer keep: below the high watermark,
    /// oldest first, and of known age ([`RetentionCandidates::load`]). Memory only.
    pub fn plan_retention(&mut self, now_ms: i64) -> Retention {
        let waits = self.truncating || self.is_swapping || self.leave.is_held();
        if waits || self.poisoned().is_some() {
            return Retention::default();
        }
        let wake_writer = self.is_idle();
        let count = self.removable_segments(now_ms);
        let again = count == self.segments.len();
        if again {
            self.roll(self.end.offset, now_ms);
        }
        // A segment that was just rolled is incomplete in its files.
        let closed = self.segments[..count]
            .iter()
            .take_while(|segment| segment.is_closed())
            .count();
        let removed = (closed > 0).then(|| self.remove_oldest(closed, now_ms));
        Retention {
            removed,
            wake_writer: wake_writer && !self.tail.is_empty(),
            again,
        }
    }

    /// Number of segments, from the oldest on, that are no longer kept; includes the active one if
    /// all are.
    fn removable_segments(&self, now_ms: i64) -> usize {
        let config = &self.config;
        // As in Kafka an empty segment goes as soon as the log has `retention.bytes`.
        let mut excess_bytes = match u64::try_from(config.retention_bytes) {
            Ok(kept) if config.cleanup_delete => self.size_bytes().checked_sub(kept),
            _ => None,
        };
        let mut count = 0;
        for (i, segment) in self.segments.iter().enumerate() {
            let next = self.segments.get(i + 1);
            let end = next.map_or(self.end.offset, |next| next.base_offset());
            let size = next.map_or(u64::from(self.active.size), |_| segment.size());
            if end > self.high_watermark.offset || (next.is_none() && size == 0) {
                break;
            }
            let newest_ms = match next {
                Some(_) => segment.newest_ms(),
                None => Some(self.active.newest_ms()),
            };
            let expired = config.cleanup_delete
                && config.retention_ms >= 0
                && newest_ms.is_some_and(|ms| now_ms.saturating_sub(ms) > config.retention_ms);
            let below_start = next.is_some_and(|next| next.base_offset() <= self.log_start);
            let oversized = excess_bytes.is_some_and(|excess| size <= excess);
            if !(expired || below_start || oversized) {
                break;
            }
            excess_bytes = excess_bytes.and_then(|excess| excess.checked_sub(size));
            count += 1;
        }
        count
    }

    fn remove_oldest(&mut self, count: usize, now_ms: i64) -> RemovedSegments {
        let segments: Vec<_> = Arc::make_mut(&mut self.segments).drain(..count).collect();
        self.is_reshaped = true;
        for segment in &segments {
            self.aborted.remove(&segment.base_offset());
            self.snapshots.remove(&segment.base_offset());
        }
        let is_kept = |kept: &Arc<Segment>| !segments.iter().any(|s| Arc::ptr_eq(s, kept));
        self.sync.segments.retain(is_kept);
        let start = self.segments[0].base_offset();
        self.set_log_start(start);
        RemovedSegments {
            env: self.env.clone(),
            folder: self.folder.clone(),
            segments,
            retiring: Some(Retiring::new(&self.retiring)),
            due_ms: now_ms.saturating_add(self.config.file_delete_delay_ms),
        }
    }

    /// Raises the log start offset (DeleteRecords) and returns it. Records below are gone for
    /// readers at once; the next retention removes them from the disk. -1 means the high watermark.
    /// Queue the log at its writer if [`Log::has_unwritten`].
    ///
    /// # Errors
    /// `OffsetOutOfRange` above the high watermark or below -1, `Poisoned`.
    pub fn advance_log_start(&mut self, offset: i64) -> Result<i64, ReadError> {
        if let Some(reason) = self.poisoned() {
            return Err(ReadError::Poisoned(reason.to_owned()));
        }
        let target = if offset == -1 {
            self.high_watermark.offset
        } else {
            offset
        };
        if target < 0 || target > self.high_watermark.offset {
            let (start, end) = (self.log_start, self.high_watermark.offset);
            return Err(ReadError::OffsetOutOfRange { offset, start, end });
        }
        self.set_log_start(target);
        Ok(self.log_start)
    }

    pub(crate) fn set_log_start(&mut self, offset: i64) {
        if offset <= self.log_start {
            return;
        }
        self.log_start = offset;
        self.producers.on_log_start(offset);
        if self.epochs.truncate_from_start(offset) {
            self.write_epochs();
        }
    }
}

impl RemovedSegments {
    /// Segments whose files have their `.deleted` names already.
    pub(crate) fn renamed(
        env: Arc<LogEnv>,
        folder: Arc<Folder>,
        segments: Vec<Arc<Segment>>,
        due_ms: i64,
    ) -> Self {
        Self {
            env,
            folder,
            segments,
            retiring: None,
            due_ms,
        }
    }

    /// Bytes that deletion will free.
    pub fn size_bytes(&self) -> u64 {
        self.segments.iter().map(|segment| segment.size()).sum()
    }

    /// Gives the files unique `.deleted` names, so that no later start takes them for data and no
    /// successor segment for them. Readers that hold a segment continue. Call once, at once, and
    /// without a lock; only then may the log be truncated, or closed and reopened.
    ///
    /// # Errors
    /// A disk error. [`RemovedSegments::delete`] never deletes files that kept their names: the
    /// next start finds them.
    pub fn rename(&mut self) -> io::Result<()> {
        let renamed = self.folder.in_place(|| self.rename_files());
        self.retiring = None;
        renamed
    }

    fn rename_files(&self) -> io::Result<()> {
        // The `.log` first, and durably: a segment that a power loss brings back is then whole.
        // Without its transaction index it would show aborted transactions, and nothing would tell
        // that the index is missing.
        for segment in &self.segments {
            segment.retire_log()?;
        }
        self.env.disk().sync_dir(&self.folder.path())?;
        for segment in &self.segments {
            segment.retire_others(false)?;
        }
        Ok(())
    }

    /// Removes the renamed files. The caller must hold no lock.
    ///
    /// # Errors
    /// A disk error.
    pub fn delete(&self) -> io::Result<()> {
        for segment in &self.segments {
            segment.remove_retired()?;
        }
        Ok(())
    }
}
