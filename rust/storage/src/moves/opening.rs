//! Makes, opens, checks and cuts a copy.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use pyrklog_log::{
    Isolation, Location, Log, OpenError, OpenRequest, TruncateError, TruncateJob, Wait,
};
use pyrklog_wire::batch::{BatchHeader, HEADER_LEN};

use crate::checkpoints::CutLog;
use crate::internal_read::read_whole;
use crate::log_manager::LogManager;
use crate::moves::copying::{Copying, Failure, Stage};
use crate::moves::{Fate, Move, Moves};
use crate::syncer_queue::Deletion;
use pyrklog_base::clock::Now;

/// Enough to find a batch's header.
const HEADER_READ_BYTES: usize = HEADER_LEN;

impl Moves {
    /// Makes the folders of new moves, so that a start after a kill knows of them.
    pub(super) fn make_folders(&self, logs: &LogManager) {
        while let Some(new) = self.take_unmade() {
            // The thread that holds it makes it, or ends it.
            let Some(mut copying) = new.copying.try_lock() else {
                continue;
            };
            let goes_on = new.fate() == Fate::GoesOn && !new.waits_for_another();
            let is_away = new.partition.dir().index != new.destination.index;
            if copying.stage == Stage::New && goes_on && is_away {
                // An error is told when the move's turn comes.
                let _made_or_not = new.make(logs, &mut copying);
            }
        }
    }
}

impl Move {
    /// Makes the folder. The destination must not hold the partition's log.
    pub(super) fn make(&self, logs: &LogManager, copying: &mut Copying) -> Result<(), Failure> {
        let destination = &self.destination;
        let _no_checkpoint_between = destination.checkpoints.lock();
        self.clear_destination(logs)?;
        let made = destination.files.make_future(&self.folder);
        made.map_err(|error| Failure::of_destination("making its folder", &error))?;
        copying.stage = Stage::Made;
        Ok(())
    }

    /// Removes what an earlier move away from the destination could not remove there: its log and
    /// its line, either of which would be taken for the copy's.
    fn clear_destination(&self, logs: &LogManager) -> Result<(), Failure> {
        let (topic, index) = (&self.partition.topic.name, self.partition.index);
        let files = &self.destination.files;
        let failed = |error| Failure::of_destination("removing the log that moved away", &error);
        if files.is_leaving(topic, index) {
            let unique = logs.names.unique();
            let left = files.delete_folder(topic, index, unique).map_err(failed)?;
            if let Some(folder) = left {
                let now_ms = Now::read().wall_ms;
                let deletion = Deletion::Folder(folder);
                self.destination.syncer.delete_later(now_ms, deletion);
            }
            return files.end_leaving(topic, index).map_err(failed);
        }
        match files.is_installed(&self.folder) {
            Ok(false) => Ok(()),
            Ok(true) => {
                let reason = "a log of another topic of its name is there".to_owned();
                Err(Failure::Hopeless(reason))
            }
            Err(error) => Err(failed(error)),
        }
    }

    /// Opens the copy, which may have been left by a kill.
    pub(super) fn open(&self, logs: &LogManager, copying: &mut Copying) -> Result<(), Failure> {
        let (topic, index) = (&self.partition.topic, self.partition.index);
        let files = &self.destination.files;
        let opened = Log::open_future(
            &self.folder.name,
            OpenRequest {
                env: Arc::clone(self.destination.env()),
                log_dir: self.destination.path(),
                topic: &topic.name,
                partition: index,
                topic_id: (topic.id != [0; 16]).then_some(topic.id),
                config: self.copy_config(),
                state: files.open_state(&topic.name, index),
                now_ms: Now::read().wall_ms,
                producer_id_expiration_ms: logs.producer_id_expiration_ms.load(Ordering::Relaxed),
            },
        );
        let (mut log, report) = match opened {
            Ok(opened) => opened,
            Err(OpenError::Outdated(_)) => return self.begin_anew(logs, copying),
            Err(error) => return Err(Failure::of_opening("opening the copy", &error)),
        };
        if log.has_unwritten() {
            // Leader epochs, for which there was no space.
            let written = log.write_rest();
            written.map_err(|error| Failure::of_destination("opening the copy", &error))?;
        }
        if report.checkpoint_is_stale {
            self.write_rows(&log)?;
        }
        self.note_progress(&log);
        copying.is_verified = false;
        copying.log = Some(log);
        copying.stage = Stage::Open;
        Ok(())
    }

