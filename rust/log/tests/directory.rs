//! The log directory: lock, identity, checkpoints, folders, orderly shutdown.

use std::path::Path;
use std::sync::Arc;

use crate::common::{DIR, Rig, batch, small};
use pyrklog_log::disk::testing::{Fault, FaultyDisk, MemDisk, Operation};
use pyrklog_log::disk::{Disk, OpenMode, RealDisk};
use pyrklog_log::{Checkpoint, Identity, LogConfig, LogDir, LogDirError, LogEnv, OpenState};

fn identity() -> Identity {
    Identity {
        cluster_id: "cluster".to_owned(),
        node_id: 1,
    }
}

fn open(disk: &MemDisk) -> Result<LogDir, LogDirError> {
    LogDir::open(
        LogEnv::new(Arc::new(disk.clone()), 16),
        Path::new(DIR),
        &identity(),
    )
}

fn text(disk: &MemDisk, name: &str) -> String {
    String::from_utf8(disk.content(&Path::new(DIR).join(name)).unwrap()).unwrap()
}

#[test]
fn a_new_directory_is_made_and_named() {
    let disk = MemDisk::default();
    let dir = open(&disk).unwrap();
    assert!(!dir.was_clean());
    let properties = text(&disk, "meta.properties");
    for line in ["version=0", "broker.id=1", "cluster.id=cluster"] {
        assert!(
            properties.lines().any(|found| found == line),
            "{properties}"
        );
    }
    assert!(dir.partitions().unwrap().is_empty());
    assert_eq!(dir.open_state("t", 0), OpenState::default());
}

#[test]
fn a_directory_in_use_is_refused_until_it_is_free() {
    let disk = MemDisk::default();
    let dir = open(&disk).unwrap();
    let error = open(&disk).unwrap_err();
    assert!(matches!(error, LogDirError::Locked { .. }));
    assert!(error.to_string().contains(DIR));
    drop(dir);
    open(&disk).unwrap();
}

#[test]
fn the_real_lock_excludes_this_process_and_others() {
    let temporary = tempfile::tempdir().unwrap();
    let path = temporary.path().join("logs");
    let env = || LogEnv::new(Arc::new(RealDisk), 16);
    let dir = LogDir::open(env(), &path, &identity()).unwrap();
    assert!(matches!(
        LogDir::open(env(), &path, &identity()),
        Err(LogDirError::Locked { .. })
    ));
    // Another process sees the fcntl lock (F_GETLK through Python, which every build needs).
    let probe = format!(
        "import fcntl,sys\nf=open({:?},'r+')\ntry:\n fcntl.lockf(f,fcntl.LOCK_EX|fcntl.LOCK_NB)\nexcept OSError:\n sys.exit(3)",
        path.join(".lock")
    );
    let taken = || {
        let status = std::process::Command::new("python3")
            .args(["-c", &probe])
            .status()
            .unwrap();
        status.code().unwrap()
    };
    assert_eq!(taken(), 3);
    drop(dir);
    assert_eq!(taken(), 0);
    LogDir::open(env(), &path, &identity()).unwrap();
}

#[test]
fn foreign_directories_are_refused_and_left_alone() {
    let cases = [
        "version=0\nbroker.id=1\ncluster.id=other\n",
        "version=0\nbroker.id=2\ncluster.id=cluster\n",
        "version=1\nnode.id=2\ncluster.id=cluster\n",
        "version=2\nnode.id=1\ncluster.id=cluster\n",
        "version=0\nbroker.id=one\ncluster.id=cluster\n",
    ];
    for content in cases {
        let disk = MemDisk::default();
        disk.create_dir_all(Path::new(DIR)).unwrap();
        disk.put(&Path::new(DIR).join("meta.properties"), content.as_bytes());
        let error = open(&disk).unwrap_err();
        assert!(
            match content.contains("=other") || content.contains("=2\ncluster") {
                true => matches!(
                    error,
                    LogDirError::OtherCluster { .. } | LogDirError::OtherBroker { .. }
                ),
                false => matches!(error, LogDirError::Foreign(_)),
            },
            "{content}: {error}"
        );
        assert_eq!(text(&disk, "meta.properties"), content);
    }
    for content in [
        "# written by Kafka\nversion=0\nbroker.id=1\ncluster.id=cluster\n",
        "version=1\nnode.id=1\ncluster.id=cluster\ndirectory.id=AAAAAAAAAAAAAAAAAAAAAQ\n",
    ] {
        let disk = MemDisk::default();
        disk.create_dir_all(Path::new(DIR)).unwrap();
        disk.put(&Path::new(DIR).join("meta.properties"), content.as_bytes());
        open(&disk).unwrap();
        assert_eq!(text(&disk, "meta.properties"), content);
    }
}

