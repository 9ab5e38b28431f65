//! One bounded queue of work that may wait for a disk, with its own threads.
//!
//! Threads start on demand and end when idle for long. Each records when it began its current step
//! (one partition's read, one piece sent). A queue is *stuck*, rather than busy, when all its
//! possible threads are at a step for too long.

use std::collections::VecDeque;
use std::fmt::{self, Debug};
use std::sync::atomic::{AtomicI64, AtomicU64, AtomicUsize, Ordering};
use std::time::Duration;

use parking_lot::{Condvar, Mutex};

use pyrklog_base::clock::mono_ms;
use pyrklog_base::ids::QueueId;

/// A step that takes longer hangs.
pub const STUCK_MS: i64 = 1_000;

/// A thread without work for this long ends.
pub const IDLE_MS: u64 = 30_000;

/// Most threads of a queue, also after its limit was raised.
pub const THREADS_MAX: usize = 256;

/// Limit of waiting jobs; see [`Job::is_bounded`].
pub const QUEUE_MAX_JOBS: usize = 1_000;

/// Work that may wait for a disk. It holds what it needs and reports its own result.
pub trait Job: Debug + Send {
    /// Does the work; `buffer` belongs to the thread.
    fn run(self: Box<Self>, worker: &ReaderWorker<'_>, buffer: &mut Vec<u8>);

    /// Whether a full queue refuses it. Sends are bounded by connections, with at most one each;
    /// closing, by the number of open files.
    fn is_bounded(&self) -> bool {
        true
    }

    /// Whether its result is no longer needed.
    fn is_abandoned(&self) -> bool {
        false
    }

    /// Whether it counts as a job in the statistics.
    fn is_counted(&self) -> bool {
        true
    }

    /// Whether it also waits for other things than disks.
    fn sends(&self) -> bool {
        false
    }

    /// Called when the plane shuts down before a thread took the job.
    fn fail(&self) {}
}

/// What a queue is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// Reads by offset of some of the topics, and sending.
    Fetch(u16),
    /// Reading ahead.
    Ahead,
    /// Conversion of batches that expand to much. Its thread may compute for long.
    Expand,
    /// Look-ups by time.
    LookUp,
    /// Reads of internal topics.
    Internal,
    /// Digests of replicas.
    Digest,
    /// Closing files.
    Close,
}

impl fmt::Display for Kind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Kind::Fetch(number) => write!(f, "fetch-{number}"),
            Kind::Ahead => f.write_str("ahead"),
            Kind::Expand => f.write_str("expand"),
            Kind::LookUp => f.write_str("lookup"),
            Kind::Internal => f.write_str("internal"),
            Kind::Digest => f.write_str("digest"),
            Kind::Close => f.write_str("close"),
        }
    }
}

/// When a thread began its current step.
#[derive(Debug)]
pub struct Step(AtomicI64);

const NO_STEP: i64 = i64::MAX;

impl Default for Step {
    fn default() -> Step {
        Step(AtomicI64::new(NO_STEP))
    }
}

impl Step {
    /// Begins a step.
    pub fn begin(&self) {
        self.0.store(mono_ms(), Ordering::Relaxed);
    }

    /// Ends the step.
    pub fn end(&self) {
        self.0.store(NO_STEP, Ordering::Relaxed);
    }

    /// Age of the current step; `None` between steps.
    pub fn age_ms(&self, now_ms: i64) -> Option<i64> {
        let began_ms = self.0.load(Ordering::Relaxed);
        (began_ms != NO_STEP).then(|| (now_ms - began_ms).max(0))
    }
}

#[derive(Debug, Default)]
struct Inner {
    /// Each with the time of its arrival.
    jobs: VecDeque<(i64, Box<dyn Job>)>,
    /// Threads that are being started.
    starting: usize,
    idle: usize,
    /// Which slots threads have. Those from the queue's limit on belong to surplus threads, which
    /// are about to end.
    taken: Vec<bool>,
    is_stopped: bool,
    /// The remaining jobs were taken; no more are accepted.
    is_closed: bool,
}

