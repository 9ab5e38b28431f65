//! Limits the rate at which out-of-sync replicas are copied (KIP-73).
//!
//! A broker has one rate as leader and one as follower; topics name the throttled replicas. All
//! their bytes count, but only out-of-sync replicas are held back: a throttle must not shrink the
//! ISR.
//!
//! The rate is an average: what was not used within a window is saved; an answer beyond the balance
//! is sent whole and paid for afterwards. A new rate begins with a second's worth.

use std::sync::atomic::{AtomicI64, AtomicU64, Ordering};

use parking_lot::Mutex;

const UNLIMITED: u64 = u64::MAX;

/// Window until it is set.
const WINDOW_MS: i64 = 1000;

/// A waiter checks again within this time, since the rate may change.
const LOOK_MAX_MS: i64 = 250;

/// Replicas of one topic whose traffic counts.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ThrottledReplicas {
    /// `*`
    All,
    /// (partition, broker), ascending.
    These(Vec<(i32, i32)>),
}

impl Default for ThrottledReplicas {
    fn default() -> ThrottledReplicas {
        ThrottledReplicas::These(Vec::new())
    }
}

impl ThrottledReplicas {
    /// These (partition, broker) pairs.
    pub fn these(mut replicas: Vec<(i32, i32)>) -> ThrottledReplicas {
        replicas.sort_unstable();
        ThrottledReplicas::These(replicas)
    }

    /// Whether it includes the broker's replica of the partition.
    pub fn holds(&self, partition: i32, broker: i32) -> bool {
        match self {
            ThrottledReplicas::All => true,
            ThrottledReplicas::These(pairs) => pairs.binary_search(&(partition, broker)).is_ok(),
        }
    }
}

/// A topic's two lists.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Throttled {
    /// `leader.replication.throttled.replicas`
    pub leading: ThrottledReplicas,
    /// `follower.replication.throttled.replicas`
    pub following: ThrottledReplicas,
}

/// One of a broker's two rates. Without a limit a check costs one load.
#[derive(Debug)]
pub struct ReplicationQuota {
    rate_bytes: AtomicU64,
    window_ms: AtomicI64,
    counted_bytes: AtomicU64,
    bucket: Mutex<Bucket>,
}

impl Default for ReplicationQuota {
    fn default() -> ReplicationQuota {
        ReplicationQuota {
            rate_bytes: AtomicU64::new(UNLIMITED),
            window_ms: AtomicI64::new(WINDOW_MS),
            counted_bytes: AtomicU64::new(0),
            bucket: Mutex::default(),
        }
    }
}

impl ReplicationQuota {
    /// Sets the rate in bytes a second; `None` is unlimited.
    pub fn set_rate(&self, bytes: Option<u64>, now_ms: i64) {
        let bytes = bytes.unwrap_or(UNLIMITED);
        let mut bucket = self.bucket.lock();
        let before = self.rate_bytes.swap(bytes, Ordering::Relaxed);
        if before == UNLIMITED {
            *bucket = Bucket::of_a_second(bytes, now_ms);
        } else {
            self.refill(&mut bucket, before, now_ms);
        }
    }

    /// Whether nothing may ever pass.
    pub fn is_zero(&self) -> bool {
        self.rate_bytes.load(Ordering::Relaxed) == 0
    }

    /// Sets the time over which the rate is averaged, at least a second.
    pub fn set_window_ms(&self, window_ms: i64) {
        let window_ms = window_ms.max(WINDOW_MS);
        self.window_ms.store(window_ms, Ordering::Relaxed);
    }

    fn refill(&self, bucket: &mut Bucket, rate_bytes: u64, now_ms: i64) {
        bucket.refill(rate_bytes, self.window_ms.load(Ordering::Relaxed), now_ms);
    }

    /// Whether there is a limit.
    pub fn is_limited(&self) -> bool {
        self.rate_bytes.load(Ordering::Relaxed) != UNLIMITED
    }

    /// Whether the balance is used up.
    pub fn is_exceeded(&self, now_ms: i64) -> bool {
        if !self.is_limited() {
            return false;
        }
        let mut bucket = self.bucket.lock();
        self.refill(&mut bucket, self.rate_bytes.load(Ordering::Relaxed), now_ms);
        bucket.balance <= 0
    }

    /// Counts bytes of throttled replicas.
    pub fn count(&self, bytes: usize, now_ms: i64) {
        if bytes == 0 || !self.is_limited() {
            return;
        }
        self.counted_bytes
            .fetch_add(bytes as u64, Ordering::Relaxed);
        let mut bucket = self.bucket.lock();
        self.refill(&mut bucket, self.rate_bytes.load(Ordering::Relaxed), now_ms);
        bucket.balance -= bytes as i128 * UNIT;
    }

    /// When the balance may be positive again (monotonic milliseconds).
    pub fn look_ms(&self, now_ms: i64) -> i64 {
        let rate = i128::from(self.rate_bytes.load(Ordering::Relaxed));
        let missing = -self.bucket.lock().balance;
        let wait_ms = missing.checked_div(rate).unwrap_or(i128::MAX);
        let wait_ms = i64::try_from(wait_ms).unwrap_or(i64::MAX).max(0);
        now_ms + wait_ms.saturating_add(1).min(LOOK_MAX_MS)
    }

    /// Bytes counted so far.
    pub fn counted_bytes(&self) -> u64 {
        self.counted_bytes.load(Ordering::Relaxed)
    }
}

/// Units in a byte: a rate of one byte a second earns one unit a millisecond.
const UNIT: i128 = 1000;

