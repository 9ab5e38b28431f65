//! Which old data stay in the page cache after they were read: a list of *pieces*, so that there is a
//! bound, and a scan pushes out nothing that is read again and again (docs/reads.md).
//!
//! The pages are the kernel's, which may take any of them back at any time; this decides which ones
//! it is given, and names those to give up.

use std::collections::{HashMap, VecDeque};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, LazyLock, Weak};

use parking_lot::Mutex;

use crate::segment::Segment;

/// What is kept or given up at once. Pages that the kernel reads and gives up as one begin at
/// multiples of their size and have 2 MiB at most, so none belongs to two pieces.
pub const PIECE_BYTES: u64 = 4 << 20;

/// Of the pieces that do not fit any more, one of so many takes the place of another.
const CHANCE: u32 = 16;

/// How many of the oldest pieces are looked at for one that nobody came back for.
const LOOKS_MAX: usize = 2;

/// Who goes back by less reads on.
const BACK_BYTES: u64 = PIECE_BYTES / 2;

/// All log directories' pieces, in bytes.
static KEPT_BYTES: LazyLock<Arc<AtomicU64>> = LazyLock::new(Arc::default);

/// What may be kept of all log directories.
static ROOM_BYTES: AtomicU64 = AtomicU64::new(0);

/// From now on so much old data of all log directories of the process is kept in the page cache at
/// most; at first none is.
pub fn set_kept_max_bytes(max_bytes: u64) {
    ROOM_BYTES.store(max_bytes, Ordering::Relaxed);
}

fn room_bytes() -> u64 {
    ROOM_BYTES.load(Ordering::Relaxed)
}

/// A segment and a piece of its file.
type Key = (u64, u64);

/// How bytes that are not in memory are to be read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Verdict {
    /// Past the page cache.
    Past,
    /// Into the page cache. `is_entry`: a reader has just come to this piece; `is_alone`: the pieces
    /// beside it are not kept.
    Keep { is_entry: bool, is_alone: bool },
}

#[derive(Debug)]
struct Piece {
    segment: Weak<Segment>,
    /// Where it was read last.
    last: u64,
    /// Somebody came back for it.
    is_used: bool,
    is_alone: bool,
}

#[derive(Debug, Default)]
struct Inner {
    pieces: HashMap<Key, Piece>,
    /// In the order in which they came.
    order: VecDeque<Key>,
    /// Pieces for which there was no room.
    refused: u32,
    /// Of all that share the room.
    sum_bytes: Arc<AtomicU64>,
}

/// What is kept of a log directory.
#[derive(Debug)]
pub(crate) struct Kept {
    inner: Mutex<Inner>,
}

impl Default for Kept {
    fn default() -> Kept {
        let inner = Inner {
            sum_bytes: Arc::clone(&KEPT_BYTES),
            ..Inner::default()
        };
        Kept {
            inner: Mutex::new(inner),
        }
    }
}

impl Kept {
    /// Whether anything is kept at all.
    pub fn is_open(&self) -> bool {
        room_bytes() >= PIECE_BYTES
    }

    /// A reader is at `position`: what is known about it if it is kept.
    pub fn touch(&self, segment: u64, position: u64) -> Option<Verdict> {
        self.inner
            .lock()
            .touch((segment, position / PIECE_BYTES), position)
    }

    /// Whether the piece at `position` is kept.
    pub fn holds(&self, segment: u64, position: u64) -> bool {
        let key = (segment, position / PIECE_BYTES);
        self.inner.lock().pieces.contains_key(&key)
    }

    /// Whether the piece before that of `position` is kept.
    pub fn holds_before(&self, segment: u64, position: u64) -> bool {
        position >= PIECE_BYTES && self.holds(segment, position - PIECE_BYTES)
    }

    /// Whether another piece may be kept without the end of one.
    pub fn has_room(&self) -> bool {
        self.inner.lock().has_room(room_bytes())
    }

