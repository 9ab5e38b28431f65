//! Messages of formats 0 and 1: bytes that Kafka's clients write, and round trips.

use proptest::prelude::*;
use pyrklog_wire::DecodeError;
use pyrklog_wire::batch::{Compression, NO_TIMESTAMP, TimestampType};
use pyrklog_wire::message_set;
use pyrklog_wire::message_set::{
    MAGIC_0, MAGIC_1, Message, Messages, OffsetDeltas, UpConvertError, UpConverted, Wrapper,
    begin_wrapper, crc32, end_wrapper, message_len, write_message,
};
use pyrklog_wire::records::Records;

/// Key "k", value "v", format 0; the CRC is zlib's.
const WRITTEN_0: [u8; 28] = [
    0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 16, 0x1f, 0xec, 0xd7, 0x0a, 0, 0, 0, 0, 0, 1, b'k', 0, 0, 0,
    1, b'v',
];

#[derive(Clone, Debug, PartialEq, Eq)]
struct Written {
    offset: i64,
    timestamp: i64,
    key: Option<Vec<u8>>,
    value: Option<Vec<u8>>,
}

fn write_set(magic: i8, messages: &[Written]) -> Vec<u8> {
    let mut set = Vec::new();
    for message in messages {
        let (key, value) = (message.key.as_deref(), message.value.as_deref());
        let before = set.len();
        write_message(
            &mut set,
            (magic, 0),
            message.offset,
            message.timestamp,
            key,
            value,
        );
        assert_eq!(set.len() - before, message_len(magic, key, value));
    }
    set
}

fn message(offset: i64, timestamp: i64, value: &[u8]) -> Written {
    Written {
        offset,
        timestamp,
        key: None,
        value: Some(value.to_vec()),
    }
}

#[test]
fn a_message_has_the_bytes_that_clients_write() {
    let mut written = Vec::new();
    write_message(&mut written, (MAGIC_0, 0), 0, 7, Some(b"k"), Some(b"v"));
    assert_eq!(written, WRITTEN_0);
    // The check value of CRC-32/ISO-HDLC.
    assert_eq!(crc32(b"123456789"), 0xcbf4_3926);
}

#[test]
fn format_0_has_no_timestamp_and_format_1_a_type_of_it() {
    for (magic, attributes, timestamp, kind) in [
        (MAGIC_0, 0x08, NO_TIMESTAMP, TimestampType::CreateTime),
        (MAGIC_1, 0x00, 55, TimestampType::CreateTime),
        (MAGIC_1, 0x08, 55, TimestampType::LogAppendTime),
    ] {
        let mut set = Vec::new();
        write_message(&mut set, (magic, attributes), 3, 55, None, Some(b"v"));
        let parsed = Message::parse(&set).unwrap().unwrap();
        assert_eq!(
            (parsed.timestamp, parsed.timestamp_type()),
            (timestamp, kind)
        );
        assert_eq!(parsed.compression(), Ok(Compression::None));
        assert_eq!(parsed.verify_crc(), Ok(()));
    }
}

#[test]
fn every_flipped_bit_behind_the_crc_is_noticed() {
    let set = write_set(MAGIC_1, &[message(0, 1, b"value")]);
    for bit in 12 * 8..set.len() * 8 {
        let mut flipped = set.clone();
        flipped[bit / 8] ^= 1 << (bit % 8);
        let is_noticed = match Message::parse(&flipped) {
            Ok(Some(message)) => message.verify_crc().is_err(),
            Ok(None) => false,
            Err(_) => true,
        };
        assert!(is_noticed, "bit {bit}");
    }
}

#[test]
fn sizes_that_lie_are_refused_or_incomplete() {
    let set = write_set(MAGIC_0, &[message(0, 0, b"value")]);
    for size in [i32::MIN, -1, 0, 13] {
        let mut lying = set.clone();
        lying[8..12].copy_from_slice(&size.to_be_bytes());
        let parsed = Message::parse(&lying);
        assert_eq!(parsed, Err(DecodeError::BadMessageLength(size)));
    }
    let mut lying = set.clone();
    lying[8..12].copy_from_slice(&i32::MAX.to_be_bytes());
    assert_eq!(Message::parse(&lying), Ok(None));
    // The value's length, in a message of format 0 without a key.
    let mut lying = set.clone();
    lying[22..26].copy_from_slice(&6_i32.to_be_bytes());
    assert_eq!(Message::parse(&lying), Err(DecodeError::BadMessageFields));
    let mut other = set;
    other[16] = 2;
    assert_eq!(Message::parse(&other), Err(DecodeError::NotAMessage(2)));
}

#[test]
fn a_set_ends_at_an_incomplete_message() {
    let set = write_set(MAGIC_1, &[message(0, 1, b"one"), message(1, 2, b"two")]);
    let one = message_len(MAGIC_1, None, Some(b"one"));
    for len in one..set.len() {
        let mut messages = Messages::new(&set[..len]);
        let offsets: Vec<i64> = messages
            .by_ref()
            .map(|message| message.unwrap().offset)
            .collect();
        assert_eq!(offsets, [0]);
        assert_eq!(messages.trailing(), &set[one..len]);
    }
}

