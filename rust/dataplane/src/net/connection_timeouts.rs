//! The timers of a connection: when each is due, and what happens then.
//!
//! A deadline is not stored but computed from what the connection waits for: nothing has to be
//! reset, and an idle connection has none. Two fire in time, through the thread's heap
//! ([`pyrklog_base::timers`]): that of the client's requests (`client_timers` in the requests crate
//! has one for each kind) and that of a reader that sends. The others are for rare events, and wait
//! for the next sweep over all connections.

use crate::net::connection::{Connection, Sending};
use crate::net::output;
use pyrklog_base::ids::NEVER_MS;
use pyrklog_control::seam::PlaneConfig;
use pyrklog_requests::admission::Recheck;
use pyrklog_requests::context::Context;
use pyrklog_requests::outcome::{Close, Hold};
use pyrklog_requests::{admission, client_timers, resume};

/// The longest time between two sweeps.
const SWEEP_MAX_MS: i64 = 30_000;

/// The shortest.
const SWEEP_MIN_MS: i64 = 20;

/// The time between two sweeps while connections wait for receive memory.
pub const HUNGRY_MS: i64 = 50;

/// While receive memory is short, a connection that holds some loses it after this long without a
/// byte.
const STALLED_MS: i64 = 5_000;

/// While receive memory is short, the one connection that may exceed it must complete its frame
/// within this time: the others wait for it.
const EXEMPT_MAX_MS: i64 = 30_000;

/// Receive memory unused for this long is given back.
const KEEP_MEMORY_MS: i64 = 1_000;

/// The time between two sweeps.
pub fn interval_ms(config: &PlaneConfig) -> i64 {
    let idle_ms = config.connections_max_idle_ms;
    if idle_ms <= 0 {
        SWEEP_MAX_MS
    } else {
        (idle_ms / 4).clamp(SWEEP_MIN_MS, SWEEP_MAX_MS)
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Timer {
    /// A waiting request (`client_timers`).
    Client,
    /// A reader that sends, and may hang with its disk.
    SendingReader,
    /// Nothing is under way and no byte moves (`connections.max.idle.ms`).
    Idle,
    /// The peer takes nothing of its replies: it counts as gone, whatever is pending.
    TakesNothing,
    SlowFrame,
    /// Memory of frames that were received.
    SpareMemory,
    /// A frame without progress while receive memory is short.
    StalledFrame,
    /// The frame of the one connection that may exceed that memory.
    ExemptFrame,
    /// Replies that the peer does not take while memory for replies is short.
    UnreadReplies,
}

/// Timers that fire in time.
const PRECISE: [Timer; 2] = [Timer::Client, Timer::SendingReader];

/// Timers that wait for a sweep.
const SWEPT: [Timer; 7] = [
    Timer::Idle,
    Timer::TakesNothing,
    Timer::SlowFrame,
    Timer::SpareMemory,
    Timer::StalledFrame,
    Timer::ExemptFrame,
    Timer::UnreadReplies,
];

impl Timer {
    /// When it is due, monotonic milliseconds; [`NEVER_MS`] while it is not set.
    fn due_ms(self, cx: &Context, conn: &Connection) -> i64 {
        let client = &conn.client;
        let (active_ms, partial_ms) = (conn.active_ms, conn.partial_since_ms);
        let max_idle_ms = cx.services.config.connections_max_idle_ms;
        let is_short = || cx.services.budget.is_exhausted() && partial_ms < cx.now.mono_ms;
        match self {
            Timer::Client => client_timers::due_ms(client),
            Timer::SendingReader => conn.sending_due_ms,
            Timer::Idle | Timer::TakesNothing | Timer::SlowFrame if max_idle_ms <= 0 => NEVER_MS,
            Timer::Idle if conn.is_quiet() && client.hold.is_none() => {
                after(active_ms, max_idle_ms)
            }
            Timer::TakesNothing if conn.sending == Sending::Full => after(active_ms, max_idle_ms),
            Timer::SlowFrame => after(partial_ms, max_idle_ms),
            Timer::SpareMemory if conn.received.is_empty() => after(active_ms, KEEP_MEMORY_MS),
            Timer::StalledFrame if is_short() => after(active_ms, STALLED_MS),
            Timer::ExemptFrame if is_short() && cx.services.budget.is_exempt(client.context.id) => {
                after(partial_ms, EXEMPT_MAX_MS)
            }
            Timer::UnreadReplies => admission::unread_due_ms(cx, client),
            Timer::Idle
            | Timer::TakesNothing
            | Timer::SpareMemory
            | Timer::StalledFrame
            | Timer::ExemptFrame => NEVER_MS,
        }
    }

    fn fire(self, cx: &mut Context, conn: &mut Connection) -> Result<(), Close> {
        let protocol = |reason: &str| Err(Close::Protocol(reason.to_owned()));
        match self {
            Timer::Client => client_timers::expire(cx, &mut conn.client)?,
            Timer::SendingReader => output::check_reader(cx, conn)?,
            Timer::Idle | Timer::TakesNothing | Timer::SlowFrame => return Err(Close::Idle),
            Timer::SpareMemory => conn.received.shrink(&cx.services.budget),
            Timer::StalledFrame | Timer::ExemptFrame => {
                return protocol("its frame stopped arriving while receive memory was short");
            }
            Timer::UnreadReplies => {
                return protocol("its replies stayed unread while memory for replies was short");
            }
        }
        Ok(())
    }
}

/// The first moment more than `limit_ms` after `since_ms`.
fn after(since_ms: i64, limit_ms: i64) -> i64 {
    since_ms.saturating_add(limit_ms).saturating_add(1)
}

fn fire_due(timers: &[Timer], cx: &mut Context, conn: &mut Connection) -> Result<(), Close> {
    for timer in timers {
        if timer.due_ms(cx, conn) <= cx.now.mono_ms {
            timer.fire(cx, conn)?;
        }
    }
    Ok(())
}

/// The connection's entry in the heap is due: fires its timers.
pub fn expire(cx: &mut Context, conn: &mut Connection) -> Result<(), Close> {
    conn.client.timer_ms = NEVER_MS;
    fire_due(&PRECISE, cx, conn)?;
    let due_ms = PRECISE.map(|timer| timer.due_ms(cx, conn));
    let next_ms = due_ms.into_iter().min().unwrap_or(NEVER_MS);
    cx.timers.want(
        conn.client.context.token,
        next_ms,
        &mut conn.client.timer_ms,
    );
    Ok(())
}

/// What a sweep decides on a connection.
#[derive(Debug, PartialEq, Eq)]
pub enum Verdict {
    Keep,
    /// It may go on.
    Visit,
    Close(Close),
}

/// Checks one connection.
pub fn check(cx: &mut Context, conn: &mut Connection) -> Verdict {
    conn.client.produces.refused.forget_old(cx.now.mono_ms);
    if let Err(close) = fire_due(&SWEPT, cx, conn) {
        return Verdict::Close(close);
    }
    match admission::recheck(cx, &mut conn.client) {
        Recheck::Keep => {}
        Recheck::GoOn => return Verdict::Visit,
        Recheck::FinishFetch => {
            return match resume::finish_fetch(cx, &mut conn.client) {
                Ok(()) => Verdict::Visit,
                Err(close) => Verdict::Close(close),
            };
        }
    }
    if conn.client.hold == Some(Hold::Memory) {
        if cx.services.budget.allows(conn.client.context.id) {
            conn.client.hold = None;
            return Verdict::Visit;
        }
        cx.is_hungry = true;
    }
    Verdict::Keep
}
