//! What a delayed fetch, or a fetch session between its fetches, hears of its partitions.
//!
//! A partition has a [`FetchWatcher`] per watch and notes events under its own mutex. One
//! [`FetchWatch`] serves all partitions of a fetch or session: it remembers which of them changed
//! and wakes the delayed fetch. Its mutex is taken last and held for memory work only.

use std::sync::Arc;

use parking_lot::Mutex;
use pyrklog_log::Isolation;

use pyrklog_base::hash::FastMap;
use pyrklog_base::ids::{Place, Token};

/// Identifies a watch at its partitions.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum WatchKey {
    /// One fetch, by its connection: the watch ends with the wait and keeps no marks.
    Fetch(Token),
    /// A fetch session, by its serial number: the watch outlives its fetches.
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
    /// The partition's number there.
    pub number: u32,
    /// Segment up to which it could see last; a later one makes a delayed fetch look again.
    pub bound_segment: Option<i64>,
}

/// A partition's fetch watchers.
#[derive(Debug, Default)]
pub struct FetchWatchers {
    /// Those that hear of all news.
    pub listening: FastMap<WatchKey, FetchWatcher>,
    /// Sessions that know that there are news and have not taken their marks: more would change
    /// nothing there. An idle session thus costs nothing at an append.
    pub informed: FastMap<WatchKey, FetchWatcher>,
}

impl FetchWatchers {
    /// Both.
    pub fn all(&self) -> impl Iterator<Item = &FetchWatcher> {
        self.listening.values().chain(self.informed.values())
    }

    /// Number of delayed fetches.
    pub fn waiting(&self) -> usize {
        let is_waiting = |one: &&FetchWatcher| one.watch.is_waiting();
        self.listening.values().filter(is_waiting).count()
    }

    /// Removes a watcher; frees the memory of an empty map.
    pub fn remove(&mut self, key: WatchKey) {
        for watchers in [&mut self.listening, &mut self.informed] {
            if watchers.remove(&key).is_some() && watchers.is_empty() {
                *watchers = FastMap::default();
            }
        }
    }
}

/// A partition that changed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Marked {
    /// Its number at the watch.
    pub number: u32,
    /// [`Change::is_to_renew`].
    pub is_to_renew: bool,
    /// [`Change::must_answer`], if no fetch was waiting.
    pub must_answer: bool,
    /// The partition keeps further news to itself until `PartitionState::tell_news_again`.
    pub is_last_news: bool,
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
    /// By number: index in `marked` plus one, 0 for none.
    index_of: Vec<u32>,
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

    /// Takes the changes since the last call. The caller lets each partition that keeps news to
    /// itself ([`Marked::is_last_news`]) tell again, and then looks at it. Whatever it reads of a
    /// partition from then on is at least as new as its mark.
    pub fn take_marks(&self) -> Vec<Marked> {
        let mut state = self.state.lock();
        state.has_news = false;
        let marked = std::mem::take(&mut state.marked);
        for mark in &marked {
            state.index_of[mark.number as usize] = 0;
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
    pub fn is_marked(&self, number: u32) -> bool {
        let state = self.state.lock();
        state
            .index_of
            .get(number as usize)
            .is_some_and(|at| *at > 0)
    }

    /// Notes a change of a partition; its mutex is held. `has_new_segment`: a later segment became
    /// visible. Returns the wait that ends.
    pub fn note(&self, number: u32, change: Change, has_new_segment: bool) -> Option<Wake> {
        self.note_in(&mut self.state.lock(), number, change, has_new_segment)
    }

    /// Notes a change that is no renewal and demands no answer. Returns the wait that ends, and
    /// whether the partition should keep further ones to itself: before marks are taken they would
    /// change nothing here, since it is marked, no fetch waits, and none can begin to.
    pub fn note_news(
        &self,
        number: u32,
        (new_bytes, wakes): (i64, bool),
        has_new_segment: bool,
    ) -> (Option<Wake>, bool) {
        let change = Change {
            new_bytes,
            wakes,
            ..Change::NEWS
        };
        let mut state = self.state.lock();
        let woken = self.note_in(&mut state, number, change, has_new_segment);
        let is_enough = state.has_news && state.end_news(number);
        (woken, is_enough)
    }

    fn note_in(
        &self,
        state: &mut WatchState,
        number: u32,
        change: Change,
        has_new_segment: bool,
    ) -> Option<Wake> {
        if matches!(self.key, WatchKey::Session(_)) {
            state.mark(number, change);
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
    fn mark(&mut self, number: u32, change: Change) {
        let at = number as usize;
        // A waiting fetch is told at once.
        let must_answer = change.must_answer && self.waiting.is_none();
        if self.index_of.len() <= at {
            self.index_of.resize(at + 1, 0);
        }
        match self.index_of[at] {
            0 => {
                self.marked.push(Marked {
                    number,
                    is_to_renew: change.is_to_renew,
                    must_answer,
                    is_last_news: false,
                });
                self.index_of[at] = u32::try_from(self.marked.len()).unwrap_or(u32::MAX);
            }
            known => {
                let mark = &mut self.marked[known as usize - 1];
                mark.is_to_renew |= change.is_to_renew;
                mark.must_answer |= must_answer;
            }
        }
    }

    /// Notes in a partition's mark, if there is one, that no further news follow.
    fn end_news(&mut self, number: u32) -> bool {
        let index = self.index_of.get(number as usize).copied().unwrap_or(0);
        let mark = (index as usize).checked_sub(1);
        let mark = mark.and_then(|at| self.marked.get_mut(at));
        mark.map(|mark| mark.is_last_news = true).is_some()
    }
}

#[cfg(test)]
mod tests;
