//! Message sets of Produce 0 to 2.

use super::*;
use crate::compression::{CompressedStream, Lz4Header};
use pyrklog_wire::message_set::{
    MAGIC_0, MAGIC_1, begin_wrapper, end_wrapper, message_len, write_message,
};
use pyrklog_wire::records::Records;

const OLD_CODECS: [Compression; 4] = [
    Compression::None,
    Compression::Gzip,
    Compression::Snappy,
    Compression::Lz4,
];

fn old_rules() -> Rules {
    Rules::new(&LogConfig::default(), 2)
}

/// Three messages, 10 ms apart, the second one without a key.
fn set(magic: i8) -> Vec<u8> {
    let mut set = Vec::new();
    let format = (magic, 0);
    write_message(&mut set, format, 0, NOW, Some(b"a"), Some(b"first"));
    write_message(&mut set, format, 1, NOW + 20, None, Some(b"second"));
    write_message(&mut set, format, 2, NOW + 10, Some(b"c"), None);
    set
}

fn wrapped(format: (i8, i8), offset: i64, codec: Compression, inner: &[u8]) -> Vec<u8> {
    let attributes = codec as i8 | format.1;
    let mut out = Vec::new();
    let wrapper = begin_wrapper(&mut out, (format.0, attributes));
    let header = match format.0 {
        MAGIC_0 => Lz4Header::Format0,
        _ => Lz4Header::Standard,
    };
    let mut stream = CompressedStream::new(codec, header, out).expect("a codec of message sets");
    stream.write(inner).expect("in memory");
    let mut out = stream.finish().expect("in memory");
    end_wrapper(&mut out, wrapper, offset, NOW + 20);
    out
}

fn sent(magic: i8, codec: Compression) -> Vec<u8> {
    match codec {
        Compression::None => set(magic),
        codec => wrapped((magic, 0), 2, codec, &set(magic)),
    }
}

/// (timestamp, key, value) of a batch's records.
type Stored = Vec<(i64, Option<Vec<u8>>, Option<Vec<u8>>)>;

fn stored_records(stored: &[u8]) -> Stored {
    let header = BatchHeader::parse(stored).expect("valid");
    let mut body = Vec::new();
    let codec = header.compression().expect("valid");
    decompress(codec, &stored[HEADER_LEN..], &mut body, 1 << 20).expect("valid");
    let records = Records::new(&body).map(|record| record.expect("valid"));
    records
        .map(|record| {
            let timestamp = header.base_timestamp + record.timestamp_delta;
            let owned = |bytes: Option<&[u8]>| bytes.map(<[u8]>::to_vec);
            (timestamp, owned(record.key), owned(record.value))
        })
        .collect()
}

fn expected(magic: i8) -> Stored {
    let some = |text: &str| Some(text.as_bytes().to_vec());
    let at = |after_ms| if magic == MAGIC_0 { -1 } else { NOW + after_ms };
    vec![
        (at(0), some("a"), some("first")),
        (at(20), None, some("second")),
        (at(10), some("c"), None),
    ]
}

#[test]
fn a_set_becomes_one_batch_in_its_codec() {
    for magic in [MAGIC_0, MAGIC_1] {
        for codec in OLD_CODECS {
            let (validated, stored) = accept(&sent(magic, codec), &old_rules());
            let header = &validated.info.header;
            assert_eq!(header.compression(), Ok(codec));
            assert_eq!((header.record_count, header.last_offset_delta), (3, 2));
            assert_eq!((header.producer_id, header.base_offset), (-1, 0));
            let max_timestamp = if magic == MAGIC_0 { -1 } else { NOW + 20 };
            assert_eq!(header.max_timestamp, max_timestamp);
            assert_eq!(
                stored_records(&stored),
                expected(magic),
                "{magic} {codec:?}"
            );
        }
    }
}

#[test]
fn a_topics_own_codec_and_append_time_hold_for_sets() {
    for magic in [MAGIC_0, MAGIC_1] {
        for codec in OLD_CODECS {
            for stored_as in CODECS {
                let rules = Rules {
                    compression: Some(stored_as),
                    timestamp_type: TimestampType::LogAppendTime,
                    ..old_rules()
                };
                let later = NOW + 5;
                let mut bytes = sent(magic, codec);
                let validated = validate_produce(&mut bytes, &rules, later).expect("a good set");
                let header = validated.info.header;
                assert_eq!(header.compression(), Ok(stored_as));
                assert!(header.is_log_append_time());
                assert_eq!(header.max_timestamp, later);
            }
        }
    }
}

