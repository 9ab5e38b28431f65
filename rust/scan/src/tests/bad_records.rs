//! Records whose values do not fit: kept as they are, with their places and reasons.

use arrow_array::cast::AsArray;
use arrow_array::types::{Int64Type, TimestampMillisecondType};
use arrow_array::{Array, RecordBatch};
use arrow_schema::{DataType, Field, Fields};
use pyrklog_wire::builder::BatchBuilder;
use pyrklog_wire::message_set::{MAGIC_0, MAGIC_1, write_message};

use crate::bad_rows::{BAD_RECORD_COLUMNS, BadRecords};
use crate::columns::{Column, Columns};
use crate::testing::{How, decode_with_bad};
use crate::typed::{Decoding, OnBad};

type Headers = Vec<(Vec<u8>, Option<Vec<u8>>)>;

#[derive(Debug, PartialEq, Eq)]
struct Bad {
    key: Option<Vec<u8>>,
    value: Vec<u8>,
    timestamp: Option<i64>,
    headers: Headers,
}

fn columns(on_bad: OnBad) -> Columns {
    let schema = Fields::from(vec![Field::new("id", DataType::Int64, false)]);
    let decoding = Decoding::new(&schema, None, on_bad).unwrap();
    Columns::decoded(&[Column::Offset, Column::Value], decoding)
}

fn offsets(batches: &[RecordBatch]) -> Vec<i64> {
    let of = |batch: &RecordBatch| {
        batch
            .column(0)
            .as_primitive::<Int64Type>()
            .values()
            .to_vec()
    };
    batches.iter().flat_map(of).collect()
}

fn read(all: &[BadRecords]) -> Vec<Bad> {
    let mut found = Vec::new();
    for one in all {
        let batch = &one.records;
        let schema = batch.schema();
        let names: Vec<&str> = schema.fields().iter().map(|one| &**one.name()).collect();
        assert_eq!(names, BAD_RECORD_COLUMNS);
        let keys = batch.column(0).as_binary::<i32>();
        let times = batch.column(3).as_primitive::<TimestampMillisecondType>();
        for row in 0..batch.num_rows() {
            let headers = batch.column(2).as_list::<i32>().value(row);
            let headers = headers.as_struct();
            let (names, values) = (headers.column(0), headers.column(1));
            let (names, values) = (names.as_binary::<i32>(), values.as_binary::<i32>());
            let header = |at| {
                let value = values.is_valid(at).then(|| values.value(at).to_vec());
                (names.value(at).to_vec(), value)
            };
            found.push(Bad {
                key: keys.is_valid(row).then(|| keys.value(row).to_vec()),
                value: batch.column(1).as_binary::<i32>().value(row).to_vec(),
                timestamp: times.is_valid(row).then(|| times.value(row)),
                headers: (0..headers.len()).map(header).collect(),
            });
        }
    }
    found
}

fn told(offset: i64, reason: &str) -> Headers {
    let place = offset.to_string();
    let sentence = format!(
        "topic topic partition 3 offset {offset}: the value does not fit the schema: {reason}"
    );
    [
        ("topic", "topic"),
        ("partition", "3"),
        ("offset", place.as_str()),
        ("connector.name", "who"),
        ("stage", "VALUE_CONVERTER"),
        ("exception.class.name", "pyrklog.scanning.BadValueError"),
        ("exception.message", sentence.as_str()),
    ]
    .iter()
    .map(|(name, text)| {
        let name = format!("__connect.errors.{name}").into_bytes();
        (name, Some(text.as_bytes().to_vec()))
    })
    .collect()
}

