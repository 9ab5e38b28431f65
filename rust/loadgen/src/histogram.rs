//! Latency percentiles from a log-linear histogram.
//!
//! Values are nanoseconds. Below 128 each value has a bucket of its own; above, every power of two
//! is divided into 128 buckets of equal width, so a percentile is reported at most 1/128 (0.8 %)
//! above the true value. Recording is one shift and one increment, and never allocates.

const SUB_BUCKET_BITS: u32 = 7;
const SUB_BUCKETS: usize = 1 << SUB_BUCKET_BITS;
/// Values below 128 in the first 128 buckets, then one group for each exponent from 7 to 63.
const BUCKETS: usize = (64 - SUB_BUCKET_BITS as usize + 1) * SUB_BUCKETS;

/// A histogram of the whole range of `u64`; about 58 KiB.
#[derive(Clone, Debug)]
pub struct Histogram {
    counts: Vec<u64>,
    total: u64,
    max: u64,
}

impl Default for Histogram {
    fn default() -> Self {
        Self {
            counts: vec![0; BUCKETS],
            total: 0,
            max: 0,
        }
    }
}

impl Histogram {
    /// Counts one value.
    pub fn record(&mut self, value: u64) {
        self.counts[bucket_of(value)] += 1;
        self.total += 1;
        self.max = self.max.max(value);
    }

    /// Adds everything that `other` counted.
    pub fn merge(&mut self, other: &Histogram) {
        for (mine, theirs) in self.counts.iter_mut().zip(&other.counts) {
            *mine += theirs;
        }
        self.total += other.total;
        self.max = self.max.max(other.max);
    }

    /// How many values were counted.
    pub fn count(&self) -> u64 {
        self.total
    }

    /// The largest value, exactly; 0 when nothing was counted.
    pub fn max(&self) -> u64 {
        self.max
    }

    /// The smallest bucket bound that at least `percent` of the values do not exceed, never more
    /// than [`Histogram::max`]; 0 when nothing was counted.
    ///
    /// `percent` lies in 0..=100; what is outside is taken as the nearer end.
    pub fn percentile(&self, percent: f64) -> u64 {
        if self.total == 0 {
            return 0;
        }
        let share = percent.clamp(0.0, 100.0) / 100.0;
        let rank = ((share * self.total as f64).ceil() as u64).clamp(1, self.total);
        let mut seen = 0;
        for (bucket, count) in self.counts.iter().enumerate() {
            seen += count;
            if seen >= rank {
                return highest_of(bucket).min(self.max);
            }
        }
        self.max
    }
}

fn bucket_of(value: u64) -> usize {
    if value < SUB_BUCKETS as u64 {
        return value as usize;
    }
    let shift = 63 - value.leading_zeros() - SUB_BUCKET_BITS;
    let group = (shift as usize + 1) << SUB_BUCKET_BITS;
    group + (value >> shift) as usize - SUB_BUCKETS
}

fn highest_of(bucket: usize) -> u64 {
    if bucket < SUB_BUCKETS {
        return bucket as u64;
    }
    let shift = (bucket >> SUB_BUCKET_BITS) as u32 - 1;
    let lowest = ((bucket & (SUB_BUCKETS - 1)) + SUB_BUCKETS) as u64;
    (lowest << shift) + ((1_u64 << shift) - 1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_value_lies_in_its_bucket_and_buckets_touch() {
        let mut previous_highest = None;
        for bucket in 0..BUCKETS {
            let highest = highest_of(bucket);
            assert_eq!(bucket_of(highest), bucket);
            let lowest = previous_highest.map_or(0, |value: u64| value + 1);
            assert_eq!(bucket_of(lowest), bucket);
            assert!((highest - lowest) as f64 <= lowest as f64 / 128.0);
            previous_highest = Some(highest);
        }
        assert_eq!(previous_highest, Some(u64::MAX));
    }

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
        for percent in [0.0, 50.0, 99.9, 100.0, 250.0] {
            assert_eq!(histogram.percentile(percent), 777_777);
        }
    }

    #[test]
    fn empty_is_zero() {
        let histogram = Histogram::default();
        assert_eq!(histogram.percentile(99.0), 0);
        assert_eq!(histogram.max(), 0);
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
        assert_eq!((left.total, left.max), (both.total, both.max));
    }
}
