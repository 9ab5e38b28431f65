//! Why bytes could not be understood.

use thiserror::Error;

/// Bytes that do not follow the protocol. Nothing was changed, and nothing was allocated on the
/// word of a length or count that the bytes at hand cannot hold.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum DecodeError {
    /// The bytes end before the element does.
    #[error("truncated: {needed} bytes are needed, {remaining} remain")]
    Truncated {
        /// Bytes that the element needs.
        needed: usize,
        /// Bytes that are left.
        remaining: usize,
    },
    /// An array announces more elements than the remaining bytes can hold.
    #[error("a count of {count} does not fit in the {remaining} bytes that remain")]
    CountTooLarge {
        /// The announced count.
        count: u64,
        /// Bytes that are left.
        remaining: usize,
    },
    /// A request with more array elements than any client has a use for.
    #[error("it has more than {max} elements")]
    TooManyElements {
        /// The bound.
        max: usize,
    },
    /// A length or count below zero where the protocol has no null.
    #[error("a length of {0} where null is not allowed")]
    UnexpectedNull(i64),
    /// A variable-length integer that is too long for its type.
    #[error("a variable-length integer has too many bytes")]
    BadVarint,
    /// A string that is not UTF-8.
    #[error("a string is not UTF-8")]
    BadUtf8,
    /// A tagged field whose content is shorter or longer than its announced size.
    #[error("tagged field {tag} does not have the size that it announces")]
    BadTaggedField {
        /// The field's tag.
        tag: u32,
    },
    /// The element ended before the bytes did.
    #[error("{0} bytes are left over")]
    TrailingBytes(usize),
    /// The codec has no such version.
    #[error("API {api_key} has no version {api_version} here")]
    UnsupportedVersion {
        /// API key.
        api_key: i16,
        /// Version asked for.
        api_version: i16,
    },
    /// A frame longer than the limit, or of negative length.
    #[error("a frame announces {announced} bytes, the limit is {limit}{}", looks_like(*announced))]
    BadFrameLength {
        /// The announced length.
        announced: i32,
        /// The limit in bytes.
        limit: usize,
    },
    /// A record batch of a format other than v2.
    #[error("record batch format {0} is not supported, only 2")]
    BadMagic(i8),
    /// A record batch whose length cannot hold its own header.
    #[error("a record batch announces a length of {0}")]
    BadBatchLength(i32),
    /// Compression codec bits without a meaning.
    #[error("compression codec {0} does not exist")]
    BadCompression(u8),
    /// The batch's CRC-32C does not match its bytes.
    #[error("record batch CRC is {stored:#010x} but its bytes give {computed:#010x}")]
    BadCrc {
        /// As stored in the header.
        stored: u32,
        /// As computed.
        computed: u32,
    },
    /// The body does not hold the number of records that the header says.
    #[error("the batch header says {expected} records, the body holds {found}")]
    RecordCount {
        /// From the header.
        expected: i32,
        /// In the body; one more than expected when bytes follow the last expected record.
        found: i32,
    },
    /// A record whose fields do not fill its announced length exactly.
    #[error("record {index} does not have the length that it announces")]
    BadRecordLength {
        /// Index of the record in its batch.
        index: i32,
    },
}

/// Which other protocol begins with the four bytes that were read as a length.
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
