//! Messages of formats 0 and 1, which clients before Kafka 0.11 write and read, and sets of them.
//!
//! ```text
//!  0  offset      i64
//!  8  size        i32   bytes after this field
//! 12  CRC-32      u32   of everything from byte 16 to the end (ISO-HDLC, not the batch's CRC-32C)
//! 16  magic       i8    0 or 1
//! 17  attributes  i8    0-2 codec, 3 timestamp type (format 1)
//! 18  timestamp   i64   ms, format 1 only
//!  …  key         i32   length (-1 = null), bytes
//!  …  value       i32   length (-1 = null), bytes
//! ```
//!
//! A set is messages one behind the other, without a count. With a codec the value of a message,
//! the *wrapper*, is a compressed set, whose messages have no codec. The wrapper has the offset of
//! the last message in it. The offsets inside are absolute in format 0; in format 1 they count from
//! the first message, so that a broker can set the wrapper's offset without compressing anew. Bytes
//! behind the value count as part of the message and mean nothing.
//!
//! Parsing a message promises that its fields lie within its size, nothing about the CRC or about
//! what a wrapper contains.

mod up_convert;
mod write;

pub use up_convert::{OffsetDeltas, UpConvertError, UpConverted, Wrapper, up_convert};
pub use write::{WrapperStart, begin_wrapper, end_wrapper, message_len, write_message};

use crate::batch::{
    COMPRESSION_MASK, Compression, NO_TIMESTAMP, TIMESTAMP_TYPE_BIT, TimestampType,
};
use crate::error::{DecodeError, Result};
use crate::reader::Reader;

/// The format without timestamps.
pub const MAGIC_0: i8 = 0;
/// The format with timestamps.
pub const MAGIC_1: i8 = 1;

/// Bytes before the part that the size counts.
pub const SIZE_PREFIX_LEN: usize = 12;
/// Least size of a message: CRC, magic, attributes, two lengths.
const SIZE_MIN: i32 = 14;
const CRC_AT: usize = 12;
/// First byte under the CRC.
const CRC_START: usize = 16;
const MAGIC_AT: usize = 16;
const TIMESTAMP_AT: usize = 18;

/// One message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Message<'a> {
    /// As it stands in the message: relative within a wrapper of format 1.
    pub offset: i64,
    /// Format, 0 or 1.
    pub magic: i8,
    /// See the module.
    pub attributes: i8,
    /// Milliseconds, [`NO_TIMESTAMP`] in format 0.
    pub timestamp: i64,
    /// Key, `None` = null.
    pub key: Option<&'a [u8]>,
    /// Value, `None` = null.
    pub value: Option<&'a [u8]>,
    /// Exactly its bytes.
    pub bytes: &'a [u8],
}

impl<'a> Message<'a> {
    /// Parses the message at the start of `bytes`; `None` if they end before it does, as at the end
    /// of a fetched set.
    ///
    /// # Errors
    /// `BadMessageLength`, `NotAMessage` for another format, `BadMessageFields`.
    pub fn parse(bytes: &'a [u8]) -> Result<Option<Message<'a>>> {
        let Some(total_len) = next_len(bytes)? else {
            return Ok(None);
        };
        let Some(bytes) = bytes.get(..total_len) else {
            return Ok(None);
        };
        let magic = bytes[MAGIC_AT] as i8;
        if !matches!(magic, MAGIC_0 | MAGIC_1) {
            return Err(DecodeError::NotAMessage(magic));
        }
        let fields = Self::read_fields(bytes, magic);
        fields.map(Some).map_err(|_| DecodeError::BadMessageFields)
    }

    fn read_fields(bytes: &'a [u8], magic: i8) -> Result<Message<'a>> {
        let mut reader = Reader::new(bytes, false);
        let offset = reader.i64()?;
        reader.take(TIMESTAMP_AT - size_of::<i64>())?;
        let timestamp = match magic {
            MAGIC_0 => NO_TIMESTAMP,
            _ => reader.i64()?,
        };
        Ok(Message {
            offset,
            magic,
            attributes: bytes[MAGIC_AT + 1] as i8,
            timestamp,
            key: nullable(&mut reader)?,
            value: nullable(&mut reader)?,
            bytes,
        })
    }

    /// The codec of a wrapper's value.
    ///
    /// # Errors
    /// `BadCompression`. Formats 0 and 1 do not have zstd either, but its bits are read.
    pub fn compression(&self) -> Result<Compression> {
        let bits = i16::from(self.attributes) & COMPRESSION_MASK;
        Compression::from_bits(bits as u8)
    }

    /// Who set the timestamp; the producer in format 0, which has none.
    pub fn timestamp_type(&self) -> TimestampType {
        let is_brokers = i16::from(self.attributes) & TIMESTAMP_TYPE_BIT != 0;
        match self.magic {
            MAGIC_1 if is_brokers => TimestampType::LogAppendTime,
            _ => TimestampType::CreateTime,
        }
    }

    /// Checks the CRC.
    ///
    /// # Errors
    /// `BadMessageCrc`.
    pub fn verify_crc(&self) -> Result<()> {
        let crc = &self.bytes[CRC_AT..CRC_START];
        let stored = u32::from_be_bytes([crc[0], crc[1], crc[2], crc[3]]);
        let computed = crc32(&self.bytes[CRC_START..]);
        match stored == computed {
            true => Ok(()),
            false => Err(DecodeError::BadMessageCrc { stored, computed }),
        }
    }
}

/// Length of the message or batch at the start of `bytes`, of any format; `None` below the bytes
/// that tell it. All formats have their size at the same place.
///
/// # Errors
/// `BadMessageLength` if no message can have the size.
pub fn next_len(bytes: &[u8]) -> Result<Option<usize>> {
    let Some(prefix) = bytes.first_chunk::<SIZE_PREFIX_LEN>() else {
        return Ok(None);
    };
    let size = i32::from_be_bytes([prefix[8], prefix[9], prefix[10], prefix[11]]);
    match size < SIZE_MIN {
        true => Err(DecodeError::BadMessageLength(size)),
        false => Ok(Some(SIZE_PREFIX_LEN + size as usize)),
    }
}

/// CRC-32 (ISO-HDLC, that of gzip) of `bytes`.
pub fn crc32(bytes: &[u8]) -> u32 {
    crc_fast::crc32_iso_hdlc(bytes)
}

/// Bytes behind their length; any length below zero is null.
fn nullable<'a>(reader: &mut Reader<'a>) -> Result<Option<&'a [u8]>> {
    match usize::try_from(reader.i32()?) {
        Ok(len) => reader.take(len).map(Some),
        Err(_) => Ok(None),
    }
}

/// Iterates over a set. Ends with the buffer or at an incomplete message; one error ends it.
#[derive(Clone, Debug)]
pub struct Messages<'a> {
    rest: &'a [u8],
}

impl<'a> Messages<'a> {
    /// From the start of `set`.
    pub fn new(set: &'a [u8]) -> Self {
        Messages { rest: set }
    }

    /// The unconsumed bytes: after an end without an error, the incomplete message.
    pub fn trailing(&self) -> &'a [u8] {
        self.rest
    }
}

impl<'a> Iterator for Messages<'a> {
    type Item = Result<Message<'a>>;

    fn next(&mut self) -> Option<Self::Item> {
        let message = Message::parse(self.rest).transpose()?;
        self.rest = match &message {
            Ok(message) => &self.rest[message.bytes.len()..],
            Err(_) => &[],
        };
        Some(message)
    }
}
