mod codecs;
mod old_formats;
mod own_offsets;
mod timestamps;

use super::*;
use crate::compression::{compress, decompress};
use pyrklog_wire::batch::{refresh_crc, set_max_timestamp, set_timestamp_type};
use pyrklog_wire::builder::BatchBuilder;

const NOW: i64 = 1_700_000_000_000;
const CODECS: [Compression; 5] = [
    Compression::None,
    Compression::Gzip,
    Compression::Snappy,
    Compression::Lz4,
    Compression::Zstd,
];

// Positions of header fields.
const LENGTH: usize = 8;
const MAGIC: usize = 16;
const CRC: usize = 17;
const ATTRIBUTES: usize = 21;
const LAST_OFFSET_DELTA: usize = 23;
const BASE_TIMESTAMP: usize = 27;
const PRODUCER_ID: usize = 43;
const BASE_SEQUENCE: usize = 53;
const RECORD_COUNT: usize = 57;

fn rules() -> Rules {
    Rules::new(&LogConfig::default(), 9)
}

/// Three records, 10 ms apart, the second one without a key.
fn builder() -> BatchBuilder {
    let mut builder = BatchBuilder::new().producer(7, 0, 0);
    builder.append(NOW, Some(b"a"), Some(b"first"));
    builder.append_with_headers(NOW + 20, None, Some(b"second"), &[(b"h", None)]);
    builder.append(NOW + 10, Some(b"c"), None);
    builder
}

fn compressed(codec: Compression, records: &[u8]) -> Vec<u8> {
    let mut out = Vec::new();
    compress(codec, records, &mut out).expect("in memory");
    out
}

fn with_codec(codec: Compression) -> Vec<u8> {
    builder().build_compressed(codec, |records| compressed(codec, records))
}

/// The batch with some of its bytes replaced and its checksum updated.
fn patched(mut batch: Vec<u8>, at: usize, bytes: &[u8]) -> Vec<u8> {
    batch[at..at + bytes.len()].copy_from_slice(bytes);
    refresh_crc(&mut batch);
    batch
}

fn accept(bytes: &[u8], rules: &Rules) -> (Validated, Vec<u8>) {
    let mut bytes = bytes.to_vec();
    let validated = validate_produce(&mut bytes, rules, NOW).expect("a good batch");
    let stored = match &validated.rewritten {
        Some(rewritten) => rewritten.clone(),
        None => bytes[..validated.info.total_len()].to_vec(),
    };
    batch::verify_crc(&stored).expect("the checksum follows every change");
    assert_eq!(BatchInfo::parse(&stored).as_ref(), Ok(&validated.info));
    (validated, stored)
}

fn refuse(bytes: &[u8], rules: &Rules) -> ValidationError {
    let mut given = bytes.to_vec();
    let error = validate_produce(&mut given, rules, NOW).expect_err("a bad batch");
    assert_eq!(given, bytes, "a refused batch is left as it was");
    assert!(!error.message.is_empty());
    *error
}

fn code(bytes: &[u8]) -> ErrorCode {
    refuse(bytes, &rules()).code
}

#[test]
fn good_batches_of_every_codec_are_taken_as_they_are() {
    for codec in CODECS {
        let batch = with_codec(codec);
        let (validated, stored) = accept(&batch, &rules());
        assert_eq!(stored, batch, "{codec:?}");
        assert!(validated.rewritten.is_none());
        let info = validated.info;
        assert_eq!((info.record_count, info.last_offset_delta), (3, 2));
        assert_eq!(
            (info.max_timestamp, info.is_log_append_time()),
            (NOW + 20, false)
        );
        assert_eq!(info.total_len(), batch.len());
    }
}

#[test]
fn data_without_a_whole_batch_is_refused() {
    let batch = builder().build();
    for len in [0, 1, 11, 12, 16, 17, 60, batch.len() - 1] {
        assert_eq!(
            code(&batch[..len]),
            ErrorCode::INVALID_RECORD,
            "{len} bytes"
        );
    }
}

