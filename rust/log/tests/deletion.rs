//! Segments that retention removed, and successors of the same base offset before their files are
//! deleted (`file.delete.delay.ms`).

use std::path::Path;

use crate::common::{FOLDER, Rig, bytes, records_in, small};
use pyrklog_log::disk::Disk;
use pyrklog_log::disk::testing::{Fault, Operation};
use pyrklog_log::{Isolation, LogConfig, OpenState, RemovedSegments, TruncateError, Wait};

const FIRST: &str = "00000000000000000000.log";

/// Ten batches, two a segment; retention keeps only the active segment.
fn filled() -> Rig {
    let mut rig = Rig::new(LogConfig {
        retention_bytes: 0,
        ..small()
    });
    for _ in 0..10 {
        rig.put(&[&"x".repeat(280)]);
    }
    rig
}

fn taken_out(rig: &mut Rig) -> RemovedSegments {
    rig.log.retention_candidates(rig.now_ms).load().unwrap();
    rig.log.plan_retention(rig.now_ms).removed.unwrap()
}

/// As a follower whose log ends outside of its leader's.
fn begin_anew(rig: &mut Rig, offset: i64) {
    rig.write();
    let mut job = rig.log.begin_restart(offset, rig.now_ms, 86_400_000);
    let result = job.as_mut().unwrap().execute();
    rig.log.complete_truncation(job.unwrap(), result);
}

fn check_successor(rig: &mut Rig) {
    assert_eq!(rig.contents(), [(0, "new".to_owned())]);
    assert!(rig.files().iter().any(|name| name == FIRST));
    assert!(!rig.files().iter().any(|name| name.contains(".deleted")));
    rig.restart_clean();
    assert_eq!(rig.contents(), [(0, "new".to_owned())]);
}

#[test]
fn restarted_log_keeps_its_segments_while_old_ones_are_removed() {
    let mut rig = filled();
    let located = rig.log.locate(0, Isolation::HighWatermark).unwrap();
    let mut removed = taken_out(&mut rig);
    removed.rename().unwrap();
    begin_anew(&mut rig, 0);
    rig.put(&["new"]);
    let held = located.resolve(1 << 20, true, Wait::Blocking).unwrap();
    let (first, value) = &records_in(&bytes(&held))[0];
    assert_eq!((*first, value.len()), (0, 280), "what it located");
    removed.delete().unwrap();
    check_successor(&mut rig);
}

/// The partition moved away and came back; the old log does not know its folder's new name.
#[test]
fn new_log_of_the_same_name_keeps_its_segments() {
    let mut rig = filled();
    let mut removed = taken_out(&mut rig);
    removed.rename().unwrap();
    rig.log.close_cleanly().unwrap();
    let away = Path::new("/data/t-0.0123-delete");
    rig.memory.rename(Path::new(FOLDER), away).unwrap();
    rig.reopen(OpenState::default());
    rig.put(&["new"]);
    removed.delete().unwrap();
    check_successor(&mut rig);
}

#[test]
fn log_begins_anew_only_after_old_files_are_renamed() {
    let mut rig = filled();
    let mut removed = taken_out(&mut rig);
    assert!(rig.log.is_retiring());
    rig.write();
    let begun = rig.log.begin_restart(0, rig.now_ms, 86_400_000);
    assert!(matches!(begun, Err(TruncateError::Busy)));
    removed.rename().unwrap();
    assert!(!rig.log.is_retiring());
    begin_anew(&mut rig, 0);
    rig.put(&["new"]);
    removed.delete().unwrap();
    check_successor(&mut rig);
}

#[test]
fn two_segments_of_one_base_offset_wait_side_by_side() {
    let mut rig = filled();
    let mut first = taken_out(&mut rig);
    first.rename().unwrap();
    begin_anew(&mut rig, 0);
    for _ in 0..4 {
        rig.put(&[&"y".repeat(280)]);
    }
    let located = rig.log.locate(0, Isolation::HighWatermark).unwrap();
    let mut second = taken_out(&mut rig);
    second.rename().unwrap();
    first.delete().unwrap();
    let held = located.resolve(1 << 20, true, Wait::Blocking).unwrap();
    assert!(records_in(&bytes(&held))[0].1.starts_with('y'));
    second.delete().unwrap();
    assert!(!rig.files().iter().any(|name| name.contains(".deleted")));
}

#[test]
fn without_space_for_other_names_the_files_go_at_once_and_readers_read_on() {
    let mut rig = filled();
    let located = rig.log.locate(2, Isolation::HighWatermark).unwrap();
    let mut removed = taken_out(&mut rig);
    rig.break_disk(Operation::Rename, 0, Fault::NoSpaceAfter(0));
    removed.rename().unwrap();
    rig.disk.heal();
    assert!(!rig.files().iter().any(|name| name == FIRST));
    let held = located.resolve(1 << 20, true, Wait::Blocking).unwrap();
    assert_eq!(records_in(&bytes(&held))[0].0, 2);
    begin_anew(&mut rig, 0);
    rig.put(&["new"]);
    removed.delete().unwrap();
    check_successor(&mut rig);
}

/// A name that was not changed may belong to a successor.
#[test]
fn file_that_could_not_be_renamed_is_not_removed_by_name() {
    let mut rig = filled();
    let mut removed = taken_out(&mut rig);
    rig.break_disk(Operation::Rename, 0, Fault::InputOutput);
    assert!(removed.rename().is_err());
    rig.disk.heal();
    let before = rig.files();
    removed.delete().unwrap();
    assert_eq!(rig.files(), before);
    assert!(before.iter().any(|name| name == FIRST));
}
