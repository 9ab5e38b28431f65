//! Logs with messages of formats 0 and 1 are converted when they are opened, rule by rule.

use std::path::Path;

use crate::common::old_messages::{
    CLEAN, FIRST, KILLED, OLD_CODECS, Old, messages, rec, records, recs, set, wrapped,
};
use crate::common::request;
use pyrklog_log::disk::Disk;
use pyrklog_log::disk::testing::Operation;
use pyrklog_log::transaction_index::{AbortedTxn, TransactionIndex};
use pyrklog_log::{
    BatchInfo, Isolation, Log, OpenReport, OpenRequest, OpenState, Origin, TimeSpec, Wait,
};
use pyrklog_wire::batch::{Batches, Compression, set_base_offset, set_partition_leader_epoch};
use pyrklog_wire::builder::BatchBuilder;
use pyrklog_wire::message_set::{MAGIC_0, MAGIC_1};

fn batch(base_offset: i64, epoch: i32, values: &[&str]) -> Vec<u8> {
    let mut builder = BatchBuilder::new();
    for value in values {
        builder.append(20_000, Some(b"key"), Some(value.as_bytes()));
    }
    let mut batch = builder.build();
    set_base_offset(&mut batch, base_offset);
    set_partition_leader_epoch(&mut batch, epoch);
    batch
}

fn append(log: &mut Log, value: &str) -> i64 {
    let mut builder = BatchBuilder::new();
    builder.append(30_000, Some(b"key"), Some(value.as_bytes()));
    let mut batch = builder.build();
    let info = BatchInfo::parse(&batch).unwrap();
    let appended = log.append(&mut batch, &info, Origin::Client, 4, 1_000);
    appended.unwrap().base_offset
}

#[test]
fn every_format_and_codec_keeps_its_records() {
    for magic in [MAGIC_0, MAGIC_1] {
        for codec in OLD_CODECS {
            for append_time in [false, true] {
                let mut expected = recs(magic, 0..700);
                if append_time && magic == MAGIC_1 {
                    expected.iter_mut().for_each(|one| one.timestamp = 5_000);
                }
                expected[3].key = None;
                expected[4].value = None;
                let chunks = expected.chunks(50);
                let content: Vec<u8> = chunks
                    .flat_map(|chunk| set(magic, codec, append_time, chunk))
                    .collect();
                let old = Old::new(&[(FIRST, &content)]);
                let (mut log, report) = old.open(CLEAN);
                assert_eq!(report.converted_segments, 1, "{magic} {codec:?}");
                assert_eq!((report.truncated_bytes, report.recovered_segments), (0, 0));
                assert!(records(&log) == expected, "{magic} {codec:?} {append_time}");
                assert_eq!(log.end_offset_for_epoch(0), (0, 700));
                let stored = old.file(FIRST).unwrap();
                let headers = Batches::new(&stored).map(|view| view.unwrap().header);
                for header in headers {
                    assert_eq!(header.compression(), Ok(codec));
                    let is_brokers = append_time && magic == MAGIC_1;
                    assert_eq!(header.is_log_append_time(), is_brokers);
                }
                assert!(stored.len() < content.len() + content.len() / 8);
                assert_eq!(append(&mut log, "more"), 700);
            }
        }
    }
}

#[test]
fn times_are_found() {
    let content: Vec<u8> = recs(MAGIC_1, 0..300)
        .chunks(10)
        .flat_map(|chunk| set(MAGIC_1, Compression::Gzip, false, chunk))
        .collect();
    let mut old = Old::new(&[(FIRST, &content)]);
    old.config.index_interval_bytes = 100;
    let (log, _) = old.open(CLEAN);
    let at = |spec| {
        let query = log.offset_for_time(spec, Isolation::HighWatermark);
        let found = query.resolve(Wait::Blocking).unwrap();
        found.map(|found| (found.offset, found.timestamp))
    };
    for offset in 0..300 {
        assert_eq!(
            at(TimeSpec::At(10_000 + offset)),
            Some((offset, 10_000 + offset))
        );
    }
    assert_eq!(at(TimeSpec::At(10_300)), None);
    assert_eq!(at(TimeSpec::MaxTimestamp), Some((299, 10_299)));
}

