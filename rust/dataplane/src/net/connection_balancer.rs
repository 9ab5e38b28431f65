//! Which network thread serves which connection.
//!
//! The acceptor deals connections out in turn and cannot know their load. So a connection moves,
//! between two of its requests, for one of two reasons:
//!
//! - A consumer that one other thread wakes repeatedly moves there while both threads have little
//!   to do: records produced there then reach it within one turn, without waking a second thread.
//! - A busy thread gives one of its connections to a thread that has little to do.
//!
//! The first gathers only where the sum is far below what the second spreads, so the two do not
//! work against each other.

use std::sync::Arc;

use pyrklog_base::clock::mono_ns;
use pyrklog_control::statistics::ThreadStatistics;

/// Loads are measured over at least this long.
const WINDOW_NS: u64 = 50_000_000;

/// A connection that moved stays for this long.
const REST_MS: i64 = 1_000;

/// Consecutive wakes by the same thread that make a consumer follow it.
const WAKES_TO_FOLLOW: u32 = 8;

/// Two threads with less than this to do together can be one.
const GATHER_BELOW: f64 = 0.25;

/// A thread with more than this to do gives a connection away.
const SPREAD_ABOVE: f64 = 0.5;

/// Two threads whose loads differ by no more than this are even.
const SPREAD_DISTANCE: f64 = 0.2;

/// Share of its thread's time below which a connection is not worth a move.
const SHARE_MIN: f64 = 0.005;

#[derive(Clone, Copy, Debug, Default)]
pub struct Affinity {
    /// Where it should move at the next occasion.
    pub to: Option<usize>,
    /// Nanoseconds spent on it in this window, while its thread is busy.
    pub spent_ns: u64,
    woken_by: usize,
    wakes: u32,
    rests_until_ms: i64,
}

impl Affinity {
    pub fn arrived(&mut self, now_ms: i64) {
        *self = Affinity {
            rests_until_ms: now_ms + REST_MS,
            ..Affinity::default()
        };
    }

    /// Adds the time since `began_ns`, if that is measured.
    pub fn spent_since(&mut self, began_ns: Option<u64>) {
        if let Some(began_ns) = began_ns {
            self.spent_ns += mono_ns() - began_ns;
        }
    }

    fn may_move(&self, now_ms: i64) -> bool {
        self.rests_until_ms <= now_ms
    }
}

/// See the module. One per network thread.
#[derive(Debug)]
pub struct ConnectionBalancer {
    thread: usize,
    threads: Vec<Arc<ThreadStatistics>>,
    /// Share of the time that each thread worked, in the last window.
    loads: Vec<f64>,
    /// Each thread's working time when the window began.
    worked_ns: Vec<u64>,
    window_began_ns: u64,
    window_ns: u64,
    turn_began_ns: u64,
}

impl ConnectionBalancer {
    /// For network thread `thread`; `threads` has the working times of all.
    pub fn new(thread: usize, threads: &[Arc<ThreadStatistics>]) -> ConnectionBalancer {
        let now_ns = mono_ns();
        ConnectionBalancer {
            thread,
            loads: vec![0.0; threads.len()],
            worked_ns: threads.iter().map(|one| one.worked_ns.get()).collect(),
            threads: threads.to_vec(),
            window_began_ns: now_ns,
            window_ns: WINDOW_NS,
            turn_began_ns: now_ns,
        }
    }

    /// A turn begins; true at the end of a window in which connections were measured.
    pub fn begin_turn(&mut self, now_ns: u64) -> bool {
        self.turn_began_ns = now_ns;
        let elapsed_ns = self.turn_began_ns - self.window_began_ns;
        if self.threads.len() < 2 || elapsed_ns < WINDOW_NS {
            return false;
        }
        let has_measured = self.measures();
        self.window_began_ns = self.turn_began_ns;
        self.window_ns = elapsed_ns;
        for (index, thread) in self.threads.iter().enumerate() {
            let worked_ns = thread.worked_ns.get();
            let in_window_ns = worked_ns.wrapping_sub(self.worked_ns[index]);
            self.loads[index] = in_window_ns as f64 / elapsed_ns as f64;
            self.worked_ns[index] = worked_ns;
        }
        has_measured
    }

    pub fn end_turn(&mut self) {
        let worked_ns = mono_ns() - self.turn_began_ns;
        self.threads[self.thread].worked_ns.add(worked_ns);
    }

    pub fn measures(&self) -> bool {
        self.loads.len() > 1 && self.loads[self.thread] > GATHER_BELOW
    }

    /// Thread `by` has woken a fetch of the connection.
    pub fn woken(&self, course: &mut Affinity, by: usize, now_ms: i64) {
        course.wakes = if course.woken_by == by {
            course.wakes.saturating_add(1)
        } else {
            1
        };
        course.woken_by = by;
        let is_light = self.loads[by] + self.loads[self.thread] < GATHER_BELOW;
        let follows = by != self.thread && course.wakes >= WAKES_TO_FOLLOW;
        if follows && is_light && course.may_move(now_ms) {
            course.to = Some(by);
        }
    }

