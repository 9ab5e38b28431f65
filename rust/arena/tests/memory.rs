//! An arena grows before it forgets, holds as much as it has memory for, and gives memory back.
#![allow(missing_docs)]

mod place;

use std::os::unix::fs::{FileExt, MetadataExt};
use std::sync::Arc;

use place::*;
use pyrklog_arena::room::Room;
use pyrklog_arena::{Arena, ArenaStatistics, CachedSegment, Janitor, Rate};

const LIMIT: u64 = 512 * MIB;

fn fresh(place: &Place) -> Arc<Arena> {
    Arena::create(&place.path, IDENTITY, "/data/logs", LIMIT).unwrap()
}

fn give_back(bytes: u64) -> Room {
    Room {
        give_back_bytes: bytes,
        ..Room::default()
    }
}

/// Memory that the file takes.
fn file_bytes(place: &Place) -> u64 {
    std::fs::metadata(&place.path).unwrap().blocks() * 512
}

/// Populated memory that holds nothing is small: a sixth of what is held, and a constant.
fn assert_full(statistics: ArenaStatistics, constant: u64) {
    let most = statistics.held_bytes * 115 / 100 + constant;
    assert!(statistics.populated_bytes <= most, "{statistics:?}");
}

/// Fills a segment with batches, each written at once. Returns its end.
fn fill(segment: &CachedSegment, from: u32, len: u32, batch: usize) -> u32 {
    let (mut rate, mut at) = (Rate::default(), from);
    let batch = bytes(1, batch);
    while at < from + len {
        assert!(segment.append(&mut rate, at, &batch, 0), "at {at}");
        at += batch.len() as u32;
        segment.set_written(at);
    }
    at
}

#[test]
fn an_append_grows_the_arena_before_anything_is_forgotten() {
    let place = place();
    let arena = fresh(&place);
    let mut janitor = Janitor::default();
    janitor.tend(&arena, 0, Room::UNLIMITED);
    let segment = arena.segment(arena.slot(&name(0)).unwrap(), 0);
    // All of it between two looks, faster than any janitor.
    let end = fill(&segment, 0, 200 * MIB as u32, 128 << 10);
    assert!(segment.holds(0, end), "all that was produced");
    let statistics = arena.statistics();
    assert_eq!((statistics.reclaimed, statistics.refused), (0, 0));
    assert_full(statistics, 18 * MIB);
    for round in 1..20 {
        janitor.tend(&arena, round, Room::UNLIMITED);
    }
    assert_full(arena.statistics(), 18 * MIB);
    // At the cap the oldest go.
    let next = arena.segment(arena.slot(&name(1)).unwrap(), 0);
    fill(&next, 0, 400 * MIB as u32, 128 << 10);
    assert!(arena.statistics().populated_bytes <= LIMIT);
    assert!(!segment.holds(0, MIB as u32) && segment.holds(end - MIB as u32, end));
}

#[test]
fn append_reclaims_the_oldest_chunk_when_memory_is_short() {
    let place = place();
    let arena = fresh(&place);
    let mut janitor = Janitor::default();
    janitor.tend(&arena, 0, Room::UNLIMITED);
    let edge = Room {
        grow_bytes: 3 * MIB,
        ..Room::default()
    };
    janitor.tend(&arena, 1, edge);
    let segment = arena.segment(arena.slot(&name(0)).unwrap(), 0);
    fill(&segment, 0, 40 * MIB as u32, 128 << 10);
    let statistics = arena.statistics();
    assert_eq!(statistics.populated_bytes, (16 + 3) * MIB);
    assert!(statistics.reclaimed > 15 && statistics.refused == 0);
}

