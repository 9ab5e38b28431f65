//! Produce requests that wait because their log directory has too much unwritten.
//!
//! The request stays, unread, in its connection's buffer, and nothing behind it is looked at: its
//! connection is *muted*, so that no later batch of a producer can overtake it. Here is only who
//! waits, in order. The writer wakes them as room comes. A request that waits for longer than its
//! own time-out, or finds the park full, is refused with REQUEST_TIMED_OUT, which clients try again
//! after. Those behind it count from the same moment, so that a muted connection is not held for
//! one time-out after the other.
//!
//! A refusal lets a later batch overtake after all, and the broker accepts any first sequence
//! number of a producer that it does not know yet. So where a refused batch has a producer id, the
//! connection closes behind the answer: what was sent after it is then sent anew, in order.

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use parking_lot::Mutex;
use pyrklog_wire::batch::{BatchHeader, NO_PRODUCER_ID};
use pyrklog_wire::produce::ProduceRequest;

use crate::base::ids::{NEVER_MS, Place};
use crate::connection::{Connection, Hold};
use crate::context::Context;
use crate::control::outbox::Outbox;
use crate::input::RECEIVE_BUFFER_BYTES;
use crate::log_dir::LogDirState;

/// Connections that may wait for one log directory.
const WAITING_MAX: usize = 10_000;

/// The share of all receive memory that parked requests may hold, over all log directories: the
/// rest is for those who do not wait.
const RECEIVE_MEMORY_SHARE: usize = 2;

/// What a connection that has a parked request remembers.
#[derive(Debug)]
pub struct Parked {
    /// Since when the connection has been held back, without an empty buffer since; ms.
    since_ms: i64,
    /// Where the request waits now, and until when.
    waits: Option<(Arc<LogDirState>, i64)>,
}

/// Whether a produce request is worked on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Admission {
    /// Now.
    Now,
    /// Once there is room, or its time is over.
    Later,
    /// Not at all: it is to be refused.
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

/// Who waits for one log directory.
#[derive(Debug)]
pub struct Park {
    max_bytes: usize,
    inner: Mutex<Inner>,
    is_used: AtomicBool,
    refused: AtomicU64,
    timed_out: AtomicU64,
}

/// What a park holds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Depth {
    /// Connections.
    pub waiting: usize,
    /// Receive memory that is set aside for their requests.
    pub bytes: usize,
    /// Age of the oldest one.
    pub oldest_wait_ms: i64,
    /// Requests refused so far because the park was full.
    pub rejected: u64,
    /// Requests refused so far because their time was over.
    pub timed_out: u64,
}

impl Park {
    /// For one of `dirs` log directories; all connections together may hold `receive_max_bytes` of
    /// received bytes.
    pub fn new(receive_max_bytes: usize, dirs: usize) -> Park {
        Park {
            max_bytes: receive_max_bytes / RECEIVE_MEMORY_SHARE / dirs.max(1),
            inner: Mutex::default(),
            is_used: AtomicBool::new(false),
            refused: AtomicU64::new(0),
            timed_out: AtomicU64::new(0),
        }
    }

    /// Adds a connection with a frame of `frame_bytes`; false when there is no room for it. The
    /// first one always finds room. `is_full` is looked at again: false as well, with the answer
    /// that it need not wait, if the directory has room by now.
    fn add(
        &self,
        place: Place,
        frame_bytes: usize,
        now_ms: i64,
        is_full: impl Fn() -> bool,
    ) -> Admission {
        // What lies behind the frame in a receive buffer is kept with it.
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
        // The writer lowers the count of unwritten bytes first and looks at the flag afterwards;
        // here it is the other way round, so one of the two sees the other.
        if is_full() {
            return Admission::Later;
        }
        inner.waiting.pop_back();
        inner.bytes -= bytes;
        Admission::Now
    }

    /// Whether anyone may be waiting.
    pub fn is_used(&self) -> bool {
        self.is_used.load(Ordering::SeqCst)
    }

    /// Wakes those who wait longest, as many as bring about `room_bytes`; all of them for
    /// `usize::MAX`.
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

    /// A connection waits no longer.
    fn forget(&self, place: Place) {
        let mut inner = self.inner.lock();
        if let Some(at) = inner.waiting.iter().position(|one| one.place == place)
            && let Some(gone) = inner.waiting.remove(at)
        {
            inner.bytes -= gone.bytes;
        }
    }

    /// What it holds.
    pub fn depth(&self, now_ms: i64) -> Depth {
        let inner = self.inner.lock();
        let oldest_ms = inner.waiting.front().map_or(now_ms, |one| one.since_ms);
        Depth {
            waiting: inner.waiting.len(),
            bytes: inner.bytes,
            oldest_wait_ms: (now_ms - oldest_ms).max(0),
            rejected: self.refused.load(Ordering::Relaxed),
            timed_out: self.timed_out.load(Ordering::Relaxed),
        }
    }
}

