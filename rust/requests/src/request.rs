//! A request as its handler gets it.

use pyrklog_wire::header::{RequestHeader, encode_response_header};

use crate::client_context::ClientContext;
use crate::out_queue::OutQueue;
use crate::outcome::Close;

/// See the module.
#[derive(Clone, Copy, Debug)]
pub struct Request<'r> {
    /// The client.
    pub client: &'r ClientContext,
    /// Its header.
    pub header: RequestHeader<'r>,
    /// The frame without its length.
    pub frame: &'r [u8],
    /// Where the body starts in the frame.
    pub body_start: usize,
}

impl<'r> Request<'r> {
    /// The body.
    pub fn body(&self) -> &'r [u8] {
        &self.frame[self.body_start..]
    }

    /// Queues the reply: header, then what `encode` appends.
    ///
    /// # Errors
    /// The error of `encode`, or [`Close::Protocol`] for a reply that the protocol cannot carry.
    pub fn reply(
        &self,
        out: &mut OutQueue,
        encode: impl FnOnce(&mut Vec<u8>) -> Result<(), Close>,
    ) -> Result<(), Close> {
        let open = out.begin_frame();
        let RequestHeader {
            api_key,
            api_version,
            correlation_id,
            ..
        } = self.header;
        encode_response_header(out.memory(), api_key, api_version, correlation_id);
        match encode(out.memory()) {
            Ok(()) => out.end_frame(open),
            Err(close) => {
                out.drop_frame(open);
                Err(close)
            }
        }
    }
}
