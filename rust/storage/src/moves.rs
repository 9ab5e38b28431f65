//! Moves of replicas between log directories while they are used (`moving-replicas.md`).
//!
//! [`Moves`] knows which moves there are; `num.replica.alter.log.dirs.threads` threads carry them
//! out ([`carry_out::run`]), each of them one until it is done or has to wait. All share one limit of
//! bytes a second. A move's lock comes before its partition's.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicI64, AtomicU8, AtomicU64, Ordering};
use std::time::Duration;

use parking_lot::{Condvar, Mutex};
use pyrklog_log::{FutureFolder, MoveId};

use crate::log_dir_state::{LogDirState, Partition};
use crate::log_loader::Key;
use crate::log_manager::LogManager;
use crate::moves::copying::{Copying, Stage};
use crate::moves::due::{Due, ENDED};
use pyrklog_base::clock::mono_ms;
use pyrklog_base::replication_quota::ReplicationQuota;

pub mod carry_out;
mod copying;
mod due;
mod ending;
mod holding;
mod machine;
mod opening;
mod pieces;
mod progress;
pub mod requests;
mod swap;
#[cfg(test)]
pub(crate) mod tests;

/// Directories that are remembered for partitions that are not here yet.
const PREFERENCES_MAX: usize = 1 << 16;

/// Swaps to a directory that are queued at a time: what else its loader has to do comes behind them.
const SWAPS_MAX: usize = 2;

/// An ended move that somebody holds is looked at again after this time.
const HELD_MS: i64 = 20;

/// What is to become of a move.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
enum Fate {
    /// It goes on.
    GoesOn,
    /// Its log is closed; it goes on when that is opened again.
    Rests,
    /// It is over: the copy is removed.
    Ends,
}

/// A move of one replica.
#[derive(Debug)]
pub struct Move {
    id: MoveId,
    partition: Arc<Partition>,
    destination: Arc<LogDirState>,
    folder: FutureFolder,
    fate: AtomicU8,
    /// The copy is taking the log's place. Changed under the lock of [`Moves`].
    is_swapping: AtomicBool,
    /// The move no longer touches the partition.
    is_done: AtomicBool,
    /// An earlier move of the partition, which is to be done first.
    after: Option<Arc<Move>>,
    /// For descriptions.
    size_bytes: AtomicU64,
    end_offset: AtomicI64,
    copying: Mutex<Copying>,
}

/// Moves and copies of a partition that is stopped.
#[derive(Debug, Default)]
pub struct Ended {
    moves: Vec<Arc<Move>>,
    folders: Vec<(Arc<LogDirState>, FutureFolder)>,
    /// The partition is deleted: with the copy that rests by then.
    deleted: Option<Key>,
    /// Where that is, if it rests already.
    found_in: Option<usize>,
}

/// A copy as others see it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Described {
    /// Topic name.
    pub topic: String,
    /// Partition index.
    pub partition: i32,
    /// Bytes that were copied.
    pub size_bytes: u64,
    /// Records that the copy lacks.
    pub lag: i64,
}

/// An earlier move of a partition, if it is not ended.
fn ahead(earlier: Option<&Arc<Move>>) -> Option<&Arc<Move>> {
    earlier.filter(|one| one.fate() == Fate::GoesOn)
}

#[derive(Debug, Default)]
struct Inner {
    moves: HashMap<Key, Arc<Move>>,
    /// Moves for a thread.
    due: Due<Arc<Move>>,
    /// Moves whose folder is to be made, so that a start after a kill finds it.
    unmade: BTreeMap<MoveId, Arc<Move>>,
    /// Copies whose partition is not open, and their directory.
    found: HashMap<Key, (usize, FutureFolder)>,
    /// Directories for partitions that are not here yet.
    preferred: HashMap<Key, usize>,
    /// How many swaps to a directory are queued or under way.
    swaps: HashMap<usize, usize>,
    last_id: MoveId,
    is_stopped: bool,
}

/// See the module.
#[derive(Debug, Default)]
pub struct Moves {
    inner: Mutex<Inner>,
    wake: Condvar,
    /// `replica.alter.log.dirs.io.max.bytes.per.second`.
    pub rate: ReplicationQuota,
}

impl Move {
    fn key(&self) -> Key {
        (Arc::clone(&self.partition.topic.name), self.partition.index)
    }

