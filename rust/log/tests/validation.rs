//! Client batches with one changed header field and a right checksum: each has its own error, and
//! nothing panics.

use proptest::prelude::*;
use pyrklog_log::LogConfig;
use pyrklog_log::compression::{compress, decompress};
use pyrklog_log::validate::{Rules, Validated, validate_produce};
use pyrklog_wire::ErrorCode;
use pyrklog_wire::batch::{
    self, BatchHeader, CRC_START, Compression, HEADER_LEN, TimestampType, refresh_crc,
};
use pyrklog_wire::builder::BatchBuilder;

const NOW: i64 = 1_700_000_000_000;
const CODECS: [Compression; 5] = [
    Compression::None,
    Compression::Gzip,
    Compression::Snappy,
    Compression::Lz4,
    Compression::Zstd,
];

type Bytes = Option<Vec<u8>>;

#[derive(Clone, Debug)]
struct Sent {
    timestamp: i64,
    key: Bytes,
    value: Bytes,
    headers: Vec<(Vec<u8>, Bytes)>,
}

fn bytes(max: usize) -> impl Strategy<Value = Bytes> {
    proptest::option::of(proptest::collection::vec(any::<u8>(), 0..max))
}

fn record() -> impl Strategy<Value = Sent> {
    let headers = proptest::collection::vec(
        (proptest::collection::vec(any::<u8>(), 0..5), bytes(5)),
        0..3,
    );
    let timestamp =
        prop_oneof![8 => NOW - 100_000..NOW + 100_000, 1 => Just(-1), 1 => any::<i64>()];
    (timestamp, bytes(20), bytes(300), headers).prop_map(|(timestamp, key, value, headers)| Sent {
        timestamp,
        key,
        value,
        headers,
    })
}

fn records() -> impl Strategy<Value = Vec<Sent>> {
    proptest::collection::vec(record(), 1..40)
}

fn codec() -> impl Strategy<Value = Compression> {
    proptest::sample::select(CODECS.to_vec())
}

fn build(records: &[Sent], codec: Compression, producer: (i64, i16, i32)) -> Vec<u8> {
    let mut builder = BatchBuilder::new().producer(producer.0, producer.1, producer.2);
    for record in records {
        let headers: Vec<_> = record
            .headers
            .iter()
            .map(|(key, value)| (key.as_slice(), value.as_deref()))
            .collect();
        builder.append_with_headers(
            record.timestamp,
            record.key.as_deref(),
            record.value.as_deref(),
            &headers,
        );
    }
    builder.build_compressed(codec, |records| {
        let mut out = Vec::new();
        compress(codec, records, &mut out).expect("in memory");
        out
    })
}

fn rules() -> Rules {
    Rules::new(&LogConfig::default(), 11)
}

fn stored(sent: &[u8], rules: &Rules) -> Result<(Validated, Vec<u8>), ErrorCode> {
    let mut patched = sent.to_vec();
    match validate_produce(&mut patched, rules, NOW) {
        Ok(validated) => {
            let bytes = match &validated.rewritten {
                Some(bytes) => bytes.clone(),
                None => patched[..validated.info.total_len()].to_vec(),
            };
            assert_eq!(batch::verify_crc(&bytes), Ok(()));
            assert_eq!(bytes.len(), validated.info.total_len());
            Ok((validated, bytes))
        }
        Err(error) => {
            assert_eq!(patched, sent, "a refused batch is left as it was");
            Err(error.code)
        }
    }
}

fn expanded(batch: &[u8]) -> Vec<u8> {
    let codec = BatchHeader::parse(batch).and_then(|header| header.compression());
    let mut out = Vec::new();
    decompress(
        codec.expect("valid"),
        &batch[HEADER_LEN..],
        &mut out,
        1 << 30,
    )
    .expect("valid");
    out
}

fn largest_timestamp(records: &[Sent]) -> i64 {
    records
        .iter()
        .map(|record| record.timestamp)
        .fold(-1, i64::max)
}

/// A header field, its position, and how long it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Field {
    BaseOffset,
    Length,
    LeaderEpoch,
    Magic,
    Attributes,
    LastOffsetDelta,
    BaseTimestamp,
    MaxTimestamp,
    ProducerId,
    ProducerEpoch,
    BaseSequence,
    RecordCount,
}

