//! A conversion of old segments against the list of their records: whatever they hold, and wherever
//! a kill or a power loss ends it, the next opening has all of them.

use std::path::Path;
use std::sync::Arc;

use crate::common::killed_disk::KilledDisk;
use crate::common::old_messages::{OLD_CODECS, Rec, rec, records, set};
use crate::common::{DIR, FOLDER, open_in};
use proptest::prelude::*;
use pyrklog_arena::Fuse;
use pyrklog_log::compression::compress;
use pyrklog_log::disk::Disk;
use pyrklog_log::disk::testing::MemDisk;
use pyrklog_log::dump::{Beside, Options, Value, dump};
use pyrklog_log::names::{FileKind, file_name};
use pyrklog_log::{Log, LogConfig, LogEnv, OpenState};
use pyrklog_wire::batch::{Compression, set_base_offset, set_partition_leader_epoch};
use pyrklog_wire::builder::BatchBuilder;
use pyrklog_wire::message_set::{MAGIC_0, MAGIC_1};

/// What one append of Kafka left.
#[derive(Clone, Debug)]
struct Part {
    /// 2 for a record batch.
    magic: i8,
    codec: Compression,
    append_time: bool,
    /// Between the offsets of its records, and before the first one.
    gaps: Vec<i64>,
    value_bytes: usize,
    /// A segment ends before it.
    rolls: bool,
}

fn part() -> impl Strategy<Value = Part> {
    let magic = prop_oneof![2 => Just(MAGIC_0), 3 => Just(MAGIC_1), 1 => Just(2)];
    let codec = prop::sample::select(OLD_CODECS.to_vec());
    let gap = prop_oneof![8 => Just(1_i64), 1 => 2..40_i64, 1 => 200..900_i64];
    let gaps = prop::collection::vec(gap, 1..12);
    let rolls = prop::bool::weighted(0.25);
    let value_bytes = prop_oneof![5 => 0..60_usize, 1 => 3_000..9_000_usize];
    (magic, codec, any::<bool>(), gaps, value_bytes, rolls).prop_map(
        |(magic, codec, append_time, gaps, value_bytes, rolls)| Part {
            magic,
            codec,
            append_time,
            gaps,
            value_bytes,
            rolls,
        },
    )
}

/// The segments by base offset, and their records.
struct Written {
    segments: Vec<(i64, Vec<u8>)>,
    records: Vec<Rec>,
}

fn write(parts: &[Part]) -> Written {
    let mut written = Written {
        segments: vec![(0, Vec::new())],
        records: Vec::new(),
    };
    let mut next = 0;
    for part in parts {
        let is_filled = written
            .segments
            .last()
            .is_some_and(|(_, content)| !content.is_empty());
        if part.rolls && is_filled {
            written.segments.push((next, Vec::new()));
        }
        let mut recs = Vec::new();
        for gap in &part.gaps {
            let offset = next + gap - 1;
            let timestamp = match part.magic {
                MAGIC_0 => -1,
                _ if part.append_time => 5_000 + written.segments.len() as i64,
                _ => 9_000 + (offset * 7) % 300,
            };
            let mut one = rec(offset, timestamp, &"v".repeat(part.value_bytes));
            match offset % 11 {
                3 => one.key = None,
                5 => one.value = None,
                _ => {}
            }
            recs.push(one);
            next = offset + 1;
        }
        let bytes = match part.magic {
            2 => batch(part.codec, &recs),
            magic => set(magic, part.codec, part.append_time, &recs),
        };
        if let Some((_, content)) = written.segments.last_mut() {
            content.extend(bytes);
        }
        written.records.extend(recs);
    }
    written
}

/// A batch with gaps between its offsets.
fn batch(codec: Compression, recs: &[Rec]) -> Vec<u8> {
    let mut builder = BatchBuilder::new();
    let mut next = recs[0].offset;
    for one in recs {
        builder.skip_offsets((one.offset - next) as i32);
        builder.append(one.timestamp, one.key.as_deref(), one.value.as_deref());
        next = one.offset + 1;
    }
    let mut batch = builder.build_compressed(codec, |records| {
        let mut out = Vec::new();
        compress(codec, records, &mut out).unwrap();
        out
    });
    set_base_offset(&mut batch, recs[0].offset);
    set_partition_leader_epoch(&mut batch, 2);
    batch
}

fn folder(written: &Written) -> MemDisk {
    let memory = MemDisk::default();
    memory.create_dir_all(Path::new(FOLDER)).unwrap();
    for (base_offset, content) in &written.segments {
        let name = file_name(*base_offset, FileKind::Log);
        memory.put(&Path::new(FOLDER).join(name), content);
    }
    memory
}

fn config() -> LogConfig {
    LogConfig {
        index_interval_bytes: 300,
        // Gaps may lie between segments.
        cleanup_compact: true,
        ..LogConfig::default()
    }
}

fn open(disk: Arc<dyn Disk>, clean: bool) -> Result<Log, pyrklog_log::OpenError> {
    let state = OpenState {
        clean,
        ..OpenState::default()
    };
    open_in(LogEnv::new(disk, 16), &config(), state, 1_000).map(|(log, _)| log)
}

