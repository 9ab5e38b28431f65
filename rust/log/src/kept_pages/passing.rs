//! Pieces that pass through the page cache without a place of their own: fetched ahead of their
//! reader, and given up when others need the place (reads.md).

use std::sync::Weak;

use super::piece::{BACK_BYTES, GivenUp, Key, PIECE_BYTES, Read};
use crate::segment_handle::SegmentHandle;

pub(super) const PASSING_MAX: usize = 16;

/// A reader this near to a piece's end takes the rest in one step.
const STEP_BYTES: u64 = 256 * 1024;

/// A reader that starts this far inside a piece would use too little of it.
const BEGINNING_BYTES: u64 = PIECE_BYTES / 4;

/// A piece unread for this many calls of [`Passing::age`] gives way to another; one call later it
/// is given up.
const STALE_AGE: u32 = 1;

#[derive(Debug)]
struct Piece {
    key: Key,
    segment: Weak<dyn SegmentHandle>,
    /// Position of the last read; `None` before the first.
    last: Option<u64>,
    /// Its reader has taken its end.
    is_left: bool,
    /// Calls of [`Passing::age`] since the last read.
    age: u32,
}

fn is_last_step(read: &Read) -> bool {
    let end = read.written.min((read.key.1 + 1) * PIECE_BYTES);
    read.position + STEP_BYTES >= end
}

/// The passing pieces of a log directory, in order of arrival.
#[derive(Debug, Default)]
pub(super) struct Passing {
    pieces: Vec<Piece>,
}

impl Passing {
    pub fn holds(&self, key: Key) -> bool {
        self.pieces.iter().any(|piece| piece.key == key)
    }

    /// Notes a read; false if the piece does not pass or gets a new reader.
    pub fn goes_on(&mut self, read: Read) -> bool {
        let piece = self.pieces.iter_mut().find(|piece| piece.key == read.key);
        let Some(piece) = piece else {
            return false;
        };
        let came_back = |last| read.position + BACK_BYTES <= last;
        if piece.last.is_none_or(came_back) {
            return false;
        }
        piece.read(read);
        true
    }

    /// A reader arrives at a piece that is not kept: returns how many pieces to fetch from here;
    /// `None` if it cannot pass. `is_next_kept` says that the next one has a place.
    pub fn enter(
        &mut self,
        read: Read,
        segment: &Weak<dyn SegmentHandle>,
        is_next_kept: bool,
        max_pieces: usize,
        given_up: &mut GivenUp,
    ) -> Option<u64> {
        if !self.holds(read.key) {
            if read.position % PIECE_BYTES >= BEGINNING_BYTES {
                return None;
            }
            self.add(read.key, segment, max_pieces, given_up)?;
        }
        if let Some(piece) = self.pieces.iter_mut().find(|piece| piece.key == read.key) {
            piece.read(read);
        }
        let next = (read.key.0, read.key.1 + 1);
        let is_there = next.1 * PIECE_BYTES < read.written;
        let passes_on = is_there
            && !is_next_kept
            && (self.holds(next) || self.add(next, segment, max_pieces, given_up).is_some());
        Some(1 + u64::from(passes_on))
    }

    fn add(
        &mut self,
        key: Key,
        segment: &Weak<dyn SegmentHandle>,
        max_pieces: usize,
        given_up: &mut GivenUp,
    ) -> Option<()> {
        while self.pieces.len() >= max_pieces {
            let done = |piece: &Piece| piece.is_left || piece.age >= STALE_AGE;
            let index = self.pieces.iter().position(done)?;
            let gone = self.pieces.remove(index);
            given_up.push((gone.key, gone.segment));
        }
        self.pieces.push(Piece {
            key,
            segment: Weak::clone(segment),
            last: None,
            is_left: false,
            age: 0,
        });
        Some(())
    }

    /// The piece has a place now.
    pub fn remove(&mut self, key: Key) {
        self.pieces.retain(|piece| piece.key != key);
    }

    pub fn forget(&mut self, segment: u64) {
        self.pieces.retain(|piece| piece.key.0 != segment);
    }

    /// Gives up unread pieces.
    pub fn age(&mut self, given_up: &mut GivenUp) {
        self.pieces.retain_mut(|piece| {
            piece.age += 1;
            let stays = piece.age <= STALE_AGE;
            if !stays {
                given_up.push((piece.key, Weak::clone(&piece.segment)));
            }
            stays
        });
    }
}

