//! Has a log stand still while its copy takes its place.
//!
//! Nobody waits for a disk without end meanwhile: a log is held only once no long work is done to
//! its files, and it takes records again if the copy is not durable in time. Only the last step, the
//! copy's new name, has to be waited for: nobody can tell which name a disk that hangs will show.

use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

use parking_lot::{Condvar, Mutex};
use pyrklog_log::Log;

use crate::await_writers::await_writers;
use crate::log_manager::LogManager;
use crate::moves::Move;
use crate::moves::copying::Failure;
use crate::moves::machine::REST_MAX_BYTES;
use pyrklog_base::clock::mono_ms;
use pyrklog_replica::partition::{PartitionState, Role};

/// Interval of looks at the log.
const LOOK: Duration = Duration::from_millis(1);

/// For so long a log may wait for its copy, and before that the copy for the log's other work.
const HOLD_MAX: Duration = Duration::from_secs(2);

impl Move {
    /// Has the log take no records, and waits until all it has is in its files. Returns since when;
    /// `None` if that is not possible now: [`Move::release`] it.
    pub(super) fn hold(&self, logs: &Arc<LogManager>) -> Option<Instant> {
        let began = Instant::now();
        let mut held = None;
        loop {
            let mut state = self.partition.lock();
            let log = self.holdable(logs, &mut state)?;
            let is_late = began.elapsed() > HOLD_MAX;
            if held.is_none() && !log.is_being_changed() {
                let is_little = log.unwritten().bytes as u64 <= REST_MAX_BYTES;
                if is_little || is_late {
                    log.hold();
                    held = Some(Instant::now());
                }
            }
            match held {
                Some(_) if log.is_at_rest() => return held,
                Some(since) if since.elapsed() > HOLD_MAX => return None,
                None if is_late => return None,
                _ => {}
            }
            self.partition.unlock_and_write_all(state);
            await_writers(logs, LOOK);
        }
    }

    /// The log, if it can be held now.
    fn holdable<'a>(
        &self,
        logs: &LogManager,
        state: &'a mut PartitionState,
    ) -> Option<&'a mut Log> {
        let serves = matches!(state.role, Role::Leader | Role::Follower) && !state.has_failed();
        let source = self.partition.dir();
        if !serves || source.has_failed() || logs.is_ending() {
            return None;
        }
        let destination = &self.destination;
        let is_short_or_failed = destination.has_failed() || destination.shortage().is_some();
        // While that hangs, the log would take no records.
        if is_short_or_failed || destination.writer.is_hanging(mono_ms()) {
            return None;
        }
        let is_short = source.shortage().is_some();
        let log = state.log.as_mut().filter(|log| log.poisoned().is_none())?;
        (!is_short || !log.has_unwritten()).then_some(log)
    }

    /// The log takes records again.
    pub(super) fn release(&self) {
        if let Some(log) = &mut self.partition.lock().log {
            log.release();
        }
    }

    /// From here on the log is held until the copy has its name, or not.
    ///
    /// # Errors
    /// It takes records again, since the copy came too late.
    pub(super) fn hold_on(&self) -> Result<(), Failure> {
        self.while_held(Log::hold_on)
    }

    /// Has what goes on for as long as the log grows end once it takes records again.
    ///
    /// # Errors
    /// It does, since the copy came too late.
    pub(super) fn check_held(&self) -> Result<(), Failure> {
        self.while_held(|log| log.is_held())
    }

    fn while_held(&self, is_held: impl FnOnce(&mut Log) -> bool) -> Result<(), Failure> {
        let mut state = self.partition.lock();
        match state.log.as_mut().map(is_held) {
            Some(true) => Ok(()),
            Some(false) => {
                let reason = format!("completing the copy took more than {HOLD_MAX:?}");
                Err(Failure::Later(reason))
            }
            None => Err(Failure::Rests),
        }
    }

    /// Does `act`, but has the log take records again if it does not end in time. The disks that
    /// it waits for cannot be told to stop.
    ///
    /// # Errors
    /// Those of `act`, or the time cannot be watched.
    pub(super) fn in_time(
        &self,
        held: Instant,
        act: impl FnOnce() -> Result<(), Failure>,
    ) -> Result<(), Failure> {
        let is_over = Mutex::new(false);
        let over = Condvar::new();
        let watch = || {
            let mut is_over = is_over.lock();
            while !*is_over {
                if over.wait_until(&mut is_over, held + HOLD_MAX).timed_out() {
                    drop(is_over);
                    if let Some(log) = &mut self.partition.lock().log {
                        log.release_in_time();
                    }
                    return;
                }
            }
        };
        thread::scope(|scope| {
            let watching = thread::Builder::new().name("hold".into());
            let begun = watching.spawn_scoped(scope, watch);
            begun.map_err(|error| Failure::Later(format!("holding the log: {error}")))?;
            let result = act();
            *is_over.lock() = true;
            over.notify_one();
            result
        })
    }
}
