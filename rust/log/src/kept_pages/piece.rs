//! Pieces: the unit that is kept in the page cache or given up.

use std::sync::Weak;

use crate::segment_handle::SegmentHandle;

/// The kernel reads and drops pages in folios of at most 2 MiB at multiples of their size, so none
/// spans two pieces.
pub const PIECE_BYTES: u64 = 4 << 20;

/// Going back by less still counts as reading on.
pub(super) const BACK_BYTES: u64 = PIECE_BYTES / 2;

/// A segment and a piece of its file.
pub(super) type Key = (u64, u64);

#[derive(Clone, Copy, Debug)]
pub(super) struct Read {
    pub key: Key,
    pub position: u64,
    /// Where the segment's file ends.
    pub written: u64,
}

pub(super) type GivenUp = Vec<(Key, Weak<dyn SegmentHandle>)>;
