//! The five requests that the generator sends, each in one fixed version, and their replies.
//!
//! Versions are the newest that Apache Kafka 3.9 clients use, so that brokers run the code that
//! current clients make them run. Frames are built once and sent many times.

use crate::error::{Failure, Result};
use pyrklog_wire::{ErrorCode, Reader, Writer};

const PRODUCE: (i16, i16) = (0, 11);
const FETCH: (i16, i16) = (1, 17);
const LIST_OFFSETS: (i16, i16) = (2, 7);
const METADATA: (i16, i16) = (3, 12);

/// What a partition answers while it is being created or moved.
const PASSING: [ErrorCode; 3] = [
    ErrorCode::UNKNOWN_TOPIC_OR_PARTITION,
    ErrorCode::LEADER_NOT_AVAILABLE,
    ErrorCode::NOT_LEADER_OR_FOLLOWER,
];

/// A topic as Metadata describes it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Topic {
    /// Name.
    pub name: String,
    /// Topic id.
    pub id: [u8; 16],
    /// (partition index, address of its leader), by index.
    pub partitions: Vec<(i32, String)>,
}

const CLIENT_ID: &str = "pyrklog-loadgen";

/// Builds one frame: length, request header v2, and what `body` appends (all versions used here
/// are flexible).
fn frame(
    (api_key, version): (i16, i16),
    correlation_id: i32,
    body: impl FnOnce(&mut Writer<'_>),
) -> Vec<u8> {
    let mut out = vec![0; 4];
    let mut writer = Writer::new(&mut out, true);
    writer.i16(api_key);
    writer.i16(version);
    writer.i32(correlation_id);
    writer.classic_nullable_string(Some(CLIENT_ID));
    writer.no_tags();
    body(&mut writer);
    writer.no_tags();
    let length = (out.len() - 4) as i32;
    out[..4].copy_from_slice(&length.to_be_bytes());
    out
}

/// Begins to read a reply: skips its header, of which the caller has checked the correlation id.
fn reply(frame: &[u8]) -> Result<Reader<'_>> {
    let mut reader = Reader::new(frame, true);
    reader.i32()?;
    reader.skip_tags()?;
    Ok(reader)
}

/// Asks for one topic, without creating it.
pub fn metadata_request(topic: &str) -> Vec<u8> {
    frame(METADATA, 0, |writer| {
        writer.array(&[topic], |writer, topic| {
            writer.uuid(&[0; 16]);
            writer.string(topic);
            writer.no_tags();
        });
        writer.bool(false); // no auto-creation
        writer.bool(false); // no authorized operations
    })
}

/// Reads the reply to [`metadata_request`], from the correlation id on.
///
/// # Errors
/// A missing topic, a partition without a leader, bytes that are no such reply.
pub fn metadata_reply(frame: &[u8]) -> Result<Topic> {
    let mut reader = reply(frame)?;
    reader.i32()?; // throttle time
    let brokers = reader.array(9, |reader| {
        let id = reader.i32()?;
        let host = reader.string()?;
        let port = reader.i32()?;
        reader.nullable_string()?; // rack
        reader.skip_tags()?;
        Ok((id, format!("{host}:{port}")))
    })?;
    reader.nullable_string()?; // cluster id
    reader.i32()?; // controller
    if reader.array_len(2)? != 1 {
        return Err(Failure::Protocol(
            "Metadata did not answer for the one topic asked".into(),
        ));
    }
    let error = ErrorCode(reader.i16()?);
    let name = reader.nullable_string()?.unwrap_or_default().to_owned();
    if !error.is_none() {
        return Err(Failure::Refused(format!(
            "topic {name:?}: {error}; create it first"
        )));
    }
    let id = reader.uuid()?;
    reader.bool()?; // internal
    let led = reader.array(15, |reader| {
        reader.i16()?; // error: shown by the missing leader
        let index = reader.i32()?;
        let leader = reader.i32()?;
        reader.i32()?; // leader epoch
        for _ in 0..3 {
            let replicas = reader.array_len(4)?;
            reader.take(4 * replicas)?;
        }
        reader.skip_tags()?;
        Ok((index, leader))
    })?;
    let mut partitions = Vec::with_capacity(led.len());
    for (index, leader) in led {
        match brokers.iter().find(|(id, _)| *id == leader) {
            Some((_, address)) => partitions.push((index, address.clone())),
            None => {
                let text = format!("partition {index} of {name:?} has no leader at present");
                return Err(Failure::NotYet(text));
            }
        }
    }
    partitions.sort();
    Ok(Topic {
        name,
        id,
        partitions,
    })
}

