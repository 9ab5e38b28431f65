//! A writer driven by a simulation, which decides how long a write takes.

use std::sync::Arc;

use super::{Writer, extents};
use crate::log_manager::LogManager;
use crate::writer_queue::Turn;

/// Writes what the writers of all directories have. Finishes writes under way first, since
/// simulated time does not pass during a command.
pub fn write_all(logs: &Arc<LogManager>) {
    for dir in &logs.dirs {
        dir.writer.hurry();
        for mut writer in Writer::team(logs, dir).into_iter().take(1) {
            writer.finish_writes();
            while writer.run_turn() {}
        }
    }
}

impl Writer {
    /// Runs one turn; false if nothing was due.
    pub fn run_turn(&mut self) -> bool {
        let mut turn = Turn::default();
        self.dir.writer.take_now(&mut turn, &*self.dir) && self.carry_out_turn(&mut turn)
    }

    /// Begins to write what is due. The files have none of it before [`Writer::finish_writes`].
    pub fn begin_writes(&mut self) {
        let mut turn = Turn::default();
        self.dir.writer.take_now(&mut turn, &*self.dir);
        for (partition, extent) in extents(&mut turn) {
            if let Some(job) = self.take_job(&partition, extent) {
                self.dir.writer.jobs[self.index].begin();
                self.dir.under_way.lock().push((partition, job));
            }
        }
    }

    /// Whether a write is under way.
    pub fn is_under_way(&self) -> bool {
        !self.dir.under_way.lock().is_empty()
    }

    /// Finishes the writes under way and reports them.
    pub fn finish_writes(&mut self) {
        let under_way = std::mem::take(&mut *self.dir.under_way.lock());
        for (partition, job) in under_way {
            self.carry_out(partition, job);
        }
        self.try_again();
        self.deliver();
    }

    /// Finishes the writes under way without reporting them, as if the process died meanwhile.
    pub fn write_unreported(&mut self) {
        let under_way = std::mem::take(&mut *self.dir.under_way.lock());
        for (_, mut job) in under_way {
            // A failure goes unnoticed as well.
            let _written_or_not = job.execute();
        }
    }
}