#[test]
fn checkpoints_keep_rows_of_unopened_logs() {
    let disk = MemDisk::default();
    let dir = open(&disk).unwrap();
    dir.write_checkpoint(Checkpoint::RecoveryPoint, &[("a", 0, 5), ("b", 3, 7)])
        .unwrap();
    dir.write_checkpoint(Checkpoint::LogStart, &[("a", 0, 2)])
        .unwrap();
    dir.write_checkpoint(Checkpoint::HighWatermark, &[("a", 0, 4)])
        .unwrap();
    assert_eq!(
        text(&disk, "recovery-point-offset-checkpoint"),
        "0\n2\na 0 5\nb 3 7\n"
    );
    drop(dir);
    disk.reboot(3);
    let dir = open(&disk).unwrap();
    let expected = OpenState {
        clean: false,
        recovery_point: 5,
        cleaned_end: 0,
        log_start_offset: 2,
        high_watermark: 4,
    };
    assert_eq!(dir.open_state("a", 0), expected);
    dir.write_checkpoint(Checkpoint::RecoveryPoint, &[("a", 0, 6)])
        .unwrap();
    assert_eq!(
        text(&disk, "recovery-point-offset-checkpoint"),
        "0\n2\na 0 6\nb 3 7\n"
    );
}

/// The first row beyond its log's end costs a write; later ones do not, since the file has no rows
/// of unopened logs any more.
#[test]
fn rows_behind_the_end_of_their_logs_are_lowered_with_one_write() {
    let disk = MemDisk::default();
    let dir = open(&disk).unwrap();
    let rows = [("a", 0, 40), ("a", 1, 50), ("b", 0, 60), ("b", 1, 70)];
    dir.write_checkpoint(Checkpoint::HighWatermark, &rows)
        .unwrap();
    drop(dir);
    disk.reboot(3);
    let faulty = FaultyDisk::new(Arc::new(disk.clone()));
    let env = LogEnv::new(Arc::new(faulty.clone()), 16);
    let dir = LogDir::open(env, Path::new(DIR), &identity()).unwrap();
    let writes = || faulty.count(Operation::Write);
    let file = || text(&disk, "replication-offset-checkpoint");
    let before = writes();
    dir.lower_high_watermark_row("a", 0, 41).unwrap();
    assert_eq!(writes(), before);
    dir.lower_high_watermark_row("a", 1, 5).unwrap();
    assert_eq!(file(), "0\n2\na 0 40\na 1 5\n");
    let before = writes();
    dir.lower_high_watermark_row("b", 0, 6).unwrap();
    assert_eq!(writes(), before);
    assert_eq!(dir.open_state("b", 0).high_watermark, 6);
    assert_eq!(dir.open_state("b", 1).high_watermark, 70);
    dir.write_checkpoint(Checkpoint::HighWatermark, &[("a", 1, 6)])
        .unwrap();
    assert_eq!(file(), "0\n3\na 0 40\na 1 6\nb 0 6\n");
    // The file has its row now, so it is lowered there at once.
    dir.lower_high_watermark_row("b", 0, 2).unwrap();
    assert_eq!(file(), "0\n3\na 0 40\na 1 6\nb 0 2\n");
}

/// A failed write stays due.
#[test]
fn a_row_that_could_not_be_lowered_is_tried_again() {
    let disk = MemDisk::default();
    let faulty = FaultyDisk::new(Arc::new(disk.clone()));
    let env = LogEnv::new(Arc::new(faulty.clone()), 16);
    let dir = LogDir::open(env, Path::new(DIR), &identity()).unwrap();
    dir.write_checkpoint(Checkpoint::HighWatermark, &[("a", 0, 40)])
        .unwrap();
    faulty.fail(Operation::Write, "replication", 0, 1, Fault::InputOutput);
    dir.lower_high_watermark_row("a", 0, 5).unwrap_err();
    dir.lower_high_watermark_row("a", 0, 5).unwrap();
    assert_eq!(
        text(&disk, "replication-offset-checkpoint"),
        "0\n1\na 0 5\n"
    );
}

