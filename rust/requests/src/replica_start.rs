//! ReplicaStart: a led log's state at its end, for a replica that starts there (`expansion.md`,
//! section 2). From memory only, in one look, so that its parts belong together.

use pyrklog_log::snapshot::{self, ENTRY_BYTES};
use pyrklog_log::{EndState, Log};
use pyrklog_wire::ErrorCode;
use pyrklog_wire::replica_start::{ReplicaStartRequest, ReplicaStartResponse, StartEpoch};

use crate::admission;
use crate::context::Context;
use crate::handled::{Handled, Outcome};
use crate::out_queue::OutQueue;
use crate::request::Request;

/// Memory of a producer: its state, in the snapshot, and in the reply.
const PRODUCER_BYTES: usize = 3 * ENTRY_BYTES;

/// Serves a request.
pub fn handle(cx: &mut Context, request: Request<'_>, out: &mut OutQueue) -> Handled {
    let api_version = request.header.api_version;
    let asked = request.decode(ReplicaStartRequest::decode)?;
    let bytes = with_log(cx, &asked, |log| log.producer_count() * PRODUCER_BYTES);
    admission::admit(cx, request.client, bytes.unwrap_or(0))?;
    let mut found = with_log(cx, &asked, Log::end_state);
    let producers = match &mut found {
        Ok(state) => snapshot::encode_sorted(std::mem::take(&mut state.producers)),
        Err(_) => Vec::new(),
    };
    let response = match &found {
        Ok(state) => answer(state, &producers),
        Err(error) => ReplicaStartResponse::failed(*error),
    };
    request.reply(out, |body| response.encode(body, api_version))?;
    Ok(Outcome::Replied)
}

fn answer<'a>(state: &EndState, producers: &'a [u8]) -> ReplicaStartResponse<'a> {
    let epochs = state.epochs.iter().map(|entry| StartEpoch {
        epoch: entry.epoch,
        start_offset: entry.start_offset,
    });
    ReplicaStartResponse {
        error_code: ErrorCode::NONE,
        start_offset: state.offset,
        log_start_offset: state.log_start,
        epochs: epochs.collect(),
        producers: Some(producers),
    }
}

/// Looks at the log if the replica may start at its end: this broker leads in the replica's epoch,
/// the controller lets the replica begin so, and retention or a back-fill makes it whole one day.
fn with_log<T>(
    cx: &Context,
    asked: &ReplicaStartRequest<'_>,
    look: impl FnOnce(&Log) -> T,
) -> Result<T, ErrorCode> {
    let (topic, index) = (asked.topic, asked.partition);
    let partition = cx
        .hosted
        .partition(topic, index)
        .ok_or_else(|| cx.why_not_hosted(topic, index))?;
    if partition.topic.id != asked.topic_id {
        return Err(ErrorCode::INCONSISTENT_TOPIC_ID);
    }
    let mut state = partition.lock();
    // One that has joined holds records that count: it never begins again.
    let may_start = state.is_partial(asked.replica_id) && !state.is_member(asked.replica_id);
    if may_start {
        state.begins_anew(asked.replica_id);
    }
    let log = state.led_in(asked.current_leader_epoch)?;
    match may_start {
        true if log.config().cleanup_compact && !asked.fills_compacted => {
            Err(ErrorCode::POLICY_VIOLATION)
        }
        true => Ok(look(log)),
        false => Err(ErrorCode::INVALID_REQUEST),
    }
}