/// State of a queue, for monitoring.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ReaderQueueDepth {
    /// Jobs that no thread has taken.
    pub waiting: usize,
    /// Jobs that threads work on.
    pub running: usize,
    /// Age of the oldest waiting job.
    pub oldest_wait_ms: i64,
    /// How long all its threads have been at their steps; 0 when one is free.
    pub stalled_ms: i64,
    /// Jobs refused so far because the queue was full or stuck.
    pub rejected: u64,
}

/// See the module.
#[derive(Debug)]
pub struct ReaderQueue {
    /// Its name.
    pub id: QueueId,
    /// What it is for.
    pub kind: Kind,
    /// The log directory.
    pub dir: usize,
    /// Most threads.
    limit: AtomicUsize,
    idle: Duration,
    inner: Mutex<Inner>,
    wake: Condvar,
    steps: Box<[Step]>,
    rejected: AtomicU64,
}

impl ReaderQueue {
    /// A queue with up to `max_threads` threads, which end when idle for `idle_ms`.
    pub fn new(id: QueueId, kind: Kind, max_threads: usize, idle_ms: u64) -> ReaderQueue {
        let limit = max_threads.clamp(1, THREADS_MAX);
        let inner = Inner {
            taken: vec![false; THREADS_MAX],
            ..Inner::default()
        };
        ReaderQueue {
            id,
            kind,
            dir: usize::from(id.dir),
            limit: AtomicUsize::new(limit),
            idle: Duration::from_millis(idle_ms),
            inner: Mutex::new(inner),
            wake: Condvar::new(),
            steps: (0..THREADS_MAX).map(|_| Step::default()).collect(),
            rejected: AtomicU64::new(0),
        }
    }

    /// Adds a job; true if the caller must start a thread.
    ///
    /// # Errors
    /// The job, when the queue is full or closed.
    pub fn push<J: Job + 'static>(&self, job: Box<J>) -> Result<bool, Box<J>> {
        let mut inner = self.inner.lock();
        if inner.is_closed {
            return Err(job);
        }
        if inner.jobs.len() >= QUEUE_MAX_JOBS && job.is_bounded() {
            drop(inner);
            self.reject();
            return Err(job);
        }
        inner.jobs.push_back((mono_ms(), job));
        let needs_thread = inner.claim_thread(self.limit());
        let wake = inner.idle > 0;
        drop(inner);
        if wake {
            self.wake.notify_one();
        }
        Ok(needs_thread)
    }

    fn limit(&self) -> usize {
        self.limit.load(Ordering::Relaxed)
    }

    /// Changes the number of threads. Surplus ones end after their current jobs.
    pub fn set_max_threads(&self, max_threads: usize) {
        let _inner = self.inner.lock();
        let limit = max_threads.clamp(1, THREADS_MAX);
        self.limit.store(limit, Ordering::Relaxed);
        self.wake.notify_all();
    }

    /// Whether the caller must start a thread for jobs that wait.
    pub fn claim_thread(&self) -> bool {
        let mut inner = self.inner.lock();
        !inner.is_stopped && inner.claim_thread(self.limit())
    }

    /// Whether a new job is likely to be done; otherwise counts a rejection.
    pub fn accepts(&self, now_ms: i64) -> bool {
        let is_full = self.inner.lock().jobs.len() >= QUEUE_MAX_JOBS;
        if is_full || self.is_stuck(now_ms) {
            self.reject();
            return false;
        }
        true
    }

    fn reject(&self) {
        self.rejected.fetch_add(1, Ordering::Relaxed);
    }

    /// Whether all its possible threads hang.
    pub fn is_stuck(&self, now_ms: i64) -> bool {
        self.stalled_ms(now_ms) > STUCK_MS
    }

    fn stalled_ms(&self, now_ms: i64) -> i64 {
        let steps = &self.steps[..self.limit()];
        let ages = steps.iter().map(|step| step.age_ms(now_ms));
        ages.map(Option::unwrap_or_default).min().unwrap_or(0)
    }

    /// Number of waiting jobs.
    pub fn waiting(&self) -> usize {
        self.inner.lock().jobs.len()
    }

    /// Its state.
    pub fn depth(&self, now_ms: i64) -> ReaderQueueDepth {
        let is_busy = |step: &&Step| step.age_ms(now_ms).is_some();
        let inner = self.inner.lock();
        let oldest_ms = inner.jobs.front().map_or(now_ms, |(since_ms, _)| *since_ms);
        ReaderQueueDepth {
            waiting: inner.jobs.len(),
            running: self.steps.iter().filter(is_busy).count(),
            oldest_wait_ms: (now_ms - oldest_ms).max(0),
            stalled_ms: self.stalled_ms(now_ms),
            rejected: self.rejected.load(Ordering::Relaxed),
        }
    }

    /// Ends each thread after its current job.
    pub fn stop(&self) {
        self.inner.lock().is_stopped = true;
        self.wake.notify_all();
    }

    /// Whether its threads are to end.
    pub fn is_stopped(&self) -> bool {
        self.inner.lock().is_stopped
    }

    /// Takes the remaining jobs and closes the queue.
    pub fn take_left(&self) -> VecDeque<(i64, Box<dyn Job>)> {
        let mut inner = self.inner.lock();
        inner.is_closed = true;
        std::mem::take(&mut inner.jobs)
    }

    /// Does the next job on this thread: a simulation has no others.
    #[cfg(feature = "sim")]
    pub fn run_next(&self) -> bool {
        let Some(worker) = self.enter() else {
            return false;
        };
        let next = self.inner.lock().jobs.pop_front();
        let is_there = next.is_some();
        if let Some((_, job)) = next {
            job.run(&worker, &mut Vec::new());
        }
        self.inner.lock().taken[worker.slot] = false;
        is_there
    }

    /// Registers a thread; `None` if it has enough.
    pub fn enter(&self) -> Option<ReaderWorker<'_>> {
        let mut inner = self.inner.lock();
        inner.starting = inner.starting.saturating_sub(1);
        let slot = inner.taken[..self.limit()]
            .iter()
            .position(|taken| !taken)?;
        inner.taken[slot] = true;
        Some(ReaderWorker { queue: self, slot })
    }
}