#[test]
fn many_partitions_take_little_more_memory_than_they_hold() {
    let place = place();
    let arena = fresh(&place);
    let mut janitor = Janitor::default();
    let mut logs: Vec<_> = (0..300)
        .map(|partition| {
            let slot = arena.slot(&name(partition)).unwrap();
            (arena.segment(slot, 0), Rate::default())
        })
        .collect();
    let batch = bytes(1, 10_000);
    for round in 0..80 {
        janitor.tend(&arena, round * 20, Room::UNLIMITED);
        for (segment, rate) in &mut logs {
            let at = round as u32 * 10_000;
            assert!(segment.append(rate, at, &batch, round * 20));
            segment.set_written(at + 10_000);
        }
    }
    let statistics = arena.statistics();
    assert_eq!(statistics.held_bytes, 300 * 800_000);
    assert_full(statistics, 32 * MIB);
}

#[test]
fn a_partition_that_appends_much_has_large_blocks_among_many() {
    let place = place();
    let arena = fresh(&place);
    arena.grow(40).unwrap();
    for partition in 1..100 {
        arena.slot(&name(partition)).unwrap();
    }
    let segment = arena.segment(arena.slot(&name(0)).unwrap(), 0);
    let end = fill(&segment, 0, 20 * MIB as u32, 100_000);
    let guard = arena.enter();
    let count = segment
        .range(&guard, end - 4 * MIB as u32, end)
        .unwrap()
        .len();
    assert!(count <= 5, "{count} blocks for 4 MiB");
}

#[test]
fn memory_of_deleted_topics_is_used_again_before_more_is_populated() {
    let place = place();
    let arena = fresh(&place);
    let mut janitor = Janitor::default();
    // A log that stays has blocks among theirs.
    let kept = arena.segment(arena.slot(&name(999)).unwrap(), 0);
    let (mut kept_rate, mut kept_end) = (Rate::default(), 0);
    let mut after = Vec::new();
    janitor.tend(&arena, 0, Room::UNLIMITED);
    for run in 0..6 {
        for partition in 0..100 {
            let slot = arena.slot(&name(run * 100 + partition)).unwrap();
            let segment = arena.segment(slot, 0);
            fill(&segment, 0, 300_000, 3000);
            assert!(kept.append(&mut kept_rate, kept_end, &bytes(3, 100), i64::MAX));
            kept_end += 100;
            kept.set_written(kept_end);
            arena.release_slot(slot);
            janitor.tend(&arena, i64::from(run) * 1000, Room::UNLIMITED);
        }
        after.push(arena.statistics().populated_bytes);
    }
    assert!(after[5] <= after[1] + MIB, "{after:?}");
    assert!(after[5] < 30 * MIB, "{after:?}");
    assert!(kept.holds(kept_end - 100, kept_end));
}

#[test]
fn memory_unused_for_long_is_given_back() {
    let place = place();
    let arena = fresh(&place);
    let slot = arena.slot(&name(0)).unwrap();
    let segment = arena.segment(slot, 0);
    let mut janitor = Janitor::default();
    janitor.tend(&arena, 0, Room::UNLIMITED);
    fill(&segment, 0, 100 * MIB as u32, 128 << 10);
    arena.release_slot(slot);
    drop(segment);
    for second in 1..40 {
        janitor.tend(&arena, second * 1000, Room::UNLIMITED);
    }
    assert!(arena.statistics().populated_bytes <= 18 * MIB);
    assert!(file_bytes(&place) <= 21 * MIB, "{}", file_bytes(&place));
}

#[test]
fn removed_segment_keeps_memory_of_unwritten_bytes() {
    let place = place();
    let arena = create(&place, 4);
    let written = arena.segment(arena.slot(&name(0)).unwrap(), 0);
    let unwritten = arena.segment(arena.slot(&name(1)).unwrap(), 0);
    fill(&written, 0, 900_000, 100_000);
    let batch = bytes(7, 100_000);
    assert!(unwritten.append(&mut Rate::default(), 0, &batch, 0));
    drop((written, unwritten));
    // As at the end of a broker whose disk is full: its logs are gone, and others want memory.
    let mut janitor = Janitor::default();
    for round in 0..5 {
        janitor.tend(&arena, round, give_back(u64::MAX));
    }
    let other = arena.segment(arena.slot(&name(2)).unwrap(), 0);
    other.append(&mut Rate::default(), 0, &bytes(9, 3 << 20), 0);
    drop((other, arena));
    let (_arena, found) = Arena::attach(&place.path, IDENTITY, 4 * MIB).unwrap();
    assert_eq!(read(&found[&name(1)].segments[&0], 0, 200_000), batch);
}

