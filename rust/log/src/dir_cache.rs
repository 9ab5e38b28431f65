//! A log directory's block cache, and what its logs find there when they are opened.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use pyrklog_arena::{Arena, CachedSegment, Found, FoundPartition, PartitionName};

/// A directory's arena, and what was found in it and not taken up yet.
#[derive(Debug)]
pub(crate) struct DirCache {
    pub arena: Arc<Arena>,
    /// An earlier life of the same boot left the directory: whatever it wrote is in the files.
    pub is_same_boot: bool,
    pub found: Found,
    /// Blocks that must not be used nor lost.
    pub quarantined: HashMap<PartitionName, (FoundPartition, String)>,
}

/// What a log that is opened gets.
#[derive(Debug)]
pub(crate) struct Claimed {
    pub arena: Arc<Arena>,
    pub is_same_boot: bool,
    pub found: Option<FoundPartition>,
}

/// What is found of one log: by segment.
pub(crate) type FoundSegments = BTreeMap<i64, Arc<CachedSegment>>;

/// Whether any of it is not in the files.
pub(crate) fn has_unwritten(segments: &FoundSegments) -> bool {
    segments
        .values()
        .any(|segment| segment.unwritten_from().is_some())
}