/// As after upgrades: the formats follow each other within a segment.
#[test]
fn formats_may_follow_each_other_and_later_segments_stay() {
    let mut content = set(MAGIC_0, Compression::None, false, &recs(MAGIC_0, 0..20));
    content.extend(set(
        MAGIC_0,
        Compression::Snappy,
        false,
        &recs(MAGIC_0, 20..30),
    ));
    content.extend(set(
        MAGIC_1,
        Compression::Lz4,
        false,
        &recs(MAGIC_1, 30..40),
    ));
    content.extend(set(
        MAGIC_1,
        Compression::None,
        false,
        &recs(MAGIC_1, 40..50),
    ));
    content.extend(batch(50, 3, &["new", "newer"]));
    let second = batch(52, 3, &["last"]);
    let old = Old::new(&[(FIRST, &content), ("00000000000000000052.log", &second)]);
    old.put("leader-epoch-checkpoint", b"0\n1\n3 50\n");
    let (log, report) = old.open(CLEAN);
    assert_eq!(report.converted_segments, 1);
    let mut expected = recs(MAGIC_0, 0..30);
    expected.extend(recs(MAGIC_1, 30..50));
    let found = records(&log);
    assert_eq!(found[..50], expected);
    assert_eq!((found.len(), found[52].offset), (53, 52));
    assert_eq!(old.file("00000000000000000052.log").unwrap(), second);
    for (epoch, end) in [(0, 50), (3, 53)] {
        assert_eq!(log.end_offset_for_epoch(epoch), (epoch, end));
    }
    drop(log);
    assert_eq!(
        old.file("leader-epoch-checkpoint").unwrap(),
        b"0\n2\n0 0\n3 50\n"
    );
    let before = old.names();
    let (log, report) = old.open(CLEAN);
    assert_eq!(report, OpenReport::default(), "once");
    assert_eq!((records(&log), old.names()), (found, before));
}

/// As Kafka did when an operator lowered the format: it removed the epochs.
#[test]
fn old_messages_behind_batches_are_found_and_epochs_never_fall() {
    let mut first = batch(0, 6, &["a", "b"]);
    first.extend(set(MAGIC_1, Compression::None, false, &recs(MAGIC_1, 2..5)));
    let second = set(MAGIC_1, Compression::Gzip, false, &recs(MAGIC_1, 5..9));
    let mut third = batch(9, 8, &["c"]);
    third.extend(batch(10, 8, &["d"]));
    let segments: [(&str, &[u8]); 3] = [
        (FIRST, &first),
        ("00000000000000000005.log", &second),
        ("00000000000000000009.log", &third),
    ];
    for epochs in [None, Some("0\n1\n8 9\n")] {
        let old = Old::new(&segments);
        if let Some(epochs) = epochs {
            old.put("leader-epoch-checkpoint", epochs.as_bytes());
        }
        let (log, report) = old.open(KILLED);
        assert_eq!((report.converted_segments, report.truncated_bytes), (2, 0));
        let offsets: Vec<i64> = records(&log).iter().map(|one| one.offset).collect();
        assert_eq!(offsets, (0..11).collect::<Vec<_>>());
        assert_eq!(log.end_offset_for_epoch(6), (6, 9));
        assert_eq!(log.end_offset_for_epoch(8), (8, 11));
    }
}

/// Someone put old segments under epochs of another log.
#[test]
fn messages_below_known_epochs_are_converted_when_recovery_meets_them() {
    let content = set(MAGIC_1, Compression::Gzip, false, &recs(MAGIC_1, 0..4));
    for state in [KILLED, CLEAN] {
        let old = Old::new(&[(FIRST, &content)]);
        old.put("leader-epoch-checkpoint", b"0\n1\n3 0\n");
        let (log, report) = old.open(state);
        assert_eq!((report.converted_segments, report.truncated_bytes), (1, 0));
        assert_eq!(records(&log), recs(MAGIC_1, 0..4));
    }
}

