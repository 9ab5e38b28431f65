//! Batches that bring their offsets (ProduceAt), for copies of a log.
//!
//! The leader compares the log end under the partition's lock. A batch that was on its way when its
//! writer died, or one of a second writer, is so refused instead of moving all that follows.

use pyrklog_log::{BatchInfo, Origin};
use pyrklog_wire::ErrorCode;

use crate::produce::delayed_produce::Refusal;

/// Refuses an expectation that no log can meet.
///
/// # Errors
/// INVALID_REQUEST.
pub fn check_expected(info: &BatchInfo, expected_end: i64) -> Result<(), Refusal> {
    if (0..=info.base_offset).contains(&expected_end) {
        return Ok(());
    }
    let base_offset = info.base_offset;
    let message = format!("A batch at offset {base_offset} cannot follow log end {expected_end}.");
    Err(Refusal::with(ErrorCode::INVALID_REQUEST, message))
}

/// How the batch is appended to a log that ends at `log_end`.
///
/// # Errors
/// OFFSET_OUT_OF_RANGE.
pub fn origin(log_end: i64, expected_end: i64) -> Result<Origin, Refusal> {
    if log_end == expected_end {
        return Ok(Origin::Copy);
    }
    let message = format!("The log ends at {log_end}, not at {expected_end}.");
    Err(Refusal::with(ErrorCode::OFFSET_OUT_OF_RANGE, message))
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
    fn the_log_has_to_end_where_the_writer_thinks() {
        for (log_end, expected, is_taken) in [(0, 0, true), (7, 7, true), (7, 6, false), (7, 8, false)] {
            let found = origin(log_end, expected);
            match is_taken {
                true => assert_eq!(found.unwrap(), Origin::Copy),
                false => assert_eq!(found.unwrap_err().error, ErrorCode::OFFSET_OUT_OF_RANGE),
            }
        }
    }

    #[test]
    fn an_end_behind_the_batch_or_below_zero_is_no_expectation() {
        for (base_offset, expected, is_taken) in [
            (5, 5, true),
            (5, 0, true),
            (5, 6, false),
            (5, -1, false),
            (5, i64::MIN, false),
            (5, i64::MAX, false),
        ] {
            let found = check_expected(&at(base_offset), expected);
            let refused = found.err().map(|refusal| refusal.error);
            let wanted = (!is_taken).then_some(ErrorCode::INVALID_REQUEST);
            assert_eq!(refused, wanted, "{base_offset} {expected}");
        }
    }
}
