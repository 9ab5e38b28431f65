//! The timers of a connection: when each is due, and what happens then.
//!
//! A deadline is not stored: it follows from what the connection waits for, so that there is none to
//! be set back and an idle connection has none. Two fire in time, through the thread's heap
//! ([`pyrklog_base::timers`]): that of the client's requests (`client_timers` in the requests crate
//! has one for each kind) and that of a reader that sends. The others are for what is rare, and wait
//! for the next look at all connections.

use crate::net::connection::{Connection, Sending};
use crate::net::output;
use pyrklog_base::ids::NEVER_MS;
use pyrklog_control::api::PlaneConfig;
use pyrklog_requests::admission::Looked;
use pyrklog_requests::context::Context;
use pyrklog_requests::outcome::{Close, Hold};
use pyrklog_requests::{admission, client_timers, resume};

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

/// What a connection may be late with.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Timer {
    /// What a request that waits may be late with (`client_timers`).
    Client,
    /// A reader that sends, and may hang with its disk.
    SendingReader,
    /// Nothing is under way and no byte moves (`connections.max.idle.ms`).
    Idle,
    /// The peer takes nothing of what it asked for: it is as good as gone, whatever is pending.
    TakesNothing,
    /// A frame that does not come to its end.
    SlowFrame,
    /// Memory of frames that were received.
    SpareMemory,
    /// A frame of which nothing comes while receive memory is short.
    StalledFrame,
    /// The frame of the one connection that may exceed that memory.
    ExemptFrame,
    /// Replies that the peer does not take while memory for replies is short.
    UnreadReplies,
}

/// Those that fire in time.
const PRECISE: [Timer; 2] = [Timer::Client, Timer::SendingReader];

/// Those that are looked at with all connections.
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
            Timer::SendingReader => conn.sending_reader.due_ms,
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

    /// What happens when it is due; an error closes the connection.
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

/// The first moment that lies more than `limit_ms` behind `since_ms`.
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

/// The connection's entry in the heap is due: what has run out of time is answered.
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
    conn.client.produces.refused.forget_old(cx.now.mono_ms);
    if let Err(close) = fire_due(&SWEPT, cx, conn) {
        return Verdict::Close(close);
    }
    match admission::look(cx, &mut conn.client) {
        Looked::Keep => {}
        Looked::GoOn => return Verdict::Visit,
        Looked::FinishFetch => {
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
