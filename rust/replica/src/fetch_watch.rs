//! What a delayed fetch, or a fetch session between its fetches, hears of its partitions.
//!
//! A partition has a [`FetchWatcher`] per watch and notes events under its own mutex. One
//! [`FetchWatch`] serves all partitions of a fetch or session: it remembers which of them changed
//! and wakes the delayed fetch. Its mutex is taken last and held for memory work only.

use std::sync::Arc;

use parking_lot::Mutex;
use pyrklog_log::Isolation;

use pyrklog_base::ids::{Place, Token};

/// Identifies a watch at its partitions.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum WatchKey {
    /// One fetch, by its connection: the watch ends with the wait and keeps no marks.
    Fetch(Token),
    /// A fetch session, by its number: the watch outlives its fetches.
    Session(u64),
}

/// What a watcher may see and wants to hear of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct WatchTerms {
    /// How far it may see.
    pub isolation: Isolation,
    /// It sees to the log's end and must hear at once of the high watermark, too.
    pub notify_high_watermark: bool,
    /// It must hear when another replica may suit it better (KIP-392).
    pub by_rack: bool,
}

/// A change of a partition.
#[derive(Clone, Copy, Debug)]
pub struct Change {
    /// Bytes that became readable; `i64::MAX` if unknown.
    pub new_bytes: i64,
    /// A delayed fetch looks again once it has enough bytes.
    pub wakes: bool,
    /// A delayed fetch is answered.
    pub must_answer: bool,
    /// The session's next fetch treats this partition as if it named it.
    pub is_to_renew: bool,
}

impl Change {
    /// Something to report with the next answer.
    pub const NEWS: Change = Change {
        new_bytes: i64::MAX,
        wakes: false,
        must_answer: false,
        is_to_renew: false,
    };

    /// The next fetch must look at everything anew.
    pub const RENEWAL: Change = Change {
        is_to_renew: true,
        ..Change::NEWS
    };
}

/// A watch as one partition holds it.
#[derive(Debug)]
pub struct FetchWatcher {
    /// The other end.
    pub watch: Arc<FetchWatch>,
    /// The partition's position there.
    pub position: u32,
    /// Segment up to which it could see last; a later one makes a delayed fetch look again.
    pub bound_segment: Option<i64>,
}

/// A partition that changed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Marked {
    /// Its position.
    pub position: u32,
    /// [`Change::is_to_renew`].
    pub is_to_renew: bool,
    /// [`Change::must_answer`], if no fetch was waiting.
    pub must_answer: bool,
}

/// A fetch that found too little.
#[derive(Clone, Copy, Debug)]
pub struct WaitingFetch {
    /// Its connection.
    pub place: Place,
    /// Number of the wait on its connection.
    pub wait: u64,
    /// Bytes still missing, over all its partitions.
    pub missing_bytes: i64,
}

/// See the module.
#[derive(Debug)]
pub struct FetchWatch {
    key: WatchKey,
    terms: WatchTerms,
    state: Mutex<WatchState>,
}

#[derive(Debug, Default)]
struct WatchState {
    /// Changed partitions in the order of their first change.
    marked: Vec<Marked>,
    /// By position: index in `marked` plus one, 0 for none.
    places: Vec<u32>,
    /// Something happened that would have woken a delayed fetch.
    has_news: bool,
    waiting: Option<WaitingFetch>,
}

impl FetchWatch {
    /// A watch without changes.
    pub fn new(key: WatchKey, terms: WatchTerms) -> FetchWatch {
        FetchWatch {
            key,
            terms,
            state: Mutex::default(),
        }
    }

    /// Its name.
    pub fn key(&self) -> WatchKey {
        self.key
    }

    /// What it wants to hear of.
    pub fn terms(&self) -> WatchTerms {
        self.terms
    }

    /// Whether a fetch waits.
    pub fn is_waiting(&self) -> bool {
        self.state.lock().waiting.is_some()
    }

    /// A fetch begins to wait. False if it must look again instead, since something happened after
    /// marks were last taken.
    pub fn begin_wait(&self, waiting: WaitingFetch) -> bool {
        let mut state = self.state.lock();
        if state.has_news {
            return false;
        }
        state.waiting = Some(waiting);
        true
    }

    /// The fetch no longer waits.
    pub fn end_wait(&self) {
        self.state.lock().waiting = None;
    }

    /// How many partitions changed since marks were last taken.
    pub fn marked(&self) -> usize {
        self.state.lock().marked.len()
    }

    /// Takes the changes since the last call. Whatever the caller reads of a partition from now on
    /// is at least as new as its mark.
    pub fn take_marks(&self) -> Vec<Marked> {
        let mut state = self.state.lock();
        state.has_news = false;
        let marked = std::mem::take(&mut state.marked);
        for mark in &marked {
            state.places[mark.position as usize] = 0;
        }
        marked
    }

    /// Frees the memory of marks. Only without a delayed fetch, and when no partition has this
    /// watch.
    pub fn reset(&self) {
        *self.state.lock() = WatchState::default();
    }

    /// Whether a partition changed since marks were last taken.
    #[cfg(debug_assertions)]
    pub fn is_marked(&self, position: u32) -> bool {
        let state = self.state.lock();
        state
            .places
            .get(position as usize)
            .is_some_and(|at| *at > 0)
    }

    /// Notes a change of a partition; its mutex is held. `has_new_segment`: a later segment became
    /// visible. Returns the wait that ends.
    pub fn note(&self, position: u32, change: Change, has_new_segment: bool) -> Option<Wake> {
        let mut state = self.state.lock();
        if matches!(self.key, WatchKey::Session(_)) {
            state.mark(position, change);
        }
        if !change.wakes {
            return None;
        }
        let Some(waiting) = &mut state.waiting else {
            state.has_news = true;
            return None;
        };
        waiting.missing_bytes = waiting.missing_bytes.saturating_sub(change.new_bytes);
        if waiting.missing_bytes > 0 && !has_new_segment && !change.must_answer {
            return None;
        }
        let WaitingFetch { place, wait, .. } = *waiting;
        state.waiting = None;
        let must_answer = change.must_answer;
        Some(Wake {
            place,
            wait,
            must_answer,
        })
    }
}

/// A wait that ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Wake {
    /// Its connection.
    pub place: Place,
    /// Number of the wait on its connection.
    pub wait: u64,
    /// Answer it with whatever there is.
    pub must_answer: bool,
}

impl WatchState {
    fn mark(&mut self, position: u32, change: Change) {
        let at = position as usize;
        // A waiting fetch is told at once.
        let must_answer = change.must_answer && self.waiting.is_none();
        if self.places.len() <= at {
            self.places.resize(at + 1, 0);
        }
        match self.places[at] {
            0 => {
                self.marked.push(Marked {
                    position,
                    is_to_renew: change.is_to_renew,
                    must_answer,
                });
                self.places[at] = u32::try_from(self.marked.len()).unwrap_or(u32::MAX);
            }
            known => {
                let mark = &mut self.marked[known as usize - 1];
                mark.is_to_renew |= change.is_to_renew;
                mark.must_answer |= must_answer;
            }
        }
    }
}

#[cfg(test)]
mod tests {
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
    fn change_between_reading_and_waiting_is_not_lost() {
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
    fn change_that_must_be_answered_counts_before_the_wait() {
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
}
