//! Copies pieces of the current log.

use pyrklog_log::disk::may_pass;
use pyrklog_log::validate::validate_replica;
use pyrklog_log::{AppendError, Checkpoint, Isolation, Location, Origin, SyncScope, Wait};
use pyrklog_wire::batch::{BatchHeader, HEADER_LEN};

use crate::internal_read::read_whole;
use crate::log_manager::LogManager;
use crate::moves::Move;
use crate::moves::copying::{Copying, Failure};
use crate::moves::machine::{Facts, Span};
use crate::syncer_queue::Deletion;
use pyrklog_base::clock::Now;

/// Bytes that are read at a time; a larger batch is read whole.
const PIECE_BYTES: usize = 1 << 20;

/// Space that a directory keeps for its own records, as a share of its reserve.
const MARGIN_SHARE: u64 = 4;

/// The current log's part in a step.
pub(super) struct Current {
    pub facts: Facts,
    /// Where it holds the copy's end, if it does.
    pub at_end: Option<Location>,
    /// Where it holds the last record of the copy.
    pub at_last: Option<Location>,
    /// A cleaning that had begun changes it still.
    pub is_being_cleaned: bool,
}

impl Move {
    /// Looks at the current log under its lock, and has the copy follow its log start.
    pub(super) fn look(&self, copying: &mut Copying) -> Result<Current, Failure> {
        let mut state = self.partition.lock();
        let current = state.log.as_mut().ok_or(Failure::Rests)?;
        if current.poisoned().is_some() {
            return Err(Failure::Rests);
        }
        let is_ours = current.is_copied_by(self.id);
        if !is_ours {
            current.begin_leaving(self.id);
        }
        let cut = current.take_cut();
        copying.is_verified &= is_ours;
        // A cleaning may have run before.
        copying.is_whole &= is_ours || copying.open_log()?.is_empty();
        copying.note_cut(cut);
        let cut = copying.cut;
        let (is_verified, is_synced) = (copying.is_verified, copying.is_synced);
        let copy = copying.open_log()?;
        let span = Span {
            start: current.log_start_offset(),
            end: current.durable_end_offset(),
        };
        let end = copy.log_end_offset();
        let locate = |offset| current.locate(offset, Isolation::DurableEnd).ok();
        let at_end = locate(end);
        let rest_bytes = match end < span.end {
            true => current.bytes_from(end),
            false => 0,
        };
        let facts = Facts {
            current: span,
            cut,
            copy: Span {
                start: copy.log_start_offset(),
                end,
            },
            is_verified,
            rest_bytes,
            is_synced,
        };
        let found = Current {
            facts,
            at_end,
            at_last: (!is_verified).then(|| locate(end - 1)).flatten(),
            is_being_cleaned: current.is_being_cleaned(),
        };
        let high_watermark = current.high_watermark();
        drop(state);
        if cut.is_some_and(|cut| cut >= end) {
            // It had not come that far.
            copying.cut = None;
        }
        let copy = copying.open_log()?;
        if is_verified && cut.is_none() {
            copy.advance_high_watermark(high_watermark);
            if span.start > copy.log_start_offset() && span.start <= copy.high_watermark() {
                // Its directory reports errors.
                let _moved_or_failed = copy.advance_log_start(span.start);
            }
        }
        Ok(found)
    }

    /// Copies the next piece, and writes it. Returns its bytes.
    pub(super) fn copy_piece(
        &self,
        logs: &LogManager,
        copying: &mut Copying,
        at_end: &Location,
    ) -> Result<usize, Failure> {
        self.check_space()?;
        let slice = at_end.resolve(PIECE_BYTES, true, Wait::PastCache);
        let bytes = slice.and_then(|slice| Ok(read_whole(&slice, Wait::PastCache)?));
        // What was cut while it was read may be followed by other records; what is being cut may be
        // torn; what retention took is gone.
        let is_stale = {
            let mut state = self.partition.lock();
            let current = state.log.as_mut().ok_or(Failure::Rests)?;
            copying.note_cut(current.take_cut());
            let is_cut = copying.cut.is_some() || current.is_truncating();
            let is_removed = current.log_start_offset() > at_end.offset();
            is_cut || is_removed || !current.is_copied_by(self.id)
        };
        if is_stale {
            return Ok(0);
        }
        let mut bytes = bytes.map_err(|error| Failure::of_reading(&error))?;
        let end = at_end.offset();
        let appended = match bytes.is_empty() {
            true => self.skip(copying, at_end)?,
            false => match self.append(copying, &mut bytes) {
                Err(Failure::BeginsAt(offset)) => {
                    self.restart(logs, copying, offset)?;
                    self.append(copying, &mut bytes)?
                }
                appended => appended?,
            },
        };
        copying.is_synced &= appended == 0;
        self.write(copying)?;
        let copy = copying.open_log()?;
        self.note_progress(copy);
        if copy.log_end_offset() == end {
            let reason = format!("no batch can be read at offset {end}");
            return Err(Failure::Hopeless(reason));
        }
        Ok(appended)
    }

