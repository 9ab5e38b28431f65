//! Which segments become one.

use std::ops::Range;
use std::sync::Arc;

use crate::config::LogConfig;
use crate::segment::Segment;
use crate::time_index::ENTRY_BYTES;

/// Ranges of `segments` that fit into one segment each, in order: by bytes, index size and span of
/// offsets (Kafka: `Cleaner.groupSegmentsBySize`). `end` is the offset behind the last one.
pub(super) fn groups(segments: &[Arc<Segment>], end: i64, config: &LogConfig) -> Vec<Range<usize>> {
    let end_of = |i: usize| segments.get(i + 1).map_or(end, |next| next.base_offset());
    let mut groups = Vec::new();
    let mut start = 0;
    while start < segments.len() {
        let base_offset = segments[start].base_offset();
        let mut size = segments[start].size();
        let mut after = start + 1;
        while let Some(next) = segments.get(after) {
            let grown = size + next.size();
            let spans = end_of(after) - 1 - base_offset;
            if grown > u64::from(config.segment_bytes)
                || index_bytes(grown, config) > u64::from(config.segment_index_bytes)
                || spans > i64::from(i32::MAX)
            {
                break;
            }
            size = grown;
            after += 1;
        }
        groups.push(start..after);
        start = after;
    }
    groups
}

/// What the time index of so many bytes takes at most: more than an interval lies between entries.
fn index_bytes(size: u64, config: &LogConfig) -> u64 {
    let entries = size / u64::from(config.index_interval_bytes.max(1)) + 1;
    entries * ENTRY_BYTES as u64
}
