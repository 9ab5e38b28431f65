//! Limits how much old data stays in the page cache: half of the spare memory (reads.md).

use std::sync::atomic::{AtomicBool, AtomicI64, Ordering};

use pyrklog_arena::limits::{MemoryLimits, memory_limits};
use pyrklog_log::set_kept_pages_max_bytes;

use pyrklog_base::clock::mono_ms;

const LOOK_MS: i64 = 200;

/// Spare memory to leave free: an eighth of all, within these bounds.
const RESERVE_SHARE: u64 = 8;
const RESERVE_MIN_BYTES: u64 = 64 << 20;
const RESERVE_MAX_BYTES: u64 = 2 << 30;

/// When memory was read last, for the whole process.
static LOOKED_MS: AtomicI64 = AtomicI64::new(i64::MIN);

static IS_FIXED: AtomicBool = AtomicBool::new(false);

/// Updates the limit, unless it was updated recently. Reads files in `/proc` and `/sys`.
pub fn update() {
    let (now_ms, looked_ms) = (mono_ms(), LOOKED_MS.load(Ordering::Relaxed));
    if now_ms.saturating_sub(looked_ms) < LOOK_MS || IS_FIXED.load(Ordering::Relaxed) {
        return;
    }
    LOOKED_MS.store(now_ms, Ordering::Relaxed);
    set_kept_pages_max_bytes(room_of(memory_limits()));
}

/// Half of the available memory beyond the reserve. Page cache counts as available.
fn room_of(limits: MemoryLimits) -> u64 {
    let reserve = limits.limit_bytes / RESERVE_SHARE;
    let reserve = reserve.clamp(RESERVE_MIN_BYTES, RESERVE_MAX_BYTES);
    limits.available_bytes.saturating_sub(reserve) / 2
}

/// Fixes the limit for tests.
#[cfg(any(test, feature = "testing"))]
pub fn fix(max_bytes: u64) {
    IS_FIXED.store(true, Ordering::Relaxed);
    set_kept_pages_max_bytes(max_bytes);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn page_cache_may_use_half_of_the_free_memory() {
        let room = |limit_mib: u64, available_mib: u64| {
            let mut limits = memory_limits();
            limits.limit_bytes = limit_mib << 20;
            limits.available_bytes = available_mib << 20;
            room_of(limits) >> 20
        };
        for (limit_mib, available_mib, expected_mib) in [
            (24_576, 20_480, 9_216),
            (24_576, 2_048, 0),
            (2_400, 2_300, 1_000),
            (2_400, 800, 250),
            (512, 300, 118),
            (512, 40, 0),
        ] {
            assert_eq!(room(limit_mib, available_mib), expected_mib, "{limit_mib}");
        }
    }
}