/// Whether a request for the partitions in `cx.targets` is worked on. `patience_ms` is how long it
/// may wait in all.
pub fn admit(
    cx: &mut Context,
    conn: &mut Connection,
    frame_bytes: usize,
    patience_ms: i64,
) -> Admission {
    let mut targets = cx.targets.iter().flatten();
    let Some(full) = targets.find(|target| target.dir.is_full()) else {
        if let Some((dir, _)) = conn.parked.take().and_then(|parked| parked.waits) {
            dir.unpark_next(&mut cx.outbox);
        }
        return Admission::Now;
    };
    let dir = Arc::clone(&full.dir);
    let now_ms = cx.now.mono_ms;
    let parked = conn.parked.get_or_insert(Parked {
        since_ms: now_ms,
        waits: None,
    });
    let due_ms = parked.since_ms.saturating_add(patience_ms);
    if due_ms <= now_ms {
        dir.park.timed_out.fetch_add(1, Ordering::Relaxed);
        return Admission::Refused;
    }
    let place = Place {
        thread: cx.thread,
        token: conn.token,
    };
    let admission = dir.park.add(place, frame_bytes, now_ms, || dir.is_full());
    match admission {
        Admission::Later => {
            parked.waits = Some((dir, due_ms));
            conn.hold = Some(Hold::Parked);
            cx.timers.want(conn.token, due_ms, &mut conn.timer_ms);
        }
        Admission::Now => conn.parked = None,
        Admission::Refused => {}
    }
    admission
}

/// Since when the request at hand has waited, if it has.
pub fn waited_since_ms(conn: &Connection) -> Option<i64> {
    conn.parked.as_ref().map(|parked| parked.since_ms)
}

/// Whether a batch of the request has a producer id.
pub fn has_producer_id(request: &ProduceRequest, frame: &[u8]) -> bool {
    request.partitions.iter().any(|wanted| {
        let records = wanted.records.map(|span| span.of(frame));
        let header = records.and_then(|records| BatchHeader::parse(records).ok());
        header.is_some_and(|header| header.producer_id != NO_PRODUCER_ID)
    })
}

/// When the parked request's time is over.
pub fn due_ms(conn: &Connection) -> i64 {
    match &conn.parked {
        Some(Parked {
            waits: Some((_, due_ms)),
            ..
        }) if conn.hold == Some(Hold::Parked) => *due_ms,
        _ => NEVER_MS,
    }
}

/// Takes a connection whose request's time is over out of the park, so that it is looked at, and
/// refused unless there is room by now.
pub fn expire(cx: &Context, conn: &mut Connection) {
    if due_ms(conn) <= cx.now.mono_ms {
        let place = Place {
            thread: cx.thread,
            token: conn.token,
        };
        forget(conn, place);
        conn.hold = None;
    }
}

/// Takes a connection out of the park, if it waits there.
pub fn forget(conn: &mut Connection, place: Place) {
    if let Some(parked) = &mut conn.parked
        && let Some((dir, _)) = parked.waits.take()
        && conn.hold == Some(Hold::Parked)
    {
        dir.park.forget(place);
    }
}

/// Everything received was worked on: whoever comes next has not waited.
pub fn note_empty(conn: &mut Connection) {
    if conn.hold != Some(Hold::Parked) && !conn.readable {
        conn.parked = None;
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

    fn woken(park: &Park, room_bytes: usize) -> usize {
        let mut outbox = outbox();
        let before = park.depth(0).waiting;
        park.wake(room_bytes, &mut outbox);
        before - park.depth(0).waiting
    }

    #[test]
    fn a_park_takes_no_more_than_its_share_of_receive_memory() {
        let park = Park::new(FRAME * 2 * 3 * 2, 2);
        let add = |token, bytes| park.add(place(token), bytes, 5, || true);
        for token in 0..3 {
            assert_eq!(add(token, 100), Admission::Later);
        }
        assert_eq!(add(3, 100), Admission::Refused);
        let depth = park.depth(25);
        assert_eq!((depth.waiting, depth.bytes), (3, FRAME * 3));
        assert_eq!((depth.oldest_wait_ms, depth.rejected), (20, 1));
        park.forget(place(1));
        park.forget(place(1));
        assert_eq!(park.depth(25).bytes, FRAME * 2);
        assert_eq!(add(4, 100), Admission::Later);
        assert_eq!(woken(&park, usize::MAX), 3);
        assert_eq!(
            add(5, FRAME * 100),
            Admission::Later,
            "the first one always"
        );
        assert_eq!(add(6, 1), Admission::Refused);
    }

    #[test]
    fn those_who_wait_longest_are_woken_first_and_no_more_than_there_is_room_for() {
        let park = Park::new(usize::MAX, 1);
        for token in 0..5 {
            park.add(place(token), FRAME, 0, || true);
        }
        assert_eq!(woken(&park, FRAME + 1), 2);
        assert!(park.is_used());
        let left: Vec<u64> = park
            .inner
            .lock()
            .waiting
            .iter()
            .map(|one| one.place.token)
            .collect();
        assert_eq!(left, [2, 3, 4]);
        assert_eq!(woken(&park, usize::MAX), 3);
        assert!(!park.is_used());
    }

    #[test]
    fn whoever_finds_room_while_being_added_does_not_wait() {
        let park = Park::new(usize::MAX, 1);
        let admission = park.add(place(1), 10, 0, || false);
        assert_eq!((admission, park.depth(0).waiting), (Admission::Now, 0));
    }
}
