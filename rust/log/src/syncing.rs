//! Hands out the syncer's jobs and takes them back.

use std::sync::Arc;

use crate::disk::may_pass;
use crate::log::Log;
use crate::segment::Segment;
use crate::sync_job::SyncJob;
use crate::sync_state::add_name;

/// Each costs up to four syncs, so a turn stays well below a second on a busy disk.
const CLOSED_SEGMENTS_A_SYNC_MAX: usize = 16;

/// A roll replaces at most two files, so these keep up with the segments.
const FILES_A_SYNC_MAX: usize = 3 * CLOSED_SEGMENTS_A_SYNC_MAX;

/// How much [`Log::take_sync`] makes durable.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SyncScope {
    /// Segments that take no more batches: after each roll.
    ClosedSegments,
    /// Everything written: `flush.ms`, shutdown.
    Written,
}

impl Log {
    /// The offset below which recovery examines nothing, for the checkpoint. It lies within the
    /// first segment with anything unsynced, even an index. So it equals a segment's base offset
    /// only if everything before is durable.
    pub fn recovery_point(&self) -> i64 {
        let synced = self.sync.recovery_point;
        let first = self
            .sync
            .segments
            .first()
            .unwrap_or(&self.active.segment)
            .base_offset();
        let after = self.segment_index(first) + 1;
        let end = self
            .segments
            .get(after)
            .map_or(synced, |next| next.base_offset());
        if synced > first {
            synced.min(end) - 1
        } else {
            synced
        }
    }

    /// Whether everything is durable.
    pub fn is_synced(&self) -> bool {
        self.sync.segments.is_empty() && self.sync.recovery_point >= self.end.offset
    }

    /// Batches below it were synced.
    pub fn synced_end(&self) -> i64 {
        self.sync.recovery_point
    }

    /// What must be synced; `None` if nothing, if an earlier job is under way, or if the log is
    /// poisoned and not sealed. Takes only the first few of many closed segments, so that retention, other logs
    /// and the shutdown need not wait for all; [`Log::complete_sync`] tells whether there are more.
    pub fn take_sync(&mut self, scope: SyncScope) -> Option<SyncJob> {
        // A truncation is about to change what must be synced; a log that gives way is about to go.
        if self.sync.in_flight || self.truncating || self.leave.is_held() || !self.writes() {
            return None;
        }
        // First: what is closed meanwhile is among the segments, but not below the end.
        let closed_end = self.closed_end();
        let is_due = |segment: &&Arc<Segment>| match scope {
            SyncScope::ClosedSegments => segment.is_closed(),
            SyncScope::Written => segment.written() > 0 || segment.is_closed(),
        };
        let mut segments: Vec<_> = self.sync.segments.iter().filter(is_due).cloned().collect();
        let end = match scope {
            SyncScope::ClosedSegments if segments.len() > CLOSED_SEGMENTS_A_SYNC_MAX => {
                let rest = segments.split_off(CLOSED_SEGMENTS_A_SYNC_MAX);
                rest[0].base_offset()
            }
            SyncScope::ClosedSegments => closed_end,
            SyncScope::Written => self.written.offset,
        };
        let end = end.min(self.written.offset);
        // A sync during the write that closed segments has synced them, with an earlier end.
        let is_behind = end > self.sync.recovery_point;
        if segments.is_empty() && self.sync.files.is_empty() && !is_behind {
            return None;
        }
        self.sync.in_flight = true;
        let mut later = Vec::new();
        if scope == SyncScope::ClosedSegments && self.sync.files.len() > FILES_A_SYNC_MAX {
            later = self.sync.files.split_off(FILES_A_SYNC_MAX);
        }
        let job = self.sync_job(segments, end);
        self.sync.files = later;
        Some(job)
    }

    /// The end of the closed segments, as far as their write has been taken back. They are closed in
    /// order.
    fn closed_end(&self) -> i64 {
        let segments = self.segments.iter().rev();
        let open = segments.take_while(|segment| !segment.is_closed()).last();
        let end = open.map_or(self.written.offset, |segment| segment.base_offset());
        end.min(self.written.offset)
    }

    /// Takes an executed job back and moves the recovery point; true if closed segments are left, or
    /// the recovery point is behind them, so that the syncer should come again. After an error the
    /// log is poisoned, and the owner should poison the directory. An exception is an error that
    /// [`crate::disk::may_pass`]: nothing counts as synced, and the owner retries later.
    pub fn complete_sync(&mut self, job: SyncJob, result: std::io::Result<()>) -> bool {
        self.sync.in_flight = false;
        if result.as_ref().is_err_and(may_pass) {
            self.give_back(job);
            return false;
        }
        if let Err(error) = result {
            self.poison(format!(
                "syncing {} failed: {error}",
                self.folder.path().display()
            ));
            return false;
        }
        self.synced(&job);
        let is_left = self.sync.segments.iter().any(|segment| segment.is_closed());
        is_left || self.closed_end() > self.sync.recovery_point
    }

    /// A sync could not be carried out, but did not fail.
    fn give_back(&mut self, job: SyncJob) {
        self.sync.new_folder |= job.new_folder;
        for name in job.files {
            add_name(&mut self.sync.files, &name);
        }
        self.sync.job_ended();
    }

    /// When `flush.ms` next requires a sync, or slightly earlier; `None` if never, as for a log that
    /// writes nothing any more.
    pub fn next_flush_due_ms(&self) -> Option<i64> {
        if self.config.flush_ms == i64::MAX || !self.writes() {
            return None;
        }
        let oldest_ms = self.sync.ages.oldest_ms()?;
        Some(oldest_ms.saturating_add(self.config.flush_ms))
    }

    pub(crate) fn sync_job(&mut self, segments: Vec<Arc<Segment>>, end: i64) -> SyncJob {
        let (files, new_folder) = self.sync.take_rest();
        SyncJob {
            env: self.env.clone(),
            folder: self.folder.clone(),
            segments,
            closed: Vec::new(),
            files,
            end,
            new_folder,
        }
    }

    pub(crate) fn synced(&mut self, job: &SyncJob) {
        self.sync.job_ended();
        self.sync.recovery_point = self.sync.recovery_point.max(job.end);
        let (synced, end) = (self.sync.recovery_point, self.end.offset);
        self.sync.ages.forget_below(synced, end);
        // A segment is done if it was closed before its files were synced; one closed since has
        // unsynced bytes and index entries. The active one stays listed while more is on its way.
        let active = &self.active.segment;
        self.sync.segments.retain(|segment| {
            let is_closed = job.has_closed(segment);
            if is_closed {
                segment.set_pinned(false);
            }
            !(is_closed || job.end >= end && Arc::ptr_eq(segment, active))
        });
        if self.sync.segments.is_empty() {
            self.sync.segments.shrink_to_fit();
        }
    }
}
