//! Record batches: building, parsing, patching, walking, and malformed bytes.

use proptest::prelude::*;
use pyrklog_wire::batch::{self, BatchHeader, Batches, HEADER_LEN, TimestampType};
use pyrklog_wire::builder::{BatchBuilder, encode_record, transaction_marker};
use pyrklog_wire::error::DecodeError;
use pyrklog_wire::records::{Records, walk_records};

type Headers = Vec<(Vec<u8>, Option<Vec<u8>>)>;

#[derive(Clone, Debug)]
struct Rec {
    timestamp: i64,
    key: Option<Vec<u8>>,
    value: Option<Vec<u8>>,
    headers: Headers,
}

fn bytes(max: usize) -> impl Strategy<Value = Vec<u8>> {
    prop::collection::vec(any::<u8>(), 0..max)
}

fn record() -> impl Strategy<Value = Rec> {
    let timestamp = prop_oneof![
        8 => 1_700_000_000_000i64..1_700_000_000_100,
        1 => 0i64..1 << 50,
        1 => Just(-1i64),
    ];
    let headers = prop_oneof![
        4 => Just(Vec::new()),
        1 => prop::collection::vec((bytes(20), prop::option::of(bytes(90))), 1..4),
    ];
    let value = prop_oneof![8 => bytes(40), 1 => bytes(300)];
    (
        timestamp,
        prop::option::of(bytes(70)),
        prop::option::of(value),
        headers,
    )
        .prop_map(|(timestamp, key, value, headers)| Rec {
            timestamp,
            key,
            value,
            headers,
        })
}

