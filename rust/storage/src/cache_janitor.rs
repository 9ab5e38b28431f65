//! One thread per log directory keeps free chunks of the block cache ready, so that no append waits
//! for memory. It also gives memory back under pressure and detects a removed arena.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use pyrklog_arena::limits::MemoryMeter;
use pyrklog_arena::room::{Room, Watch};
use pyrklog_arena::{Arena, Janitor, Tended};

use crate::kept_arena;
use crate::log_dir_state::LogDirState;
use crate::log_manager::LogManager;
use pyrklog_base::clock::Now;

/// Pause between two looks while records are appended.
const BUSY_MS: u64 = 20;

/// Minimum age of a memory reading: looks follow each other fast when free chunks run low.
const LOOK_LEAST_MS: i64 = 10;

/// Pause between two looks while idle; detects a removed arena file.
const IDLE_MS: u64 = 250;

/// Chunks of a reattached arena mapped per look: the start must stay fast.
const MAPPED_AT_A_TIME: u32 = 1;

const SWEEP_MS: i64 = 600_000;

/// The janitor thread of one directory.
#[derive(Debug)]
pub struct CacheJanitorThread {
    logs: Arc<LogManager>,
    dir: Arc<LogDirState>,
    arena: Arc<Arena>,
    stop: Arc<AtomicBool>,
    janitor: Janitor,
    meter: MemoryMeter,
    watch: Watch,
    /// The last reading of the machine's memory: (monotonic milliseconds, result).
    looked: Option<(i64, Room)>,
    has_told_of_room: bool,
    /// Mapped chunks of a reattached arena; `None` once all are.
    mapped: Option<u32>,
    swept_ms: Option<i64>,
    loss: Loss,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Loss {
    No,
    /// Removed; its contents are being written.
    Told,
    /// Everything was written at the last look.
    Written,
    /// The directory no longer names an arena.
    Settled,
}

impl CacheJanitorThread {
    /// For one directory; `None` where it has no cache.
    pub fn new(
        logs: Arc<LogManager>,
        dir: Arc<LogDirState>,
        stop: Arc<AtomicBool>,
    ) -> Option<CacheJanitorThread> {
        let arena = dir.env().arena()?;
        let is_reattached = arena.populated() > 0;
        let mut thread = CacheJanitorThread {
            logs,
            dir,
            arena,
            stop,
            janitor: Janitor::default(),
            meter: MemoryMeter::default(),
            watch: Watch::default(),
            looked: None,
            has_told_of_room: false,
            // Chunks that this process populates are mapped as they are made.
            mapped: is_reattached.then_some(0),
            swept_ms: None,
            loss: Loss::No,
        };
        // Makes a chunk ready for the first record.
        thread.tend();
        Some(thread)
    }

    /// The arena, for waking this thread.
    pub fn arena(&self) -> &Arc<Arena> {
        &self.arena
    }

    /// Runs until told to stop.
    pub fn run(mut self) {
        let mut wait_ms = 0;
        while !self.stop.load(Ordering::Acquire) {
            self.arena.wait(Some(Duration::from_millis(wait_ms)));
            if self.stop.load(Ordering::Acquire) {
                return;
            }
            self.watch();
            let tended_wait_ms = self.tend();
            let is_mapping = self.map_some();
            if !is_mapping {
                self.sweep();
            }
            wait_ms = match is_mapping {
                true => tended_wait_ms.min(BUSY_MS),
                false => tended_wait_ms,
            };
        }
    }

    /// Maps some chunks; true while more remain.
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
        false
    }

    fn sweep(&mut self) {
        let now_ms = Now::read().mono_ms;
        let is_due = |swept_ms: i64| now_ms.saturating_sub(swept_ms) >= SWEEP_MS;
        if !self.swept_ms.is_none_or(is_due) {
            return;
        }
        self.swept_ms = Some(now_ms);
        if let Some(dir) = &self.logs.config.cache.dir
            && let Err(error) = kept_arena::sweep(dir, &self.logs.config.log_dirs)
        {
            self.tell("warning", format!("looking for abandoned arenas: {error}"));
        }
    }

    /// Tends the arena; returns the milliseconds until the next look.
    fn tend(&mut self) -> u64 {
        let now_ms = Now::read().mono_ms;
        let is_recent = |(looked_ms, room): &(i64, Room)| {
            now_ms - looked_ms < LOOK_LEAST_MS && room.give_back_bytes == 0
        };
        let recent = self.looked.filter(is_recent);
        let (tended, room) = match recent {
            Some((_, room)) if self.arena.is_open() => {
                (self.janitor.tend_again(&self.arena, now_ms), room)
            }
            _ => {
                let caches = self.logs.dirs.len() as u64;
                let room = self.watch.update(self.meter.read(), now_ms).shared(caches);
                self.looked = Some((now_ms, room));
                if !self.arena.is_open() && room.give_back_bytes == 0 {
                    // The arena is only read from.
                    return IDLE_MS;
                }
                (self.janitor.tend(&self.arena, now_ms, room), room)
            }
        };
        if tended.needs_writer {
            self.dir.writer.hurry();
        }
        let wait_ms = wait_ms(&tended, room, self.arena.populated());
        if let Some(error) = tended.refused
            && !self.has_told_of_room
        {
            self.has_told_of_room = true;
            let reason = format!("the block cache keeps its size: {error}");
            self.tell("warning", reason);
        }
        wait_ms
    }

    fn watch(&mut self) {
        if let Some(broken) = self.arena.take_failure() {
            let path = self.arena.path().display();
            let reason = format!(
                "{path} broke an invariant and takes no more records, which are written before they \
                 are acknowledged: {broken}"
            );
            self.tell("error", reason);
            self.dir.writer.hurry();
        }
        match self.loss {
            Loss::No if self.arena.is_open() && !self.arena.is_linked() => {
                self.arena.close();
                let path = self.arena.path().display();
                self.tell(
                    "error",
                    format!("{path} was removed or cut: records are now written to files before they are acknowledged"),
                );
                self.dir.writer.hurry();
                self.loss = Loss::Told;
            }
            // Looks twice: an earlier append may not be counted yet.
            Loss::Told if self.dir.unwritten_bytes() == 0 => self.loss = Loss::Written,
            Loss::Written if self.dir.unwritten_bytes() == 0 => {
                // A kill no longer loses records, so the next start must not report a loss.
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
        self.logs
            .dir_notice(&self.dir, "block_cache", level, reason);
    }
}

/// Milliseconds until the next look, in an arena with `populated` chunks.
fn wait_ms(tended: &Tended, room: Room, populated: u32) -> u64 {
    match tended {
        Tended { has_more: true, .. } => 0,
        Tended { is_busy: true, .. } => BUSY_MS,
        _ if populated == 0 => IDLE_MS,
        _ => room.look_again_ms.min(IDLE_MS),
    }
}
