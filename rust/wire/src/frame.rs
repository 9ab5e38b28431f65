//! Frames: a big-endian 32-bit length, then that many bytes.

use crate::error::{DecodeError, Result};

/// Bytes of the length field.
pub const LENGTH_LEN: usize = 4;

/// What the bytes received so far hold.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Scan {
    /// A whole frame: its content is `bytes[LENGTH_LEN..][..content_len]`.
    Whole {
        /// Bytes after the length field.
        content_len: usize,
    },
    /// More bytes are needed.
    Partial {
        /// Bytes of the frame with its length field; `None` until known.
        total_len: Option<usize>,
    },
}

/// Looks for a frame at the start of `bytes` with at most `max_len` bytes of content.
///
/// # Errors
/// `BadFrameLength` for a negative length or one above the limit. Close the connection: later bytes
/// cannot be understood.
#[inline]
pub fn scan(bytes: &[u8], max_len: usize) -> Result<Scan> {
    let Some(prefix) = bytes.first_chunk::<LENGTH_LEN>() else {
        return Ok(Scan::Partial { total_len: None });
    };
    let announced = i32::from_be_bytes(*prefix);
    let content_len = match usize::try_from(announced) {
        Ok(len) if len <= max_len => len,
        _ => {
            return Err(DecodeError::BadFrameLength {
                announced,
                limit: max_len,
            });
        }
    };
    if bytes.len() - LENGTH_LEN >= content_len {
        return Ok(Scan::Whole { content_len });
    }
    Ok(Scan::Partial {
        total_len: Some(LENGTH_LEN + content_len),
    })
}

/// Reserves a frame's length and returns its position for [`end`].
pub fn begin(out: &mut Vec<u8>) -> usize {
    let start = out.len();
    out.extend_from_slice(&[0; LENGTH_LEN]);
    start
}

/// A frame of 2 GiB or more, which the protocol cannot carry; with its length.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("a frame would have {0} bytes")]
pub struct FrameTooLong(pub usize);

/// Writes the length of the frame begun at `start`, including `elsewhere` bytes that are sent
/// separately (file ranges).
///
/// # Errors
/// The protocol cannot carry the frame.
pub fn end(
    out: &mut [u8],
    start: usize,
    elsewhere: usize,
) -> std::result::Result<(), FrameTooLong> {
    let content_len = out.len() - start - LENGTH_LEN + elsewhere;
    let length = i32::try_from(content_len).map_err(|_| FrameTooLong(content_len))?;
    out[start..start + LENGTH_LEN].copy_from_slice(&length.to_be_bytes());
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn frames_are_found_whole_partial_or_wrong() {
        assert_eq!(scan(&[], 10), Ok(Scan::Partial { total_len: None }));
        assert_eq!(scan(&[0, 0, 0], 10), Ok(Scan::Partial { total_len: None }));
        assert_eq!(
            scan(&[0, 0, 0, 2, 1], 10),
            Ok(Scan::Partial { total_len: Some(6) })
        );
        assert_eq!(
            scan(&[0, 0, 0, 2, 1, 2, 3], 10),
            Ok(Scan::Whole { content_len: 2 })
        );
        assert_eq!(
            scan(&[0, 0, 0, 10], 10),
            Ok(Scan::Partial {
                total_len: Some(14)
            })
        );
        assert_eq!(
            scan(&[0, 0, 0, 11], 10),
            Err(DecodeError::BadFrameLength {
                announced: 11,
                limit: 10
            })
        );
        assert_eq!(
            scan(&[0xff; 4], usize::MAX),
            Err(DecodeError::BadFrameLength {
                announced: -1,
                limit: usize::MAX
            })
        );
    }

    #[test]
    fn frame_length_counts_bytes_sent_from_files() {
        let mut out = vec![9];
        let start = begin(&mut out);
        out.extend([1, 2, 3]);
        assert_eq!(end(&mut out, start, 100), Ok(()));
        assert_eq!(out, [9, 0, 0, 0, 103, 1, 2, 3]);
        let largest = i32::MAX as usize - 3;
        assert_eq!(end(&mut out, start, largest), Ok(()));
        let too_long = FrameTooLong(largest + 4);
        assert_eq!(end(&mut out, start, largest + 1), Err(too_long));
    }
}
