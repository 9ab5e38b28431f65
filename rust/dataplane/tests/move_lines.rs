//! Moves of replicas between log directories: logs with a line in `.pyrklog-leaving`.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use crate::harness::moving::*;
use crate::harness::*;
use pyrklog_dataplane::seam::*;
use pyrklog_dataplane::{DataPlane, OpenError};
use pyrklog_log::disk::RealDisk;
use pyrklog_log::disk::testing::{Fault, FaultyDisk, Operation, StallingDisk};
use pyrklog_wire::ErrorCode;

const LEAVING: &str = ".pyrklog-leaving";
const FIRST: &str = "00000000000000000000.log";

fn here_and_there(dir: &Path) -> (PathBuf, PathBuf) {
    match place(dir) {
        "a" => (dir.join("a"), dir.join("b")),
        _ => (dir.join("b"), dir.join("a")),
    }
}

/// As a swap writes it when the log has this size.
fn write_line(here: &Path, destination: &Path) {
    let bytes = fs::metadata(here.join("t-0").join(FIRST)).unwrap().len();
    let destination = destination.display();
    let line = format!("t-0 t-0.{:032x}-future 0 {bytes} {destination}\n", 7);
    fs::write(here.join(LEAVING), line).unwrap();
}

/// Ended in order, as if a swap had written its line; the directories of the log and of the other.
fn ended_with_a_line(dir: &Path) -> (PathBuf, PathBuf) {
    let mut test = start(&two(dir));
    test.create("t", 1);
    append(&test, 10);
    assert!(test.shutdown());
    let (here, there) = here_and_there(dir);
    write_line(&here, &there);
    (here, there)
}

fn copy_log(here: &Path, there: &Path) {
    fs::create_dir(there.join("t-0")).unwrap();
    for entry in fs::read_dir(here.join("t-0")).unwrap().map(Result::unwrap) {
        fs::copy(entry.path(), there.join("t-0").join(entry.file_name())).unwrap();
    }
}

fn stop(test: &mut TestPlane, delete: bool) -> Vec<i16> {
    let stop = StopSpec {
        topic: "t".into(),
        partition: 0,
        delete,
    };
    let ticket = test.plane.stop_partitions(vec![stop]).unwrap();
    match test.ticket(ticket) {
        TicketOutcome::Partitions(codes) => codes,
        other => panic!("{other:?}"),
    }
}

#[test]
fn a_log_is_not_served_while_its_copy_may_be_newer() {
    let dir = tempfile::tempdir().unwrap();
    let (here, there) = ended_with_a_line(dir.path());
    let aside = dir.path().join("aside");
    fs::rename(&there, &aside).unwrap();
    fs::write(&there, b"no directory").unwrap();
    let mut test = start(&two(dir.path()));
    let codes = test.lead("t", 1, &topic_config());
    assert_eq!(codes, [ErrorCode::KAFKA_STORAGE_ERROR.0]);
    assert!(!test.shutdown());
    fs::remove_file(&there).unwrap();
    fs::rename(&aside, &there).unwrap();
    let mut test = start(&two(dir.path()));
    test.create("t", 1);
    assert_eq!(read(&test).len(), 10);
    assert!(is_in(&here, "t-0"));
    assert!(!here.join(LEAVING).exists());
    assert!(test.shutdown());
}

#[test]
fn of_two_logs_the_one_with_a_line_goes() {
    let dir = tempfile::tempdir().unwrap();
    let (here, there) = ended_with_a_line(dir.path());
    copy_log(&here, &there);
    let mut test = start(&two(dir.path()));
    test.create("t", 1);
    assert_eq!(read(&test).len(), 10);
    assert!(is_in(&there, "t-0") && !is_in(&here, "t-0"));
    assert!(!here.join(LEAVING).exists());
    append(&test, 1);
    assert!(test.shutdown());
}

#[test]
fn a_directory_whose_lines_are_damaged_is_not_used() {
    let dir = tempfile::tempdir().unwrap();
    let (here, _) = ended_with_a_line(dir.path());
    fs::write(here.join(LEAVING), b"\xff").unwrap();
    let mut test = start(&two(dir.path()));
    let event = test.wait_for("a failed directory", |event| {
        matches!(event, Event::LogDirFailed { .. })
    });
    let Event::LogDirFailed { path, reason, .. } = event else {
        panic!("{event:?}")
    };
    assert_eq!(path, here);
    assert!(reason.contains(".pyrklog-leaving is damaged"), "{reason}");
    assert!(!test.shutdown());
}

