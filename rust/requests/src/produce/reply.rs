//! Replies of produce requests.

use crate::client::Client;
use crate::context::{Context, borrow_memory};
use crate::outcome::{Close, Hold};
use crate::timed_work;

/// Moves finished produce answers to the output, in order.
///
/// # Errors
/// A reply that the protocol cannot carry.
pub fn send_done(cx: &mut Context, client: &mut Client) -> Result<(), Close> {
    while let Some(mut produce) = client.produces.pop_done() {
        borrow_memory(cx, &mut client.out);
        let replied = produce.header.reply(&mut client.out, |out| {
            produce.encode(&cx.image, &client.context.listener, out);
        });
        let time = produce.time;
        cx.spare_produce(produce);
        replied?;
        timed_work::produced(cx, client, time);
    }
    if client.produces.is_empty() && client.hold == Some(Hold::Order) {
        client.hold = None;
    }
    Ok(())
}
