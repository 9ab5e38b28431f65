//! Searches the records of one batch for a timestamp.

use pyrklog_wire::DecodeError;
use pyrklog_wire::batch::{BatchHeader, HEADER_LEN, TimestampType};
use pyrklog_wire::records::Records;
use thiserror::Error;

use crate::compression::{DecompressError, EXPANDED_BYTES_MAX_DEFAULT, with_decompressed};

/// A validated batch cannot be read now.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum RecordError {
    /// The batch or a record is malformed.
    #[error(transparent)]
    Malformed(#[from] DecodeError),
    /// Its compressed body is malformed.
    #[error(transparent)]
    Compressed(#[from] DecompressError),
}

/// Offset and timestamp of the first record, by offset as in ListOffsets, that is at or behind
/// `min_offset` and not earlier than `timestamp`. `batch` is whole with final offsets.
///
/// # Errors
/// [`RecordError`].
pub fn first_at_or_after(
    batch: &[u8],
    timestamp: i64,
    min_offset: i64,
) -> Result<Option<(i64, i64)>, RecordError> {
    let header = BatchHeader::parse(batch)?;
    if header.max_timestamp < timestamp || header.last_offset() < min_offset {
        return Ok(None);
    }
    scan(&header, batch, |found, record| {
        let hit = found.is_none() && record.0 >= min_offset && record.1 >= timestamp;
        hit.then_some(record).or(found)
    })
}

/// Offset and timestamp of the first record with the batch's largest timestamp; `None` without
/// records. `batch` is whole with final offsets.
///
/// # Errors
/// [`RecordError`].
pub fn first_with_max_timestamp(batch: &[u8]) -> Result<Option<(i64, i64)>, RecordError> {
    let header = BatchHeader::parse(batch)?;
    scan(&header, batch, |found, record| match found {
        Some((_, largest)) if largest >= record.1 => found,
        _ => Some(record),
    })
}

/// Folds over (offset, timestamp) of all records.
fn scan(
    header: &BatchHeader,
    batch: &[u8],
    mut pick: impl FnMut(Option<(i64, i64)>, (i64, i64)) -> Option<(i64, i64)>,
) -> Result<Option<(i64, i64)>, RecordError> {
    let needed = header.total_len();
    let body = batch.get(HEADER_LEN..needed);
    let body = body.ok_or(DecodeError::Truncated {
        needed,
        remaining: batch.len(),
    })?;
    let append_time = header.timestamp_type() == TimestampType::LogAppendTime;
    with_decompressed(
        header.compression()?,
        body,
        EXPANDED_BYTES_MAX_DEFAULT,
        |records| {
            let mut found = None;
            for record in Records::new(records) {
                let record = record?;
                let offset = header.base_offset + i64::from(record.offset_delta);
                let created = header.base_timestamp.wrapping_add(record.timestamp_delta);
                let timestamp = if append_time {
                    header.max_timestamp
                } else {
                    created
                };
                found = pick(found, (offset, timestamp));
            }
            Ok(found)
        },
    )?
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::compression::compress;
    use pyrklog_wire::batch::{Compression, set_base_offset, set_max_timestamp};
    use pyrklog_wire::builder::BatchBuilder;

    fn batch(codec: Compression, kind: TimestampType) -> Vec<u8> {
        let mut builder = BatchBuilder::new().timestamp_type(kind);
        for timestamp in [100, 300, 200, 300] {
            builder.append(timestamp, None, Some(b"value"));
        }
        let mut batch = builder.build_compressed(codec, |records| {
            let mut out = Vec::new();
            compress(codec, records, &mut out).expect("in memory");
            out
        });
        set_base_offset(&mut batch, 1000);
        batch
    }

    #[test]
    fn the_first_record_by_offset_that_is_late_enough() {
        for codec in [Compression::None, Compression::Zstd, Compression::Lz4] {
            let batch = batch(codec, TimestampType::CreateTime);
            for (timestamp, min_offset, expected) in [
                (0, 0, Some((1000, 100))),
                (100, 0, Some((1000, 100))),
                (101, 0, Some((1001, 300))),
                (150, 1002, Some((1002, 200))),
                (300, 1002, Some((1003, 300))),
                (301, 0, None),
                (0, 1004, None),
            ] {
                let found = first_at_or_after(&batch, timestamp, min_offset);
                assert_eq!(found, Ok(expected), "{timestamp} {min_offset}");
            }
            assert_eq!(first_with_max_timestamp(&batch), Ok(Some((1001, 300))));
        }
    }

    #[test]
    fn append_time_holds_for_every_record() {
        let mut batch = batch(Compression::None, TimestampType::LogAppendTime);
        set_max_timestamp(&mut batch, 5000);
        assert_eq!(first_at_or_after(&batch, 400, 0), Ok(Some((1000, 5000))));
        assert_eq!(first_at_or_after(&batch, 400, 1002), Ok(Some((1002, 5000))));
        assert_eq!(first_with_max_timestamp(&batch), Ok(Some((1000, 5000))));
    }

    #[test]
    fn emptied_and_cut_off_batches() {
        let mut emptied = BatchBuilder::new();
        emptied.skip_offsets(3);
        assert_eq!(first_with_max_timestamp(&emptied.build()), Ok(None));
        let batch = batch(Compression::None, TimestampType::CreateTime);
        assert!(first_with_max_timestamp(&batch[..batch.len() - 1]).is_err());
    }
}