/// A thread's registration at its queue.
#[derive(Debug)]
pub struct ReaderWorker<'q> {
    /// The queue.
    pub queue: &'q ReaderQueue,
    slot: usize,
}

impl ReaderWorker<'_> {
    /// Begins the next step.
    pub fn step(&self) {
        self.queue.steps[self.slot].begin();
    }

    /// The next job; `None` when the thread is to end.
    pub fn take(&self) -> Option<Box<dyn Job>> {
        let queue = self.queue;
        let mut inner = queue.inner.lock();
        queue.steps[self.slot].end();
        loop {
            if inner.is_stopped || self.slot >= queue.limit() {
                inner.taken[self.slot] = false;
                return None;
            }
            if let Some((_, job)) = inner.jobs.pop_front() {
                self.step();
                return Some(job);
            }
            inner.idle += 1;
            let is_over = queue.wake.wait_for(&mut inner, queue.idle).timed_out();
            inner.idle -= 1;
            if is_over && inner.jobs.is_empty() {
                inner.taken[self.slot] = false;
                return None;
            }
        }
    }
}

impl Inner {
    /// Counts a thread that is to be started, if waiting jobs need one and the limit allows it.
    fn claim_thread(&mut self, limit: usize) -> bool {
        if self.jobs.len() <= self.idle {
            return false;
        }
        let running = self.taken[..limit].iter().filter(|taken| **taken).count();
        let is_needed = running + self.starting < limit;
        self.starting += usize::from(is_needed);
        is_needed
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(Debug)]
    struct Nothing;

    impl Job for Nothing {
        fn run(self: Box<Self>, _worker: &ReaderWorker<'_>, _buffer: &mut Vec<u8>) {}
    }

    fn job() -> Box<Nothing> {
        Box::new(Nothing)
    }