    /// Removes the copy's folder, which another broker made of segments that were converted since;
    /// a new one takes its place.
    fn begin_anew(&self, logs: &LogManager, copying: &mut Copying) -> Result<(), Failure> {
        let destination = &self.destination;
        {
            let _no_checkpoint_between = destination.checkpoints.lock();
            let unique = logs.names.unique();
            let deleted = destination.files.delete_future(&self.folder, unique);
            let failed = |error| Failure::of_destination("removing the copy", &error);
            if let Some(folder) = deleted.map_err(failed)? {
                let now_ms = Now::read().wall_ms;
                let deletion = Deletion::Folder(folder);
                destination.syncer.delete_later(now_ms, deletion);
            }
        }
        *copying = Copying::new();
        self.make(logs, copying)
    }

    /// Writes the copy's rows in the checkpoints of its directory.
    pub(super) fn write_rows(&self, log: &Log) -> Result<(), Failure> {
        let (topic, index) = (&self.partition.topic.name, self.partition.index);
        let written = self.destination.write_cut(topic, index, CutLog::of(log));
        written.map_err(|error| Failure::of_destination("writing the copy's checkpoints", &error))
    }

    /// Compares the copy's last batch with the current log's. Batches have offset, epoch and
    /// checksum, so logs with an equal one have the same before it. A copy that does not end with
    /// one begins anew. `current` is where the current log holds the offset before the copy's end.
    pub(super) fn verify(
        &self,
        logs: &LogManager,
        copying: &mut Copying,
        current: Option<Location>,
        start: i64,
    ) -> Result<(), Failure> {
        let is_whole = copying.is_whole;
        let log = copying.open_log()?;
        let is_equal = match log.is_empty() {
            true => log.log_end_offset() == start,
            // The copy may lack tombstones that were removed, and have what they removed.
            false if !is_whole && self.may_be_compacted() => false,
            false => {
                let end = log.log_end_offset();
                let own = log.locate(end - 1, Isolation::DurableEnd).ok();
                let own = own.as_ref().and_then(header_at);
                let other = current.as_ref().and_then(header_at);
                own.is_some() && own == other
            }
        };
        if !is_equal {
            self.restart(logs, copying, start)?;
        }
        copying.is_verified = true;
        Ok(())
    }

    /// Whether the current log is cleaned, or was.
    fn may_be_compacted(&self) -> bool {
        let (topic, index) = (&self.partition.topic, self.partition.index);
        let source = self.partition.dir();
        let _nothing_is_written_meanwhile = source.checkpoints.lock();
        let was_cleaned = source.files.cleaned_end(&topic.name, index).is_some();
        was_cleaned || topic.settings().log.cleanup_compact
    }

    /// Cuts the copy's end.
    pub(super) fn cut(
        &self,
        logs: &LogManager,
        copying: &mut Copying,
        offset: i64,
    ) -> Result<(), Failure> {
        let expiration_ms = logs.producer_id_expiration_ms.load(Ordering::Relaxed);
        let log = copying.open_log()?;
        let begun = log.begin_truncation(offset, Now::read().wall_ms, expiration_ms);
        self.carry_out_cut(copying, begun)?;
        copying.cut = None;
        Ok(())
    }

    /// Drops what was copied; the copy goes on at an offset.
    pub(super) fn restart(
        &self,
        logs: &LogManager,
        copying: &mut Copying,
        offset: i64,
    ) -> Result<(), Failure> {
        let expiration_ms = logs.producer_id_expiration_ms.load(Ordering::Relaxed);
        let log = copying.open_log()?;
        let begun = log.begin_restart(offset, Now::read().wall_ms, expiration_ms);
        self.carry_out_cut(copying, begun.map(Some))?;
        copying.cut = None;
        copying.is_verified = true;
        copying.is_whole = true;
        Ok(())
    }

    fn carry_out_cut(
        &self,
        copying: &mut Copying,
        begun: Result<Option<TruncateJob>, TruncateError>,
    ) -> Result<(), Failure> {
        let mut job = match begun {
            Ok(Some(job)) => job,
            Ok(None) => return Ok(()),
            Err(error) => return Err(Failure::Destination(error.to_string())),
        };
        let result = job.execute();
        let failed = result.as_ref().err().map(OpenError::to_string);
        let log = copying.open_log()?;
        log.complete_truncation(job, result);
        if let Some(reason) = failed {
            // The copy is open no more; the next start finds it cut or not.
            return Err(Failure::Hopeless(format!("cutting the copy: {reason}")));
        }
        self.note_progress(log);
        let log = copying.open_log()?;
        self.write_rows(log)
    }
}

/// The header of the batch there.
fn header_at(location: &Location) -> Option<Vec<u8>> {
    let slice = location
        .resolve(HEADER_READ_BYTES, true, Wait::Blocking)
        .ok()?;
    let mut bytes = read_whole(&slice, Wait::Blocking).ok()?;
    BatchHeader::parse(&bytes).ok()?;
    bytes.truncate(HEADER_LEN);
    Some(bytes)
}
