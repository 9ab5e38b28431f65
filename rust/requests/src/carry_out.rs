//! Carries out what a handler returned.

use crate::client::Client;
use crate::context::Context;
use crate::control_replies;
use crate::delayed::Delayed;
use crate::handled::{Halt, Handled, Outcome};
use crate::outcome::{Close, Dispatched, Hold};
use crate::produce::back_pressure;

/// Carries out what a handler returned.
///
/// # Errors
/// The connection closes.
pub fn carry_out(
    cx: &mut Context,
    client: &mut Client,
    handled: Handled,
) -> Result<Dispatched, Close> {
    match handled {
        Ok(Outcome::Replied) => {}
        Ok(Outcome::Appended { produce, is_last }) => {
            let token = client.context.token;
            cx.timers
                .want(token, produce.deadline_ms, &mut client.timer_ms);
            client.produces.push(produce);
            client.is_closing |= is_last;
        }
        Ok(Outcome::Delayed(delayed)) => delay(cx, client, delayed),
        Err(Halt::Wait(hold)) => {
            wait(cx, client, hold);
            return Ok(Dispatched::Waits);
        }
        Err(Halt::Close(close)) => return Err(close),
    }
    Ok(Dispatched::Taken)
}

fn delay(cx: &mut Context, client: &mut Client, delayed: Delayed) {
    let token = client.context.token;
    cx.timers
        .want(token, delayed.due_ms(), &mut client.timer_ms);
    let is_at_control = matches!(delayed, Delayed::Control { .. } | Delayed::Metadata { .. });
    client.delayed = Some(delayed);
    if is_at_control {
        client.has_turn = false;
        if client.context.hung_up {
            control_replies::tell_gone(&cx.services, client);
        }
    }
}

fn wait(cx: &mut Context, client: &mut Client, hold: Hold) {
    client.hold = Some(hold);
    match hold {
        Hold::Room => {
            let due_ms = back_pressure::due_ms(client);
            cx.timers
                .want(client.context.token, due_ms, &mut client.timer_ms);
        }
        Hold::ControlFull => client.has_turn = false,
        _ => {}
    }
}
