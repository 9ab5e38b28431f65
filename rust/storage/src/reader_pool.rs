//! The queues of work that may wait for a disk, for clients and for the control plane.
//!
//! Each log directory has its own queues, so a hanging one takes no thread from the others. Reads
//! by offset are spread over several queues by topic name; other work has one queue per kind:
//!
//! | queue | does | threads, at most |
//! |---|---|---|
//! | `fetch-0` … `fetch-N` | fetches and sending | `num.io.threads` together |
//! | `ahead` | reading ahead of consumers of old data | `num.io.threads` / 2 |
//! | `expand` | conversion of batches that expand to much | 1 |
//! | `lookup` | ListOffsets by time | `num.io.threads` / 4 |
//! | `internal` | reads of internal topics | `num.io.threads` / 2 |
//! | `digest` | digests of replicas | 1 |
//! | `close` | closing files | 1 |
//!
//! N + 1 is `num.io.threads` / 2 at the start. Each queue has at least one thread. Another thread,
//! the starter, starts them on behalf of network threads.

use std::collections::VecDeque;
use std::hash::BuildHasher;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use parking_lot::{Condvar, Mutex};
use pyrklog_log::disk::{LeftOpen, LogDirKey};

use crate::page_cache_limit;
use crate::reader_queue::{IDLE_MS, Job, Kind, ReaderQueue, ReaderQueueDepth, ReaderWorker};
use pyrklog_base::clock::{mono_ms, mono_ns};
use pyrklog_base::hash::WordHash;
use pyrklog_base::ids::QueueId;
use pyrklog_control::event_queue::EventQueue;
use pyrklog_control::latency::Histogram;

const START_RETRY_MS: u64 = 1_000;

#[derive(Debug, Default)]
struct Starter {
    wanted: VecDeque<QueueId>,
    is_stopped: bool,
}

/// See the module.
#[derive(Debug)]
pub struct ReaderPool {
    queues: Vec<ReaderQueue>,
    dirs: Vec<LogDirKey>,
    fetch_queues: usize,
    starter: Mutex<Starter>,
    wake_starter: Condvar,
    running: Mutex<usize>,
    ended: Condvar,
    jobs_done: AtomicU64,
    /// How long jobs that read took, by log directory.
    read_times: Vec<Histogram>,
}

/// Queues of a directory besides those of fetches.
const OTHER_KINDS: [Kind; 6] = [
    Kind::Ahead,
    Kind::Expand,
    Kind::LookUp,
    Kind::Internal,
    Kind::Digest,
    Kind::Close,
];

impl ReaderPool {
    /// The queues of these log directories, without threads yet. `io_threads` is `num.io.threads`.
    pub fn new(dirs: Vec<LogDirKey>, io_threads: usize) -> ReaderPool {
        let io_threads = io_threads.max(1);
        let fetch_queues = (io_threads / 2).clamp(1, usize::from(u16::MAX) - OTHER_KINDS.len());
        let mut queues = Vec::new();
        for dir in 0..dirs.len() {
            let of_fetches = (0..fetch_queues).map(|number| Kind::Fetch(number as u16));
            for (place, kind) in of_fetches.chain(OTHER_KINDS).enumerate() {
                let threads = threads_of(kind, io_threads, fetch_queues);
                queues.push(ReaderQueue::new(id(dir, place), kind, threads, IDLE_MS));
            }
        }
        ReaderPool {
            queues,
            read_times: dirs.iter().map(|_| Histogram::default()).collect(),
            dirs,
            fetch_queues,
            starter: Mutex::default(),
            wake_starter: Condvar::new(),
            running: Mutex::new(0),
            ended: Condvar::new(),
            jobs_done: AtomicU64::new(0),
        }
    }

    /// Changes `num.io.threads`. The number of queues stays.
    pub fn set_io_threads(&self, io_threads: usize) {
        for queue in &self.queues {
            queue.set_max_threads(threads_of(queue.kind, io_threads, self.fetch_queues));
            while queue.claim_thread() {
                self.want_thread(queue.id);
            }
        }
    }

    fn want_thread(&self, id: QueueId) {
        self.starter.lock().wanted.push_back(id);
        self.wake_starter.notify_one();
    }

    /// The queue for reads of a topic by offset.
    pub fn for_fetch(&self, dir: usize, topic: &str) -> QueueId {
        let hash = WordHash.hash_one(topic) >> 32;
        id(dir, hash as usize % self.fetch_queues)
    }

    /// The queue for work of another kind.
    pub fn for_kind(&self, dir: usize, kind: Kind) -> QueueId {
        let place = OTHER_KINDS.iter().position(|other| *other == kind);
        id(dir, self.fetch_queues + place.unwrap_or_default())
    }

