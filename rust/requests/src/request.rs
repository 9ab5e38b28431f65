//! A request as its handler gets it.

use pyrklog_wire::header::RequestHeader;
use pyrklog_wire::{DecodeError, api};

use crate::client_context::ClientContext;
use crate::out_queue::OutQueue;
use crate::outcome::Close;
use crate::reply_header::ReplyHeader;

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
    /// Parses the header of a whole frame.
    ///
    /// # Errors
    /// Malformed bytes: the connection closes.
    pub fn parse(client: &'r ClientContext, frame: &'r [u8]) -> Result<Request<'r>, Close> {
        let (header, body_start) = RequestHeader::parse(frame)
            .map_err(|error| Close::Protocol(format!("request header: {error}")))?;
        Ok(Request {
            client,
            header,
            frame,
            body_start,
        })
    }

    /// The body.
    pub fn body(&self) -> &'r [u8] {
        &self.frame[self.body_start..]
    }

    /// Decodes the body.
    ///
    /// # Errors
    /// Malformed bytes: the connection closes.
    pub fn decode<T>(
        &self,
        decode: impl FnOnce(&'r [u8], i16) -> Result<T, DecodeError>,
    ) -> Result<T, Close> {
        let version = self.header.api_version;
        decode(self.body(), version).map_err(|error| {
            let name = api::lookup(self.header.api_key).map_or("", |row| row.name);
            Close::Protocol(format!("{name} v{version}: {error}"))
        })
    }

    /// Queues the reply: header, then what `encode` appends.
    ///
    /// # Errors
    /// [`Close::Protocol`] for a reply that the protocol cannot carry.
    pub fn reply(
        &self,
        out: &mut OutQueue,
        encode: impl FnOnce(&mut Vec<u8>),
    ) -> Result<(), Close> {
        ReplyHeader::of(self.header).reply(out, encode)
    }
}
