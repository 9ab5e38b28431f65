//! The arena against a plain model, and after a kill at any store.
#![allow(missing_docs)]

mod place;

use std::collections::BTreeMap;
use std::sync::Arc;

use place::*;
use proptest::prelude::*;
use pyrklog_arena::room::Room;
use pyrklog_arena::{Arena, ArenaError, CachedSegment, Identity, Janitor, Rate, Slot};

#[test]
fn bytes_of_any_length_come_back_across_blocks() {
    let place = place();
    let arena = create(&place, 8);
    let segment = arena.segment(arena.slot(&name(0)).unwrap(), 0);
    let mut rate = Rate::default();
    let mut all = Vec::new();
    for (i, len) in [10, 5000, 1, 70_000, 300_000, 2_000_000, 100]
        .into_iter()
        .enumerate()
    {
        let batch = bytes(i, len);
        assert!(segment.append(&mut rate, all.len() as u32, &batch, i as i64));
        all.extend(batch);
    }
    assert_eq!(read(&segment, 0, all.len() + 10), all);
    assert_eq!(read(&segment, 4999, 80_000), all[4999..84_999]);
    assert_eq!(segment.end(), Some(all.len() as u32));
    assert!(segment.holds(0, all.len() as u32) && !segment.holds(0, all.len() as u32 + 1));
    assert_eq!(segment.reaches_back(9000, 4096), 4096);
    assert_eq!(segment.unwritten_from(), Some(0));
    segment.set_written(6000);
    assert_eq!(segment.unwritten_from(), Some(6000));
    segment.set_written(all.len() as u32);
    assert_eq!(segment.unwritten_from(), None);
}

#[test]
fn an_append_without_room_changes_nothing() {
    let place = place();
    let arena = create(&place, 1);
    let segment = arena.segment(arena.slot(&name(0)).unwrap(), 0);
    let mut rate = Rate::default();
    assert!(segment.append(&mut rate, 0, &bytes(0, 1000), 0));
    assert!(!segment.append(&mut rate, 1000, &bytes(1, 100_000), 0));
    assert_eq!(segment.end(), Some(1000));
    assert!(
        segment.append(&mut rate, 1000, &bytes(2, 10), 0),
        "small ones still fit"
    );
    assert_eq!(read(&segment, 0, 2000).len(), 1010);
    assert_eq!(arena.statistics().refused, 1);
}

#[test]
fn append_without_enough_blocks_leaves_them_to_others() {
    let place = place();
    let arena = create(&place, 3);
    let (large, small) = (arena.slot(&name(0)), arena.slot(&name(1)));
    let large = arena.segment(large.unwrap(), 0);
    assert!(!large.append(&mut Rate::default(), 0, &bytes(1, 4 << 20), 0));
    assert_eq!(arena.statistics().free_bytes, 3 * MIB);
    let small = arena.segment(small.unwrap(), 0);
    assert!(small.append(&mut Rate::default(), 0, &bytes(2, 2 << 20), 0));
    assert_eq!(read(&small, 0, 2 << 20), bytes(2, 2 << 20));
}

#[test]
fn slots_without_blocks_are_free_again_after_a_kill() {
    let place = place();
    let arena = create(&place, 4);
    let idle = arena.slot(&name(0)).unwrap();
    let used = arena.slot(&name(1)).unwrap();
    let segment = arena.segment(used, 0);
    assert!(segment.append(&mut Rate::default(), 0, &bytes(1, 100), 0));
    drop((segment, arena));
    let (arena, found) = Arena::attach(&place.path, IDENTITY, 8 * MIB).unwrap();
    assert_eq!(found.keys().collect::<Vec<_>>(), [&name(1)]);
    assert_eq!(arena.known_slot(&name(0)), None);
    assert_eq!(arena.known_slot(&name(1)), Some(used));
    let again = arena.slot(&name(2)).unwrap();
    assert_ne!(again, idle, "if it is the same, then of another generation");
}