    /// A queue.
    pub fn queue(&self, id: QueueId) -> &ReaderQueue {
        let per_dir = self.fetch_queues + OTHER_KINDS.len();
        &self.queues[usize::from(id.dir) * per_dir + usize::from(id.place)]
    }

    /// Adds a job, without blocking.
    ///
    /// # Errors
    /// The job, if the queue is full and the job is [bounded](Job::is_bounded).
    pub fn submit<J: Job + 'static>(&self, id: QueueId, job: Box<J>) -> Result<(), Box<J>> {
        if self.queue(id).push(job)? {
            self.want_thread(id);
        }
        Ok(())
    }

    /// Submits files to be closed, per directory.
    pub fn close(&self, files: LeftOpen) {
        for (key, files) in files.by_log_dir() {
            let dir = self.dirs.iter().position(|dir| *dir == key);
            let id = self.for_kind(dir.unwrap_or_default(), Kind::Close);
            if let Err(job) = self.submit(id, Box::new(Close(files))) {
                debug_assert!(false, "refused {job:?}");
            }
        }
    }

    /// Waiting jobs.
    #[cfg(feature = "sim")]
    pub fn jobs_waiting(&self) -> usize {
        self.queues.iter().map(ReaderQueue::waiting).sum()
    }

    /// Does one of them on this thread: a simulation has no others.
    #[cfg(feature = "sim")]
    pub fn run_job(&self) -> bool {
        self.queues.iter().any(ReaderQueue::run_next)
    }

    /// Running threads without the starter.
    pub fn threads(&self) -> usize {
        *self.running.lock()
    }

    /// Jobs done so far.
    pub fn jobs_done(&self) -> u64 {
        self.jobs_done.load(Ordering::Relaxed)
    }

    /// Counts a done job.
    pub fn count_done(&self) {
        self.jobs_done.fetch_add(1, Ordering::Relaxed);
    }

    /// How long jobs that read in a log directory took.
    pub fn read_times(&self, dir: usize) -> &Histogram {
        &self.read_times[dir]
    }

    fn count_time(&self, id: QueueId, took_ns: u64) {
        match self.queue(id).kind {
            Kind::Fetch(_) | Kind::Ahead | Kind::LookUp | Kind::Internal => {
                self.read_times[usize::from(id.dir)].record(took_ns);
            }
            Kind::Expand | Kind::Digest | Kind::Close => {}
        }
    }

    /// Waiting jobs of all queues.
    pub fn waiting(&self) -> usize {
        self.queues.iter().map(ReaderQueue::waiting).sum()
    }

    /// All queues: (log directory, kind, state).
    pub fn depths(&self) -> impl Iterator<Item = (usize, Kind, ReaderQueueDepth)> {
        let now_ms = mono_ms();
        let queues = self.queues.iter();
        queues.map(move |queue| (queue.dir, queue.kind, queue.depth(now_ms)))
    }

    /// Ends each thread after its current job.
    pub fn stop(&self) {
        self.starter.lock().is_stopped = true;
        self.wake_starter.notify_one();
        for queue in &self.queues {
            queue.stop();
        }
    }

    /// Waits until all threads have ended; the starter must have ended.
    pub fn wait_ended(&self) {
        let mut running = self.running.lock();
        while *running > 0 {
            self.ended.wait(&mut running);
        }
    }

    /// Jobs that no thread took, after the end.
    pub fn take_left(&self) -> impl Iterator<Item = Box<dyn Job>> {
        let queues = self.queues.iter();
        queues.flat_map(|queue| queue.take_left().into_iter().map(|(_, job)| job))
    }

    fn next_wanted(&self) -> Option<QueueId> {
        let mut starter = self.starter.lock();
        loop {
            if starter.is_stopped {
                return None;
            }
            if let Some(id) = starter.wanted.pop_front() {
                return Some(id);
            }
            self.wake_starter.wait(&mut starter);
        }
    }

    fn thread_ended(&self) {
        *self.running.lock() -= 1;
        self.ended.notify_all();
    }

    fn start_later(&self, id: QueueId) {
        let mut starter = self.starter.lock();
        starter.wanted.push_back(id);
        if !starter.is_stopped {
            let pause = Duration::from_millis(START_RETRY_MS);
            self.wake_starter.wait_for(&mut starter, pause);
        }
    }
}

/// Threads of a queue; it has at least one.
fn threads_of(kind: Kind, io_threads: usize, fetch_queues: usize) -> usize {
    match kind {
        Kind::Fetch(number) => {
            let more = usize::from(number) < io_threads % fetch_queues;
            io_threads / fetch_queues + usize::from(more)
        }
        Kind::Ahead | Kind::Internal => io_threads / 2,
        Kind::LookUp => io_threads / 4,
        Kind::Expand | Kind::Digest | Kind::Close => 1,
    }
}