impl Piece {
    fn read(&mut self, read: Read) {
        self.last = Some(read.position);
        self.is_left = is_last_step(&read);
        self.age = 0;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::segment::Segment;

    fn nobody() -> Weak<dyn SegmentHandle> {
        Weak::<Segment>::new()
    }

    const WRITTEN: u64 = 100 * PIECE_BYTES;

    fn read(segment: u64, position: u64) -> Read {
        Read {
            key: (segment, position / PIECE_BYTES),
            position,
            written: WRITTEN,
        }
    }

    /// A reader takes all of a piece; returns the pieces to fetch.
    fn pass(
        passing: &mut Passing,
        segment: u64,
        number: u64,
        given_up: &mut GivenUp,
    ) -> Option<u64> {
        let start = number * PIECE_BYTES;
        let asked = passing.enter(
            read(segment, start),
            &nobody(),
            false,
            PASSING_MAX,
            given_up,
        );
        let mut at = start;
        while asked.is_some() && at < start + PIECE_BYTES {
            assert!(passing.goes_on(read(segment, at)));
            at += STEP_BYTES;
        }
        asked
    }

    #[test]
    fn oldest_abandoned_piece_is_given_up_first() {
        let (mut passing, mut given_up) = (Passing::default(), Vec::new());
        for number in 0..99 {
            assert_eq!(pass(&mut passing, 1, number, &mut given_up), Some(2));
            assert!(passing.pieces.len() <= PASSING_MAX);
        }
        assert_eq!(pass(&mut passing, 1, 99, &mut given_up), Some(1));
        let gone: Vec<u64> = given_up.iter().map(|(key, _)| key.1).collect();
        assert_eq!(gone, (0..100 - PASSING_MAX as u64).collect::<Vec<_>>());
    }

    #[test]
    fn slow_readers_keep_their_pieces_until_they_stop() {
        let (mut passing, mut given_up) = (Passing::default(), Vec::new());
        let enter = |passing: &mut Passing, at: Read, given_up: &mut GivenUp| {
            passing.enter(at, &nobody(), false, PASSING_MAX, given_up)
        };
        for segment in 0..PASSING_MAX as u64 / 2 {
            assert_eq!(
                enter(&mut passing, read(segment, 0), &mut given_up),
                Some(2)
            );
        }
        assert_eq!(enter(&mut passing, read(77, 0), &mut given_up), None);
        // Half of them read on.
        for _ in 0..STALE_AGE {
            passing.age(&mut given_up);
            for segment in 0..PASSING_MAX as u64 / 4 {
                assert!(passing.goes_on(read(segment, STEP_BYTES)));
            }
        }
        assert!(given_up.is_empty());
        assert_eq!(enter(&mut passing, read(77, 0), &mut given_up), Some(2));
        assert_eq!(given_up.len(), 2);
        for _ in 0..=STALE_AGE {
            passing.age(&mut given_up);
        }
        assert_eq!(given_up.len(), PASSING_MAX + 2);
        assert!(passing.pieces.is_empty());
    }

    #[test]
    fn reader_that_starts_inside_a_piece_passes_from_the_next() {
        let (mut passing, mut given_up) = (Passing::default(), Vec::new());
        let midst = read(1, PIECE_BYTES / 2);
        let enter = |passing: &mut Passing, at: Read, given_up: &mut GivenUp| {
            passing.enter(at, &nobody(), false, PASSING_MAX, given_up)
        };
        assert_eq!(enter(&mut passing, midst, &mut given_up), None);
        let next = read(1, PIECE_BYTES + 1_000);
        assert_eq!(enter(&mut passing, next, &mut given_up), Some(2));
        assert!(passing.goes_on(next));
        // The next one was fetched, but has no reader yet.
        assert!(passing.holds((1, 2)));
        assert!(!passing.goes_on(read(1, 2 * PIECE_BYTES)));
        // Another reader comes back to what is still there.
        let late = read(1, PIECE_BYTES + 3 * STEP_BYTES + BACK_BYTES);
        assert!(passing.goes_on(late));
        assert!(!passing.goes_on(next));
        assert_eq!(enter(&mut passing, next, &mut given_up), Some(2));
        passing.forget(1);
        assert!(passing.pieces.is_empty() && given_up.is_empty());
    }
}