#[test]
fn only_written_chunks_are_reclaimed_the_oldest_first() {
    let place = place();
    let arena = create(&place, 4);
    let slot = arena.slot(&name(0)).unwrap();
    let segment = arena.segment(slot, 0);
    let mut rate = Rate::default();
    let mut at = 0u32;
    while segment.append(&mut rate, at, &bytes(1, 50_000), i64::from(at)) {
        at += 50_000;
    }
    assert_eq!(
        read(&segment, 0, 1).len(),
        1,
        "nothing was written, nothing was reclaimed"
    );
    segment.set_written(at);
    assert!(segment.append(&mut rate, at, &bytes(2, 50_000), 1));
    assert_eq!(read(&segment, 0, 1).len(), 0, "the oldest is gone");
    assert_eq!(read(&segment, at, 50_000), bytes(2, 50_000));
}

#[test]
fn a_slice_stays_as_it_is_while_its_guard_lives() {
    let place = place();
    let arena = create(&place, 2);
    let segment = arena.segment(arena.slot(&name(0)).unwrap(), 0);
    let mut rate = Rate::default();
    let first = bytes(5, 4000);
    assert!(segment.append(&mut rate, 0, &first, 0));
    segment.set_written(4000);
    let guard = arena.enter();
    let slice = segment.slice(&guard, 0).unwrap();
    let other = arena.segment(arena.slot(&name(1)).unwrap(), 0);
    let mut rate = Rate::default();
    let mut at = 0;
    // Everything is carved, except the reader's chunk.
    while other.append(&mut rate, at, &bytes(6, 30_000), 0) {
        at += 30_000;
        other.set_written(at);
        assert!(at < 100 * MIB as u32);
        if at > 8 * MIB as u32 {
            break;
        }
    }
    assert_eq!(slice, first);
    drop(guard);
    assert_eq!(read(&segment, 0, 1).len(), 0);
}

#[test]
fn reattached_arena_has_its_former_content() {
    let place = place();
    let arena = create(&place, 8);
    let slot = arena.slot(&name(4)).unwrap();
    let (one, two) = (arena.segment(slot, 0), arena.segment(slot, 500));
    let mut rate = Rate::default();
    assert!(one.append(&mut rate, 0, &bytes(1, 9000), 0));
    one.set_written(5000);
    assert!(two.append(&mut rate, 0, &bytes(2, 100), 0));
    let gone = arena.slot(&name(5)).unwrap();
    let dead = arena.segment(gone, 0);
    assert!(dead.append(&mut rate, 0, &bytes(3, 100), 0));
    arena.release_slot(gone);
    drop((arena, one, two, dead));

    let (arena, mut found) = Arena::attach(&place.path, IDENTITY, 8 * MIB).unwrap();
    assert_eq!(found.len(), 1);
    let found = found.remove(&name(4)).unwrap();
    assert_eq!((found.slot, found.damage), (slot, None));
    assert_eq!(found.segments.keys().copied().collect::<Vec<_>>(), [0, 500]);
    assert_eq!(read(&found.segments[&0], 0, 10_000), bytes(1, 9000));
    assert_eq!(found.segments[&0].unwritten_from(), Some(5000));
    assert_eq!(read(&found.segments[&500], 0, 200), bytes(2, 100));
    let mut mapped = 0;
    while arena.map_again(&mut mapped, 1).unwrap() {}
    assert_eq!(mapped, arena.populated());
    let mut rate = Rate::default();
    assert!(found.segments[&500].append(&mut rate, 100, &bytes(4, 5000), 0));
    assert_eq!(arena.slot(&name(4)), Some(slot));
    assert_ne!(arena.slot(&name(6)), Some(slot));
}

