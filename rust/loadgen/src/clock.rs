//! The two clocks that a measurement needs.

use rustix::time::{ClockId, clock_gettime};

/// CLOCK_MONOTONIC in nanoseconds, as Python's `time.monotonic_ns` on this machine.
pub fn now_ns() -> u64 {
    nanoseconds_of(ClockId::Monotonic)
}

/// Processor time of this process, user and system, in nanoseconds.
pub fn process_cpu_ns() -> u64 {
    nanoseconds_of(ClockId::ProcessCPUTime)
}

/// Wall-clock milliseconds since 1970, for record timestamps.
pub fn wall_clock_ms() -> i64 {
    (nanoseconds_of(ClockId::Realtime) / 1_000_000) as i64
}

fn nanoseconds_of(clock: ClockId) -> u64 {
    let time = clock_gettime(clock);
    time.tv_sec as u64 * 1_000_000_000 + time.tv_nsec as u64
}
