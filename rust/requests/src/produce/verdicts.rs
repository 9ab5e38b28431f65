//! Verdicts on a produce request's batches before any is appended.

use std::sync::atomic::{AtomicBool, Ordering};

use pyrklog_log::validate::{RECORD_ERRORS_MAX, Rules, Validated, validate_produce};
use pyrklog_wire::produce::ProduceRequest;

use crate::produce::delayed_produce::Refusal;
use pyrklog_base::ids::Place;

/// Whether a partition's batch may be appended; `None` if not validated yet.
pub type Verdict = Option<Result<Validated, Refusal>>;

/// A request to validate elsewhere.
#[derive(Debug, Default)]
pub struct ToValidate {
    /// Its connection.
    pub place: Place,
    /// Number of the wait on its connection.
    pub wait: u64,
    /// The request; positions count from the start of `frame`.
    pub request: ProduceRequest,
    /// Its bytes.
    pub frame: Vec<u8>,
    /// Verdicts by partition.
    pub verdicts: Vec<Verdict>,
    /// Remaining positions, with their topics' rules.
    pub remaining: Vec<(usize, Rules)>,
}

/// Validates; false if abandoned on the way.
pub fn validate(work: &mut ToValidate, now_ms: i64, is_abandoned: &AtomicBool) -> bool {
    let told = work.verdicts.iter().flatten().map(errors_of).sum();
    let mut errors_left = RECORD_ERRORS_MAX.saturating_sub(told);
    for (position, rules) in &work.remaining {
        if is_abandoned.load(Ordering::Relaxed) {
            return false;
        }
        let Some(span) = work.request.partitions[*position].records else {
            continue;
        };
        let rules = Rules {
            record_errors_max: errors_left,
            ..*rules
        };
        let verdict = validate_produce(span.of_mut(&mut work.frame), &rules, now_ms);
        let verdict = verdict.map_err(|error| Refusal::from(*error));
        errors_left -= errors_of(&verdict).min(errors_left);
        work.verdicts[*position] = Some(verdict);
    }
    true
}

/// Number of single records' errors in a verdict.
pub fn errors_of(verdict: &Result<Validated, Refusal>) -> usize {
    verdict
        .as_ref()
        .map_or_else(|refusal| refusal.record_errors.len(), |_| 0)
}
