//! Counters. Each network thread writes its own; readers sum them.

use std::sync::atomic::{AtomicU64, Ordering};

use crate::latency::{Group, Phase, Reading, RequestTimes};
use crate::seam::InternalRead;

/// API keys below this have their own counter.
const API_KEYS: usize = 80;

/// One writer, many readers: no atomic read-modify-write on the hot path.
#[derive(Debug, Default)]
pub struct Counter(AtomicU64);

impl Counter {
    /// Adds; only the owning thread.
    pub fn add(&self, count: u64) {
        self.0.store(
            self.0.load(Ordering::Relaxed).wrapping_add(count),
            Ordering::Relaxed,
        );
    }

    /// The value.
    pub fn get(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }

    /// Sets the value; only the owning thread.
    pub fn set(&self, value: u64) {
        self.0.store(value, Ordering::Relaxed);
    }
}

/// Counters of one network thread.
#[derive(Debug, Default)]
pub struct ThreadStatistics {
    /// Bytes received.
    pub received_bytes: Counter,
    /// Bytes sent, readers' included.
    pub sent_bytes: Counter,
    /// Record bytes appended.
    pub produced_bytes: Counter,
    /// Record bytes fetched from the block cache.
    pub fetched_bytes_cached: Counter,
    /// Bytes fetched through a buffer.
    pub fetched_bytes_copy: Counter,
    /// Bytes fetched by sendfile, with the fields between.
    pub fetched_bytes_sendfile: Counter,
    /// Record bytes fetched from windows (old data).
    pub fetched_bytes_window: Counter,
    /// Record bytes read into the reply itself.
    pub fetched_bytes_inline: Counter,
    /// Muted connections.
    pub muted: Counter,
    /// Current connections.
    pub connections: Counter,
    /// Connections that came from another thread.
    pub connections_moved: Counter,
    /// Nanoseconds spent working rather than waiting.
    pub worked_ns: Counter,
    /// Heavy requests.
    pub heavy_requests: Counter,
    /// Partitions that fetches looked at, each time.
    pub fetch_looks: Counter,
    /// Connections closed because of protocol errors.
    pub protocol_errors: Counter,
    /// Connections closed as idle.
    pub idle_closed: Counter,
    /// How long requests took.
    pub times: RequestTimes,
    requests: Requests,
}

#[derive(Debug)]
struct Requests([Counter; API_KEYS]);

impl Default for Requests {
    fn default() -> Requests {
        Requests(std::array::from_fn(|_| Counter::default()))
    }
}

impl Requests {
    fn of(&self, api_key: i16) -> Option<&Counter> {
        self.0.get(usize::try_from(api_key).ok()?)
    }
}

impl ThreadStatistics {
    /// Counts a request.
    pub fn request(&self, api_key: i16) {
        if let Some(counter) = self.requests.of(api_key) {
            counter.add(1);
        }
    }

    /// Requests of an API so far.
    pub fn requests(&self, api_key: i16) -> u64 {
        self.requests.of(api_key).map_or(0, Counter::get)
    }
}

/// All counters.
#[derive(Debug, Default)]
pub struct Statistics {
    /// One per network thread.
    pub threads: Vec<std::sync::Arc<ThreadStatistics>>,
    /// Times that accepting stopped at `max.connections`.
    pub connections_at_limit: AtomicU64,
    /// Times that accepting failed for lack of descriptors or memory.
    pub accepts_failed: AtomicU64,
    /// The control plane's appends and reads.
    pub internal: InternalStatistics,
}

/// Appends and reads of internal topics.
#[derive(Debug, Default)]
pub struct InternalStatistics {
    /// Appended batches.
    pub appends: AtomicU64,
    /// Bytes of appended batches.
    pub appended_bytes: AtomicU64,
    /// Refused batches.
    pub refused: AtomicU64,
    /// Successful reads.
    pub reads: AtomicU64,
    /// Decompressed bytes read.
    pub read_bytes: AtomicU64,
    /// Unreadable batches.
    pub damaged_batches: AtomicU64,
}

impl InternalStatistics {
    /// Counts an appended batch.
    pub fn appended(&self, bytes: usize) {
        self.appends.fetch_add(1, Ordering::Relaxed);
        self.appended_bytes
            .fetch_add(bytes as u64, Ordering::Relaxed);
    }

    /// Counts a refused batch.
    pub fn refused(&self) {
        self.refused.fetch_add(1, Ordering::Relaxed);
    }

    /// Counts a read.
    pub fn read(&self, read: &InternalRead) {
        let bytes: usize = read.batches.iter().map(|batch| batch.body.len()).sum();
        let damaged = read.batches.iter().filter(|batch| batch.damage.is_some());
        self.reads.fetch_add(1, Ordering::Relaxed);
        self.read_bytes.fetch_add(bytes as u64, Ordering::Relaxed);
        self.damaged_batches
            .fetch_add(damaged.count() as u64, Ordering::Relaxed);
    }
}

impl Statistics {
    /// For `threads` network threads.
    pub fn new(threads: usize) -> Statistics {
        Statistics {
            threads: (0..threads).map(|_| std::sync::Arc::default()).collect(),
            ..Statistics::default()
        }
    }

    /// A counter summed over the network threads.
    pub fn sum(&self, counter: impl Fn(&ThreadStatistics) -> &Counter) -> u64 {
        self.threads
            .iter()
            .map(|thread| counter(thread).get())
            .sum()
    }

    /// How long a phase of requests took, over all network threads.
    pub fn times(&self, group: Group, phase: Phase) -> Reading {
        let phase = match phase {
            Phase::Served if !group.is_fetch() => Phase::Total,
            phase => phase,
        };
        let mut reading = Reading::default();
        for thread in &self.threads {
            thread.times.add_to(group, phase, &mut reading);
        }
        reading
    }

    /// Requests of an API over all network threads.
    pub fn requests(&self, api_key: i16) -> u64 {
        self.threads
            .iter()
            .map(|thread| thread.requests(api_key))
            .sum()
    }
}
