//! One thread a log directory keeps free chunks of its block cache ready, so that no append waits for
//! memory, gives memory back when others need it, and watches that the arena is still there.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use pyrklog_arena::limits::MemoryMeter;
use pyrklog_arena::room::{Room, Watch};
use pyrklog_arena::{Arena, Janitor, Tended};

use crate::block_cache;
use crate::kept_cache;
use crate::log_dir::LogDirState;
use crate::log_manager::LogManager;
use pyrklog_base::clock::Now;

/// Between two looks while something is appended.
const BUSY_MS: u64 = 20;

/// The machine's memory is looked at no more often: appends that find few free chunks bring about many
/// looks.
const LOOK_LEAST_MS: i64 = 10;

/// Between two looks otherwise: is the file still there?
const IDLE_MS: u64 = 250;

/// Of an arena that was taken up again, chunks that are mapped at a time: a start has better things to
/// do.
const MAPPED_AT_A_TIME: u32 = 1;

/// Between two looks for arenas that nobody wants any more.
const SWEEP_MS: i64 = 600_000;

/// The janitor thread of one directory.
#[derive(Debug)]
pub struct CacheKeeper {
    logs: Arc<LogManager>,
    dir: Arc<LogDirState>,
    arena: Arc<Arena>,
    stop: Arc<AtomicBool>,
    janitor: Janitor,
    meter: MemoryMeter,
    watch: Watch,
    /// When the machine's memory was looked at last, and what came of it.
    looked: Option<(i64, Room)>,
    has_told_of_room: bool,
    /// Chunks that are mapped; `None` once all are.
    mapped: Option<u32>,
    swept_ms: Option<i64>,
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
        logs: Arc<LogManager>,
        dir: Arc<LogDirState>,
        stop: Arc<AtomicBool>,
    ) -> Option<CacheKeeper> {
        let arena = block_cache::arena_of(&dir.files)?;
        let is_taken_up = arena.populated() > 0;
        let mut keeper = CacheKeeper {
            logs,
            dir,
            arena,
            stop,
            janitor: Janitor::default(),
            meter: MemoryMeter::default(),
            watch: Watch::default(),
            looked: None,
            has_told_of_room: false,
            // What this process populates is mapped with it.
            mapped: is_taken_up.then_some(0),
            swept_ms: None,
            loss: Loss::No,
        };
        // So that the very first record goes to memory.
        keeper.tend();
        Some(keeper)
    }

    /// The arena, to ring.
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

    /// True while there is more.
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

    /// What others left behind.
    fn sweep(&mut self) {
        let now_ms = Now::read().mono_ms;
        let is_due = |swept_ms: i64| now_ms.saturating_sub(swept_ms) >= SWEEP_MS;
        if !self.swept_ms.is_none_or(is_due) {
            return;
        }
        self.swept_ms = Some(now_ms);
        if let Some(dir) = &self.logs.config.cache.dir
            && let Err(error) = kept_cache::sweep(dir, &self.logs.config.log_dirs)
        {
            self.tell("warning", format!("looking for abandoned arenas: {error}"));
        }
    }

    /// When to look again.
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
                let room = self.watch.look(self.meter.read(), now_ms).shared(caches);
                self.looked = Some((now_ms, room));
                if !self.arena.is_open() && room.give_back_bytes == 0 {
                    // What it holds is read, and nothing more comes.
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
            let reason = format!("the block cache stays as large as it is: {error}");
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
        self.logs.events.notice("block_cache", level, fields);
    }
}

/// When to look again after a look that came to `tended`, in an arena of so many chunks.
fn wait_ms(tended: &Tended, room: Room, populated: u32) -> u64 {
    match tended {
        Tended { has_more: true, .. } => 0,
        Tended { is_busy: true, .. } => BUSY_MS,
        // There is nothing that it could give back.
        _ if populated == 0 => IDLE_MS,
        _ => room.look_again_ms.min(IDLE_MS),
    }
}