#[test]
fn impossible_lengths_and_formats_are_refused() {
    let batch = builder().build();
    for length in [i32::MIN, -1, 0, 13] {
        let bad = patched(batch.clone(), LENGTH, &length.to_be_bytes());
        assert_eq!(code(&bad), ErrorCode::CORRUPT_MESSAGE, "length {length}");
    }
    for magic in [3, 127, -1, -128_i8] {
        let bad = patched(batch.clone(), MAGIC, &magic.to_be_bytes());
        assert_eq!(code(&bad), ErrorCode::CORRUPT_MESSAGE, "format {magic}");
    }
    for magic in [0, 1_i8] {
        let bad = patched(batch.clone(), MAGIC, &magic.to_be_bytes());
        assert_eq!(code(&bad), ErrorCode::INVALID_RECORD, "format {magic}");
    }
    // Long enough for an old message, too short for a header.
    let bad = patched(batch, LENGTH, &48_i32.to_be_bytes());
    assert_eq!(code(&bad[..60]), ErrorCode::CORRUPT_MESSAGE);
}

#[test]
fn more_than_one_batch_for_a_partition_is_refused() {
    let batch = builder().build();
    let two = [batch.clone(), batch.clone()].concat();
    assert_eq!(code(&two), ErrorCode::INVALID_RECORD);
    // As in Kafka, a rest that cannot be a second batch is ignored; a bad second batch is not.
    for tail in [&[0_u8; 11][..], &batch[..40]] {
        let (validated, stored) = accept(&[&batch[..], tail].concat(), &rules());
        assert_eq!(
            (validated.info.total_len(), stored),
            (batch.len(), batch.clone())
        );
    }
    assert_eq!(
        code(&[&batch[..], &[0; 12]].concat()),
        ErrorCode::CORRUPT_MESSAGE
    );
}

#[test]
fn zstd_came_with_version_7() {
    let batch = with_codec(Compression::Zstd);
    let old = Rules {
        produce_version: 6,
        ..rules()
    };
    assert_eq!(
        refuse(&batch, &old).code,
        ErrorCode::UNSUPPORTED_COMPRESSION_TYPE
    );
    accept(
        &batch,
        &Rules {
            produce_version: 7,
            ..rules()
        },
    );
    accept(&with_codec(Compression::Lz4), &old);
}

#[test]
fn a_base_offset_other_than_zero() {
    for base_offset in [1, -1, i64::MAX] {
        let bad = patched(builder().build(), 0, &base_offset.to_be_bytes());
        assert_eq!(code(&bad), ErrorCode::INVALID_RECORD);
    }
}

#[test]
fn batches_beyond_max_message_bytes_or_segment_bytes() {
    let batch = builder().build();
    let len = batch.len();
    accept(
        &batch,
        &Rules {
            max_message_bytes: len,
            segment_bytes: len,
            ..rules()
        },
    );
    let small = Rules {
        max_message_bytes: len - 1,
        ..rules()
    };
    assert_eq!(refuse(&batch, &small).code, ErrorCode::MESSAGE_TOO_LARGE);
    // Size comes before checksum.
    let mut broken = batch.clone();
    broken[CRC] ^= 1;
    assert_eq!(refuse(&broken, &small).code, ErrorCode::MESSAGE_TOO_LARGE);
    let segment = Rules {
        segment_bytes: len - 1,
        ..rules()
    };
    assert_eq!(
        refuse(&batch, &segment).code,
        ErrorCode::RECORD_LIST_TOO_LARGE
    );
}

#[test]
fn every_flipped_bit_under_the_checksum_is_found() {
    let batch = builder().build();
    for bit in CRC * 8..batch.len() * 8 {
        let mut bad = batch.clone();
        bad[bit / 8] ^= 1 << (bit % 8);
        // The codec's bits can make it zstd, which is checked first; version 9 allows it.
        assert_eq!(code(&bad), ErrorCode::CORRUPT_MESSAGE, "bit {bit}");
    }
}