#[test]
fn coldest_written_memory_is_given_back_first() {
    let place = place();
    let arena = fresh(&place);
    let mut janitor = Janitor::default();
    janitor.tend(&arena, 0, Room::UNLIMITED);
    let segment = arena.segment(arena.slot(&name(0)).unwrap(), 0);
    let end = fill(&segment, 0, 100 * MIB as u32, 128 << 10);
    let tail = arena.segment(arena.slot(&name(1)).unwrap(), 0);
    assert!(tail.append(&mut Rate::default(), 0, &bytes(5, 5 << 20), 0));
    let before = arena.populated();
    let tended = janitor.tend(&arena, 1, give_back(30 * MIB));
    assert_eq!((tended.given_back, arena.populated()), (30, before - 30));
    assert!(!segment.holds(0, 10 << 20) && segment.holds(end - (50 << 20), end));
    // Other file systems than tmpfs may have pages of 2 MiB.
    let most = u64::from(before - 30) * MIB + 3 * MIB;
    assert!(
        file_bytes(&place) <= most,
        "{} of {most}",
        file_bytes(&place)
    );
    // Nothing is produced any more, and others want everything.
    let mut tended = Default::default();
    for round in 2..10 {
        tended = janitor.tend(&arena, round, give_back(u64::MAX));
    }
    assert!(tended.needs_writer, "the tail is in no file");
    assert_eq!(read(&tail, 0, 6 << 20), bytes(5, 5 << 20));
    assert!(arena.populated() <= 8, "{}", arena.populated());
    tail.set_written(5 << 20);
    janitor.tend(&arena, 10, give_back(u64::MAX));
    janitor.tend(&arena, 11, give_back(u64::MAX));
    assert_eq!((arena.populated(), arena.statistics().held_bytes), (0, 0));
    // There is room again.
    janitor.tend(&arena, 12, Room::UNLIMITED);
    let end = fill(&segment, end, 30 * MIB as u32, 128 << 10);
    assert!(segment.holds(end - (30 << 20), end));
}

#[test]
fn memory_under_a_reader_is_given_back_after_the_read() {
    let place = place();
    let arena = create(&place, 2);
    let segment = arena.segment(arena.slot(&name(0)).unwrap(), 0);
    fill(&segment, 0, 1000, 1000);
    let guard = arena.enter();
    let slice = segment.slice(&guard, 0).unwrap();
    let mut janitor = Janitor::default();
    for round in 0..3 {
        janitor.tend(&arena, round, give_back(u64::MAX));
    }
    assert_eq!((slice, arena.populated()), (&bytes(1, 1000)[..], 1));
    drop(guard);
    janitor.tend(&arena, 3, give_back(u64::MAX));
    assert_eq!(arena.populated(), 0);
}

