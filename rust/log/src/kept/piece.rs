//! Pieces: what is kept in the page cache, or given up, at once.

use std::sync::Weak;

use crate::segment_handle::SegmentHandle;

/// What is kept or given up at once. Pages that the kernel reads and gives up as one begin at
/// multiples of their size and have 2 MiB at most, so none belongs to two pieces.
pub const PIECE_BYTES: u64 = 4 << 20;

/// Who goes back by less reads on.
pub(super) const BACK_BYTES: u64 = PIECE_BYTES / 2;

/// A segment and a piece of its file.
pub(super) type Key = (u64, u64);

/// A read of some bytes.
#[derive(Clone, Copy, Debug)]
pub(super) struct Read {
    pub key: Key,
    pub position: u64,
    /// Where the segment's file ends.
    pub written: u64,
}

/// Pieces whose pages are to be given up.
pub(super) type GivenUp = Vec<(Key, Weak<dyn SegmentHandle>)>;
