//! Queue of a log directory's writers; decides which of them to wake.
//!
//! The first writer takes what is due as it comes. The others sleep until more than one share is
//! due, or until something comes during a slow turn of the first one. With little to do, one thread
//! does everything in large turns.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use parking_lot::{Condvar, Mutex, MutexGuard};

use crate::reader_queue::Step;
use pyrklog_base::clock::mono_ms;

/// Partitions of one list that a writer takes at once.
const SHARE: usize = 8;

/// With at most this many partitions waiting, the flush delay shrinks to one fifth.
const FEW: usize = 64;
const EARLY_SHARE: i64 = 5;

/// State of the directory that the writers need.
pub trait Backlog {
    /// Whether room for unwritten bytes is short.
    fn is_short(&self) -> bool;
}

/// During a turn longer than this, new work goes to another writer.
const SLOW_MS: i64 = 5;

/// A job longer than this means that the disk hangs.
const HANG_MS: i64 = 1_000;

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum End {
    #[default]
    No,
    WhenEmpty,
    /// Now; as in a kill, what is queued is lost.
    Now,
}

#[derive(Debug)]
struct Inner<T> {
    now: VecDeque<T>,
    /// Due later: (waiting since, monotonic milliseconds; partition), oldest first.
    later: VecDeque<(i64, T)>,
    /// This many of `later`, from the oldest on, are due now.
    hurried: usize,
    /// [`WriterQueue::hurry`] was called since the first writer last looked.
    is_called: bool,
    sleep: Sleep,
    /// When the first writer began its turn (monotonic milliseconds); 0 between turns.
    turn_since_ms: i64,
    end: End,
    running: usize,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Sleep {
    #[default]
    No,
    /// For the earliest of `later`.
    Until,
    /// For anything.
    Long,
}

/// One writer's share of what is due.
#[derive(Debug)]
pub struct Turn<T> {
    /// From [`WriterQueue::push`].
    pub now: Vec<T>,
    /// From [`WriterQueue::push_later`], and whether to write all of it.
    pub later: Vec<(T, bool)>,
}

/// Partitions (`T`) with something to write, each at most once in each of two lists.
#[derive(Debug)]
pub struct WriterQueue<T> {
    inner: Mutex<Inner<T>>,
    /// Wakes the first writer.
    wake: Condvar,
    /// Wakes the others.
    help: Condvar,
    later_ms: i64,
    is_pressed: AtomicBool,
    /// The current job of each writer.
    pub jobs: Vec<Step>,
}

impl<T> WriterQueue<T> {
    /// A queue for `writers` writers with a flush delay of `later_ms`.
    pub fn new(writers: usize, later_ms: i64) -> WriterQueue<T> {
        let writers = writers.max(1);
        let inner = Inner {
            now: VecDeque::new(),
            later: VecDeque::new(),
            hurried: 0,
            is_called: false,
            sleep: Sleep::No,
            turn_since_ms: 0,
            end: End::No,
            running: writers,
        };
        WriterQueue {
            inner: Mutex::new(inner),
            wake: Condvar::new(),
            help: Condvar::new(),
            later_ms,
            is_pressed: AtomicBool::new(false),
            jobs: (0..writers).map(|_| Step::default()).collect(),
        }
    }

    /// Number of writers.
    pub fn writers(&self) -> usize {
        self.jobs.len()
    }

    /// Queues a partition that is due now. The caller has just set its `queued` flag under its
    /// mutex.
    pub fn push(&self, partition: T) {
        let mut inner = self.inner.lock();
        inner.now.push_back(partition);
        if inner.now.len() > SHARE || inner.is_slow() {
            self.help.notify_one();
        }
        self.wake_unless(inner, Sleep::No);
    }

    /// Queues a partition that is due later. The caller has just set its `queued_later` flag.
    pub fn push_later(&self, partition: T) {
        let since_ms = mono_ms();
        let mut inner = self.inner.lock();
        inner.later.push_back((since_ms, partition));
        self.wake_unless(inner, Sleep::Until);
    }

    /// Wakes the first writer unless it is awake or its sleep is `enough`.
    fn wake_unless(&self, mut inner: MutexGuard<'_, Inner<T>>, enough: Sleep) {
        let wake = inner.sleep != Sleep::No && inner.sleep != enough;
        if wake {
            inner.sleep = Sleep::No;
        }
        drop(inner);
        if wake {
            self.wake.notify_one();
        }
    }

    /// Makes everything that is due later due now.
    pub fn hurry(&self) {
        let mut inner = self.inner.lock();
        inner.hurried = inner.later.len();
        inner.is_called = true;
        self.wake_any(inner);
    }

    /// Room is short: the oldest partitions are due until it is not.
    pub fn press(&self) {
        if !self.is_pressed.swap(true, Ordering::AcqRel) {
            self.wake_any(self.inner.lock());
        }
    }

    /// Wakes the first writer, or one of the others while it works.
    fn wake_any(&self, inner: MutexGuard<'_, Inner<T>>) {
        if inner.sleep == Sleep::No {
            self.help.notify_one();
        }
        self.wake_unless(inner, Sleep::No);
    }

    /// Whether a writer has been at one job for too long.
    pub fn is_hanging(&self, now_ms: i64) -> bool {
        let hangs = |job: &Step| job.age_ms(now_ms).is_some_and(|age_ms| age_ms > HANG_MS);
        self.jobs.iter().any(hangs)
    }

    /// Ends the writers once nothing is queued.
    pub fn finish(&self) {
        self.end(End::WhenEmpty);
    }

    /// Ends the writers at once.
    pub fn stop(&self) {
        self.end(End::Now);
    }

