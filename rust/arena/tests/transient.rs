//! Blocks that are given up when they are written.
#![allow(missing_docs)]

mod place;

use place::*;
use pyrklog_arena::{Arena, Rate};

fn transient() -> Rate {
    let mut rate = Rate::default();
    rate.is_transient = true;
    rate
}

#[test]
fn transient_bytes_go_when_they_are_written_and_take_up_a_tenth() {
    let place = place();
    let arena = create(&place, 20);
    let slot = |partition| arena.slot(&name(partition)).unwrap();
    let (kept, copied) = (arena.segment(slot(0), 0), arena.segment(slot(1), 0));
    let mut rate = Rate::default();
    assert!(kept.append(&mut rate, 0, &bytes(1, 500_000), 0));
    kept.set_written(500_000);
    let mut rate = transient();
    let mut end = 0;
    while copied.append(&mut rate, end, &bytes(2, 50_000), i64::from(end)) {
        end += 50_000;
    }
    let statistics = arena.statistics();
    assert_eq!(statistics.transient_bytes, 2 * MIB, "a tenth of 20 chunks");
    assert_eq!(statistics.transient_appended_bytes, u64::from(end));
    assert!(end >= MIB as u32, "{end}");
    assert!(statistics.free_bytes > 10 * MIB, "not for lack of memory");
    assert_eq!(statistics.reclaimed, 0, "nobody had to make room");
    // Other appends go on, and held bytes can be read.
    assert!(kept.append(&mut Rate::default(), 500_000, &bytes(3, 300_000), 0));
    assert_eq!(read(&copied, 70_000, 10), bytes(2, 50_000)[20_000..20_010]);
    copied.set_written(end - 10);
    assert_eq!(copied.unwritten_from(), Some(end - 10));
    assert_eq!(
        read(&copied, end - 10, 100).len(),
        10,
        "what is not written stays"
    );
    assert_eq!(read(&copied, 0, 10), [], "what is written is gone");
    copied.set_written(end);
    assert_eq!(arena.statistics().transient_bytes, 0);
    assert_eq!(read(&copied, end - 10, 100), []);
    // What was kept before is still there, written or not.
    assert_eq!(read(&kept, 0, 500_000), bytes(1, 500_000));
    assert!(
        copied.append(&mut rate, end, &bytes(4, 100), 0),
        "there is room again"
    );
    assert_eq!(read(&copied, end, 200), bytes(4, 100));
}

#[test]
fn transient_chunks_are_carved_again_after_their_readers() {
    let place = place();
    let arena = create(&place, 1);
    let segment = arena.segment(arena.slot(&name(0)).unwrap(), 0);
    let mut rate = transient();
    for round in 0..50 {
        let at = round * 100_000;
        let batch = bytes(round as usize, 100_000);
        let is_done = segment.append(&mut rate, at, &batch, 0);
        assert!(is_done, "round {round}");
        if round == 20 {
            let guard = arena.enter();
            let found = segment.slice(&guard, at).unwrap();
            segment.set_written(at + 100_000);
            assert!(!segment.append(&mut rate, at + 100_000, &[1], 0));
            assert_eq!(found, &batch[..found.len()], "as long as it is read");
            continue;
        }
        segment.set_written(at + 100_000);
    }
}

#[test]
fn deleted_log_frees_transient_chunks_but_not_unwritten_bytes() {
    let place = place();
    let arena = create(&place, 20);
    let deleted = arena.slot(&name(0)).unwrap();
    let segment = arena.segment(deleted, 0);
    assert!(segment.append(&mut transient(), 0, &bytes(1, 5000), 0));
    arena.release_slot(deleted);
    drop(segment);
    assert_eq!(arena.statistics().transient_bytes, 0);
    let segment = arena.segment(arena.slot(&name(1)).unwrap(), 7);
    assert!(segment.append(&mut transient(), 0, &bytes(2, 5000), 0));
    drop((segment, arena));
    let (_arena, found) = Arena::attach(&place.path, IDENTITY, 20 * MIB).unwrap();
    assert_eq!(found.keys().collect::<Vec<_>>(), [&name(1)]);
    assert_eq!(read(&found[&name(1)].segments[&7], 0, 9000), bytes(2, 5000));
}

#[test]
fn truncated_bytes_do_not_count_as_transient() {
    let place = place();
    let arena = create(&place, 1);
    let segment = arena.segment(arena.slot(&name(0)).unwrap(), 0);
    assert!(segment.append(&mut transient(), 0, &bytes(1, 20_000), 0));
    segment.cut(0);
    assert_eq!(arena.statistics().transient_bytes, 0);
    let other = arena.segment(arena.slot(&name(1)).unwrap(), 0);
    assert!(other.append(&mut Rate::default(), 0, &bytes(2, 100), 0));
}