#[test]
fn holes_are_found_again_after_a_kill_at_any_step_of_giving_back() {
    for steps in 0..40 {
        let place = place();
        let arena = create(&place, 12);
        let segment = arena.segment(arena.slot(&name(0)).unwrap(), 0);
        let end = fill(&segment, 0, 6 << 20, 60_000);
        let tail = arena.segment(arena.slot(&name(1)).unwrap(), 0);
        assert!(tail.append(&mut Rate::default(), 0, &bytes(2, 80_000), 0));
        arena.fuse().burn_after(steps);
        for round in 0..3 {
            Janitor::default().tend(&arena, round, give_back(3 * MIB));
        }
        arena.let_go();
        let (again, found) = Arena::attach(&place.path, IDENTITY, 12 * MIB).unwrap();
        assert!(found.values().all(|found| found.damage.is_none()));
        assert_eq!(
            read(&found[&name(1)].segments[&0], 0, 90_000),
            bytes(2, 80_000)
        );
        if let Some(found) = found.get(&name(0)) {
            let held = &found.segments[&0];
            for at in (0..end).step_by(7919) {
                let some = read(held, at, 1);
                assert!(some.is_empty() || some[0] == bytes(1, 60_000)[at as usize % 60_000]);
            }
        }
        // Free chunks have all their memory, others none.
        let statistics = again.statistics();
        let most = statistics.populated_bytes + 3 * MIB;
        assert!(file_bytes(&place) <= most, "{steps}: {statistics:?}");
        assert_eq!(again.grow(12).unwrap(), 12);
        let other = again.segment(again.slot(&name(2)).unwrap(), 0);
        fill(&other, 0, 20 << 20, 100_000);
    }
}

#[test]
fn an_arena_of_the_version_before_is_reattached_and_says_so_only_when_it_must() {
    let place = place();
    let arena = create(&place, 4);
    let segment = arena.segment(arena.slot(&name(0)).unwrap(), 0);
    assert!(segment.append(&mut Rate::default(), 0, &bytes(1, 9000), 0));
    drop((segment, arena));
    let mut file = std::fs::OpenOptions::new();
    let file = file.read(true).write(true).open(&place.path).unwrap();
    let version = || {
        let mut word = [0; 4];
        file.read_exact_at(&mut word, 8).unwrap();
        u32::from_le_bytes(word)
    };
    assert_eq!(version(), 3);
    file.write_all_at(&2u32.to_le_bytes(), 8).unwrap();
    let (arena, found) = Arena::attach(&place.path, IDENTITY, 4 * MIB).unwrap();
    let segment = &found[&name(0)].segments[&0];
    assert_eq!(read(segment, 0, 9000), bytes(1, 9000));
    segment.set_written(9000);
    assert_eq!(version(), 2, "an earlier broker may still have it");
    Janitor::default().tend(&arena, 0, give_back(MIB));
    assert_eq!((version(), arena.populated()), (3, 3));
    drop((found, arena));
    file.write_all_at(&4u32.to_le_bytes(), 8).unwrap();
    assert!(Arena::attach(&place.path, IDENTITY, 4 * MIB).is_err());
}

#[test]
fn an_arena_with_less_memory_than_before_shrinks_to_it() {
    let place = place();
    let arena = create(&place, 64);
    let segment = arena.segment(arena.slot(&name(0)).unwrap(), 0);
    let end = fill(&segment, 0, 50 << 20, 100_000);
    drop((segment, arena));
    let (arena, found) = Arena::attach(&place.path, IDENTITY, 20 * MIB).unwrap();
    let mut janitor = Janitor::default();
    for round in 0..5 {
        janitor.tend(&arena, round, Room::UNLIMITED);
    }
    assert_eq!(arena.populated(), 20);
    let segment = &found[&name(0)].segments[&0];
    assert!(segment.holds(end - (10 << 20), end), "the newest");
}

#[test]
fn many_threads_grow_at_the_same_time() {
    let place = place();
    let arena = fresh(&place);
    Janitor::default().tend(&arena, 0, Room::UNLIMITED);
    let segment = |partition| arena.segment(arena.slot(&name(partition)).unwrap(), 0);
    let segments: Vec<_> = (0..4).map(segment).collect();
    std::thread::scope(|scope| {
        for segment in &segments {
            scope.spawn(move || fill(segment, 0, 40 << 20, 128 << 10));
        }
    });
    assert!(segments.iter().all(|segment| segment.holds(0, 40 << 20)));
    let statistics = arena.statistics();
    assert_eq!((statistics.reclaimed, statistics.refused), (0, 0));
    assert_full(statistics, 20 * MIB);
}
