//! Logs with more keys than the cleaner's map holds.

use crate::common::cleaning::{CleanRig, compacted};
use pyrklog_log::cleaner::MapLimits;

const FOUR_KEYS: MapLimits = MapLimits {
    buffer_bytes: 24 * 9,
    load_factor: 0.5,
    seed: 3,
};

#[test]
fn a_full_map_cleans_a_part_at_a_time() {
    let mut rig = CleanRig::new(compacted(400));
    rig.limits = FOUR_KEYS;
    for i in 0..40 {
        rig.put(&[(&format!("k{}", i % 8), Some(&format!("{i:030}")))]);
    }
    rig.roll();
    let expected = rig.last_values();
    let mut ends = Vec::new();
    while rig.clean().unwrap() {
        ends.push(rig.checkpoint.unwrap());
        assert_eq!(rig.last_values(), expected);
        assert!(rig.stats.keys <= 4);
    }
    assert!(ends.len() > 3 && ends.is_sorted(), "{ends:?}");
    let (fillers, others): (Vec<_>, Vec<_>) = rig
        .committed()
        .into_iter()
        .partition(|(_, key, _)| key == "filler");
    assert_eq!((fillers.is_empty(), others.len()), (false, 8));
}

/// A segment reaches further than the map does. What lies there is not clean yet.
#[test]
fn a_deleted_key_stays_deleted_behind_a_full_map() {
    let mut rig = CleanRig::new(compacted(4_000));
    rig.limits = FOUR_KEYS;
    rig.put(&[("deleted", Some("old"))]);
    rig.roll();
    assert!(rig.clean().unwrap());
    let first_dirty = rig.checkpoint.unwrap();
    for i in 0..12 {
        let (key, other) = (format!("k{i}"), format!("j{i}"));
        rig.put(&[(&key, Some("1")), (&other, Some("1"))]);
    }
    let tombstone = rig.put(&[("deleted", None)]).base_offset;
    rig.roll();
    assert!(rig.clean().unwrap() && rig.stats.is_map_full);
    let clean_end = rig.checkpoint.unwrap();
    assert!(
        first_dirty < clean_end && clean_end < tombstone,
        "{clean_end}"
    );
    // Whole batches are clean, so that replicas can be compared from there on.
    let begins_batch =
        |(offset, key, _): &(i64, String, _)| *offset == clean_end && key.starts_with('k');
    assert!(rig.committed().iter().any(begins_batch));
    // The cleaner comes to the tombstone piece by piece, and later its horizon passes.
    for _ in 0..4 {
        while rig.clean().unwrap() {
            rig.rig.now_ms += 101;
            assert!(!rig.last_values().contains_key("deleted"));
        }
        rig.roll();
    }
    assert!(rig.checkpoint.unwrap() > tombstone);
    assert!(rig.committed().iter().all(|(_, key, _)| key != "deleted"));
}
