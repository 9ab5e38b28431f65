//! Threads that validate batches which expand beyond what a network thread should process.
//!
//! A network thread expands and recompresses up to [`INLINE_MAX_BYTES`] of a request. Beyond that
//! the request goes here with a copy of its frame. Its connection handles nothing else meanwhile,
//! so batches keep their order; the thread goes on with other connections.
//!
//! Requests wait in lanes, by the hash of their first topic's name. The threads take lanes in turn,
//! so that a topic whose requests expand most delays only its own lane. A connection has at most
//! one request here. Waiting requests are bounded in number and bytes and count as receive memory;
//! beyond the bound requests are refused. The number of threads bounds what is expanded at a time.

use std::collections::VecDeque;
use std::hash::BuildHasher;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use parking_lot::{Condvar, Mutex};
use pyrklog_log::compression::EXPANDED_BYTES_MAX_DEFAULT;

use crate::produce::verdicts::{ToValidate, validate};
use pyrklog_base::clock::Now;
use pyrklog_base::hash::WordHash;
use pyrklog_base::mailbox::Mailbox;
use pyrklog_base::memory_budget::{Held, MemoryBudget};

/// What a network thread expands of one request.
pub const INLINE_MAX_BYTES: usize = 1024 * 1024;

const LANES: usize = 16;

const WAITING_MAX: usize = 1_000;

/// Divisor of the receive memory that they may hold.
const RECEIVE_MEMORY_SHARE: usize = 4;

/// Divisor of the receive memory that a batch may expand to, and the minimum.
const EXPANDED_SHARE: usize = 2;
const EXPANDED_MIN_BYTES: usize = 16 * 1024 * 1024;

/// A request at the validators.
#[derive(Debug)]
pub struct ValidateJob {
    /// The request, with a copy of its frame.
    pub work: Box<ToValidate>,
    /// The request no longer waits.
    pub is_abandoned: Arc<AtomicBool>,
    _receive_memory: Held,
}

#[derive(Debug)]
struct Inner {
    lanes: [VecDeque<Box<ValidateJob>>; LANES],
    next_lane: usize,
    waiting: usize,
    bytes: usize,
    is_stopped: bool,
}

/// See the module.
#[derive(Debug)]
pub struct Validators {
    /// Number of threads.
    pub threads: usize,
    /// Limit of a batch's expanded size.
    pub expanded_max_bytes: usize,
    budget: Arc<MemoryBudget>,
    max_bytes: usize,
    inner: Mutex<Inner>,
    wake: Condvar,
    running: AtomicUsize,
}

/// Limit of a batch's expanded size, for receive memory of `receive_max_bytes`.
fn expanded_max_bytes(receive_max_bytes: usize) -> usize {
    let share = receive_max_bytes / EXPANDED_SHARE;
    share.clamp(EXPANDED_MIN_BYTES, EXPANDED_BYTES_MAX_DEFAULT)
}

impl Validators {
    /// For `network_threads`; `budget` is the receive memory's.
    pub fn new(
        network_threads: usize,
        receive_max_bytes: usize,
        budget: Arc<MemoryBudget>,
    ) -> Validators {
        let expanded_max_bytes = expanded_max_bytes(receive_max_bytes);
        // An expanded batch, and its recompressed form.
        let affordable = receive_max_bytes / (2 * expanded_max_bytes);
        let inner = Inner {
            lanes: Default::default(),
            next_lane: 0,
            waiting: 0,
            bytes: 0,
            is_stopped: false,
        };
        Validators {
            threads: affordable.clamp(1, network_threads.div_ceil(2).max(1)),
            expanded_max_bytes,
            budget,
            max_bytes: receive_max_bytes / RECEIVE_MEMORY_SHARE,
            inner: Mutex::new(inner),
            wake: Condvar::new(),
            running: AtomicUsize::new(0),
        }
    }

    /// Adds a request of `topic`; returns its flag for being abandoned.
    ///
    /// # Errors
    /// The request, without room. The first one always fits.
    pub fn submit(
        &self,
        topic: &str,
        work: Box<ToValidate>,
    ) -> Result<Arc<AtomicBool>, Box<ToValidate>> {
        let bytes = work.frame.len();
        let mut inner = self.inner.lock();
        let is_too_much = inner.waiting >= WAITING_MAX || inner.bytes + bytes > self.max_bytes;
        if inner.is_stopped || is_too_much && inner.waiting > 0 {
            return Err(work);
        }
        let is_abandoned = Arc::new(AtomicBool::new(false));
        let job = ValidateJob {
            work,
            is_abandoned: Arc::clone(&is_abandoned),
            _receive_memory: Held::new(&self.budget, bytes),
        };
        let lane = (WordHash.hash_one(topic) >> 32) as usize % LANES;
        inner.lanes[lane].push_back(Box::new(job));
        inner.waiting += 1;
        inner.bytes += bytes;
        self.wake.notify_one();
        Ok(is_abandoned)
    }

