//! A place for an arena, and bytes for it.

use std::path::PathBuf;
use std::sync::Arc;

use pyrklog_arena::{Arena, CachedSegment, Identity, PartitionName};

pub const MIB: u64 = 1 << 20;

pub const IDENTITY: Identity = Identity {
    uuid: [7; 16],
    boot: [9; 16],
};

pub fn name(partition: i32) -> PartitionName {
    PartitionName {
        topic: "orders".into(),
        partition,
        topic_id: [3; 16],
    }
}

pub struct Place {
    _dir: tempfile::TempDir,
    pub path: PathBuf,
}

pub fn place() -> Place {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("test.arena");
    Place { _dir: dir, path }
}

pub fn create(place: &Place, chunks: u64) -> Arc<Arena> {
    let arena = Arena::create(&place.path, IDENTITY, "/data/logs", chunks * MIB).unwrap();
    arena.grow(chunks as u32).unwrap();
    arena
}

pub fn bytes(seed: usize, len: usize) -> Vec<u8> {
    (0..len)
        .map(|i| (i * 31 + seed * 7 + i / 251) as u8)
        .collect()
}

pub fn read(segment: &CachedSegment, from: u32, len: usize) -> Vec<u8> {
    let mut buffer = vec![0; len];
    let count = segment.copy(from, &mut buffer);
    buffer.truncate(count);
    buffer
}
