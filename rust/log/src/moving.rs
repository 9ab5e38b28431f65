//! A log gives way to its copy in another log directory (`moving-replicas.md`).
//!
//! The copy is a log of its own: it gets whole batches of the *current* one, which goes on serving.
//! Only its last piece is copied while the current log takes no records. Then the copy inherits what
//! is not in records: producers whose records were deleted, leader epochs without records, the high
//! watermark.

use std::io;

use pyrklog_arena::PartitionName;

use crate::cache::LogCache;
use crate::disk;
use crate::leave::{Hold, Leave, MoveId};
use crate::log::Log;
use crate::names::snapshot_name;
use crate::position::LogPosition;
use crate::sync_state::add_name;
use crate::syncing::SyncScope;

impl Log {
    /// A move begins to copy the log, in place of any other: no cleaning of it begins or goes on.
    pub fn begin_leaving(&mut self, id: MoveId) {
        self.leave = Leave {
            copied_by: id,
            cut_to: None,
            hold: self.leave.hold,
        };
    }

    /// The move is over, unless another has begun.
    pub fn end_leaving(&mut self, id: MoveId) {
        if self.leave.copied_by == id {
            self.leave = Leave {
                hold: self.leave.hold,
                ..Leave::default()
            };
        }
    }

    /// Whether a move copies it.
    pub fn is_leaving(&self) -> bool {
        self.leave.copied_by != 0
    }

    /// Whether this move copies it.
    pub fn is_copied_by(&self, id: MoveId) -> bool {
        self.leave.copied_by == id
    }

    /// The lowest offset that the log was cut to since the last call.
    pub fn take_cut(&mut self) -> Option<i64> {
        self.leave.cut_to.take()
    }

    /// Whether it is being cut: its files may be read in any state.
    pub fn is_truncating(&self) -> bool {
        self.truncating
    }

    /// Whether a cleaned segment takes the place of others just now: what is read next may lack what
    /// was read before. None does from the end of that one on while a move copies the log.
    pub fn is_being_cleaned(&self) -> bool {
        self.is_swapping
    }

    /// Refuses records from now on, as while it is cut; begins no sync and no retention. Once it is
    /// at rest nothing is written, even if its log start moves.
    pub fn hold(&mut self) {
        self.leave.hold = Hold::Held;
    }

    /// Has it stand still until [`Log::release`], whatever that takes. False if it was released, or
    /// is not at rest.
    pub fn hold_on(&mut self) -> bool {
        let stands_still = self.is_held() && self.is_at_rest();
        if stands_still {
            self.leave.hold = Hold::Final;
        }
        stands_still
    }

    /// Takes records again.
    pub fn release(&mut self) {
        self.leave.hold = Hold::None;
    }

    /// The same, unless its copy is taking its place just now.
    pub fn release_in_time(&mut self) {
        if self.leave.hold != Hold::Final {
            self.release();
        }
    }

    /// Whether it takes no records, for its copy to take its place.
    pub fn is_held(&self) -> bool {
        self.leave.is_held()
    }

    /// Whether nothing is being done to its files, and all records are in them.
    pub fn is_at_rest(&self) -> bool {
        !self.has_unwritten() && !self.is_being_changed()
    }

    /// Whether something that may take long is done to its files: a sync, a cleaning, a cut, a
    /// removal.
    pub fn is_being_changed(&self) -> bool {
        self.sync.in_flight || self.truncating || self.is_swapping || self.is_retiring()
    }

    /// Bytes of the batches from `offset` on, or somewhat more. Memory only.
    pub fn bytes_from(&self, offset: i64) -> u64 {
        let active = self.segments.len() - 1;
        let first = self.segment_index(offset);
        let closed: u64 = self.segments[first..active].iter().map(|s| s.size()).sum();
        let before = match first == active {
            true => self.active.indexes.offsets.lookup(offset).position,
            false => 0,
        };
        closed + u64::from(self.active.size.saturating_sub(before))
    }

    /// Whether it has no record.
    pub fn is_empty(&self) -> bool {
        self.log_start == self.end.offset
    }

    /// A copy that ends before `offset`, where no batch follows in the current log up to there:
    /// it goes on at `offset`, with a segment of its own.
    pub fn skip_to(&mut self, offset: i64, now_ms: i64) {
        if offset > self.end.offset {
            self.roll(offset, now_ms);
            self.end = LogPosition::at(offset, offset, 0);
        }
    }

    /// Takes over what the current log has besides records. Both end at the same offset.
    pub fn inherit(&mut self, current: &Log) {
        self.producers = current.producers.clone().without_places();
        if self.epochs != current.epochs {
            self.epochs = current.epochs.clone();
            self.write_epochs();
        }
        self.inherit_partial(current);
        self.snapshots.remove(&self.end.offset);
    }

    /// Writes all that an opening after an orderly end needs, and makes it durable but for the
    /// folder's name. Does I/O; the copier's only.
    ///
    /// # Errors
    /// A disk error.
    pub fn settle_copy(&mut self) -> io::Result<()> {
        self.write_rest()?;
        self.finish_files()?;
        let end = self.end.offset;
        if !self.snapshots.contains(&end) && !self.producers.is_empty() {
            // All records were deleted; the producers stay.
            let content = crate::snapshot::encode(&self.producers.snapshot_entries());
            let path = self.folder.file(&snapshot_name(end));
            disk::replace_file_unsynced(self.env.disk(), &path, &content)?;
            self.snapshots.insert(end);
        }
        if self.snapshots.contains(&end) {
            add_name(&mut self.sync.files, &snapshot_name(end));
        }
        while !self.is_synced() || !self.sync.files.is_empty() {
            let Some(mut job) = self.take_sync(SyncScope::Written) else {
                break;
            };
            let result = job.execute();
            let failed = result.as_ref().err().map(copy_of);
            self.complete_sync(job, result);
            if let Some(error) = failed {
                return Err(error);
            }
        }
        Ok(())
    }

    /// The copy takes the current log's place: it gets what changed since [`Log::inherit`], and uses
    /// the block cache of its directory as the log of `name`. The current log has its name, but no
    /// longer its folder. Queue the copy at its writer if [`Log::has_unwritten`].
    pub fn replace(&mut self, current: &mut Log, name: PartitionName) {
        self.config = current.config.clone();
        self.producers = std::mem::take(&mut current.producers).without_places();
        if self.epochs != current.epochs {
            // An epoch without records, which the file gets with the first one.
            self.epochs = current.epochs.clone();
            self.epochs_unwritten = true;
        }
        self.epochs_unwritten |= current.epochs_unwritten;
        self.advance_high_watermark(current.high_watermark.offset);
        self.producers.on_high_watermark(self.high_watermark.offset);
        if current.log_start > self.log_start {
            // It was moved meanwhile, at most to the high watermark.
            self.set_log_start(current.log_start);
        }
        self.is_reshaped = true;
        let has_producers = !self.producers.is_empty();
        let arena = self.env.arena();
        self.cache = arena.map(|arena| LogCache::new(&arena, name, None, has_producers));
        if let Some(poison) = &current.poison {
            self.poison.get_or_insert_with(|| poison.clone());
        }
    }
}

fn copy_of(error: &io::Error) -> io::Error {
    io::Error::new(error.kind(), error.to_string())
}