/// Asks for the offset at `timestamp` (-1 latest, -2 earliest) of `partitions`.
pub fn list_offsets_request(topic: &str, partitions: &[i32], timestamp: i64) -> Vec<u8> {
    frame(LIST_OFFSETS, 0, |writer| {
        writer.i32(-1); // a client, not a replica
        writer.i8(0); // read uncommitted
        writer.array_len(1);
        writer.string(topic);
        writer.array(partitions, |writer, partition| {
            writer.i32(*partition);
            writer.i32(-1); // leader epoch unknown
            writer.i64(timestamp);
            writer.no_tags();
        });
        writer.no_tags();
    })
}

/// (partition, offset) of the reply to [`list_offsets_request`].
///
/// # Errors
/// An error code for a partition, bytes that are no such reply.
pub fn list_offsets_reply(frame: &[u8]) -> Result<Vec<(i32, i64)>> {
    let mut reader = reply(frame)?;
    reader.i32()?; // throttle time
    let mut offsets = Vec::new();
    for _ in 0..reader.array_len(3)? {
        reader.string()?;
        for _ in 0..reader.array_len(27)? {
            let index = reader.i32()?;
            let error = ErrorCode(reader.i16()?);
            if !error.is_none() {
                let text = format!("offsets of partition {index}: {error}");
                return Err(match PASSING.contains(&error) {
                    true => Failure::NotYet(text),
                    false => Failure::Refused(text),
                });
            }
            reader.i64()?; // timestamp
            offsets.push((index, reader.i64()?));
            reader.i32()?; // leader epoch
            reader.skip_tags()?;
        }
        reader.skip_tags()?;
    }
    Ok(offsets)
}

/// A Produce frame of one batch for one partition, and where the batch begins in it.
pub fn produce_request(
    correlation_id: i32,
    (topic, partition): (&str, i32),
    acks: i16,
    timeout_ms: i32,
    batch: &[u8],
) -> (Vec<u8>, usize) {
    let mut batch_at = 0;
    let bytes = frame(PRODUCE, correlation_id, |writer| {
        writer.nullable_string(None); // no transactional id
        writer.i16(acks);
        writer.i32(timeout_ms);
        writer.array_len(1);
        writer.string(topic);
        writer.array_len(1);
        writer.i32(partition);
        writer.array_len(batch.len());
        batch_at = writer.position();
        writer.raw(batch);
        writer.no_tags();
        writer.no_tags();
    });
    (bytes, batch_at)
}

/// The error code of the one partition of a Produce reply; `frame` begins at the correlation id.
///
/// # Errors
/// Bytes that are no such reply.
pub fn produce_reply(frame: &[u8]) -> Result<ErrorCode> {
    let mut reader = reply(frame)?;
    let topics = reader.array_len(3)?;
    reader.string()?;
    let partitions = reader.array_len(33)?;
    if (topics, partitions) != (1, 1) {
        return Err(Failure::Protocol(
            "Produce did not answer for the one partition sent".into(),
        ));
    }
    reader.i32()?; // partition
    Ok(ErrorCode(reader.i16()?))
}

/// What a fetch asks of the broker, apart from positions.
#[derive(Clone, Copy, Debug)]
pub struct FetchLimits {
    /// How long to wait for data.
    pub max_wait_ms: i32,
    /// Most bytes of a partition.
    pub partition_bytes: i32,
}

/// A Fetch frame for several partitions (no fetch session), and where each one's offset stands.
pub fn fetch_request(
    correlation_id: i32,
    topic: &Topic,
    positions: &[(i32, i64)],
    limits: FetchLimits,
) -> (Vec<u8>, Vec<usize>) {
    let mut offsets_at = Vec::with_capacity(positions.len());
    let bytes = frame(FETCH, correlation_id, |writer| {
        writer.i32(limits.max_wait_ms);
        writer.i32(1); // min bytes
        writer.i32(i32::MAX); // max bytes of the reply
        writer.i8(0); // read uncommitted
        writer.i32(0); // no session
        writer.i32(-1);
        writer.array_len(1);
        writer.uuid(&topic.id);
        writer.array(positions, |writer, (partition, offset)| {
            writer.i32(*partition);
            writer.i32(-1); // leader epoch unknown
            offsets_at.push(writer.position());
            writer.i64(*offset);
            writer.i32(-1); // last fetched epoch: followers only
            writer.i64(-1); // log start offset: followers only
            writer.i32(limits.partition_bytes);
            writer.no_tags();
        });
        writer.no_tags();
        writer.array_len(0); // no forgotten topics
        writer.string(""); // no rack
    });
    (bytes, offsets_at)
}

/// One partition of a Fetch reply.
#[derive(Debug)]
pub struct FetchedPartition<'a> {
    /// Partition index.
    pub partition: i32,
    /// 0 = none.
    pub error: ErrorCode,
    /// Visible end of the partition.
    pub high_watermark: i64,
    /// Bytes of record batches, the last perhaps cut off.
    pub records: &'a [u8],
}

