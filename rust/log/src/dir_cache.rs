//! A log directory's block cache and the blocks that its logs claim when they are opened.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use pyrklog_arena::{Arena, CachedSegment, Found, FoundPartition, PartitionName};

/// A directory's arena and the blocks found in it that no log has claimed yet.
#[derive(Debug)]
pub(crate) struct DirCache {
    pub arena: Arc<Arena>,
    /// The previous run was in the same boot, so the files have all that it wrote.
    pub is_same_boot: bool,
    pub found: Found,
    /// Blocks that must be neither used nor freed, with the reason.
    pub quarantined: HashMap<PartitionName, (FoundPartition, String)>,
}

/// What an opened log gets.
#[derive(Debug)]
pub(crate) struct Claimed {
    pub arena: Arc<Arena>,
    pub is_same_boot: bool,
    pub found: Option<FoundPartition>,
}

/// A log's blocks by segment base offset.
pub(crate) type FoundSegments = BTreeMap<i64, Arc<CachedSegment>>;

/// Whether any block is missing in the files.
pub(crate) fn has_unwritten(segments: &FoundSegments) -> bool {
    segments
        .values()
        .any(|segment| segment.unwritten_from().is_some())
}
