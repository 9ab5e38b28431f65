//! Produce requests of muted connections that wait because their log directory has too many
//! unwritten bytes, in order of arrival. The writer wakes them.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use parking_lot::Mutex;

use pyrklog_base::ids::{Place, RECEIVE_BUFFER_BYTES};
use pyrklog_control::outbox::Outbox;

/// Connections that may wait for one log directory.
const WAITING_MAX: usize = 10_000;

/// Waiting requests may hold this fraction of all receive memory, over all log directories.
const RECEIVE_MEMORY_SHARE: usize = 2;

/// Whether a produce request is handled.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Admission {
    /// Now.
    Now,
    /// Once there is room, or its time is over.
    Later,
    /// Never: it must be refused.
    Refused,
}

#[derive(Clone, Copy, Debug)]
struct Waiting {
    place: Place,
    bytes: usize,
    since_ms: i64,
}

#[derive(Debug, Default)]
struct Inner {
    waiting: VecDeque<Waiting>,
    bytes: usize,
}

/// Requests that wait for one log directory.
#[derive(Debug)]
pub struct MutedQueue {
    max_bytes: usize,
    inner: Mutex<Inner>,
    is_used: AtomicBool,
    refused: AtomicU64,
    timed_out: AtomicU64,
}

/// State of a queue.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct MutedDepth {
    /// Connections.
    pub waiting: usize,
    /// Receive memory held by their requests.
    pub bytes: usize,
    /// Age of the oldest one.
    pub oldest_wait_ms: i64,
    /// Requests refused so far because the queue was full.
    pub rejected: u64,
    /// Requests refused so far because their time was over.
    pub timed_out: u64,
}

impl MutedQueue {
    /// For one of `dirs` log directories. All connections together may hold `receive_max_bytes` of
    /// received bytes.
    pub fn new(receive_max_bytes: usize, dirs: usize) -> MutedQueue {
        MutedQueue {
            max_bytes: receive_max_bytes / RECEIVE_MEMORY_SHARE / dirs.max(1),
            inner: Mutex::default(),
            is_used: AtomicBool::new(false),
            refused: AtomicU64::new(0),
            timed_out: AtomicU64::new(0),
        }
    }

    /// Adds a connection with a frame of `frame_bytes`. Refused when the queue is full; the first
    /// one always fits. Checks `must_wait` again afterwards: `Now` if the directory has room by
    /// then.
    pub fn add(
        &self,
        place: Place,
        frame_bytes: usize,
        now_ms: i64,
        must_wait: impl Fn() -> bool,
    ) -> Admission {
        // Bytes after the frame in a receive buffer stay with it.
        let bytes = frame_bytes.max(RECEIVE_BUFFER_BYTES);
        let mut inner = self.inner.lock();
        let is_too_much =
            inner.bytes + bytes > self.max_bytes || inner.waiting.len() >= WAITING_MAX;
        if is_too_much && !inner.waiting.is_empty() {
            self.refused.fetch_add(1, Ordering::Relaxed);
            return Admission::Refused;
        }
        inner.waiting.push_back(Waiting {
            place,
            bytes,
            since_ms: now_ms,
        });
        inner.bytes += bytes;
        self.is_used.store(true, Ordering::SeqCst);
        // The writer lowers the count of unwritten bytes, then reads the flag. Here the order is
        // reversed, so at least one side sees the other.
        if must_wait() {
            return Admission::Later;
        }
        inner.waiting.pop_back();
        inner.bytes -= bytes;
        Admission::Now
    }

    /// Whether any connection may be waiting.
    pub fn is_used(&self) -> bool {
        self.is_used.load(Ordering::SeqCst)
    }

    /// Wakes the longest-waiting connections, enough for `room_bytes`; all for `usize::MAX`.
    pub fn wake(&self, room_bytes: usize, outbox: &mut Outbox) {
        let mut inner = self.inner.lock();
        let mut woken_bytes = 0;
        while woken_bytes < room_bytes
            && let Some(first) = inner.waiting.pop_front()
        {
            inner.bytes -= first.bytes;
            woken_bytes += first.bytes;
            outbox.unblock(first.place);
        }
        self.is_used
            .store(!inner.waiting.is_empty(), Ordering::SeqCst);
    }

    /// Removes a connection.
    pub fn forget(&self, place: Place) {
        let mut inner = self.inner.lock();
        if let Some(at) = inner.waiting.iter().position(|one| one.place == place)
            && let Some(gone) = inner.waiting.remove(at)
        {
            inner.bytes -= gone.bytes;
        }
    }

    /// Counts a request whose time was over.
    pub fn note_timed_out(&self) {
        self.timed_out.fetch_add(1, Ordering::Relaxed);
    }

    /// Its state.
    pub fn depth(&self, now_ms: i64) -> MutedDepth {
        let inner = self.inner.lock();
        let oldest_ms = inner.waiting.front().map_or(now_ms, |one| one.since_ms);
        MutedDepth {
            waiting: inner.waiting.len(),
            bytes: inner.bytes,
            oldest_wait_ms: (now_ms - oldest_ms).max(0),
            rejected: self.refused.load(Ordering::Relaxed),
            timed_out: self.timed_out.load(Ordering::Relaxed),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const FRAME: usize = RECEIVE_BUFFER_BYTES;

    fn place(token: u64) -> Place {
        Place { thread: 0, token }
    }

    fn outbox() -> Outbox {
        Outbox::new(1)
    }

    fn woken(queue: &MutedQueue, room_bytes: usize) -> usize {
        let mut outbox = outbox();
        let before = queue.depth(0).waiting;
        queue.wake(room_bytes, &mut outbox);
        before - queue.depth(0).waiting
    }

    #[test]
    fn muted_queue_takes_only_its_share_of_receive_memory() {
        let queue = MutedQueue::new(FRAME * 2 * 3 * 2, 2);
        let add = |token, bytes| queue.add(place(token), bytes, 5, || true);
        for token in 0..3 {
            assert_eq!(add(token, 100), Admission::Later);
        }
        assert_eq!(add(3, 100), Admission::Refused);
        let depth = queue.depth(25);
        assert_eq!((depth.waiting, depth.bytes), (3, FRAME * 3));
        assert_eq!((depth.oldest_wait_ms, depth.rejected), (20, 1));
        queue.forget(place(1));
        queue.forget(place(1));
        assert_eq!(queue.depth(25).bytes, FRAME * 2);
        assert_eq!(add(4, 100), Admission::Later);
        assert_eq!(woken(&queue, usize::MAX), 3);
        assert_eq!(
            add(5, FRAME * 100),
            Admission::Later,
            "the first one always"
        );
        assert_eq!(add(6, 1), Admission::Refused);
    }

    #[test]
    fn longest_waiting_connections_are_woken_first_as_room_permits() {
        let queue = MutedQueue::new(usize::MAX, 1);
        for token in 0..5 {
            queue.add(place(token), FRAME, 0, || true);
        }
        assert_eq!(woken(&queue, FRAME + 1), 2);
        assert!(queue.is_used());
        let left: Vec<u64> = queue
            .inner
            .lock()
            .waiting
            .iter()
            .map(|one| one.place.token)
            .collect();
        assert_eq!(left, [2, 3, 4]);
        assert_eq!(woken(&queue, usize::MAX), 3);
        assert!(!queue.is_used());
    }

    #[test]
    fn a_connection_that_finds_room_while_being_added_does_not_wait() {
        let queue = MutedQueue::new(usize::MAX, 1);
        let admission = queue.add(place(1), 10, 0, || false);
        assert_eq!((admission, queue.depth(0).waiting), (Admission::Now, 0));
    }
}
