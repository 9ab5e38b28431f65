//! Latency percentiles.
//!
//! Values are nanoseconds. A percentile is reported at most 1/128 (0.8 %) above the true value, and
//! never above the largest value, which is exact. Recording never allocates.

/// With two digits every power of two is divided into 128 buckets.
const SIGNIFICANT_DIGITS: u8 = 2;

/// A histogram of the whole range of `u64`; about 58 KiB.
#[derive(Clone, Debug)]
pub struct Histogram {
    counts: hdrhistogram::Histogram<u64>,
    max: u64,
}

impl Default for Histogram {
    fn default() -> Self {
        Self {
            counts: hdrhistogram::Histogram::new_with_max(u64::MAX, SIGNIFICANT_DIGITS)
                .expect("both are within bounds"),
            max: 0,
        }
    }
}

impl Histogram {
    /// Counts one value.
    pub fn record(&mut self, value: u64) {
        self.counts.saturating_record(value);
        self.max = self.max.max(value);
    }

    /// Adds everything that `other` counted.
    pub fn merge(&mut self, other: &Histogram) {
        self.counts
            .add(&other.counts)
            .expect("both have the same range");
        self.max = self.max.max(other.max);
    }

    /// The number of values.
    pub fn count(&self) -> u64 {
        self.counts.len()
    }

    /// The largest value, exactly; 0 when nothing was counted.
    pub fn max(&self) -> u64 {
        self.max
    }

    /// The smallest bucket bound that at least `percent` of the values do not exceed, never more
    /// than [`Histogram::max`]; 0 when nothing was counted.
    pub fn percentile(&self, percent: f64) -> u64 {
        self.counts.value_at_percentile(percent).min(self.max)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn percentiles_of_a_known_sample() {
        let mut histogram = Histogram::default();
        for value in 1..=10_000_u64 {
            histogram.record(value * 1_000);
        }
        for (percent, exact) in [(50.0, 5_000_000), (99.0, 9_900_000), (99.9, 9_990_000)] {
            let found = histogram.percentile(percent);
            assert!(
                found >= exact && found <= exact + exact / 128,
                "{percent}: {found}"
            );
        }
        assert_eq!(histogram.percentile(100.0), 10_000_000);
        assert_eq!(histogram.max(), 10_000_000);
        assert_eq!(histogram.count(), 10_000);
    }

    #[test]
    fn one_value_is_every_percentile() {
        let mut histogram = Histogram::default();
        histogram.record(777_777);
        for percent in [1.0, 50.0, 99.9, 100.0, 250.0] {
            assert_eq!(histogram.percentile(percent), 777_777);
        }
    }

    #[test]
    fn merging_equals_recording_together() {
        let (mut left, mut right, mut both) = (
            Histogram::default(),
            Histogram::default(),
            Histogram::default(),
        );
        for value in 0..5_000_u64 {
            let spread = value * value * 31;
            if value % 3 == 0 {
                left.record(spread)
            } else {
                right.record(spread)
            }
            both.record(spread);
        }
        left.merge(&right);
        assert_eq!(left.counts, both.counts);
        assert_eq!(left.max, both.max);
    }
}
