//! Ends a move, or lets it rest.

use std::io;
use std::sync::Arc;

use pyrklog_log::{FutureFolder, Log};

use crate::checkpoints::CutLog;
use crate::log_dir_state::LogDirState;
use crate::log_manager::LogManager;
use crate::moves::copying::{Copying, Stage};
use crate::moves::{Ended, Fate, Move, Moves};
use crate::syncer_queue::Deletion;
use pyrklog_base::clock::Now;

impl Ended {
    /// Whether there is, or may be, something to carry out.
    pub fn has_any(&self) -> bool {
        !self.moves.is_empty() || !self.folders.is_empty() || self.deleted.is_some()
    }

    /// The directory whose disk [`Ended::carry_out`] may wait for, as far as is known.
    pub fn dir(&self) -> Option<usize> {
        let moves = self.moves.iter().map(|known| known.destination.index);
        let folders = self.folders.iter().map(|(dir, _)| dir.index);
        moves.chain(folders).chain(self.found_in).next()
    }

    /// Closes or removes the copies. May wait for a disk.
    pub fn carry_out(&self, logs: &LogManager) {
        for known in &self.moves {
            let mut copying = known.copying.lock();
            known.end(logs, &mut copying);
        }
        for (dir, folder) in &self.folders {
            remove(logs, dir, folder);
        }
        // Not before: an earlier command may have closed the copy just now.
        let left = self
            .deleted
            .as_ref()
            .and_then(|key| logs.moves.take_found(key));
        if let Some((dir, folder)) = left {
            remove(logs, &logs.dirs[dir], &folder);
        }
    }
}

impl Move {
    /// Does what its fate says, once.
    pub(super) fn end(&self, logs: &LogManager, copying: &mut Copying) {
        if copying.stage == Stage::Gone || self.fate() == Fate::GoesOn {
            return;
        }
        let was_made = copying.stage != Stage::New;
        let log = copying.log.take();
        copying.stuck = None;
        copying.stage = Stage::Gone;
        let mut state = self.partition.lock();
        if let Some(current) = &mut state.log {
            current.end_leaving(self.id);
        }
        drop(state);
        let (topic, index) = (&self.partition.topic.name, self.partition.index);
        let destination = &self.destination;
        match (self.fate(), log) {
            (Fate::Rests, log) => {
                if let Some(mut log) = log {
                    let closed = log.close_cleanly();
                    match closed {
                        Ok(()) => destination.files.closed(topic, index, &log),
                        // The next opening recovers it.
                        Err(_) => destination.env().leave_open(topic, index),
                    }
                }
                if was_made {
                    let folder = self.folder.clone();
                    logs.moves.found(destination.index, folder);
                }
            }
            (_, log) => {
                drop(log);
                if was_made {
                    remove(logs, destination, &self.folder);
                }
            }
        }
        logs.moves.settle(self);
    }
}

/// Removes a copy. If that fails, its directory has a problem that others will report, and the next
/// start finds the folder.
fn remove(logs: &LogManager, dir: &LogDirState, folder: &FutureFolder) {
    let _no_checkpoint_between = dir.checkpoints.lock();
    match dir.files.delete_future(folder, logs.names.unique()) {
        Ok(Some(deleted)) => {
            let now_ms = Now::read().wall_ms;
            dir.syncer.delete_later(now_ms, Deletion::Folder(deleted));
        }
        Ok(None) => {}
        Err(error) => {
            let reason = format!("removing {}: {error}", folder.name);
            logs.dir_notice(dir, "deletion_failed", "warning", reason);
        }
    }
}

/// Copies of a directory that were closed in order.
#[derive(Debug, Default)]
pub struct ClosedCopies(Vec<(Arc<Move>, Log)>);

impl Moves {
    /// Closes the copies in a directory: at the end, without threads.
    pub fn close_copies(&self, dir: &LogDirState) -> ClosedCopies {
        let mut closed = Vec::new();
        for known in self.all_into(dir.index) {
            let mut copying = known.copying.lock();
            copying.stage = Stage::Gone;
            let Some(mut log) = copying.log.take() else {
                continue;
            };
            drop(copying);
            if log.close_cleanly().is_err() {
                let (topic, index) = (&known.partition.topic.name, known.partition.index);
                dir.env().leave_open(topic, index);
                continue;
            }
            closed.push((known, log));
        }
        ClosedCopies(closed)
    }
}

impl ClosedCopies {
    /// The directory was synced: writes the copies' rows in its checkpoints.
    ///
    /// # Errors
    /// A disk error.
    pub fn synced(&mut self, dir: &LogDirState) -> io::Result<()> {
        for (known, log) in &mut self.0 {
            log.all_synced();
            let (topic, index) = (&known.partition.topic.name, known.partition.index);
            dir.write_cut(topic, index, CutLog::of(log))?;
        }
        Ok(())
    }
}
