//! Gaps between segments: compaction leaves permanent ones, a power loss one where data was not
//! synced.

use crate::common::{Rig, small};
use pyrklog_log::{OpenState, Origin, SyncScope};
use pyrklog_wire::batch::Batches;
use pyrklog_wire::builder::BatchBuilder;

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
fn gap_below_what_was_compacted_is_no_loss() {
    let mut rig = filled();
    let before = rig.contents();
    let first = Batches::new(&rig.file(FIRST_LOG)).count() as i64;
    thin(&mut rig, |behind| behind != 0 && behind != 2);
    let state = OpenState {
        cleaned_end: 2 * first,
        ..OpenState::default()
    };
    let report = rig.reopen(state).clone();
    assert_eq!(report.truncated_bytes, 0, "{report:?}");
    rig.drain();
    let after = rig.contents();
    assert_eq!(after.len(), before.len() - 4);
    assert_eq!(after.last(), before.last());
}

/// A copy that keeps its source's offsets has gaps within segments, though it is not compacted.
#[test]
fn gap_after_a_segment_with_gaps_is_a_loss_all_the_same() {
    let mut rig = filled();
    let before = rig.contents();
    thin(&mut rig, |behind| behind != 0 && behind != 2);
    let report = rig.reopen(OpenState::default()).clone();
    assert!(report.truncated_bytes > 0, "{report:?}");
    rig.drain();
    assert_eq!(rig.log.segment_count(), 1);
    let after = rig.contents();
    assert!(after.len() < before.len() - 4, "{after:?}");
    assert!(after.iter().all(|record| before.contains(record)));
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

/// The leader of epoch 6 began at 3, where its log ended, and brought a gap (ProduceAt). A former
/// leader that has more records of epoch 5 must learn from any replica that they are not there.
#[test]
fn an_epoch_begins_where_the_log_ends_and_not_behind_a_gap() {
    let mut rig = Rig::new(small());
    rig.epoch = 5;
    rig.put(&["a", "b", "c"]);
    let mut behind = BatchBuilder::new().base_offset(200).leader_epoch(6);
    behind.append(1_000, None, Some(b"v"));
    let mut behind = behind.build();
    rig.append_as(&mut behind, Origin::Replication).unwrap();
    rig.drain();
    assert_eq!(rig.log.end_offset_for_epoch(5), (5, 3));
    assert_eq!(rig.log.end_offset_for_epoch(6), (6, 201));
    // The same from the batches alone.
    rig.remove_file("leader-epoch-checkpoint");
    rig.reopen(OpenState::default());
    assert_eq!(rig.log.end_offset_for_epoch(5), (5, 3));
}
