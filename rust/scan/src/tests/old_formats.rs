//! Messages of before Kafka 0.11.

use pyrklog_compression::{CompressedStream, Lz4Header};
use pyrklog_wire::batch::Compression;
use pyrklog_wire::builder::BatchBuilder;
use pyrklog_wire::message_set::{begin_wrapper, end_wrapper, write_message};

use super::{How, Read, all_columns, decode, rows_of};
use crate::error::ErrorKind;

const APPEND_TIME: i8 = 8;

fn read(records: &[u8], range: (i64, i64)) -> Vec<Read> {
    let how = How {
        range,
        ..How::default()
    };
    rows_of(&decode(how, &all_columns(), records, &[]).unwrap().0)
}

fn value_of(row: &Read) -> (i64, Option<i64>, i32, &[u8]) {
    let value = row.value.as_deref().unwrap();
    (row.offset, row.timestamp, row.timestamp_type, value)
}

/// Three messages in a compressed one, at offsets 5 to 7.
fn wrapper(magic: i8, attributes: i8, codec: Compression, lz4_header: Lz4Header) -> Vec<u8> {
    let mut set = Vec::new();
    for number in 0..3_i64 {
        let offset = if magic == 0 { 5 + number } else { number };
        let value = [number as u8];
        write_message(
            &mut set,
            (magic, 0),
            offset,
            100 + number,
            None,
            Some(&value),
        );
    }
    let mut out = Vec::new();
    let start = begin_wrapper(&mut out, (magic, codec as i8 | attributes));
    let mut stream = CompressedStream::new(codec, lz4_header, out).unwrap();
    stream.write(&set).unwrap();
    // The stream began behind what the wrapper had.
    let mut out = stream.finish().unwrap();
    end_wrapper(&mut out, start, 7, 999);
    out
}

#[test]
fn single_messages_are_rows() {
    let mut records = Vec::new();
    write_message(&mut records, (0, 0), 3, 0, Some(b"k"), Some(b"a"));
    write_message(&mut records, (1, 0), 4, 77, None, Some(b"b"));
    write_message(&mut records, (1, APPEND_TIME), 5, 78, None, Some(b"c"));
    let mut batch = BatchBuilder::new().base_offset(6);
    batch.append(79, None, Some(b"d"));
    records.extend(batch.build());
    let rows = read(&records, (0, 100));
    let found: Vec<_> = rows.iter().map(value_of).collect();
    assert_eq!(
        found,
        [
            (3, None, -1, &b"a"[..]),
            (4, Some(77_000), 0, b"b"),
            (5, Some(78_000), 1, b"c"),
            (6, Some(79_000), 0, b"d"),
        ]
    );
    assert_eq!(rows[0].key.as_deref(), Some(&b"k"[..]));
}

#[test]
fn compressed_messages_are_the_rows_in_them() {
    for codec in [Compression::Gzip, Compression::Snappy, Compression::Lz4] {
        let old = wrapper(0, 0, codec, Lz4Header::Format0);
        let rows = read(&old, (0, 100));
        let found: Vec<_> = rows.iter().map(value_of).collect();
        let expected = [
            (5, None, -1, &[0][..]),
            (6, None, -1, &[1]),
            (7, None, -1, &[2]),
        ];
        assert_eq!(found, expected, "{codec:?}");

        let newer = wrapper(1, 0, codec, Lz4Header::Standard);
        let rows = read(&newer, (6, 100));
        let found: Vec<_> = rows.iter().map(value_of).collect();
        let expected = [(6, Some(101_000), 0, &[1][..]), (7, Some(102_000), 0, &[2])];
        assert_eq!(found, expected, "{codec:?}");

        let stamped = wrapper(1, APPEND_TIME, codec, Lz4Header::Standard);
        let rows = read(&stamped, (0, 7));
        let found: Vec<_> = rows.iter().map(value_of).collect();
        let expected = [(5, Some(999_000), 1, &[0][..]), (6, Some(999_000), 1, &[1])];
        assert_eq!(found, expected, "{codec:?}");
    }
}

#[test]
fn compressed_messages_that_hold_none_or_others_are_refused() {
    let refused = |set: &[u8], reason: &str| {
        let mut out = Vec::new();
        let start = begin_wrapper(&mut out, (1, Compression::Gzip as i8));
        let mut stream =
            CompressedStream::new(Compression::Gzip, Lz4Header::Standard, out).unwrap();
        stream.write(set).unwrap();
        let mut out = stream.finish().unwrap();
        end_wrapper(&mut out, start, 7, 1);
        let error = decode(How::default(), &all_columns(), &out, &[]).unwrap_err();
        assert_eq!(error.kind, ErrorKind::CorruptBatch);
        assert!(error.text.ends_with(reason), "{}", error.text);
    };
    refused(&[], "holds no message");
    let mut other = Vec::new();
    write_message(&mut other, (0, 0), 1, 0, None, None);
    refused(&other, "holds one of another format");
    let mut nested = Vec::new();
    write_message(&mut nested, (1, Compression::Gzip as i8), 1, 0, None, None);
    refused(&nested, "holds one of another format");
    let mut falling = Vec::new();
    write_message(&mut falling, (1, 0), 1, 0, None, None);
    write_message(&mut falling, (1, 0), 1, 0, None, None);
    refused(&falling, "do not rise");
}
