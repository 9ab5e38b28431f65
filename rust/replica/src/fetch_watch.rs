//! What a delayed fetch, or a fetch session between its fetches, hears of its partitions.
//!
//! A partition has a [`FetchWatcher`] per watch and notes events under its own mutex. One
//! [`FetchWatch`] serves all partitions of a fetch or session: it remembers which of them changed
//! and wakes the delayed fetch. Its mutex is taken last and held for memory work only.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

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
    told_in: Option<MarksRound>,
}

impl FetchWatcher {
    /// Nothing was noted yet.
    pub fn new(watch: Arc<FetchWatch>, position: u32, bound_segment: Option<i64>) -> FetchWatcher {
        FetchWatcher {
            watch,
            position,
            bound_segment,
            told_in: None,
        }
    }

    /// Notes a change that is no renewal and demands no answer, as [`FetchWatch::note`]; without
    /// the watch's mutex if that would change nothing.
    pub fn note_news(
        &mut self,
        new_bytes: i64,
        wakes: bool,
        has_new_segment: bool,
    ) -> Option<Wake> {
        if self.has_told_all() {
            return None;
        }
        let change = Change {
            new_bytes,
            wakes,
            ..Change::NEWS
        };
        let watch = &self.watch;
        let mut state = watch.state.lock();
        let woken = watch.note_in(&mut state, self.position, change, has_new_segment);
        // From the first news until marks are taken no fetch waits.
        self.told_in = state.has_news.then(|| watch.round());
        woken
    }

    /// Whether further news would change nothing at the watch: the partition is marked there, no
    /// fetch waits, and none can begin to before marks are taken.
    ///
    /// No news is lost, though marks may be taken at the same time. Whoever takes them begins the
    /// next round and then looks at each marked partition under the mutex that is held here. If
    /// that look is still to come, it finds what happened. If it is over, that mutex has brought
    /// the new round along.
    fn has_told_all(&self) -> bool {
        self.told_in == Some(self.watch.round())
    }
}

/// Number of a round of marks: it ends when they are taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct MarksRound(u64);

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
    /// [`MarksRound`]; changed under the mutex of `state`.
    round: AtomicU64,
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
            round: AtomicU64::new(0),
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
    /// is at least as new as its mark. It must look at each marked partition, under that one's
    /// mutex: what happens until then may leave no other mark.
    pub fn take_marks(&self) -> Vec<Marked> {
        let mut state = self.state.lock();
        self.begin_round();
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
        let mut state = self.state.lock();
        self.begin_round();
        *state = WatchState::default();
    }

    /// The mutex of `state` is held. Relaxed: partitions' mutexes pass it on.
    fn begin_round(&self) {
        self.round.fetch_add(1, Ordering::Relaxed);
    }

    fn round(&self) -> MarksRound {
        MarksRound(self.round.load(Ordering::Relaxed))
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
        self.note_in(&mut self.state.lock(), position, change, has_new_segment)
    }

    fn note_in(
        &self,
        state: &mut WatchState,
        position: u32,
        change: Change,
        has_new_segment: bool,
    ) -> Option<Wake> {
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
mod tests;
