//! Rules for a batch that is appended at its own offsets: those of a log that it is a copy of.

use pyrklog_wire::batch::{self, BatchHeader};
use pyrklog_wire::records::Records;

use super::{Result, ValidationError};

/// The last offset that such a batch may have. Ordinary producers could not append behind larger
/// ones for long before offsets overflow.
pub const OFFSET_MAX: i64 = 1 << 62;

/// The most offsets from a batch's first record to its last one. So a gap that no segment can span
/// lies before a batch, and is long: a start knows it from lost records.
const SPAN_MAX: i32 = 1 << 30;

/// The offsets' bounds. A copy has no producer: what its records were part of is over.
pub(super) fn check_header(header: &BatchHeader) -> Result<()> {
    let (base, delta) = (header.base_offset, header.last_offset_delta);
    let count = header.record_count;
    if delta < 0 || count <= 0 || i64::from(delta) + 1 < i64::from(count) {
        return Err(ValidationError::invalid(format!(
            "the batch says {count} records, but a last offset delta of {delta}"
        )));
    }
    if delta > SPAN_MAX {
        return Err(ValidationError::invalid(format!(
            "the batch spans {delta} offsets, and may span {SPAN_MAX}"
        )));
    }
    if base < 0 || base > OFFSET_MAX - i64::from(delta) {
        return Err(ValidationError::invalid(format!(
            "the batch has base offset {base}; offsets are from 0 to {OFFSET_MAX}"
        )));
    }
    if header.producer_id != batch::NO_PRODUCER_ID || header.is_transactional() {
        return Err(ValidationError::invalid(
            "a batch that brings its offsets has no producer and no transaction",
        ));
    }
    Ok(())
}

/// The records' offsets rise, from the batch's first one to its last one.
pub(super) fn check_records(header: &BatchHeader, records: &[u8]) -> Result<()> {
    let mut last = -1;
    for record in Records::new(records) {
        let delta = record.map_err(ValidationError::invalid)?.offset_delta;
        let rises = if last < 0 { delta == 0 } else { delta > last };
        if !rises {
            return Err(ValidationError::invalid(format!(
                "a record has offset delta {delta} behind {last}"
            )));
        }
        last = delta;
    }
    if last != header.last_offset_delta {
        return Err(ValidationError::invalid(format!(
            "the last record has offset delta {last}, and the batch says {}",
            header.last_offset_delta
        )));
    }
    Ok(())
}