    /// At the end of a window, if this thread has too much to do: chooses the connections to move,
    /// and where. Forgets the measurements. A connection that was to move and could not sits this
    /// round out: the choice may be outdated.
    pub fn relieve<'a>(&self, courses: impl Iterator<Item = &'a mut Affinity>, now_ms: i64) {
        let own = self.loads[self.thread];
        let others = self.loads.iter().enumerate();
        let idlest = others
            .filter(|(index, _)| *index != self.thread)
            .min_by(|(_, a), (_, b)| a.total_cmp(b));
        let Some((to, other)) = idlest else { return };
        let measured: Vec<(f64, &mut Affinity)> = courses
            .map(|course| (std::mem::take(&mut course.spent_ns) as f64, course))
            .collect();
        let all: f64 = measured.iter().map(|(spent, _)| spent).sum();
        let mut best: Option<(f64, &mut Affinity)> = None;
        for (spent, course) in measured {
            if course.to.take().is_some() || spent == 0.0 {
                continue;
            }
            // Charge per-turn overhead to connections in proportion to their share.
            let share = (spent / self.window_ns as f64).max(own * spent / all);
            let after = (own - share).max(other + share);
            let is_better = best.as_ref().is_none_or(|(least, _)| after < *least);
            if share >= SHARE_MIN && is_better && course.may_move(now_ms) {
                best = Some((after, course));
            }
        }
        if let Some((after, course)) = best
            && own > SPREAD_ABOVE
            && own - other > SPREAD_DISTANCE
            && after < own
        {
            course.to = Some(to);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn balancer(loads: &[f64]) -> ConnectionBalancer {
        let threads: Vec<_> = loads.iter().map(|_| Arc::default()).collect();
        ConnectionBalancer {
            loads: loads.to_vec(),
            ..ConnectionBalancer::new(0, &threads)
        }
    }

    fn spent(share: f64) -> Affinity {
        Affinity {
            spent_ns: (share * WINDOW_NS as f64) as u64,
            ..Affinity::default()
        }
    }

    fn relieved(loads: &[f64], shares: &[f64]) -> Vec<Option<usize>> {
        let mut courses: Vec<_> = shares.iter().map(|share| spent(*share)).collect();
        balancer(loads).relieve(courses.iter_mut(), 0);
        assert!(courses.iter().all(|course| course.spent_ns == 0));
        courses.iter().map(|course| course.to).collect()
    }

    #[test]
    fn a_consumer_follows_the_thread_that_keeps_waking_it() {
        let balancer = balancer(&[0.1, 0.1]);
        let mut course = Affinity::default();
        for _ in 1..WAKES_TO_FOLLOW {
            balancer.woken(&mut course, 1, 0);
        }
        assert_eq!(course.to, None);
        balancer.woken(&mut course, 1, 0);
        assert_eq!(course.to, Some(1));
    }

    #[test]
    fn consumer_stays_when_wakes_come_from_many_threads_or_its_own() {
        let balancer = balancer(&[0.1, 0.1, 0.1]);
        let mut course = Affinity::default();
        for wake in 0..100 {
            balancer.woken(&mut course, 1 + wake / 4 % 2, 0);
        }
        assert_eq!(course.to, None);
        for _ in 0..100 {
            balancer.woken(&mut course, 0, 0);
        }
        assert_eq!(course.to, None);
    }

    #[test]
    fn consumer_does_not_move_to_a_busy_thread_or_right_after_a_move() {
        let mut course = Affinity::default();
        for _ in 0..100 {
            balancer(&[0.1, 0.2]).woken(&mut course, 1, 0);
        }
        assert_eq!(course.to, None);
        course.arrived(5);
        for _ in 0..100 {
            balancer(&[0.1, 0.1]).woken(&mut course, 1, 4 + REST_MS);
        }
        assert_eq!(course.to, None);
        balancer(&[0.1, 0.1]).woken(&mut course, 1, 5 + REST_MS);
        assert_eq!(course.to, Some(1));
    }

    #[test]
    fn busy_thread_gives_away_the_connection_that_balances_best() {
        let given = relieved(&[0.9, 0.5, 0.1], &[0.1, 0.45, 0.3, 0.05]);
        assert_eq!(given, [None, Some(2), None, None]);
    }

    #[test]
    fn small_connections_are_given_away_one_by_one() {
        let mut given = relieved(&[0.9, 0.0], &[0.02; 45]);
        given.retain(Option::is_some);
        assert_eq!(given, [Some(1)]);
    }

    #[test]
    fn connection_that_could_not_move_skips_a_round() {
        let balancer = balancer(&[0.9, 0.0]);
        let mut courses = [spent(0.4), spent(0.3)];
        let marks = |courses: &[Affinity; 2]| courses.map(|course| course.to);
        balancer.relieve(courses.iter_mut(), 0);
        assert_eq!(marks(&courses), [Some(1), None]);
        courses[0].spent_ns = spent(0.4).spent_ns;
        courses[1].spent_ns = spent(0.3).spent_ns;
        balancer.relieve(courses.iter_mut(), 0);
        assert_eq!(marks(&courses), [None, Some(1)]);
    }

    #[test]
    fn no_connection_moves_without_a_gain() {
        assert_eq!(
            relieved(&[0.45, 0.0], &[0.2, 0.25]),
            [None, None],
            "not busy"
        );
        for share in [0.9, 0.7] {
            let alone = relieved(&[0.9, 0.0], &[share, 0.0]);
            assert_eq!(alone, [None, None], "all it has");
        }
        let both_busy = relieved(&[0.9, 0.85], &[0.5, 0.4]);
        assert_eq!(both_busy, [None, None]);
    }

    #[test]
    fn the_load_is_the_share_of_the_time_worked() {
        let threads: Vec<Arc<ThreadStatistics>> = vec![Arc::default(), Arc::default()];
        let mut balancer = ConnectionBalancer::new(0, &threads);
        assert!(!balancer.begin_turn(mono_ns()), "the window has just begun");
        threads[1].worked_ns.add(WINDOW_NS);
        balancer.window_began_ns -= 2 * WINDOW_NS;
        assert!(!balancer.begin_turn(mono_ns()), "nothing was measured");
        assert!((0.3..=0.5).contains(&balancer.loads[1]), "{balancer:?}");
        assert_eq!(balancer.loads[0], 0.0);
        balancer.end_turn();
        assert!(threads[0].worked_ns.get() > 0);
    }
}