fn check(memory: &MemDisk, written: &Written, clean: bool) {
    let log = open(Arc::new(memory.clone()), clean).unwrap();
    assert!(records(&log) == written.records);
    let end = written.records.last().map_or(0, |one| one.offset + 1);
    assert_eq!(log.log_end_offset(), end);
    drop(log);
    for path in memory.files().iter().filter(|path| path.starts_with(DIR)) {
        let name = path.to_string_lossy();
        assert!(
            !name.ends_with(".cleaned") && !name.ends_with(".swap"),
            "{name}"
        );
        if name.ends_with(".metadata") {
            continue;
        }
        let file = memory.open(path, pyrklog_log::OpenMode::Read).unwrap();
        let beside = Beside {
            log: memory
                .content(&path.with_extension("log"))
                .map(MemDisk::file),
            leader_epochs: memory.content(&Path::new(FOLDER).join("leader-epoch-checkpoint")),
        };
        let options = Options {
            records: true,
            verify: true,
        };
        for row in dump(path, file, beside, options).unwrap() {
            let row = row.unwrap();
            assert!(
                row[0].1 != Value::Text("damage".to_owned()),
                "{name}: {row:?}"
            );
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 400, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn converted_logs_have_the_records_they_had(
        parts in prop::collection::vec(part(), 1..12),
        clean in any::<bool>(),
    ) {
        let written = write(&parts);
        let memory = folder(&written);
        check(&memory, &written, clean);
        let after_once = memory.files().len();
        check(&memory, &written, clean);
        prop_assert_eq!(memory.files().len(), after_once);
    }

    /// The bytes do not depend on how far the conversion had come.
    #[test]
    fn an_interrupted_conversion_ends_alike(
        parts in prop::collection::vec(part(), 1..8),
        steps in 0..120_i64,
        seed in any::<Option<u64>>(),
    ) {
        let written = write(&parts);
        let whole = folder(&written);
        check(&whole, &written, false);
        let memory = folder(&written);
        interrupt(&memory, steps, seed);
        check(&memory, &written, false);
        for path in whole.files() {
            if path.extension().is_some_and(|kind| kind == "log") {
                prop_assert_eq!(memory.content(&path), whole.content(&path));
            }
        }
    }
}

/// The process, or with a seed the machine, dies after some steps. True if it came to its end.
fn interrupt(memory: &MemDisk, steps: i64, seed: Option<u64>) -> bool {
    let fuse = Fuse::default();
    let disk = KilledDisk {
        inner: Arc::new(memory.clone()),
        fuse: fuse.clone(),
    };
    fuse.burn_after(steps);
    let opened = open(Arc::new(disk), true);
    let is_done = fuse.left() > 0;
    drop(opened);
    match seed {
        Some(seed) => memory.reboot(seed),
        None => memory.kill_process(),
    }
    is_done
}

#[test]
fn a_conversion_may_end_at_any_step() {
    let part = |magic, codec, rolls| Part {
        magic,
        codec,
        append_time: false,
        gaps: vec![1, 1, 3],
        value_bytes: 20,
        rolls,
    };
    let written = write(&[
        part(MAGIC_0, Compression::None, false),
        part(MAGIC_0, Compression::Gzip, false),
        part(MAGIC_1, Compression::Lz4, true),
        part(MAGIC_1, Compression::None, false),
        part(2, Compression::Gzip, false),
        part(2, Compression::None, true),
    ]);
    assert_eq!(written.segments.len(), 3);
    for seed in [None, Some(1), Some(2), Some(3)] {
        let mut steps = 0;
        loop {
            let memory = folder(&written);
            let is_done = interrupt(&memory, steps, seed);
            check(&memory, &written, false);
            if is_done {
                break;
            }
            steps += 1;
        }
        assert!(steps > 40, "{steps}");
    }
}

/// Kafka keeps the formats of what it compacts. It died after it had put the old segments aside and
/// before the new one had its name, which then is the only one with these records.
#[test]
fn a_compaction_of_old_messages_that_kafka_did_not_finish_is_finished() {
    for magic in [MAGIC_0, MAGIC_1] {
        for codec in OLD_CODECS {
            let kept = crate::common::old_messages::recs(magic, [1, 4, 9]);
            let last = crate::common::old_messages::recs(magic, 10..12);
            let memory = MemDisk::default();
            memory.create_dir_all(Path::new(FOLDER)).unwrap();
            let all = crate::common::old_messages::recs(magic, 0..10);
            for (name, content) in [
                (
                    "00000000000000000000.log.swap",
                    set(magic, codec, false, &kept),
                ),
                ("00000000000000000000.index.swap", Vec::new()),
                (
                    "00000000000000000000.log.deleted",
                    set(magic, codec, false, &all[..6]),
                ),
                (
                    "00000000000000000006.log.deleted",
                    set(magic, codec, false, &all[6..]),
                ),
                ("00000000000000000010.log", set(magic, codec, false, &last)),
            ] {
                memory.put(&Path::new(FOLDER).join(name), &content);
            }
            let written = Written {
                segments: Vec::new(),
                records: [kept, last].concat(),
            };
            check(&memory, &written, false);
        }
    }
}

/// It died a step earlier.
#[test]
fn the_sources_of_such_a_compaction_go() {
    let kept = crate::common::old_messages::recs(MAGIC_1, [1, 4, 9]);
    let all = crate::common::old_messages::recs(MAGIC_1, 0..12);
    let memory = MemDisk::default();
    memory.create_dir_all(Path::new(FOLDER)).unwrap();
    for (name, recs) in [
        ("00000000000000000000.log.swap", &kept[..]),
        ("00000000000000000000.log", &all[..6]),
        ("00000000000000000006.log", &all[6..10]),
        ("00000000000000000010.log", &all[10..]),
    ] {
        let content = set(MAGIC_1, Compression::Gzip, false, recs);
        memory.put(&Path::new(FOLDER).join(name), &content);
    }
    let written = Written {
        segments: Vec::new(),
        records: [&kept[..], &all[10..]].concat(),
    };
    check(&memory, &written, false);
}