/// As versions of Kafka left logs: their epochs reach down over segments that have none. Each log is
/// looked at once.
#[test]
fn old_segments_below_known_epochs_are_found_at_the_first_opening() {
    let new = |base_offset| batch(base_offset, 3, &["new"]);
    let second = set(MAGIC_1, Compression::Gzip, false, &recs(MAGIC_1, 1..6));
    let segments: [(&str, &[u8]); 4] = [
        (FIRST, &new(0)),
        ("00000000000000000001.log", &second),
        ("00000000000000000006.log", &new(6)),
        ("00000000000000000007.log", &[0; 100]),
    ];
    let old = Old::new(&segments);
    old.put("leader-epoch-checkpoint", b"0\n1\n3 0\n");
    let state = OpenState {
        recovery_point: 6,
        ..CLEAN
    };
    let (log, report) = old.open_as_found(state);
    assert_eq!(report.converted_segments, 1, "{report:?}");
    let offsets: Vec<i64> = records(&log).iter().map(|one| one.offset).collect();
    assert_eq!(offsets, (0..7).collect::<Vec<_>>());
    assert_eq!(log.end_offset_for_epoch(3), (3, 7));
    let stored = old.file("00000000000000000001.log").unwrap();
    let epochs = Batches::new(&stored).map(|view| view.unwrap().header.partition_leader_epoch);
    assert_eq!(epochs.collect::<Vec<_>>(), [3]);
    drop(log);

    let reads = old.disk.count(Operation::Open);
    let (_, report) = old.open_as_found(state);
    let once_more = old.disk.count(Operation::Open) - reads;
    assert_eq!(report, OpenReport::default());
    old.memory
        .remove_file(Path::new("/data/.pyrklog-unseen"))
        .unwrap();
    let reads = old.disk.count(Operation::Open);
    old.open_as_found(state);
    assert_eq!(
        old.disk.count(Operation::Open) - reads,
        once_more + 5,
        "each segment, and the file is written"
    );
}

/// Logs that are opened by a later run, however this one ends.
#[test]
fn logs_that_no_run_has_opened_stay_unseen() {
    let new = batch(0, 3, &["new"]);
    let second = set(MAGIC_1, Compression::Gzip, false, &recs(MAGIC_1, 1..6));
    let last = batch(6, 3, &["new"]);
    for orderly in [false, true] {
        let old = Old::new(&[
            (FIRST, &new),
            ("00000000000000000001.log", &second),
            ("00000000000000000006.log", &last),
        ]);
        old.put("leader-epoch-checkpoint", b"0\n1\n3 0\n");
        old.memory.create_dir_all(Path::new("/data/u-0")).unwrap();
        let (files, folders) = old.found();
        assert_eq!(folders.len(), 2);
        let request = request(files.env().clone(), &old.config, CLEAN, 1_000);
        Log::open(OpenRequest {
            topic: "u",
            ..request
        })
        .unwrap();
        if orderly {
            files.leave_unseen().unwrap();
            let unseen = old.memory.content(Path::new("/data/.pyrklog-unseen"));
            assert_eq!(unseen.unwrap(), b"t-0\n");
        }
        drop(files);
        let (_, report) = old.open_as_found(CLEAN);
        assert_eq!(report.converted_segments, 1, "{orderly}");
    }
}

#[test]
fn a_log_that_begins_within_an_old_segment() {
    let mut content = set(MAGIC_0, Compression::None, false, &recs(MAGIC_0, 0..10));
    content.extend(batch(10, 3, &["a", "b", "c"]));
    let old = Old::new(&[(FIRST, &content)]);
    old.put("leader-epoch-checkpoint", b"0\n1\n3 11\n");
    let (log, report) = old.open(OpenState {
        log_start_offset: 11,
        ..CLEAN
    });
    assert_eq!(report.converted_segments, 1);
    let values: Vec<_> = records(&log)
        .into_iter()
        .map(|one| one.value.unwrap())
        .collect();
    assert_eq!(values, [b"b", b"c"]);
}

#[test]
fn gaps_of_compaction_stay() {
    for magic in [MAGIC_0, MAGIC_1] {
        let plain = recs(magic, [3, 7, 8, 300, 301]);
        let wrapped = recs(magic, [310, 312, 390]);
        let mut content = set(magic, Compression::None, false, &plain);
        content.extend(set(magic, Compression::Gzip, false, &wrapped));
        let old = Old::new(&[(FIRST, &content)]);
        let (log, report) = old.open(KILLED);
        assert_eq!(report.truncated_bytes, 0);
        assert_eq!(records(&log), [plain, wrapped].concat());
        assert_eq!(log.log_end_offset(), 391);
    }
}

