//! Gaps between segments: compaction leaves permanent ones, a power loss one where data was not
//! synced.

use crate::common::{Rig, small};
use pyrklog_log::{OpenState, SyncScope};
use pyrklog_wire::batch::Batches;

const FIRST_LOG: &str = "00000000000000000000.log";

/// At least three segments of numbered records, two a batch.
fn filled() -> Rig {
    let mut rig = Rig::new(small());
    let mut i = 0;
    while rig.log.segment_count() < 3 || i % 4 != 0 {
        rig.put(&[&format!("{i}"), "0123456789"]);
        i += 1;
    }
    rig
}

/// Removes batches from the first segment and its derived files, as compaction or a power loss
/// does. `is_kept` gets the number of batches behind each.
fn thin(rig: &mut Rig, is_kept: impl Fn(usize) -> bool) {
    let content = rig.file(FIRST_LOG);
    let batches: Vec<_> = Batches::new(&content).map(|view| view.unwrap()).collect();
    let last = batches.len() - 1;
    let kept = batches.iter().enumerate();
    let kept = kept.filter(|(i, _)| is_kept(last - i));
    let kept: Vec<u8> = kept.flat_map(|(_, view)| view.bytes.to_vec()).collect();
    assert!(kept.len() < content.len());
    rig.put_file(FIRST_LOG, &kept);
    rig.remove_file("00000000000000000000.index");
    rig.remove_file("00000000000000000000.timeindex");
}

#[test]
fn gap_in_synced_segments_is_kept_as_compaction() {
    let mut rig = filled();
    rig.sync(SyncScope::Written);
    let before = rig.contents();
    let state = rig.state(false);
    let segments = rig.log.segment_count();
    thin(&mut rig, |behind| behind != 0);
    // Forces a walk of everything, although the recovery point is at the end.
    rig.put_file("00000000000000000000.txnindex", b"damaged");
    let report = rig.reopen(state).clone();
    assert_eq!(
        (report.recovered_segments, report.truncated_bytes),
        (segments, 0),
        "{report:?}"
    );
    rig.drain();
    let after = rig.contents();
    assert_eq!(after.len(), before.len() - 2);
    assert_eq!(after.last(), before.last());
}

#[test]
fn gap_after_a_compacted_segment_is_no_loss() {
    let mut rig = filled();
    let before = rig.contents();
    thin(&mut rig, |behind| behind != 0 && behind != 2);
    let report = rig.reopen(OpenState::default()).clone();
    assert_eq!(report.truncated_bytes, 0, "{report:?}");
    rig.drain();
    let after = rig.contents();
    assert_eq!(after.len(), before.len() - 4);
    assert_eq!(after.last(), before.last());
}

#[test]
fn gap_in_unsynced_segments_truncates_the_log() {
    let mut rig = filled();
    let before = rig.contents();
    thin(&mut rig, |behind| behind != 0);
    let report = rig.reopen(OpenState::default()).clone();
    assert!(report.truncated_bytes > 0, "{report:?}");
    rig.drain();
    let after = rig.contents();
    assert_eq!(rig.log.segment_count(), 1);
    assert_eq!(after, before[..after.len()]);
}