/// `balance` is in units, negative after sending too much.
#[derive(Clone, Copy, Debug, Default)]
struct Bucket {
    balance: i128,
    at_ms: i64,
}

impl Bucket {
    fn of_a_second(rate_bytes: u64, now_ms: i64) -> Bucket {
        Bucket {
            balance: i128::from(rate_bytes) * UNIT,
            at_ms: now_ms,
        }
    }

    fn refill(&mut self, rate_bytes: u64, window_ms: i64, now_ms: i64) {
        // Threads read the clock before they lock: time may seem to go back.
        let elapsed_ms = (now_ms - self.at_ms).max(0);
        self.at_ms += elapsed_ms;
        let rate = i128::from(rate_bytes);
        let most = rate * i128::from(window_ms);
        self.balance = (self.balance + i128::from(elapsed_ms) * rate).min(most);
    }
}

/// A broker's rates.
#[derive(Debug, Default)]
pub struct ReplicationQuotas {
    /// `leader.replication.throttled.rate`
    pub leader: ReplicationQuota,
    /// `follower.replication.throttled.rate`
    pub follower: ReplicationQuota,
    /// `pyrklog.expansion.rate`: of all back-fills together.
    pub back_fill: ReplicationQuota,
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Bytes sent in `seconds` if an answer of this size is always available.
    fn sent_bytes(quota: &ReplicationQuota, from_ms: i64, seconds: i64, answer: usize) -> usize {
        let mut sent = 0;
        for now_ms in from_ms..from_ms + seconds * 1000 {
            if !quota.is_exceeded(now_ms) {
                quota.count(answer, now_ms);
                sent += answer;
            }
        }
        sent
    }

    #[test]
    fn rate_holds_on_average_for_any_response_size() {
        for rate in [7, 1_000, 1_000_000] {
            for answer in [1, 100, 10_000_000] {
                let quota = ReplicationQuota::default();
                quota.set_rate(Some(rate), 0);
                let sent = sent_bytes(&quota, 0, 100, answer) as u64;
                // At most one answer a millisecond is tried.
                let least = (100 * rate).min(100_000 * answer as u64);
                let most = 101 * rate + answer as u64;
                assert!((least..=most).contains(&sent), "{rate} {answer}: {sent}");
                assert_eq!(quota.counted_bytes(), sent);
            }
        }
    }

    #[test]
    fn what_is_not_used_within_the_window_may_be_sent_at_once() {
        for (window_ms, saved_seconds) in [(10_000, 10), (1_000, 1), (0, 1)] {
            let quota = ReplicationQuota::default();
            quota.set_window_ms(window_ms);
            quota.set_rate(Some(1_000), 0);
            // A new rate has saved nothing yet but its first second.
            assert_eq!(sent_bytes(&quota, 0, 1, 100), 2_000);
            let later_ms = 1_000_000;
            let sent = sent_bytes(&quota, later_ms, 1, 100);
            assert_eq!(sent, saved_seconds * 1_000 + 1_000, "{window_ms}");
        }
    }

    #[test]
    fn without_a_rate_nothing_is_held_nor_counted() {
        let quota = ReplicationQuota::default();
        quota.count(1 << 40, 0);
        assert!(!quota.is_limited() && !quota.is_exceeded(0));
        assert_eq!(quota.counted_bytes(), 0);
    }

    #[test]
    fn a_rate_of_nothing_lets_nothing_through_until_it_is_changed() {
        let quota = ReplicationQuota::default();
        quota.set_rate(Some(0), 0);
        assert!(quota.is_exceeded(1_000_000));
        assert_eq!(quota.look_ms(1_000_000), 1_000_000 + LOOK_MAX_MS);
        quota.set_rate(Some(10), 1_000_000);
        assert!(!quota.is_exceeded(1_000_001));
        quota.set_rate(None, 1_000_001);
        assert!(!quota.is_exceeded(1_000_001));
    }

    #[test]
    fn a_throttled_reader_looks_when_the_debt_is_paid_or_soon() {
        let quota = ReplicationQuota::default();
        quota.set_rate(Some(1_000), 0);
        quota.count(1_100, 0);
        assert!(quota.is_exceeded(0));
        assert_eq!(quota.look_ms(0), 101);
        assert!(quota.is_exceeded(100) && !quota.is_exceeded(101));
        quota.count(1_000_000, 101);
        assert_eq!(quota.look_ms(101), 101 + LOOK_MAX_MS);
        quota.set_rate(Some(1_000_000), 101);
        assert!(quota.is_exceeded(1_000) && !quota.is_exceeded(1_102));
    }

    #[test]
    fn a_clock_that_another_thread_read_earlier_does_no_harm() {
        let quota = ReplicationQuota::default();
        quota.set_rate(Some(1_000), 0);
        quota.count(2_000, 500);
        assert!(quota.is_exceeded(400) && quota.is_exceeded(1_500));
        assert!(!quota.is_exceeded(1_501));
    }

    #[test]
    fn lists_name_replicas_by_partition_and_broker() {
        let list = ThrottledReplicas::these(vec![(7, 1), (0, 2), (7, 3)]);
        assert!(list.holds(0, 2) && list.holds(7, 1) && list.holds(7, 3));
        assert!(!list.holds(0, 1) && !list.holds(7, 2) && !list.holds(1, 2));
        assert!(ThrottledReplicas::All.holds(5, 5));
        assert!(!ThrottledReplicas::default().holds(0, 1));
    }
}