#[test]
fn unknown_codecs_are_refused() {
    for codec in [5, 6, 7_i16] {
        let bad = patched(builder().build(), ATTRIBUTES, &codec.to_be_bytes());
        assert_eq!(code(&bad), ErrorCode::UNSUPPORTED_COMPRESSION_TYPE);
    }
}

#[test]
fn counts_that_contradict_each_other_or_the_records() {
    for (delta, count) in [
        (2, 2),
        (3, 3),
        (1, 3),
        (2, 4),
        (-1, 0),
        (2, 0),
        (-1, 3),
        (2, -3),
    ] {
        for codec in [Compression::None, Compression::Gzip] {
            let bad = patched(
                with_codec(codec),
                LAST_OFFSET_DELTA,
                &i32::to_be_bytes(delta),
            );
            let bad = patched(bad, RECORD_COUNT, &i32::to_be_bytes(count));
            assert_eq!(code(&bad), ErrorCode::INVALID_RECORD, "{delta} {count}");
        }
    }
    // Both wrong alike: the records tell.
    for (delta, count) in [(1, 2), (3, 4), (i32::MAX - 1, i32::MAX)] {
        for codec in CODECS {
            let bad = patched(
                with_codec(codec),
                LAST_OFFSET_DELTA,
                &i32::to_be_bytes(delta),
            );
            let bad = patched(bad, RECORD_COUNT, &i32::to_be_bytes(count));
            assert_eq!(
                code(&bad),
                ErrorCode::INVALID_RECORD,
                "{delta} {count} {codec:?}"
            );
        }
    }
}

#[test]
fn control_batches_from_clients() {
    assert_eq!(
        code(&builder().control().build()),
        ErrorCode::INVALID_RECORD
    );
}

#[test]
fn a_producer_id_needs_a_sequence() {
    for sequence in [-1, i32::MIN] {
        let bad = patched(builder().build(), BASE_SEQUENCE, &sequence.to_be_bytes());
        assert_eq!(code(&bad), ErrorCode::INVALID_RECORD);
        accept(
            &patched(bad, PRODUCER_ID, &(-1_i64).to_be_bytes()),
            &rules(),
        );
    }
}

#[test]
fn records_with_gaps_between_their_offsets() {
    for codec in CODECS {
        let mut builder = BatchBuilder::new();
        builder.append(NOW, None, Some(b"a"));
        builder.skip_offsets(1);
        builder.append(NOW, None, Some(b"b"));
        let batch = builder.build_compressed(codec, |records| compressed(codec, records));
        let bad = patched(batch, LAST_OFFSET_DELTA, &1_i32.to_be_bytes());
        assert_eq!(code(&bad), ErrorCode::INVALID_RECORD, "{codec:?}");
    }
}

#[test]
fn records_that_do_not_fill_their_length_or_the_batch() {
    let batch = builder().build();
    let last = batch.len() - 1;
    // The first record's length, one more and one less; a byte behind the last record.
    for (at, change) in [(HEADER_LEN, 2_i8), (HEADER_LEN, -2), (HEADER_LEN, -128)] {
        let byte = batch[at].wrapping_add_signed(change);
        assert_eq!(
            code(&patched(batch.clone(), at, &[byte])),
            ErrorCode::INVALID_RECORD
        );
    }
    let mut longer = [&batch[..], &[0]].concat();
    let length = i32::try_from(longer.len() - 12).expect("short");
    longer[LENGTH..LENGTH + 4].copy_from_slice(&length.to_be_bytes());
    refresh_crc(&mut longer);
    assert_eq!(code(&longer), ErrorCode::INVALID_RECORD);
    // The last record's header count.
    assert_eq!(code(&patched(batch, last, &[2])), ErrorCode::INVALID_RECORD);
}

