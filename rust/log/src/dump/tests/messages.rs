//! Segments of old formats, as Kafka left them: shown and checked as they are.

use pyrklog_wire::message_set::{MAGIC_0, MAGIC_1, begin_wrapper, end_wrapper, write_message};

use super::*;
use crate::compression::{CompressedStream, Lz4Header};

const LOG: &str = "00000000000000000100.log";

fn message(offset: i64, timestamp: i64, value: &[u8]) -> Vec<u8> {
    let mut out = Vec::new();
    write_message(&mut out, (MAGIC_1, 0), offset, timestamp, None, Some(value));
    out
}

/// Offsets `last - 1` and `last`.
fn wrapper(magic: i8, last: i64) -> Vec<u8> {
    wrapper_of(magic, last, 2)
}

/// The last of so many offsets.
fn wrapper_of(magic: i8, last: i64, count: i64) -> Vec<u8> {
    let mut inner = Vec::new();
    for relative in 0..count {
        let timestamp = 3_000 + relative;
        let offset = if magic == MAGIC_0 {
            last - (count - 1) + relative
        } else {
            relative
        };
        write_message(
            &mut inner,
            (magic, 0),
            offset,
            timestamp,
            Some(b"k"),
            Some(b"inner"),
        );
    }
    let mut out = Vec::new();
    let start = begin_wrapper(&mut out, (magic, Compression::Gzip as i8));
    let stream = CompressedStream::new(Compression::Gzip, Lz4Header::Standard, out);
    let mut stream = stream.expect("a codec");
    stream.write(&inner).expect("in memory");
    let mut out = stream.finish().expect("in memory");
    end_wrapper(&mut out, start, last, 3_001);
    out
}

fn segment() -> Vec<u8> {
    [
        message(100, 2_000, b"a"),
        message(101, 2_001, b"b"),
        message(103, 1_999, b"c"),
        wrapper(MAGIC_1, 106),
        wrapper(MAGIC_0, 108),
        batch(109, 3, Compression::None),
    ]
    .concat()
}

#[test]
fn messages_are_shown_together_and_wrappers_alone() {
    let rows = log_rows(&segment(), VERIFY);
    assert_eq!(kinds(&rows), ["messages", "messages", "messages", "batch"]);
    let run = &rows[0];
    assert_eq!(
        (int(run, "base_offset"), int(run, "last_offset")),
        (100, 103)
    );
    assert_eq!((int(run, "count"), int(run, "format")), (3, 1));
    assert_eq!(int(run, "max_timestamp_ms"), 2_001);
    assert_eq!(field(&rows[1], "count"), Value::Null);
    assert_eq!(
        (int(&rows[1], "last_offset"), int(&rows[2], "format")),
        (106, 0)
    );
    assert_eq!(text(&rows[2], "compression"), "gzip");
}

#[test]
fn records_have_their_offsets() {
    let rows = log_rows(&segment(), RECORDS);
    let records = rows.iter().filter(|row| text(row, "kind") == "record");
    let offsets: Vec<i64> = records.map(|row| int(row, "offset")).collect();
    assert_eq!(offsets, [100, 101, 103, 105, 106, 107, 108, 109, 110]);
    let of_format_0 = rows.iter().filter(|row| text(row, "kind") == "record");
    let of_format_0 = of_format_0.filter(|row| matches!(int(row, "offset"), 107 | 108));
    assert!(
        of_format_0
            .into_iter()
            .all(|row| int(row, "timestamp_ms") == -1)
    );
}

#[test]
fn rows_of_messages_in_a_wrapper_are_made_some_at_a_time() {
    let count = RECORDS_MAX as i64 + 1;
    for magic in [MAGIC_0, MAGIC_1] {
        let bytes = wrapper_of(magic, 99 + count, count);
        let (counts, rows) = made(&bytes, RECORDS);
        assert_eq!(counts, [1, 1000, 1, 0, 0]);
        let expected: Vec<i64> = (100..100 + count).collect();
        assert_eq!(offsets_of_records(&rows), expected);
    }
}

#[test]
fn damage_is_told_and_what_follows_is_shown() {
    let good = segment();
    let end_of_first = message(100, 2_000, b"a").len();
    let mut spoiled = good.clone();
    spoiled[end_of_first - 1] ^= 1;
    let rows = log_rows(&spoiled, VERIFY);
    assert_eq!(
        kinds(&rows),
        [
            "messages", "damage", "messages", "messages", "messages", "batch"
        ]
    );
    assert_eq!(field(&rows[0], "valid"), Value::Bool(false));

    let falling = [message(105, 1, b"a"), message(104, 2, b"b")].concat();
    let rows = log_rows(&falling, PLAIN);
    assert_eq!(kinds(&rows), ["messages", "damage", "messages"]);
    assert_eq!(
        damages(&rows)[0].1,
        "the offset is 104, at least 106 is expected"
    );

    // A size that lies: the batch behind is found.
    let mut lying = good.clone();
    lying[8..12].copy_from_slice(&i32::MAX.to_be_bytes());
    assert_eq!(kinds(&log_rows(&lying, PLAIN)), ["damage", "batch"]);
    for cut in 1..end_of_first {
        let rows = log_rows(&good[..cut], VERIFY);
        assert_eq!(kinds(&rows), ["damage"], "{cut}");
    }
}

/// Kafka made one entry for the messages of a request, with the last one's offset.
#[test]
fn indexes_are_checked_against_messages() {
    let log = segment();
    let third = message(100, 0, b"a").len() as u32 * 2;
    let fourth = third * 3 / 2;
    for (offset, position, is_sound) in [
        (103, third, true),
        (106, third, true),
        (106, fourth, true),
        (102, third, false),
        (106, fourth + 1, false),
    ] {
        let mut index = OffsetIndex::new(100, 1_000);
        index.append(offset, position).expect("room");
        let beside = Beside {
            log: Some(MemDisk::file(log.clone())),
            leader_epochs: None,
        };
        let name = LOG.replace("log", "index");
        let rows = rows_of(&name, index.as_bytes(), beside, VERIFY);
        assert_eq!(damages(&rows).is_empty(), is_sound, "{offset} {position}");
    }
    for (timestamp, offset, is_sound) in
        [(2_001, 101, true), (2_001, 103, true), (1_999, 103, false)]
    {
        let mut index = TimeIndex::new(100, 1_000);
        index.maybe_append(timestamp, offset, false).expect("room");
        let beside = Beside {
            log: Some(MemDisk::file(log.clone())),
            leader_epochs: None,
        };
        let name = LOG.replace("log", "timeindex");
        let rows = rows_of(&name, index.as_bytes(), beside, VERIFY);
        assert_eq!(damages(&rows).is_empty(), is_sound, "{timestamp} {offset}");
    }
}
