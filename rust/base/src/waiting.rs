//! Lets tests poll for another thread, with a deadline.

use std::time::{Duration, Instant};

/// Default deadline.
pub const PATIENCE: Duration = Duration::from_secs(60);

const PAUSE: Duration = Duration::from_millis(1);

/// Waits until `condition` returns a value.
///
/// # Panics
/// With `what` at the deadline.
pub fn eventually<T>(what: &str, condition: impl FnMut() -> Option<T>) -> T {
    within(PATIENCE, condition).unwrap_or_else(|| panic!("{what} did not happen"))
}

/// The value of `condition` within this time, if any.
pub fn within<T>(limit: Duration, mut condition: impl FnMut() -> Option<T>) -> Option<T> {
    let start = Instant::now();
    loop {
        if let Some(found) = condition() {
            return Some(found);
        }
        if start.elapsed() >= limit {
            return None;
        }
        std::thread::sleep(PAUSE);
    }
}
