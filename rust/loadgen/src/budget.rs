//! Bounds of a run, in time and in bytes, and what of it is done.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicI64, AtomicU64, Ordering};

/// Shared by all connections of a run.
#[derive(Debug)]
pub struct Budget {
    bytes_left: AtomicI64,
    deadline_ns: Arc<AtomicU64>,
    stopped: AtomicBool,
    records_done: AtomicU64,
    bytes_done: AtomicU64,
}

/// Ends a run early, from a thread that may outlive the run.
#[derive(Clone, Debug)]
pub struct Ending(Arc<AtomicU64>);

impl Ending {
    /// Excludes requests due from `now_ns` on. Earlier ones still belong to the run, so that an end
    /// in the middle of a stall leaves none of the stall out.
    pub fn end_at(&self, now_ns: u64) {
        self.0.fetch_min(now_ns, Ordering::Relaxed);
    }
}

impl Budget {
    /// Ends at `deadline_ns` (monotonic) or after `bytes_max`, whichever is first.
    pub fn new(deadline_ns: u64, bytes_max: u64) -> Self {
        Self {
            bytes_left: AtomicI64::new(i64::try_from(bytes_max).unwrap_or(i64::MAX)),
            deadline_ns: Arc::new(AtomicU64::new(deadline_ns)),
            stopped: AtomicBool::new(false),
            records_done: AtomicU64::new(0),
            bytes_done: AtomicU64::new(0),
        }
    }

    /// Counts measured records of one reply.
    pub fn count(&self, records: u64, bytes: u64) {
        self.records_done.fetch_add(records, Ordering::Relaxed);
        self.bytes_done.fetch_add(bytes, Ordering::Relaxed);
    }

    /// Records and bytes that were counted, of all connections.
    pub fn done(&self) -> (u64, u64) {
        let records = self.records_done.load(Ordering::Relaxed);
        (records, self.bytes_done.load(Ordering::Relaxed))
    }

    /// Lowers the bytes that may still be claimed to `bytes_max`.
    pub fn bound_bytes(&self, bytes_max: u64) {
        let bytes_max = i64::try_from(bytes_max).unwrap_or(i64::MAX);
        self.bytes_left.fetch_min(bytes_max, Ordering::Relaxed);
    }

    /// Takes `bytes` from what is left; false when the run is over. The last claim may exceed the
    /// limit, by less than one request per connection.
    pub fn claim(&self, now_ns: u64, bytes: u64) -> bool {
        if self.is_over(now_ns) {
            return false;
        }
        let bytes = i64::try_from(bytes).unwrap_or(i64::MAX);
        self.bytes_left.fetch_sub(bytes, Ordering::Relaxed) > 0
    }

    /// Whether nothing more may be started.
    pub fn is_over(&self, now_ns: u64) -> bool {
        now_ns >= self.deadline_ns()
            || self.stopped.load(Ordering::Relaxed)
            || self.bytes_left.load(Ordering::Relaxed) <= 0
    }

    /// Ends the run for all connections: one of them failed.
    pub fn stop(&self) {
        self.stopped.store(true, Ordering::Relaxed);
    }

    /// The latest end of the run (monotonic).
    pub fn deadline_ns(&self) -> u64 {
        self.deadline_ns.load(Ordering::Relaxed)
    }

    /// A handle that ends the run earlier.
    pub fn ending(&self) -> Ending {
        Ending(Arc::clone(&self.deadline_ns))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_bound_a_run() {
        let budget = Budget::new(u64::MAX, 100);
        assert!(budget.claim(0, 60));
        assert!(budget.claim(0, 60), "the last claim may exceed the limit");
        assert!(!budget.claim(0, 1));
        assert!(budget.is_over(0));
    }

    #[test]
    fn time_bounds_a_run() {
        let budget = Budget::new(1_000, u64::MAX);
        assert!(budget.claim(999, 1));
        assert!(!budget.claim(1_000, 1));
    }

    #[test]
    fn earlier_deadline_keeps_requests_due_before_it() {
        let budget = Budget::new(1_000, u64::MAX);
        budget.ending().end_at(500);
        assert!(budget.claim(499, 1));
        assert!(!budget.claim(500, 1));
        budget.ending().end_at(2_000);
        assert_eq!(budget.deadline_ns(), 500);
    }

    #[test]
    fn a_bound_lowers_what_is_left_and_never_raises_it() {
        let budget = Budget::new(u64::MAX, 100);
        budget.bound_bytes(1_000);
        assert!(budget.claim(0, 40));
        budget.bound_bytes(50);
        assert!(budget.claim(0, 50));
        assert!(!budget.claim(0, 1));
    }

    #[test]
    fn replies_of_all_connections_add_up() {
        let budget = Budget::new(u64::MAX, u64::MAX);
        budget.count(3, 300);
        budget.count(4, 5);
        assert_eq!(budget.done(), (7, 305));
    }

    #[test]
    fn a_failure_ends_the_run() {
        let budget = Budget::new(u64::MAX, u64::MAX);
        budget.stop();
        assert!(!budget.claim(0, 1));
    }
}
