//! Keeping free chunks ready ahead of need, and giving memory back.

use std::io;
use std::sync::atomic::Ordering;

use crate::arena::Arena;
use crate::layout::CHUNK_BYTES;
use crate::room::Room;

/// The least and the most free chunks kept ahead of need. The most is also a share of the cap, and
/// a smaller share while the arena can grow, since memory is not populated for nothing.
const AHEAD_MIN: usize = 16;
const AHEAD_MAX: usize = 256;
const AHEAD_SHARE: usize = 8;
const GROW_SHARE: usize = 64;

/// What was filled in the last two windows of this length tells the need. Looks are no measure: an
/// append that finds few free chunks causes one. The need is multiplied, since on a busy machine
/// the janitor waits for a processor, and what it reclaims waits for its readers.
const WINDOW_MS: i64 = 20;
const AHEAD_WINDOWS: usize = 2;

/// An append that finds fewer free chunks calls the janitor: a minimum, and a share of those kept
/// ahead. On a busy machine the janitor waits for a processor, too.
const LOW_MIN: usize = 8;
const LOW_SHARE: usize = 2;

/// Chunks populated, reclaimed or given back in one look; then the machine's memory is looked at
/// again.
const STEPS_MAX: usize = 64;

/// Free chunks beyond those kept ahead, and beyond these shares of the cap (as while it grows) and
/// of what is held, are given back after this time without need; so many in one look.
const SURPLUS_SHARE: usize = 16;
const SURPLUS_MS: i64 = 10_000;
const SURPLUS_STEPS: usize = 8;

/// Result of one look of the janitor.
#[derive(Debug, Default)]
pub struct Tended {
    /// Chunks populated.
    pub grown: u32,
    /// Chunks reclaimed.
    pub reclaimed: u32,
    /// Chunks whose memory was given back.
    pub given_back: u32,
    /// Why it failed to grow or give back.
    pub refused: Option<io::Error>,
    /// Look again soon.
    pub is_busy: bool,
    /// Look again at once: not all was done.
    pub has_more: bool,
    /// The chunks wanted hold unwritten bytes: the writer's turn.
    pub needs_writer: bool,
}

/// What the janitor remembers between two looks.
#[derive(Debug, Default)]
pub struct Janitor {
    appended_bytes: u64,
    /// Bytes appended in the window of [`WINDOW_MS`] that began at `window_from_ms`, and in the one
    /// before.
    fresh_bytes: u64,
    fresh_before_bytes: u64,
    window_from_ms: i64,
    /// The last search for a chunk to reclaim found none.
    is_stuck: bool,
    /// Since when there are more free chunks than needed.
    surplus_from_ms: Option<i64>,
}

impl Janitor {
    /// Keeps free chunks for about as much as is appended, as far as there is `room` in the
    /// machine's memory, and gives back what others need.
    pub fn tend(&mut self, arena: &Arena, now_ms: i64, room: Room) -> Tended {
        let (mut tended, ahead) = self.begin(arena, now_ms);
        let excess = arena.populated().saturating_sub(arena.limit()) as usize;
        let to_give_back = room.give_back_bytes.div_ceil(CHUNK_BYTES as u64);
        let to_give_back = usize::try_from(to_give_back)
            .unwrap_or(usize::MAX)
            .max(excess);
        if to_give_back > 0 {
            arena.set_allowance(0);
            let kept = tended.is_busy.then_some(ahead.growing);
            self.shrink(arena, to_give_back, kept, &mut tended);
        } else {
            let allowance = room.grow_bytes / CHUNK_BYTES as u64;
            arena.set_allowance(u32::try_from(allowance).unwrap_or(u32::MAX));
            self.keep_ahead(arena, ahead, &mut tended);
            self.give_back_surplus(arena, now_ms, ahead, &mut tended);
        }
        arena.sated();
        tended
    }

    /// Like [`Janitor::tend`], so soon after it that the machine's memory need not be looked at
    /// again: the allowance that was left still holds.
    pub fn tend_again(&mut self, arena: &Arena, now_ms: i64) -> Tended {
        let (mut tended, ahead) = self.begin(arena, now_ms);
        self.keep_ahead(arena, ahead, &mut tended);
        arena.sated();
        tended
    }

    fn begin(&mut self, arena: &Arena, now_ms: i64) -> (Tended, Ahead) {
        let mut tended = Tended {
            refused: arena.ready_slots().err(),
            ..Tended::default()
        };
        arena.bound_classes();
        if !self.is_stuck {
            arena.rewind();
        }
        self.is_stuck = false;
        tended.is_busy = self.note_fresh(arena, now_ms);
        let fresh = (self.fresh_bytes + self.fresh_before_bytes).div_ceil(CHUNK_BYTES as u64);
        let fresh = fresh as usize * AHEAD_WINDOWS;
        let ahead = Ahead {
            growing: ahead(arena, fresh, GROW_SHARE),
            full: ahead(arena, fresh, AHEAD_SHARE),
        };
        let low = (ahead.of(arena) / LOW_SHARE).max(LOW_MIN);
        arena.low.store(low as u32, Ordering::Relaxed);
        (tended, ahead)
    }