    /// Bytes at `position` are to be read: where to? A new piece may take the place of others, which
    /// are given up here.
    pub fn judge(&self, segment: &Arc<Segment>, position: u64) -> Verdict {
        let max_bytes = room_bytes();
        let key = (segment.id(), position / PIECE_BYTES);
        let (verdict, given_up) = {
            let mut inner = self.inner.lock();
            match inner.touch(key, position) {
                Some(verdict) => (verdict, Vec::new()),
                None => inner.admit(key, position, Arc::downgrade(segment), max_bytes),
            }
        };
        give_up(given_up);
        verdict
    }

    /// The segment's file is cut.
    pub fn forget(&self, segment: u64) {
        self.inner.lock().retain(|key, _| key.0 != segment);
    }

    /// Gives up what does not fit any more, and what is of segments that are gone.
    pub fn settle(&self) {
        if self.inner.lock().order.is_empty() {
            return;
        }
        let max_bytes = room_bytes();
        let given_up = {
            let mut inner = self.inner.lock();
            inner.retain(|_, piece| piece.segment.strong_count() > 0);
            inner.shrink(max_bytes)
        };
        give_up(given_up);
    }

    /// What is kept.
    pub fn bytes(&self) -> u64 {
        self.inner.lock().order.len() as u64 * PIECE_BYTES
    }
}

impl Drop for Kept {
    fn drop(&mut self) {
        self.inner.get_mut().retain(|_, _| false);
    }
}

fn give_up(pieces: Vec<(Key, Piece)>) {
    for ((_, number), piece) in pieces {
        if let Some(segment) = piece.segment.upgrade() {
            segment.give_up_pages(number * PIECE_BYTES, PIECE_BYTES);
        }
    }
}

impl Inner {
    fn touch(&mut self, key: Key, position: u64) -> Option<Verdict> {
        let piece = self.pieces.get_mut(&key)?;
        // One reader only goes forward, but for a batch that was cut off at the end of a reply.
        let is_entry = position + BACK_BYTES <= piece.last;
        piece.is_used |= is_entry;
        piece.last = position;
        let is_alone = piece.is_alone;
        Some(Verdict::Keep { is_entry, is_alone })
    }

    fn admit(
        &mut self,
        key: Key,
        position: u64,
        segment: Weak<Segment>,
        max_bytes: u64,
    ) -> (Verdict, Vec<(Key, Piece)>) {
        let mut given_up = self.shrink(max_bytes);
        let is_alone = !self.has_room(max_bytes);
        if is_alone {
            self.refused = self.refused.wrapping_add(1);
            if self.refused.is_multiple_of(CHANCE) {
                given_up.extend(self.take_unused());
            }
        }
        if !self.has_room(max_bytes) {
            return (Verdict::Past, given_up);
        }
        let piece = Piece {
            segment,
            last: position,
            is_used: false,
            is_alone,
        };
        self.pieces.insert(key, piece);
        self.order.push_back(key);
        self.sum_bytes.fetch_add(PIECE_BYTES, Ordering::Relaxed);
        let is_entry = true;
        (Verdict::Keep { is_entry, is_alone }, given_up)
    }

    fn has_room(&self, max_bytes: u64) -> bool {
        self.sum_bytes.load(Ordering::Relaxed) + PIECE_BYTES <= max_bytes
    }

    /// The oldest one that nobody came back for. The others looked at have another round.
    fn take_unused(&mut self) -> Option<(Key, Piece)> {
        for _ in 0..LOOKS_MAX.min(self.order.len()) {
            let key = self.order.pop_front()?;
            let is_used = |piece: &mut Piece| std::mem::take(&mut piece.is_used);
            if self.pieces.get_mut(&key).is_some_and(is_used) {
                self.order.push_back(key);
            } else {
                return self.removed(key);
            }
        }
        None
    }

