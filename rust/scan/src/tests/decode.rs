//! Batches of format 2.

use proptest::prelude::*;
use pyrklog_wire::batch::{Batches, Compression, TimestampType};
use pyrklog_wire::builder::{BatchBuilder, transaction_marker};
use pyrklog_wire::fetch::AbortedTransaction;
use pyrklog_wire::records::Records;

use super::{Headers, How, Read, all_columns, compressed, decode, rows_of};
use crate::columns::Column;
use crate::error::ErrorKind;

const CODECS: [Compression; 5] = [
    Compression::None,
    Compression::Gzip,
    Compression::Snappy,
    Compression::Lz4,
    Compression::Zstd,
];

/// A record to write.
#[derive(Clone, Debug)]
struct Written {
    key: Option<Vec<u8>>,
    value: Option<Vec<u8>>,
    timestamp: i64,
    headers: Headers,
    /// Offsets that compaction removed before it.
    gap: i32,
}

/// A batch to write.
#[derive(Clone, Debug)]
struct WrittenBatch {
    records: Vec<Written>,
    codec: Compression,
    is_append_time: bool,
    /// Removed behind the last record.
    gap: i32,
}

fn bytes() -> impl Strategy<Value = Option<Vec<u8>>> {
    proptest::option::weighted(0.8, proptest::collection::vec(any::<u8>(), 0..300))
}

fn headers() -> impl Strategy<Value = Headers> {
    let header = ("[a-zä]{0,5}", bytes());
    prop_oneof![3 => Just(Vec::new()), 1 => proptest::collection::vec(header, 1..4)]
}

fn record() -> impl Strategy<Value = Written> {
    let time = prop_oneof![Just(-1_i64), 0..2_000_000_000_000_i64, Just(i64::MAX)];
    let gap = prop_oneof![4 => Just(0), 1 => 1..1000_i32];
    (bytes(), bytes(), time, headers(), gap).prop_map(|(key, value, timestamp, headers, gap)| {
        Written {
            key,
            value,
            timestamp,
            headers,
            gap,
        }
    })
}

fn batch() -> impl Strategy<Value = WrittenBatch> {
    let records = proptest::collection::vec(record(), 1..30);
    (records, 0..CODECS.len(), any::<bool>(), 0..5_i32).prop_map(
        |(records, codec, is_append_time, gap)| WrittenBatch {
            records,
            codec: CODECS[codec],
            is_append_time,
            gap,
        },
    )
}

fn write(batches: &[WrittenBatch]) -> Vec<u8> {
    let mut out = Vec::new();
    let mut offset = 0;
    for batch in batches {
        let mut builder = BatchBuilder::new().base_offset(offset).leader_epoch(5);
        if batch.is_append_time {
            builder = builder.timestamp_type(TimestampType::LogAppendTime);
        }
        for record in &batch.records {
            builder.skip_offsets(record.gap);
            let headers: Vec<(&[u8], Option<&[u8]>)> = record
                .headers
                .iter()
                .map(|(key, value)| (key.as_bytes(), value.as_deref()))
                .collect();
            let (key, value) = (record.key.as_deref(), record.value.as_deref());
            builder.append_with_headers(record.timestamp, key, value, &headers);
        }
        builder.skip_offsets(batch.gap);
        let bytes = compressed(builder, batch.codec);
        offset = Batches::new(&bytes)
            .next()
            .unwrap()
            .unwrap()
            .header
            .next_offset();
        out.extend(bytes);
    }
    out
}

/// The same read record by record, as simply as can be.
fn read_plainly(records: &[u8], (start, end): (i64, i64)) -> Vec<Read> {
    let mut rows = Vec::new();
    for batch in Batches::new(records) {
        let batch = batch.unwrap();
        let header = batch.header;
        let mut body = Vec::new();
        let codec = header.compression().unwrap();
        pyrklog_compression::decompress(codec, batch.body(), &mut body, 1 << 30).unwrap();
        for record in Records::new(&body) {
            let record = record.unwrap();
            let offset = header.base_offset + i64::from(record.offset_delta);
            if !(start..end).contains(&offset) {
                continue;
            }
            let time = match header.is_log_append_time() {
                true => header.max_timestamp,
                false => header.base_timestamp.saturating_add(record.timestamp_delta),
            };
            let headers: Headers = record
                .headers()
                .map(|one| {
                    let key = String::from_utf8_lossy(one.key).into_owned();
                    (key, one.value.map(<[u8]>::to_vec))
                })
                .collect();
            rows.push(Read {
                key: record.key.map(<[u8]>::to_vec),
                value: record.value.map(<[u8]>::to_vec),
                offset,
                timestamp: (time != -1).then(|| time.saturating_mul(1000)),
                timestamp_type: i32::from(header.is_log_append_time()),
                headers: (!headers.is_empty()).then_some(headers),
            });
        }
    }
    rows
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(200))]

    /// Whatever is written, in whatever pieces it is read.
    #[test]
    fn rows_are_those_of_a_plain_decoder(
        batches in proptest::collection::vec(batch(), 0..6),
        start in 0..100_i64,
        length in 0..10_000_i64,
        batch_rows in 1..50_usize,
        batch_bytes in 1..20_000_usize,
    ) {
        let records = write(&batches);
        let range = (start, start + length);
        let how = How { range, batch_rows, batch_bytes, ..How::default() };
        let (found, position) = decode(how, &all_columns(), &records, &[]).unwrap();
        prop_assert_eq!(rows_of(&found), read_plainly(&records, range));
        let last = Batches::new(&records).last().map(|one| one.unwrap().header.next_offset());
        let behind = last.unwrap_or(0).min(range.1).max(range.0);
        prop_assert_eq!(position, behind);
    }

    /// A broker cuts the last batch off; the rest is read.
    #[test]
    fn what_is_cut_off_is_not_read(batches in proptest::collection::vec(batch(), 1..4), cut in 0..1_000_000_usize) {
        let records = write(&batches);
        let cut = &records[..cut % records.len()];
        let (found, _) = decode(How::default(), &all_columns(), cut, &[]).unwrap();
        prop_assert_eq!(rows_of(&found), read_plainly(cut, (0, i64::MAX)));
    }
}

