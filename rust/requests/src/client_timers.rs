//! Timers of a client's requests.

use crate::client::Client;
use crate::context::Context;
use crate::delayed::Delayed;
use crate::outcome::Close;
use crate::produce::back_pressure;
use crate::produce::delayed_produce::DelayedProduce;
use crate::resume;
use pyrklog_base::ids::NEVER_MS;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum ClientTimer {
    /// A produce request's acknowledgement (`timeout.ms`).
    Produce,
    /// A delayed fetch, for records or readers (`max.wait.ms`).
    Fetch,
    /// Readers' look-up of offsets.
    ListOffsets,
    /// A produce request's wait for its transaction's coordinator.
    Verification,
    /// A produce request's wait for its log directory.
    BackPressure,
}

const ALL: [ClientTimer; 5] = [
    ClientTimer::Produce,
    ClientTimer::Fetch,
    ClientTimer::ListOffsets,
    ClientTimer::Verification,
    ClientTimer::BackPressure,
];

impl ClientTimer {
    /// When it is due, monotonic milliseconds; [`NEVER_MS`] if unset.
    fn due_ms(self, client: &Client) -> i64 {
        match (self, &client.delayed) {
            (ClientTimer::Produce, _) => {
                let pending = client.produces.pending.iter();
                let waiting = pending.filter(|produce| !produce.is_done());
                let first_ms = waiting.map(|produce| produce.deadline_ms).min();
                first_ms.unwrap_or(NEVER_MS)
            }
            (ClientTimer::Fetch, Some(Delayed::Fetch(work))) => work.due_ms(),
            (ClientTimer::ListOffsets, Some(Delayed::ListOffsets(work))) => work.due_ms(),
            (ClientTimer::Verification, Some(Delayed::Verifying(work))) => work.deadline_ms,
            (ClientTimer::Fetch | ClientTimer::ListOffsets | ClientTimer::Verification, _) => {
                NEVER_MS
            }
            (ClientTimer::BackPressure, _) => back_pressure::due_ms(client),
        }
    }

    /// Fires it; an error closes the connection.
    fn fire(self, cx: &mut Context, client: &mut Client) -> Result<(), Close> {
        match self {
            ClientTimer::Produce => {
                let now_ms = cx.now.mono_ms;
                let is_due = |produce: &&mut DelayedProduce| {
                    produce.deadline_ms <= now_ms && !produce.is_done()
                };
                let due = client.produces.pending.iter_mut().filter(is_due);
                due.for_each(|produce| {
                    produce.time_out();
                    produce.time.acknowledged(cx.lap_ns());
                });
                Ok(())
            }
            ClientTimer::Fetch => resume::look_at_fetch(cx, client),
            ClientTimer::ListOffsets => resume::look_at_list_offsets(cx, client),
            ClientTimer::Verification => resume::look_at_verification(cx, client),
            ClientTimer::BackPressure => {
                back_pressure::expire(cx, client);
                Ok(())
            }
        }
    }
}

/// A client's earliest deadline, monotonic milliseconds, or [`NEVER_MS`].
pub fn due_ms(client: &Client) -> i64 {
    let due_ms = ALL.map(|timer| timer.due_ms(client));
    due_ms.into_iter().min().unwrap_or(NEVER_MS)
}

/// A timer is due: answers overdue requests and sets the next timer.
///
/// # Errors
/// The connection closes.
pub fn expire(cx: &mut Context, client: &mut Client) -> Result<(), Close> {
    client.timer_ms = NEVER_MS;
    for timer in ALL {
        if timer.due_ms(client) <= cx.now.mono_ms {
            timer.fire(cx, client)?;
        }
    }
    let next_ms = due_ms(client);
    cx.timers
        .want(client.context.token, next_ms, &mut client.timer_ms);
    Ok(())
}
