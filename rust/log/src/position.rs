//! Offsets together with their place in the files.

use std::collections::VecDeque;

/// A byte position in one segment's `.log`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct SegmentPosition {
    /// Base offset of the segment.
    pub segment_base: i64,
    /// Bytes from the start of its `.log`, below 2^31.
    pub position: u32,
}

/// An offset, and where its batch begins or will begin, if known.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct LogPosition {
    pub offset: i64,
    /// Its place; `None` if a reader must search for it.
    pub place: Option<SegmentPosition>,
}

impl LogPosition {
    pub fn at(offset: i64, segment_base: i64, position: u32) -> Self {
        let place = SegmentPosition {
            segment_base,
            position,
        };
        Self {
            offset,
            place: Some(place),
        }
    }

    pub fn unplaced(offset: i64) -> Self {
        Self {
            offset,
            place: None,
        }
    }
}

const RECENT_MAX: usize = 32;

/// The last positions of the durable end offset. A consumer that has read everything asks for one
/// of them next and needs no search.
#[derive(Debug, Default)]
pub(crate) struct RecentPositions(VecDeque<(i64, SegmentPosition)>);

impl RecentPositions {
    pub fn push(&mut self, offset: i64, place: SegmentPosition) {
        if self.0.len() == RECENT_MAX {
            self.0.pop_front();
        }
        self.0.push_back((offset, place));
    }

    /// Where `offset` begins, if remembered.
    pub fn find(&self, offset: i64) -> Option<SegmentPosition> {
        let found = self.0.iter().find(|(known, _)| *known == offset);
        found.map(|(_, place)| *place)
    }

    /// Forgets all, since a truncation moved the positions.
    pub fn clear(&mut self) {
        self.0.clear();
    }
}
