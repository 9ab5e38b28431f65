//! The header of a reply, kept while its request waits.

use pyrklog_wire::header::{RequestHeader, encode_response_header};

use crate::out_queue::OutQueue;
use crate::outcome::Close;

/// See the module.
#[derive(Clone, Copy, Debug, Default)]
pub struct ReplyHeader {
    /// API key.
    pub api_key: i16,
    /// API version.
    pub api_version: i16,
    /// Identifies the request on its connection.
    pub correlation_id: i32,
}

impl ReplyHeader {
    /// Of a request with this header.
    pub fn of(header: RequestHeader<'_>) -> ReplyHeader {
        ReplyHeader {
            api_key: header.api_key,
            api_version: header.api_version,
            correlation_id: header.correlation_id,
        }
    }

    /// Queues the reply: header, then what `encode` appends.
    ///
    /// # Errors
    /// [`Close::Protocol`] for a reply that the protocol cannot carry.
    pub fn reply(self, out: &mut OutQueue, encode: impl FnOnce(&mut Vec<u8>)) -> Result<(), Close> {
        let open = out.begin_frame();
        let memory = out.memory();
        encode_response_header(memory, self.api_key, self.api_version, self.correlation_id);
        encode(memory);
        out.end_frame(open)
    }
}