#[test]
fn a_log_that_starts_at_0_loses_its_row() {
    let disk = MemDisk::default();
    let dir = open(&disk).unwrap();
    dir.write_checkpoint(Checkpoint::LogStart, &[("a", 0, 2), ("b", 3, 7)])
        .unwrap();
    dir.write_checkpoint(Checkpoint::LogStart, &[("a", 0, 0), ("c", 1, 0)])
        .unwrap();
    assert_eq!(text(&disk, "log-start-offset-checkpoint"), "0\n1\nb 3 7\n");
}

#[test]
fn an_unchanged_checkpoint_is_not_written() {
    let faulty = FaultyDisk::new(Arc::new(MemDisk::default()));
    let env = LogEnv::new(Arc::new(faulty.clone()), 16);
    let dir = LogDir::open(env, Path::new(DIR), &identity()).unwrap();
    dir.write_checkpoint(Checkpoint::HighWatermark, &[("a", 0, 4)])
        .unwrap();
    let writes = faulty.count(Operation::Write);
    dir.write_checkpoint(Checkpoint::HighWatermark, &[("a", 0, 4)])
        .unwrap();
    assert_eq!(faulty.count(Operation::Write), writes);
}

#[test]
fn a_checkpoint_survives_a_crash_at_each_step_of_its_writing() {
    for operation in [
        Operation::Open,
        Operation::Write,
        Operation::Sync,
        Operation::Rename,
    ] {
        let memory = MemDisk::default();
        let faulty = FaultyDisk::new(Arc::new(memory.clone()));
        let env = LogEnv::new(Arc::new(faulty.clone()), 16);
        let dir = LogDir::open(env, Path::new(DIR), &identity()).unwrap();
        dir.write_checkpoint(Checkpoint::RecoveryPoint, &[("a", 0, 5)])
            .unwrap();
        faulty.fail(operation, "recovery-point", 0, 1, Fault::InputOutput);
        assert!(
            dir.write_checkpoint(Checkpoint::RecoveryPoint, &[("a", 0, 6)])
                .is_err()
        );
        drop(dir);
        for seed in 0..8 {
            memory.reboot(seed);
            assert_eq!(open(&memory).unwrap().open_state("a", 0).recovery_point, 5);
        }
    }
}

#[test]
fn a_damaged_checkpoint_counts_as_empty() {
    for content in ["1\n0\n", "0\n2\na 0 5\n", "0\n1\na zero 5\n", "\u{0}\u{0}"] {
        let disk = MemDisk::default();
        disk.create_dir_all(Path::new(DIR)).unwrap();
        let path = Path::new(DIR).join("recovery-point-offset-checkpoint");
        disk.put(&path, content.as_bytes());
        let dir = open(&disk).unwrap();
        assert_eq!(dir.open_state("a", 0).recovery_point, 0);
        assert!(
            dir.notes()
                .iter()
                .any(|note| note.contains("recovery-point")),
            "{content:?}"
        );
    }
}

#[test]
fn folders_are_listed_renamed_and_removed() {
    let disk = MemDisk::default();
    let dir = open(&disk).unwrap();
    for name in [
        "b-1",
        "a-b-0",
        "a-2",
        "c-0.00ff-delete",
        "d-0.00ff-future",
        "not_a_partition",
    ] {
        disk.create_dir_all(&Path::new(DIR).join(name)).unwrap();
    }
    disk.put(
        &Path::new(DIR).join("a-2/partition.metadata"),
        b"version: 0\ntopic_id: AAAAAAAAAAAAAAAAAAAAAQ",
    );
    let found = dir.partitions().unwrap();
    let names: Vec<_> = found
        .iter()
        .map(|f| (f.topic.as_str(), f.partition))
        .collect();
    assert_eq!(names, [("a", 2), ("a-b", 0), ("b", 1)]);
    let mut id = [0; 16];
    id[15] = 1;
    assert_eq!((found[0].topic_id, found[1].topic_id), (Some(id), None));

    dir.write_checkpoint(Checkpoint::RecoveryPoint, &[("a", 2, 5)])
        .unwrap();
    let deleted = dir.delete_folder("a", 2, 0xabc).unwrap().unwrap();
    assert!(deleted.path.to_string_lossy().ends_with("-delete"));
    assert_eq!(dir.partitions().unwrap().len(), 2);
    assert_eq!(
        dir.open_state("a", 2).recovery_point,
        0,
        "a namesake starts anew"
    );
    assert!(dir.delete_folder("a", 2, 1).unwrap().is_none());
    let leftovers = dir.deleted_folders().unwrap();
    assert_eq!(leftovers.len(), 2);
    leftovers.iter().for_each(|folder| folder.remove().unwrap());
    deleted.remove().unwrap();
    assert!(dir.deleted_folders().unwrap().is_empty());
}

