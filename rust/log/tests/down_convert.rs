//! Record batches as messages of formats 0 and 1.

use crate::common::{Rig, batch};
use proptest::prelude::*;
use pyrklog_log::compression::{Lz4Header, compress, decompress_with};
use pyrklog_log::down_convert::{
    DownConvert, DownConvertError, DownConverted, SMALL_BYTES, down_convert,
};
use pyrklog_log::{Isolation, LogConfig, Origin, Wait};
use pyrklog_wire::batch::{self, Compression, NO_TIMESTAMP, TimestampType};
use pyrklog_wire::builder::{BatchBuilder, transaction_marker};
use pyrklog_wire::message_set::{MAGIC_0, MAGIC_1, Message, Messages, message_len};

const OLD_CODECS: [Compression; 4] = [
    Compression::None,
    Compression::Gzip,
    Compression::Snappy,
    Compression::Lz4,
];

/// A message as a client reads it, with its absolute offset.
type Read = (i64, i64, Option<Vec<u8>>, Option<Vec<u8>>);

fn wanted(magic: i8, first_offset: i64) -> DownConvert {
    DownConvert {
        magic,
        first_offset,
        max_bytes: 1 << 20,
        expanded_bytes_max: 1 << 20,
        may_be_large: false,
        room_bytes: usize::MAX,
    }
}

fn convert(rig: &Rig, wanted: DownConvert) -> Result<DownConverted, DownConvertError> {
    let location = rig
        .log
        .locate(wanted.first_offset, Isolation::HighWatermark);
    let slice = location.unwrap().resolve(1 << 20, true, Wait::Blocking);
    down_convert(&slice.unwrap(), wanted, Wait::Blocking, || true)
}

fn owned(message: &Message<'_>, offset: i64, timestamp: i64) -> Read {
    let owned = |bytes: Option<&[u8]>| bytes.map(<[u8]>::to_vec);
    (offset, timestamp, owned(message.key), owned(message.value))
}

/// Reads a set as old clients do; a message that is cut off ends it.
fn read(set: &[u8], magic: i8) -> Vec<Read> {
    let mut found = Vec::new();
    for message in Messages::new(set) {
        let message = message.unwrap();
        assert_eq!(message.magic, magic);
        assert_eq!(message.verify_crc(), Ok(()));
        let codec = message.compression().unwrap();
        if codec == Compression::None {
            found.push(owned(&message, message.offset, message.timestamp));
            continue;
        }
        let header = match magic {
            MAGIC_0 => Lz4Header::Format0,
            _ => Lz4Header::Standard,
        };
        let mut inner = Vec::new();
        decompress_with(codec, header, message.value.unwrap(), &mut inner, 8 << 20).unwrap();
        let inner: Vec<_> = Messages::new(&inner).map(Result::unwrap).collect();
        let last = inner.last().unwrap().offset;
        let base = if magic == MAGIC_0 {
            0
        } else {
            message.offset - last
        };
        assert_eq!(base + last, message.offset);
        for one in inner {
            assert_eq!((one.magic, one.verify_crc()), (magic, Ok(())));
            assert_eq!(one.compression(), Ok(Compression::None));
            let timestamp = match message.timestamp_type() {
                TimestampType::LogAppendTime => message.timestamp,
                TimestampType::CreateTime => one.timestamp,
            };
            found.push(owned(&one, base + one.offset, timestamp));
        }
    }
    found
}

fn compressed(builder: BatchBuilder, codec: Compression) -> Vec<u8> {
    builder.build_compressed(codec, |records| {
        let mut out = Vec::new();
        compress(codec, records, &mut out).unwrap();
        out
    })
}

fn three_records() -> BatchBuilder {
    let mut builder = BatchBuilder::new();
    builder.append(500, Some(b"k"), Some(b"one"));
    builder.append_with_headers(700, None, Some(b"two"), &[(b"lost", None)]);
    builder.append(600, Some(b"k"), None);
    builder
}

fn put(rig: &mut Rig, mut bytes: Vec<u8>) {
    rig.append(&mut bytes).unwrap();
    rig.drain();
}

fn expected(base_offset: i64, magic: i8) -> Vec<Read> {
    let at = |timestamp| {
        if magic == MAGIC_0 {
            NO_TIMESTAMP
        } else {
            timestamp
        }
    };
    let some = |text: &str| Some(text.as_bytes().to_vec());
    vec![
        (base_offset, at(500), some("k"), some("one")),
        (base_offset + 1, at(700), None, some("two")),
        (base_offset + 2, at(600), some("k"), None),
    ]
}

