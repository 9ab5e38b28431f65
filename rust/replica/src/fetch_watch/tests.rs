//! Marks, waits, and that neither is lost between threads.

use std::sync::mpsc;
use std::thread;
use std::time::Duration;

use super::*;

const WOKEN_BY_BYTES: Change = Change {
    new_bytes: 10,
    wakes: true,
    ..Change::NEWS
};

fn session() -> FetchWatch {
    let terms = WatchTerms {
        isolation: Isolation::HighWatermark,
        notify_high_watermark: false,
        by_rack: false,
    };
    FetchWatch::new(WatchKey::Session(1), terms)
}

fn wait_for(missing_bytes: i64) -> WaitingFetch {
    WaitingFetch {
        place: Place {
            thread: 0,
            token: 7,
        },
        wait: 3,
        missing_bytes,
    }
}

fn marks(watch: &FetchWatch) -> Vec<(u32, bool)> {
    let marked = watch.take_marks();
    let pair = |mark: &Marked| (mark.position, mark.is_to_renew);
    marked.iter().map(pair).collect()
}

#[test]
fn each_partition_is_marked_once_and_marks_are_taken_once() {
    let watch = session();
    for position in [5, 2, 5] {
        watch.note(position, Change::NEWS, false);
    }
    watch.note(2, Change::RENEWAL, false);
    watch.note(2, Change::NEWS, false);
    assert_eq!(watch.marked(), 2);
    assert_eq!(marks(&watch), [(5, false), (2, true)]);
    assert_eq!(marks(&watch), []);
    watch.note(5, Change::NEWS, false);
    assert_eq!(marks(&watch), [(5, false)]);
}

#[test]
fn what_comes_between_reading_and_waiting_is_not_lost() {
    let watch = session();
    watch.take_marks();
    assert_eq!(watch.note(4, WOKEN_BY_BYTES, false), None, "nobody waits");
    assert!(!watch.begin_wait(wait_for(1)));
    assert_eq!(marks(&watch), [(4, false)]);
    assert!(watch.begin_wait(wait_for(1)));
    // A change that wakes nobody does not prevent waiting, and is still reported.
    watch.end_wait();
    watch.note(4, Change::NEWS, false);
    assert!(watch.begin_wait(wait_for(1)));
    assert_eq!(marks(&watch), [(4, false)]);
}

#[test]
fn a_fetch_that_is_to_be_answered_is_so_even_if_it_does_not_wait_yet() {
    let asked = Change {
        wakes: true,
        must_answer: true,
        ..Change::RENEWAL
    };
    let watch = session();
    watch.note(4, Change::NEWS, false);
    watch.note(4, asked, false);
    assert!(!watch.begin_wait(wait_for(1)));
    assert!(watch.take_marks()[0].must_answer);
    assert!(watch.begin_wait(wait_for(1)));
    assert!(watch.note(4, asked, false).unwrap().must_answer);
    assert!(!watch.take_marks()[0].must_answer, "it was told");
}

#[test]
fn a_fetch_is_woken_once_when_it_has_enough_bytes() {
    let watch = session();
    assert!(watch.begin_wait(wait_for(15)));
    assert_eq!(watch.note(1, WOKEN_BY_BYTES, false), None, "10 of 15");
    let wake = watch.note(2, WOKEN_BY_BYTES, false).unwrap();
    assert_eq!((wake.wait, wake.must_answer), (3, false));
    assert!(!watch.is_waiting());
    assert_eq!(marks(&watch), [(1, false), (2, false)]);
    assert!(watch.begin_wait(wait_for(i64::MAX)));
    let woken = watch.note(1, WOKEN_BY_BYTES, true);
    assert!(woken.is_some(), "a later segment has some");
}

#[test]
fn a_single_fetch_keeps_no_marks() {
    let terms = session().terms();
    let watch = FetchWatch::new(WatchKey::Fetch(7), terms);
    watch.note(9, WOKEN_BY_BYTES, false);
    assert_eq!(watch.marked(), 0);
}

fn watcher(watch: &Arc<FetchWatch>, position: u32) -> FetchWatcher {
    FetchWatcher::new(Arc::clone(watch), position, None)
}

/// Far longer than anything below takes.
const PATIENCE: Duration = Duration::from_secs(30);

