//! How long to wait before the next try.

use std::time::Duration;

const FIRST: Duration = Duration::from_millis(50);
const MOST: Duration = Duration::from_secs(1);

/// Doubles from 50 ms to 1 s.
#[derive(Clone, Copy, Debug, Default)]
pub struct Backoff {
    failures: u32,
}

impl Backoff {
    /// The wait after one more failure.
    pub fn next_wait(&mut self) -> Duration {
        let wait = FIRST * 2_u32.pow(self.failures.min(10));
        self.failures = self.failures.saturating_add(1);
        wait.min(MOST)
    }

    /// After a success.
    pub fn reset(&mut self) {
        self.failures = 0;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn waits_double_up_to_a_second() {
        let mut backoff = Backoff::default();
        let waits: Vec<_> = (0..8).map(|_| backoff.next_wait().as_millis()).collect();
        assert_eq!(waits, [50, 100, 200, 400, 800, 1000, 1000, 1000]);
        backoff.reset();
        assert_eq!(backoff.next_wait(), FIRST);
    }
}