#[test]
fn batches_of_each_codec_are_read_by_old_clients() {
    for magic in [MAGIC_0, MAGIC_1] {
        for codec in OLD_CODECS {
            let mut rig = Rig::new(LogConfig::default());
            put(&mut rig, compressed(three_records(), codec));
            put(&mut rig, compressed(three_records(), codec));
            let converted = convert(&rig, wanted(magic, 0)).unwrap();
            let both = [expected(0, magic), expected(3, magic)].concat();
            assert_eq!(read(&converted.messages, magic), both, "{magic} {codec:?}");
            assert_eq!(converted.next_offset, 6);
            let wrapped = Messages::new(&converted.messages).next().unwrap().unwrap();
            assert_eq!(wrapped.compression(), Ok(codec));
            if codec != Compression::None && magic == MAGIC_1 {
                assert_eq!((wrapped.offset, wrapped.timestamp), (2, 700));
            }
        }
    }
}

#[test]
fn records_below_the_offset_are_left_out_unless_they_are_compressed() {
    for (codec, first) in [(Compression::None, 4), (Compression::Gzip, 3)] {
        let mut rig = Rig::new(LogConfig::default());
        put(&mut rig, compressed(three_records(), codec));
        put(&mut rig, compressed(three_records(), codec));
        let converted = convert(&rig, wanted(MAGIC_1, 4)).unwrap();
        let offsets: Vec<i64> = read(&converted.messages, MAGIC_1)
            .iter()
            .map(|one| one.0)
            .collect();
        assert_eq!(offsets, (first..6).collect::<Vec<_>>());
    }
}

/// A client that gets nothing but records below its position asks again, for ever.
#[test]
fn a_compressed_batch_with_nothing_from_the_offset_on_is_left_out() {
    for codec in OLD_CODECS {
        let mut rig = Rig::new(LogConfig::default());
        let mut compacted = three_records();
        compacted.skip_offsets(7);
        let mut bytes = compressed(compacted, codec);
        rig.append_as(&mut bytes, Origin::Replication).unwrap();
        rig.drain();
        let alone = convert(&rig, wanted(MAGIC_1, 3)).unwrap();
        assert_eq!((alone.messages.len(), alone.next_offset), (0, 10));
        put(&mut rig, compressed(three_records(), codec));
        let wanted = DownConvert {
            max_bytes: 1,
            ..wanted(MAGIC_1, 3)
        };
        let converted = convert(&rig, wanted).unwrap();
        assert_eq!(read(&converted.messages, MAGIC_1)[0].0, 10);
    }
}

#[test]
fn append_time_is_every_messages_timestamp() {
    for codec in OLD_CODECS {
        let mut rig = Rig::new(LogConfig::default());
        let mut bytes = compressed(three_records(), codec);
        batch::set_timestamp_type(&mut bytes, TimestampType::LogAppendTime);
        batch::set_max_timestamp(&mut bytes, 9_000);
        batch::refresh_crc(&mut bytes);
        put(&mut rig, bytes);
        let converted = convert(&rig, wanted(MAGIC_1, 0)).unwrap();
        let found = read(&converted.messages, MAGIC_1);
        assert!(
            found.iter().all(|one| one.1 == 9_000),
            "{codec:?} {found:?}"
        );
        let first = Messages::new(&converted.messages).next().unwrap().unwrap();
        assert_eq!(first.timestamp_type(), TimestampType::LogAppendTime);
        let converted = convert(&rig, wanted(MAGIC_0, 0)).unwrap();
        let first = Messages::new(&converted.messages).next().unwrap().unwrap();
        assert_eq!(first.attributes, codec as i8);
    }
}

#[test]
fn control_batches_are_left_out_and_passed_over() {
    let mut rig = Rig::new(LogConfig::default());
    put(&mut rig, crate::common::transactional(7, 0, &["aborted"]));
    let mut marker = transaction_marker(7, 0, false, 0, 1_000);
    rig.append_as(&mut marker, Origin::Coordinator).unwrap();
    rig.drain();
    let converted = convert(&rig, wanted(MAGIC_1, 0)).unwrap();
    let found = read(&converted.messages, MAGIC_1);
    assert_eq!((found.len(), converted.next_offset), (1, 2));
    let converted = convert(&rig, wanted(MAGIC_1, 1)).unwrap();
    assert_eq!((converted.messages.len(), converted.next_offset), (0, 2));
}

