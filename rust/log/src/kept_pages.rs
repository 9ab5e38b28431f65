//! Decides which old data stays in the page cache after it was read: a bounded list of *pieces* in
//! which a scan does not displace data that is read repeatedly (reads.md).
//!
//! The kernel owns the pages and may reclaim any of them. This module decides which to give it and
//! which to drop.

use std::collections::{HashMap, VecDeque};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, LazyLock, Weak};

use parking_lot::Mutex;

use crate::segment_handle::SegmentHandle;
use passing::{PASSING_MAX, Passing};
pub use piece::PIECE_BYTES;
use piece::{BACK_BYTES, GivenUp, Key, Read};

mod passing;
mod piece;

/// One in this many pieces that do not fit replaces another.
const CHANCE: u32 = 16;

/// Oldest pieces that are examined for one not read again.
const LOOKS_MAX: usize = 2;

/// Bytes that may pass beside the limit in each directory, as a fraction of it.
const PASSING_SHARE: u64 = 4;

static KEPT_BYTES: LazyLock<Arc<AtomicU64>> = LazyLock::new(Arc::default);

static ROOM_BYTES: AtomicU64 = AtomicU64::new(0);

/// Limits old data in the page cache, over all log directories of the process; initially 0.
pub fn set_kept_pages_max_bytes(max_bytes: u64) {
    ROOM_BYTES.store(max_bytes, Ordering::Relaxed);
}

fn room_bytes() -> u64 {
    ROOM_BYTES.load(Ordering::Relaxed)
}

/// How to read bytes that are not in memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Verdict {
    /// Past the page cache.
    Past,
    /// Into the page cache. First ask for this many pieces, beginning with this one; 0 if that was
    /// done.
    PageCache { ask_pieces: u64 },
}

#[derive(Debug)]
struct Piece {
    segment: Weak<dyn SegmentHandle>,
    last: u64,
    /// It was read again.
    is_used: bool,
}

#[derive(Debug, Default)]
struct Inner {
    pieces: HashMap<Key, Piece>,
    /// In order of arrival.
    order: VecDeque<Key>,
    passing: Passing,
    /// Number of pieces that did not fit.
    refused: u32,
    /// Shared by all directories.
    sum_bytes: Arc<AtomicU64>,
}

/// The kept pieces of a log directory.
#[derive(Debug)]
pub(crate) struct KeptPages {
    inner: Mutex<Inner>,
}

impl Default for KeptPages {
    fn default() -> KeptPages {
        let inner = Inner {
            sum_bytes: Arc::clone(&KEPT_BYTES),
            ..Inner::default()
        };
        KeptPages {
            inner: Mutex::new(inner),
        }
    }
}

impl KeptPages {
    /// Whether anything may be kept.
    pub fn is_open(&self) -> bool {
        room_bytes() >= PIECE_BYTES
    }

    /// Notes a read at `position`; the verdict if it needs no decision.
    pub fn touch(&self, segment: &dyn SegmentHandle, position: u64) -> Option<Verdict> {
        self.inner.lock().touch(read_at(segment, position))
    }

    /// Whether the piece at `position` is kept or passing.
    pub fn holds(&self, segment: u64, position: u64) -> bool {
        self.inner.lock().holds((segment, position / PIECE_BYTES))
    }

    /// The same for this piece or the one before.
    pub fn holds_or_before(&self, segment: u64, position: u64) -> bool {
        let number = position / PIECE_BYTES;
        let inner = self.inner.lock();
        (number.saturating_sub(1)..=number).any(|number| inner.holds((segment, number)))
    }

    /// Whether a piece fits without displacing another.
    pub fn has_room(&self) -> bool {
        self.inner.lock().has_room(room_bytes())
    }

    /// Decides how to read at `position`. A new piece may displace others, which are given up here.
    pub fn judge<S: SegmentHandle + 'static>(&self, segment: &Arc<S>, position: u64) -> Verdict {
        let max_bytes = room_bytes();
        let read = read_at(&**segment, position);
        let weak: Weak<S> = Arc::downgrade(segment);
        let weak: Weak<dyn SegmentHandle> = weak;
        let mut given_up = Vec::new();
        let verdict = {
            let mut inner = self.inner.lock();
            inner
                .touch(read)
                .unwrap_or_else(|| inner.admit(read, &weak, max_bytes, &mut given_up))
        };
        give_up(given_up);
        verdict
    }

    pub fn forget(&self, segment: u64) {
        let mut inner = self.inner.lock();
        inner.retain(|key, _| key.0 != segment);
        inner.passing.forget(segment);
    }

    /// Gives up pieces that no longer fit, idle passing ones, and those of dropped segments. Call
    /// every few seconds.
    pub fn give_up_excess(&self) {
        let max_bytes = room_bytes();
        let mut given_up = Vec::new();
        {
            let mut inner = self.inner.lock();
            inner.passing.age(&mut given_up);
            if !inner.order.is_empty() {
                inner.retain(|_, piece| piece.segment.strong_count() > 0);
                inner.shrink(max_bytes, &mut given_up);
            }
        }
        give_up(given_up);
    }

    pub fn bytes(&self) -> u64 {
        self.inner.lock().order.len() as u64 * PIECE_BYTES
    }
}

