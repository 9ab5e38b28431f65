//! What is known of a produce request's batches before any of them is appended.

use std::sync::atomic::{AtomicBool, Ordering};

use pyrklog_log::validate::{RECORD_ERRORS_MAX, Rules, Validated, validate_produce};
use pyrklog_wire::produce::ProduceRequest;

use crate::produce::delayed::Refusal;
use pyrklog_base::ids::Place;

/// Of one partition: whether its batch may be appended; `None` while nobody has looked.
pub type Verdict = Option<Result<Validated, Refusal>>;

/// A request whose batches are to be validated elsewhere.
#[derive(Debug, Default)]
pub struct ToValidate {
    /// Whose it is.
    pub place: Place,
    /// Number of the wait on the connection.
    pub wait: u64,
    /// The request; places count from the start of `frame`.
    pub request: ProduceRequest,
    /// Its bytes.
    pub frame: Vec<u8>,
    /// By partition: what is known.
    pub verdicts: Vec<Verdict>,
    /// What remains: positions, with the rules of their topics.
    pub remaining: Vec<(usize, Rules)>,
}

/// Does the work; false when it was abandoned on the way.
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

/// Errors of single records that are told.
pub fn errors_of(verdict: &Result<Validated, Refusal>) -> usize {
    verdict
        .as_ref()
        .map_or_else(|refusal| refusal.record_errors.len(), |_| 0)
}
