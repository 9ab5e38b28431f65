//! Stores a batch with another codec than it was sent with (`compression.type`).

use pyrklog_wire::ErrorCode;
use pyrklog_wire::batch::{
    BatchHeader, COMPRESSION_MASK, Compression, HEADER_LEN, LENGTH_PREFIX_LEN,
};

use super::{Result, Rules, ValidationError};
use crate::compression::compress_at;

/// The batch with its expanded `records` in the codec `stored`; its checksum is not set yet.
pub(super) fn change_codec(
    header: &BatchHeader,
    records: &[u8],
    stored: Compression,
    rules: &Rules,
) -> Result<Vec<u8>> {
    let mut batch = Vec::with_capacity(HEADER_LEN + records.len());
    batch.extend_from_slice(&[0; HEADER_LEN]);
    compress_at(rules.compression_levels, stored, records, &mut batch).map_err(|error| {
        let message = format!(
            "the records could not be stored as {}: {error}",
            stored.name()
        );
        ValidationError::new(ErrorCode::UNKNOWN_SERVER_ERROR, message)
    })?;
    let mut changed = *header;
    changed.attributes = header.attributes & !COMPRESSION_MASK | stored as i16;
    changed.batch_length = i32::try_from(batch.len() - LENGTH_PREFIX_LEN).map_err(|_| {
        let message = format!(
            "the records take {} bytes as {}",
            batch.len(),
            stored.name()
        );
        ValidationError::new(ErrorCode::MESSAGE_TOO_LARGE, message)
    })?;
    batch[..HEADER_LEN].copy_from_slice(&changed.to_bytes());
    Ok(batch)
}