#[test]
fn bodies_that_their_codec_cannot_read() {
    for codec in [
        Compression::Gzip,
        Compression::Snappy,
        Compression::Lz4,
        Compression::Zstd,
    ] {
        let batch = builder().build_compressed(codec, |_| b"not compressed at all".to_vec());
        assert_eq!(code(&batch), ErrorCode::INVALID_RECORD, "{codec:?}");
        let empty = builder().build_compressed(codec, |_| Vec::new());
        assert_eq!(code(&empty), ErrorCode::INVALID_RECORD, "{codec:?}");
    }
}

#[test]
fn a_bomb_is_refused() {
    let rules = Rules {
        expanded_bytes_max: 1 << 20,
        ..rules()
    };
    for codec in [
        Compression::Gzip,
        Compression::Snappy,
        Compression::Lz4,
        Compression::Zstd,
    ] {
        let value = vec![0; 2 << 20];
        let mut builder = BatchBuilder::new();
        builder.append(NOW, None, Some(&value));
        let bomb = builder.build_compressed(codec, |records| compressed(codec, records));
        assert_eq!(
            refuse(&bomb, &rules).code,
            ErrorCode::MESSAGE_TOO_LARGE,
            "{codec:?}"
        );
    }
}

#[test]
fn compacted_topics_need_keys() {
    let rules = Rules {
        compacted: true,
        ..rules()
    };
    for codec in CODECS {
        let error = refuse(&with_codec(codec), &rules);
        assert_eq!(error.code, ErrorCode::INVALID_RECORD);
        let indexes: Vec<_> = error
            .record_errors
            .iter()
            .map(|(index, _)| *index)
            .collect();
        assert_eq!(indexes, [1], "{codec:?}");
    }
    let mut keyed = BatchBuilder::new();
    keyed.append(NOW, Some(b""), None);
    accept(&keyed.build(), &rules);
}

#[test]
fn record_errors_are_limited() {
    let mut builder = BatchBuilder::new();
    for _ in 0..RECORD_ERRORS_MAX + 1 {
        builder.append(NOW, None, None);
    }
    let bytes = builder.build();
    let error = refuse(
        &bytes,
        &Rules {
            compacted: true,
            ..rules()
        },
    );
    assert_eq!(error.record_errors.len(), RECORD_ERRORS_MAX);
    let told_before = Rules {
        compacted: true,
        record_errors_max: 0,
        ..rules()
    };
    let error = refuse(&bytes, &told_before);
    assert_eq!(error.code, ErrorCode::INVALID_RECORD);
    assert_eq!(error.record_errors, []);
}

#[test]
fn replicas_check_what_an_append_relies_on() {
    let batch = patched(with_codec(Compression::Zstd), 0, &500_i64.to_be_bytes());
    let info = validate_replica(&batch).expect("a leader's batch");
    assert_eq!((info.base_offset, info.last_offset_delta), (500, 2));
    let refused = |batch: &[u8]| validate_replica(batch).expect_err("bad").code;
    assert_eq!(
        refused(&batch[..batch.len() - 1]),
        ErrorCode::CORRUPT_MESSAGE
    );
    assert_eq!(refused(&batch[..20]), ErrorCode::CORRUPT_MESSAGE);
    let mut flipped = batch.clone();
    flipped[70] ^= 1;
    assert_eq!(refused(&flipped), ErrorCode::CORRUPT_MESSAGE);
    let negative = patched(batch.clone(), LAST_OFFSET_DELTA, &(-1_i32).to_be_bytes());
    assert_eq!(refused(&negative), ErrorCode::INVALID_RECORD);
    let negative = patched(batch, 0, &(-1_i64).to_be_bytes());
    assert_eq!(refused(&negative), ErrorCode::INVALID_RECORD);
}