    /// Whether the writers end at once.
    pub fn is_stopped(&self) -> bool {
        self.inner.lock().end == End::Now
    }

    /// A writer has ended; true for the last one.
    pub fn leave(&self) -> bool {
        let mut inner = self.inner.lock();
        inner.running -= 1;
        inner.running == 0
    }

    /// Drops what is queued, after the end: partitions hold their directory and so its lock.
    pub fn clear(&self) {
        let mut inner = self.inner.lock();
        inner.now.clear();
        inner.later.clear();
        inner.hurried = 0;
    }

    /// Partitions that are due now.
    pub fn depth(&self) -> usize {
        self.inner.lock().now.len()
    }

    fn end(&self, end: End) {
        let mut inner = self.inner.lock();
        if inner.end != End::Now {
            inner.end = end;
        }
        inner.sleep = Sleep::No;
        drop(inner);
        self.wake.notify_one();
        self.help.notify_all();
    }

    /// Waits for the first writer's share of what is due, until `until_ms` at most; false at the
    /// end.
    pub fn take(&self, turn: &mut Turn<T>, until_ms: Option<i64>, backlog: &impl Backlog) -> bool {
        let mut inner = self.inner.lock();
        inner.turn_since_ms = 0;
        loop {
            if inner.end == End::Now {
                return false;
            }
            let is_called = std::mem::take(&mut inner.is_called);
            let now_ms = mono_ms();
            let due_ms = self.fill(&mut inner, turn, now_ms, backlog);
            let next_ms = due_ms.into_iter().chain(until_ms).min();
            let is_over = inner.end == End::No && until_ms.is_some_and(|ms| ms <= now_ms);
            if !turn.is_empty() || is_called || is_over {
                inner.turn_since_ms = now_ms;
                return true;
            }
            match (inner.end, next_ms) {
                (End::WhenEmpty, _) => return false,
                (_, Some(due_ms)) => {
                    inner.sleep = Sleep::Until;
                    let wait_ms = u64::try_from(due_ms - now_ms).unwrap_or(0);
                    let wait = Duration::from_millis(wait_ms);
                    self.wake.wait_for(&mut inner, wait);
                }
                (_, None) => {
                    inner.sleep = Sleep::Long;
                    self.wake.wait(&mut inner);
                }
            }
            inner.sleep = Sleep::No;
        }
    }

    /// The same for the other writers, which are woken when more than one share is due.
    pub fn help(&self, turn: &mut Turn<T>, backlog: &impl Backlog) -> bool {
        let mut inner = self.inner.lock();
        loop {
            if inner.end == End::Now {
                return false;
            }
            self.fill(&mut inner, turn, mono_ms(), backlog);
            if !turn.is_empty() {
                return true;
            }
            if inner.end == End::WhenEmpty {
                return false;
            }
            self.help.wait(&mut inner);
        }
    }

    /// Moves one share of what is due into `turn` and wakes another writer if more is left. Returns
    /// when the next partition becomes due.
    fn fill(
        &self,
        inner: &mut Inner<T>,
        turn: &mut Turn<T>,
        now_ms: i64,
        backlog: &impl Backlog,
    ) -> Option<i64> {
        // A caller that finds the flag set counted its bytes before, and they are read after this.
        self.is_pressed.swap(false, Ordering::AcqRel);
        let share = inner.now.len().min(SHARE);
        turn.now.extend(inner.now.drain(..share));
        let wait_ms = self.wait_ms(inner.later.len());
        let mut next_ms = None;
        let mut more = !inner.now.is_empty();
        while let Some((since_ms, _)) = inner.later.front() {
            let due_ms = since_ms + wait_ms;
            let is_whole = inner.hurried > 0 || inner.end != End::No || due_ms <= now_ms;
            if !is_whole && !backlog.is_short() {
                next_ms = Some(due_ms);
                break;
            }
            if turn.later.len() == SHARE {
                more = true;
                break;
            }
            if let Some((_, partition)) = inner.later.pop_front() {
                turn.later.push((partition, is_whole));
                inner.hurried = inner.hurried.saturating_sub(1);
            }
        }
        if more {
            self.help.notify_one();
        }
        next_ms
    }

    /// Takes what is due without waiting; false if nothing is.
    #[cfg(feature = "sim")]
    pub fn take_now(&self, turn: &mut Turn<T>, backlog: &impl Backlog) -> bool {
        let mut inner = self.inner.lock();
        self.fill(&mut inner, turn, mono_ms(), backlog);
        !turn.is_empty()
    }

    /// When the next partition is due; `now` for one that is due already.
    #[cfg(feature = "sim")]
    pub fn due_ms(&self) -> Option<i64> {
        let inner = self.inner.lock();
        if !inner.now.is_empty() || inner.hurried > 0 {
            return Some(mono_ms());
        }
        let (since_ms, _) = inner.later.front()?;
        Some(since_ms + self.wait_ms(inner.later.len()))
    }

    /// The flush delay with this many partitions waiting.
    fn wait_ms(&self, waiting: usize) -> i64 {
        match waiting {
            // Writing a few partitions early costs little.
            ..=FEW => self.later_ms / EARLY_SHARE,
            _ => self.later_ms,
        }
    }
}

impl<T> Inner<T> {
    fn is_slow(&self) -> bool {
        self.turn_since_ms > 0 && mono_ms() - self.turn_since_ms > SLOW_MS
    }
}

impl<T> Default for Turn<T> {
    fn default() -> Turn<T> {
        Turn {
            now: Vec::new(),
            later: Vec::new(),
        }
    }
}

impl<T> Turn<T> {
    fn is_empty(&self) -> bool {
        self.now.is_empty() && self.later.is_empty()
    }
}

#[cfg(test)]
mod tests;
