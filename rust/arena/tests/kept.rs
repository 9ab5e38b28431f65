//! The mark of an orderly end, under a kill at any store.

use std::fs::File;

use pyrklog_arena::{Arena, Identity, PartitionName, Rate, read_header};

const ID: Identity = Identity {
    uuid: [7; 16],
    boot: [9; 16],
};

fn name(partition: i32) -> PartitionName {
    PartitionName {
        topic: "t".to_owned(),
        partition,
        topic_id: [0; 16],
    }
}

#[test]
fn a_kill_at_any_store_of_the_mark_leaves_an_arena_with_all_hashes_or_without_the_mark() {
    for steps in 0.. {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("one.arena");
        let arena = Arena::create(&path, ID, "/logs", 64 << 20).unwrap();
        arena.grow(4).unwrap();
        for partition in 0..3 {
            let slot = arena.slot(&name(partition)).unwrap();
            let segment = arena.segment(slot, 0);
            assert!(segment.append(&mut Rate::default(), 0, b"bytes", 0));
            segment.set_written(5);
            std::mem::forget(segment);
        }
        arena.fuse().burn_after(steps);
        arena.mark_left(77, |name| 100 + name.partition as u64);
        let is_over = arena.fuse().left() >= 0;
        arena.let_go();
        let header = read_header(&File::open(&path).unwrap()).unwrap();
        assert!(header.is_kept || !is_over);
        assert!(header.is_of("/logs") && !header.is_of("/log"));
        if header.is_kept {
            let glance = Arena::peek(&path, ID).unwrap();
            assert_eq!((glance.held_bytes, glance.unwritten_bytes), (15, 0));
            drop(glance);
            let (again, found) = Arena::attach_kept(&path, ID, 128 << 20).unwrap();
            assert_eq!((found.len(), again.limit()), (3, 128));
            for (name, slot) in again.partitions() {
                assert_eq!(again.files_hash(slot), Some(100 + name.partition as u64));
            }
            let header = read_header(&File::open(&path).unwrap()).unwrap();
            assert!(!header.is_kept, "it is in use");
        } else {
            assert!(Arena::attach_kept(&path, ID, 64 << 20).is_err());
            assert_eq!(Arena::attach(&path, ID, 64 << 20).unwrap().1.len(), 3);
        }
        if is_over {
            assert!(steps >= 4, "{steps}");
            return;
        }
    }
}