#[test]
fn truncated_or_uncommitted_bytes_do_not_come_back() {
    let place = place();
    let arena = create(&place, 8);
    let slot = arena.slot(&name(0)).unwrap();
    let segment = arena.segment(slot, 0);
    let mut rate = Rate::default();
    assert!(segment.append(&mut rate, 0, &bytes(1, 20_000), 0));
    segment.cut(6000);
    assert_eq!(segment.end(), Some(6000));
    let other = arena.slot(&name(1)).unwrap();
    let killed = arena.segment(other, 0);
    assert!(killed.append(&mut rate, 0, &bytes(2, 20_000), 0));
    let fresh = arena.kill_blocks(other);
    assert!(!killed.append(&mut rate, 20_000, &[1], 0), "it is dead");
    let after = arena.segment(fresh, 0);
    assert!(after.append(&mut rate, 100, &bytes(3, 50), 0));
    drop((arena, segment, killed, after));

    let (_arena, found) = Arena::attach(&place.path, IDENTITY, 8 * MIB).unwrap();
    assert_eq!(
        read(&found[&name(0)].segments[&0], 0, 9000),
        bytes(1, 20_000)[..6000]
    );
    assert_eq!(read(&found[&name(1)].segments[&0], 0, 9000), []);
    assert_eq!(read(&found[&name(1)].segments[&0], 100, 9000), bytes(3, 50));
}

#[test]
fn slice_does_not_change_when_its_bytes_are_truncated_and_rewritten() {
    let place = place();
    let arena = create(&place, 8);
    let segment = arena.segment(arena.slot(&name(0)).unwrap(), 0);
    let mut rate = Rate::default();
    assert!(segment.append(&mut rate, 0, &bytes(1, 2000), 0));
    let guard = arena.enter();
    let lent = segment.slice(&guard, 500).unwrap();
    let before = lent.to_vec();
    segment.cut(1000);
    assert!(segment.append(&mut rate, 1000, &bytes(2, 3000), 0));
    assert!(lent == before, "what was lent has changed");
    drop(guard);
    assert_eq!(read(&segment, 0, 1000), bytes(1, 2000)[..1000]);
    assert_eq!(read(&segment, 1000, 3000), bytes(2, 3000));
}

#[test]
fn arena_file_is_readable_by_its_owner_only() {
    use std::os::unix::fs::PermissionsExt;
    let place = place();
    let _arena = create(&place, 1);
    let mode = std::fs::metadata(&place.path).unwrap().permissions().mode();
    assert_eq!(mode & 0o777, 0o600);
}

#[test]
fn a_kill_while_blocks_are_marked_written_leaves_no_gap() {
    for stores in 0..5 {
        let place = place();
        let arena = create(&place, 2);
        let segment = arena.segment(arena.slot(&name(0)).unwrap(), 0);
        let mut rate = Rate::default();
        let mut end = 0;
        for i in 0..4 {
            // So slowly that each block is a small one.
            assert!(segment.append(&mut rate, end, &bytes(i, 4000), i as i64 * 60_000));
            end += 4000;
        }
        arena.fuse().burn_after(stores);
        segment.set_written(end);
        arena.let_go();
        let (_arena, found) = Arena::attach(&place.path, IDENTITY, 2 * MIB).unwrap();
        let segment = &found[&name(0)].segments[&0];
        let from = segment.unwritten_from().unwrap_or(end);
        assert_eq!(segment.unwritten_bytes(), u64::from(end - from), "{stores}");
        assert_eq!(from == end, stores >= 4);
    }
}

#[test]
fn a_foreign_a_short_and_a_used_arena_are_refused() {
    let place = place();
    let arena = create(&place, 2);
    let refused = |identity| match Arena::attach(&place.path, identity, MIB) {
        Ok(_) => panic!("it was reattached"),
        Err(error) => error,
    };
    assert!(matches!(refused(IDENTITY), ArenaError::Locked(_)));
    drop(arena);
    let other_boot = Identity {
        boot: [1; 16],
        ..IDENTITY
    };
    assert!(matches!(refused(other_boot), ArenaError::Foreign(_)));
    let file = std::fs::OpenOptions::new()
        .write(true)
        .open(&place.path)
        .unwrap();
    file.set_len(file.metadata().unwrap().len() - 1).unwrap();
    assert!(matches!(refused(IDENTITY), ArenaError::Foreign(_)));
    let again = Arena::create(&place.path, IDENTITY, "", MIB);
    assert!(
        matches!(again, Err(ArenaError::Io(_))),
        "nothing is overwritten"
    );
}