/// A crash of Kafka tore its last message.
#[test]
fn a_torn_message_at_the_end_is_cut() {
    let mut content = set(MAGIC_1, Compression::Snappy, false, &recs(MAGIC_1, 0..5));
    let whole = content.len();
    content.extend(messages(
        MAGIC_1,
        false,
        &[rec(5, 10_005, "the sixth value")],
    ));
    for cut in whole + 1..content.len() {
        for zeros in [0, 100] {
            let mut torn = content[..cut].to_vec();
            let torn_bytes = torn.len() - whole;
            torn.resize(cut + zeros, 0);
            let old = Old::new(&[(FIRST, &torn)]);
            let (mut log, report) = old.open(KILLED);
            assert!(report.truncated_bytes >= torn_bytes as u64, "{cut}");
            assert_eq!(records(&log), recs(MAGIC_1, 0..5), "{cut}");
            assert_eq!(append(&mut log, "next"), 5);
        }
    }
}

#[test]
fn a_rest_in_the_middle_of_the_log_is_kept_beside_it() {
    let mut first = set(MAGIC_1, Compression::None, false, &recs(MAGIC_1, 0..5));
    first.extend([0xff; 50]);
    let second = set(MAGIC_1, Compression::None, false, &recs(MAGIC_1, 6..9));
    let old = Old::new(&[(FIRST, &first), ("00000000000000000006.log", &second)]);
    let (log, report) = old.open(CLEAN);
    assert_eq!((report.converted_segments, report.truncated_bytes), (2, 50));
    let offsets: Vec<i64> = records(&log).iter().map(|one| one.offset).collect();
    assert_eq!(offsets, [0, 1, 2, 3, 4, 6, 7, 8]);
    assert_eq!(
        old.file("00000000000000000000.log.cut").unwrap(),
        [0xff; 50]
    );
}

/// No broker reads the record, and consumers are told so, at its offset.
#[test]
fn a_message_with_a_wrong_checksum_is_a_damaged_batch() {
    for codec in [Compression::None, Compression::Gzip] {
        let mut content = set(MAGIC_1, codec, false, &recs(MAGIC_1, 0..3));
        let at = content.len();
        content.extend(set(MAGIC_1, codec, false, &recs(MAGIC_1, 3..4)));
        let end = content.len();
        content.extend(set(MAGIC_1, codec, false, &recs(MAGIC_1, 4..6)));
        content[end - 1] ^= 1;
        let old = Old::new(&[(FIRST, &content)]);
        let (log, report) = old.open(CLEAN);
        assert_eq!(report.truncated_bytes, 0);
        assert!(
            report
                .notes
                .iter()
                .any(|note| note.contains("damaged batches"))
        );
        let mut expected = recs(MAGIC_1, 0..6);
        expected.remove(3);
        assert_eq!(records(&log), expected, "{codec:?}");
        let stored = old.file(FIRST).unwrap();
        let damaged = Batches::new(&stored).map(Result::unwrap);
        let damaged = damaged.filter(|view| pyrklog_wire::batch::verify_crc(view.bytes).is_err());
        let damaged: Vec<_> = damaged
            .map(|view| (view.header.base_offset, view.body().to_vec()))
            .collect();
        assert_eq!(damaged, [(3, content[at..end].to_vec())]);

        // Recovery cuts there, as it cuts at a damaged batch, and as Kafka did.
        let old = Old::new(&[(FIRST, &content)]);
        let (mut log, report) = old.open(KILLED);
        assert!(report.truncated_bytes > 0);
        assert_eq!(records(&log), recs(MAGIC_1, 0..3), "{codec:?}");
        assert_eq!(append(&mut log, "next"), 3);
    }
}

