//! The right to hold more than one's share of memory, for one worker at a time.
//!
//! A broker returns the first batch whole however large it is, and a batch may expand to much. One
//! worker at a time may have such a batch, so that the memory of all stays bounded.

use std::time::Duration;

use parking_lot::{Condvar, Mutex};
use pyrklog_client::Cancel;

use crate::error::{Result, ScanError};

/// How often a waiter looks whether the scan was closed.
const LOOK: Duration = Duration::from_millis(100);

/// Who has the right.
#[derive(Debug, Default)]
pub(crate) struct LargeGate {
    holder: Mutex<Option<(usize, usize)>>,
    is_free: Condvar,
}

impl LargeGate {
    /// Takes the right, once more if the worker has it; false if another has it.
    pub fn try_take(&self, worker: usize) -> bool {
        let mut holder = self.holder.lock();
        match *holder {
            Some((other, _)) if other != worker => false,
            Some((_, times)) => {
                *holder = Some((worker, times + 1));
                true
            }
            None => {
                *holder = Some((worker, 1));
                true
            }
        }
    }

    /// The same, waiting for it.
    ///
    /// # Errors
    /// The scan was closed.
    pub fn take(&self, worker: usize, cancel: &Cancel) -> Result<()> {
        loop {
            if cancel.is_cancelled() {
                return Err(ScanError::cancelled());
            }
            if self.try_take(worker) {
                return Ok(());
            }
            let mut holder = self.holder.lock();
            if holder.is_some() {
                self.is_free.wait_for(&mut holder, LOOK);
            }
        }
    }

    /// Gives the right back, as often as it was taken.
    pub fn give_back(&self) {
        let mut holder = self.holder.lock();
        *holder = match *holder {
            Some((worker, times)) if times > 1 => Some((worker, times - 1)),
            _ => None,
        };
        if holder.is_none() {
            self.is_free.notify_all();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_worker_at_a_time_has_the_right_as_often_as_it_likes() {
        let gate = LargeGate::default();
        assert!(gate.try_take(1) && gate.try_take(1));
        assert!(!gate.try_take(2));
        gate.give_back();
        assert!(!gate.try_take(2));
        gate.give_back();
        assert!(gate.try_take(2) && !gate.try_take(1));
    }

    #[test]
    fn a_closed_scan_ends_the_wait() {
        let (gate, cancel) = (LargeGate::default(), Cancel::new().unwrap());
        assert!(gate.try_take(1));
        cancel.cancel();
        assert_eq!(gate.take(2, &cancel), Err(ScanError::cancelled()));
    }
}
