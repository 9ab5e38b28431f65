//! Keeping free chunks ready: reclaiming ahead of need, and growing on evidence.

use std::io;

use crate::arena::Arena;
use crate::layout::CHUNK_BYTES;

/// Chunks populated at once.
const SLAB_CHUNKS: u32 = 32;

/// Free chunks kept at least, once anything is produced.
const FREE_MIN: usize = 16;

/// While the oldest chunk is younger than this, the arena grows rather than reclaims: so long,
/// where memory allows, is what was produced held.
const HOLD_MS: i64 = 120_000;

/// What one look of the janitor came to.
#[derive(Debug, Default)]
pub struct Tended {
    /// Chunks that were populated.
    pub grown: u32,
    /// Chunks that were reclaimed.
    pub reclaimed: u32,
    /// Why it could not grow although it should have.
    pub refused: Option<io::Error>,
    /// Look again soon: something is going on.
    pub is_busy: bool,
}

/// What the janitor remembers between two looks.
#[derive(Debug, Default)]
pub struct Janitor {
    appended_bytes: u64,
}

impl Janitor {
    /// Sees that there are free chunks for about as much as was appended since the last look.
    /// `room_bytes` says how much memory may still be taken.
    pub fn tend(&mut self, arena: &Arena, now_ms: i64, room_bytes: impl Fn() -> u64) -> Tended {
        let mut tended = Tended {
            refused: arena.ready_slots().err(),
            ..Tended::default()
        };
        // Transient chunks come back by themselves: nothing else has to make room for them.
        let statistics = arena.statistics();
        let appended_bytes = statistics.appended_bytes - statistics.transient_appended_bytes;
        let fresh = (appended_bytes - self.appended_bytes) as usize / CHUNK_BYTES;
        self.appended_bytes = appended_bytes;
        tended.is_busy = fresh > 0;
        let wanted = FREE_MIN.max(fresh * 2).min(arena.limit() as usize / 4 + 1);
        loop {
            let free = arena.collect();
            if free >= wanted {
                break;
            }
            if self.grows(arena, now_ms) && tended.refused.is_none() {
                match self.grow(arena, &room_bytes) {
                    Ok(0) => {}
                    Ok(grown) => {
                        tended.grown += grown;
                        continue;
                    }
                    Err(error) => tended.refused = Some(error),
                }
            }
            if !arena.reclaim(true) {
                // Everything is unwritten: the writer's turn.
                tended.is_busy = true;
                break;
            }
            tended.reclaimed += 1;
            if tended.reclaimed as usize >= wanted {
                // What was reclaimed waits for guards to pass.
                tended.is_busy = true;
                break;
            }
        }
        arena.sated();
        tended
    }

    fn grows(&self, arena: &Arena, now_ms: i64) -> bool {
        let (_, _, oldest_ms) = arena.pool_state();
        let is_young = oldest_ms.is_none_or(|ms| now_ms.saturating_sub(ms) < HOLD_MS);
        arena.populated() < arena.limit() && is_young
    }

    fn grow(&self, arena: &Arena, room_bytes: &impl Fn() -> u64) -> io::Result<u32> {
        let before = arena.populated();
        let slab = SLAB_CHUNKS.min(arena.limit() - before);
        if room_bytes() < u64::from(slab) * CHUNK_BYTES as u64 {
            return Err(io::ErrorKind::OutOfMemory.into());
        }
        Ok(arena.grow(slab)? - before)
    }
}