/// The checksum is right, so nothing was lost: recovery keeps it and what follows.
#[test]
fn compressed_messages_that_cannot_be_read_stay_in_their_place() {
    let (gzip, zstd) = (Compression::Gzip as i8, Compression::Zstd as i8);
    let good = messages(MAGIC_1, false, &recs(MAGIC_1, 0..2));
    let nested = wrapped((MAGIC_1, gzip), Compression::Gzip, &good, 1, 9);
    let mut no_value = Vec::new();
    pyrklog_wire::message_set::write_message(&mut no_value, (MAGIC_1, gzip), 5, 9, None, None);
    let mut spoiled = good.clone();
    *spoiled.last_mut().unwrap() ^= 1;
    let falling = messages(MAGIC_1, false, &recs(MAGIC_1, [1, 0]));
    let bomb = vec![0; 200 << 20];
    let wrap = |inner: &[u8]| wrapped((MAGIC_1, gzip), Compression::Gzip, inner, 5, 9);
    for (what, message) in [
        ("nested", wrap(&nested)),
        ("without value", no_value),
        ("empty", wrap(&[])),
        ("a wrong checksum within", wrap(&spoiled)),
        ("falling offsets", wrap(&falling)),
        ("a bomb", wrap(&bomb)),
        (
            "another codec than it says",
            wrapped((MAGIC_1, 2), Compression::Gzip, &good, 5, 9),
        ),
        (
            "zstd",
            wrapped((MAGIC_1, zstd), Compression::Gzip, &good, 5, 9),
        ),
        (
            "an unknown codec",
            wrapped((MAGIC_1, 7), Compression::Gzip, &good, 5, 9),
        ),
        (
            "format 0 within",
            wrap(&messages(MAGIC_0, false, &recs(MAGIC_0, 0..2))),
        ),
    ] {
        let mut content = messages(MAGIC_1, false, &recs(MAGIC_1, 0..3));
        content.extend(message);
        content.extend(messages(MAGIC_1, false, &recs(MAGIC_1, 6..8)));
        let old = Old::new(&[(FIRST, &content)]);
        let (log, report) = old.open(KILLED);
        assert_eq!(report.truncated_bytes, 0, "{what}");
        let expected = [recs(MAGIC_1, 0..3), recs(MAGIC_1, 6..8)].concat();
        assert_eq!(records(&log), expected, "{what}");
        let stored = old.file(FIRST).unwrap();
        let offsets: Vec<_> = Batches::new(&stored)
            .map(|view| view.unwrap().header.base_offset)
            .collect();
        assert_eq!(offsets, [0, 5, 6], "{what}");
    }
}

/// Offsets that lie must not reach into other segments, which a swap would remove.
#[test]
fn offsets_outside_of_the_segment_are_not_believed() {
    for wrong in [-1, 2, 20, 1 << 40, i64::MAX] {
        for codec in [Compression::None, Compression::Gzip] {
            let first = messages(MAGIC_1, false, &recs(MAGIC_1, 0..10));
            let mut second = messages(MAGIC_1, false, &recs(MAGIC_1, 10..12));
            second.extend(set(MAGIC_1, codec, false, &[rec(wrong, 10_012, "lost")]));
            second.extend(messages(MAGIC_1, false, &recs(MAGIC_1, 13..15)));
            let third = messages(MAGIC_1, false, &recs(MAGIC_1, 15..18));
            let old = Old::new(&[
                (FIRST, &first),
                ("00000000000000000010.log", &second),
                ("00000000000000000015.log", &third),
            ]);
            let (log, report) = old.open(CLEAN);
            assert_eq!(report.converted_segments, 3);
            let mut expected = recs(MAGIC_1, 0..18);
            expected.remove(12);
            assert_eq!(records(&log), expected, "{wrong} {codec:?}");
            assert_eq!(log.log_end_offset(), 18);
        }
    }
}

/// Records below the segment are those of the one before.
#[test]
fn a_wrapper_that_begins_below_its_segment_keeps_the_records_in_it() {
    for magic in [MAGIC_0, MAGIC_1] {
        for first_offset in [3, 7, 9] {
            let first = messages(magic, false, &recs(magic, 0..8));
            let across: Vec<i64> = (first_offset..12).collect();
            let across = recs(magic, across.into_iter().filter(|offset| *offset != 10));
            let mut second = set(magic, Compression::Gzip, false, &across);
            second.extend(set(magic, Compression::Gzip, false, &recs(magic, 3..5)));
            let old = Old::new(&[(FIRST, &first), ("00000000000000000008.log", &second)]);
            let (log, report) = old.open(CLEAN);
            let mut expected = recs(magic, 0..12);
            expected.retain(|one| one.offset < 8 || across.contains(one));
            assert_eq!(records(&log), expected, "{magic} {first_offset}");
            let is_told = report
                .notes
                .iter()
                .any(|note| note.contains("1 of them cannot"));
            assert!(is_told, "the last one has none of the segment");
        }
    }
}