#[test]
fn zstd_is_told_once_it_is_the_first() {
    let mut rig = Rig::new(LogConfig::default());
    put(&mut rig, three_records().build());
    put(&mut rig, compressed(three_records(), Compression::Zstd));
    let converted = convert(&rig, wanted(MAGIC_1, 0)).unwrap();
    assert_eq!(read(&converted.messages, MAGIC_1), expected(0, MAGIC_1));
    let refused = convert(&rig, wanted(MAGIC_1, 3));
    assert!(matches!(refused, Err(DownConvertError::Zstd)));
}

#[test]
fn only_the_first_message_exceeds_the_limit() {
    let mut rig = Rig::new(LogConfig::default());
    put(&mut rig, batch(1_000, &["a message", "another one", "x"]));
    let first = message_len(MAGIC_1, None, Some(b"a message"));
    for max_bytes in [0, 1, first - 1, first, first + 1] {
        let wanted = DownConvert {
            max_bytes,
            ..wanted(MAGIC_1, 0)
        };
        let converted = convert(&rig, wanted).unwrap();
        assert_eq!(converted.messages.len(), max_bytes.max(first));
        assert_eq!(read(&converted.messages, MAGIC_1).len(), 1);
    }
}

#[test]
fn an_expansion_beyond_the_limit_is_told() {
    let mut builder = BatchBuilder::new();
    builder.append(1, None, Some(&vec![0; 200_000]));
    let mut rig = Rig::new(LogConfig::default());
    put(&mut rig, compressed(builder, Compression::Gzip));
    let wanted = DownConvert {
        expanded_bytes_max: 100_000,
        ..wanted(MAGIC_1, 0)
    };
    let refused = convert(&rig, wanted);
    assert!(matches!(
        refused,
        Err(DownConvertError::TooLarge { offset: 0 })
    ));
}

#[test]
fn a_large_expansion_is_converted_as_a_small_one() {
    let value = vec![b'v'; 5 << 20];
    let mut builder = BatchBuilder::new();
    builder.append(1, None, Some(&value));
    let mut rig = Rig::new(LogConfig::default());
    put(&mut rig, compressed(builder, Compression::Gzip));
    let wanted = DownConvert {
        expanded_bytes_max: 6 << 20,
        ..wanted(MAGIC_1, 0)
    };
    let refused = convert(&rig, wanted);
    assert!(matches!(
        refused,
        Err(DownConvertError::Large { offset: 0 })
    ));
    let wanted = DownConvert {
        may_be_large: true,
        ..wanted
    };
    let converted = convert(&rig, wanted).unwrap();
    let found = read(&converted.messages, MAGIC_1);
    assert_eq!(found, [(0, 1, None, Some(value))]);
}

#[test]
fn a_compressed_message_beyond_the_room_is_told_with_room_that_suffices() {
    for codec in [Compression::Gzip, Compression::Snappy, Compression::Lz4] {
        let mut builder = BatchBuilder::new();
        for value in 0u16..10_000 {
            builder.append(1, None, Some(&value.wrapping_mul(40_503).to_be_bytes()));
        }
        let mut rig = Rig::new(LogConfig::default());
        put(&mut rig, compressed(builder, codec));
        for magic in [MAGIC_0, MAGIC_1] {
            let whole = convert(&rig, wanted(magic, 0)).unwrap().messages;
            let within = |room_bytes| {
                let wanted = DownConvert {
                    room_bytes,
                    ..wanted(magic, 0)
                };
                convert(&rig, wanted).map(|converted| converted.messages)
            };
            assert_eq!(within(whole.len()).unwrap(), whole);
            let bytes = match within(whole.len() - 1) {
                Err(DownConvertError::NoRoom { offset: 0, bytes }) => bytes,
                other => panic!("{codec:?}: {other:?}"),
            };
            assert!(bytes >= whole.len());
            assert_eq!(within(bytes).unwrap(), whole);
        }
    }
}

