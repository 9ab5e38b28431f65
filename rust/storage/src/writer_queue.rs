//! What waits for the writers of a log directory, and which of them it wakes.
//!
//! The first writer takes what is due as it comes. The others sleep until there is more than one share,
//! or until something comes while the first one is kept at a slow file: where little is due, one thread
//! does it, and its turns are large.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicBool, AtomicI64, Ordering};
use std::time::Duration;

use parking_lot::{Condvar, Mutex, MutexGuard};

use pyrklog_base::clock::mono_ms;

/// Partitions of one list that a writer takes at once.
const SHARE: usize = 8;

/// So many partitions that are due later, and fewer, are due after a part of that time.
const FEW: usize = 64;
const EARLY_SHARE: i64 = 5;

/// For each so many partitions that are due later they wait as long again, so that of each there is
/// enough to be worth a write; but no longer than this many times.
const MANY: usize = 1_000;
const LATE_MOST: i64 = 4;

/// What of the directory the writers go by.
pub trait Backlog {
    /// What is appended and not written.
    fn unwritten_bytes(&self) -> usize;
    /// Whether so much of it that room is short.
    fn is_short(&self) -> bool;
}

/// A turn that takes longer than this is a slow one: what comes meanwhile does not wait for its end.
const SLOW_MS: i64 = 5;

/// A job that takes longer than this says that the disk hangs.
const STANDS_STILL_MS: i64 = 1_000;

/// How the writers are to end.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum End {
    /// Not at all.
    #[default]
    No,
    /// Once nothing is queued.
    WhenEmpty,
    /// Now; what is queued is lost, as at a kill.
    Now,
}

#[derive(Debug)]
struct Inner<T> {
    /// Due now.
    now: VecDeque<T>,
    /// Due at some time: since when they wait (monotonic milliseconds), in order.
    later: VecDeque<(i64, T)>,
    /// So many of `later`, from the oldest on, are due whatever their time.
    hurried: usize,
    /// Somebody has called for that since the first writer last looked.
    is_called: bool,
    /// What was unwritten when the first writer last looked and found nothing due, and since when
    /// (monotonic milliseconds).
    seen_bytes: usize,
    seen_ms: i64,
    sleep: Sleep,
    /// Since when the first writer has been at its turn (monotonic milliseconds); 0 while at none.
    turn_since_ms: i64,
    end: End,
    /// Writers that have not ended.
    running: usize,
}

/// What the first writer waits for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Sleep {
    /// It is awake.
    #[default]
    No,
    /// For the first of those that are due later.
    Until,
    /// For anything.
    Long,
}

/// One writer's part of what is due.
#[derive(Debug)]
pub struct Turn<T> {
    /// Those that were queued by [`WriterQueue::push`].
    pub now: Vec<T>,
    /// Those that were queued by [`WriterQueue::push_later`], and whether to write them to the end.
    pub later: Vec<(T, bool)>,
}

/// Partitions (`T`) with something to write, each at most once in each of two lists.
#[derive(Debug)]
pub struct WriterQueue<T> {
    inner: Mutex<Inner<T>>,
    /// For the first writer.
    wake: Condvar,
    /// For the others.
    help: Condvar,
    later_ms: i64,
    is_pressed: AtomicBool,
    /// Since when each writer has been at the job in its hands, monotonic milliseconds; 0 while it
    /// has none.
    at_job_since_ms: Vec<AtomicI64>,
}

impl<T> WriterQueue<T> {
    /// A queue for so many writers, in which "later" means after so many milliseconds.
    pub fn new(writers: usize, later_ms: i64) -> WriterQueue<T> {
        let writers = writers.max(1);
        let inner = Inner {
            now: VecDeque::new(),
            later: VecDeque::new(),
            hurried: 0,
            is_called: false,
            seen_bytes: 0,
            seen_ms: 0,
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
            at_job_since_ms: (0..writers).map(|_| AtomicI64::new(0)).collect(),
        }
    }

    /// Number of writers.
    pub fn writers(&self) -> usize {
        self.at_job_since_ms.len()
    }

    /// Queues a partition, whose `queued` flag the caller has just set under its mutex.
    pub fn push(&self, partition: T) {
        let mut inner = self.inner.lock();
        inner.now.push_back(partition);
        if inner.now.len() > SHARE || inner.is_slow() {
            self.help.notify_one();
        }
        self.wake_unless(inner, Sleep::No);
    }

    /// Queues a partition to be written later, whose `queued_later` flag the caller has just set.
    pub fn push_later(&self, partition: T) {
        let since_ms = mono_ms();
        let mut inner = self.inner.lock();
        inner.later.push_back((since_ms, partition));
        self.wake_unless(inner, Sleep::Until);
    }

    /// Wakes the first writer from a sleep that is longer than it may be.
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

    /// What is due later is due now.
    pub fn hurry(&self) {
        let mut inner = self.inner.lock();
        inner.hurried = inner.later.len();
        inner.is_called = true;
        self.wake_any(inner);
    }

    /// Room is short: the oldest of what is due later is due, until it is no longer.
    pub fn press(&self) {
        if !self.is_pressed.swap(true, Ordering::AcqRel) {
            self.wake_any(self.inner.lock());
        }
    }

