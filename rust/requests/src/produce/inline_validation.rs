//! Validates, by the network thread, batches of a produce request before any of them is appended.
//!
//! Batches that are stored as they were sent, uncompressed, are validated when it is their turn to be
//! appended. The others are looked at first: those that expand to little at once, the rest by the
//! [validators](crate::produce::validators).

use pyrklog_log::validate::{RECORD_ERRORS_MAX, Rules, validate_produce};
use pyrklog_wire::ErrorCode;
use pyrklog_wire::batch::{BatchHeader, Compression, HEADER_LEN};
use pyrklog_wire::produce::ProduceRequest;

use crate::context::Context;
use crate::produce::delayed::Refusal;
use crate::produce::validators::INLINE_MAX_BYTES;
use crate::produce::verdicts::errors_of;

/// Recompressing takes so many times as long as expanding.
const RECOMPRESSION_WEIGHT: usize = 4;

/// What a look at a request came to.
#[derive(Debug)]
pub enum Looked {
    /// It can be appended, with what is in [`Context::verdicts`].
    Ready,
    /// It expands to too much: these positions remain.
    Remaining(Vec<(usize, Rules)>),
}

/// Looks at the batches of the partitions in `cx.targets` that have to be expanded, as far as that is
/// little work. What is found goes to `cx.verdicts`, which is empty when there is nothing to look at.
pub fn look(
    cx: &mut Context,
    request: &ProduceRequest,
    frame: &mut [u8],
    api_version: i16,
) -> Looked {
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
            ..Rules::new(&partition.topic.settings().log, api_version)
        };
        let Some(weight) = weight(records, &rules) else {
            continue;
        };
        cx.verdicts.resize_with(request.partitions.len(), || None);
        let expanded_max = room_bytes / weight;
        if !remaining.is_empty() || records.len() > expanded_max {
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
                // How far one that is refused was expanded is not known.
                let expanded = verdict.as_ref().map(|valid| valid.expanded_bytes);
                let spent_bytes = expanded.unwrap_or(limited.expanded_bytes_max / 4) * weight;
                room_bytes -= spent_bytes.min(room_bytes);
                let verdict = verdict.map_err(|error| Refusal::from(*error));
                errors_left -= errors_of(&verdict).min(errors_left);
                cx.verdicts[position] = Some(verdict);
            }
        }
    }
    if remaining.is_empty() {
        Looked::Ready
    } else {
        Looked::Remaining(remaining)
    }
}

/// What remains is refused: there is no room for it.
pub fn refuse(cx: &mut Context, remaining: &[(usize, Rules)]) {
    for (position, _) in remaining {
        cx.verdicts[*position] = Some(Err(ErrorCode::REQUEST_TIMED_OUT.into()));
    }
}

/// What expanding a byte of the batch costs; `None` where nothing is to be expanded.
fn weight(records: &[u8], rules: &Rules) -> Option<usize> {
    let header = BatchHeader::parse(records.get(..HEADER_LEN)?).ok()?;
    let sent = header.compression().ok()?;
    if rules.stored_codec(sent) != sent {
        Some(RECOMPRESSION_WEIGHT)
    } else {
        (sent != Compression::None).then_some(1)
    }
}