    /// Counts what was filled since the last look; true if anything was. Transient chunks do not
    /// count: they come back by themselves.
    fn note_fresh(&mut self, arena: &Arena, now_ms: i64) -> bool {
        let statistics = arena.statistics();
        let appended_bytes = statistics.appended_bytes - statistics.transient_appended_bytes;
        let fresh_bytes =
            appended_bytes - std::mem::replace(&mut self.appended_bytes, appended_bytes);
        if now_ms.saturating_sub(self.window_from_ms) >= WINDOW_MS {
            self.fresh_before_bytes = std::mem::take(&mut self.fresh_bytes);
            self.window_from_ms = now_ms;
        }
        self.fresh_bytes += fresh_bytes;
        fresh_bytes > 0
    }

    fn keep_ahead(&mut self, arena: &Arena, ahead: Ahead, tended: &mut Tended) {
        arena.collect();
        for _ in 0..STEPS_MAX {
            if arena.free_soon() >= ahead.of(arena) {
                return;
            }
            if arena.reclaim_sparse() {
                tended.reclaimed += 1;
                continue;
            }
            if tended.refused.is_none() && arena.spend_allowance() {
                match arena.grow_by_one() {
                    Ok(true) => {
                        tended.grown += 1;
                        continue;
                    }
                    Ok(false) => {}
                    Err(error) => tended.refused = Some(error),
                }
            }
            if !arena.reclaim(true) {
                self.is_stuck = true;
                tended.is_busy = true;
                return;
            }
            tended.reclaimed += 1;
            arena.collect();
        }
        tended.has_more = true;
    }

    /// Gives back memory that holds nothing and soon will not: of deleted topics, of a past burst.
    fn give_back_surplus(&mut self, arena: &Arena, now_ms: i64, ahead: Ahead, tended: &mut Tended) {
        let held_chunks = arena.counters.held_bytes() as usize / CHUNK_BYTES;
        let idle = arena.limit() as usize / GROW_SHARE;
        let kept = ahead.of(arena).max(idle).max(held_chunks / SURPLUS_SHARE);
        let surplus = arena.free_soon().saturating_sub(kept);
        if surplus == 0 || tended.grown > 0 {
            self.surplus_from_ms = None;
            return;
        }
        let from_ms = *self.surplus_from_ms.get_or_insert(now_ms);
        if now_ms.saturating_sub(from_ms) < SURPLUS_MS {
            return;
        }
        match arena.give_back(surplus.min(SURPLUS_STEPS)) {
            Ok(given_back) => tended.given_back += given_back,
            Err(error) => tended.refused = Some(error),
        }
        tended.is_busy = true;
    }

    /// Gives back `count` chunks: free ones beyond `kept`, then the oldest written ones, and those
    /// kept ahead last.
    fn shrink(&mut self, arena: &Arena, count: usize, kept: Option<usize>, tended: &mut Tended) {
        let count_now = count.min(STEPS_MAX);
        let kept = kept.unwrap_or(0);
        let mut left = count_now;
        let mut give_back =
            |left: &mut usize, spare: usize| match arena.give_back((*left).min(spare)) {
                Ok(given_back) => {
                    tended.given_back += given_back;
                    *left -= given_back as usize;
                }
                Err(error) => tended.refused = Some(error),
            };
        give_back(&mut left, arena.collect().saturating_sub(kept));
        while left > 0 && arena.free_soon() < kept + left {
            if !arena.reclaim_sparse() && !arena.reclaim(true) {
                self.is_stuck = true;
                break;
            }
            tended.reclaimed += 1;
        }
        give_back(&mut left, arena.collect().saturating_sub(kept));
        if left > 0 && self.is_stuck {
            give_back(&mut left, arena.collect());
            tended.needs_writer = arena.carved() > 0;
        }
        tended.is_busy = true;
        tended.has_more = tended.given_back > 0 && (count_now < count || left > 0);
    }
}

/// How many free chunks are kept ahead of need.
#[derive(Clone, Copy, Debug)]
struct Ahead {
    growing: usize,
    /// While there is no memory for more chunks, and those ahead are reclaimed.
    full: usize,
}

impl Ahead {
    fn of(self, arena: &Arena) -> usize {
        let can_grow =
            arena.populated() < arena.limit() && arena.allowance.load(Ordering::Relaxed) > 0;
        match can_grow {
            true => self.growing,
            false => self.full,
        }
    }
}

/// Free chunks to keep ahead where `fresh` are needed: at most `1 / share` of the cap.
fn ahead(arena: &Arena, fresh: usize, share: usize) -> usize {
    let limit = arena.limit() as usize;
    let least = AHEAD_MIN.min(limit / 4 + 1);
    let most = (limit / share).clamp(least, AHEAD_MAX);
    fresh.clamp(least, most)
}
