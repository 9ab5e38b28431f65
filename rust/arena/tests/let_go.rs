//! Blocks that a segment gave up without having written them: it does not hold their chunks.
#![allow(missing_docs)]

mod place;

use std::sync::Arc;

use place::*;
use pyrklog_arena::{Arena, CachedSegment, Rate};

fn segment(arena: &Arc<Arena>, partition: i32) -> Arc<CachedSegment> {
    arena.segment(arena.slot(&name(partition)).unwrap(), 0)
}

/// Whether an append gets most of a chunk.
fn gets_a_chunk(arena: &Arc<Arena>) -> bool {
    segment(arena, 99).append(&mut Rate::default(), 0, &bytes(9, 1_000_000), 0)
}

#[test]
fn append_that_gets_only_some_blocks_holds_none() {
    let place = place();
    let arena = create(&place, 1);
    // So many partitions that all have the smallest blocks.
    let _others: Vec<_> = (10..90).map(|one| segment(&arena, one)).collect();
    let (first, second) = (segment(&arena, 0), segment(&arena, 1));
    assert!(first.append(&mut Rate::default(), 0, &bytes(1, 100), 0));
    assert!(!second.append(&mut Rate::default(), 0, &bytes(2, 1_040_000), 0));
    assert_eq!(second.end(), None);
    drop(second);
    assert!(!gets_a_chunk(&arena), "what is not written stays");
    first.set_written(100);
    assert!(gets_a_chunk(&arena));
}

#[test]
fn truncated_bytes_release_their_chunk() {
    let place = place();
    let arena = create(&place, 1);
    let cut = segment(&arena, 0);
    assert!(cut.append(&mut Rate::default(), 0, &bytes(1, 20_000), 0));
    cut.cut(0);
    drop(cut);
    assert!(gets_a_chunk(&arena));
}

#[test]
fn rest_of_a_truncated_segment_keeps_its_chunk() {
    let place = place();
    let arena = create(&place, 1);
    let cut = segment(&arena, 0);
    assert!(cut.append(&mut Rate::default(), 0, &bytes(1, 60_000), 0));
    cut.cut(10_000);
    assert!(!gets_a_chunk(&arena));
    assert_eq!(read(&cut, 0, 20_000), bytes(1, 60_000)[..10_000]);
    cut.set_written(10_000);
    assert!(gets_a_chunk(&arena));
    assert_eq!(read(&cut, 0, 20_000), []);
}