#[test]
fn a_rest_behind_the_messages_is_ignored() {
    for codec in OLD_CODECS {
        let mut bytes = sent(MAGIC_1, codec);
        bytes.extend_from_slice(&set(MAGIC_1)[..20]);
        let (_, stored) = accept(&bytes, &old_rules());
        assert_eq!(stored_records(&stored), expected(MAGIC_1));
        let mut inner = set(MAGIC_1);
        inner.truncate(inner.len() - 1);
        let bytes = wrapped((MAGIC_1, 0), 2, Compression::Gzip, &inner);
        let (_, stored) = accept(&bytes, &old_rules());
        assert_eq!(stored_records(&stored), expected(MAGIC_1)[..2]);
    }
}

#[test]
fn data_without_a_whole_message_appends_nothing_and_is_no_error() {
    for bytes in [&[][..], &set(MAGIC_0)[..11], &set(MAGIC_0)[..25]] {
        assert_eq!(refuse(bytes, &old_rules()).code, ErrorCode::NONE);
    }
}

#[test]
fn a_record_batch_is_judged_as_in_later_versions() {
    let (validated, _) = accept(&builder().build(), &old_rules());
    assert_eq!(validated.rewritten, None);
    let two = [builder().build(), builder().build()].concat();
    assert_eq!(refuse(&two, &old_rules()).code, ErrorCode::INVALID_RECORD);
}

#[test]
fn later_versions_refuse_sets() {
    for magic in [MAGIC_0, MAGIC_1] {
        assert_eq!(code(&set(magic)), ErrorCode::INVALID_RECORD);
    }
}

fn old_code(bytes: &[u8]) -> ErrorCode {
    refuse(bytes, &old_rules()).code
}

#[test]
fn bad_messages_get_kafkas_codes() {
    let mut flipped = set(MAGIC_1);
    *flipped.last_mut().expect("not empty") ^= 1;
    assert_eq!(old_code(&flipped), ErrorCode::CORRUPT_MESSAGE);
    let inner = wrapped((MAGIC_1, 0), 2, Compression::Gzip, &flipped);
    assert_eq!(old_code(&inner), ErrorCode::CORRUPT_MESSAGE);

    let mut short = set(MAGIC_1);
    short[8..12].copy_from_slice(&13_i32.to_be_bytes());
    assert_eq!(old_code(&short), ErrorCode::CORRUPT_MESSAGE);
    let inner = wrapped((MAGIC_1, 0), 2, Compression::Gzip, &short);
    assert_eq!(old_code(&inner), ErrorCode::CORRUPT_MESSAGE);

    let mixed = [set(MAGIC_1), set(MAGIC_0)].concat();
    assert_eq!(old_code(&mixed), ErrorCode::INVALID_RECORD);
    let inner = wrapped((MAGIC_1, 0), 5, Compression::Gzip, &mixed);
    assert_eq!(old_code(&inner), ErrorCode::INVALID_RECORD);
    let batch_behind = [set(MAGIC_1), builder().build()].concat();
    assert_eq!(old_code(&batch_behind), ErrorCode::INVALID_RECORD);
    let mut unknown = [set(MAGIC_1), set(MAGIC_1)].concat();
    let second = unknown.len() / 2;
    unknown[second + MAGIC] = 3;
    assert_eq!(old_code(&unknown), ErrorCode::CORRUPT_MESSAGE);
}

