//! End-of-transaction markers: the one record of a control batch.
//!
//! ```text
//! key    0  2  version = 0        value  0  2  version = 0
//!        2  2  0 abort, 1 commit         2  4  coordinator epoch
//! ```
//!
//! The batch's producer id and epoch identify the transaction. Types above 1 belong to Kafka's Raft
//! logs and end no transaction.

use pyrklog_wire::DecodeError;
use pyrklog_wire::batch::{BatchHeader, HEADER_LEN};
use pyrklog_wire::records::Record;
use thiserror::Error;

use crate::compression::{DecompressError, with_decompressed};

/// A control batch holds one record of a few bytes.
const EXPANDED_BYTES_MAX: usize = 1 << 20;

/// The end of a transaction.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct EndTxnMarker {
    /// Committed; else aborted.
    pub commit: bool,
    /// Epoch of the coordinator that decided.
    pub coordinator_epoch: i32,
}

/// A malformed control batch.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum MarkerError {
    /// The batch or its record is malformed.
    #[error(transparent)]
    Malformed(#[from] DecodeError),
    /// Its compressed body is malformed.
    #[error(transparent)]
    Compressed(#[from] DecompressError),
    /// Key or value are not those of a marker.
    #[error("a control record's {0}")]
    NotAMarker(&'static str),
}

/// Type of a control record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ControlType {
    /// Ends a transaction without effect.
    Abort,
    /// Ends a transaction with effect.
    Commit,
    /// Of another log, or newer than this broker.
    Other(i16),
}

impl ControlType {
    /// From a control record's key.
    ///
    /// # Errors
    /// A key that is too short, or of a negative version.
    pub fn parse(key: &[u8]) -> Result<Self, MarkerError> {
        let &[a, b, c, d, ..] = key else {
            return Err(MarkerError::NotAMarker("key is too short"));
        };
        if i16::from_be_bytes([a, b]) < 0 {
            return Err(MarkerError::NotAMarker("key has a negative version"));
        }
        Ok(match i16::from_be_bytes([c, d]) {
            0 => Self::Abort,
            1 => Self::Commit,
            other => Self::Other(other),
        })
    }
}

impl EndTxnMarker {
    /// From a control record; `None` for types other than commit and abort.
    ///
    /// # Errors
    /// [`MarkerError::NotAMarker`].
    pub fn parse(key: &[u8], value: &[u8]) -> Result<Option<Self>, MarkerError> {
        let commit = match ControlType::parse(key)? {
            ControlType::Abort => false,
            ControlType::Commit => true,
            ControlType::Other(_) => return Ok(None),
        };
        let &[a, b, c, d, e, f, ..] = value else {
            return Err(MarkerError::NotAMarker("value is too short"));
        };
        if i16::from_be_bytes([a, b]) < 0 {
            return Err(MarkerError::NotAMarker("value has a negative version"));
        }
        Ok(Some(Self {
            commit,
            coordinator_epoch: i32::from_be_bytes([c, d, e, f]),
        }))
    }

    /// From a whole batch; `None` unless it is a control batch that compaction has not emptied.
    ///
    /// # Errors
    /// [`MarkerError`].
    pub fn from_batch(batch: &[u8]) -> Result<Option<Self>, MarkerError> {
        let header = BatchHeader::parse(batch)?;
        if !header.is_control() || header.record_count <= 0 {
            return Ok(None);
        }
        let body = &batch[HEADER_LEN..];
        with_decompressed(header.compression()?, body, EXPANDED_BYTES_MAX, |records| {
            let record = Record::parse(records, 0)?;
            Self::parse(
                record.key.unwrap_or_default(),
                record.value.unwrap_or_default(),
            )
        })?
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use pyrklog_wire::batch::Compression;
    use pyrklog_wire::builder::{BatchBuilder, transaction_marker};

    #[test]
    fn markers_are_read_from_control_batches() {
        for commit in [true, false] {
            let batch = transaction_marker(7, 3, commit, 42, 1000);
            let expected = EndTxnMarker {
                commit,
                coordinator_epoch: 42,
            };
            assert_eq!(EndTxnMarker::from_batch(&batch), Ok(Some(expected)));
        }
    }

    #[test]
    fn a_marker_may_be_compressed() {
        let mut builder = BatchBuilder::new()
            .producer(7, 3, -1)
            .transactional()
            .control();
        builder.append(1000, Some(&[0, 0, 0, 1]), Some(&[0, 0, 0, 0, 0, 9]));
        let batch = builder.build_compressed(Compression::Gzip, |records| {
            let mut out = Vec::new();
            crate::compression::compress(Compression::Gzip, records, &mut out).expect("in memory");
            out
        });
        let expected = EndTxnMarker {
            commit: true,
            coordinator_epoch: 9,
        };
        assert_eq!(EndTxnMarker::from_batch(&batch), Ok(Some(expected)));
    }

    #[test]
    fn other_batches_hold_no_marker() {
        let mut data = BatchBuilder::new();
        data.append(0, Some(&[0, 0, 0, 1]), Some(&[0; 6]));
        assert_eq!(EndTxnMarker::from_batch(&data.build()), Ok(None));
        let emptied = BatchBuilder::new().control().build();
        assert_eq!(EndTxnMarker::from_batch(&emptied), Ok(None));
        assert_eq!(EndTxnMarker::parse(&[0, 0, 0, 2], &[]), Ok(None));
    }

    #[test]
    fn malformed_markers_are_refused() {
        for (key, value) in [
            (&[0, 0, 0][..], &[0; 6][..]),
            (&[0x80, 0, 0, 1], &[0; 6]),
            (&[0, 0, 0, 1], &[0; 5]),
            (&[0, 0, 0, 1], &[0x80, 0, 0, 0, 0, 0]),
        ] {
            assert!(
                EndTxnMarker::parse(key, value).is_err(),
                "{key:?} {value:?}"
            );
        }
    }

    #[test]
    fn newer_versions_are_read_as_far_as_they_agree() {
        let marker = EndTxnMarker::parse(&[0, 5, 0, 0, 9], &[0, 5, 0, 0, 0, 8, 9]);
        assert_eq!(
            marker,
            Ok(Some(EndTxnMarker {
                commit: false,
                coordinator_epoch: 8
            }))
        );
    }
}
