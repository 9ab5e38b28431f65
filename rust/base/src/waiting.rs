//! How a test waits for what another thread does: by looking again and again, with a deadline.

use std::time::{Duration, Instant};

/// How long a test waits for what must happen.
pub const PATIENCE: Duration = Duration::from_secs(60);

const PAUSE: Duration = Duration::from_millis(1);

/// Waits until `condition` gives something.
///
/// # Panics
/// With `what`, where that does not happen.
pub fn eventually<T>(what: &str, condition: impl FnMut() -> Option<T>) -> T {
    within(PATIENCE, condition).unwrap_or_else(|| panic!("{what} did not happen"))
}

/// What `condition` gives in this time, if anything.
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