    /// The oldest ones, until the rest fits.
    fn shrink(&mut self, max_bytes: u64) -> Vec<(Key, Piece)> {
        let mut given_up = Vec::new();
        while self.sum_bytes.load(Ordering::Relaxed) > max_bytes
            && let Some(key) = self.order.pop_front()
        {
            given_up.extend(self.removed(key));
        }
        given_up
    }

    /// Of a piece that is not in the order any more.
    fn removed(&mut self, key: Key) -> Option<(Key, Piece)> {
        let piece = self.pieces.remove(&key)?;
        self.sum_bytes.fetch_sub(PIECE_BYTES, Ordering::Relaxed);
        Some((key, piece))
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

    const ROOM_PIECES: u64 = 100;

    /// One reader's way through pieces of one segment; how many of them were kept before.
    fn pass(inner: &mut Inner, pieces: std::ops::Range<u64>, max_bytes: u64) -> u64 {
        let mut hits = 0;
        for number in pieces {
            let mut is_hit = false;
            for step in 0..16 {
                let position = number * PIECE_BYTES + step * (PIECE_BYTES / 16);
                let key = (1, number);
                if inner.touch(key, position).is_some() {
                    is_hit |= step == 0;
                } else if step == 0 {
                    inner.admit(key, position, Weak::new(), max_bytes);
                }
            }
            hits += u64::from(is_hit);
        }
        hits
    }

    #[test]
    fn a_bound_holds_and_a_scan_pushes_out_nothing_that_is_read_again() {
        let max_bytes = ROOM_PIECES * PIECE_BYTES;
        let mut inner = Inner::default();
        // What fits is there for the second reader.
        assert_eq!(pass(&mut inner, 0..60, max_bytes), 0);
        assert_eq!(pass(&mut inner, 0..60, max_bytes), 60);
        // A scan of ten times as much, once: what was read twice stays.
        pass(&mut inner, 1_000..2_000, max_bytes);
        assert!(pass(&mut inner, 0..60, max_bytes) >= 58);
        assert!(inner.order.len() as u64 <= ROOM_PIECES);
        // Less room: the oldest go, down to nothing.
        inner.shrink(max_bytes / 2);
        assert_eq!(inner.order.len() as u64, ROOM_PIECES / 2);
        assert_eq!(inner.sum_bytes.load(Ordering::Relaxed), max_bytes / 2);
        inner.retain(|_, _| false);
        assert!(inner.order.is_empty());

        // Three times what fits, read again and again: a third of it is found each time.
        for _ in 0..2 {
            pass(&mut inner, 0..300, max_bytes);
        }
        let found: u64 = (0..10).map(|_| pass(&mut inner, 0..300, max_bytes)).sum();
        assert!((600..=1_000).contains(&found), "{found} of 3,000");
        // What was kept and is not read any more gives way to what is, after a while.
        for _ in 0..40 {
            pass(&mut inner, 5_000..5_090, max_bytes);
        }
        assert!(pass(&mut inner, 5_000..5_090, max_bytes) >= 60);
        inner.retain(|_, _| false);
        assert_eq!(inner.sum_bytes.load(Ordering::Relaxed), 0);
    }

    #[test]
    fn a_reader_that_goes_on_is_not_one_that_comes_back() {
        let mut inner = Inner::default();
        inner.admit((1, 0), 100, Weak::new(), u64::MAX);
        let is_alone = false;
        let verdict = |is_entry| Some(Verdict::Keep { is_entry, is_alone });
        assert_eq!(inner.touch((1, 0), PIECE_BYTES - 1), verdict(false));
        assert_eq!(inner.touch((1, 0), PIECE_BYTES - 1_000_000), verdict(false));
        assert!(!inner.pieces[&(1, 0)].is_used);
        assert_eq!(inner.touch((1, 0), 0), verdict(true));
        assert!(inner.pieces[&(1, 0)].is_used);
        assert_eq!(inner.touch((1, 1), PIECE_BYTES), None);
        inner.retain(|_, _| false);
    }
}
