use std::sync::atomic::AtomicUsize;
use std::thread;

use super::*;
use pyrklog_base::waiting::eventually;

const LONG_MS: i64 = 3_600_000;

/// Whether room is short.
#[derive(Default)]
struct Room {
    is_short: AtomicBool,
}

impl Backlog for Room {
    fn is_short(&self) -> bool {
        self.is_short.load(Ordering::SeqCst)
    }
}

fn taken(queue: &WriterQueue<usize>, is_short: bool) -> (Vec<usize>, Vec<(usize, bool)>) {
    let backlog = Room {
        is_short: AtomicBool::new(is_short),
    };
    let mut turn = Turn::default();
    // The deadline has passed, so nothing waits.
    assert!(queue.take(&mut turn, Some(0), &backlog));
    (turn.now, turn.later)
}

fn whole(numbers: impl Iterator<Item = usize>) -> Vec<(usize, bool)> {
    numbers.map(|number| (number, true)).collect()
}

#[test]
fn due_partitions_come_in_order_and_in_shares() {
    let queue = WriterQueue::new(1, LONG_MS);
    (0..SHARE + 3).for_each(|number| queue.push(number));
    assert_eq!(taken(&queue, false).0, Vec::from_iter(0..SHARE));
    assert_eq!(taken(&queue, false).0, Vec::from_iter(SHARE..SHARE + 3));
    assert_eq!(taken(&queue, false), (vec![], vec![]));
}

#[test]
fn hurry_makes_all_waiting_partitions_due() {
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
fn oldest_partitions_are_due_while_memory_is_short() {
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
fn partition_due_by_time_is_written_to_its_end() {
    let queue = WriterQueue::new(1, 0);
    queue.push_later(1);
    assert_eq!(taken(&queue, true).1, [(1, true)]);
}

#[test]
fn a_few_partitions_are_due_early() {
    let queue: WriterQueue<usize> = WriterQueue::new(1, 500);
    assert_eq!(queue.wait_ms(1), 100);
    assert_eq!(queue.wait_ms(FEW), 100);
    assert_eq!(queue.wait_ms(FEW + 1), 500);
}

#[test]
fn other_writers_help_beyond_one_share() {
    let queue = WriterQueue::new(3, LONG_MS);
    let done = AtomicUsize::new(0);
    let helped = AtomicUsize::new(0);
    let wait_for = |count: &AtomicUsize, least: usize| {
        let is_enough = || count.load(Ordering::SeqCst) >= least;
        eventually("enough of it", || is_enough().then_some(()));
    };
    thread::scope(|scope| {
        for _ in 1..3 {
            scope.spawn(|| {
                let mut turn = Turn::default();
                while queue.help(&mut turn, &Room::default()) {
                    let count = turn.now.drain(..).count();
                    done.fetch_add(count, Ordering::SeqCst);
                    helped.fetch_add(1, Ordering::SeqCst);
                }
                queue.leave();
            });
        }
        scope.spawn(|| {
            let mut turn = Turn::default();
            while queue.take(&mut turn, None, &Room::default()) {
                // As at a slow file: others do the rest.
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

/// During a slow turn of the first writer even little work goes to another.
#[test]
fn second_writer_takes_over_from_a_slow_first() {
    for call in ["push", "press", "hurry"] {
        let queue = WriterQueue::new(2, LONG_MS);
        queue.push(0);
        assert_eq!(taken(&queue, false).0, [0]);
        queue.inner.lock().turn_since_ms -= SLOW_MS + 1;
        queue.push_later(1);
        let backlog = Room::default();
        thread::scope(|scope| {
            let helper = scope.spawn(|| {
                let mut turn = Turn::default();
                queue.help(&mut turn, &backlog);
                (turn.now, turn.later)
            });
            let is_short = call == "press";
            backlog.is_short.store(is_short, Ordering::SeqCst);
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
fn finish_hands_out_all_and_names_the_last_writer() {
    let queue = WriterQueue::new(2, LONG_MS);
    queue.push_later(1);
    queue.push(2);
    queue.finish();
    let mut turn = Turn::default();
    assert!(queue.help(&mut turn, &Room::default()));
    assert_eq!((turn.now, turn.later), (vec![2], vec![(1, true)]));
    assert!(!queue.help(&mut Turn::default(), &Room::default()));
    assert!(!queue.leave());
    assert!(!queue.take(&mut Turn::default(), None, &Room::default()));
    assert!(queue.leave());
    queue.push(3);
    queue.stop();
    assert!(!queue.take(&mut Turn::default(), None, &Room::default()));
    assert!(queue.is_stopped());
}

#[test]
fn overlong_job_counts_as_stalled_in_any_writer() {
    let queue: WriterQueue<usize> = WriterQueue::new(2, LONG_MS);
    let (now_ms, late_ms) = (mono_ms(), mono_ms() + 2 * HANG_MS);
    queue.jobs[1].begin();
    assert!(!queue.is_hanging(now_ms));
    assert!(queue.is_hanging(late_ms));
    queue.jobs[1].end();
    assert!(!queue.is_hanging(late_ms));
}
