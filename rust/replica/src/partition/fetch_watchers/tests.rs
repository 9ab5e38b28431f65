//! News reach sessions, are not repeated to idle ones, and are not lost.

use pyrklog_log::Unwritten;

use super::*;
use crate::directory::Directory;
use crate::fetch_watch::{Marked, WaitingFetch};
use crate::partition::{Partition, Topic};
use pyrklog_base::ids::Place;
use pyrklog_control::image::TopicState;
use pyrklog_control::seam::Throttled;

const PLACE: Place = Place {
    thread: 0,
    token: 7,
};

/// Nothing is written.
#[derive(Debug, Default)]
struct Unused;

impl Directory for Unused {
    fn flush_bytes(&self) -> usize {
        usize::MAX
    }

    fn write(&self, _: Arc<Partition<Self>>) {}

    fn write_later(&self, _: Arc<Partition<Self>>) {}

    fn count(&self, _: Unwritten, _: Unwritten) {}

    fn high_watermark_moved(&self) {}

    fn partition_failed(&self, _: &Partition<Self>, _: &mut PartitionState, reason: String) {
        panic!("{reason}");
    }
}

/// A partition without a log.
fn partition() -> Partition<Unused> {
    let topic = Topic::new(&TopicState {
        name: Arc::from("t"),
        id: [0; 16],
        internal: false,
        partitions: Vec::new(),
        log_config: Arc::default(),
        min_insync_replicas: 1,
        throttled: Arc::new(Throttled::default()),
    });
    Partition::new(Arc::new(topic), 0, Arc::default(), 1)
}

fn watch(key: WatchKey, isolation: Isolation) -> Arc<FetchWatch> {
    let terms = WatchTerms {
        isolation,
        notify_high_watermark: false,
        by_rack: false,
    };
    Arc::new(FetchWatch::new(key, terms))
}

fn session(isolation: Isolation) -> Arc<FetchWatch> {
    watch(WatchKey::Session(1), isolation)
}

fn wait_for(missing_bytes: i64) -> WaitingFetch {
    WaitingFetch {
        place: PLACE,
        wait: 3,
        missing_bytes,
    }
}

/// Ten bytes that only replicas see, or that all see; whether a fetch is woken.
fn news(state: &mut PartitionState, is_visible: bool) -> bool {
    let mut outbox = Outbox::new(1).of_network_thread(0);
    state.notify_fetches(10, true, is_visible, &mut outbox);
    outbox.has_own()
}

fn listening(state: &PartitionState) -> usize {
    state.fetch_watchers.listening.len()
}

/// As a session does: takes the marks, and lets the partition tell again.
fn take(watch: &FetchWatch, state: &mut PartitionState) -> Vec<Marked> {
    let marks = watch.take_marks();
    for _ in marks.iter().filter(|mark| mark.is_last_news) {
        state.tell_news_again(watch.key());
    }
    marks
}

#[test]
fn an_idle_session_is_told_of_the_first_news_until_it_takes_its_marks() {
    let watch = session(Isolation::HighWatermark);
    let partition = partition();
    let mut state = partition.lock();
    state.add_fetch_watcher(&watch, 4);
    for _ in 0..2 {
        for _ in 0..3 {
            assert!(!news(&mut state, false), "a consumer does not see them");
            assert_eq!((listening(&state), watch.marked()), (1, 0));
        }
        for _ in 0..3 {
            assert!(!news(&mut state, true));
            assert_eq!((listening(&state), watch.marked()), (0, 1));
            assert!(!watch.begin_wait(wait_for(1)));
        }
        // What is no mere news reaches it all the same.
        state.tell_fetches_later();
        let marks = take(&watch, &mut state);
        assert_eq!(marks.len(), 1);
        assert!(marks[0].number == 4 && marks[0].is_to_renew);
        assert_eq!(listening(&state), 1);
        // A fetch that waits hears of all news.
        assert!(watch.begin_wait(wait_for(15)));
        assert!(!news(&mut state, true), "10 of 15");
        assert!(news(&mut state, true));
        assert_eq!(listening(&state), 1);
        assert_eq!(take(&watch, &mut state).len(), 1);
    }
    assert!(!news(&mut state, true));
    state.remove_fetch_watcher(watch.key());
    assert_eq!(state.fetch_watchers.all().count(), 0);
}

