//! What waits for the writers of a log directory, and which of them it wakes.
//!
//! The first writer takes what is due as it comes. The others sleep until there is more than one share,
//! or until something comes while the first one is kept at a slow file: where little is due, one thread
//! does it, and its turns are large.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicBool, AtomicI64, Ordering};
use std::time::Duration;

use parking_lot::{Condvar, Mutex, MutexGuard};

use crate::clock::mono_ms;

/// Partitions of one list that a writer takes at once.
const SHARE: usize = 8;

/// So many partitions that are due later, and fewer, are due after a part of that time.
const FEW: usize = 64;
const EARLY_SHARE: i64 = 5;

/// For each so many partitions that are due later they wait as long again, so that of each there is
/// enough to be worth a write; but no longer than this many times.
const MANY: usize = 1_000;
const LATE_MOST: i64 = 4;

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
    /// false at the end. `is_short` says whether room is short.
    pub fn take(
        &self,
        turn: &mut Turn<T>,
        until_ms: Option<i64>,
        is_short: impl Fn() -> bool,
    ) -> bool {
        let mut inner = self.inner.lock();
        inner.turn_since_ms = 0;
        loop {
            if inner.end == End::Now {
                return false;
            }
            let is_called = std::mem::take(&mut inner.is_called);
            let now_ms = mono_ms();
            let next_ms = self.fill(&mut inner, turn, now_ms, &is_short);
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
    pub fn help(&self, turn: &mut Turn<T>, is_short: impl Fn() -> bool) -> bool {
        let mut inner = self.inner.lock();
        loop {
            if inner.end == End::Now {
                return false;
            }
            self.fill(&mut inner, turn, mono_ms(), &is_short);
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
        is_short: &impl Fn() -> bool,
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
            if !is_whole && !is_short() {
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

    /// How long those that are due later wait, so many being there.
    fn wait_ms(&self, waiting: usize) -> i64 {
        if waiting <= FEW {
            // Where few wait it costs little not to let them wait so long.
            return self.later_ms / EARLY_SHARE;
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
mod tests {
    use std::sync::atomic::AtomicUsize;
    use std::thread;

    use super::*;

    /// Longer than any test.
    const LONG_MS: i64 = 3_600_000;

    fn taken(queue: &WriterQueue<usize>, is_short: bool) -> (Vec<usize>, Vec<(usize, bool)>) {
        let mut turn = Turn::default();
        // Nobody waits: the time to look again is now.
        assert!(queue.take(&mut turn, Some(0), || is_short));
        (turn.now, turn.later)
    }

    fn whole(numbers: impl Iterator<Item = usize>) -> Vec<(usize, bool)> {
        numbers.map(|number| (number, true)).collect()
    }

    #[test]
    fn what_is_due_comes_in_order_and_in_shares() {
        let queue = WriterQueue::new(1, LONG_MS);
        (0..SHARE + 3).for_each(|number| queue.push(number));
        assert_eq!(taken(&queue, false).0, Vec::from_iter(0..SHARE));
        assert_eq!(taken(&queue, false).0, Vec::from_iter(SHARE..SHARE + 3));
        assert_eq!(taken(&queue, false), (vec![], vec![]));
    }

    #[test]
    fn nothing_of_later_is_due_before_its_time_but_all_that_was_there_when_somebody_hurries() {
        let queue = WriterQueue::new(1, LONG_MS);
        (0..3).for_each(|number| queue.push_later(number));
        assert_eq!(taken(&queue, false).1, []);
        queue.hurry();
        assert_eq!(taken(&queue, false).1, whole(0..3));
        queue.push_later(3);
        assert_eq!(taken(&queue, false).1, [], "that came after the call");
        (4..4 + SHARE + 2).for_each(|number| queue.push_later(number));
        queue.hurry();
        assert_eq!(taken(&queue, false).1, whole(3..3 + SHARE));
        queue.push_later(100);
        assert_eq!(taken(&queue, false).1, whole(3 + SHARE..6 + SHARE));
    }

    #[test]
    fn the_oldest_goes_while_room_is_short() {
        let queue = WriterQueue::new(1, LONG_MS);
        (0..SHARE + 2).for_each(|number| queue.push_later(number));
        let (_, later) = taken(&queue, true);
        assert_eq!(
            later,
            Vec::from_iter((0..SHARE).map(|number| (number, false)))
        );
        assert_eq!(taken(&queue, false).1, [], "there is room again");
        assert_eq!(taken(&queue, true).1, [(SHARE, false), (SHARE + 1, false)]);
    }

    #[test]
    fn a_time_that_has_come_is_due_to_the_end_even_while_room_is_short() {
        let queue = WriterQueue::new(1, 0);
        queue.push_later(1);
        assert_eq!(taken(&queue, true).1, [(1, true)]);
    }

    #[test]
    fn few_wait_less_and_many_longer() {
        let queue: WriterQueue<usize> = WriterQueue::new(1, 500);
        assert_eq!(queue.wait_ms(1), 100);
        assert_eq!(queue.wait_ms(FEW + 1), 500);
        assert_eq!(queue.wait_ms(MANY + 1), 1_000);
        assert_eq!(queue.wait_ms(10 * MANY), 2_000);
    }

    #[test]
    fn the_others_help_with_what_is_more_than_a_share() {
        let queue = WriterQueue::new(3, LONG_MS);
        let done = AtomicUsize::new(0);
        let helped = AtomicUsize::new(0);
        let wait_for = |count: &AtomicUsize, least: usize| {
            while count.load(Ordering::SeqCst) < least {
                thread::yield_now();
            }
        };
        thread::scope(|scope| {
            for _ in 1..3 {
                scope.spawn(|| {
                    let mut turn = Turn::default();
                    while queue.help(&mut turn, || false) {
                        let count = turn.now.drain(..).count();
                        done.fetch_add(count, Ordering::SeqCst);
                        helped.fetch_add(1, Ordering::SeqCst);
                    }
                    queue.leave();
                });
            }
            scope.spawn(|| {
                let mut turn = Turn::default();
                while queue.take(&mut turn, None, || false) {
                    // As at a slow file: the rest is done by others.
                    wait_for(&helped, 1);
                    done.fetch_add(turn.now.drain(..).count(), Ordering::SeqCst);
                }
                queue.leave();
            });
            (0..10 * SHARE).for_each(|number| queue.push(number));
            wait_for(&done, 10 * SHARE);
            queue.finish();
        });
        assert_eq!(queue.depth(), 0);
        assert_eq!(queue.inner.lock().running, 0);
    }

    /// What comes while the first writer is kept goes to another, however little it is.
    #[test]
    fn nothing_waits_for_a_slow_turn_of_the_first() {
        for call in ["push", "press", "hurry"] {
            let queue = WriterQueue::new(2, LONG_MS);
            queue.push(0);
            assert_eq!(taken(&queue, false).0, [0]);
            queue.inner.lock().turn_since_ms -= SLOW_MS + 1;
            queue.push_later(1);
            let is_short = AtomicBool::new(false);
            thread::scope(|scope| {
                let helper = scope.spawn(|| {
                    let mut turn = Turn::default();
                    queue.help(&mut turn, || is_short.load(Ordering::SeqCst));
                    (turn.now, turn.later)
                });
                is_short.store(call == "press", Ordering::SeqCst);
                match call {
                    "push" => queue.push(2),
                    "press" => queue.press(),
                    _ => queue.hurry(),
                }
                let expected = match call {
                    "push" => (vec![2], vec![]),
                    "press" => (vec![], vec![(1, false)]),
                    _ => (vec![], vec![(1, true)]),
                };
                assert_eq!(helper.join().unwrap(), expected, "{call}");
            });
        }
    }

    #[test]
    fn at_the_end_all_is_taken_and_the_last_to_leave_is_told() {
        let queue = WriterQueue::new(2, LONG_MS);
        queue.push_later(1);
        queue.push(2);
        queue.finish();
        let mut turn = Turn::default();
        assert!(queue.help(&mut turn, || false));
        assert_eq!((turn.now, turn.later), (vec![2], vec![(1, true)]));
        assert!(!queue.help(&mut Turn::default(), || false));
        assert!(!queue.leave());
        assert!(!queue.take(&mut Turn::default(), None, || false));
        assert!(queue.leave());
        queue.push(3);
        queue.stop();
        assert!(!queue.take(&mut Turn::default(), None, || false));
        assert!(queue.is_stopped());
    }

    #[test]
    fn a_job_that_takes_too_long_stands_still_whoever_has_it() {
        let queue: WriterQueue<usize> = WriterQueue::new(2, LONG_MS);
        queue.begin_job(1);
        assert!(!queue.stands_still());
        let long_ago_ms = mono_ms() - STANDS_STILL_MS - 1;
        queue.at_job_since_ms[1].store(long_ago_ms, Ordering::Relaxed);
        assert!(queue.stands_still());
        queue.end_job(1);
        assert!(!queue.stands_still());
    }
}