#[test]
fn a_wrapper_holds_what_was_appended() {
    let mut out = b"before".to_vec();
    let wrapper = begin_wrapper(&mut out, (MAGIC_1, Compression::Gzip as i8));
    out.extend_from_slice(b"compressed");
    end_wrapper(&mut out, wrapper, 9, 77);
    let parsed = Message::parse(&out[6..]).unwrap().unwrap();
    assert_eq!((parsed.offset, parsed.timestamp), (9, 77));
    assert_eq!(parsed.compression(), Ok(Compression::Gzip));
    assert_eq!((parsed.key, parsed.value), (None, Some(&b"compressed"[..])));
    assert_eq!(parsed.verify_crc(), Ok(()));
}

fn up_convert(
    set: &mut [u8],
    magic: i8,
    wrapper: Option<Wrapper>,
) -> Result<UpConverted, UpConvertError> {
    message_set::up_convert(set, magic, wrapper, OffsetDeltas::Anew)
}

/// A wrapper around a set whose last message has offset `last`.
fn around(offset: i64, kind: TimestampType) -> Wrapper {
    Wrapper {
        offset,
        timestamp: 1000,
        timestamp_type: kind,
    }
}

#[test]
fn append_time_of_a_wrapper_counts_for_format_1_alone() {
    let kind = TimestampType::LogAppendTime;
    for (magic, expected) in [(MAGIC_0, NO_TIMESTAMP), (MAGIC_1, 1000)] {
        let mut set = write_set(magic, &[message(0, 5, b"v"), message(1, 6, b"v")]);
        let converted = up_convert(&mut set, magic, Some(around(1, kind))).unwrap();
        assert_eq!(converted.max_timestamp, expected);
        assert_eq!(converted.base_timestamp, expected);
        assert_eq!(converted.claims_append_time, magic == MAGIC_1);
    }
}

#[test]
fn offsets_in_a_wrapper_need_not_ascend_but_lie_within_it() {
    let kind = TimestampType::CreateTime;
    let set = write_set(MAGIC_1, &[message(7, 5, b"a"), message(2, 6, b"b")]);
    for offset in [0, 2, 9] {
        let converted = up_convert(&mut set.clone(), MAGIC_1, Some(around(offset, kind)));
        assert_eq!(converted.map(|converted| converted.count), Ok(2));
    }
    let refused = up_convert(&mut set.clone(), MAGIC_1, Some(around(1, kind)));
    let (offset, last) = (1, 2);
    assert_eq!(refused, Err(UpConvertError::WrapperOffset { offset, last }));
    // In format 0 the broker gives new offsets whatever they were.
    let mut set = write_set(MAGIC_0, &[message(7, 5, b"a"), message(2, 6, b"b")]);
    assert!(up_convert(&mut set, MAGIC_0, Some(around(1, kind))).is_ok());
}

#[test]
fn sets_that_cannot_become_records_are_told_apart() {
    let mut nested = write_set(MAGIC_1, &[message(0, 1, b"a")]);
    let gzip = Compression::Gzip as i8;
    write_message(&mut nested, (MAGIC_1, gzip), 1, 1, None, Some(b"inner"));
    let kind = TimestampType::CreateTime;
    let wrapper = Some(around(5, kind));
    let refused = up_convert(&mut nested, MAGIC_1, wrapper);
    assert_eq!(refused, Err(UpConvertError::Nested { index: 1 }));

    let mut mixed = write_set(MAGIC_1, &[message(0, 1, b"a")]);
    mixed.extend(write_set(MAGIC_0, &[message(1, 1, b"b")]));
    let (index, found, expected) = (1, MAGIC_0, MAGIC_1);
    let refused = up_convert(&mut mixed, MAGIC_1, wrapper);
    let formats = UpConvertError::MixedFormats {
        index,
        found,
        expected,
    };
    assert_eq!(refused, Err(formats));

    let mut damaged = write_set(MAGIC_1, &[message(0, 1, b"a")]);
    *damaged.last_mut().unwrap() ^= 1;
    let refused = up_convert(&mut damaged, MAGIC_1, wrapper).unwrap_err();
    let is_crc = |reason| matches!(reason, DecodeError::BadMessageCrc { .. });
    assert!(matches!(refused, UpConvertError::Malformed { index: 0, reason } if is_crc(reason)));
    assert_eq!(
        up_convert(&mut [], MAGIC_0, None),
        Err(UpConvertError::Empty)
    );
}

#[test]
fn kept_offsets_must_rise_and_fit_into_a_batch() {
    let far = 1 << 31;
    for (offsets, (index, offset, before)) in [
        ([5, 5, 6], (1, 5, 5)),
        ([5, 7, 6], (2, 6, 7)),
        ([0, far, 0], (1, far, 0)),
        ([i64::MIN, 0, 1], (1, 0, i64::MIN)),
    ] {
        let messages = offsets.map(|offset| message(offset, 1, b"v"));
        let mut set = write_set(MAGIC_1, &messages);
        let refused = message_set::up_convert(&mut set, MAGIC_1, None, OffsetDeltas::Kept);
        let not_rising = UpConvertError::NotRising {
            index,
            offset,
            before,
        };
        assert_eq!(refused, Err(not_rising));
    }
}

