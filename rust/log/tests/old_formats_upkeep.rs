//! Conversions of old segments among a log's other work: retention, compaction, a full disk, an
//! orderly end.

use std::path::Path;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Barrier};

use crate::common::cleaning::{CleanRig, compacted};
use crate::common::old_messages::{CLEAN, FIRST, Old, Rec, messages, rec, records, recs, set};
use crate::common::{DIR, FOLDER, batch, open_in, request};
use pyrklog_log::disk::Disk;
use pyrklog_log::disk::testing::{Fault, MemDisk, Operation};
use pyrklog_log::names::{FileKind, file_name};
use pyrklog_log::{ConversionListener, Log, LogConfig, LogEnv, OpenError, OpenRequest};
use pyrklog_wire::batch::{Compression, set_base_offset, set_partition_leader_epoch};
use pyrklog_wire::message_set::{MAGIC_0, MAGIC_1};

#[test]
fn retention_goes_by_the_old_segments_age() {
    let first = messages(MAGIC_0, false, &recs(MAGIC_0, 0..3));
    let second = messages(MAGIC_0, false, &recs(MAGIC_0, 3..5));
    let old = Old::new(&[(FIRST, &first), ("00000000000000000003.log", &second)]);
    let path = Path::new(FOLDER).join(FIRST);
    old.memory.set_modified_ms(&path, 77_000).unwrap();
    let (log, _) = old.open(CLEAN);
    assert_eq!(old.memory.modified_ms(&path).unwrap(), 77_000);
    assert_eq!(log.segment_count(), 2);
}

#[test]
fn a_full_disk_leaves_the_segment_as_it_was_and_takes_no_space() {
    let content: Vec<u8> = recs(MAGIC_1, 0..100)
        .chunks(10)
        .flat_map(|chunk| set(MAGIC_1, Compression::Gzip, false, chunk))
        .collect();
    let (mut no_room, mut undecided) = (0, 0);
    for (operation, fault) in [
        (Operation::Write, Fault::NoSpaceAfter(5)),
        (Operation::Sync, Fault::NoSpaceAfter(0)),
        (Operation::Open, Fault::NoDescriptor),
        (Operation::Rename, Fault::NoSpaceAfter(0)),
    ] {
        for skip in 0..40 {
            let old = Old::new(&[(FIRST, &content)]);
            old.disk.fail(operation, "0000", skip, usize::MAX, fault);
            let Err(error) = old.try_open(CLEAN) else {
                continue;
            };
            let is_no_room = matches!(error, OpenError::NoRoom(_));
            assert!(error.may_pass() || is_no_room, "{error}");
            no_room += usize::from(is_no_room);
            let names = old.names();
            let left = |suffix| names.iter().any(|name| name.ends_with(suffix));
            let is_decided = left(".swap") || old.file(FIRST).is_none_or(|file| file != content);
            assert!(is_decided || !left(".cleaned") || operation == Operation::Rename);
            undecided += usize::from(!is_decided);
            old.disk.heal();
            let (log, _) = old.open(CLEAN);
            assert_eq!(records(&log), recs(MAGIC_1, 0..100), "{operation:?} {skip}");
        }
    }
    assert!(no_room > 3 && undecided > 5, "{no_room} {undecided}");
}

/// What the directory's reserve will take is not free, unless it was taken.
#[test]
fn a_conversion_leaves_the_reserve() {
    let content = set(MAGIC_1, Compression::None, false, &recs(MAGIC_1, 0..100));
    let size = content.len();
    for (made, free, fits) in [
        (0, size + 999, false),
        (0, size + 1_100, true),
        (400, size + 599, false),
        (400, size + 700, true),
        (1_000, size - 1, false),
        (1_000, size + 100, true),
    ] {
        let old = Old::new(&[(FIRST, &content)]);
        old.memory
            .put(&Path::new(DIR).join(".pyrklog-reserve"), &vec![0; made]);
        old.disk.set_free_bytes(Some(free));
        let env = LogEnv::new(Arc::new(old.disk.clone()), 16);
        env.set_reserve_bytes(1_000);
        match open_in(env, &old.config, CLEAN, 1_000) {
            Ok((_, report)) => assert!(fits && report.converted_segments == 1, "{made} {free}"),
            Err(error) => {
                assert!(matches!(error, OpenError::NoRoom(_)), "{error}");
                assert!(
                    !fits && error.to_string().contains("make room"),
                    "{made} {free}"
                );
                assert!(!old.names().iter().any(|name| name.ends_with(".cleaned")));
            }
        }
    }
}

/// Looks at the directory before each entry that is converted.
#[derive(Debug)]
struct Onlooker {
    memory: MemDisk,
    looks: AtomicUsize,
    most: AtomicUsize,
}

impl ConversionListener for Onlooker {
    fn begins(&self, _folder: &Path, _segments: usize, _bytes: u64) {}

    fn may_go_on(&self) -> bool {
        let files = self.memory.files().into_iter();
        let copies = files.filter(|path| path.to_string_lossy().ends_with(".log.cleaned"));
        self.most.fetch_max(copies.count(), Ordering::SeqCst);
        self.looks.fetch_add(1, Ordering::SeqCst);
        std::thread::yield_now();
        true
    }
}