    fn new_queue(kind: Kind, max_threads: usize, idle_ms: u64) -> ReaderQueue {
        ReaderQueue::new(QueueId::default(), kind, max_threads, idle_ms)
    }

    #[test]
    fn queue_asks_for_threads_up_to_its_bound() {
        let queue = new_queue(Kind::Fetch(0), 2, IDLE_MS);
        assert!(queue.push(job()).unwrap());
        assert!(queue.push(job()).unwrap());
        assert!(!queue.push(job()).unwrap(), "two are enough");
        let worker = queue.enter().unwrap();
        assert!(worker.take().is_some());
        let depth = queue.depth(mono_ms());
        assert_eq!((depth.waiting, depth.running), (2, 1));
        queue.stop();
        assert!(worker.take().is_none());
        assert_eq!(queue.depth(mono_ms()).running, 0);
        assert_eq!(queue.take_left().len(), 2);
        assert!(queue.push(job()).is_err(), "nobody would take it");
    }

    #[test]
    fn idle_threads_end_and_are_replaced_on_demand() {
        let queue = new_queue(Kind::Close, 1, 1);
        for _ in 0..3 {
            assert!(queue.push(job()).unwrap(), "there is none");
            let worker = queue.enter().unwrap();
            assert!(worker.take().is_some());
            assert!(worker.take().is_none(), "idle for long");
        }
    }

    #[test]
    fn surplus_threads_end_and_others_take_their_jobs() {
        let queue = new_queue(Kind::Fetch(0), 1, IDLE_MS);
        assert!(queue.push(job()).unwrap());
        assert!(!queue.push(job()).unwrap(), "one is enough");
        queue.set_max_threads(2);
        assert!(queue.claim_thread(), "two are allowed");
        assert!(!queue.claim_thread());
        let [first, second] = [queue.enter().unwrap(), queue.enter().unwrap()];
        assert!(first.take().is_some());
        queue.set_max_threads(1);
        assert!(second.take().is_none(), "surplus");
        assert!(!queue.claim_thread(), "the first one goes on");
        assert!(first.take().is_some());
        queue.set_max_threads(0);
        queue.set_max_threads(usize::MAX);
        for _ in 0..2 * THREADS_MAX {
            let _started = queue.push(job()).unwrap();
        }
        let mut others = Vec::new();
        while let Some(worker) = queue.enter() {
            others.push(worker);
        }
        assert_eq!(others.len(), THREADS_MAX - 1);
        queue.set_max_threads(1);
        for worker in others {
            assert!(worker.take().is_none());
        }
    }

    #[test]
    fn jobs_that_a_surplus_thread_leaves_get_another() {
        let queue = new_queue(Kind::Fetch(0), 2, 1);
        assert!(queue.push(job()).unwrap() && queue.push(job()).unwrap());
        let [first, second] = [queue.enter().unwrap(), queue.enter().unwrap()];
        assert!(first.take().is_some() && second.take().is_some());
        assert!(first.take().is_none(), "idle");
        queue.set_max_threads(1);
        assert!(queue.push(job()).unwrap(), "the second is surplus");
        assert!(second.take().is_none());
        assert!(!queue.claim_thread(), "one is being started");
        assert!(queue.enter().unwrap().take().is_some());
    }

    #[test]
    fn queue_is_stalled_when_all_its_threads_are() {
        let queue = new_queue(Kind::Fetch(0), 2, IDLE_MS);
        let desks = [queue.enter().unwrap(), queue.enter().unwrap()];
        assert!(queue.enter().is_none());
        let later_ms = mono_ms() + STUCK_MS + 1_000;
        assert!(!queue.is_stuck(later_ms));
        desks[0].step();
        assert!(!queue.is_stuck(later_ms), "the other one is free");
        desks[1].step();
        assert!(queue.is_stuck(later_ms) && !queue.accepts(later_ms));
        assert!(queue.accepts(mono_ms()));
        assert_eq!(queue.depth(later_ms).rejected, 1);
    }
}