    fn fate(&self) -> Fate {
        match self.fate.load(Ordering::Acquire) {
            0 => Fate::GoesOn,
            1 => Fate::Rests,
            _ => Fate::Ends,
        }
    }

    fn set_fate(&self, fate: Fate) {
        self.fate.store(fate as u8, Ordering::Release);
    }

    fn is_done(&self) -> bool {
        self.is_done.load(Ordering::Acquire)
    }

    fn set_done(&self) {
        self.is_done.store(true, Ordering::Release);
    }

    /// Whether it has nothing to remove, as its folder was never made; then it makes none.
    fn is_over_unmade(&self) -> bool {
        let copying = self.copying.try_lock();
        copying.is_some_and(|mut copying| {
            let is_new = copying.is_new();
            if is_new {
                copying.stage = Stage::Gone;
            }
            is_new
        })
    }

    /// Whether an earlier move of the partition is still under way.
    fn waits_for_another(&self) -> bool {
        self.after.as_ref().is_some_and(|before| !before.is_done())
    }
}

impl Moves {
    /// Adds a copy that was found at start.
    pub fn found(&self, dir: usize, folder: FutureFolder) {
        let key = (Arc::from(&*folder.topic), folder.partition);
        self.inner.lock().found.insert(key, (dir, folder));
    }

    /// The directory that was asked for before the partition was here; once.
    pub fn take_preferred(&self, topic: &str, partition: i32) -> Option<usize> {
        let mut inner = self.inner.lock();
        if inner.preferred.is_empty() {
            return None;
        }
        inner.preferred.remove(&(Arc::from(topic), partition))
    }

    fn prefer(&self, topic: &str, partition: i32, dir: usize) {
        let mut inner = self.inner.lock();
        let key = (Arc::from(topic), partition);
        if inner.preferred.len() < PREFERENCES_MAX || inner.preferred.contains_key(&key) {
            inner.preferred.insert(key, dir);
        }
    }

    /// Moves the partition to a directory, in place of any other move of it. `folder` is the name
    /// of a new copy.
    fn redirect(
        &self,
        partition: &Arc<Partition>,
        destination: &Arc<LogDirState>,
        folder: FutureFolder,
    ) {
        let key = (Arc::clone(&partition.topic.name), partition.index);
        let mut inner = self.inner.lock();
        let known = inner.moves.get(&key).cloned();
        let mut here = partition.dir().index;
        let mut after = None;
        if let Some(known) = known {
            if known.destination.index == destination.index {
                return;
            }
            if known.is_swapping.load(Ordering::Acquire) {
                // Too late to end it.
                here = known.destination.index;
                after = Some(known);
            } else {
                inner.end(&known, Fate::Ends);
                // One that was swapping when that one was asked for is still ahead, unless its swap
                // came to nothing: it ends then.
                after = known.after.clone().filter(|before| !before.is_done());
                here = ahead(after.as_ref()).map_or(here, |one| one.destination.index);
            }
        }
        if let Some(before) = ahead(after.as_ref()).filter(|_| destination.index == here) {
            // It is wanted again: if it is not done now, it goes on.
            inner.moves.insert(before.key(), Arc::clone(before));
        }
        if destination.index != here {
            inner.begin(partition, destination, folder, after, Copying::new());
        }
        drop(inner);
        self.wake.notify_all();
    }

    /// The partition's log is open: a copy that was found goes on. Returns what is left of one that
    /// leads nowhere.
    #[must_use]
    pub fn resume(&self, partition: &Arc<Partition>, dirs: &[Arc<LogDirState>]) -> Option<Ended> {
        let key = (Arc::clone(&partition.topic.name), partition.index);
        let mut inner = self.inner.lock();
        if inner.found.is_empty() || inner.moves.contains_key(&key) {
            return None;
        }
        let (dir, folder) = inner.found.remove(&key)?;
        let destination = &dirs[dir];
        if dir == partition.dir().index {
            drop(inner);
            return Some(Ended {
                folders: vec![(Arc::clone(destination), folder)],
                ..Ended::default()
            });
        }
        inner.begin(partition, destination, folder, None, Copying::found());
        drop(inner);
        self.wake.notify_all();
        None
    }

