//! The rules that need the records themselves.

use pyrklog_wire::ErrorCode;
use pyrklog_wire::batch::{BatchHeader, NO_TIMESTAMP, TimestampType};
use pyrklog_wire::records::{Record, Records, RecordsSummary, walk_records};

use super::{Result, Rules, ValidationError};

#[derive(Clone, Copy, Debug)]
pub(super) struct RecordFacts {
    /// Largest timestamp of the producer, -1 if none.
    pub max_timestamp: i64,
}

/// Walks the expanded records once; a second time only if a record may be faulty.
pub(super) fn check(
    header: &BatchHeader,
    records: &[u8],
    rules: &Rules,
    now_ms: i64,
) -> Result<RecordFacts> {
    let summary = walk_records(records, header.record_count).map_err(ValidationError::invalid)?;
    if !summary.offsets_consecutive && !rules.keeps_offsets {
        return Err(ValidationError::invalid(
            "the records' offsets are not 0, 1, 2, …",
        ));
    }
    match quick_max_timestamp(header, &summary, rules, now_ms) {
        Some(max_timestamp) => Ok(RecordFacts { max_timestamp }),
        None => check_each(header, records, rules, now_ms),
    }
}

/// The largest timestamp, if the summary alone shows that no record is faulty.
fn quick_max_timestamp(
    header: &BatchHeader,
    summary: &RecordsSummary,
    rules: &Rules,
    now_ms: i64,
) -> Option<i64> {
    if rules.compacted && !summary.all_have_keys {
        return None;
    }
    if header.timestamp_type() == TimestampType::LogAppendTime {
        return None;
    }
    let smallest = header
        .base_timestamp
        .checked_add(summary.min_timestamp_delta)?;
    let largest = header
        .base_timestamp
        .checked_add(summary.max_timestamp_delta)?;
    let bounded =
        rules.timestamp_before_max_ms != i64::MAX || rules.timestamp_after_max_ms != i64::MAX;
    if rules.timestamp_type == TimestampType::CreateTime && bounded {
        let age_max_ms = now_ms.checked_sub(smallest)?;
        let lead_max_ms = largest.checked_sub(now_ms)?;
        if age_max_ms > rules.timestamp_before_max_ms || lead_max_ms > rules.timestamp_after_max_ms
        {
            return None;
        }
    }
    Some(largest.max(NO_TIMESTAMP))
}

/// Checks every record and reports the faulty ones.
#[cold]
fn check_each(
    header: &BatchHeader,
    records: &[u8],
    rules: &Rules,
    now_ms: i64,
) -> Result<RecordFacts> {
    let mut errors = Vec::new();
    let mut code = None;
    let mut max_timestamp = NO_TIMESTAMP;
    for (index, record) in (0..).zip(Records::new(records)) {
        let record = record.map_err(ValidationError::invalid)?;
        let timestamp = header.base_timestamp.wrapping_add(record.timestamp_delta);
        max_timestamp = max_timestamp.max(timestamp);
        if let Some(fault) = fault_of(header, &record, timestamp, rules, now_ms) {
            // One bad timestamp outweighs any number of missing keys.
            if code != Some(ErrorCode::INVALID_TIMESTAMP) {
                code = Some(fault.code());
            }
            if errors.len() < rules.record_errors_max {
                errors.push((index, fault.reason(rules, now_ms)));
            }
        }
    }
    let Some(code) = code else {
        return Ok(RecordFacts { max_timestamp });
    };
    let message = if code == ErrorCode::INVALID_TIMESTAMP {
        "records have timestamps that the topic does not allow"
    } else {
        "records have no key, which a compacted topic demands"
    };
    let mut error = ValidationError::new(code, message);
    error.record_errors = errors;
    Err(error)
}

#[derive(Clone, Copy, Debug)]
enum Fault {
    NoKey,
    OutOfRange { timestamp: i64 },
    ClaimsAppendTime,
}

impl Fault {
    fn code(self) -> ErrorCode {
        match self {
            Fault::NoKey => ErrorCode::INVALID_RECORD,
            Fault::OutOfRange { .. } | Fault::ClaimsAppendTime => ErrorCode::INVALID_TIMESTAMP,
        }
    }

    fn reason(self, rules: &Rules, now_ms: i64) -> String {
        match self {
            Fault::NoKey => "a record of a compacted topic needs a key".to_owned(),
            Fault::OutOfRange { timestamp } => {
                let earliest = now_ms.saturating_sub(rules.timestamp_before_max_ms);
                let latest = now_ms.saturating_add(rules.timestamp_after_max_ms);
                format!("timestamp {timestamp} is not within [{earliest}, {latest}]")
            }
            Fault::ClaimsAppendTime => {
                "a producer must not set the timestamp type to LogAppendTime".to_owned()
            }
        }
    }
}

fn fault_of(
    header: &BatchHeader,
    record: &Record<'_>,
    timestamp: i64,
    rules: &Rules,
    now_ms: i64,
) -> Option<Fault> {
    if rules.compacted && record.key.is_none() {
        return Some(Fault::NoKey);
    }
    // In a batch that claims append time, Kafka takes the header's timestamp for every record.
    let claims_append_time = header.timestamp_type() == TimestampType::LogAppendTime;
    let timed = if claims_append_time {
        header.max_timestamp
    } else {
        timestamp
    };
    if rules.timestamp_type == TimestampType::CreateTime && timed != NO_TIMESTAMP {
        let age_ms = now_ms.wrapping_sub(timestamp);
        let out_of_range = age_ms > rules.timestamp_before_max_ms
            || age_ms.wrapping_neg() > rules.timestamp_after_max_ms;
        return (out_of_range && timestamp != NO_TIMESTAMP)
            .then_some(Fault::OutOfRange { timestamp });
    }
    claims_append_time.then_some(Fault::ClaimsAppendTime)
}
