//! A log's directory with a block cache.

use std::path::PathBuf;
use std::sync::Arc;

use pyrklog_arena::room::Room;
use pyrklog_arena::{Arena, Found, Fuse, Identity, Janitor};
use pyrklog_log::LogEnv;

const LIMIT_BYTES: u64 = 2 << 20;

const IDENTITY: Identity = Identity {
    uuid: [5; 16],
    boot: [6; 16],
};

/// The arena of a test, across runs.
pub struct CacheRig {
    dir: tempfile::TempDir,
    made: usize,
    arena: Option<Arc<Arena>>,
    /// Remaining steps of the arena and its disk.
    pub fuse: Fuse,
}

/// The arena at a run's start.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Life {
    /// After a reboot or an orderly shutdown.
    Fresh,
    /// After a kill.
    Again,
}

impl CacheRig {
    pub fn new() -> CacheRig {
        CacheRig {
            dir: tempfile::tempdir().unwrap(),
            made: 0,
            arena: None,
            fuse: Fuse::default(),
        }
    }

    fn path(&self) -> PathBuf {
        self.dir.path().join(format!("{}.arena", self.made))
    }

    /// Gives the directory of a new run its cache.
    pub fn give(&mut self, env: &LogEnv, life: Life) {
        if let Some(arena) = self.arena.take() {
            arena.let_go();
        }
        let is_again = life == Life::Again;
        let (arena, found) = if is_again {
            Arena::attach(&self.path(), IDENTITY, LIMIT_BYTES).unwrap()
        } else {
            if self.made > 0 {
                std::fs::remove_file(self.path()).unwrap();
            }
            self.made += 1;
            let arena = Arena::create(&self.path(), IDENTITY, "", LIMIT_BYTES).unwrap();
            // Some begin without memory, until the janitor's turn.
            if self.made % 3 != 1 {
                arena.grow(1).unwrap();
            }
            (arena, Found::new())
        };
        arena.follow(&self.fuse);
        self.arena = Some(Arc::clone(&arena));
        env.set_cache(arena, is_again, found);
        // The minimum, since tests write little.
        env.set_direct_min_bytes(1);
    }

    /// Ends the run; returns what the next one finds.
    pub fn found(&mut self) -> Found {
        self.arena.take().unwrap().let_go();
        let (arena, found) = Arena::attach(&self.path(), IDENTITY, LIMIT_BYTES).unwrap();
        self.arena = Some(arena);
        found
    }

    /// The janitor's turn.
    pub fn tend(&self) {
        if let Some(arena) = &self.arena {
            Janitor::default().tend(arena, i64::MAX, Room::UNLIMITED);
        }
    }

    pub fn arena(&self) -> &Arc<Arena> {
        self.arena.as_ref().unwrap()
    }
}
