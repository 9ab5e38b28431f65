//! Finds the one batch in a partition's record data.

use pyrklog_wire::ErrorCode;
use pyrklog_wire::batch::{COMPRESSION_MASK, Compression, LENGTH_PREFIX_LEN, MAGIC};

use super::{Result, ValidationError};

/// Bytes up to and including the format number, where all formats agree.
const THROUGH_MAGIC_LEN: usize = 17;
const MAGIC_AT: usize = 16;
const ATTRIBUTES_LOW_AT: usize = 22;
/// Bytes after the length in the smallest entry of the oldest format.
const OLDEST_OVERHEAD: i32 = 14;
/// First version of Produce that may carry zstd (KIP-110).
const ZSTD_SINCE: i16 = 7;

/// Length of the batch at the start of `bytes`; `None` if they end before it does.
///
/// # Errors
/// CORRUPT_MESSAGE if no batch of any format can begin like this.
fn next_batch(bytes: &[u8]) -> Result<Option<usize>> {
    let Some(prefix) = bytes.first_chunk::<LENGTH_PREFIX_LEN>() else {
        return Ok(None);
    };
    let length = i32::from_be_bytes([prefix[8], prefix[9], prefix[10], prefix[11]]);
    if length < OLDEST_OVERHEAD {
        let message = format!("a batch announces a length of {length}");
        return Err(ValidationError::new(ErrorCode::CORRUPT_MESSAGE, message));
    }
    let Some(head) = bytes.first_chunk::<THROUGH_MAGIC_LEN>() else {
        return Ok(None);
    };
    let magic = head[MAGIC_AT] as i8;
    if !(0..=MAGIC).contains(&magic) {
        let message = format!("a batch has format {magic}, which does not exist");
        return Err(ValidationError::new(ErrorCode::CORRUPT_MESSAGE, message));
    }
    let total_len = LENGTH_PREFIX_LEN + length as usize;
    Ok((total_len <= bytes.len()).then_some(total_len))
}

pub(super) fn single_batch(bytes: &[u8], produce_version: i16) -> Result<usize> {
    let Some(total_len) = next_batch(bytes)? else {
        return Err(ValidationError::invalid(
            "there is no whole batch in the partition's data",
        ));
    };
    let magic = bytes[MAGIC_AT] as i8;
    if magic != MAGIC {
        return Err(ValidationError::invalid(format!(
            "the batch has format {magic}, but only {MAGIC} is allowed since Produce version 3"
        )));
    }
    let codec = i16::from(bytes[ATTRIBUTES_LOW_AT]) & COMPRESSION_MASK;
    if codec == Compression::Zstd as i16 && produce_version < ZSTD_SINCE {
        let message = format!(
            "zstd is allowed since Produce version {ZSTD_SINCE}, the request has {produce_version}"
        );
        return Err(ValidationError::new(
            ErrorCode::UNSUPPORTED_COMPRESSION_TYPE,
            message,
        ));
    }
    if next_batch(&bytes[total_len..])?.is_some() {
        return Err(ValidationError::invalid(
            "there is more than one batch for the partition",
        ));
    }
    Ok(total_len)
}