    /// The current log has no batch between the copy's end and its own, as after compaction.
    fn skip(&self, copying: &mut Copying, at_end: &Location) -> Result<usize, Failure> {
        let copy = copying.open_log()?;
        copy.skip_to(at_end.bound_offset(), Now::read().wall_ms);
        Ok(0)
    }

    fn append(&self, copying: &mut Copying, bytes: &mut [u8]) -> Result<usize, Failure> {
        let now_ms = Now::read().wall_ms;
        let copy = copying.open_log()?;
        let (mut begin, mut appended) = (0, 0);
        while bytes.len() - begin >= HEADER_LEN {
            let end = copy.log_end_offset();
            let damaged = |reason: &dyn std::fmt::Display| {
                Failure::Hopeless(format!("the log is damaged behind offset {end}: {reason}"))
            };
            let rest = &bytes[begin..];
            let header = BatchHeader::parse(rest).map_err(|error| damaged(&error))?;
            let len = header.total_len();
            // The last batch may be incomplete.
            if len > rest.len() {
                break;
            }
            let info = validate_replica(&rest[..len]).map_err(|error| damaged(&error.message))?;
            if header.next_offset() <= end && begin > 0 {
                // As where a segment of an old format was damaged: not all of it would move.
                return Err(damaged(&"offsets do not rise"));
            }
            if header.next_offset() > end {
                let batch = &mut bytes[begin..begin + len];
                match copy.append(batch, &info, Origin::Replication, -1, now_ms) {
                    Ok(_) => appended += len,
                    Err(AppendError::NotBehindEnd { base_offset, .. }) if copy.is_empty() => {
                        return Err(Failure::BeginsAt(base_offset));
                    }
                    Err(AppendError::ReadOnly) => {
                        return Err(Failure::Later("the disk is full".to_owned()));
                    }
                    Err(error @ AppendError::Poisoned(_)) => {
                        return Err(Failure::Destination(error.to_string()));
                    }
                    Err(error) => return Err(damaged(&error)),
                }
            }
            begin += len;
        }
        Ok(appended)
    }

    /// Writes what was appended to the copy, and syncs segments that are complete.
    pub(super) fn write(&self, copying: &mut Copying) -> Result<(), Failure> {
        let mut rolled = false;
        loop {
            let stuck = copying.stuck.take();
            let copy = copying.open_log()?;
            let Some(mut job) = stuck.or_else(|| copy.take_writes()) else {
                break;
            };
            let result = job.execute();
            if let Err(error) = &result
                && may_pass(error)
            {
                let failure = Failure::of_destination("writing the copy", error);
                copying.stuck = Some(job);
                return Err(failure);
            }
            let failed = result.as_ref().err();
            let failure = failed.map(|error| Failure::of_destination("writing the copy", error));
            rolled |= copy.complete_writes(job, result).rolled;
            if let Some(failure) = failure {
                return Err(failure);
            }
        }
        if rolled {
            self.sync(copying, SyncScope::ClosedSegments)?;
            self.remove_old(copying)?;
            self.write_rows(copying.open_log()?)?;
        }
        Ok(())
    }

    /// Makes the copy durable, as far as the scope says.
    pub(super) fn sync(&self, copying: &mut Copying, scope: SyncScope) -> Result<(), Failure> {
        self.destination.env().close_surplus();
        let copy = copying.open_log()?;
        while let Some(mut job) = copy.take_sync(scope) {
            let result = job.execute();
            let failed = result.as_ref().err();
            let failure = failed.map(|error| Failure::of_destination("syncing the copy", error));
            let more = copy.complete_sync(job, result);
            if let Some(failure) = failure {
                return Err(failure);
            }
            if !more {
                break;
            }
        }
        self.destination.syncer.set_moved(Checkpoint::RecoveryPoint);
        Ok(())
    }

    /// Removes what lies below the log start.
    fn remove_old(&self, copying: &mut Copying) -> Result<(), Failure> {
        let now_ms = Now::read().wall_ms;
        let copy = copying.open_log()?;
        if let Some(mut removed) = copy.plan_retention(now_ms).removed {
            let renamed = removed.rename();
            renamed.map_err(|error| Failure::of_destination("removing old segments", &error))?;
            let deletion = Deletion::Segments(removed);
            self.destination.syncer.delete_later(now_ms, deletion);
        }
        Ok(())
    }

    /// A move must not fill a directory that others write to.
    pub(super) fn check_space(&self) -> Result<(), Failure> {
        let destination = &self.destination;
        let space = destination.files.space();
        let margin_bytes = destination.reserve_bytes / MARGIN_SHARE + PIECE_BYTES as u64;
        let is_short = space.is_ok_and(|space| space.usable_bytes < margin_bytes);
        if destination.is_read_only() || is_short {
            return Err(Failure::Later("the disk is full".to_owned()));
        }
        Ok(())
    }
}