    /// Number of waiting requests.
    pub fn waiting(&self) -> usize {
        self.inner.lock().waiting
    }

    /// Number of requests being validated.
    pub fn running(&self) -> usize {
        self.running.load(Ordering::Relaxed)
    }

    /// Ends the threads after their current requests and drops those that wait.
    pub fn stop(&self) {
        let mut inner = self.inner.lock();
        inner.is_stopped = true;
        inner.lanes = Default::default();
        inner.waiting = 0;
        inner.bytes = 0;
        self.wake.notify_all();
    }

    /// The next request; `None` at the end.
    fn take(&self) -> Option<Box<ValidateJob>> {
        let mut inner = self.inner.lock();
        loop {
            if inner.is_stopped {
                return None;
            }
            for _ in 0..LANES {
                let lane = inner.next_lane;
                inner.next_lane = (lane + 1) % LANES;
                if let Some(job) = inner.lanes[lane].pop_front() {
                    inner.waiting -= 1;
                    inner.bytes -= job.work.frame.len();
                    return Some(job);
                }
            }
            self.wake.wait(&mut inner);
        }
    }
}

/// Runs one thread until the end.
pub fn run(validators: &Validators, mailbox: &dyn Mailbox<Box<ValidateJob>>) {
    while let Some(mut job) = validators.take() {
        validators.running.fetch_add(1, Ordering::Relaxed);
        let now_ms = Now::read().wall_ms;
        let place = job.work.place;
        let is_done = validate(&mut job.work, now_ms, &job.is_abandoned);
        validators.running.fetch_sub(1, Ordering::Relaxed);
        if is_done {
            mailbox.post(place, job);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use pyrklog_base::ids::Place;

    fn work(token: u64, bytes: usize) -> Box<ToValidate> {
        Box::new(ToValidate {
            place: Place { thread: 0, token },
            frame: vec![0; bytes],
            ..ToValidate::default()
        })
    }

    fn validators(max_bytes: usize) -> Validators {
        let budget = Arc::new(MemoryBudget::new(1 << 30));
        Validators::new(1, max_bytes * RECEIVE_MEMORY_SHARE, budget)
    }

    #[test]
    fn lanes_take_turns_and_a_topic_keeps_its_order() {
        let validators = validators(1 << 20);
        for token in 0..50 {
            validators.submit("greedy", work(token, 10)).unwrap();
        }
        let lane = |topic: &str| (WordHash.hash_one(topic) >> 32) as usize % LANES;
        let names: Vec<String> = (0..100).map(|at| format!("modest-{at}")).collect();
        let other = names.iter().find(|name| lane(name) != lane("greedy"));
        validators.submit(other.unwrap(), work(99, 10)).unwrap();
        let taken: Vec<u64> = (0..4)
            .map(|_| validators.take().unwrap().work.place.token)
            .collect();
        assert!(taken[..2].contains(&99), "{taken:?}");
        let of_greedy: Vec<u64> = taken.into_iter().filter(|token| *token != 99).collect();
        assert_eq!(of_greedy, [0, 1, 2]);
    }

    #[test]
    fn what_waits_is_bounded_and_counted_until_it_is_dropped() {
        let validators = validators(100);
        validators.submit("t", work(1, 1000)).unwrap();
        assert!(validators.submit("t", work(2, 1)).is_err());
        assert_eq!(validators.budget.used_bytes(), 1000);
        let job = validators.take().unwrap();
        assert_eq!(
            (validators.waiting(), validators.budget.used_bytes()),
            (0, 1000)
        );
        drop(job);
        assert_eq!(validators.budget.used_bytes(), 0);
        for token in 0..2 {
            validators.submit("t", work(token, 50)).unwrap();
        }
        assert!(validators.submit("t", work(3, 1)).is_err());
        validators.stop();
        assert_eq!(validators.budget.used_bytes(), 0);
        assert!(validators.take().is_none());
    }
}
