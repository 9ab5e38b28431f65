//! OffsetCommit, versions 0 to 9: decodes the request in place and encodes the answer.
//!
//! Version notes: 0 is for offsets in ZooKeeper; 1 members, and a time for each offset, which is
//! not used; 2 to 4 have a time to live; 3 throttle time; 6 leader epochs (KIP-320); 7 static
//! members (KIP-345); 8 flexible.
#![allow(missing_docs)] // Docs say what the protocol's own names do not.

use crate::api::{self, key};
use crate::error::Result;
use crate::error_code::ErrorCode;
use crate::membership::MembershipFields;
use crate::reader::Reader;
use crate::span::Span;
use crate::writer::Writer;

const MIN_VERSION: i16 = 0;
const MEMBERS_SINCE: i16 = 1;
/// The only version with a time for each offset.
const COMMIT_TIMES: i16 = 1;
const RETENTION_SINCE: i16 = 2;
const RETENTION_UNTIL: i16 = 4;
const THROTTLE_SINCE: i16 = 3;
const LEADER_EPOCH_SINCE: i16 = 6;
const INSTANCE_ID_SINCE: i16 = 7;
const FLEXIBLE_SINCE: i16 = 8;

/// No time to live: the broker decides.
pub const NO_RETENTION: i64 = -1;