#[test]
fn what_stands_before_a_message_beyond_the_room_is_returned() {
    let mut rig = Rig::new(LogConfig::default());
    put(&mut rig, compressed(three_records(), Compression::Gzip));
    let first = convert(&rig, wanted(MAGIC_1, 0)).unwrap().messages;
    let mut builder = BatchBuilder::new();
    builder.append(1, None, Some(&[3; 100_000]));
    put(&mut rig, compressed(builder, Compression::Lz4));
    let wanted = DownConvert {
        room_bytes: first.len(),
        ..wanted(MAGIC_1, 0)
    };
    assert_eq!(convert(&rig, wanted).unwrap().messages, first);
}

fn zeros(count: usize) -> Vec<u8> {
    let mut builder = BatchBuilder::new();
    builder.append(1, None, Some(&vec![0; count]));
    compressed(builder, Compression::Gzip)
}

#[test]
fn small_batches_are_expanded_to_no_more_than_a_large_one_at_once() {
    let mut rig = Rig::new(LogConfig::default());
    for _ in 0..5 {
        put(&mut rig, zeros(1_500_000));
    }
    let wanted = DownConvert {
        expanded_bytes_max: 100 << 20,
        ..wanted(MAGIC_1, 0)
    };
    let converted = convert(&rig, wanted).unwrap();
    assert_eq!(converted.next_offset, 3);
    assert!(converted.expanded_bytes >= SMALL_BYTES);
    assert_eq!(Messages::new(&converted.messages).count(), 3);
}

#[test]
fn a_conversion_is_given_up_within_and_between_batches() {
    let mut rig = Rig::new(LogConfig::default());
    let mut builder = BatchBuilder::new();
    for _ in 0..30 {
        builder.append(1, None, Some(&vec![0; 100_000]));
    }
    put(&mut rig, compressed(builder, Compression::Gzip));
    for _ in 0..5 {
        put(&mut rig, three_records().build());
    }
    let wanted = DownConvert {
        expanded_bytes_max: 100 << 20,
        ..wanted(MAGIC_1, 0)
    };
    let location = rig.log.locate(0, Isolation::HighWatermark).unwrap();
    let slice = location.resolve(1 << 20, true, Wait::Blocking).unwrap();
    // Two mebibytes within the first batch, six batches, and the end.
    for most in 0..9 {
        let mut steps = 0;
        let given_up = down_convert(&slice, wanted, Wait::Blocking, || {
            steps += 1;
            steps <= most
        });
        assert!(matches!(given_up, Err(DownConvertError::GivenUp)));
        assert_eq!(steps, most + 1);
    }
    assert!(down_convert(&slice, wanted, Wait::Blocking, || true).is_ok());
}

fn bytes_or_null() -> impl Strategy<Value = Option<Vec<u8>>> {
    prop::option::of(prop::collection::vec(any::<u8>(), 0..100))
}

type Sent = (i64, Option<Vec<u8>>, Option<Vec<u8>>);

fn batches() -> impl Strategy<Value = Vec<(usize, i32, Vec<Sent>)>> {
    let record = (0..2_000_000_000_000_i64, bytes_or_null(), bytes_or_null());
    let records = prop::collection::vec(record, 1..20);
    // Compaction leaves gaps.
    prop::collection::vec((0..OLD_CODECS.len(), 0..3, records), 1..6)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn messages_are_the_records(magic in MAGIC_0..=MAGIC_1, batches in batches()) {
        // One segment, however far apart the timestamps are.
        let config = LogConfig {
            segment_ms: i64::MAX,
            ..LogConfig::default()
        };
        let mut rig = Rig::new(config);
        let mut model: Vec<Read> = Vec::new();
        for (codec, gap, records) in &batches {
            let base = rig.log.log_end_offset();
            let mut builder = BatchBuilder::new();
            for (at, (timestamp, key, value)) in (0..).zip(records) {
                builder.append(*timestamp, key.as_deref(), value.as_deref());
                builder.skip_offsets(*gap);
                let offset = base + at * i64::from(1 + gap);
                let seen = if magic == MAGIC_0 { NO_TIMESTAMP } else { *timestamp };
                model.push((offset, seen, key.clone(), value.clone()));
            }
            let mut bytes = compressed(builder, OLD_CODECS[*codec]);
            batch::set_base_offset(&mut bytes, base);
            rig.append_as(&mut bytes, Origin::Replication).unwrap();
            rig.drain();
        }
        let converted = convert(&rig, wanted(magic, 0)).unwrap();
        prop_assert_eq!(read(&converted.messages, magic), model);
        prop_assert_eq!(converted.next_offset, rig.log.log_end_offset());
    }
}
