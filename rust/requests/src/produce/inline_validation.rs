//! Validation on the network thread, before any batch of a request is appended.
//!
//! Requests of old versions go to the validators as a whole: each message set is converted.
//!
//! Batches stored as sent, uncompressed, are validated at their append. The others are looked at
//! first: those that expand to little at once, the rest by the
//! [validators](crate::produce::validators).

use pyrklog_log::validate::{RECORD_ERRORS_MAX, Rules, validate_produce};
use pyrklog_wire::batch::{BatchHeader, Compression, HEADER_LEN};
use pyrklog_wire::produce::{BATCHES_SINCE, ProduceRequest};

use crate::context::Context;
use crate::produce::delayed_produce::Refusal;
use crate::produce::validators::INLINE_MAX_BYTES;
use crate::produce::verdicts::errors_of;

/// Cost of recompressing relative to expanding.
const RECOMPRESSION_WEIGHT: usize = 4;
/// The same at levels far above a codec's default.
const SLOW_RECOMPRESSION_WEIGHT: usize = 64;

/// Validates the batches for `cx.targets` that must be expanded, up to a limit of work. Results go
/// to `cx.verdicts`, which stays empty if there are none. Returns the positions that remain.
pub fn validate(
    cx: &mut Context,
    request: &ProduceRequest,
    frame: &mut [u8],
    api_version: i16,
) -> Vec<(usize, Rules)> {
    cx.verdicts.clear();
    let mut room_bytes = INLINE_MAX_BYTES;
    let mut remaining = Vec::new();
    let mut errors_left = RECORD_ERRORS_MAX;
    for (position, wanted) in request.partitions.iter().enumerate() {
        let (Some(partition), Some(span)) = (&cx.targets[position], wanted.records) else {
            continue;
        };
        let records = span.of_mut(frame);
        let rules = Rules {
            expanded_bytes_max: cx.services.validators.expanded_max_bytes,
            keeps_offsets: wanted.expected_end.is_some(),
            ..Rules::new(&partition.topic.settings().log, api_version)
        };
        let is_old = api_version < BATCHES_SINCE;
        let converted = is_old.then_some(RECOMPRESSION_WEIGHT);
        let Some(weight) = converted.or_else(|| weight(records, &rules)) else {
            continue;
        };
        cx.verdicts.resize_with(request.partitions.len(), || None);
        let expanded_max = room_bytes / weight;
        if is_old || !remaining.is_empty() || records.len() > expanded_max {
            remaining.push((position, rules));
            continue;
        }
        let limited = Rules {
            expanded_bytes_max: expanded_max.min(rules.expanded_bytes_max),
            record_errors_max: errors_left,
            ..rules
        };
        match validate_produce(records, &limited, cx.now.wall_ms) {
            Err(error) if error.expands_beyond => remaining.push((position, rules)),
            verdict => {
                // How far a refused batch was expanded is unknown.
                let expanded = verdict.as_ref().map(|valid| valid.expanded_bytes);
                let spent_bytes = expanded.unwrap_or(limited.expanded_bytes_max / 4) * weight;
                room_bytes -= spent_bytes.min(room_bytes);
                let verdict = verdict.map_err(|error| Refusal::from(*error));
                errors_left -= errors_of(&verdict).min(errors_left);
                cx.verdicts[position] = Some(verdict);
            }
        }
    }
    remaining
}

/// Cost of expanding a byte of the batch; `None` if nothing is expanded.
fn weight(records: &[u8], rules: &Rules) -> Option<usize> {
    let header = BatchHeader::parse(records.get(..HEADER_LEN)?).ok()?;
    let sent = header.compression().ok()?;
    let stored = rules.stored_codec(sent);
    if stored != sent {
        let is_slow = rules.compression_levels.is_slow(stored);
        Some(match is_slow {
            true => SLOW_RECOMPRESSION_WEIGHT,
            false => RECOMPRESSION_WEIGHT,
        })
    } else {
        (sent != Compression::None).then_some(1)
    }
}
