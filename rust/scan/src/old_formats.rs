//! Messages of formats 0 and 1: a log keeps them until its segments are deleted, and brokers of 0.11
//! and later send them as they are.

use std::ops::Range;

use pyrklog_compression::Lz4Header;
use pyrklog_wire::batch::{Compression, NO_TIMESTAMP, TimestampType};
use pyrklog_wire::message_set::{MAGIC_0, Message, Messages};

use crate::builder::Row;
use crate::decode::{Bad, Decoder};
use crate::rows::Rows;

/// "No type", as Java's clients number it.
const NO_TIMESTAMP_TYPE: i32 = -1;

/// What a wrapper says of the messages in it.
#[derive(Clone, Copy, Debug)]
struct Outer {
    offset: i64,
    magic: i8,
    /// The broker's time, which counts for all.
    append_time: Option<i64>,
}

/// Appends a message, or those in it, whose offsets are in `range`.
pub(crate) fn append(
    decoder: &mut Decoder,
    message: &Message<'_>,
    range: Range<i64>,
) -> Result<(), Bad> {
    if decoder.check_crcs() {
        message.verify_crc()?;
    }
    let codec = message.compression()?;
    let is_append_time = message.timestamp_type() == TimestampType::LogAppendTime;
    if codec == Compression::None {
        let append_time = is_append_time.then_some(message.timestamp);
        return push(
            &mut decoder.rows,
            message,
            message.offset,
            append_time,
            &range,
        );
    }
    let outer = Outer {
        offset: message.offset,
        magic: message.magic,
        append_time: is_append_time.then_some(message.timestamp),
    };
    let body = message
        .value
        .ok_or(Bad::Other("a compressed message has no value"))?;
    let lz4_header = match message.magic {
        MAGIC_0 => Lz4Header::Format0,
        _ => Lz4Header::Standard,
    };
    decoder.with_expanded(codec, lz4_header, body, |decoder, set| {
        append_inner(decoder, outer, set, &range)
    })
}

fn append_inner(
    decoder: &mut Decoder,
    outer: Outer,
    set: &[u8],
    range: &Range<i64>,
) -> Result<(), Bad> {
    let mut last = None;
    for message in Messages::new(set) {
        let message = message?;
        if message.magic != outer.magic || message.compression() != Ok(Compression::None) {
            return Err(Bad::Other(
                "a compressed message holds one of another format",
            ));
        }
        last = Some(message.offset);
    }
    let last = last.ok_or(Bad::Other("a compressed message holds no message"))?;
    // In format 1 the offsets inside count from the first one.
    let base = match outer.magic {
        MAGIC_0 => 0,
        _ => outer.offset.saturating_sub(last),
    };
    let mut before = None;
    for message in Messages::new(set) {
        let message = message?;
        if decoder.check_crcs() {
            message.verify_crc()?;
        }
        let offset = base.saturating_add(message.offset);
        if before.is_some_and(|before| offset <= before) || offset > outer.offset {
            return Err(Bad::Other(
                "the offsets of a compressed message do not rise",
            ));
        }
        before = Some(offset);
        push(
            &mut decoder.rows,
            &message,
            offset,
            outer.append_time,
            range,
        )?;
    }
    Ok(())
}

fn push(
    rows: &mut Rows,
    message: &Message<'_>,
    offset: i64,
    append_time: Option<i64>,
    range: &Range<i64>,
) -> Result<(), Bad> {
    if !range.contains(&offset) {
        return Ok(());
    }
    let (timestamp, timestamp_type) = match (message.magic, append_time) {
        (MAGIC_0, _) => (NO_TIMESTAMP, NO_TIMESTAMP_TYPE),
        (_, Some(time)) => (time, 1),
        (_, None) => (message.timestamp, 0),
    };
    let row = Row {
        offset,
        timestamp,
        timestamp_type,
    };
    Ok(rows.push_message(row, message.key, message.value)?)
}
