//! Every target over seeded scripts: nothing is found in the broker's code, and each planted bug is.
//! FUZZ_SCRIPTS and FUZZ_SEED say how many scripts, and which.

use pyrklog_fuzz::{Target, search};

const PLANTED_SCRIPTS_MAX: u64 = 100_000;

fn variable(name: &str, default: u64) -> u64 {
    std::env::var(name).map_or(default, |text| text.parse().expect("a number"))
}

#[test]
fn sound_code_passes_every_target() {
    let count = variable("FUZZ_SCRIPTS", 2_000);
    let seed = variable("FUZZ_SEED", 0);
    for target in Target::ALL {
        let found = search(target, None, seed, count);
        assert_eq!(found, None, "{target:?}, see FUZZ_SEED");
    }
}

#[test]
fn every_injected_bug_is_found() {
    for target in Target::ALL {
        assert!(!target.planted().is_empty());
        for bug in target.planted() {
            let found = search(target, Some(bug), 0, PLANTED_SCRIPTS_MAX);
            assert!(found.is_some(), "{target:?} does not find {bug:?}");
        }
    }
}