    /// The partition is stopped: its move ends, or rests until it is opened again. Carry the
    /// result out as a command about the partition, before its log is closed or deleted.
    #[must_use]
    pub fn take(&self, topic: &str, partition: i32, is_deleted: bool) -> Ended {
        let key = (Arc::from(topic), partition);
        let mut inner = self.inner.lock();
        let mut ended = Ended::default();
        if let Some(known) = inner.moves.get(&key).cloned() {
            let fate = match is_deleted {
                true => Fate::Ends,
                false => Fate::Rests,
            };
            inner.end(&known, fate);
            ended.moves.push(known);
        }
        if is_deleted {
            inner.preferred.remove(&key);
            ended.found_in = inner.found.get(&key).map(|(dir, _)| *dir);
            ended.deleted = Some(key);
        }
        ended
    }

    /// The copy whose partition is not open, and its directory.
    fn take_found(&self, key: &Key) -> Option<(usize, FutureFolder)> {
        self.inner.lock().found.remove(key)
    }

    /// The copies that move to a directory.
    pub fn describe(&self, dir: usize) -> Vec<Described> {
        let mut moves = self.all_into(dir);
        // One that has just arrived is the partition's log.
        moves.retain(|one| one.partition.dir().index != dir);
        let describe = |one: &Arc<Move>| {
            let log_end = one
                .partition
                .lock()
                .log
                .as_ref()
                .map(|log| log.log_end_offset());
            let copied = one.end_offset.load(Ordering::Relaxed);
            Described {
                topic: one.partition.topic.name.to_string(),
                partition: one.partition.index,
                size_bytes: one.size_bytes.load(Ordering::Relaxed),
                lag: log_end.map_or(0, |end| (end - copied).max(0)),
            }
        };
        moves.iter().map(describe).collect()
    }

    /// Ends the threads, within a piece of their work.
    pub fn stop(&self) {
        self.inner.lock().is_stopped = true;
        self.wake.notify_all();
    }

    fn is_stopped(&self) -> bool {
        self.inner.lock().is_stopped
    }

    /// Waits for a move that a thread may carry on; `None` at the end.
    fn next(&self) -> Option<Arc<Move>> {
        let mut inner = self.inner.lock();
        loop {
            if inner.is_stopped {
                return None;
            }
            let now_ms = mono_ms();
            if let Some(due) = inner.due.take(now_ms) {
                return Some(due);
            }
            match inner.due.next_ms() {
                Some(due_ms) => {
                    let wait_ms = u64::try_from(due_ms - now_ms).unwrap_or(1);
                    self.wake
                        .wait_for(&mut inner, Duration::from_millis(wait_ms));
                }
                None => self.wake.wait(&mut inner),
            }
        }
    }

    /// Waits until a time (monotonic milliseconds), or a while less.
    fn sleep_until(&self, until_ms: i64) {
        let mut inner = self.inner.lock();
        let wait_ms = u64::try_from(until_ms - mono_ms()).unwrap_or(0);
        if !inner.is_stopped && wait_ms > 0 {
            self.wake
                .wait_for(&mut inner, Duration::from_millis(wait_ms));
        }
    }

    fn take_unmade(&self) -> Option<Arc<Move>> {
        let first = self.inner.lock().unmade.pop_first();
        first.map(|(_, new)| new)
    }

    /// Ends moves for which no thread is free, as while all wait for the rate: requests may end any
    /// number of them.
    fn end_ended(&self, logs: &LogManager) {
        let mut held = Vec::new();
        while let Some(ended) = self.take_first_ended() {
            let Some(mut copying) = ended.copying.try_lock() else {
                held.push(Arc::clone(&ended));
                continue;
            };
            ended.end(logs, &mut copying);
        }
        let mut inner = self.inner.lock();
        for ended in held {
            // Who holds it ends it, as a rule.
            inner.due.put(ended.id, mono_ms() + HELD_MS, ended);
        }
    }

    fn take_first_ended(&self) -> Option<Arc<Move>> {
        self.inner.lock().due.take(ENDED)
    }

    /// A move is to be carried on after `wait_ms`. One that was replaced ends.
    fn again(&self, known: Arc<Move>, wait_ms: i64) {
        let mut inner = self.inner.lock();
        known.is_swapping.store(false, Ordering::Release);
        if !inner.is_known(&known) && known.fate() == Fate::GoesOn {
            known.set_fate(Fate::Ends);
        }
        let due_ms = match known.fate() {
            Fate::GoesOn => mono_ms() + wait_ms,
            _ => ENDED,
        };
        inner.due.put(known.id, due_ms, known);
        drop(inner);
        self.wake.notify_all();
    }