#[test]
fn a_damaged_size_costs_its_message_alone() {
    let len = messages(MAGIC_1, false, &recs(MAGIC_1, 3..4)).len() as i32;
    for size in [
        i32::MIN,
        -1,
        0,
        13,
        14,
        20,
        len,
        len + 5,
        2 * len - 12,
        1_000,
        1 << 30,
        i32::MAX,
    ] {
        let mut content = messages(MAGIC_1, false, &recs(MAGIC_1, 0..3));
        let at = content.len();
        content.extend(messages(MAGIC_1, false, &recs(MAGIC_1, 3..6)));
        content[at + 8..at + 12].copy_from_slice(&size.to_be_bytes());
        let old = Old::new(&[(FIRST, &content)]);
        let (mut log, report) = old.open(CLEAN);
        assert_eq!(report.truncated_bytes, 0, "{size}");
        let mut expected = recs(MAGIC_1, 0..6);
        // Two that look like one are one, whose checksum is wrong.
        expected.retain(|one| one.offset != 3 && (one.offset != 4 || size != 2 * len - 12));
        assert_eq!(records(&log), expected, "{size}");
        let stored = old.file(FIRST).unwrap();
        let damaged = Batches::new(&stored).map(Result::unwrap);
        let damaged = damaged.filter(|view| pyrklog_wire::batch::verify_crc(view.bytes).is_err());
        let damaged: Vec<_> = damaged.map(|view| view.header.base_offset).collect();
        assert_eq!(damaged, [3], "{size}");
        assert_eq!(append(&mut log, "next"), 6);
    }
}

/// Messages within it are not taken for its successors.
#[test]
fn a_wrapper_with_a_damaged_size_costs_its_messages_alone() {
    for magic in [MAGIC_0, MAGIC_1] {
        for codec in OLD_CODECS {
            for size in [-1, 20, 1_000_000] {
                let mut content = set(magic, codec, false, &recs(magic, 0..2));
                let at = content.len();
                content.extend(set(magic, codec, false, &recs(magic, 2..9)));
                content.extend(set(magic, codec, false, &recs(magic, 9..12)));
                content[at + 8..at + 12].copy_from_slice(&i32::to_be_bytes(size));
                let old = Old::new(&[(FIRST, &content)]);
                let (log, report) = old.open(CLEAN);
                assert_eq!(report.truncated_bytes, 0);
                let lost = if codec == Compression::None {
                    2..3
                } else {
                    2..9
                };
                let mut expected = recs(magic, 0..12);
                expected.retain(|one| !lost.contains(&one.offset));
                assert_eq!(records(&log), expected, "{magic} {codec:?} {size}");
            }
        }
    }
}

#[test]
fn aborted_transactions_behind_old_messages_stay_known() {
    let mut content = messages(MAGIC_1, false, &recs(MAGIC_1, 0..5));
    let mut sent = BatchBuilder::new().producer(9, 0, 0).transactional();
    sent.append(20_000, None, Some(b"aborted"));
    let mut sent = sent.build();
    set_base_offset(&mut sent, 5);
    set_partition_leader_epoch(&mut sent, 2);
    content.extend(sent);
    let mut marker = pyrklog_wire::builder::transaction_marker(9, 0, false, 0, 20_001);
    set_base_offset(&mut marker, 6);
    set_partition_leader_epoch(&mut marker, 2);
    content.extend(marker);
    let next = batch(7, 2, &["next"]);
    let mut index = TransactionIndex::new(0);
    let aborted = AbortedTxn {
        producer_id: 9,
        first_offset: 5,
        last_offset: 6,
        last_stable_offset: 7,
    };
    index.append(aborted).unwrap();
    for (content_of_index, state) in [
        (index.to_bytes(), CLEAN),
        (b"damaged".to_vec(), CLEAN),
        (index.to_bytes(), KILLED),
    ] {
        let old = Old::new(&[(FIRST, &content), ("00000000000000000007.log", &next)]);
        old.put("00000000000000000000.txnindex", &content_of_index);
        let (log, report) = old.open(state);
        assert_eq!(report.converted_segments, 1);
        let location = log.locate(0, Isolation::Committed).unwrap();
        let slice = location.resolve(1 << 20, true, Wait::Blocking).unwrap();
        let found = log.aborted_transactions(&slice).unwrap().unwrap();
        assert_eq!(found, [aborted]);
    }
}
