//! Writes messages and wrappers.

use super::{CRC_AT, CRC_START, MAGIC_0, SIZE_PREFIX_LEN, TIMESTAMP_AT, crc32};

/// Bytes of a message besides its key and value.
const fn overhead(magic: i8) -> usize {
    let timestamp_len = if magic == MAGIC_0 { 0 } else { 8 };
    TIMESTAMP_AT + timestamp_len + 2 * size_of::<i32>()
}

/// Bytes of a message.
pub fn message_len(magic: i8, key: Option<&[u8]>, value: Option<&[u8]>) -> usize {
    let len = |bytes: Option<&[u8]>| bytes.map_or(0, <[u8]>::len);
    overhead(magic) + len(key) + len(value)
}

/// Appends a message. Format 0 leaves `timestamp` out. Panics if it exceeds 2 GiB.
pub fn write_message(
    out: &mut Vec<u8>,
    (magic, attributes): (i8, i8),
    offset: i64,
    timestamp: i64,
    key: Option<&[u8]>,
    value: Option<&[u8]>,
) {
    let start = begin(out, (magic, attributes), offset, timestamp);
    put_nullable(out, key);
    put_nullable(out, value);
    finish(out, start);
}

/// A wrapper whose value is being appended.
#[derive(Debug)]
#[must_use = "a wrapper without its size and CRC cannot be read"]
pub struct WrapperStart {
    start: usize,
    value: usize,
}

/// Appends a wrapper up to its value, which the caller appends as it is stored: a compressed set.
/// The attributes name the codec.
pub fn begin_wrapper(out: &mut Vec<u8>, (magic, attributes): (i8, i8)) -> WrapperStart {
    let start = begin(out, (magic, attributes), 0, 0);
    put_nullable(out, None);
    put_nullable(out, Some(&[]));
    WrapperStart {
        start,
        value: out.len(),
    }
}

/// Ends a wrapper at the end of `out`; `offset` is that of its last message, `timestamp` the
/// greatest in it. Panics if it exceeds 2 GiB.
pub fn end_wrapper(out: &mut [u8], wrapper: WrapperStart, offset: i64, timestamp: i64) {
    let head = &mut out[wrapper.start..];
    head[..8].copy_from_slice(&offset.to_be_bytes());
    if head[CRC_START] as i8 != MAGIC_0 {
        head[TIMESTAMP_AT..TIMESTAMP_AT + 8].copy_from_slice(&timestamp.to_be_bytes());
    }
    let value_len = (out.len() - wrapper.value) as i32;
    out[wrapper.value - 4..wrapper.value].copy_from_slice(&value_len.to_be_bytes());
    finish(out, wrapper.start);
}

fn begin(out: &mut Vec<u8>, (magic, attributes): (i8, i8), offset: i64, timestamp: i64) -> usize {
    let start = out.len();
    out.extend_from_slice(&offset.to_be_bytes());
    // Size and CRC come at the end.
    out.extend_from_slice(&[0; CRC_START - 8]);
    out.extend_from_slice(&[magic as u8, attributes as u8]);
    if magic != MAGIC_0 {
        out.extend_from_slice(&timestamp.to_be_bytes());
    }
    start
}

fn put_nullable(out: &mut Vec<u8>, bytes: Option<&[u8]>) {
    let len = bytes.map_or(-1, |bytes| bytes.len() as i32);
    out.extend_from_slice(&len.to_be_bytes());
    out.extend_from_slice(bytes.unwrap_or_default());
}

fn finish(out: &mut [u8], start: usize) {
    let message = &mut out[start..];
    let size = i32::try_from(message.len() - SIZE_PREFIX_LEN).expect("a message over 2 GiB");
    message[8..SIZE_PREFIX_LEN].copy_from_slice(&size.to_be_bytes());
    let crc = crc32(&message[CRC_START..]);
    message[CRC_AT..CRC_START].copy_from_slice(&crc.to_be_bytes());
}