    /// Whether a swap may be queued now. Then [`Moves::swap_has_run`] follows.
    fn may_queue_swap(&self, known: &Move) -> bool {
        let mut inner = self.inner.lock();
        let queued = inner.swaps.entry(known.destination.index).or_default();
        let may = *queued < SWAPS_MAX;
        *queued += usize::from(may);
        may
    }

    /// The swap is done, or could not be carried out.
    fn swap_has_run(&self, known: &Move) {
        let mut inner = self.inner.lock();
        if let Some(queued) = inner.swaps.get_mut(&known.destination.index) {
            *queued = queued.saturating_sub(1);
        }
    }

    /// The copy takes the log's place now; false if the move has ended.
    fn begin_swap(&self, known: &Arc<Move>) -> bool {
        let _no_end_between = self.inner.lock();
        let goes_on = known.fate() == Fate::GoesOn;
        known.is_swapping.store(goes_on, Ordering::Release);
        goes_on
    }

    /// The copy did not take the log's place.
    fn end_swap(&self, known: &Move) {
        let _no_redirection_between = self.inner.lock();
        known.is_swapping.store(false, Ordering::Release);
    }

    /// The move no longer touches its partition.
    fn settle(&self, known: &Move) {
        known.set_done();
        let mut inner = self.inner.lock();
        if inner.is_known(known) {
            inner.moves.remove(&known.key());
        }
    }

    /// Moves that ended, and that neither a thread nor a command has carried out: at the end,
    /// without threads.
    #[must_use]
    pub fn take_ended(&self) -> Ended {
        let mut inner = self.inner.lock();
        let due = inner.due.take_all();
        Ended {
            moves: due.filter(|one| one.fate() != Fate::GoesOn).collect(),
            ..Ended::default()
        }
    }

    fn all_into(&self, dir: usize) -> Vec<Arc<Move>> {
        let inner = self.inner.lock();
        let moves = inner.moves.values();
        moves
            .filter(|one| one.destination.index == dir)
            .cloned()
            .collect()
    }

    /// Forgets all, after the end: moves hold their directories and so their locks.
    pub fn clear(&self) {
        let mut inner = self.inner.lock();
        inner.due = Due::default();
        inner.unmade.clear();
        let moves = std::mem::take(&mut inner.moves);
        drop(inner);
        for known in moves.values() {
            known.copying.lock().log = None;
        }
    }
}

impl Inner {
    fn is_known(&self, known: &Move) -> bool {
        let found = self.moves.get(&known.key());
        found.is_some_and(|found| found.id == known.id)
    }

    fn begin(
        &mut self,
        partition: &Arc<Partition>,
        destination: &Arc<LogDirState>,
        folder: FutureFolder,
        after: Option<Arc<Move>>,
        copying: Copying,
    ) {
        self.last_id += 1;
        let is_new = copying.is_new();
        let begun = Arc::new(Move {
            id: self.last_id,
            partition: Arc::clone(partition),
            destination: Arc::clone(destination),
            folder,
            fate: AtomicU8::new(Fate::GoesOn as u8),
            is_swapping: AtomicBool::new(false),
            is_done: AtomicBool::new(false),
            after,
            size_bytes: AtomicU64::new(0),
            end_offset: AtomicI64::new(0),
            copying: Mutex::new(copying),
        });
        if is_new {
            self.unmade.insert(begun.id, Arc::clone(&begun));
        }
        self.due.put(begun.id, mono_ms(), Arc::clone(&begun));
        self.moves.insert(begun.key(), begun);
    }

    fn end(&mut self, known: &Arc<Move>, fate: Fate) {
        known.set_fate(fate);
        if self.is_known(known) {
            self.moves.remove(&known.key());
        }
        self.unmade.remove(&known.id);
        if known.is_over_unmade() {
            // Requests may begin and end any number while the threads are busy, or hang.
            known.set_done();
            self.due.remove(known.id);
            return;
        }
        // A thread ends it, unless a command does so before.
        self.due.put(known.id, ENDED, Arc::clone(known));
    }
}
