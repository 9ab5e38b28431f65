//! The process's two clocks. Readings are passed as arguments.

use std::sync::atomic::{AtomicI64, Ordering};

use rustix::time::{ClockId, Timespec, clock_gettime};

/// One reading of both clocks, taken once per turn of a network thread.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Now {
    /// Monotonic milliseconds, for deadlines and idle times.
    pub mono_ms: i64,
    /// The same reading in nanoseconds, for durations.
    pub mono_ns: u64,
    /// Milliseconds since the Unix epoch, for record timestamps and retention.
    pub wall_ms: i64,
}

impl Now {
    /// Reads both clocks.
    pub fn read() -> Now {
        let mono = monotonic();
        Now {
            mono_ms: milliseconds(mono),
            mono_ns: nanoseconds(mono),
            wall_ms: milliseconds(realtime()),
        }
    }
}

/// Reads the monotonic clock.
pub fn mono_ms() -> i64 {
    milliseconds(monotonic())
}

/// Reads the monotonic clock, in nanoseconds.
pub fn mono_ns() -> u64 {
    nanoseconds(monotonic())
}

#[cfg(not(feature = "sim"))]
fn monotonic() -> Timespec {
    clock_gettime(ClockId::Monotonic)
}

/// How far the time of day is ahead of the machine's, in milliseconds: 0, except in a broker that
/// was started for tests. A simulation's clock does not look at it.
static AHEAD_MS: AtomicI64 = AtomicI64::new(0);

/// Sets the time of day so many milliseconds ahead of the machine's, for tests (testing.md).
pub fn set_ahead_ms(ahead_ms: i64) {
    // The readings of different threads need no order.
    AHEAD_MS.store(ahead_ms, Ordering::Relaxed);
}

/// Uses libc, not the vDSO, so that tests can inject another time (libfaketime,
/// tests/support/faults/clock_shim.c). Times before 1970 become 1970.
#[cfg(not(feature = "sim"))]
fn realtime() -> Timespec {
    let since = std::time::SystemTime::now()
        .duration_since(std::time::UNIX_EPOCH)
        .unwrap_or_default();
    let machine = Timespec {
        tv_sec: since.as_secs().cast_signed(),
        tv_nsec: since.subsec_nanos().into(),
    };
    match AHEAD_MS.load(Ordering::Relaxed) {
        0 => machine,
        ahead_ms => timespec(milliseconds(machine).saturating_add(ahead_ms).max(0)),
    }
}

#[cfg(feature = "sim")]
pub use simulated::set_now_ms;
#[cfg(feature = "sim")]
use simulated::{monotonic, realtime};

/// A simulation's clocks, set by its thread.
#[cfg(feature = "sim")]
mod simulated {
    use std::cell::Cell;

    use super::{ClockId, Timespec, clock_gettime, timespec};

    const WALL_AHEAD_MS: i64 = 1_700_000_000_000;

    thread_local! {
        static NOW_MS: Cell<Option<i64>> = const { Cell::new(None) };
    }

    /// Sets this thread's clocks.
    pub fn set_now_ms(now_ms: i64) {
        NOW_MS.set(Some(now_ms));
    }

    pub fn monotonic() -> Timespec {
        NOW_MS
            .get()
            .map_or_else(|| clock_gettime(ClockId::Monotonic), timespec)
    }

    pub fn realtime() -> Timespec {
        let now_ms = NOW_MS.get().map(|now_ms| now_ms + WALL_AHEAD_MS);
        now_ms.map_or_else(|| clock_gettime(ClockId::Realtime), timespec)
    }
}

/// A time or duration as the system takes it.
pub fn timespec(milliseconds: i64) -> Timespec {
    Timespec {
        tv_sec: milliseconds / 1000,
        tv_nsec: milliseconds % 1000 * 1_000_000,
    }
}

fn nanoseconds(time: Timespec) -> u64 {
    time.tv_sec as u64 * 1_000_000_000 + time.tv_nsec as u64
}

fn milliseconds(time: Timespec) -> i64 {
    time.tv_sec * 1000 + time.tv_nsec / 1_000_000
}

#[cfg(all(test, not(feature = "sim")))]
mod tests {
    use super::*;

    #[test]
    fn time_of_day_can_be_ahead_and_never_before_1970() {
        let hour_ms = 3_600_000;
        let before = Now::read();
        set_ahead_ms(hour_ms);
        let ahead = Now::read();
        set_ahead_ms(i64::MIN);
        let least = Now::read();
        set_ahead_ms(0);
        assert!(ahead.wall_ms >= before.wall_ms + hour_ms);
        assert!(ahead.mono_ms < before.mono_ms + hour_ms);
        assert_eq!(least.wall_ms, 0);
    }
}
