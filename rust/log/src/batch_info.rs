//! The header fields of a batch that an append needs.

use std::ops::Deref;

use pyrklog_wire::DecodeError;
use pyrklog_wire::batch::BatchHeader;

use crate::producer_state::marker::{EndTxnMarker, MarkerError};

/// The header of a batch, and its end-of-transaction marker.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BatchInfo {
    /// Offset 0 and leader epoch -1 from producers.
    pub header: BatchHeader,
    /// How a control batch ends its transaction.
    pub marker: Option<EndTxnMarker>,
}

impl Deref for BatchInfo {
    type Target = BatchHeader;

    fn deref(&self) -> &BatchHeader {
        &self.header
    }
}

impl BatchInfo {
    /// From a header alone, with `marker` `None`.
    pub fn from_header(header: BatchHeader) -> Self {
        let marker = None;
        Self { header, marker }
    }

    /// From a whole batch with a verified checksum, marker included.
    ///
    /// # Errors
    /// Bytes that are not exactly one batch, or an unreadable control record.
    pub fn parse(batch: &[u8]) -> Result<Self, MarkerError> {
        let header = BatchHeader::parse(batch)?;
        if header.total_len() != batch.len() {
            let (needed, remaining) = (header.total_len(), batch.len());
            return Err(DecodeError::Truncated { needed, remaining }.into());
        }
        let marker = EndTxnMarker::from_batch(batch)?;
        Ok(Self { header, marker })
    }
}
