//! Heartbeat, versions 0 to 4: decodes the request in place and encodes the answer.
//!
//! Version notes: 1 throttle time; 3 static members (KIP-345); 4 flexible.
#![allow(missing_docs)] // Docs say what the protocol's own names do not.

use crate::api::{self, key};
use crate::error::Result;
use crate::error_code::ErrorCode;
use crate::membership::MembershipFields;
use crate::reader::Reader;
use crate::writer::Writer;

const THROTTLE_SINCE: i16 = 1;
const INSTANCE_ID_SINCE: i16 = 3;
const FLEXIBLE_SINCE: i16 = 4;

/// Decodes a body; later bytes are ignored, as in Kafka.
pub fn decode(body: &[u8], version: i16) -> Result<MembershipFields> {
    api::check_version(key::HEARTBEAT, 0, version)?;
    let mut reader = Reader::new(body, version >= FLEXIBLE_SINCE);
    let fields = MembershipFields::read(&mut reader, version >= INSTANCE_ID_SINCE)?;
    reader.skip_tags()?;
    Ok(fields)
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
            let asks = decode(&body, version).unwrap().of(&body);
            assert_eq!((asks.group_id, asks.member_id), ("group", "member"));
            assert_eq!(asks.generation, 7);
            let has_instance = asks.instance_id == Some("static");
            assert_eq!(has_instance, version >= INSTANCE_ID_SINCE);
            for len in 0..body.len() {
                assert!(decode(&body[..len], version).is_err());
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
        assert!(decode(&[0; 20], -1).is_err());
    }
}