/// An empty log in another directory would be worse than none.
#[test]
fn a_log_is_not_served_while_its_copy_may_be_outside_of_log_dirs() {
    let dir = tempfile::tempdir().unwrap();
    let (here, there) = ended_with_a_line(dir.path());
    write_line(&here, &dir.path().join("c"));
    let mut test = start(&two(dir.path()));
    let codes = test.lead("t", 1, &topic_config());
    assert_eq!(codes, [ErrorCode::KAFKA_STORAGE_ERROR.0]);
    assert!(is_in(&here, "t-0") && !is_in(&there, "t-0"));
    // Its topic is deleted, and made anew.
    assert_eq!(stop(&mut test, true), [0]);
    assert!(!is_in(&here, "t-0") && !here.join(LEAVING).exists());
    test.create("t", 1);
    assert_eq!(read(&test).len(), 0);
    assert!(test.shutdown());
}

/// As after a downgrade: a version that knows no lines served the log, and took records.
#[test]
fn a_log_that_took_records_against_its_line_is_not_removed() {
    let dir = tempfile::tempdir().unwrap();
    let (here, there) = ended_with_a_line(dir.path());
    copy_log(&here, &there);
    fs::remove_file(here.join(LEAVING)).unwrap();
    let aside = dir.path().join("aside");
    fs::rename(there.join("t-0"), &aside).unwrap();
    let mut test = start(&two(dir.path()));
    test.create("t", 1);
    append(&test, 5);
    assert!(test.shutdown());
    fs::rename(&aside, there.join("t-0")).unwrap();
    let bytes = fs::metadata(there.join("t-0").join(FIRST)).unwrap().len();
    let line = format!("t-0 t-0.{:032x}-future 0 {bytes} {}\n", 7, there.display());
    fs::write(here.join(LEAVING), line).unwrap();
    let refused = DataPlane::open(two(dir.path())).unwrap_err();
    assert!(matches!(refused, OpenError::Foreign(_)), "{refused:?}");
    fs::rename(there.join("t-0"), &aside).unwrap();
    let mut test = start(&two(dir.path()));
    test.create("t", 1);
    assert_eq!(read(&test).len(), 15);
    assert!(!here.join(LEAVING).exists());
    assert!(test.shutdown());
}

/// Which name the copy has is unknown when its renaming fails: until the next start neither log is
/// served, whatever the controller asks for.
#[test]
fn a_log_with_a_line_is_not_opened() {
    let dir = tempfile::tempdir().unwrap();
    let faulty = FaultyDisk::new(Arc::new(RealDisk));
    let disk = StallingDisk::new(Arc::new(faulty.clone()));
    let mut test = TestPlane::start_with(two(dir.path()), Arc::new(disk.clone()));
    test.create("t", 1);
    append(&test, 20);
    let (here, there) = here_and_there(dir.path());
    disk.stall(LEAVING);
    assert_eq!(alter(&test, "t", 0, &there), 0);
    eventually("the line", || (disk.waiting() > 0).then_some(()));
    let path = there.to_str().unwrap();
    faulty.fail(Operation::SyncDir, path, 0, usize::MAX, Fault::InputOutput);
    disk.resume();
    test.wait_for("a failed directory", |event| {
        matches!(event, Event::LogDirFailed { .. })
    });
    assert!(is_in(&here, "t-0") && is_in(&there, "t-0"));
    let storage_error = [ErrorCode::KAFKA_STORAGE_ERROR.0];
    assert_eq!(stop(&mut test, false), storage_error);
    let codes = test.become_leaders(vec![TestPlane::leader_spec("t", 0, 1)]);
    assert_eq!(codes, storage_error);
    assert!(!test.shutdown());
    let mut test = start(&two(dir.path()));
    test.create("t", 1);
    assert_eq!(read(&test).len(), 20);
    assert!(is_in(&there, "t-0") && !is_in(&here, "t-0"));
    append(&test, 1);
    assert!(test.shutdown());
}

/// What a move left in its source goes with the topic, and does not stand in the way of another one
/// of its name.
#[test]
fn a_deletion_takes_the_former_log_along() {
    let dir = tempfile::tempdir().unwrap();
    let disk = FaultyDisk::new(Arc::new(RealDisk));
    let mut test = TestPlane::start_with(two(dir.path()), Arc::new(disk.clone()));
    test.create("t", 1);
    append(&test, 20);
    let (here, there) = here_and_there(dir.path());
    let folder = here.join("t-0");
    let folder = folder.to_str().unwrap();
    disk.fail(Operation::Rename, folder, 0, 1, Fault::NoDescriptor);
    assert_eq!(alter(&test, "t", 0, &there), 0);
    test.wait_for_notice("deletion_failed");
    assert!(is_in(&here, "t-0") && is_in(&there, "t-0"));
    assert_eq!(stop(&mut test, true), [0]);
    assert!(!is_in(&here, "t-0") && !is_in(&there, "t-0"));
    assert!(!here.join(LEAVING).exists());
    test.topic_id = Some([0x77; 16]);
    test.create("t", 1);
    append(&test, 1);
    assert_eq!(read(&test).len(), 1);
    assert!(test.shutdown());
}
