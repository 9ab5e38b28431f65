//! How much of the machine's memory the cache may have now, decided from a reading of it
//! (`block-cache.md`, section 5).

use crate::limits::MemoryReading;

/// What is left to others: a share of all memory, within bounds.
const RESERVE_SHARE: u64 = 8;
const RESERVE_MIN_BYTES: u64 = 64 << 20;
const RESERVE_MAX_BYTES: u64 = 2 << 30;
/// In very little memory, this share of it replaces the lower bound.
const RESERVE_MAX_SHARE: u64 = 4;

/// Near the reserve (less than another reserve above it), this share of what is available above it
/// may be populated until the next look.
const EDGE_SHARE: u64 = 8;

/// After giving back, the cache does not grow for this time, unless there is much room.
const CALM_MS: i64 = 2_000;

/// Pressure: tasks waited for memory in this share of the time.
const STALL_SHARE: u64 = 10;

/// The least speed at which others are expected to take memory.
const FALL_BYTES_PER_MS: u64 = (2 << 30) / 1000;

/// Between two looks.
const LOOK_MIN_MS: u64 = 20;
const LOOK_MAX_MS: u64 = 250;

/// What the cache may do until the next look.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Room {
    /// Bytes that it may take.
    pub grow_bytes: u64,
    /// Bytes that it has to give back.
    pub give_back_bytes: u64,
    /// When to look again, if nothing is appended.
    pub look_again_ms: u64,
}

impl Room {
    /// No limit.
    pub const UNLIMITED: Room = Room {
        grow_bytes: u64::MAX,
        give_back_bytes: 0,
        look_again_ms: LOOK_MAX_MS,
    };

    /// The part of one of `caches` that decide alike.
    pub fn shared(self, caches: u64) -> Room {
        Room {
            grow_bytes: self.grow_bytes / caches.max(1),
            give_back_bytes: self.give_back_bytes.div_ceil(caches.max(1)),
            ..self
        }
    }
}

/// What is left to others of `limit_bytes`.
pub fn reserve_bytes(limit_bytes: u64) -> u64 {
    let least = RESERVE_MIN_BYTES.min(limit_bytes / RESERVE_MAX_SHARE);
    (limit_bytes / RESERVE_SHARE).clamp(least, RESERVE_MAX_BYTES)
}

/// What is remembered between two looks.
#[derive(Debug, Default)]
pub struct Watch {
    last: Option<(i64, MemoryReading)>,
    calm_from_ms: i64,
}

impl Watch {
    /// What the cache may do, by the reading at `now_ms` (a monotonic clock).
    pub fn update(&mut self, reading: MemoryReading, now_ms: i64) -> Room {
        let reserve = reserve_bytes(reading.limits.limit_bytes);
        let available = reading.limits.available_bytes;
        let is_pressed = self.is_pressed(&reading, now_ms);
        let missing = reserve.saturating_sub(available);
        let give_back_bytes = match available {
            _ if available < reserve / 2 => missing,
            _ if available < reserve / 4 * 3 || (available < reserve && is_pressed) => missing / 2,
            _ => 0,
        };
        if give_back_bytes > 0 {
            self.calm_from_ms = now_ms.saturating_add(CALM_MS);
        }
        let above = available.saturating_sub(reserve);
        let grow_bytes = match above {
            _ if above > reserve => above,
            _ if now_ms < self.calm_from_ms => 0,
            _ => above / EDGE_SHARE,
        };
        let look_again_ms = self.look_again_ms(&reading, now_ms, reserve / 4 * 3);
        self.last = Some((now_ms, reading));
        Room {
            grow_bytes,
            give_back_bytes,
            look_again_ms,
        }
    }

    fn is_pressed(&self, reading: &MemoryReading, now_ms: i64) -> bool {
        let Some((last_ms, last)) = &self.last else {
            return false;
        };
        let (Some(now_us), Some(last_us)) = (reading.stalled_us, last.stalled_us) else {
            return false;
        };
        let elapsed_us = u64::try_from(now_ms - last_ms).unwrap_or(0) * 1000;
        elapsed_us > 0 && now_us.saturating_sub(last_us) >= elapsed_us / STALL_SHARE
    }

    /// Before others could take half of what is above `bound`, at twice the current speed.
    fn look_again_ms(&self, reading: &MemoryReading, now_ms: i64, bound: u64) -> u64 {
        let available = reading.limits.available_bytes;
        let fell = self.last.as_ref().map_or(0, |(last_ms, last)| {
            let bytes = last.limits.available_bytes.saturating_sub(available);
            bytes / u64::try_from(now_ms - last_ms).unwrap_or(1).max(1)
        });
        let speed = fell.max(FALL_BYTES_PER_MS) * 2;
        let distance = available.saturating_sub(bound) / 2;
        (distance / speed).clamp(LOOK_MIN_MS, LOOK_MAX_MS)
    }
}
