//! Heartbeat, versions 0 to 4: the request decoded in place, and the answer to it.
//!
//! Version notes: 1 throttle time; 3 static members (KIP-345); 4 flexible.

use crate::api::{self, key};
use crate::error::{DecodeError, Result};
use crate::error_code::ErrorCode;
use crate::reader::Reader;
use crate::span::Span;
use crate::writer::Writer;

const THROTTLE_SINCE: i16 = 1;
const INSTANCE_ID_SINCE: i16 = 3;
const FLEXIBLE_SINCE: i16 = 4;

/// A request; places count from the start of its body.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HeartbeatRequest {
    /// Group.
    pub group_id: Span,
    /// Generation.
    pub generation: i32,
    /// Member id.
    pub member_id: Span,
    /// Instance id of a static member (version 3 on).
    pub instance_id: Option<Span>,
}

impl HeartbeatRequest {
    /// Decodes a body; bytes after the request are ignored, as in Kafka.
    pub fn decode(body: &[u8], version: i16) -> Result<Self> {
        if !(0..=api::max_version(key::HEARTBEAT)).contains(&version) {
            return Err(DecodeError::UnsupportedVersion {
                api_key: key::HEARTBEAT,
                api_version: version,
            });
        }
        let mut reader = Reader::new(body, version >= FLEXIBLE_SINCE);
        let group_id = reader.string_span()?;
        let generation = reader.i32()?;
        let member_id = reader.string_span()?;
        let instance_id = if version >= INSTANCE_ID_SINCE {
            reader.nullable_string_span()?
        } else {
            None
        };
        reader.skip_tags()?;
        Ok(HeartbeatRequest {
            group_id,
            generation,
            member_id,
            instance_id,
        })
    }
}

/// Appends the body of an answer.
pub fn encode_answer(version: i16, error: ErrorCode, out: &mut Vec<u8>) {
    let mut writer = Writer::new(out, version >= FLEXIBLE_SINCE);
    if version >= THROTTLE_SINCE {
        writer.i32(0);
    }
    writer.i16(error.0);
    writer.no_tags();
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_version_is_read_and_answered_and_every_cut_is_an_error() {
        for version in 0..=api::max_version(key::HEARTBEAT) {
            let mut body = Vec::new();
            let mut writer = Writer::new(&mut body, version >= FLEXIBLE_SINCE);
            writer.string("group");
            writer.i32(7);
            writer.string("member");
            if version >= INSTANCE_ID_SINCE {
                writer.nullable_string(Some("static"));
            }
            writer.no_tags();
            let request = HeartbeatRequest::decode(&body, version).unwrap();
            assert_eq!(request.group_id.text(&body), "group");
            assert_eq!(request.member_id.text(&body), "member");
            assert_eq!(request.generation, 7);
            let instance = request.instance_id.map(|span| span.text(&body));
            assert_eq!(instance == Some("static"), version >= INSTANCE_ID_SINCE);
            for len in 0..body.len() {
                assert!(HeartbeatRequest::decode(&body[..len], version).is_err());
            }
            let mut answer = Vec::new();
            encode_answer(version, ErrorCode::UNKNOWN_MEMBER_ID, &mut answer);
            let wanted: &[u8] = match version {
                0 => &[0, 25],
                1..=3 => &[0, 0, 0, 0, 0, 25],
                _ => &[0, 0, 0, 0, 0, 25, 0],
            };
            assert_eq!(answer, wanted);
        }
        assert!(HeartbeatRequest::decode(&[0; 20], -1).is_err());
    }
}