#[test]
fn every_flipped_bit_of_a_block_header_is_seen() {
    let place = place();
    let arena = create(&place, 1);
    let slot = arena.slot(&name(0)).unwrap();
    let segment = arena.segment(slot, 0);
    assert!(segment.append(&mut Rate::default(), 0, &bytes(1, 100), 0));
    segment.set_written(50);
    drop((segment, arena));
    let good = std::fs::read(&place.path).unwrap();
    let chunk = good.len() - MIB as usize;
    let descriptor = chunk + 64;
    let slot_at = 4096;
    // State, slot, generation and so on to `written`; the slot's name, index and checksum.
    let fields = (descriptor + 4..descriptor + 28)
        .chain(descriptor + 32..descriptor + 48)
        .chain(slot_at + 8..slot_at + 38)
        .chain(slot_at + 284..slot_at + 288);
    for at in fields {
        for bit in 0..8 {
            let mut bad = good.clone();
            bad[at] ^= 1 << bit;
            std::fs::write(&place.path, &bad).unwrap();
            let seen = match Arena::attach(&place.path, IDENTITY, MIB) {
                Err(ArenaError::Foreign(_)) => true,
                Err(error) => panic!("{error}"),
                Ok((_arena, found)) => found
                    .get(&name(0))
                    .is_some_and(|found| found.damage.is_some()),
            };
            assert!(seen, "byte {at}, bit {bit}");
        }
    }
}

#[test]
fn the_janitor_keeps_chunks_ready_and_stays_below_the_limit() {
    let place = place();
    let arena = Arena::create(&place.path, IDENTITY, "", 64 * MIB).unwrap();
    let mut janitor = Janitor::default();
    let tended = janitor.tend(&arena, 0, Room::UNLIMITED);
    assert!(tended.grown > 0 && arena.statistics().free_bytes >= 16 * MIB);
    let segment = arena.segment(arena.slot(&name(0)).unwrap(), 0);
    let mut rate = Rate::default();
    let mut at = 0;
    for round in 0..300 {
        for _ in 0..10 {
            assert!(
                segment.append(&mut rate, at, &bytes(1, 100_000), round),
                "round {round}"
            );
            at += 100_000;
        }
        segment.set_written(at);
        janitor.tend(&arena, round, Room::UNLIMITED);
    }
    let statistics = arena.statistics();
    assert_eq!(statistics.populated_bytes, 64 * MIB);
    assert!(statistics.reclaimed > 200);
    assert_eq!(statistics.refused, 0);
    assert!(
        read(&segment, at - 30_000_000, 1).len() == 1,
        "the newest are held"
    );
}

#[test]
fn without_room_nothing_is_populated() {
    let place = place();
    let arena = Arena::create(&place.path, IDENTITY, "", 640 * MIB).unwrap();
    let mut janitor = Janitor::default();
    let tended = janitor.tend(&arena, 0, Room::default());
    assert!(tended.grown == 0 && arena.populated() == 0);
    let segment = arena.segment(arena.slot(&name(0)).unwrap(), 0);
    assert!(!segment.append(&mut Rate::default(), 0, &[1], 0));
}

#[derive(Clone, Debug)]
enum Step {
    Append(usize, usize),
    Write(usize),
    Reclaim,
    Kill(usize),
    Roll(usize),
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        6 => (0..3usize, 1..9000usize).prop_map(|(who, len)| Step::Append(who, len)),
        2 => (0..3usize).prop_map(Step::Write),
        1 => Just(Step::Reclaim),
        1 => (0..3usize).prop_map(Step::Kill),
        1 => (0..3usize).prop_map(Step::Roll),
    ]
}

struct Model {
    slot: Slot,
    base_offset: i64,
    segment: Arc<CachedSegment>,
    /// A log keeps them until they are written.
    rolled: Vec<Arc<CachedSegment>>,
    rate: Rate,
    content: BTreeMap<i64, Vec<u8>>,
    /// By segment: (written for sure, committed for sure).
    sure: BTreeMap<i64, (usize, usize)>,
}

fn fresh(arena: &Arc<Arena>) -> Vec<Model> {
    (0..3)
        .map(|partition| {
            let slot = arena.slot(&name(partition)).unwrap();
            Model {
                slot,
                base_offset: 0,
                segment: arena.segment(slot, 0),
                rolled: Vec::new(),
                rate: Rate::default(),
                content: BTreeMap::new(),
                sure: BTreeMap::new(),
            }
        })
        .collect()
}

