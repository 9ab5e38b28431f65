//! How much memory something asks for.

use std::alloc::System;

use stats_alloc::{INSTRUMENTED_SYSTEM, Region, StatsAlloc};

use crate::{Verdict, expect};

#[global_allocator]
static ALLOCATOR: &StatsAlloc<System> = &INSTRUMENTED_SYSTEM;

/// What anything may ask for, however short its input.
const BASE_BYTES: usize = 64 * 1024;

/// Runs `work` within a memory limit per byte of input. Counts the whole process: nothing else may
/// run.
pub fn bounded<T>(
    input_bytes: usize,
    factor: usize,
    work: impl FnOnce() -> T,
) -> Result<T, String> {
    let region = Region::new(ALLOCATOR);
    let done = work();
    let asked = region.change().bytes_allocated;
    check(asked, BASE_BYTES + factor * input_bytes)?;
    Ok(done)
}

fn check(asked: usize, limit: usize) -> Verdict {
    expect(asked <= limit, || {
        format!("asked for {asked} bytes of memory, {limit} would do")
    })
}
