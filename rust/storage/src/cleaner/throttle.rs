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
    bytes_per_ms: f64,
    /// When everything passed so far was due (monotonic, ms).
    due_ms: Mutex<f64>,
}

impl Throttle {
    pub fn new(bytes_per_second: f64) -> Self {
        Self {
            bytes_per_ms: bytes_per_second / 1000.0,
            due_ms: Mutex::new(0.0),
        }
    }

    /// Takes note of bytes, and waits once if they came too early. Always true.
    pub fn pass(&self, bytes: u64, wait: impl Fn(i64)) -> bool {
        let wait_ms = self.note(bytes, mono_ms());
        if wait_ms >= 1.0 {
            wait(wait_ms.min(WAIT_MAX_MS) as i64);
        }
        true
    }

    /// How many milliseconds too early the bytes came.
    fn note(&self, bytes: u64, now_ms: i64) -> f64 {
        let now_ms = now_ms as f64;
        let mut due_ms = self.due_ms.lock();
        *due_ms = due_ms.max(now_ms - SAVED_MS) + bytes as f64 / self.bytes_per_ms;
        *due_ms - now_ms
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_beyond_the_rate_come_too_early() {
        let throttle = Throttle::new(1000.0);
        assert!(throttle.note(100, 10_000) <= 0.0, "the saved part");
        assert_eq!(throttle.note(50, 10_000), 50.0);
        assert_eq!(throttle.note(50, 10_050), 50.0);
        assert!(throttle.note(100, 20_000) <= 0.0);
    }

    #[test]
    fn no_limit_waits_for_nothing() {
        let throttle = Throttle::new(f64::MAX);
        assert!(throttle.note(u64::MAX, 10_000) <= 0.0);
    }
}
