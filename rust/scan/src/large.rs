//! The right to hold more than one's share of memory, for one worker at a time.
//!
//! A broker returns the first batch whole however large it is, and a batch may expand to much. One
//! worker at a time may receive such frames, and one may have such an expansion, so that the memory
//! of all stays bounded. These are two rights: a worker that decodes does not wait for another's
//! broker.

use std::time::{Duration, Instant};

use parking_lot::{Condvar, Mutex};
use pyrklog_client::Cancel;

use crate::error::{Result, ScanError};

/// How often a waiter looks whether the scan was closed.
const LOOK: Duration = Duration::from_millis(100);
/// How long a worker counts as waiting for the right after it was refused. Each asks again much
/// sooner, unless its batches or the caller keep it busy.
const WANTED_FOR: Duration = Duration::from_secs(1);

#[derive(Debug, Default)]
struct State {
    /// Who has the right, and how often.
    holder: Option<(usize, usize)>,
    /// Who had it last.
    last: Option<usize>,
    /// When it was refused to another than that one.
    refused_at: Option<Instant>,
}

impl State {
    fn is_wanted(&self, now: Instant) -> bool {
        let since = self.refused_at.map(|at| now.saturating_duration_since(at));
        since.is_some_and(|since| since < WANTED_FOR)
    }

    fn try_take(&mut self, worker: usize, now: Instant) -> bool {
        let (has_had_it, times) = match self.holder {
            Some((holder, times)) => (holder == worker, times),
            None => (self.last == Some(worker), 0),
        };
        if !has_had_it && times > 0 {
            self.refused_at = Some(now);
            return false;
        }
        // Each in turn: one with many lanes could keep it for ever.
        if has_had_it && self.is_wanted(now) {
            return false;
        }
        if !has_had_it {
            self.refused_at = None;
        }
        self.holder = Some((worker, times + 1));
        self.last = Some(worker);
        true
    }
}

/// Who has the right.
#[derive(Debug, Default)]
pub(crate) struct LargeGate {
    state: Mutex<State>,
    is_free: Condvar,
}

impl LargeGate {
    /// Takes the right, once more if the worker has it; false if another has it or waits for it.
    pub fn try_take(&self, worker: usize, now: Instant) -> bool {
        self.state.lock().try_take(worker, now)
    }

    /// The same, waiting for it.
    ///
    /// # Errors
    /// The scan was closed.
    pub fn take(&self, worker: usize, cancel: &Cancel) -> Result<()> {
        let mut state = self.state.lock();
        loop {
            if cancel.is_cancelled() {
                return Err(ScanError::cancelled());
            }
            if state.try_take(worker, Instant::now()) {
                return Ok(());
            }
            self.is_free.wait_for(&mut state, LOOK);
        }
    }

    /// Whether another worker than the one that has it waits for the right.
    pub fn is_wanted(&self, now: Instant) -> bool {
        self.state.lock().is_wanted(now)
    }

    /// Gives the right back, as often as it was taken.
    pub fn give_back(&self) {
        let mut state = self.state.lock();
        state.holder = match state.holder {
            Some((worker, times)) if times > 1 => Some((worker, times - 1)),
            _ => None,
        };
        if state.holder.is_none() {
            self.is_free.notify_all();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_worker_at_a_time_has_the_right_as_often_as_it_likes() {
        let (gate, now) = (LargeGate::default(), Instant::now());
        assert!(gate.try_take(1, now) && gate.try_take(1, now));
        assert!(!gate.is_wanted(now));
        assert!(!gate.try_take(2, now));
        gate.give_back();
        assert!(!gate.try_take(2, now));
        gate.give_back();
        assert!(gate.try_take(2, now) && !gate.try_take(1, now));
    }

    #[test]
    fn who_had_the_right_lets_others_have_it_first() {
        let (gate, now) = (LargeGate::default(), Instant::now());
        assert!(gate.try_take(1, now) && !gate.try_take(2, now));
        assert!(gate.is_wanted(now) && !gate.try_take(1, now));
        gate.give_back();
        assert!(!gate.try_take(1, now));
        assert!(gate.try_take(2, now) && !gate.is_wanted(now));
        gate.give_back();
        assert!(gate.try_take(2, now) && !gate.try_take(1, now));
        gate.give_back();
        // The other one does not come back.
        assert!(!gate.try_take(2, now + WANTED_FOR / 2));
        assert!(gate.try_take(2, now + WANTED_FOR));
    }

    #[test]
    fn a_closed_scan_ends_the_wait() {
        let (gate, cancel) = (LargeGate::default(), Cancel::new().unwrap());
        assert!(gate.try_take(1, Instant::now()));
        cancel.cancel();
        assert_eq!(gate.take(2, &cancel), Err(ScanError::cancelled()));
    }
}
