//! How many bytes all cleaners together read and write in a second
//! (`log.cleaner.io.max.bytes.per.second`).

use parking_lot::Mutex;
use pyrklog_base::clock::mono_ms;

/// At most so much of the rate is made up for after a pause.
const SAVED_MS: f64 = 100.0;

/// Longer waits are asked for in pieces, so that a thread hears that it is to stop.
const WAIT_MAX_MS: f64 = 250.0;

/// A rate that threads share.
#[derive(Debug)]
pub(super) struct Throttle {
    state: Mutex<State>,
}

#[derive(Debug)]
struct State {
    bytes_per_ms: f64,
    /// When everything passed so far was due (monotonic, ms).
    due_ms: f64,
    /// Grows with each change of the rate.
    version: u64,
}

impl Throttle {
    pub fn new(bytes_per_second: f64) -> Self {
        Self {
            state: Mutex::new(State {
                bytes_per_ms: bytes_per_second / 1000.0,
                due_ms: 0.0,
                version: 0,
            }),
        }
    }

    /// Changes the rate; who waits goes on.
    pub fn set_rate(&self, bytes_per_second: f64) {
        let mut state = self.state.lock();
        state.bytes_per_ms = bytes_per_second / 1000.0;
        state.due_ms = 0.0;
        state.version += 1;
    }

    /// Takes note of bytes, and waits as long as they came too early. False if a wait said so.
    pub fn pass(&self, bytes: u64, wait: impl Fn(i64) -> bool) -> bool {
        let (due_ms, version) = self.note(bytes, mono_ms());
        loop {
            let wait_ms = due_ms - mono_ms() as f64;
            if wait_ms < 1.0 || self.state.lock().version != version {
                return true;
            }
            if !wait(wait_ms.min(WAIT_MAX_MS) as i64) {
                return false;
            }
        }
    }

    /// When the bytes are due, and at which version of the rate.
    fn note(&self, bytes: u64, now_ms: i64) -> (f64, u64) {
        let mut state = self.state.lock();
        let from_ms = state.due_ms.max(now_ms as f64 - SAVED_MS);
        state.due_ms = from_ms + bytes as f64 / state.bytes_per_ms;
        (state.due_ms, state.version)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_beyond_the_rate_come_too_early() {
        let throttle = Throttle::new(1000.0);
        assert_eq!(throttle.note(100, 10_000).0, 10_000.0, "the saved part");
        assert_eq!(throttle.note(50, 10_000).0, 10_050.0);
        assert_eq!(throttle.note(50, 10_050).0, 10_100.0);
        assert_eq!(throttle.note(100, 20_000).0, 20_000.0);
    }

    #[test]
    fn a_long_wait_ends_when_it_is_told_or_the_rate_changes() {
        let throttle = Throttle::new(1000.0);
        let waits = std::cell::RefCell::new(Vec::new());
        let wait = |ms| {
            waits.borrow_mut().push(ms);
            waits.borrow().len() < 3
        };
        assert!(!throttle.pass(1 << 30, wait));
        assert_eq!(*waits.borrow(), [250; 3]);
        let change = |_| {
            throttle.set_rate(f64::MAX);
            true
        };
        assert!(throttle.pass(1 << 30, change));
    }

    #[test]
    fn no_limit_waits_for_nothing() {
        let throttle = Throttle::new(f64::MAX);
        assert!(throttle.note(u64::MAX, 10_000).0 <= 10_000.0);
    }
}
