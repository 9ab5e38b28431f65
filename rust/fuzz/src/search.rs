//! Seeded scripts for tests, the same on every machine.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Mutex;

use crate::Target;

const SCRIPT_BYTES_MAX: u64 = 700;

/// Memory is counted for the whole process, so searches run one at a time.
static ONE_AT_A_TIME: Mutex<()> = Mutex::new(());

/// What a search found.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Found {
    /// The number of the script.
    pub script: u64,
    /// What does not hold, or the panic's message.
    pub problem: String,
}

/// Runs up to `count` scripts from `seed` on; returns the first finding.
pub fn search(target: Target, planted: Option<&str>, seed: u64, count: u64) -> Option<Found> {
    let _alone = ONE_AT_A_TIME
        .lock()
        .unwrap_or_else(|held| held.into_inner());
    (seed..seed + count).find_map(|script| {
        let data = bytes_of(script);
        let done = catch_unwind(AssertUnwindSafe(|| target.run(&data, planted)));
        let problem = match done {
            Ok(Ok(())) => return None,
            Ok(Err(problem)) => problem,
            Err(panic) => message(panic.as_ref()),
        };
        Some(Found { script, problem })
    })
}

fn message(panic: &(dyn std::any::Any + Send)) -> String {
    let text = panic.downcast_ref::<String>().cloned();
    let text = text.or_else(|| panic.downcast_ref::<&str>().map(|text| (*text).to_owned()));
    format!("panic: {}", text.unwrap_or_default())
}

/// SplitMix64: short, and good enough to roll dice.
fn next(state: &mut u64) -> u64 {
    *state = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
    let mut z = *state;
    z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}

fn bytes_of(script: u64) -> Vec<u8> {
    let mut state = script.wrapping_mul(0x2545_f491_4f6c_dd1d);
    let len = next(&mut state) % SCRIPT_BYTES_MAX;
    (0..len).map(|_| next(&mut state) as u8).collect()
}
