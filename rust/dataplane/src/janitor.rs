//! One thread a log directory keeps free chunks of its block cache ready, so that no append waits for
//! memory, and watches that the arena is still there.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use pyrklog_arena::limits::memory_limits;
use pyrklog_arena::{Arena, Janitor};

use crate::block_cache;
use crate::clock::Now;
use crate::log_dir::LogDirState;
use crate::shared::Shared;

/// Between two looks while something is appended.
const BUSY_MS: u64 = 20;

/// Between two looks otherwise: is the file still there?
const IDLE_MS: u64 = 250;

/// Of an arena that was taken up again, chunks that are mapped at a time: a start has better things to
/// do.
const MAPPED_AT_A_TIME: u32 = 8;

/// Memory that is left to others.
const RESERVE_SHARE: u64 = 16;

/// The janitor thread of one directory.
#[derive(Debug)]
pub struct CacheKeeper {
    shared: Arc<Shared>,
    dir: Arc<LogDirState>,
    arena: Arc<Arena>,
    stop: Arc<AtomicBool>,
    janitor: Janitor,
    has_told_of_room: bool,
    /// Chunks that are mapped; `None` once all are.
    mapped: Option<u32>,
    loss: Loss,
}

/// What is known of an arena's file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Loss {
    /// It is there.
    No,
    /// It was removed. What it held is being written.
    Told,
    /// All of that was written at the last look.
    Written,
    /// The directory names no arena any more.
    Settled,
}

impl CacheKeeper {
    /// For one directory; `None` where it has no cache.
    pub fn new(
        shared: Arc<Shared>,
        dir: Arc<LogDirState>,
        stop: Arc<AtomicBool>,
    ) -> Option<CacheKeeper> {
        let arena = block_cache::arena_of(&dir.files)?;
        Some(CacheKeeper {
            shared,
            dir,
            arena,
            stop,
            janitor: Janitor::default(),
            has_told_of_room: false,
            mapped: Some(0),
            loss: Loss::No,
        })
    }

    /// The arena, to ring.
    pub fn arena(&self) -> &Arc<Arena> {
        &self.arena
    }

    /// Runs until told to stop.
    pub fn run(mut self) {
        let mut wait_ms = BUSY_MS;
        while !self.stop.load(Ordering::Acquire) {
            let is_asked = self.arena.wait(Some(Duration::from_millis(wait_ms)));
            if self.stop.load(Ordering::Acquire) {
                return;
            }
            self.watch();
            let is_tending = self.tend(is_asked);
            let is_mapping = self.map_some();
            wait_ms = if is_tending || is_mapping {
                BUSY_MS
            } else {
                IDLE_MS
            };
        }
    }

    /// True while there is more. What others left behind can wait for the end of that, too.
    fn map_some(&mut self) -> bool {
        let Some(mapped) = &mut self.mapped else {
            return false;
        };
        match self.arena.map_again(mapped, MAPPED_AT_A_TIME) {
            Ok(true) => return true,
            Ok(false) => {}
            Err(error) => self.tell("warning", format!("mapping the arena: {error}")),
        }
        self.mapped = None;
        if let Some(dir) = &self.shared.config.cache.dir
            && let Err(error) = block_cache::sweep(dir)
        {
            self.tell("warning", format!("looking for abandoned arenas: {error}"));
        }
        false
    }

    /// True while something is going on. Until somebody asks, nothing is made ready.
    fn tend(&mut self, is_asked: bool) -> bool {
        let is_used = self.arena.statistics().appended_bytes > 0;
        if !self.arena.is_open() || !(is_asked || is_used) {
            return false;
        }
        let now_ms = Now::read().mono_ms;
        let room_bytes = || {
            let limits = memory_limits();
            let reserve = limits.limit_bytes / RESERVE_SHARE;
            limits.available_bytes.saturating_sub(reserve)
        };
        let tended = self.janitor.tend(&self.arena, now_ms, room_bytes);
        if let Some(error) = tended.refused
            && !self.has_told_of_room
        {
            self.has_told_of_room = true;
            let reason = format!("the block cache cannot grow: {error}; it goes on as it is");
            self.tell("warning", reason);
        }
        tended.is_busy || tended.grown > 0 || tended.reclaimed > 0
    }

    fn watch(&mut self) {
        match self.loss {
            Loss::No if self.arena.is_open() && !self.arena.is_linked() => {
                self.arena.close();
                let path = self.arena.path().display();
                self.tell(
                    "error",
                    format!("{path} was removed or cut: from now on records are written before they are acknowledged"),
                );
                self.dir.writer.hurry();
                self.loss = Loss::Told;
            }
            // Twice, since an append that began before may still be about to be counted.
            Loss::Told if self.dir.unwritten_bytes() == 0 => self.loss = Loss::Written,
            Loss::Written if self.dir.unwritten_bytes() == 0 => {
                // A kill from now on loses nothing, and should not say so at the next start.
                if let Err(error) = self.dir.files.remove_arena_marker() {
                    self.tell("warning", format!("removing its marker: {error}"));
                }
                self.loss = Loss::Settled;
            }
            Loss::Written => self.loss = Loss::Told,
            Loss::No | Loss::Told | Loss::Settled => {}
        }
    }

    fn tell(&self, level: &'static str, reason: String) {
        let fields = vec![
            ("log_dir", self.dir.path().display().to_string()),
            ("reason", reason),
        ];
        self.shared.events.notice("block_cache", level, fields);
    }
}