impl Field {
    const ALL: [(Field, usize, usize); 12] = [
        (Field::BaseOffset, 0, 8),
        (Field::Length, 8, 4),
        (Field::LeaderEpoch, 12, 4),
        (Field::Magic, 16, 1),
        (Field::Attributes, 21, 2),
        (Field::LastOffsetDelta, 23, 4),
        (Field::BaseTimestamp, 27, 8),
        (Field::MaxTimestamp, 35, 8),
        (Field::ProducerId, 43, 8),
        (Field::ProducerEpoch, 51, 2),
        (Field::BaseSequence, 53, 4),
        (Field::RecordCount, 57, 4),
    ];
}

/// Allowed outcomes of changing this field alone; empty means it must be accepted.
fn allowed(field: Field, before: &BatchHeader, after: &[u8]) -> Vec<ErrorCode> {
    let corrupt = vec![ErrorCode::CORRUPT_MESSAGE];
    let invalid = vec![ErrorCode::INVALID_RECORD];
    match field {
        Field::BaseOffset | Field::LastOffsetDelta | Field::RecordCount => invalid,
        // Shorter: a checksum over too little, or a bad second batch. Longer: incomplete.
        Field::Length => [corrupt, invalid].concat(),
        Field::LeaderEpoch | Field::ProducerEpoch => Vec::new(),
        Field::BaseTimestamp | Field::MaxTimestamp => Vec::new(),
        Field::Magic if (0..=1).contains(&(after[16] as i8)) => invalid,
        Field::Magic => corrupt,
        Field::Attributes => attribute_errors(before, i16::from_be_bytes([after[21], after[22]])),
        Field::ProducerId | Field::BaseSequence => {
            let header = BatchHeader::parse(after).expect("other fields are good");
            let bad = header.producer_id > -1 && header.base_sequence < 0;
            if bad { invalid } else { Vec::new() }
        }
    }
}

fn attribute_errors(before: &BatchHeader, attributes: i16) -> Vec<ErrorCode> {
    let codec = attributes & 7;
    if codec > 4 {
        return vec![ErrorCode::UNSUPPORTED_COMPRESSION_TYPE];
    }
    if attributes & 0x20 != 0 {
        return vec![ErrorCode::INVALID_RECORD];
    }
    if codec != before.attributes & 7 {
        // One codec's data can announce anything in another.
        return vec![ErrorCode::INVALID_RECORD, ErrorCode::MESSAGE_TOO_LARGE];
    }
    if attributes & 8 != 0 && before.max_timestamp == -1 {
        return vec![ErrorCode::INVALID_TIMESTAMP];
    }
    Vec::new()
}

