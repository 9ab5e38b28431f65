//! Replies of produce requests.

use pyrklog_wire::api::key;
use pyrklog_wire::header::encode_response_header;

use crate::client::Client;
use crate::context::{Context, borrow_memory};
use crate::outcome::{Close, Hold};

/// Moves finished produce answers to the output, in order.
///
/// # Errors
/// A reply that the protocol cannot carry.
pub fn send_done(cx: &mut Context, client: &mut Client) -> Result<(), Close> {
    while let Some(produce) = client.produces.pop_done() {
        borrow_memory(cx, &mut client.out);
        let frame = client.out.begin_frame();
        let out = client.out.memory();
        encode_response_header(
            out,
            key::PRODUCE,
            produce.api_version,
            produce.correlation_id,
        );
        produce.encode(&cx.image, &client.context.listener, out);
        let ended = client.out.end_frame(frame);
        cx.spare_produce(produce);
        ended?;
    }
    if client.produces.is_empty() && client.hold == Some(Hold::Order) {
        client.hold = None;
    }
    Ok(())
}