fn id(dir: usize, place: usize) -> QueueId {
    QueueId {
        dir: dir as u16,
        place: place as u16,
    }
}

#[derive(Debug)]
struct Close(LeftOpen);

impl Job for Close {
    fn run(self: Box<Self>, _worker: &ReaderWorker<'_>, _buffer: &mut Vec<u8>) {
        drop(self.0);
    }

    fn is_bounded(&self) -> bool {
        false
    }

    fn is_counted(&self) -> bool {
        false
    }
}

fn run(pool: &ReaderPool, id: QueueId) {
    let Some(worker) = pool.queue(id).enter() else {
        return;
    };
    let mut buffer = Vec::new();
    while let Some(job) = worker.take() {
        if job.is_abandoned() {
            continue;
        }
        page_cache_limit::update();
        let (is_counted, sends) = (job.is_counted(), job.sends());
        let began_ns = mono_ns();
        job.run(&worker, &mut buffer);
        if is_counted {
            pool.count_done();
        }
        if !sends {
            pool.count_time(id, mono_ns().saturating_sub(began_ns));
        }
    }
    // A surplus thread ends although jobs wait.
    if pool.queue(id).claim_thread() {
        pool.want_thread(id);
    }
}

/// The starter's loop: starts threads until the pool stops.
pub fn start_threads(pool: &Arc<ReaderPool>, events: &EventQueue) {
    let mut is_told = false;
    while let Some(id) = pool.next_wanted() {
        *pool.running.lock() += 1;
        let queue = pool.queue(id);
        let name = format!("reader-{}-{}", queue.dir, queue.kind);
        let of_thread = Arc::clone(pool);
        let run = move || {
            run(&of_thread, id);
            of_thread.thread_ended();
        };
        let Err(error) = std::thread::Builder::new().name(name).spawn(run) else {
            continue;
        };
        pool.thread_ended();
        if !std::mem::replace(&mut is_told, true) {
            let fields = vec![("reason", error.to_string())];
            events.notice("threads_failed", "error", fields);
        }
        pool.start_later(id);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::path::Path;

    fn pool(dirs: usize, io_threads: usize) -> ReaderPool {
        let key = |dir: usize| LogDirKey::of_log_dir(Path::new(&format!("/{dir}")));
        ReaderPool::new((0..dirs).map(key).collect(), io_threads)
    }

    #[test]
    fn queues_of_one_directory_are_never_those_of_another() {
        for io_threads in [1, 2, 3, 8] {
            let pool = pool(3, io_threads);
            for dir in 0..3 {
                let of_topics = (0..100).map(|n| pool.for_fetch(dir, &format!("topic-{n}")));
                let others = [Kind::LookUp, Kind::Internal].map(|kind| pool.for_kind(dir, kind));
                let mut kinds = Vec::new();
                for id in of_topics.chain(others) {
                    let queue = pool.queue(id);
                    assert_eq!(queue.dir, dir, "{io_threads} {id:?}");
                    if !kinds.contains(&queue.kind) {
                        kinds.push(queue.kind);
                    }
                }
                assert!(kinds.contains(&Kind::LookUp) && kinds.contains(&Kind::Internal));
                assert_eq!(
                    kinds.contains(&Kind::Fetch(3)),
                    io_threads >= 8,
                    "{kinds:?}"
                );
            }
        }
    }

    #[test]
    fn changed_threads_are_spread_over_the_queues_of_the_start() {
        let pool = pool(1, 8);
        pool.set_io_threads(10);
        let of = |kind| threads_of(kind, 10, pool.fetch_queues);
        let of_fetches = [0, 1, 2, 3].map(|number| of(Kind::Fetch(number)));
        assert_eq!(of_fetches, [3, 3, 2, 2]);
        assert_eq!((of(Kind::Ahead), of(Kind::LookUp)), (5, 2));
        for (_, kind, _) in pool.depths() {
            let queue = pool.queues.iter().find(|queue| queue.kind == kind).unwrap();
            let workers = std::iter::from_fn(|| queue.enter()).collect::<Vec<_>>();
            assert_eq!(workers.len(), of(kind).max(1), "{kind}");
        }
    }

    #[test]
    fn topics_spread_over_the_queues() {
        let pool = pool(1, 8);
        let mut counts = [0; 4];
        for number in 0..400 {
            let id = pool.for_fetch(0, &format!("topic-{number}"));
            let Kind::Fetch(number) = pool.queue(id).kind else {
                panic!("{id:?}");
            };
            counts[usize::from(number)] += 1;
        }
        assert!(counts.iter().all(|count| *count > 40), "{counts:?}");
    }
}
