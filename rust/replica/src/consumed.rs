//! Where consumers read a partition: the lowest offset that one fetched within a while
//! (`expansion.md`, section 7).

use std::collections::VecDeque;

const SLOT_MS: i64 = 5_000;
/// Windows are at most as long.
pub const WINDOW_MAX_MS: i64 = 1_200_000;

/// Fetches of the last twenty minutes, in slots of which each has its lowest offset. A slot is left
/// out once a later one has a lower offset, so offsets rise from the oldest to the newest.
#[derive(Debug, Default)]
pub struct Consumed {
    /// Nothing before is known (monotonic milliseconds).
    since_ms: i64,
    lowest: VecDeque<(i64, i64)>,
}

impl Consumed {
    /// Nothing is known of before.
    pub fn since(now_ms: i64) -> Consumed {
        Consumed {
            since_ms: now_ms,
            lowest: VecDeque::new(),
        }
    }

    /// A consumer fetches there.
    pub fn note(&mut self, offset: i64, now_ms: i64) {
        // Threads read the clock before they lock: time may seem to go back.
        let newest = self.lowest.back().map_or(i64::MIN, |(slot, _)| *slot);
        let slot = now_ms.div_euclid(SLOT_MS).max(newest);
        if slot == newest
            && self
                .lowest
                .back()
                .is_some_and(|(_, lowest)| *lowest <= offset)
        {
            return;
        }
        while self
            .lowest
            .back()
            .is_some_and(|(_, lowest)| *lowest >= offset)
        {
            self.lowest.pop_back();
        }
        self.lowest.push_back((slot, offset));
        let oldest = (now_ms - WINDOW_MAX_MS).div_euclid(SLOT_MS);
        while self.lowest.front().is_some_and(|(slot, _)| *slot < oldest) {
            self.lowest.pop_front();
        }
    }

    /// The lowest offset within the last `window_ms`, or `i64::MAX` if nobody fetched. `None` if it
    /// is not known of all that time.
    pub fn lowest_within(&self, window_ms: i64, now_ms: i64) -> Option<i64> {
        let from_ms = now_ms - window_ms;
        if self.since_ms > from_ms || window_ms > WINDOW_MAX_MS {
            return None;
        }
        let within = |(slot, _): &&(i64, i64)| *slot >= from_ms.div_euclid(SLOT_MS);
        let found = self.lowest.iter().find(within);
        Some(found.map_or(i64::MAX, |(_, lowest)| *lowest))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_is_said_of_a_time_before() {
        let consumed = Consumed::since(5_000);
        assert_eq!(consumed.lowest_within(2_000, 6_999), None);
        assert_eq!(consumed.lowest_within(2_000, 7_000), Some(i64::MAX));
        assert_eq!(consumed.lowest_within(WINDOW_MAX_MS + 1, i64::MAX), None);
    }

    #[test]
    fn an_old_fetch_is_forgotten_and_a_low_one_is_not() {
        let mut consumed = Consumed::since(0);
        consumed.note(10, 5_000);
        consumed.note(50, 9_000);
        assert_eq!(consumed.lowest_within(1_000, 10_000), Some(10));
        consumed.note(70, 25_000);
        assert_eq!(consumed.lowest_within(5_000, 27_000), Some(70));
        assert_eq!(consumed.lowest_within(25_000, 27_000), Some(10));
        consumed.note(5, 30_000);
        assert_eq!(consumed.lowest_within(5_000, 32_000), Some(5));
        assert_eq!(consumed.lowest_within(5_000, 45_000), Some(i64::MAX));
    }

    /// Never too high, and of at most a slot more than the window.
    #[test]
    fn it_is_the_lowest_of_a_window() {
        // Steps that repeat late enough to meet each offset at many distances.
        let steps = (1_i64..400).map(|n| (n * 7919 % 40, n * 104_729 % 15_000));
        let mut consumed = Consumed::since(-WINDOW_MAX_MS);
        let mut now_ms = 0;
        let mut all = Vec::new();
        for (offset, passed_ms) in steps {
            now_ms += passed_ms;
            consumed.note(offset, now_ms);
            all.push((now_ms, offset));
            assert!(
                consumed
                    .lowest
                    .iter()
                    .is_sorted_by(|a, b| a.0 < b.0 && a.1 < b.1)
            );
            let lowest = |from_ms: i64| {
                let within = all.iter().filter(|(at_ms, _)| *at_ms >= from_ms);
                within.map(|(_, offset)| *offset).min().unwrap_or(i64::MAX)
            };
            for window_ms in [0, 1_000, 4_999, 20_000, 100_000, WINDOW_MAX_MS] {
                if let Some(found) = consumed.lowest_within(window_ms, now_ms) {
                    let from_ms = now_ms - window_ms;
                    assert!(found <= lowest(from_ms) && found >= lowest(from_ms - SLOT_MS));
                }
            }
        }
    }
}