impl Drop for KeptPages {
    fn drop(&mut self) {
        self.inner.get_mut().retain(|_, _| false);
    }
}

fn read_at(segment: &dyn SegmentHandle, position: u64) -> Read {
    Read {
        key: (segment.id(), position / PIECE_BYTES),
        position,
        written: segment.written(),
    }
}

fn give_up(pieces: GivenUp) {
    for ((_, number), segment) in pieces {
        if let Some(segment) = segment.upgrade() {
            segment.give_up_pages(number * PIECE_BYTES, PIECE_BYTES);
        }
    }
}

impl Inner {
    fn holds(&self, key: Key) -> bool {
        self.pieces.contains_key(&key) || self.passing.holds(key)
    }

    fn touch(&mut self, read: Read) -> Option<Verdict> {
        let Some(piece) = self.pieces.get_mut(&read.key) else {
            let goes_on = self.passing.goes_on(read);
            return goes_on.then_some(Verdict::PageCache { ask_pieces: 0 });
        };
        // A reader only goes forward, except for a batch that was cut off at the end of a reply.
        let came_back = read.position + BACK_BYTES <= piece.last;
        piece.is_used |= came_back;
        piece.last = read.position;
        let ask_pieces = if came_back { 2 } else { 0 };
        Some(Verdict::PageCache { ask_pieces })
    }

    fn admit(
        &mut self,
        read: Read,
        segment: &Weak<dyn SegmentHandle>,
        max_bytes: u64,
        given_up: &mut GivenUp,
    ) -> Verdict {
        self.shrink(max_bytes, given_up);
        let is_full = !self.has_room(max_bytes);
        if is_full {
            self.refused = self.refused.wrapping_add(1);
            if self.refused.is_multiple_of(CHANCE) {
                self.take_unused(given_up);
            }
        }
        let next = (read.key.0, read.key.1 + 1);
        let is_next_kept = self.pieces.contains_key(&next);
        let has_room = self.has_room(max_bytes);
        let passes = if is_full || !has_room {
            let max_pieces = max_bytes / PASSING_SHARE / PIECE_BYTES;
            let max_pieces = PASSING_MAX.min(usize::try_from(max_pieces).unwrap_or(PASSING_MAX));
            self.passing
                .enter(read, segment, is_next_kept, max_pieces, given_up)
        } else {
            Some(2)
        };
        if has_room {
            self.passing.remove(read.key);
            self.insert(read, Weak::clone(segment));
        } else if passes.is_none() {
            return Verdict::Past;
        }
        let ask_pieces = passes.unwrap_or(1);
        Verdict::PageCache { ask_pieces }
    }

    fn insert(&mut self, read: Read, segment: Weak<dyn SegmentHandle>) {
        let piece = Piece {
            segment,
            last: read.position,
            is_used: false,
        };
        self.pieces.insert(read.key, piece);
        self.order.push_back(read.key);
        self.sum_bytes.fetch_add(PIECE_BYTES, Ordering::Relaxed);
    }

    fn has_room(&self, max_bytes: u64) -> bool {
        self.sum_bytes.load(Ordering::Relaxed) + PIECE_BYTES <= max_bytes
    }

    /// Removes the oldest piece that was not read again; examined ones move to the back.
    fn take_unused(&mut self, given_up: &mut GivenUp) {
        for _ in 0..LOOKS_MAX.min(self.order.len()) {
            let Some(key) = self.order.pop_front() else {
                return;
            };
            let is_used = |piece: &mut Piece| std::mem::take(&mut piece.is_used);
            if self.pieces.get_mut(&key).is_some_and(is_used) {
                self.order.push_back(key);
            } else {
                return self.remove(key, given_up);
            }
        }
    }

    fn shrink(&mut self, max_bytes: u64, given_up: &mut GivenUp) {
        while self.sum_bytes.load(Ordering::Relaxed) > max_bytes
            && let Some(key) = self.order.pop_front()
        {
            self.remove(key, given_up);
        }
    }

    /// Removes a piece that is no longer in the order.
    fn remove(&mut self, key: Key, given_up: &mut GivenUp) {
        if let Some(piece) = self.pieces.remove(&key) {
            self.sum_bytes.fetch_sub(PIECE_BYTES, Ordering::Relaxed);
            given_up.push((key, piece.segment));
        }
    }