#[test]
fn further_news_of_a_marked_partition_need_no_mutex_of_an_idle_session() {
    let watch = Arc::new(session());
    let mut watcher = watcher(&watch, 4);
    assert_eq!(watcher.note_news(10, true, false), None);
    let held = watch.state.lock();
    let (sender, noted) = mpsc::channel();
    let appender = thread::spawn(move || {
        sender.send(watcher.note_news(10, true, true)).unwrap();
        sender.send(watcher.note_news(10, false, false)).unwrap();
    });
    let first = noted.recv_timeout(Duration::from_secs(5));
    drop(held);
    appender.join().unwrap();
    assert_eq!(first, Ok(None), "it waits for the mutex");
    assert_eq!(marks(&watch), [(4, false)]);
}

#[test]
fn news_are_noted_again_once_marks_were_taken_or_forgotten() {
    let watch = Arc::new(session());
    let mut watcher = watcher(&watch, 4);
    let enders: [fn(&FetchWatch); 2] = [|watch| drop(watch.take_marks()), FetchWatch::reset];
    for ends_round in enders {
        watcher.note_news(10, true, false);
        assert!(!watch.begin_wait(wait_for(1)));
        ends_round(&watch);
        assert_eq!(watch.marked(), 0);
        watcher.note_news(10, true, false);
        assert_eq!(marks(&watch), [(4, false)]);
    }
    // A renewal is marked, though news are known.
    watcher.note_news(10, true, false);
    watch.note(4, Change::RENEWAL, false);
    watcher.note_news(10, true, false);
    assert_eq!(marks(&watch), [(4, true)]);
}

#[test]
fn news_that_wake_nobody_do_not_hide_those_that_do() {
    let watch = Arc::new(session());
    let mut watcher = watcher(&watch, 4);
    watcher.note_news(10, false, false);
    assert!(watch.begin_wait(wait_for(15)));
    assert_eq!(watcher.note_news(10, false, false), None);
    assert_eq!(watcher.note_news(10, true, false), None, "10 of 15");
    assert!(watcher.note_news(10, true, false).is_some());
    assert_eq!(watcher.note_news(10, true, false), None, "nobody waits");
    assert!(
        !watch.begin_wait(wait_for(1)),
        "something came after the wake"
    );
}

/// A partition of the stress test: its end, and a session that watches it.
type Watched = Mutex<(u64, FetchWatcher)>;

const APPENDS: u64 = 20_000;

/// Appends to partitions in a pseudo-random order; sends on every wake.
fn append(partitions: &[Watched], mut random: u64, wakes: &mpsc::Sender<Wake>) {
    for _ in 0..APPENDS {
        random = random.wrapping_mul(0x5851_f42d_4c95_7f2d).wrapping_add(1);
        let partition = &partitions[(random >> 33) as usize % partitions.len()];
        let mut state = partition.lock();
        state.0 += 1;
        if let Some(wake) = state.1.note_news(1, true, false) {
            wakes.send(wake).unwrap();
        }
        drop(state);
        // Some appends come while the session is idle or waits, others together.
        match random >> 60 {
            0 => thread::yield_now(),
            1 => thread::sleep(Duration::from_micros(random >> 59)),
            _ => {}
        }
    }
}

/// Fetches, looks at the marked partitions and waits, until it has seen `all` appends.
fn fetch(partitions: &[Watched], watch: &FetchWatch, all: u64, wakes: &mpsc::Receiver<Wake>) {
    let mut seen = vec![0; partitions.len()];
    for wait in 0.. {
        for mark in watch.take_marks() {
            let at = mark.position as usize;
            seen[at] = partitions[at].lock().0;
        }
        if seen.iter().sum::<u64>() == all {
            return;
        }
        let waiting = WaitingFetch {
            wait,
            ..wait_for(1)
        };
        if watch.begin_wait(waiting) {
            let wake = wakes.recv_timeout(PATIENCE);
            let wake = wake.unwrap_or_else(|_| panic!("no wake: {seen:?} of {all} were seen"));
            assert_eq!(wake.wait, wait);
        }
    }
}

#[test]
fn neither_marks_nor_wakes_are_lost_between_threads() {
    const APPENDERS: u64 = 3;
    const PARTITIONS: u32 = 4;
    let watch = Arc::new(session());
    let partitions = (0..PARTITIONS).map(|position| Mutex::new((0, watcher(&watch, position))));
    let partitions: Vec<Watched> = partitions.collect();
    let (sender, wakes) = mpsc::channel();
    thread::scope(|scope| {
        for seed in 1..=APPENDERS {
            let (partitions, sender) = (&partitions, sender.clone());
            scope.spawn(move || append(partitions, seed, &sender));
        }
        fetch(&partitions, &watch, APPENDERS * APPENDS, &wakes);
    });
    assert!(watch.marked() == 0 && !watch.is_waiting());
}
