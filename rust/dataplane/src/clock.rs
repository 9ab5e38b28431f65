//! The process's two clocks, read in one place and handed on as arguments.

use rustix::time::{ClockId, Timespec, clock_gettime};

/// One reading of both clocks. A network thread takes it once a turn.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Now {
    /// Monotonic milliseconds: deadlines and idle times.
    pub mono_ms: i64,
    /// The same reading in nanoseconds: how long something took.
    pub mono_ns: u64,
    /// Milliseconds since the Unix epoch: record timestamps, retention.
    pub wall_ms: i64,
}

impl Now {
    /// Reads both clocks.
    pub fn read() -> Now {
        let mono = clock_gettime(ClockId::Monotonic);
        Now {
            mono_ms: milliseconds(mono),
            mono_ns: nanoseconds(mono),
            wall_ms: milliseconds(clock_gettime(ClockId::Realtime)),
        }
    }
}

/// Reads the monotonic clock alone.
pub fn mono_ms() -> i64 {
    milliseconds(clock_gettime(ClockId::Monotonic))
}

/// Reads the monotonic clock alone, in nanoseconds.
pub fn mono_ns() -> u64 {
    nanoseconds(clock_gettime(ClockId::Monotonic))
}

fn nanoseconds(time: Timespec) -> u64 {
    time.tv_sec as u64 * 1_000_000_000 + time.tv_nsec as u64
}

fn milliseconds(time: Timespec) -> i64 {
    time.tv_sec * 1000 + time.tv_nsec / 1_000_000
}
