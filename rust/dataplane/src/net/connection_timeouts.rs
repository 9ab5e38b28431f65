//! Deadlines of one connection, and the rare look at all of them: idle ones, slow ones, memory
//! that is no longer needed.

use crate::net::connection::{Connection, Sending};
use crate::net::output;
use pyrklog_base::ids::NEVER_MS;
use pyrklog_control::api::PlaneConfig;
use pyrklog_requests::admission::Looked;
use pyrklog_requests::context::Context;
use pyrklog_requests::outcome::{Close, Hold};
use pyrklog_requests::produce::back_pressure;
use pyrklog_requests::{admission, resume};

/// The longest time between two looks at all connections.
const SWEEP_MAX_MS: i64 = 30_000;

/// The shortest.
const SWEEP_MIN_MS: i64 = 20;

/// The time between two looks while connections wait for receive memory.
pub const HUNGRY_MS: i64 = 50;

/// While receive memory is short, a connection that holds some loses it after this long without
/// a byte.
const STALLED_MS: i64 = 5_000;

/// While receive memory is short, the one connection that may exceed it must be through with its
/// frame after this long: the others wait for it.
const EXEMPT_MAX_MS: i64 = 30_000;

/// Receive memory unused for this long is given back.
const KEEP_MEMORY_MS: i64 = 1_000;

/// How often all connections are looked at.
pub fn interval_ms(config: &PlaneConfig) -> i64 {
    let idle_ms = config.connections_max_idle_ms;
    if idle_ms <= 0 {
        SWEEP_MAX_MS
    } else {
        (idle_ms / 4).clamp(SWEEP_MIN_MS, SWEEP_MAX_MS)
    }
}

/// A timer of the connection fired: what has run out of time is answered.
pub fn expire(cx: &mut Context, conn: &mut Connection) -> Result<(), Close> {
    conn.client.timer_ms = NEVER_MS;
    resume::expire(cx, &mut conn.client)?;
    output::check_reader(cx, conn)?;
    back_pressure::expire(cx, &mut conn.client);
    let next_ms = next_due_ms(conn);
    cx.timers.want(
        conn.client.context.token,
        next_ms,
        &mut conn.client.timer_ms,
    );
    Ok(())
}

/// The earliest deadline of a connection.
fn next_due_ms(conn: &Connection) -> i64 {
    let waiting = conn
        .client
        .produces
        .pending
        .iter()
        .filter(|produce| !produce.is_done());
    let produce_ms = waiting.map(|produce| produce.deadline_ms).min();
    let delayed = conn.client.delayed.as_ref();
    let delayed_ms = delayed.map_or(NEVER_MS, |delayed| delayed.due_ms());
    produce_ms
        .unwrap_or(NEVER_MS)
        .min(delayed_ms)
        .min(conn.sending_reader.due_ms)
        .min(back_pressure::due_ms(&conn.client))
}

/// What is to become of a connection.
#[derive(Debug, PartialEq, Eq)]
pub enum Verdict {
    /// Nothing.
    Keep,
    /// It may go on.
    Visit,
    /// It is closed.
    Close(Close),
}

/// Looks at one connection.
pub fn look(cx: &mut Context, conn: &mut Connection) -> Verdict {
    let now_ms = cx.now.mono_ms;
    let silent_ms = now_ms - conn.active_ms;
    let max_idle_ms = cx.services.config.connections_max_idle_ms;
    if max_idle_ms > 0 {
        let is_idle = conn.is_quiet() && conn.client.hold.is_none() && silent_ms > max_idle_ms;
        // A peer that takes nothing of what it asked for is as good as gone, whatever is pending.
        let takes_nothing = conn.sending == Sending::Full && silent_ms > max_idle_ms;
        let is_slow = now_ms.saturating_sub(conn.partial_since_ms) > max_idle_ms;
        if is_idle || takes_nothing || is_slow {
            return Verdict::Close(Close::Idle);
        }
    }
    conn.client.produces.refused.forget_old(now_ms);
    let budget = std::sync::Arc::clone(&cx.services.budget);
    let budget = &*budget;
    if conn.received.is_empty() && silent_ms > KEEP_MEMORY_MS {
        conn.received.shrink(budget);
    }
    if budget.is_exhausted() && conn.partial_since_ms < now_ms {
        let partial_ms = now_ms - conn.partial_since_ms;
        let is_too_slow = budget.is_exempt(conn.client.context.id) && partial_ms > EXEMPT_MAX_MS;
        if silent_ms > STALLED_MS || is_too_slow {
            let reason = "its frame stopped arriving while receive memory was short";
            return Verdict::Close(Close::Protocol(reason.into()));
        }
    }
    match admission::look(cx, &mut conn.client) {
        Ok(Looked::Keep) => {}
        Ok(Looked::GoOn) => return Verdict::Visit,
        Ok(Looked::FinishFetch) => {
            return match resume::finish_fetch(cx, &mut conn.client) {
                Ok(()) => Verdict::Visit,
                Err(close) => Verdict::Close(close),
            };
        }
        Err(close) => return Verdict::Close(close),
    }
    if conn.client.hold == Some(Hold::Memory) {
        if budget.allows(conn.client.context.id) {
            conn.client.hold = None;
            return Verdict::Visit;
        }
        cx.is_hungry = true;
    }
    Verdict::Keep
}