fn build(records: &[Rec]) -> Vec<u8> {
    let mut builder = BatchBuilder::new()
        .base_offset(7)
        .leader_epoch(3)
        .producer(5, 1, 9);
    for rec in records {
        let headers: Vec<_> = rec
            .headers
            .iter()
            .map(|(key, value)| (&key[..], value.as_deref()))
            .collect();
        builder.append_with_headers(
            rec.timestamp,
            rec.key.as_deref(),
            rec.value.as_deref(),
            &headers,
        );
    }
    builder.build()
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(96))]

    #[test]
    fn built_batch_reads_back(records in prop::collection::vec(record(), 1..40)) {
        let batch = build(&records);
        let header = BatchHeader::parse(&batch).unwrap();
        prop_assert_eq!(&header.to_bytes()[..], &batch[..HEADER_LEN]);
        prop_assert_eq!(header.total_len(), batch.len());
        prop_assert_eq!(header.record_count as usize, records.len());
        prop_assert_eq!(header.next_offset(), 7 + records.len() as i64);
        prop_assert_eq!(header.last_sequence(), 9 + records.len() as i32 - 1);
        prop_assert!(batch::verify_crc(&batch).is_ok());

        let body = &batch[HEADER_LEN..];
        let mut count = 0;
        for (index, (parsed, rec)) in Records::new(body).zip(&records).enumerate() {
            let parsed = parsed.unwrap();
            prop_assert_eq!(parsed.offset_delta, index as i32);
            prop_assert_eq!(
                header.base_timestamp.wrapping_add(parsed.timestamp_delta),
                rec.timestamp
            );
            prop_assert_eq!(parsed.key, rec.key.as_deref());
            prop_assert_eq!(parsed.value, rec.value.as_deref());
            let headers: Headers = parsed
                .headers()
                .map(|header| (header.key.to_vec(), header.value.map(<[u8]>::to_vec)))
                .collect();
            prop_assert_eq!(&headers, &rec.headers);
            count += 1;
        }
        prop_assert_eq!(count, records.len());

        let summary = walk_records(body, header.record_count).unwrap();
        let max = records.iter().map(|rec| rec.timestamp).max().unwrap();
        prop_assert_eq!(header.base_timestamp + summary.max_timestamp_delta, max);
        prop_assert_eq!(header.max_timestamp, max);
        let first_max = records.iter().position(|rec| rec.timestamp == max).unwrap();
        prop_assert_eq!(summary.max_timestamp_offset_delta, first_max as i32);
        let min = records.iter().map(|rec| rec.timestamp).min().unwrap();
        prop_assert_eq!(header.base_timestamp + summary.min_timestamp_delta, min);
        prop_assert!(summary.offsets_consecutive);
        prop_assert_eq!(summary.all_have_keys, records.iter().all(|rec| rec.key.is_some()));
        prop_assert_eq!(summary.last_offset_delta, header.last_offset_delta);
    }

    #[test]
    fn a_cut_body_or_a_wrong_count_is_an_error(
        records in prop::collection::vec(record(), 1..6),
        wrong in 1i32..5,
    ) {
        let batch = build(&records);
        let body = &batch[HEADER_LEN..];
        let count = records.len() as i32;
        for len in 0..body.len() {
            prop_assert!(walk_records(&body[..len], count).is_err(), "cut at {}", len);
        }
        let walked = walk_records(body, count + wrong);
        let is_count = matches!(walked, Err(DecodeError::RecordCount { .. }));
        prop_assert!(is_count, "{:?}", walked);
        let walked = walk_records(body, count - wrong);
        let is_count = matches!(walked, Err(DecodeError::RecordCount { .. }));
        prop_assert!(is_count, "{:?}", walked);
    }

    /// The fast path of the walk and the full parser must agree on every input.
    #[test]
    fn walking_agrees_with_parsing(
        records in prop::collection::vec(record(), 1..5),
        place in any::<prop::sample::Index>(),
        byte in any::<u8>(),
    ) {
        let batch = build(&records);
        let mut body = batch[HEADER_LEN..].to_vec();
        let place = place.index(body.len());
        body[place] = byte;
        let parsed: Result<Vec<_>, _> = Records::new(&body).collect();
        let walked = walk_records(&body, records.len() as i32);
        match parsed {
            Ok(parsed) if parsed.len() == records.len() => {
                let summary = walked.unwrap();
                let max = parsed.iter().map(|rec| rec.timestamp_delta).max().unwrap();
                prop_assert_eq!(summary.max_timestamp_delta, max);
                let consecutive =
                    parsed.iter().enumerate().all(|(i, rec)| rec.offset_delta == i as i32);
                prop_assert_eq!(summary.offsets_consecutive, consecutive);
                let keys = parsed.iter().all(|rec| rec.key.is_some());
                prop_assert_eq!(summary.all_have_keys, keys);
            }
            Ok(_) => {
                let is_count = matches!(walked, Err(DecodeError::RecordCount { .. }));
                prop_assert!(is_count, "{:?}", walked);
            }
            Err(_) => prop_assert!(walked.is_err()),
        }
    }

    #[test]
    fn random_bytes_never_panic(body in bytes(200), count in -2i32..400) {
        let _ = walk_records(&body, count);
        for record in Records::new(&body).flatten() {
            prop_assert!(record.headers().count() <= 200);
        }
        let mut batches = Batches::new(&body);
        for view in batches.by_ref().flatten() {
            prop_assert!(view.bytes.len() >= HEADER_LEN);
        }
        prop_assert!(batches.trailing().len() <= body.len());
    }

    #[test]
    fn a_flipped_bit_under_the_crc_is_found(
        records in prop::collection::vec(record(), 1..4),
        place in any::<prop::sample::Index>(),
        bit in 0u8..8,
    ) {
        let mut batch = build(&records);
        let place = batch::CRC_START + place.index(batch.len() - batch::CRC_START);
        batch[place] ^= 1 << bit;
        let is_bad_crc = matches!(batch::verify_crc(&batch), Err(DecodeError::BadCrc { .. }));
        prop_assert!(is_bad_crc);
    }

    #[test]
    fn a_buffer_yields_its_whole_batches_and_the_rest(
        sizes in prop::collection::vec(1usize..4, 1..5),
        cut in any::<prop::sample::Index>(),
    ) {
        let rec = Rec { timestamp: 5, key: None, value: Some(vec![1; 10]), headers: vec![] };
        let batches: Vec<_> = sizes.iter().map(|n| build(&vec![rec.clone(); *n])).collect();
        let mut buffer = batches.concat();
        let cut = cut.index(buffer.len() + 1);
        buffer.truncate(cut);
        let mut iterator = Batches::new(&buffer);
        let mut position = 0;
        for expected in &batches {
            match iterator.next() {
                Some(view) => {
                    let view = view.unwrap();
                    prop_assert_eq!(view.position, position);
                    prop_assert_eq!(view.bytes, &expected[..]);
                    position += expected.len();
                }
                None => break,
            }
        }
        prop_assert!(iterator.next().is_none());
        prop_assert_eq!(iterator.trailing(), &buffer[position..]);
        prop_assert_eq!(iterator.position(), position);
    }
}