#[test]
fn columns_that_are_not_asked_for_are_not_built() {
    let mut builder = BatchBuilder::new();
    for _ in 0..10 {
        builder.append(1, Some(b"key"), Some(&[7; 1000]));
    }
    let records = builder.build();
    let (batches, _) = decode(How::default(), &[Column::Offset], &records, &[]).unwrap();
    let [batch] = batches.as_slice() else {
        panic!("{} batches", batches.len());
    };
    assert_eq!((batch.num_columns(), batch.num_rows()), (1, 10));
    assert!(batch.get_array_memory_size() < 1000);
    // As for a count.
    let (batches, _) = decode(How::default(), &[], &records, &[]).unwrap();
    assert_eq!((batches[0].num_columns(), batches[0].num_rows()), (0, 10));
}

fn of_producer(offset: i64, id: i64, value: &[u8]) -> Vec<u8> {
    let builder = BatchBuilder::new().base_offset(offset);
    let mut builder = builder.producer(id, 0, 0).transactional();
    builder.append(1, None, Some(value));
    builder.build()
}

fn marker(offset: i64, id: i64, commit: bool) -> Vec<u8> {
    let mut marker = transaction_marker(id, 0, commit, 0, 1);
    pyrklog_wire::batch::set_base_offset(&mut marker, offset);
    marker
}

#[test]
fn aborted_transactions_are_hidden_from_readers_of_committed_records() {
    let mut plain = BatchBuilder::new().base_offset(2);
    plain.append(1, None, Some(b"plain"));
    let records = [
        of_producer(0, 1, b"aborted"),
        of_producer(1, 2, b"committed"),
        plain.build(),
        of_producer(3, 1, b"aborted too"),
        marker(4, 1, false),
        marker(5, 2, true),
        of_producer(6, 1, b"next"),
        marker(7, 1, true),
    ]
    .concat();
    let aborted = [AbortedTransaction {
        producer_id: 1,
        first_offset: 0,
    }];
    let values = |is_read_committed| {
        let how = How {
            is_read_committed,
            ..How::default()
        };
        let (found, position) = decode(how, &all_columns(), &records, &aborted).unwrap();
        assert_eq!(position, 8, "markers count");
        let rows = rows_of(&found).into_iter();
        let values: Vec<_> = rows.map(|row| row.value.unwrap()).collect();
        values
    };
    assert_eq!(values(true), [&b"committed"[..], b"plain", b"next"]);
    assert_eq!(
        values(false),
        [
            &b"aborted"[..],
            b"committed",
            b"plain",
            b"aborted too",
            b"next"
        ]
    );
}

#[test]
fn a_batch_that_expands_to_much_is_read_alone() {
    let mut builder = BatchBuilder::new();
    for _ in 0..2000 {
        builder.append(1, None, Some(&[0; 1000]));
    }
    let records = compressed(builder, Compression::Zstd);
    let how = How {
        batch_bytes: 100_000,
        ..How::default()
    };
    let (found, _) = decode(how, &all_columns(), &records, &[]).unwrap();
    assert_eq!(rows_of(&found).len(), 2000);
    assert!(found.len() >= 20, "{} batches", found.len());
    let how = How {
        large_bytes: 1 << 20,
        ..how
    };
    let error = decode(how, &all_columns(), &records, &[]).unwrap_err();
    assert_eq!(error.kind, ErrorKind::BatchTooLarge);
    assert_eq!(
        error.text,
        "partition topic-3 at offset 0: the records expand to more than 1048576 bytes (large_bytes)"
    );
}
