//! Why bytes could not be understood.

use thiserror::Error;

/// Malformed bytes. Nothing was changed, and no unverified length or count led to an allocation.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
#[allow(missing_docs)] // The messages name variants and fields.
pub enum DecodeError {
    #[error("truncated: {needed} bytes are needed, {remaining} remain")]
    Truncated { needed: usize, remaining: usize },
    /// An array announces more elements than the rest can hold.
    #[error("a count of {count} does not fit in the {remaining} bytes that remain")]
    CountTooLarge { count: u64, remaining: usize },
    /// More array elements than the message can need.
    #[error("it has more than {max} elements")]
    TooManyElements { max: usize },
    /// A negative length or count where the protocol has no null.
    #[error("a length of {0} where null is not allowed")]
    UnexpectedNull(i64),
    /// A variable-length integer that is too long for its type.
    #[error("a variable-length integer has too many bytes")]
    BadVarint,
    #[error("a string of {0} bytes, the limit is 32767")]
    StringTooLong(usize),
    #[error("a string is not UTF-8")]
    BadUtf8,
    /// A tagged field whose content does not have its announced size.
    #[error("tagged field {tag} does not have the size that it announces")]
    BadTaggedField { tag: u32 },
    #[error("{0} bytes are left over")]
    TrailingBytes(usize),
    #[error("API {api_key} has no version {api_version} here")]
    UnsupportedVersion { api_key: i16, api_version: i16 },
    /// A frame longer than the limit, or of negative length.
    #[error("a frame announces {announced} bytes, the limit is {limit}{}", looks_like(*announced))]
    BadFrameLength { announced: i32, limit: usize },
    #[error("record batch format {0} is not supported, only 2")]
    BadMagic(i8),
    /// A record batch whose length cannot hold its own header.
    #[error("a record batch announces a length of {0}")]
    BadBatchLength(i32),
    /// A message of format 0 or 1 that is too short for one.
    #[error("a message announces a size of {0}")]
    BadMessageLength(i32),
    #[error("message format {0} is neither 0 nor 1")]
    NotAMessage(i8),
    /// A message of format 0 or 1 whose key or value is longer than the message.
    #[error("a message's key or value exceeds its size")]
    BadMessageFields,
    #[error("message CRC is {stored:#010x} but its bytes give {computed:#010x}")]
    BadMessageCrc { stored: u32, computed: u32 },
    #[error("compression codec {0} does not exist")]
    BadCompression(u8),
    #[error("record batch CRC is {stored:#010x} but its bytes give {computed:#010x}")]
    BadCrc { stored: u32, computed: u32 },
    /// The body's number of records differs from the header's.
    #[error("the batch header says {expected} records, the body holds {found}")]
    RecordCount { expected: i32, found: i32 },
    /// A record whose fields do not fill its announced length.
    #[error("record {index} does not have the length that it announces")]
    BadRecordLength { index: i32 },
}

/// The protocol that begins with these four bytes instead of a length.
fn looks_like(announced: i32) -> &'static str {
    match &announced.to_be_bytes() {
        b"GET " | b"POST" | b"HEAD" | b"PUT " | b"DELE" | b"OPTI" | b"PATC" | b"CONN" | b"PRI " => {
            ": this is an HTTP request"
        }
        b"SSH-" => ": this is SSH",
        // A record of a handshake (RFC 8446, section 5.1).
        [0x16, 0x03, ..] => ": this is TLS, and the listener is plain text",
        _ => "",
    }
}

/// The first `N` of these bytes.
#[inline(always)]
pub(crate) fn first_chunk<const N: usize>(bytes: &[u8]) -> Result<&[u8; N]> {
    let (needed, remaining) = (N, bytes.len());
    let chunk = bytes.first_chunk();
    chunk.ok_or(DecodeError::Truncated { needed, remaining })
}

/// The first `needed` of these bytes.
#[inline(always)]
pub(crate) fn first(bytes: &[u8], needed: usize) -> Result<&[u8]> {
    let remaining = bytes.len();
    let first = bytes.get(..needed);
    first.ok_or(DecodeError::Truncated { needed, remaining })
}

/// Short form for this crate's results.
pub type Result<T> = std::result::Result<T, DecodeError>;

#[cfg(test)]
mod tests {
    use super::DecodeError;

    #[test]
    fn other_protocols_are_named() {
        let told = |first: [u8; 4]| {
            let announced = i32::from_be_bytes(first);
            DecodeError::BadFrameLength {
                announced,
                limit: 9,
            }
            .to_string()
        };
        assert_eq!(
            told(*b"GET "),
            "a frame announces 1195725856 bytes, the limit is 9: this is an HTTP request"
        );
        assert!(told([0x16, 3, 1, 2]).ends_with("this is TLS, and the listener is plain text"));
        assert!(told([0x7f, 0, 0, 0]).ends_with("the limit is 9"));
    }
}