#[test]
fn offset_and_epoch_lie_outside_the_crc_and_the_rest_inside() {
    let mut batch = build(&[Rec {
        timestamp: 50,
        key: None,
        value: None,
        headers: vec![],
    }]);
    batch::set_base_offset(&mut batch, 1 << 40);
    batch::set_partition_leader_epoch(&mut batch, 12);
    assert_eq!(batch::verify_crc(&batch), Ok(()));
    batch::set_max_timestamp(&mut batch, 60);
    assert!(batch::verify_crc(&batch).is_err());
    batch::refresh_crc(&mut batch);
    assert_eq!(batch::verify_crc(&batch), Ok(()));
    batch::set_timestamp_type(&mut batch, TimestampType::LogAppendTime);
    batch::set_producer(&mut batch, 77, 2, 1000);
    batch::refresh_crc(&mut batch);
    let header = BatchHeader::parse(&batch).unwrap();
    assert_eq!(batch::verify_crc(&batch), Ok(()));
    assert_eq!(header.base_offset, 1 << 40);
    assert_eq!(header.partition_leader_epoch, 12);
    assert_eq!(header.max_timestamp, 60);
    assert_eq!(header.timestamp_type(), TimestampType::LogAppendTime);
    assert_eq!(
        (
            header.producer_id,
            header.producer_epoch,
            header.base_sequence
        ),
        (77, 2, 1000)
    );
    batch::set_timestamp_type(&mut batch, TimestampType::CreateTime);
    assert_eq!(
        BatchHeader::parse(&batch).unwrap().timestamp_type(),
        TimestampType::CreateTime
    );
}

#[test]
fn foreign_formats_lengths_and_codecs_are_named() {
    let good = build(&[Rec {
        timestamp: 1,
        key: None,
        value: None,
        headers: vec![],
    }]);
    let mut old = good.clone();
    old[16] = 1;
    assert_eq!(BatchHeader::parse(&old), Err(DecodeError::BadMagic(1)));
    let mut short = good.clone();
    short[8..12].copy_from_slice(&48i32.to_be_bytes());
    assert_eq!(
        BatchHeader::parse(&short),
        Err(DecodeError::BadBatchLength(48))
    );
    short[8..12].copy_from_slice(&(-1i32).to_be_bytes());
    assert_eq!(
        Batches::new(&short).next().unwrap().unwrap_err(),
        DecodeError::BadBatchLength(-1)
    );
    let mut codec = good.clone();
    codec[22] = 6;
    assert_eq!(
        BatchHeader::parse(&codec).unwrap().compression(),
        Err(DecodeError::BadCompression(6))
    );
    assert_eq!(
        BatchHeader::parse(&good[..60]),
        Err(DecodeError::Truncated {
            needed: 61,
            remaining: 60
        })
    );
}

#[test]
fn corruption_ends_the_iteration_after_one_error() {
    let good = build(&[Rec {
        timestamp: 1,
        key: None,
        value: None,
        headers: vec![],
    }]);
    let mut buffer = [good.clone(), good.clone(), good.clone()].concat();
    buffer[good.len() + 16] = 0;
    let mut batches = Batches::new(&buffer);
    assert!(batches.next().unwrap().is_ok());
    assert_eq!(
        batches.next().unwrap().unwrap_err(),
        DecodeError::BadMagic(0)
    );
    assert!(batches.next().is_none());
    assert_eq!(batches.position(), good.len());
}

