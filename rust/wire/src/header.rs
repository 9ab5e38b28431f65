//! Request and response headers.
//!
//! ```text
//! request   api key i16, api version i16, correlation id i32, client id classic nullable string,
//!           tagged fields (header version 2, flexible API versions)
//! response  correlation id i32, tagged fields (header version 1, flexible but for ApiVersions)
//! ```
//! ControlledShutdown version 0 alone has a request header without a client id (header version 0).
#![allow(missing_docs)] // Docs say what the protocol's own names do not.

use crate::api;
use crate::error::Result;
use crate::frame::{self, FrameTooLong};
use crate::reader::Reader;
use crate::writer::Writer;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RequestHeader<'a> {
    pub api_key: i16,
    /// API version, unchecked.
    pub api_version: i16,
    pub correlation_id: i32,
    /// What the client calls itself.
    pub client_id: Option<&'a str>,
}

impl<'a> RequestHeader<'a> {
    /// Parses the header at the start of `frame`, which follows the frame's length. Returns it and
    /// the position of the body, which for an unknown API or version is that behind the client id.
    ///
    /// # Errors
    /// Malformed bytes. API and version are not checked.
    pub fn parse(frame: &'a [u8]) -> Result<(RequestHeader<'a>, usize)> {
        let mut reader = Reader::new(frame, false);
        let api_key = reader.i16()?;
        let api_version = reader.i16()?;
        let correlation_id = reader.i32()?;
        if api_key == api::key::CONTROLLED_SHUTDOWN && api_version == 0 {
            let header = RequestHeader {
                api_key,
                api_version,
                correlation_id,
                client_id: None,
            };
            return Ok((header, reader.position()));
        }
        let client_id = reader.classic_nullable_string()?;
        let mut position = reader.position();
        let served = api::lookup(api_key).is_some_and(|row| row.advertises(api_version));
        if served && api::is_flexible(api_key, api_version) {
            let mut tags = Reader::at(frame, position, true);
            tags.skip_tags()?;
            position = tags.position();
        }
        Ok((
            RequestHeader {
                api_key,
                api_version,
                correlation_id,
                client_id,
            },
            position,
        ))
    }

    /// Appends a whole frame with this header and the body that `body` appends.
    ///
    /// # Errors
    /// The protocol cannot carry the frame.
    pub fn encode_frame(
        &self,
        out: &mut Vec<u8>,
        body: impl FnOnce(&mut Vec<u8>),
    ) -> std::result::Result<(), FrameTooLong> {
        let start = frame::begin(out);
        self.encode(out);
        body(out);
        frame::end(out, start, 0)
    }

    /// Appends the header.
    pub fn encode(&self, out: &mut Vec<u8>) {
        let flexible = api::is_flexible(self.api_key, self.api_version);
        let mut writer = Writer::new(out, flexible);
        writer.i16(self.api_key);
        writer.i16(self.api_version);
        writer.i32(self.correlation_id);
        writer.classic_nullable_string(self.client_id);
        writer.no_tags();
    }
}

pub fn encode_response_header(
    out: &mut Vec<u8>,
    api_key: i16,
    api_version: i16,
    correlation_id: i32,
) {
    let flexible = api::response_header_is_flexible(api_key, api_version);
    let mut writer = Writer::new(out, flexible);
    writer.i32(correlation_id);
    writer.no_tags();
}

/// Parses a response's header; returns correlation id and position of the body.
pub fn parse_response_header(frame: &[u8], api_key: i16, api_version: i16) -> Result<(i32, usize)> {
    let flexible = api::response_header_is_flexible(api_key, api_version);
    let mut reader = Reader::new(frame, flexible);
    let correlation_id = reader.i32()?;
    reader.skip_tags()?;
    Ok((correlation_id, reader.position()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::api::key;
    use crate::error::DecodeError;

    fn round_trip(header: RequestHeader<'_>) -> usize {
        let mut bytes = Vec::new();
        header.encode(&mut bytes);
        let len = bytes.len();
        bytes.extend([0xaa; 3]);
        assert_eq!(RequestHeader::parse(&bytes), Ok((header, len)));
        len
    }

    #[test]
    fn classic_and_flexible_headers_differ_by_their_tags() {
        let header = RequestHeader {
            api_key: key::PRODUCE,
            api_version: 8,
            correlation_id: 7,
            client_id: Some("me"),
        };
        assert_eq!(round_trip(header), 12);
        assert_eq!(
            round_trip(RequestHeader {
                api_version: 9,
                ..header
            }),
            13
        );
        assert_eq!(
            round_trip(RequestHeader {
                client_id: None,
                ..header
            }),
            10
        );
    }

    #[test]
    fn controlled_shutdown_version_0_has_no_client_id() {
        let bytes = [0, 7, 0, 0, 0, 0, 0, 5, 0, 0, 0, 1];
        let (header, position) = RequestHeader::parse(&bytes).unwrap();
        assert_eq!(
            (header.correlation_id, header.client_id, position),
            (5, None, 8)
        );
    }

    #[test]
    fn an_unknown_version_is_read_as_far_as_the_client_id() {
        let bytes = [0, 18, 0, 99, 0, 0, 0, 5, 0, 1, b'x', 0xff, 0xff];
        let (header, position) = RequestHeader::parse(&bytes).unwrap();
        assert_eq!(
            (header.api_version, header.client_id, position),
            (99, Some("x"), 11)
        );
    }

    #[test]
    fn a_cut_header_is_an_error() {
        let bytes = [0, 0, 0, 9, 0, 0, 0, 5, 0, 1, b'x', 0];
        assert!(RequestHeader::parse(&bytes).is_ok());
        for len in 0..bytes.len() {
            let parsed = RequestHeader::parse(&bytes[..len]);
            assert!(
                matches!(parsed, Err(DecodeError::Truncated { .. })),
                "{len}: {parsed:?}"
            );
        }
    }

    #[test]
    fn response_headers_round_trip() {
        for (api_key, api_version, len) in [
            (key::PRODUCE, 8, 4),
            (key::PRODUCE, 9, 5),
            (key::API_VERSIONS, 4, 4),
        ] {
            let mut bytes = Vec::new();
            encode_response_header(&mut bytes, api_key, api_version, -3);
            assert_eq!(
                parse_response_header(&bytes, api_key, api_version),
                Ok((-3, len))
            );
        }
    }
}