/// A request; places count from the start of its body.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OffsetCommitRequest {
    /// Who commits.
    pub membership: MembershipFields,
    /// Time to live in milliseconds, or [`NO_RETENTION`] (versions 2 to 4).
    pub retention_ms: i64,
    pub topics: Vec<OffsetCommitTopic>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OffsetCommitTopic {
    pub name: Span,
    pub partitions: Vec<OffsetCommitPartition>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OffsetCommitPartition {
    pub index: i32,
    /// The offset to keep.
    pub offset: i64,
    /// Leader epoch of the last consumed record, -1 unknown (version 6 on).
    pub leader_epoch: i32,
    /// The client's own note; null is as good as empty.
    pub metadata: Option<Span>,
}

impl OffsetCommitRequest {
    /// Decodes a body; later bytes are ignored, as in Kafka.
    pub fn decode(body: &[u8], version: i16) -> Result<Self> {
        api::check_version(key::OFFSET_COMMIT, MIN_VERSION, version)?;
        let mut reader = Reader::of_request(body, 0, version >= FLEXIBLE_SINCE);
        let has_instance_id = version >= INSTANCE_ID_SINCE;
        let membership = match version >= MEMBERS_SINCE {
            true => MembershipFields::read(&mut reader, has_instance_id)?,
            false => MembershipFields::read_group(&mut reader)?,
        };
        let retention_ms = if has_retention(version) {
            reader.i64()?
        } else {
            NO_RETENTION
        };
        let topics = reader.array(3, |reader| {
            let name = reader.string_span()?;
            let partitions = reader.array(13, |reader| partition(reader, version))?;
            reader.skip_tags()?;
            Ok(OffsetCommitTopic { name, partitions })
        })?;
        reader.skip_tags()?;
        Ok(OffsetCommitRequest {
            membership,
            retention_ms,
            topics,
        })
    }

    /// All partitions in order, each with its topic.
    pub fn partitions(&self) -> impl Iterator<Item = (Span, &OffsetCommitPartition)> {
        self.topics.iter().flat_map(|topic| {
            let with_topic = |partition| (topic.name, partition);
            topic.partitions.iter().map(with_topic)
        })
    }

    /// Appends an answer with the same code for each partition. `body` is the request's.
    pub fn encode_answer(&self, body: &[u8], version: i16, error: ErrorCode, out: &mut Vec<u8>) {
        let mut writer = Writer::new(out, version >= FLEXIBLE_SINCE);
        if version >= THROTTLE_SINCE {
            writer.i32(0);
        }
        writer.array(&self.topics, |writer, topic| {
            writer.string(topic.name.text(body));
            writer.array(&topic.partitions, |writer, partition| {
                writer.i32(partition.index);
                writer.i16(error.0);
                writer.no_tags();
            });
            writer.no_tags();
        });
        writer.no_tags();
    }
}

fn has_retention(version: i16) -> bool {
    (RETENTION_SINCE..=RETENTION_UNTIL).contains(&version)
}

fn partition(reader: &mut Reader<'_>, version: i16) -> Result<OffsetCommitPartition> {
    let index = reader.i32()?;
    let offset = reader.i64()?;
    let has_epoch = version >= LEADER_EPOCH_SINCE;
    let leader_epoch = if has_epoch { reader.i32()? } else { -1 };
    if version == COMMIT_TIMES {
        reader.i64()?;
    }
    let metadata = reader.nullable_string_span()?;
    reader.skip_tags()?;
    Ok(OffsetCommitPartition {
        index,
        offset,
        leader_epoch,
        metadata,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn encode(version: i16) -> Vec<u8> {
        let mut out = Vec::new();
        let mut writer = Writer::new(&mut out, version >= FLEXIBLE_SINCE);
        writer.string("group");
        if version >= MEMBERS_SINCE {
            writer.i32(7);
            writer.string("member");
        }
        if version >= INSTANCE_ID_SINCE {
            writer.nullable_string(Some("static"));
        }
        if has_retention(version) {
            writer.i64(60_000);
        }
        writer.array(&["a", "b"], |writer, topic| {
            writer.string(topic);
            writer.array(&[0, 5], |writer, index| {
                writer.i32(*index);
                writer.i64(100 + i64::from(*index));
                if version >= LEADER_EPOCH_SINCE {
                    writer.i32(3);
                }
                if version == COMMIT_TIMES {
                    writer.i64(1_500_000_000_000);
                }
                writer.nullable_string((*index > 0).then_some("note"));
                writer.no_tags();
            });
            writer.no_tags();
        });
        writer.no_tags();
        out
    }

    #[test]
    fn every_version_is_read_and_answered() {
        for version in MIN_VERSION..=api::max_version(key::OFFSET_COMMIT) {
            let body = encode(version);
            let request = OffsetCommitRequest::decode(&body, version).unwrap();
            let asks = request.membership.of(&body);
            let (member_id, generation) = match version {
                0 => ("", -1),
                _ => ("member", 7),
            };
            assert_eq!((asks.group_id, asks.member_id), ("group", member_id));
            assert_eq!(asks.generation, generation);
            let has_instance = asks.instance_id == Some("static");
            assert_eq!(has_instance, version >= INSTANCE_ID_SINCE);
            assert_eq!(request.retention_ms == 60_000, has_retention(version));
            let found: Vec<_> = request
                .partitions()
                .map(|(topic, one)| {
                    let note = one.metadata.map(|span| span.text(&body));
                    (topic.text(&body), one.index, one.offset, note)
                })
                .collect();
            let note = Some("note");
            let wanted = [
                ("a", 0, 100, None),
                ("a", 5, 105, note),
                ("b", 0, 100, None),
                ("b", 5, 105, note),
            ];
            assert_eq!(found, wanted);

            let mut answer = Vec::new();
            request.encode_answer(&body, version, ErrorCode::NOT_COORDINATOR, &mut answer);
            let mut reader = Reader::new(&answer, version >= FLEXIBLE_SINCE);
            if version >= THROTTLE_SINCE {
                assert_eq!(reader.i32(), Ok(0));
            }
            let topics = reader.array(3, |reader| {
                let name = reader.string()?;
                let codes = reader.array(6, |reader| {
                    let code = (reader.i32()?, reader.i16()?);
                    reader.skip_tags()?;
                    Ok(code)
                })?;
                reader.skip_tags()?;
                Ok((name, codes))
            });
            let codes = vec![(0, 16), (5, 16)];
            assert_eq!(topics, Ok(vec![("a", codes.clone()), ("b", codes)]));
            reader.skip_tags().unwrap();
            assert_eq!(reader.expect_end(), Ok(()));
        }
    }

    #[test]
    fn every_cut_is_an_error() {
        for version in MIN_VERSION..=api::max_version(key::OFFSET_COMMIT) {
            let body = encode(version);
            for len in 0..body.len() {
                assert!(OffsetCommitRequest::decode(&body[..len], version).is_err());
            }
        }
        assert!(OffsetCommitRequest::decode(&encode(2), -1).is_err());
    }
}