/// Hands every partition of a Fetch reply to `each`; `frame` begins at the correlation id.
///
/// # Errors
/// An error of the whole reply, bytes that are no such reply, and what `each` returns.
pub fn fetch_reply(
    frame: &[u8],
    mut each: impl FnMut(FetchedPartition<'_>) -> Result<()>,
) -> Result<()> {
    let mut reader = reply(frame)?;
    reader.i32()?; // throttle time
    let error = ErrorCode(reader.i16()?);
    if !error.is_none() {
        return Err(Failure::Refused(format!("Fetch: {error}")));
    }
    reader.i32()?; // session
    for _ in 0..reader.array_len(18)? {
        reader.uuid()?;
        for _ in 0..reader.array_len(37)? {
            let partition = reader.i32()?;
            let error = ErrorCode(reader.i16()?);
            let high_watermark = reader.i64()?;
            reader.i64()?; // last stable offset
            reader.i64()?; // log start offset
            for _ in 0..reader.nullable_array_len(17)?.unwrap_or(0) {
                reader.take(16)?; // aborted transaction
                reader.skip_tags()?;
            }
            reader.i32()?; // preferred read replica
            let records = reader.nullable_bytes()?.unwrap_or_default();
            reader.skip_tags()?;
            each(FetchedPartition {
                partition,
                error,
                high_watermark,
                records,
            })?;
        }
        reader.skip_tags()?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn bytes(write: impl FnOnce(&mut Writer<'_>)) -> Vec<u8> {
        let mut out = Vec::new();
        let mut writer = Writer::new(&mut out, true);
        writer.i32(5); // correlation id
        writer.no_tags();
        write(&mut writer);
        out
    }

    #[test]
    fn a_batch_is_where_it_is_said_to_be() {
        let (frame, at) = produce_request(9, ("t", 3), 1, 30_000, b"batch");
        assert_eq!(&frame[at..at + 5], b"batch");
        assert_eq!(frame[8..12], 9_i32.to_be_bytes());
        assert_eq!(
            frame.len() - 4,
            i32::from_be_bytes(frame[..4].try_into().unwrap()) as usize
        );
    }

    #[test]
    fn fetch_offsets_are_where_they_are_said_to_be() {
        let topic = Topic {
            name: "t".into(),
            id: [7; 16],
            partitions: Vec::new(),
        };
        let limits = FetchLimits {
            max_wait_ms: 1,
            partition_bytes: 2,
        };
        let (frame, at) = fetch_request(1, &topic, &[(0, 500), (4, 600)], limits);
        assert_eq!(frame[at[0]..at[0] + 8], 500_i64.to_be_bytes());
        assert_eq!(frame[at[1]..at[1] + 8], 600_i64.to_be_bytes());
    }

    #[test]
    fn a_produce_reply_gives_the_error_code() {
        let reply = bytes(|writer| {
            writer.array_len(1);
            writer.string("t");
            writer.array_len(1);
            writer.i32(2);
            writer.i16(6);
            for _ in 0..3 {
                writer.i64(-1);
            }
            writer.array_len(0);
            writer.nullable_string(None);
            writer.no_tags();
        });
        assert_eq!(
            produce_reply(&reply).unwrap(),
            ErrorCode::NOT_LEADER_OR_FOLLOWER
        );
        for cut in 0..reply.len() - 1 {
            assert!(produce_reply(&reply[..cut]).is_err(), "cut at {cut}");
        }
    }

    #[test]
    fn a_fetch_reply_gives_its_records() {
        let reply = bytes(|writer| {
            writer.i32(0);
            writer.i16(0);
            writer.i32(0);
            writer.array_len(1);
            writer.uuid(&[7; 16]);
            writer.array_len(1);
            writer.i32(2);
            writer.i16(0);
            writer.i64(44);
            writer.i64(44);
            writer.i64(0);
            writer.nullable_len(None);
            writer.i32(-1);
            writer.bytes(b"abc");
            writer.no_tags();
            writer.no_tags();
            writer.no_tags();
        });
        let mut seen = Vec::new();
        let result = fetch_reply(&reply, |part| {
            seen.push((part.partition, part.high_watermark, part.records.to_vec()));
            Ok(())
        });
        result.unwrap();
        assert_eq!(seen, [(2, 44, b"abc".to_vec())]);
    }

    #[test]
    fn a_missing_topic_is_refused_by_name() {
        let reply = bytes(|writer| {
            writer.i32(0);
            writer.array_len(0);
            writer.nullable_string(Some("cluster"));
            writer.i32(1);
            writer.array_len(1);
            writer.i16(3);
            writer.nullable_string(Some("absent"));
        });
        let error = metadata_reply(&reply).unwrap_err().to_string();
        assert!(
            error.contains("absent") && error.contains("UNKNOWN_TOPIC_OR_PARTITION"),
            "{error}"
        );
    }
}
