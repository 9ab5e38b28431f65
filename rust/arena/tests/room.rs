//! The decision on the cache's share of the machine's memory, as a table, and against others who
//! take memory.
#![allow(missing_docs)]

use pyrklog_arena::limits::{MemoryLimits, MemoryReading};
use pyrklog_arena::room::{Room, Watch, reserve_bytes};

const MIB: u64 = 1 << 20;
const GIB: u64 = 1 << 30;

fn reading(limit_bytes: u64, available_bytes: u64) -> MemoryReading {
    MemoryReading {
        limits: MemoryLimits {
            limit_bytes,
            available_bytes,
        },
        stalled_us: Some(0),
    }
}

#[test]
fn the_reserve_goes_by_the_size_of_the_machine() {
    let table = [
        (24 * GIB, 2 * GIB),
        (16 * GIB, 2 * GIB),
        (8 * GIB, GIB),
        (2560 * MIB, 320 * MIB),
        (512 * MIB, 64 * MIB),
        (128 * MIB, 32 * MIB),
        (0, 0),
    ];
    for (limit, reserve) in table {
        assert_eq!(reserve_bytes(limit), reserve, "{limit}");
    }
}

#[test]
fn available_memory_decides_on_growth_and_release() {
    // (available, may grow by, is to give back), of 24 GiB, so with a reserve of 2.
    let table = [
        (18 * GIB, 16 * GIB, 0),
        (4 * GIB + 8, 2 * GIB + 8, 0),
        (3 * GIB, GIB / 8, 0),
        (2 * GIB, 0, 0),
        (1536 * MIB, 0, 0),
        (1535 * MIB, 0, 513 * MIB / 2),
        (1024 * MIB, 0, 512 * MIB),
        (1023 * MIB, 0, 1025 * MIB),
        (0, 0, 2 * GIB),
    ];
    for (available, grow_bytes, give_back_bytes) in table {
        let room = Watch::default().update(reading(24 * GIB, available), 5);
        let found = (room.grow_bytes, room.give_back_bytes);
        assert_eq!(found, (grow_bytes, give_back_bytes), "{available}");
    }
}

#[test]
fn pressure_counts_only_where_little_is_available() {
    let pressed = |available| {
        let mut watch = Watch::default();
        watch.update(reading(24 * GIB, available), 0);
        let next = MemoryReading {
            stalled_us: Some(10_000),
            ..reading(24 * GIB, available)
        };
        watch.update(next, 100).give_back_bytes
    };
    assert_eq!(pressed(10 * GIB), 0);
    assert_eq!(pressed(2 * GIB), 0);
    assert_eq!(pressed(1800 * MIB), 124 * MIB);
    let mut watch = Watch::default();
    watch.update(reading(24 * GIB, 1800 * MIB), 0);
    let next = MemoryReading {
        stalled_us: Some(9_999),
        ..reading(24 * GIB, 1800 * MIB)
    };
    assert_eq!(watch.update(next, 100).give_back_bytes, 0);
}

#[test]
fn after_something_was_given_back_it_is_calm_for_a_while() {
    let mut watch = Watch::default();
    assert!(watch.update(reading(24 * GIB, GIB), 1000).give_back_bytes > 0);
    assert_eq!(watch.update(reading(24 * GIB, 3 * GIB), 1020).grow_bytes, 0);
    assert_eq!(watch.update(reading(24 * GIB, 3 * GIB), 2999).grow_bytes, 0);
    let later = watch.update(reading(24 * GIB, 3 * GIB), 3000);
    assert_eq!(later.grow_bytes, GIB / 8);
    let much = watch.update(reading(24 * GIB, 10 * GIB), 1020);
    assert_eq!(
        much.grow_bytes,
        8 * GIB,
        "where there is much it need not wait"
    );
}

#[test]
fn less_available_memory_means_a_shorter_interval() {
    let look = |limit, available| {
        Watch::default()
            .update(reading(limit, available), 0)
            .look_again_ms
    };
    assert_eq!(look(24 * GIB, 18 * GIB), 250);
    assert_eq!(look(24 * GIB, 1700 * MIB), 20);
    assert_eq!(look(512 * MIB, 300 * MIB), 30);
    let mut watch = Watch::default();
    watch.update(reading(24 * GIB, 14 * GIB), 0);
    // 8 GiB/s: half of what is above the bound goes in 0.7 s.
    let room = watch.update(reading(24 * GIB, 12 * GIB), 250);
    assert_eq!(room.look_again_ms, 250);
    let room = watch.update(reading(24 * GIB, 4 * GIB), 500);
    assert_eq!(room.look_again_ms, 20, "32 GiB/s");
}

#[test]
fn caches_of_several_directories_share() {
    let room = Room {
        grow_bytes: 100,
        give_back_bytes: 101,
        look_again_ms: 20,
    };
    let part = room.shared(2);
    assert_eq!((part.grow_bytes, part.give_back_bytes), (50, 51));
}

/// A machine: what others take, and a cache that obeys, as fast as memory can be had and given
/// back. Returns the least that was ever available, and the cache's size at the end of each second.
fn live(total: u64, cached: u64, others: impl Fn(u64) -> u64, seconds: u64) -> (u64, Vec<u64>) {
    let (mut cached, mut watch) = (cached, Watch::default());
    let (mut next_ms, mut least, mut sizes) = (0, u64::MAX, Vec::new());
    for ms in 0..seconds * 1000 {
        let available = total.saturating_sub(others(ms) + cached);
        least = least.min(available);
        if ms >= next_ms {
            let room = watch.update(reading(total, available), ms as i64);
            let wait_ms = match room.give_back_bytes {
                0 => room.look_again_ms,
                // Punching 3 GB/s, in steps of at most 64 MiB.
                bytes => {
                    let step = bytes.min(64 * MIB).min(cached);
                    cached -= step;
                    (step / (3 << 20)).max(1)
                }
            };
            // Produced at 500 MB/s all the time, up to a cap.
            let grown = (wait_ms * 500_000).min(room.grow_bytes);
            cached = (cached + grown).min(total * 6 / 10);
            next_ms = ms + wait_ms;
        }
        if ms % 1000 == 999 {
            sizes.push(cached);
        }
    }
    (least, sizes)
}

#[test]
fn a_neighbour_that_takes_half_of_the_machine_is_served_in_time() {
    let total = 24 * GIB;
    let neighbour = |ms: u64| GIB + (12 * GIB * ms / 5000).min(12 * GIB);
    let (least, sizes) = live(total, 10 * GIB, neighbour, 30);
    assert!(least > 512 * MIB, "{least}");
    let (end, before) = (sizes[29], sizes[20]);
    assert!(
        end.abs_diff(before) < 256 * MIB,
        "it does not swing: {sizes:?}"
    );
    assert!(end > 8 * GIB, "and keeps what others leave: {sizes:?}");
}

#[test]
fn small_machine_serves_a_neighbour_and_grows_again() {
    let total = 512 * MIB;
    let neighbour = |ms: u64| match ms {
        0..5000 => 100 * MIB,
        5000..15000 => 100 * MIB + (200 * MIB).min((ms - 5000) * MIB / 2),
        _ => 100 * MIB,
    };
    let (least, sizes) = live(total, 100 * MIB, neighbour, 30);
    assert!(least > 16 * MIB, "{least}");
    assert!(sizes[10] < 170 * MIB && sizes[29] > 250 * MIB, "{sizes:?}");
}