fn play(arena: &Arc<Arena>, steps: &[Step]) -> Vec<Model> {
    let mut models = fresh(arena);
    for (i, step) in steps.iter().enumerate() {
        let is_alive = || arena.fuse().left() > 0;
        if !is_alive() {
            break;
        }
        match step {
            Step::Append(who, len) => {
                let model = &mut models[*who];
                let all = model.content.entry(model.base_offset).or_default();
                let batch = bytes(i, *len);
                let at = all.len() as u32;
                let (rate, now_ms) = (&mut model.rate, i as i64 * 100);
                // 0 leads, 2 follows, 1 mixes both.
                rate.is_transient = who + i % 2 > 1;
                if model.segment.append(rate, at, &batch, now_ms) {
                    all.extend(batch);
                    if is_alive() {
                        model.sure.entry(model.base_offset).or_default().1 = all.len();
                    }
                }
            }
            Step::Write(who) => {
                let model = &mut models[*who];
                let Some(all) = model.content.get(&model.base_offset) else {
                    continue;
                };
                if is_alive() {
                    // The write to the file comes first; then the arena is told.
                    model.sure.entry(model.base_offset).or_default().0 = all.len();
                }
                model.segment.set_written(all.len() as u32);
            }
            Step::Reclaim => {
                Janitor::default().tend(arena, i64::MAX, Room::default());
            }
            Step::Kill(who) => {
                let model = &mut models[*who];
                if is_alive() {
                    // Everything was written, and the files are about to be cut to nothing.
                    model.sure.clear();
                }
                model.content.clear();
                model.slot = arena.kill_blocks(model.slot);
                model.base_offset = 0;
                model.segment = arena.segment(model.slot, 0);
            }
            Step::Roll(who) => {
                let model = &mut models[*who];
                model.base_offset += 1;
                let next = arena.segment(model.slot, model.base_offset);
                model
                    .rolled
                    .push(std::mem::replace(&mut model.segment, next));
            }
        }
    }
    models
}

/// Whatever was committed before the kill is there, unless it was written, and equals what was
/// appended.
fn check(place: &Place, models: &[Model]) {
    let (_arena, found) = Arena::attach(&place.path, IDENTITY, 4 * MIB).unwrap();
    for (partition, model) in models.iter().enumerate() {
        let found = found.get(&name(partition as i32));
        if let Some(found) = found {
            assert_eq!(found.damage, None);
            for (base_offset, segment) in &found.segments {
                let Some(content) = model.content.get(base_offset) else {
                    continue;
                };
                for at in (0..content.len()).step_by(997) {
                    let held = read(segment, at as u32, 1000);
                    let end = (at + held.len()).min(content.len());
                    assert_eq!(held[..end - at], content[at..end]);
                }
            }
        }
        for (base_offset, (written, committed)) in &model.sure {
            for at in (*written..*committed).step_by(499) {
                let segment = found.and_then(|found| found.segments.get(base_offset));
                let held = segment.map(|segment| read(segment, at as u32, 1));
                let expected = vec![model.content[base_offset][at]];
                assert_eq!(held, Some(expected), "byte {at} of segment {base_offset}");
            }
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(100))]

    #[test]
    fn a_kill_at_any_store_loses_nothing_that_was_committed(
        steps in proptest::collection::vec(step(), 1..60),
        stores in 0..4000i64,
    ) {
        let place = place();
        let arena = create(&place, 4);
        for partition in 0..3 {
            arena.slot(&name(partition)).unwrap();
        }
        arena.fuse().burn_after(stores);
        let models = without_arena(play(&arena, &steps));
        drop(arena);
        check(&place, &models);
    }
}

/// The models without what keeps the arena's file locked.
fn without_arena(models: Vec<Model>) -> Vec<Model> {
    let spare = Arena::anonymous(MIB).unwrap();
    spare.grow(1).unwrap();
    let slot = spare.slot(&name(0)).unwrap();
    models
        .into_iter()
        .map(|model| Model {
            segment: spare.segment(slot, 0),
            rolled: Vec::new(),
            ..model
        })
        .collect()
}