#[test]
fn compressed_messages_must_be_plain_alone_and_not_empty() {
    let nested = sent(MAGIC_1, Compression::Snappy);
    for codec in OLD_CODECS[1..].iter().copied() {
        let bytes = wrapped((MAGIC_1, 0), 2, codec, &nested);
        assert_eq!(old_code(&bytes), ErrorCode::INVALID_RECORD);
    }
    let two = [sent(MAGIC_1, Compression::Gzip), set(MAGIC_1)].concat();
    assert_eq!(old_code(&two), ErrorCode::INVALID_RECORD);
    let empty = wrapped((MAGIC_1, 0), 2, Compression::Gzip, &[]);
    assert_eq!(old_code(&empty), ErrorCode::INVALID_RECORD);
    let below_its_last = wrapped((MAGIC_1, 0), 1, Compression::Gzip, &set(MAGIC_1));
    assert_eq!(old_code(&below_its_last), ErrorCode::INVALID_RECORD);
    let mut null = Vec::new();
    let gzip = Compression::Gzip as i8;
    write_message(&mut null, (MAGIC_1, gzip), 0, NOW, None, None);
    assert_eq!(old_code(&null), ErrorCode::INVALID_RECORD);
    let mut not_gzip = Vec::new();
    write_message(&mut not_gzip, (MAGIC_1, gzip), 0, NOW, None, Some(b"plain"));
    assert_eq!(old_code(&not_gzip), ErrorCode::INVALID_RECORD);
    let zstd = Compression::Zstd as i8;
    let mut bytes = Vec::new();
    write_message(&mut bytes, (MAGIC_1, zstd), 0, NOW, None, Some(b"x"));
    assert_eq!(old_code(&bytes), ErrorCode::INVALID_RECORD);
    let mut bytes = Vec::new();
    write_message(&mut bytes, (MAGIC_1, 5), 0, NOW, None, Some(b"x"));
    assert_eq!(old_code(&bytes), ErrorCode::UNSUPPORTED_COMPRESSION_TYPE);
}

#[test]
fn sizes_are_bounded_before_and_after() {
    let len = message_len(MAGIC_1, None, Some(&[0; 1000]));
    let mut large = Vec::new();
    write_message(&mut large, (MAGIC_1, 0), 0, NOW, None, Some(&[0; 1000]));
    for (max_message_bytes, is_taken) in [(len - 1, false), (len, true), (1100, true)] {
        let rules = Rules {
            max_message_bytes,
            ..old_rules()
        };
        // One message per limit; the batch needs a header of 61 bytes besides.
        let refused = match validate_produce(&mut large.clone(), &rules, NOW) {
            Ok(validated) => validated.info.total_len() > max_message_bytes,
            Err(error) => error.code == ErrorCode::MESSAGE_TOO_LARGE,
        };
        let fits = is_taken && HEADER_LEN + 1011 <= max_message_bytes;
        assert_eq!(refused, !fits, "{max_message_bytes}");
    }
    let bomb = {
        let mut inner = Vec::new();
        write_message(
            &mut inner,
            (MAGIC_1, 0),
            0,
            NOW,
            None,
            Some(&vec![0; 1 << 20]),
        );
        wrapped((MAGIC_1, 0), 0, Compression::Gzip, &inner)
    };
    let rules = Rules {
        expanded_bytes_max: 1 << 16,
        ..old_rules()
    };
    let refused = refuse(&bomb, &rules);
    assert_eq!(refused.code, ErrorCode::MESSAGE_TOO_LARGE);
    assert!(refused.expands_beyond);
}

#[test]
fn keys_and_timestamps_are_judged_as_those_of_records() {
    let compacted = Rules {
        compacted: true,
        ..old_rules()
    };
    let error = refuse(&set(MAGIC_0), &compacted);
    assert_eq!(error.code, ErrorCode::INVALID_RECORD);
    let faulty: Vec<i32> = error
        .record_errors
        .iter()
        .map(|(index, _)| *index)
        .collect();
    assert_eq!(faulty, [1]);
    let recent = Rules {
        timestamp_after_max_ms: 15,
        ..old_rules()
    };
    let error = refuse(&sent(MAGIC_1, Compression::Lz4), &recent);
    assert_eq!(error.code, ErrorCode::INVALID_TIMESTAMP);
    accept(&sent(MAGIC_0, Compression::Lz4), &recent);
    // A wrapper that claims append time gives its own to all in it.
    let append_time = 0x08;
    let bytes = wrapped((MAGIC_1, append_time), 2, Compression::Gzip, &set(MAGIC_1));
    let (_, stored) = accept(&bytes, &old_rules());
    let timestamps: Vec<i64> = stored_records(&stored).iter().map(|one| one.0).collect();
    assert_eq!(timestamps, [NOW + 20; 3]);
    let by_broker = Rules {
        timestamp_type: TimestampType::LogAppendTime,
        ..old_rules()
    };
    assert_eq!(
        refuse(&bytes, &by_broker).code,
        ErrorCode::INVALID_TIMESTAMP
    );
}