    fn retain(&mut self, keep: impl Fn(&Key, &Piece) -> bool) {
        let pieces = &mut self.pieces;
        let before = pieces.len();
        pieces.retain(|key, piece| keep(key, piece));
        let gone = (before - pieces.len()) as u64;
        if gone > 0 {
            self.sum_bytes
                .fetch_sub(gone * PIECE_BYTES, Ordering::Relaxed);
            self.order.retain(|key| pieces.contains_key(key));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::segment::Segment;

    fn nobody() -> Weak<dyn SegmentHandle> {
        Weak::<Segment>::new()
    }

    const ROOM_PIECES: u64 = 100;

    fn read(segment: u64, position: u64) -> Read {
        Read {
            key: (segment, position / PIECE_BYTES),
            position,
            written: u64::MAX,
        }
    }

    /// One reader passes through pieces of one segment; returns how many were kept before.
    fn pass(inner: &mut Inner, pieces: std::ops::Range<u64>, max_bytes: u64) -> u64 {
        let mut hits = 0;
        for number in pieces {
            let mut is_hit = false;
            for step in 0..16 {
                let position = number * PIECE_BYTES + step * (PIECE_BYTES / 16);
                let is_kept = inner.pieces.contains_key(&(1, number));
                let read = read(1, position);
                if inner.touch(read).is_some() {
                    is_hit |= step == 0 && is_kept;
                } else if step == 0 {
                    inner.admit(read, &nobody(), max_bytes, &mut Vec::new());
                }
            }
            hits += u64::from(is_hit);
        }
        hits
    }

    #[test]
    fn scan_displaces_no_pieces_that_are_read_again() {
        let max_bytes = ROOM_PIECES * PIECE_BYTES;
        let mut inner = Inner::default();
        // What fits is there for the second reader.
        assert_eq!(pass(&mut inner, 0..60, max_bytes), 0);
        assert_eq!(pass(&mut inner, 0..60, max_bytes), 60);
        // A single scan of ten times as much displaces little.
        pass(&mut inner, 1_000..2_000, max_bytes);
        assert!(pass(&mut inner, 0..60, max_bytes) >= 58);
        assert!(inner.order.len() as u64 <= ROOM_PIECES);
        // With a lower limit the oldest go.
        inner.shrink(max_bytes / 2, &mut Vec::new());
        assert_eq!(inner.order.len() as u64, ROOM_PIECES / 2);
        assert_eq!(inner.sum_bytes.load(Ordering::Relaxed), max_bytes / 2);
        inner.retain(|_, _| false);
        assert!(inner.order.is_empty());

        // Three times what fits, read repeatedly: a third is found each time.
        for _ in 0..2 {
            pass(&mut inner, 0..300, max_bytes);
        }
        let found: u64 = (0..10).map(|_| pass(&mut inner, 0..300, max_bytes)).sum();
        assert!((600..=1_000).contains(&found), "{found} of 3,000");
        // Kept data that is no longer read gives way after a while.
        for _ in 0..40 {
            pass(&mut inner, 5_000..5_090, max_bytes);
        }
        assert!(pass(&mut inner, 5_000..5_090, max_bytes) >= 60);
        inner.retain(|_, _| false);
        assert_eq!(inner.sum_bytes.load(Ordering::Relaxed), 0);
    }

    #[test]
    fn reader_that_continues_does_not_count_as_a_second_one() {
        let mut inner = Inner::default();
        inner.admit(read(1, 100), &nobody(), u64::MAX, &mut Vec::new());
        let goes_on = |ask_pieces| Some(Verdict::PageCache { ask_pieces });
        assert_eq!(inner.touch(read(1, PIECE_BYTES - 1)), goes_on(0));
        assert_eq!(inner.touch(read(1, PIECE_BYTES - 1_000_000)), goes_on(0));
        assert!(!inner.pieces[&(1, 0)].is_used);
        assert_eq!(inner.touch(read(1, 0)), goes_on(2));
        assert!(inner.pieces[&(1, 0)].is_used);
        assert_eq!(inner.touch(read(1, PIECE_BYTES)), None);
        inner.retain(|_, _| false);
    }

    #[test]
    fn pieces_without_room_pass_through_or_around_the_page_cache() {
        let mut inner = Inner::default();
        let mut admit = |position, max_bytes| {
            inner.admit(read(1, position), &nobody(), max_bytes, &mut Vec::new())
        };
        let max_bytes = 8 * PIECE_BYTES;
        for number in 0..8 {
            let verdict = admit(number * PIECE_BYTES, max_bytes);
            assert_eq!(verdict, Verdict::PageCache { ask_pieces: 2 });
        }
        let verdict = admit(20 * PIECE_BYTES, max_bytes);
        assert_eq!(verdict, Verdict::PageCache { ask_pieces: 2 });
        assert_eq!(admit(30 * PIECE_BYTES, max_bytes), Verdict::Past);
        assert_eq!(admit(40 * PIECE_BYTES, 0), Verdict::Past);
        inner.retain(|_, _| false);
    }
}
