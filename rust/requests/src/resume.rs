//! Resumes a client's delayed requests: on news of partitions, readers, validators, followers, the
//! control plane and the clock.

use std::sync::Arc;

use crate::carry_out::carry_out;
use crate::client::Client;
use crate::client_context::ClientContext;
use crate::cold_reads::FetchJob;
use crate::context::Context;
use crate::delayed::Delayed;
use crate::fetch::delayed_fetch::DelayedFetch;
use crate::handled::Outcome;
use crate::list_offsets::delayed_list_offsets::LookUpJob;
use crate::out_queue::OutQueue;
use crate::outcome::{Close, Hold};
use crate::produce::back_pressure;
use crate::produce::validators::ValidateJob;
use crate::{admission, control_replies, fetch, list_offsets, produce, timed_work};

/// Work that another thread has done for a client's delayed request.
#[derive(Debug)]
pub enum JobDone {
    /// A fetch's reads of one queue.
    Fetch(Box<FetchJob>),
    /// The time look-ups of a ListOffsets request in one log directory.
    ListOffsets(Box<LookUpJob>),
    /// The validation of a produce request's batches.
    Produce(Box<ValidateJob>),
}

/// A job is done.
///
/// # Errors
/// Here and below: a reply that the protocol cannot carry.
pub fn job_done(cx: &mut Context, client: &mut Client, job: JobDone) -> Result<(), Close> {
    timed_work::resume(cx, client, |cx, client| match job {
        JobDone::Fetch(job) => fetch_read(cx, client, *job),
        JobDone::ListOffsets(job) => times_looked_up(cx, client, *job),
        JobDone::Produce(job) => validated(cx, client, *job),
    })
}

/// A watched partition has news, or demands the next fetch.
pub fn wake(
    cx: &mut Context,
    client: &mut Client,
    wait: u64,
    must_answer: bool,
) -> Result<(), Close> {
    timed_work::resume(cx, client, |cx, client| {
        wake_delayed(cx, client, wait, must_answer)
    })
}

fn wake_delayed(
    cx: &mut Context,
    client: &mut Client,
    wait: u64,
    must_answer: bool,
) -> Result<(), Close> {
    match &mut client.delayed {
        Some(Delayed::Fetch(work)) if work.is_waiting(wait) => {
            work.end_wait();
            work.must_answer |= must_answer;
            go_on_fetching(cx, client, fetch::serve_until_waiting)
        }
        Some(Delayed::ListOffsets(work)) => {
            match list_offsets::wake(cx, &client.context, work, wait) {
                true => list_now(cx, client),
                false => Ok(()),
            }
        }
        _ => Ok(()),
    }
}

/// Ends the fetch if its time is over; else the next look is set.
pub fn look_at_fetch(cx: &mut Context, client: &mut Client) -> Result<(), Close> {
    if let Some(Delayed::Fetch(work)) = &mut client.delayed
        && work.is_over(&cx.services.readers, cx.now.mono_ms)
    {
        finish_fetch(cx, client)?;
    }
    Ok(())
}

/// Followers or readers are late: the client must retry those partitions.
pub fn look_at_list_offsets(cx: &mut Context, client: &mut Client) -> Result<(), Close> {
    if let Some(Delayed::ListOffsets(work)) = &mut client.delayed {
        work.forget_doubts(client.context.token);
        work.doubtful.clear();
        if work.is_done() || work.deadline_ms <= cx.now.mono_ms {
            timed_work::resume(cx, client, list_now)?;
        }
    }
    Ok(())
}

/// Answers a delayed fetch with what there is; gives up readers' reads.
pub fn finish_fetch(cx: &mut Context, client: &mut Client) -> Result<(), Close> {
    timed_work::resume(cx, client, finish_delayed_fetch)
}

fn finish_delayed_fetch(cx: &mut Context, client: &mut Client) -> Result<(), Close> {
    if let Some(Delayed::Fetch(work)) = &mut client.delayed {
        // Only readers convert: reading anew would find nothing, and lose what they have made.
        let go_on: GoOn = match work.is_reading() && work.is_converted() {
            true => fetch::finish_reading,
            false => fetch::serve_until_waiting,
        };
        work.end_wait();
        work.give_up();
        go_on_fetching(cx, client, go_on)?;
    }
    Ok(())
}