#[test]
fn a_deletion_without_descriptors_is_done_by_another_try() {
    for operation in [Operation::Open, Operation::SyncDir] {
        for skip in 0.. {
            let disk = FaultyDisk::new(Arc::new(MemDisk::default()));
            let env = LogEnv::new(Arc::new(disk.clone()), 16);
            let dir = LogDir::open(env, Path::new(DIR), &identity()).unwrap();
            disk.create_dir_all(&Path::new(DIR).join("a-2")).unwrap();
            dir.write_checkpoint(Checkpoint::RecoveryPoint, &[("a", 2, 5)])
                .unwrap();
            disk.fail(operation, "", skip, 1, Fault::NoDescriptor);
            let failed = dir.delete_folder("a", 2, 1).is_err();
            if failed {
                assert!(dir.delete_folder("a", 2, 2).unwrap().is_some());
            }
            assert_eq!(dir.open_state("a", 2).recovery_point, 0);
            assert!(dir.partitions().unwrap().is_empty());
            assert_eq!(dir.deleted_folders().unwrap().len(), 1);
            if !failed {
                assert!(skip > 0, "{operation:?} is part of it");
                break;
            }
        }
    }
}

#[test]
fn an_orderly_shutdown_is_trusted_once() {
    let mut rig = Rig::new(small());
    let identity = identity();
    let env = || LogEnv::new(Arc::new(rig.disk.clone()), 16);
    let dir = LogDir::open(env(), Path::new(DIR), &identity).unwrap();
    for i in 0..20 {
        rig.append(&mut batch(1_000 + i, &["0123456789"])).unwrap();
    }
    rig.log.close_cleanly().unwrap();
    assert!(rig.append(&mut batch(1, &["too late"])).is_err());
    dir.sync_all().unwrap();
    rig.log.all_synced();
    dir.write_checkpoint(
        Checkpoint::RecoveryPoint,
        &[("t", 0, rig.log.recovery_point())],
    )
    .unwrap();
    dir.mark_clean(-1).unwrap();
    drop(dir);
    rig.memory.reboot(5);
    let dir = LogDir::open(
        LogEnv::new(Arc::new(rig.disk.clone()), 16),
        Path::new(DIR),
        &identity,
    )
    .unwrap();
    assert!(dir.was_clean());
    assert_eq!(*rig.reopen(dir.open_state("t", 0)), Default::default());
    assert_eq!(rig.log.log_end_offset(), 20);
    drop(dir);
    let dir = LogDir::open(
        LogEnv::new(Arc::new(rig.disk.clone()), 16),
        Path::new(DIR),
        &identity,
    )
    .unwrap();
    assert!(
        !dir.was_clean(),
        "the marker is gone as soon as the directory is in use"
    );
}

#[test]
fn a_poisoned_directory_writes_nothing() {
    let disk = MemDisk::default();
    let dir = open(&disk).unwrap();
    dir.env().poison("the disk is gone");
    assert!(
        dir.write_checkpoint(Checkpoint::RecoveryPoint, &[("a", 0, 5)])
            .is_err()
    );
    assert!(dir.mark_clean(-1).is_err());
    assert!(dir.sync_all().is_err());
    assert!(dir.delete_folder("a", 0, 1).is_err());
    assert!(
        disk.content(&Path::new(DIR).join(".kafka_cleanshutdown"))
            .is_none()
    );
}

