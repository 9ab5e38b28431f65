//! Open-loop pacing: when each request *should* leave.
//!
//! Latency counts from the intended time, even if the request left later. A generator that waits
//! for a slow broker and only then starts its stop-watch would leave out the waiting that users
//! feel ("coordinated omission").

const NS_PER_SECOND: u128 = 1_000_000_000;

/// Intended times of requests 0, 1, 2, ... of one connection. Without a rate every request is due
/// at once (closed loop: only the window of requests in flight limits them).
#[derive(Clone, Debug)]
pub struct Schedule {
    start_ns: u64,
    requests_per_second: Option<f64>,
    next: u64,
}

impl Schedule {
    /// A schedule that begins at `start_ns`. The rate must be positive and finite.
    pub fn new(start_ns: u64, requests_per_second: Option<f64>) -> Self {
        if let Some(rate) = requests_per_second {
            assert!(rate.is_finite() && rate > 0.0, "rate out of range: {rate}");
        }
        Self {
            start_ns,
            requests_per_second,
            next: 0,
        }
    }

    /// When the next request is due; `None` in a closed loop.
    pub fn due_ns(&self) -> Option<u64> {
        let rate = self.requests_per_second?;
        // From the start each time, so that rounding does not add up over a long run.
        let milli_rate = (rate * 1_000.0).round().max(1.0) as u128;
        let after_ns = u128::from(self.next) * NS_PER_SECOND * 1_000 / milli_rate;
        Some(
            self.start_ns
                .saturating_add(u64::try_from(after_ns).unwrap_or(u64::MAX)),
        )
    }

    /// Takes the next request if it is due: returns the time from which its latency counts.
    pub fn take(&mut self, now_ns: u64) -> Option<u64> {
        let from_ns = match self.due_ns() {
            None => now_ns,
            Some(due_ns) if due_ns <= now_ns => due_ns,
            Some(_) => return None,
        };
        self.next += 1;
        Some(from_ns)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: u64 = 1_000_000_000;

    #[test]
    fn a_closed_loop_is_always_due_and_counts_from_now() {
        let mut schedule = Schedule::new(5, None);
        assert_eq!(schedule.due_ns(), None);
        assert_eq!(schedule.take(17), Some(17));
        assert_eq!(schedule.take(18), Some(18));
    }

    #[test]
    fn requests_are_due_at_even_distances() {
        let mut schedule = Schedule::new(SECOND, Some(1_000.0));
        assert_eq!(schedule.take(SECOND - 1), None);
        assert_eq!(schedule.take(SECOND), Some(SECOND));
        assert_eq!(schedule.take(SECOND + 999_999), None);
        assert_eq!(schedule.take(SECOND + 1_000_000), Some(SECOND + 1_000_000));
    }

    #[test]
    fn a_stall_leaves_the_intended_times_as_they_were() {
        let mut schedule = Schedule::new(0, Some(1_000.0));
        let late = 5 * 1_000_000;
        let taken: Vec<_> = std::iter::from_fn(|| schedule.take(late)).collect();
        assert_eq!(
            taken,
            [0, 1_000_000, 2_000_000, 3_000_000, 4_000_000, 5_000_000]
        );
    }

    #[test]
    fn odd_rates_do_not_drift() {
        let mut schedule = Schedule::new(0, Some(333.0));
        for _ in 0..333_000 {
            assert!(schedule.take(u64::MAX).is_some());
        }
        assert_eq!(schedule.due_ns(), Some(1_000 * SECOND));
    }

    #[test]
    #[should_panic(expected = "rate out of range")]
    fn a_rate_of_zero_is_refused() {
        Schedule::new(0, Some(0.0));
    }
}
