//! The header fields of a batch that an append needs.

use pyrklog_wire::DecodeError;
use pyrklog_wire::batch::{BatchHeader, NO_PRODUCER_ID, TimestampType};

use crate::producer_state::marker::{EndTxnMarker, MarkerError};

/// The header fields of a batch that an append needs, and its end-of-transaction marker.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BatchInfo {
    /// Bytes of the whole batch, header included.
    pub size_bytes: usize,
    /// As in the header: 0 from producers.
    pub base_offset: i64,
    /// As in the header: -1 from producers.
    pub leader_epoch: i32,
    /// Last offset minus base offset.
    pub last_offset_delta: i32,
    /// Records in the batch.
    pub record_count: i32,
    /// Base of the records' timestamps, milliseconds.
    pub base_timestamp: i64,
    /// Largest timestamp, milliseconds.
    pub max_timestamp: i64,
    /// Producer id, negative for none.
    pub producer_id: i64,
    /// Producer epoch.
    pub producer_epoch: i16,
    /// Sequence of the first record, -1 for none.
    pub base_sequence: i32,
    /// Part of a transaction.
    pub is_transactional: bool,
    /// A control batch.
    pub is_control: bool,
    /// `max_timestamp` is the broker's and holds for every record.
    pub log_append_time: bool,
    /// How a control batch ends its transaction.
    pub marker: Option<EndTxnMarker>,
}

impl BatchInfo {
    /// From a header alone, with `marker` `None`.
    pub fn from_header(header: &BatchHeader) -> Self {
        Self {
            size_bytes: header.total_len(),
            base_offset: header.base_offset,
            leader_epoch: header.partition_leader_epoch,
            last_offset_delta: header.last_offset_delta,
            record_count: header.record_count,
            base_timestamp: header.base_timestamp,
            max_timestamp: header.max_timestamp,
            producer_id: header.producer_id,
            producer_epoch: header.producer_epoch,
            base_sequence: header.base_sequence,
            is_transactional: header.is_transactional(),
            is_control: header.is_control(),
            log_append_time: header.timestamp_type() == TimestampType::LogAppendTime,
            marker: None,
        }
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
        Ok(Self {
            marker,
            ..Self::from_header(&header)
        })
    }

    /// Written by an idempotent or transactional producer.
    pub fn has_producer(&self) -> bool {
        self.producer_id > NO_PRODUCER_ID
    }

    /// Sequence of the last record, which wraps after 2^31-1 to 0; -1 without sequences.
    pub fn last_sequence(&self) -> i32 {
        if self.base_sequence < 0 {
            return self.base_sequence;
        }
        self.base_sequence.wrapping_add(self.last_offset_delta) & i32::MAX
    }
}