fn bytes_or_null() -> impl Strategy<Value = Option<Vec<u8>>> {
    proptest::option::of(proptest::collection::vec(any::<u8>(), 0..200))
}

fn messages() -> impl Strategy<Value = Vec<Written>> {
    let timestamp = prop_oneof![Just(-1), 0..2_000_000_000_000_i64, any::<i64>()];
    let one = (any::<i64>(), timestamp, bytes_or_null(), bytes_or_null());
    let one = one.prop_map(|(offset, timestamp, key, value)| Written {
        offset,
        timestamp,
        key,
        value,
    });
    proptest::collection::vec(one, 1..40)
}

proptest! {
    #[test]
    fn written_sets_are_read_as_they_were(magic in MAGIC_0..=MAGIC_1, messages in messages()) {
        let set = write_set(magic, &messages);
        let mut read = Vec::new();
        for message in Messages::new(&set) {
            let message = message.unwrap();
            prop_assert_eq!(message.verify_crc(), Ok(()));
            read.push(Written {
                offset: message.offset,
                timestamp: message.timestamp,
                key: message.key.map(<[u8]>::to_vec),
                value: message.value.map(<[u8]>::to_vec),
            });
        }
        let mut expected = messages;
        if magic == MAGIC_0 {
            expected.iter_mut().for_each(|message| message.timestamp = NO_TIMESTAMP);
        }
        prop_assert_eq!(read, expected);
    }

    #[test]
    fn records_have_what_the_messages_had(magic in MAGIC_0..=MAGIC_1, messages in messages()) {
        let mut set = write_set(magic, &messages);
        let converted = up_convert(&mut set, magic, None).unwrap();
        prop_assert_eq!(converted.count as usize, messages.len());
        let records: Vec<_> = Records::new(&set[..converted.len]).map(Result::unwrap).collect();
        prop_assert_eq!(records.len(), messages.len());
        let mut max_timestamp = NO_TIMESTAMP;
        for ((index, record), message) in (0..).zip(&records).zip(&messages) {
            let timestamp = if magic == MAGIC_0 { NO_TIMESTAMP } else { message.timestamp };
            max_timestamp = max_timestamp.max(timestamp);
            let read = converted.base_timestamp.wrapping_add(record.timestamp_delta);
            prop_assert_eq!((record.offset_delta, read), (index, timestamp));
            prop_assert_eq!(record.key, message.key.as_deref());
            prop_assert_eq!(record.value, message.value.as_deref());
            prop_assert_eq!(record.header_count, 0);
        }
        prop_assert_eq!(converted.max_timestamp, max_timestamp);
    }

    /// However far apart: the records still fit into the messages' place.
    #[test]
    fn kept_offsets_count_from_the_first(
        magic in MAGIC_0..=MAGIC_1,
        mut messages in messages(),
        first in 0..1_i64 << 60,
        gaps in proptest::collection::vec(prop_oneof![1_i64..3, 1..50_000_000_i64], 40),
    ) {
        let mut offset = first;
        for (message, gap) in messages.iter_mut().zip(gaps) {
            message.offset = offset;
            offset += gap;
        }
        let mut set = write_set(magic, &messages);
        let kept = OffsetDeltas::Kept;
        let converted = message_set::up_convert(&mut set, magic, None, kept).unwrap();
        let offsets = (converted.first_offset, converted.last_offset);
        prop_assert_eq!(offsets, (first, messages.last().unwrap().offset));
        let records = Records::new(&set[..converted.len]).map(Result::unwrap);
        let read: Vec<_> = records
            .map(|one| (first + i64::from(one.offset_delta), one.value.map(<[u8]>::to_vec)))
            .collect();
        let written: Vec<_> = messages.into_iter().map(|one| (one.offset, one.value)).collect();
        prop_assert_eq!(read, written);
    }

    #[test]
    fn damaged_sets_never_panic(
        magic in MAGIC_0..=MAGIC_1,
        messages in messages(),
        damage in proptest::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 1..8),
    ) {
        let mut set = write_set(magic, &messages);
        for (at, byte) in damage {
            let at = at.index(set.len());
            set[at] = byte;
        }
        let len = set.len();
        if let Ok(converted) = up_convert(&mut set, magic, None) {
            prop_assert!(converted.len <= len);
        }
    }

    #[test]
    fn arbitrary_bytes_never_panic(mut bytes in proptest::collection::vec(any::<u8>(), 0..300)) {
        let _ = Messages::new(&bytes).count();
        let wrapper = Some(around(0, TimestampType::CreateTime));
        let _ = up_convert(&mut bytes, MAGIC_1, wrapper);
    }
}
