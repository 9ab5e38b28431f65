//! Reads the clock around work on a client's requests ([`crate::request_time`]).
//!
//! It is read where a step ends, once: the next step of the thread begins then.

use std::cmp::max;

use crate::client::Client;
use crate::context::Context;
use crate::delayed::Delayed;
use crate::outcome::Dispatched;
use crate::request_time::RequestTime;
use pyrklog_control::latency::{Group, Phase};

/// Where work on a client's request began.
#[derive(Clone, Copy, Debug)]
pub struct Work {
    began_ns: u64,
    /// Of the next Produce request.
    sequence: u64,
}

/// Work on a frame begins.
pub fn begin(cx: &Context, client: &Client) -> Work {
    Work {
        began_ns: cx.lap_ns(),
        sequence: client.produces.next_sequence(),
    }
}

/// Work on a frame has ended.
pub fn dispatched(cx: &mut Context, client: &mut Client, work: Work, done: Dispatched) {
    let arrived_ns = client.times.held_since_ns.unwrap_or(cx.arrival_ns);
    if done == Dispatched::Waits {
        client.times.held_since_ns = Some(arrived_ns);
        return;
    }
    client.times.held_since_ns = None;
    let began_ns = max(work.began_ns, arrived_ns);
    let mut time = RequestTime::begun(cx.group, arrived_ns, began_ns);
    time.spend(Phase::Local, cx.read_lap_ns());
    settle(cx, client, work, time);
}

/// Goes on with a client's delayed request.
///
/// # Errors
/// Those of `go_on`.
pub fn resume<E>(
    cx: &mut Context,
    client: &mut Client,
    go_on: impl FnOnce(&mut Context, &mut Client) -> Result<(), E>,
) -> Result<(), E> {
    let Some(delayed) = &client.delayed else {
        return go_on(cx, client);
    };
    let mut time = client.times.delayed;
    time.spend(waits_in(delayed, time.group()), cx.lap_ns());
    let work = begin(cx, client);
    go_on(cx, client)?;
    time.spend(Phase::Local, cx.read_lap_ns());
    settle(cx, client, work, time);
    Ok(())
}

/// What a delayed request waits for.
fn waits_in(delayed: &Delayed, group: Option<Group>) -> Phase {
    match delayed {
        Delayed::Fetch(work) if work.is_reading() => Phase::Read,
        Delayed::ListOffsets(_) => Phase::Read,
        Delayed::Fetch(_) | Delayed::Verifying(_) => Phase::Remote,
        Delayed::Control { .. } if group == Some(Group::JoinGroup) => Phase::Remote,
        Delayed::Control { .. } | Delayed::Metadata { .. } | Delayed::Validating(_) => Phase::Local,
    }
}

/// After some work: the request is delayed, appended or answered.
fn settle(cx: &Context, client: &mut Client, work: Work, time: RequestTime) {
    if client.delayed.is_some() {
        client.times.delayed = time;
    } else if client.produces.next_sequence() != work.sequence {
        client.produces.set_time(time);
    } else if let Some(reply) = time.ready(&cx.statistics) {
        match time.group() == Some(Group::Produce) {
            // Without a reply (acks=0).
            true => reply.sent_at_once(&cx.statistics),
            false => client.times.add(reply, &cx.statistics),
        }
    }
}

/// The reply of a Produce request is in the output.
pub fn produced(cx: &Context, client: &mut Client, time: RequestTime) {
    if let Some(reply) = time.ready(&cx.statistics) {
        client.times.add(reply, &cx.statistics);
    }
}

/// All output is sent.
pub fn sent(cx: &mut Context, client: &mut Client) {
    if client.times.has_unsent() {
        let now_ns = cx.read_lap_ns();
        client.times.sent(&cx.statistics, now_ns);
    }
}