#[test]
fn a_bad_record_is_kept_as_it_is_behind_its_row() {
    let raw: [(&[u8], Option<&[u8]>); 3] = [
        (b"h\xff", Some(b"\0")),
        (b"__connect.errors.topic", Some(b"before")),
        (b"", None),
    ];
    let mut builder = BatchBuilder::new().base_offset(40);
    builder.append(7, Some(b"k"), Some(b"{\"id\":1}"));
    builder.append_with_headers(8, Some(b"k\xff"), Some(b"\xff"), &raw);
    builder.append(9, None, None);
    builder.append_with_headers(10, None, Some(b"[]"), &[]);
    let records = builder.build();
    for (on_bad, expected) in [
        (OnBad::Null, vec![40, 41, 42, 43]),
        (OnBad::Drop, vec![40, 42]),
    ] {
        for batch_rows in [1, 1000] {
            let how = How {
                batch_rows,
                ..How::default()
            };
            let (batches, bad, figures) =
                decode_with_bad(how, columns(on_bad), &records, "who").unwrap();
            assert_eq!(offsets(&batches), expected);
            assert_eq!((figures.bad, figures.position), (2, 44));
            let of_record = raw
                .iter()
                .map(|one| (one.0.to_vec(), one.1.map(<[u8]>::to_vec)));
            let mut headers: Headers = of_record.collect();
            headers.extend(told(41, "not UTF-8 at byte 0"));
            let reason = "invalid type: sequence, expected an object at line 1 column 2";
            let found = read(&bad);
            assert_eq!(
                found[0],
                Bad {
                    key: Some(b"k\xff".to_vec()),
                    value: b"\xff".to_vec(),
                    timestamp: Some(8),
                    headers,
                }
            );
            assert_eq!(
                (found[1].key.as_ref(), found[1].timestamp),
                (None, Some(10))
            );
            assert_eq!(found[1].headers, told(43, reason));
            assert_eq!(found.len(), 2);
        }
    }
}

#[test]
fn records_of_old_formats_have_no_headers_and_perhaps_no_time() {
    let mut set = Vec::new();
    write_message(&mut set, (MAGIC_0, 0), 0, -1, Some(b"k"), Some(b"x"));
    write_message(&mut set, (MAGIC_1, 0), 1, 77, None, Some(b"y"));
    let columns = columns(OnBad::Null);
    let (_, bad, _) = decode_with_bad(How::default(), columns, &set, "who").unwrap();
    let found = read(&bad);
    let times: Vec<_> = found.iter().map(|one| one.timestamp).collect();
    assert_eq!(times, [None, Some(77)]);
    let reason = "expected value at line 1 column 1";
    assert_eq!(found[0].headers, told(0, reason));
    assert_eq!(found[1].headers, told(1, reason));
}

#[test]
fn a_batch_is_full_of_bad_records_too() {
    const COUNT: i64 = 200;
    const BYTES: usize = 8 << 10;
    let mut builder = BatchBuilder::new();
    for _ in 0..COUNT {
        builder.append(1, None, Some(&[b'x'; 1000]));
    }
    let how = How {
        batch_bytes: BYTES,
        ..How::default()
    };
    let records = builder.build();
    let (batches, bad, figures) =
        decode_with_bad(how, columns(OnBad::Drop), &records, "who").unwrap();
    assert!(batches.iter().all(|batch| batch.num_rows() == 0));
    assert_eq!(batches.len(), bad.len());
    let sizes: Vec<usize> = bad.iter().map(|one| one.records.num_rows()).collect();
    assert_eq!(sizes.iter().sum::<usize>(), COUNT as usize);
    // A record has more than a thousand bytes, and less than two thousand with its headers.
    assert!(sizes.iter().all(|size| size * 1000 <= BYTES), "{sizes:?}");
    assert!(
        sizes
            .iter()
            .rev()
            .skip(1)
            .all(|size| (size + 1) * 2000 > BYTES),
        "{sizes:?}"
    );
    assert_eq!(
        (figures.position, figures.records, figures.bad),
        (COUNT, 0, COUNT as u64)
    );
}

#[test]
fn the_largest_is_known_and_sentences_are_bounded() {
    let long = "y".repeat(5000);
    let schema = Fields::from(vec![Field::new(&long, DataType::Int64, false)]);
    let decoding = Decoding::new(&schema, None, OnBad::Null).unwrap();
    let columns = Columns::decoded(&[Column::Value], decoding);
    let mut builder = BatchBuilder::new();
    for value in [&b"{}"[..], &[b'x'; 3000], b"{}"] {
        builder.append(1, None, Some(value));
    }
    let (_, bad, _) = decode_with_bad(How::default(), columns, &builder.build(), "who").unwrap();
    let found = read(&bad);
    let sentence = found[0].headers.last().unwrap().1.clone().unwrap();
    let begin = b"topic topic partition 3 offset 0: the value does not fit the schema: ";
    assert!(
        sentence.starts_with(begin),
        "{}",
        String::from_utf8_lossy(&sentence)
    );
    assert_eq!(sentence.len(), 1000);
    let largest = &bad[0].largest;
    let place = "topic topic partition 3 offset 1, has about 3";
    assert!(
        largest.starts_with(place) && largest.ends_with(" bytes"),
        "{largest}"
    );
}
