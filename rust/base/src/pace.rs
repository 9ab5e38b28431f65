//! Limits how often a notice that clients can provoke is emitted.

const WINDOW_MS: i64 = 10_000;

/// See the module. One per kind of notice.
#[derive(Debug, Default)]
pub struct Pace {
    since_ms: Option<i64>,
    told: u32,
    untold: u64,
}

impl Pace {
    /// Whether to emit a notice now, at most `most` in ten seconds; if so, how many were suppressed
    /// since the last.
    pub fn tell(&mut self, most: u32, now_ms: i64) -> Option<u64> {
        let is_over = self
            .since_ms
            .is_none_or(|since| now_ms - since >= WINDOW_MS);
        if is_over {
            self.since_ms = Some(now_ms);
            self.told = 0;
        }
        if self.told >= most {
            self.untold += 1;
            return None;
        }
        self.told += 1;
        Some(std::mem::take(&mut self.untold))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn suppressed_notices_are_counted_in_the_next() {
        let mut pace = Pace::default();
        let told: Vec<_> = (0..5).map(|now_ms| pace.tell(2, now_ms)).collect();
        assert_eq!(told, [Some(0), Some(0), None, None, None]);
        assert_eq!(pace.tell(2, WINDOW_MS - 1), None);
        assert_eq!(pace.tell(2, WINDOW_MS), Some(4));
        assert_eq!(pace.tell(2, WINDOW_MS), Some(0));
        assert_eq!(pace.tell(2, WINDOW_MS + 1), None);
    }
}