/// Each needs room for a copy, which several would take from each other.
#[test]
fn one_segment_of_a_directory_is_converted_at_a_time() {
    let memory = MemDisk::default();
    let content = messages(MAGIC_1, false, &recs(MAGIC_1, 0..300));
    for partition in 0..4 {
        let folder = Path::new(DIR).join(format!("t-{partition}"));
        memory.create_dir_all(&folder).unwrap();
        memory.put(&folder.join(FIRST), &content);
    }
    let onlooker = Arc::new(Onlooker {
        memory: memory.clone(),
        looks: AtomicUsize::new(0),
        most: AtomicUsize::new(0),
    });
    let env = LogEnv::new(Arc::new(memory.clone()), 16);
    let listener: Arc<dyn ConversionListener> = onlooker.clone();
    env.set_conversion_listener(Arc::downgrade(&listener));
    let together = Barrier::new(4);
    std::thread::scope(|scope| {
        for partition in 0..4 {
            let (env, together) = (env.clone(), &together);
            scope.spawn(move || {
                together.wait();
                let request = OpenRequest {
                    partition,
                    ..request(env, &LogConfig::default(), CLEAN, 1_000)
                };
                let (_, report) = Log::open(request).unwrap();
                assert_eq!(report.converted_segments, 1);
            });
        }
    });
    assert!(onlooker.looks.load(Ordering::SeqCst) >= 1_200);
    assert_eq!(onlooker.most.load(Ordering::SeqCst), 1);
}

/// Messages of a compacted topic, some of which have no key, as before 0.9.
#[test]
fn what_was_converted_is_compacted() {
    let mut rig = CleanRig::new(compacted(700));
    let keyed = |offset: i64, key: &str, value: Option<&str>| Rec {
        key: Some(key.as_bytes().to_vec()),
        value: value.map(|value| value.as_bytes().to_vec()),
        ..rec(offset, 10_000 + offset, "")
    };
    let keyless = Rec {
        key: None,
        ..rec(3, 10_003, "keyless")
    };
    let plain = [
        keyed(0, "a", Some("old")),
        keyed(1, "b", Some("old")),
        keyed(2, "c", Some("stays")),
        keyless,
    ];
    let later = [keyed(6, "b", None), keyed(8, "a", Some("older"))];
    let mut content = messages(MAGIC_1, false, &plain);
    content.extend(messages(MAGIC_1, false, &later));
    rig.rig.put_file(FIRST, &content);
    let report = rig.rig.reopen(CLEAN);
    assert_eq!(report.converted_segments, 1);
    rig.put(&[("a", Some("new"))]);
    rig.roll();
    assert!(rig.clean().unwrap());
    let mut values = rig.last_values();
    values.remove("filler");
    let expected = [("a", "new"), ("c", "stays")];
    let expected = expected.map(|(key, value)| (key.to_owned(), value.to_owned()));
    assert_eq!(values, expected.into());
    let offsets: Vec<i64> = rig.committed().iter().map(|one| one.0).collect();
    assert_eq!(offsets[..3], [2, 6, 9], "the tombstone stays for a while");
}

/// Counts, and ends the work after some entries.
#[derive(Debug, Default)]
struct Listener {
    begun: AtomicUsize,
    left: AtomicUsize,
}

impl ConversionListener for Listener {
    fn begins(&self, folder: &Path, segments: usize, bytes: u64) {
        assert_eq!((folder, segments), (Path::new(FOLDER), 2));
        assert!(bytes > 100);
        self.begun.fetch_add(1, Ordering::SeqCst);
    }

    fn may_go_on(&self) -> bool {
        let less = |left: usize| left.checked_sub(1);
        self.left
            .fetch_update(Ordering::SeqCst, Ordering::SeqCst, less)
            .is_ok()
    }
}

#[test]
fn a_conversion_is_told_and_can_be_stopped() {
    let first = messages(MAGIC_1, false, &recs(MAGIC_1, 0..6));
    let second = messages(MAGIC_1, false, &recs(MAGIC_1, 6..12));
    let old = Old::new(&[(FIRST, &first), ("00000000000000000006.log", &second)]);
    for left in [0, 3, 9] {
        let listener = Arc::new(Listener::default());
        listener.left.store(left, Ordering::SeqCst);
        let env = LogEnv::new(Arc::new(old.disk.clone()), 16);
        let as_listener: Arc<dyn ConversionListener> = listener.clone();
        env.set_conversion_listener(Arc::downgrade(&as_listener));
        let stopped = open_in(env, &old.config, CLEAN, 1_000);
        assert!(matches!(stopped, Err(OpenError::Stopped)), "{left}");
        assert_eq!(listener.begun.load(Ordering::SeqCst), 1);
        assert!(!old.names().iter().any(|name| name.ends_with(".cleaned")));
        if left < 6 {
            assert_eq!(old.file(FIRST).unwrap(), first);
        }
    }
    let (log, report) = old.open(CLEAN);
    assert_eq!(
        report.converted_segments, 1,
        "the first one was converted before"
    );
    let expected: Vec<Rec> = recs(MAGIC_1, 0..12);
    assert_eq!(records(&log), expected);
}

/// The epochs of later ones are known.
#[test]
fn only_segments_without_epochs_are_read_whole() {
    let opened = |later: i64| {
        let first = messages(MAGIC_1, false, &recs(MAGIC_1, 0..5));
        let old = Old::new(&[(FIRST, &first)]);
        for i in 0..later {
            let mut one = batch(20_000, &["new"]);
            set_base_offset(&mut one, 5 + i);
            set_partition_leader_epoch(&mut one, 3);
            old.put(&file_name(5 + i, FileKind::Log), &one);
        }
        // Without it all are read for their producers.
        let snapshot = file_name(5 + later, FileKind::Snapshot);
        old.put(&snapshot, &pyrklog_log::snapshot::encode(&[]));
        old.put("leader-epoch-checkpoint", b"0\n1\n3 5\n");
        let (log, report) = old.open(CLEAN);
        assert_eq!(report.converted_segments, 1);
        assert_eq!(log.end_offset_for_epoch(0), (0, 5));
        assert_eq!(log.end_offset_for_epoch(3), (3, 5 + later));
        old.disk.count(Operation::Read)
    };
    assert_eq!(opened(2), opened(30));
}
