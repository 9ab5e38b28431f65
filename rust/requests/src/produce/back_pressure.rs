//! Produce requests that wait because their log directory has too many unwritten bytes.
//!
//! The request stays, unread, in its connection's buffer. The connection is *muted*: nothing behind
//! the request is looked at, so that no later batch of a producer overtakes it. This module keeps
//! who waits, in order; the writer wakes them as room appears. A request that waits longer than its
//! time-out, or finds the queue full, gets the retriable REQUEST_TIMED_OUT. Requests behind it
//! count from the same moment, so that a muted connection does not sum up time-outs.
//!
//! After a refusal a later batch could overtake, since the broker accepts any first sequence number
//! of an unknown producer. So if a refused batch has a producer id, the connection closes after the
//! answer; the client then resends what followed, in order.

use std::sync::Arc;

use pyrklog_wire::batch::{BatchHeader, NO_PRODUCER_ID};
use pyrklog_wire::produce::ProduceRequest;

use crate::client::Client;
use crate::context::Context;
use crate::outcome::Hold;
use crate::produce::queue::ProduceQueue;
use crate::produce::queue::RoomWait;
use crate::produce::validating::ProduceParams;
use pyrklog_base::ids::{NEVER_MS, Place};
use pyrklog_storage::muted_queue::Admission;

/// Whether to handle a request for the partitions in `cx.targets`.
pub fn admit(
    cx: &mut Context,
    queue: &mut ProduceQueue,
    params: ProduceParams,
    frame_bytes: usize,
) -> Admission {
    let mut targets = cx.targets.iter().flatten();
    let Some(target) = targets.find(|target| target.dir().has_too_much_unwritten()) else {
        if let Some((dir, _)) = queue.room_wait.take().and_then(|wait| wait.at) {
            dir.unmute_next(&mut cx.outbox);
        }
        return Admission::Now;
    };
    let dir = Arc::clone(&target.dir());
    let now_ms = cx.now.mono_ms;
    let wait = queue.room_wait.get_or_insert(RoomWait {
        since_ms: now_ms,
        at: None,
    });
    let due_ms = wait.since_ms.saturating_add(params.patience_ms);
    if due_ms <= now_ms {
        dir.muted.note_timed_out();
        return Admission::Refused;
    }
    let admission = dir.muted.add(params.place, frame_bytes, now_ms, || {
        dir.has_too_much_unwritten()
    });
    match admission {
        Admission::Later => wait.at = Some((dir, due_ms)),
        Admission::Now => queue.room_wait = None,
        Admission::Refused => {}
    }
    admission
}

/// Since when the current request has waited, if it has.
pub fn waited_since_ms(queue: &ProduceQueue) -> Option<i64> {
    queue.room_wait.as_ref().map(|wait| wait.since_ms)
}

/// Whether a batch of the request has a producer id.
pub fn has_producer_id(request: &ProduceRequest, frame: &[u8]) -> bool {
    request.partitions.iter().any(|wanted| {
        let records = wanted.records.map(|span| span.of(frame));
        let header = records.and_then(|records| BatchHeader::parse(records).ok());
        header.is_some_and(|header| header.producer_id != NO_PRODUCER_ID)
    })
}

/// Deadline of the request that waits for room.
pub fn due_ms(client: &Client) -> i64 {
    match &client.produces.room_wait {
        Some(RoomWait {
            at: Some((_, due_ms)),
            ..
        }) if client.hold == Some(Hold::Room) => *due_ms,
        _ => NEVER_MS,
    }
}

/// Takes a connection with an overdue request out of the queue; the request is then refused unless
/// there is room.
pub fn expire(cx: &Context, client: &mut Client) {
    if due_ms(client) <= cx.now.mono_ms {
        let place = cx.place_of(&client.context);
        forget(client, place);
        client.hold = None;
    }
}

/// Takes a connection out of the queue, if it is there.
pub fn forget(client: &mut Client, place: Place) {
    if let Some(wait) = &mut client.produces.room_wait
        && let Some((dir, _)) = wait.at.take()
        && client.hold == Some(Hold::Room)
    {
        dir.muted.forget(place);
    }
}

/// All input was handled: the next request has not waited.
pub fn note_empty(client: &mut Client, is_readable: bool) {
    if client.hold != Some(Hold::Room) && !is_readable {
        client.produces.room_wait = None;
    }
}