fn fetch_read(cx: &mut Context, client: &mut Client, job: FetchJob) -> Result<(), Close> {
    let may_go_on = !cx.is_draining && !client.context.has_ended();
    let (services, now_ms) = (Arc::clone(&cx.services), cx.now.mono_ms);
    let context = &client.context;
    let mut has_room = |bytes| admission::has_room(cx, context, bytes);
    if let Some(Delayed::Fetch(work)) = &mut client.delayed
        && work.take_back(job, &services, now_ms, may_go_on, &mut has_room)
    {
        go_on_fetching(cx, client, fetch::finish_reading)?;
    }
    // Other results may be taken before this connection is looked at again.
    admission::count(cx, client);
    Ok(())
}

type GoOn =
    fn(&mut Context, &ClientContext, Box<DelayedFetch>, &mut OutQueue) -> Result<Outcome, Close>;

fn go_on_fetching(cx: &mut Context, client: &mut Client, go_on: GoOn) -> Result<(), Close> {
    if let Some(Delayed::Fetch(work)) = client.delayed.take() {
        let handled = go_on(cx, &client.context, work, &mut client.out);
        carry_out(cx, client, handled.map_err(Into::into))?;
    }
    Ok(())
}

fn times_looked_up(cx: &mut Context, client: &mut Client, job: LookUpJob) -> Result<(), Close> {
    if let Some(Delayed::ListOffsets(work)) = &mut client.delayed
        && work.take_back(job)
    {
        list_now(cx, client)?;
    }
    Ok(())
}

fn list_now(cx: &mut Context, client: &mut Client) -> Result<(), Close> {
    if let Some(Delayed::ListOffsets(work)) = client.delayed.take() {
        list_offsets::respond(cx, &client.context, &work, &mut client.out)?;
    }
    Ok(())
}

fn validated(cx: &mut Context, client: &mut Client, job: ValidateJob) -> Result<(), Close> {
    let Some(Delayed::Validating(validating)) = &client.delayed else {
        return Ok(());
    };
    if validating.wait != job.work.wait {
        return Ok(());
    }
    if let Some(Delayed::Validating(validating)) = client.delayed.take() {
        let (who, queue) = (&client.context, &mut client.produces);
        let handled = produce::finish_validating(cx, who, queue, &validating, job);
        carry_out(cx, client, handled)?;
    }
    Ok(())
}

/// A transaction's coordinator has answered the question `id`.
pub fn verified(
    cx: &mut Context,
    client: &mut Client,
    id: u64,
    errors: &[i16],
) -> Result<(), Close> {
    match &client.delayed {
        Some(Delayed::Verifying(verifying)) if verifying.id == id => {
            timed_work::resume(cx, client, |cx, client| {
                finish_verifying(cx, client, errors)
            })
        }
        _ => Ok(()),
    }
}

/// The coordinator's answer is late: the client must try again.
pub fn look_at_verification(cx: &mut Context, client: &mut Client) -> Result<(), Close> {
    match &client.delayed {
        Some(Delayed::Verifying(verifying)) if verifying.deadline_ms <= cx.now.mono_ms => {
            timed_work::resume(cx, client, |cx, client| finish_verifying(cx, client, &[]))
        }
        _ => Ok(()),
    }
}

fn finish_verifying(cx: &mut Context, client: &mut Client, errors: &[i16]) -> Result<(), Close> {
    if let Some(Delayed::Verifying(mut verifying)) = client.delayed.take() {
        verifying.answer(errors);
        let (who, queue) = (&client.context, &mut client.produces);
        let handled = produce::finish_verifying(cx, who, queue, *verifying);
        carry_out(cx, client, handled)?;
    }
    Ok(())
}

/// The reason to hold back input may be gone.
pub fn unblock(client: &mut Client) {
    if matches!(client.hold, Some(Hold::Room | Hold::ControlFull)) {
        client.has_turn |= client.hold == Some(Hold::ControlFull);
        client.hold = None;
    }
}

/// The connection is closed: ends its waits and frees what it held.
pub fn end(cx: &Context, client: &mut Client) {
    let token = client.context.token;
    if !client.context.hung_up {
        control_replies::tell_gone(&cx.services, client);
    }
    match client.delayed.take() {
        Some(Delayed::Fetch(work)) => fetch::abandon(cx, *work),
        Some(Delayed::ListOffsets(work)) => work.forget_doubts(token),
        _ => {}
    }
    for produce in &client.produces.pending {
        produce.forget_waiters();
    }
    let place = cx.place_of(&client.context);
    if client.hold == Some(Hold::ControlFull) {
        cx.services.channel.forget(place);
    }
    control_replies::pass_unused_turn(&cx.services, client);
    back_pressure::forget(client, place);
    admission::forget(cx, client);
    cx.services.budget.release(client.context.id);
}
