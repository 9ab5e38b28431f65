//! The rate at which connections are accepted (`max.connection.creation.rate`, KIP-612).

/// Units in a connection: a rate of one a second earns one unit a millisecond.
const UNIT: i64 = 1000;
/// Earnings of this time are saved up.
const SAVED_MS: i64 = 1000;
/// More than any machine accepts.
const PER_SECOND_MAX: usize = i32::MAX as usize;

/// A bound of new connections a second, on average.
#[derive(Debug)]
pub struct CreationRate {
    per_second: i64,
    balance: i64,
    at_ms: i64,
}

impl Default for CreationRate {
    fn default() -> CreationRate {
        CreationRate::new(usize::MAX)
    }
}

impl CreationRate {
    /// Begins with a second's worth.
    pub fn new(per_second: usize) -> CreationRate {
        let per_second = bounded(per_second);
        CreationRate {
            per_second,
            balance: per_second * SAVED_MS,
            at_ms: i64::MIN,
        }
    }

    pub fn set(&mut self, per_second: usize, now_ms: i64) {
        self.refill(now_ms);
        self.per_second = bounded(per_second);
        self.balance = self.balance.min(self.per_second * SAVED_MS);
    }

    /// Whether another connection may come.
    pub fn has_room(&mut self, now_ms: i64) -> bool {
        self.refill(now_ms);
        self.balance >= UNIT
    }

    /// Counts a connection, also one beyond the rate: it is paid for later.
    pub fn count(&mut self) {
        let debt_max = self.per_second * SAVED_MS;
        self.balance = (self.balance - UNIT).max(-debt_max);
    }

    fn refill(&mut self, now_ms: i64) {
        let elapsed_ms = now_ms.saturating_sub(self.at_ms).clamp(0, SAVED_MS);
        self.at_ms = self.at_ms.max(now_ms);
        let earned = self.balance.saturating_add(elapsed_ms * self.per_second);
        self.balance = earned.min(self.per_second * SAVED_MS);
    }
}

/// A rate of nothing would also lock out the one who changes it back: it counts as one a second.
fn bounded(per_second: usize) -> i64 {
    per_second.clamp(1, PER_SECOND_MAX) as i64
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Connections accepted in this time if there is always one waiting.
    fn accepted(rate: &mut CreationRate, from_ms: i64, until_ms: i64) -> usize {
        let mut count = 0;
        for now_ms in from_ms..until_ms {
            while rate.has_room(now_ms) {
                rate.count();
                count += 1;
            }
        }
        count
    }

    #[test]
    fn the_rate_holds_on_average_after_a_seconds_worth() {
        for per_second in [1, 7, 1_500] {
            let mut rate = CreationRate::new(per_second);
            assert_eq!(accepted(&mut rate, 0, 1), per_second);
            let count = accepted(&mut rate, 1, 10_001);
            assert_eq!(count, 10 * per_second, "{per_second}");
        }
    }

    #[test]
    fn a_rate_of_nothing_is_one_a_second() {
        let mut rate = CreationRate::new(0);
        assert_eq!(accepted(&mut rate, 0, 3_001), 4);
    }

    #[test]
    fn a_changed_rate_does_not_give_what_was_saved_before() {
        let mut rate = CreationRate::default();
        rate.set(3, 0);
        assert_eq!(accepted(&mut rate, 0, 1), 3);
        rate.set(1_000_000, 0);
        assert_eq!(accepted(&mut rate, 0, 1), 0);
        assert_eq!(accepted(&mut rate, 1, 2), 1_000);
    }

    #[test]
    fn a_clock_that_seems_to_go_back_earns_nothing() {
        let mut rate = CreationRate::new(1);
        assert_eq!(accepted(&mut rate, 5_000, 5_001), 1);
        assert!(!rate.has_room(4_000));
        assert!(!rate.has_room(5_999));
        assert!(rate.has_room(6_000));
    }
}
