//! Batches that bring their offsets (ProduceAt), for copies of a log.
//!
//! The leader compares the log end under the partition's lock. A batch that was on its way when its
//! writer died, or one of a second writer, is so refused instead of moving all that follows.

use pyrklog_log::{BatchInfo, Origin};
use pyrklog_wire::ErrorCode;

use crate::produce::delayed_produce::Refusal;

/// How the batch is appended to a log that ends at `log_end`.
///
/// # Errors
/// INVALID_REQUEST for an expectation that no log can meet, OFFSET_OUT_OF_RANGE for another end.
pub fn origin(info: &BatchInfo, log_end: i64, expected_end: i64) -> Result<Origin, Refusal> {
    let base_offset = info.base_offset;
    if !(0..=base_offset).contains(&expected_end) {
        let message =
            format!("A batch at offset {base_offset} cannot follow log end {expected_end}.");
        return Err(Refusal::with(ErrorCode::INVALID_REQUEST, message));
    }
    if log_end != expected_end {
        let message = format!("The log ends at {log_end}, not at {expected_end}.");
        return Err(Refusal::with(ErrorCode::OFFSET_OUT_OF_RANGE, message));
    }
    Ok(Origin::Copy)
}

#[cfg(test)]
mod tests {
    use super::*;
    use pyrklog_wire::batch::BatchHeader;
    use pyrklog_wire::builder::BatchBuilder;

    fn at(base_offset: i64) -> BatchInfo {
        let mut builder = BatchBuilder::new().base_offset(base_offset);
        builder.append(1, None, Some(b"v"));
        BatchInfo::from_header(BatchHeader::parse(&builder.build()).unwrap())
    }

    #[test]
    fn the_log_has_to_end_where_the_writer_thinks_and_before_the_batch() {
        let elsewhere = Some(ErrorCode::OFFSET_OUT_OF_RANGE);
        let impossible = Some(ErrorCode::INVALID_REQUEST);
        for (base_offset, log_end, expected, refused) in [
            (0, 0, 0, None),
            (7, 7, 7, None),
            (9, 7, 7, None),
            (9, 7, 6, elsewhere),
            (9, 7, 8, elsewhere),
            (9, 10, 9, elsewhere),
            (9, 10, 10, impossible),
            (9, 7, -1, impossible),
            (9, 7, i64::MIN, impossible),
            (9, 7, i64::MAX, impossible),
        ] {
            let found = origin(&at(base_offset), log_end, expected);
            let error = found.as_ref().err().map(|refusal| refusal.error);
            assert_eq!(error, refused, "{base_offset} {log_end} {expected}");
            assert_eq!(found.ok(), refused.is_none().then_some(Origin::Copy));
        }
    }
}