proptest! {
    #[test]
    fn batches_of_real_clients_are_accepted_unchanged(
        records in records(),
        codec in codec(),
        producer_id in prop_oneof![Just(-1), 0..i64::MAX],
        sequence in 0..i32::MAX,
    ) {
        let sent = build(&records, codec, (producer_id, 3, sequence));
        let (validated, bytes) = stored(&sent, &rules()).expect("a good batch");
        let info = validated.info;
        prop_assert_eq!(info.record_count as usize, records.len());
        prop_assert_eq!(info.last_offset_delta as usize, records.len() - 1);
        prop_assert_eq!(info.max_timestamp, largest_timestamp(&records));
        prop_assert_eq!((info.producer_id, info.base_sequence), (producer_id, sequence));
        prop_assert_eq!(bytes, sent);
    }

    #[test]
    fn a_topics_codec_and_clock_change_nothing_else(
        records in records(),
        sent_as in codec(),
        option in proptest::sample::select(vec![
            None,
            Some(Compression::None),
            Some(Compression::Gzip),
            Some(Compression::Snappy),
            Some(Compression::Lz4),
            Some(Compression::Zstd),
        ]),
        timestamp_type in proptest::sample::select(vec![
            TimestampType::CreateTime,
            TimestampType::LogAppendTime,
        ]),
    ) {
        let sent = build(&records, sent_as, (7, 0, 0));
        let rules = Rules { compression: option, timestamp_type, ..rules() };
        let (validated, bytes) = stored(&sent, &rules).expect("a good batch");
        let header = BatchHeader::parse(&bytes).expect("valid");
        prop_assert_eq!(expanded(&bytes), expanded(&sent));
        prop_assert_eq!(header.timestamp_type(), timestamp_type);
        let largest = match timestamp_type {
            TimestampType::CreateTime => largest_timestamp(&records),
            TimestampType::LogAppendTime => NOW,
        };
        prop_assert_eq!((header.max_timestamp, validated.info.max_timestamp), (largest, largest));
        // Stored again it is the same, except for the timestamp type.
        if timestamp_type == TimestampType::CreateTime {
            let (again, same) = stored(&bytes, &rules).expect("still good");
            prop_assert_eq!((same, again.rewritten), (bytes, None));
        }
    }

    #[test]
    fn every_header_field_has_its_error(
        records in records(),
        codec in codec(),
        (field, at, len) in proptest::sample::select(Field::ALL.to_vec()),
        value in any::<[u8; 8]>(),
        bit in proptest::option::of(0_usize..64),
    ) {
        let sent = build(&records, codec, (7, 0, 0));
        let before = BatchHeader::parse(&sent).expect("valid");
        let mut changed = sent.clone();
        match bit {
            Some(bit) => changed[at + bit / 8 % len] ^= 1 << (bit % 8),
            None => changed[at..at + len].copy_from_slice(&value[..len]),
        }
        prop_assume!(changed != sent);
        refresh_crc(&mut changed);
        let outcome = stored(&changed, &rules());
        let allowed = allowed(field, &before, &changed);
        match outcome {
            Ok(_) => prop_assert!(allowed.is_empty(), "{field:?} should be refused: {allowed:?}"),
            Err(code) => prop_assert!(allowed.contains(&code), "{field:?}: {code:?}, not {allowed:?}"),
        }
    }

    #[test]
    fn every_flipped_bit_under_the_checksum_is_corrupt(
        records in records(),
        codec in codec(),
        at in any::<prop::sample::Index>(),
        bit in 0_u32..8,
    ) {
        let mut sent = build(&records, codec, (7, 0, 0));
        let at = CRC_START + at.index(sent.len() - CRC_START);
        sent[at] ^= 1 << bit;
        prop_assert_eq!(stored(&sent, &rules()).err(), Some(ErrorCode::CORRUPT_MESSAGE));
    }

    /// A damaged body with a right checksum: refused for its records, or accepted if they make
    /// sense.
    #[test]
    fn damaged_records_with_a_right_checksum_never_panic(
        records in records(),
        codec in codec(),
        damage in proptest::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 1..4),
        compacted in any::<bool>(),
    ) {
        let mut sent = build(&records, codec, (7, 0, 0));
        for (at, byte) in damage {
            let at = HEADER_LEN + at.index(sent.len() - HEADER_LEN);
            sent[at] = byte;
        }
        refresh_crc(&mut sent);
        let rules = Rules { compacted, expanded_bytes_max: 1 << 20, ..rules() };
        if let Err(code) = stored(&sent, &rules) {
            let allowed = [ErrorCode::INVALID_RECORD, ErrorCode::MESSAGE_TOO_LARGE];
            prop_assert!(allowed.contains(&code), "{code:?}");
        }
    }

    #[test]
    fn arbitrary_bytes_never_panic(mut bytes in proptest::collection::vec(any::<u8>(), 0..300)) {
        prop_assert!(validate_produce(&mut bytes, &rules(), NOW).is_err());
    }

    /// Timestamps against a literal reading of the rule.
    #[test]
    fn timestamps_out_of_range_are_named(
        records in records(),
        before in prop_oneof![0_i64..200_000, Just(i64::MAX)],
        after in prop_oneof![0_i64..200_000, Just(i64::MAX)],
    ) {
        let rules = Rules {
            timestamp_before_max_ms: before,
            timestamp_after_max_ms: after,
            ..rules()
        };
        let bad: Vec<i32> = (0..)
            .zip(&records)
            .filter(|(_, record)| record.timestamp != -1)
            .filter(|(_, record)| {
                let age = NOW.wrapping_sub(record.timestamp);
                age > before || age.wrapping_neg() > after
            })
            .map(|(index, _)| index)
            .collect();
        let mut sent = build(&records, Compression::None, (7, 0, 0));
        match validate_produce(&mut sent, &rules, NOW) {
            Ok(_) => prop_assert_eq!(bad, Vec::<i32>::new()),
            Err(error) => {
                prop_assert_eq!(error.code, ErrorCode::INVALID_TIMESTAMP);
                let named: Vec<i32> = error.record_errors.iter().map(|(index, _)| *index).collect();
                prop_assert_eq!(named, bad);
            }
        }
    }
}