#[test]
fn news_that_wake_nobody_do_not_hide_those_that_do() {
    let watch = session(Isolation::DurableEnd);
    let partition = partition();
    let mut state = partition.lock();
    state.add_fetch_watcher(&watch, 4);
    let mut outbox = Outbox::new(1);
    // The high watermark alone.
    state.notify_fetches(10, false, true, &mut outbox);
    assert_eq!((listening(&state), watch.marked()), (1, 1));
    assert!(watch.begin_wait(wait_for(1)));
    assert!(news(&mut state, false));
}

#[test]
fn a_single_fetch_hears_of_all_news() {
    let watch = watch(WatchKey::Fetch(7), Isolation::HighWatermark);
    assert!(watch.begin_wait(wait_for(15)));
    let partition = partition();
    let mut state = partition.lock();
    state.add_fetch_watcher(&watch, 0);
    let woken = [0; 3].map(|_| news(&mut state, true));
    assert_eq!((woken, listening(&state)), ([false, true, false], 1));
}

/// What a session does next. Each step is one that a thread may take between two of others.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Phase {
    TakeMarks,
    /// It looks at the marked partitions; whether the first may tell its news again.
    Look(bool),
    BeginWait,
    Wait,
}

/// Partitions, and a session whose fetches wait for one byte.
struct Model {
    watch: Arc<FetchWatch>,
    partitions: Vec<Partition<Unused>>,
    appended: Vec<u64>,
    seen: Vec<u64>,
    marks: Vec<Marked>,
    phase: Phase,
    waits: u64,
}

impl Model {
    fn new(partitions: u32) -> Model {
        let watch = session(Isolation::HighWatermark);
        let watched = |number| {
            let partition = partition();
            partition.lock().add_fetch_watcher(&watch, number);
            partition
        };
        Model {
            partitions: (0..partitions).map(watched).collect(),
            watch,
            appended: vec![0; partitions as usize],
            seen: vec![0; partitions as usize],
            marks: Vec::new(),
            phase: Phase::TakeMarks,
            waits: 0,
        }
    }

    fn append(&mut self, at: usize) {
        self.appended[at] += 1;
        let is_waiting = self.phase == Phase::Wait;
        let is_woken = news(&mut self.partitions[at].lock(), true);
        assert_eq!(is_woken, is_waiting, "who waits is woken");
        if is_woken {
            self.phase = Phase::TakeMarks;
        }
    }

    fn go_on(&mut self) {
        self.phase = match self.phase {
            Phase::TakeMarks => {
                self.marks = self.watch.take_marks();
                Phase::Look(false)
            }
            Phase::Look(tells_again) => match self.marks.last() {
                None => Phase::BeginWait,
                Some(mark) if mark.is_last_news && !tells_again => {
                    let partition = &self.partitions[mark.number as usize];
                    partition.lock().tell_news_again(self.watch.key());
                    Phase::Look(true)
                }
                Some(mark) => {
                    let at = mark.number as usize;
                    self.seen[at] = self.appended[at];
                    self.marks.pop();
                    Phase::Look(false)
                }
            },
            Phase::BeginWait if !self.watch.begin_wait(wait_for(1)) => Phase::TakeMarks,
            Phase::BeginWait => {
                assert_eq!(self.seen, self.appended, "nothing is left to wait for");
                self.waits += 1;
                Phase::Wait
            }
            Phase::Wait => Phase::Wait,
        };
    }
}

#[test]
fn in_no_order_of_steps_a_mark_or_a_wake_is_lost() {
    let mut waits = 0;
    for (seed, appends_of_64) in [(1, 1), (2, 4), (3, 16), (4, 48)] {
        let mut model = Model::new(4);
        let mut random: u64 = seed;
        for _ in 0..50_000 {
            random = random.wrapping_mul(0x5851_f42d_4c95_7f2d).wrapping_add(1);
            match (random >> 40) % 64 < appends_of_64 {
                true => model.append((random >> 33) as usize % 4),
                false => model.go_on(),
            }
        }
        for _ in 0..50 {
            model.go_on();
        }
        assert_eq!(model.phase, Phase::Wait);
        waits += model.waits;
    }
    assert!(waits > 1_000, "{waits}");
}
