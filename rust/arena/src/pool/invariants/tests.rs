//! A pool that breaks an invariant is found out, and its arena fails.

use std::sync::{Arc, Weak};

use crate::arena::Arena;
use crate::layout::CHUNK_BYTES;
use crate::pool::{Carved, Occupant, Open, Pool, Want};
use crate::segment::Rate;
use crate::slots::PartitionName;

#[derive(Debug)]
struct Nobody;

impl Occupant for Nobody {
    fn needs(&self, _: u32, _: bool) -> bool {
        false
    }

    fn release(&self, _: u32, _: bool) -> bool {
        true
    }
}

fn arena() -> Arc<Arena> {
    let arena = Arena::anonymous(6 * CHUNK_BYTES as u64).unwrap();
    arena.grow(6).unwrap();
    arena
}

fn name(partition: i32) -> PartitionName {
    PartitionName {
        topic: "t".to_owned(),
        partition,
        topic_id: [0; 16],
    }
}

/// Chunk 5 is carved, 4 is transient, 3 retired; 0, 1 and 2 are free.
fn pool(arena: &Arc<Arena>, pool: &mut Pool) {
    let slot = arena.slot(&name(0)).unwrap();
    let tenant: Weak<dyn Occupant> = Weak::<Nobody>::new();
    let mut carve = |transient_max| -> Carved {
        let want = Want {
            class: 0,
            tenant: &tenant,
            slot,
            transient_max,
        };
        pool.carve(&arena.memory, want).unwrap()
    };
    assert_eq!((carve(None).chunk, carve(Some(2)).chunk), (5, 4));
    pool.open[0] = None;
    assert_eq!(pool.check_chunks(), Ok(()));
    let retired = pool.free.pop_back().unwrap();
    pool.retired.push_back((1, retired));
    assert_eq!(pool.check(), Ok(()));
}

/// The message about a pool with this damage.
fn broken(damage: impl FnOnce(&mut Pool)) -> String {
    let arena = arena();
    let told = arena.with_pool(|inner| {
        pool(&arena, inner);
        damage(inner);
        inner.check().unwrap_err()
    });
    assert_eq!(told, None, "it is not used any more");
    assert!(!arena.is_open());
    let failure = arena.take_failure();
    assert_eq!(arena.take_failure(), None, "told once");
    failure.unwrap()
}

#[test]
fn lost_and_doubled_chunks_are_found() {
    let told = broken(|pool| {
        pool.free.pop_front();
    });
    let counts = "of 6 chunks 2 are free, 1 carved, 1 transient, 1 retired and 0 on their way";
    assert_eq!(told, counts);
    let told = broken(|pool| pool.free[0] = 5);
    assert_eq!(told, "chunk 5 is in 2 places");
    let told = broken(|pool| pool.free[0] = 4);
    assert_eq!(told, "chunk 4 is in 2 places");
    let told = broken(|pool| pool.free[0] = 9);
    assert_eq!(told, "chunk 9 is not known");
}

#[test]
fn wrongly_typed_chunks_are_found() {
    let told = broken(|pool| pool.tenants[4].transient_blocks = 0);
    assert_eq!(told, "0 chunks are transient, 1 are counted");
    let told = broken(|pool| pool.tenants[5].order = None);
    assert_eq!(told, "chunk 5 is number 1 of 2, and None to itself");
    let told = broken(|pool| pool.sequence = 0);
    assert_eq!(told, "chunk 5 is number 1 of 0, and Some(1) to itself");
    let told = broken(|pool| pool.tenants[5].is_listed = true);
    assert_eq!(told, "chunk 5 is sparse, but not listed");
    for (chunk, next, class) in [(3, 1, 0), (5, 0, 0), (5, 252, 0), (5, 1, 1)] {
        let told = broken(|pool| pool.open[class] = Some(Open { chunk, next }));
        assert!(told.ends_with("cannot be carved"), "{told}");
    }
    let open = Some(Open { chunk: 5, next: 1 });
    let told = broken(|pool| pool.transient_open[0] = open);
    assert!(told.ends_with("cannot be carved"), "{told}");
}

#[test]
fn lost_and_doubled_slots_are_found() {
    let told = |damage: &dyn Fn(&Arena)| {
        let arena = arena();
        arena.slot(&name(0)).unwrap();
        damage(&arena);
        arena.check_all();
        arena.take_failure().unwrap()
    };
    let lost = told(&|arena| arena.slots.lock().lose());
    assert_eq!(lost, "of 1024 slots 1 are in use and 1022 free");
    let twice = told(&|arena| arena.slots.lock().give_twice());
    assert_eq!(twice, "slot 0 has several owners");
}

/// Its content can be read and marked written; nothing is carved or given back.
#[test]
fn broken_arena_keeps_its_bytes_and_takes_no_more() {
    let arena = arena();
    let segment = arena.segment(arena.slot(&name(0)).unwrap(), 0);
    let mut rate = Rate::default();
    assert!(segment.append(&mut rate, 0, b"held", 0));
    arena.with_pool(|pool| pool.free.pop_front());
    assert!(!segment.append(&mut rate, 4, b"more", 0));
    let other = arena.segment(arena.slot(&name(1)).unwrap(), 0);
    assert!(!other.append(&mut rate, 0, b"more", 0));
    segment.set_written(4);
    assert_eq!(arena.give_back(9).unwrap(), 0);
    assert!(!arena.reclaim(true));
    assert_eq!(segment.slice(&arena.enter(), 0), Some(&b"held"[..]));
}