    /// Wakes the first writer, or one of the others while that is at work.
    fn wake_any(&self, inner: MutexGuard<'_, Inner<T>>) {
        if inner.sleep == Sleep::No {
            self.help.notify_one();
        }
        self.wake_unless(inner, Sleep::No);
    }

    /// Notes that a writer begins a job.
    pub fn begin_job(&self, writer: usize) {
        self.at_job_since_ms[writer].store(mono_ms(), Ordering::Relaxed);
    }

    /// Notes that it is done.
    pub fn end_job(&self, writer: usize) {
        self.at_job_since_ms[writer].store(0, Ordering::Relaxed);
    }

    /// Whether the disk has kept a writer at one job for too long.
    pub fn stands_still(&self) -> bool {
        let now_ms = mono_ms();
        self.at_job_since_ms.iter().any(|since_ms| {
            let since_ms = since_ms.load(Ordering::Relaxed);
            since_ms > 0 && now_ms - since_ms > STANDS_STILL_MS
        })
    }

    /// Ends the writers once nothing is queued any more.
    pub fn finish(&self) {
        self.end(End::WhenEmpty);
    }

    /// Ends the writers at once.
    pub fn stop(&self) {
        self.end(End::Now);
    }

    /// True at the end at once.
    pub fn is_stopped(&self) -> bool {
        self.inner.lock().end == End::Now
    }

    /// Notes that a writer has ended; true for the last one.
    pub fn leave(&self) -> bool {
        let mut inner = self.inner.lock();
        inner.running -= 1;
        inner.running == 0
    }

    /// Forgets what is queued, after the end: partitions hold their directory, and so its lock.
    pub fn clear(&self) {
        let mut inner = self.inner.lock();
        inner.now.clear();
        inner.later.clear();
        inner.hurried = 0;
    }

    /// Partitions that wait for a writer.
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

    /// Gives the first writer its share of what is due, waiting for it, but not beyond `until_ms`;
    /// false at the end.
    pub fn take(&self, turn: &mut Turn<T>, until_ms: Option<i64>, backlog: &impl Backlog) -> bool {
        let mut inner = self.inner.lock();
        inner.turn_since_ms = 0;
        loop {
            if inner.end == End::Now {
                return false;
            }
            let is_called = std::mem::take(&mut inner.is_called);
            let now_ms = mono_ms();
            let mut next_ms = self.fill(&mut inner, turn, now_ms, backlog);
            if turn.is_empty() && next_ms.is_some() {
                if self.is_lull(&mut inner, now_ms, backlog) {
                    next_ms = self.fill(&mut inner, turn, now_ms, backlog);
                } else {
                    next_ms = next_ms.min(Some(now_ms + self.early_ms()));
                }
            }
            let next_ms = next_ms.into_iter().chain(until_ms).min();
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

    /// The same for one of the others, who are called where there is more than one share.
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

    /// Moves one share of what is due into `turn`, and calls for help if there is more. The answer is
    /// when the next is due of those that are not.
    fn fill(
        &self,
        inner: &mut Inner<T>,
        turn: &mut Turn<T>,
        now_ms: i64,
        backlog: &impl Backlog,
    ) -> Option<i64> {
        // Whoever finds this set has counted his bytes before, and they are looked at after this.
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

    /// Gives the caller what is due, without waiting; false where nothing is.
    #[cfg(feature = "sim")]
    pub fn take_now(&self, turn: &mut Turn<T>, backlog: &impl Backlog) -> bool {
        let mut inner = self.inner.lock();
        self.fill(&mut inner, turn, mono_ms(), backlog);
        !turn.is_empty()
    }

    /// When the next is due of those that are not due yet, if any; for those that are, `now_ms`.
    #[cfg(feature = "sim")]
    pub fn due_ms(&self) -> Option<i64> {
        let inner = self.inner.lock();
        if !inner.now.is_empty() || inner.hurried > 0 {
            return Some(mono_ms());
        }
        let (since_ms, _) = inner.later.front()?;
        Some(since_ms + self.wait_ms(inner.later.len()))
    }

    /// Whether nothing has come for a while: those that wait for more wait in vain, and are due.
    fn is_lull(&self, inner: &mut Inner<T>, now_ms: i64, backlog: &impl Backlog) -> bool {
        let bytes = backlog.unwritten_bytes();
        if bytes != inner.seen_bytes {
            inner.seen_bytes = bytes;
            inner.seen_ms = now_ms;
        }
        let is_lull = now_ms - inner.seen_ms >= self.early_ms();
        if is_lull {
            inner.hurried = inner.later.len();
        }
        is_lull
    }

    fn early_ms(&self) -> i64 {
        self.later_ms / EARLY_SHARE
    }

    /// How long those that are due later wait, so many being there.
    fn wait_ms(&self, waiting: usize) -> i64 {
        if waiting <= FEW {
            // Where few wait it costs little not to let them wait so long.
            return self.early_ms();
        }
        let times = i64::try_from(waiting.div_ceil(MANY)).unwrap_or(LATE_MOST);
        self.later_ms.saturating_mul(times.min(LATE_MOST))
    }
}

impl<T> Inner<T> {
    /// Whether the first writer is kept at its turn.
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