#[test]
fn a_negative_record_length_is_not_a_huge_one() {
    let mut body = Vec::new();
    encode_record(&mut body, 0, 0, None, Some(&[1; 30]), &[]);
    body[0] = 0x01;
    assert_eq!(
        walk_records(&body, 1),
        Err(DecodeError::BadRecordLength { index: 0 })
    );
    assert_eq!(walk_records(&[0xff; 40], 1), Err(DecodeError::BadVarint));
}

#[test]
fn sequence_numbers_wrap_to_zero() {
    let mut builder = BatchBuilder::new().producer(1, 0, i32::MAX - 1);
    for _ in 0..4 {
        builder.append(0, None, None);
    }
    assert_eq!(
        BatchHeader::parse(&builder.build())
            .unwrap()
            .last_sequence(),
        1
    );
}

#[test]
fn a_transaction_marker_is_kafkas() {
    let batch = transaction_marker(9, 4, true, 17, 1000);
    let header = BatchHeader::parse(&batch).unwrap();
    assert!(header.is_control() && header.is_transactional() && header.has_producer());
    assert_eq!(header.base_sequence, -1);
    assert_eq!(header.last_sequence(), -1);
    let record = Records::new(&batch[HEADER_LEN..]).next().unwrap().unwrap();
    assert_eq!(record.key, Some(&[0, 0, 0, 1][..]));
    assert_eq!(record.value, Some(&[0, 0, 0, 0, 0, 17][..]));
}

/// A batch as the Java client writes it, built from the format's definition: one record, key "k",
/// value "v", timestamp 1 at base timestamp 1.
#[test]
fn a_batch_written_by_hand_is_understood() {
    let body = [0x10, 0, 0, 0, 2, b'k', 2, b'v', 0];
    let mut batch = vec![0; 8];
    batch.extend([0, 0, 0, 58]); // 49 + 9
    batch.extend([0xff; 4]);
    batch.push(2);
    batch.extend([0; 4]); // CRC, below
    batch.extend([0, 0, 0, 0, 0, 0]);
    batch.extend(1i64.to_be_bytes());
    batch.extend(1i64.to_be_bytes());
    batch.extend([0xff; 8 + 2 + 4]);
    batch.extend([0, 0, 0, 1]);
    batch.extend(body);
    let crc = bitwise_crc32c(&batch[21..]);
    batch[17..21].copy_from_slice(&crc.to_be_bytes());
    assert_eq!(batch::verify_crc(&batch), Ok(()));
    let mut builder = BatchBuilder::new();
    builder.append(1, Some(b"k"), Some(b"v"));
    assert_eq!(builder.build(), batch);
}

/// CRC-32C by its definition, to check the library at lengths around its block sizes.
fn bitwise_crc32c(bytes: &[u8]) -> u32 {
    let mut crc = u32::MAX;
    for byte in bytes {
        crc ^= u32::from(*byte);
        for _ in 0..8 {
            crc = if crc & 1 == 0 {
                crc >> 1
            } else {
                crc >> 1 ^ 0x82f6_3b78
            };
        }
    }
    !crc
}

#[test]
fn crc_is_castagnoli_at_every_length() {
    assert_eq!(batch::crc32c(b"123456789"), 0xe306_9283);
    let data: Vec<u8> = (0..5000u32).map(|i| (i * 31 + i / 256) as u8).collect();
    for len in (0..600).chain([1023, 1024, 1025, 4095, 4096, 4999, 5000]) {
        assert_eq!(
            batch::crc32c(&data[..len]),
            bitwise_crc32c(&data[..len]),
            "{len}"
        );
        assert_eq!(
            batch::crc32c(&data[1..len.max(1)]),
            bitwise_crc32c(&data[1..len.max(1)])
        );
    }
}