#[test]
fn real_files_behave_as_the_log_expects() {
    let temporary = tempfile::tempdir().unwrap();
    let disk = RealDisk;
    let path = temporary.path().join("file");
    assert!(disk.open(&path, OpenMode::Read).is_err());
    assert!(disk.open(&path, OpenMode::Write).is_err());
    let file = disk.open(&path, OpenMode::Create).unwrap();
    file.write_all_at(b"0123456789", 4).unwrap();
    file.sync_data().unwrap();
    assert_eq!(
        (file.len().unwrap(), disk.file_len(&path).unwrap()),
        (14, 14)
    );
    let mut buffer = [1; 8];
    assert_eq!(file.read_at(&mut buffer, 0).unwrap(), 8);
    assert_eq!(&buffer, b"\0\0\0\x000123");
    assert_eq!(
        file.read_at_nowait(&mut buffer, 10).unwrap(),
        4,
        "just written, so in memory"
    );
    assert_eq!(&buffer[..4], b"6789");
    assert_eq!(file.read_at(&mut buffer, 14).unwrap(), 0);
    file.set_len(5).unwrap();
    file.read_ahead(0, 5);
    assert!(file.descriptor().is_some());
    disk.sync_dir(temporary.path()).unwrap();
    disk.sync_file_system(temporary.path()).unwrap();
    let space = disk.space(temporary.path()).unwrap();
    assert!(space.usable_bytes > 0 && space.usable_bytes <= space.total_bytes);
    assert!(disk.modified_ms(&path).unwrap() > 1_600_000_000_000);
    let names: Vec<_> = disk.read_dir(temporary.path()).unwrap();
    assert_eq!((names[0].name.as_str(), names[0].is_dir), ("file", false));
    disk.rename(&path, &temporary.path().join("other")).unwrap();
    assert_eq!(file.len().unwrap(), 5, "an open file follows its new name");
    disk.remove_file(&temporary.path().join("other")).unwrap();
    assert_eq!(file.len().unwrap(), 5, "and outlives it");
    assert!(!disk.exists(&path).unwrap());
}

#[test]
fn a_log_lives_on_a_real_disk() {
    let temporary = tempfile::tempdir().unwrap();
    let disk = FaultyDisk::new(Arc::new(RealDisk));
    let request = |config: &LogConfig, state| pyrklog_log::OpenRequest {
        env: LogEnv::new(Arc::new(disk.clone()), 16),
        log_dir: temporary.path(),
        topic: "t",
        partition: 0,
        topic_id: None,
        config: Arc::new(config.clone()),
        state,
        now_ms: 1_000,
        producer_id_expiration_ms: 1_000,
    };
    let mut rig = Rig::new(small());
    let (log, report) = pyrklog_log::Log::open(request(&small(), OpenState::default())).unwrap();
    assert!(report.created);
    rig.log = log;
    for i in 0..50 {
        rig.put(&[&format!("{i}"), "0123456789"]);
    }
    rig.sync(pyrklog_log::SyncScope::Written);
    assert_eq!(rig.log.synced_end(), 100);
    assert_eq!(rig.contents().len(), 100);
    let (log, report) = pyrklog_log::Log::open(request(&small(), rig.state(false))).unwrap();
    assert_eq!(report.recovered_segments, 1);
    rig.log = log;
    rig.drain();
    assert_eq!(rig.contents().len(), 100);
}

#[test]
fn a_line_whose_writing_failed_is_removed_again() {
    let memory = MemDisk::default();
    let disk = FaultyDisk::new(Arc::new(memory.clone()));
    let env = LogEnv::new(Arc::new(disk.clone()), 16);
    let dir = LogDir::open(env, Path::new(DIR), &identity()).unwrap();
    let copy = format!("t-0.{:032x}-future", 7);
    let begin_leaving = || dir.begin_leaving("t", 0, &copy, "/elsewhere".to_owned());
    // Nothing was written: there is no line, not even in memory.
    disk.fail(Operation::Open, "leaving", 0, 1, Fault::NoDescriptor);
    begin_leaving().unwrap_err();
    assert!(dir.leaving().is_empty());
    // The file has its name, perhaps not durably.
    disk.fail(Operation::SyncDir, DIR, 0, 1, Fault::InputOutput);
    begin_leaving().unwrap_err();
    assert!(text(&memory, ".pyrklog-leaving").starts_with("t-0 "));
    dir.end_leaving("t", 0).unwrap();
    assert_eq!(
        memory.content(&Path::new(DIR).join(".pyrklog-leaving")),
        None
    );
    assert!(dir.leaving().is_empty());
}
