//! Offsets together with the place in the files where they are found.

/// A byte position in one segment's `.log`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Place {
    /// Base offset of the segment.
    pub segment_base: i64,
    /// Bytes from the start of its `.log`. Segments end below 2^31 bytes.
    pub position: u32,
}

/// An offset, and where the batch that starts there begins (or will begin), if that is known
/// without looking.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct LogPosition {
    /// The offset.
    pub offset: i64,
    /// Its place; `None` means that a reader has to search for it.
    pub place: Option<Place>,
}

impl LogPosition {
    /// An offset whose place is known.
    pub fn at(offset: i64, segment_base: i64, position: u32) -> Self {
        let place = Place {
            segment_base,
            position,
        };
        Self {
            offset,
            place: Some(place),
        }
    }

    /// An offset whose place is not known.
    pub fn unplaced(offset: i64) -> Self {
        Self {
            offset,
            place: None,
        }
    }
}

/// Recently gated positions kept, so that a consumer at the tail is served without a search.
const RECENT_MAX: usize = 32;

/// The last positions at which the gate stood. A consumer that has read all there was asks for one
/// of them next.
#[derive(Debug, Default)]
pub(crate) struct RecentPositions {
    ring: Vec<(i64, Place)>,
    next: usize,
}

impl RecentPositions {
    /// Remembers one; the oldest is forgotten.
    pub fn push(&mut self, offset: i64, place: Place) {
        if self.ring.len() < RECENT_MAX {
            self.ring.push((offset, place));
        } else {
            self.ring[self.next] = (offset, place);
        }
        self.next = (self.next + 1) % RECENT_MAX;
    }

    /// Where `offset` begins, if it is remembered.
    pub fn find(&self, offset: i64) -> Option<Place> {
        self.ring
            .iter()
            .find(|(known, _)| *known == offset)
            .map(|(_, place)| *place)
    }

    /// Forgets all, since a truncation moved the positions.
    pub fn clear(&mut self) {
        self.ring.clear();
        self.next = 0;
    }
}
