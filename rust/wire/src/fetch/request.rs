//! Fetch requests.
#![allow(missing_docs)] // Docs say what the protocol's own names do not.

use super::{
    BATCHES_SINCE, DIRECTORY_SINCE, FLEXIBLE_SINCE, MAX_BYTES_SINCE, RACK_SINCE,
    REPLICA_STATE_SINCE, SESSIONS_SINCE, TOPIC_IDS_SINCE, check_version,
};
use crate::error::Result;
use crate::message::{Field, TagSince, fields};
use crate::reader::{Reader, Uuid};
use crate::span::{Span, clear_reusable};
use crate::writer::Writer;

/// A Fetch request as spans of its frame. Reuse it: [`FetchRequest::decode`] keeps its vectors'
/// memory.
#[derive(Clone, Debug, Default)]
pub struct FetchRequest {
    /// The client's cluster, if given (version 12 on).
    pub cluster_id: Option<Span>,
    /// The follower's broker id, -1 for a consumer.
    pub replica_id: i32,
    /// The follower's broker epoch, -1 unknown (version 15 on).
    pub replica_epoch: i64,
    /// How long the reply may wait for `min_bytes`, in milliseconds.
    pub max_wait_ms: i32,
    /// Bytes to wait for.
    pub min_bytes: i32,
    /// Limit of record bytes, except for a larger first batch; none below version 3.
    pub max_bytes: i32,
    /// 0 = read uncommitted, 1 = read committed (version 4 on).
    pub isolation_level: i8,
    /// Session id, 0 = none (version 7 on).
    pub session_id: i32,
    /// Session epoch, 0 = new session, -1 = no session or its end.
    pub session_epoch: i32,
    pub topics: Vec<FetchTopic>,
    /// Partitions of all topics, in order.
    pub partitions: Vec<FetchPartition>,
    /// Topics with partitions that leave the session; their first partitions are indexes of
    /// [`FetchRequest::forgotten_partitions`].
    pub forgotten: Vec<FetchTopic>,
    /// Partition indexes of all forgotten topics, in order.
    pub forgotten_partitions: Vec<i32>,
    /// The consumer's rack, empty = none (version 11 on).
    pub rack_id: Span,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FetchTopic {
    /// Name, valid UTF-8; empty from version 13 on.
    pub name: Span,
    /// Topic id; zero below version 13.
    pub id: Uuid,
    /// Index of its first partition in [`FetchRequest::partitions`].
    pub first_partition: usize,
    pub partition_count: usize,
}

fields! {
    /// A partition of a [`FetchRequest`].
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub part FetchPartition {
        pub index: i32,
        /// Leader epoch that the client knows, -1 unknown.
        pub current_leader_epoch: i32 [in 9.., else -1],
        /// First offset wanted.
        pub fetch_offset: i64,
        /// Epoch of the client's last record, -1 unknown.
        pub last_fetched_epoch: i32 [in FLEXIBLE_SINCE.., else -1],
        /// The follower's log start offset, -1 for consumers.
        pub log_start_offset: i64 [in 5.., else -1],
        /// The most bytes of this partition.
        pub max_bytes: i32,
        /// The follower's log directory, zero unknown (version 17 on).
        pub directory_id: Uuid [by TagSince<Uuid, DIRECTORY_SINCE>],
    }
}

impl FetchRequest {
    /// Decodes the request whose body starts at `body_start` of `frame`; spans count from the start
    /// of `frame`. Later bytes are ignored, as in Kafka.
    ///
    /// # Errors
    /// `UnsupportedVersion` below 0 and above 17, else malformed bytes. The content is then
    /// unspecified.
    pub fn decode(&mut self, frame: &[u8], body_start: usize, version: i16) -> Result<()> {
        check_version(version)?;
        let mut reader = Reader::of_request(frame, body_start, version >= FLEXIBLE_SINCE);
        self.replica_id = if version < REPLICA_STATE_SINCE {
            reader.i32()?
        } else {
            -1
        };
        self.replica_epoch = -1;
        self.max_wait_ms = reader.i32()?;
        self.min_bytes = reader.i32()?;
        let (has_limit, has_isolation) = (version >= MAX_BYTES_SINCE, version >= BATCHES_SINCE);
        self.max_bytes = if has_limit { reader.i32()? } else { i32::MAX };
        self.isolation_level = if has_isolation { reader.i8()? } else { 0 };
        let has_session = version >= SESSIONS_SINCE;
        self.session_id = if has_session { reader.i32()? } else { 0 };
        self.session_epoch = if has_session { reader.i32()? } else { -1 };
        decode_topics(&mut reader, version, &mut self.topics, &mut self.partitions)?;
        clear_reusable(&mut self.forgotten);
        clear_reusable(&mut self.forgotten_partitions);
        if has_session {
            let (topics, partitions) = (&mut self.forgotten, &mut self.forgotten_partitions);
            decode_topics(&mut reader, version, topics, partitions)?;
        }
        self.rack_id = match version >= RACK_SINCE {
            true => reader.string_span()?,
            false => Span::default(),
        };
        self.decode_tags(&mut reader, version)
    }

    fn decode_tags(&mut self, reader: &mut Reader<'_>, version: i16) -> Result<()> {
        self.cluster_id = None;
        reader.tags(|tag, field| match tag {
            0 => {
                self.cluster_id = field.nullable_string_span()?;
                Ok(true)
            }
            1 if version >= REPLICA_STATE_SINCE => {
                self.replica_id = field.i32()?;
                self.replica_epoch = field.i64()?;
                field.skip_tags()?;
                Ok(true)
            }
            _ => Ok(false),
        })
    }

    pub fn partitions_of(&self, topic: &FetchTopic) -> &[FetchPartition] {
        &self.partitions[topic.first_partition..][..topic.partition_count]
    }

    pub fn forgotten_of(&self, topic: &FetchTopic) -> &[i32] {
        &self.forgotten_partitions[topic.first_partition..][..topic.partition_count]
    }
}

/// Decodes topics, each with its partitions or their indexes.
#[inline]
fn decode_topics<'a, P: Field<'a, Value = P>>(
    reader: &mut Reader<'a>,
    version: i16,
    topics: &mut Vec<FetchTopic>,
    partitions: &mut Vec<P>,
) -> Result<()> {
    clear_reusable(topics);
    clear_reusable(partitions);
    let min_bytes = P::min_bytes(version, reader.is_flexible());
    for _ in 0..reader.array_len(3)? {
        let (name, id) = if version >= TOPIC_IDS_SINCE {
            (Span::default(), reader.uuid()?)
        } else {
            (reader.string_span()?, Uuid::default())
        };
        let partition_count = reader.array_len(min_bytes)?;
        let first_partition = partitions.len();
        for _ in 0..partition_count {
            partitions.push(P::read(reader, version)?);
        }
        reader.skip_tags()?;
        topics.push(FetchTopic {
            name,
            id,
            first_partition,
            partition_count,
        });
    }
    Ok(())
}

/// A request to encode (load generator, followers, tests). Fields as in [`FetchRequest`].
#[derive(Clone, Debug)]
pub struct FetchRequestToWrite<'a> {
    /// Cluster id, version 12 on.
    pub cluster_id: Option<&'a str>,
    /// -1 for a consumer.
    pub replica_id: i32,
    /// -1 for a consumer; version 15 on.
    pub replica_epoch: i64,
    pub max_wait_ms: i32,
    /// Bytes to wait for.
    pub min_bytes: i32,
    pub max_bytes: i32,
    /// 0 = read uncommitted, 1 = read committed.
    pub isolation_level: i8,
    /// 0 = none; version 7 on.
    pub session_id: i32,
    /// -1 = no session; version 7 on.
    pub session_epoch: i32,
    pub topics: &'a [FetchTopicToWrite<'a>],
    /// Partitions to forget; version 7 on.
    pub forgotten: &'a [FetchTopicToWrite<'a, i32>],
    /// Empty = none; version 11 on.
    pub rack_id: &'a str,
}

/// A topic with its partitions, or the indexes of those to forget.
#[derive(Clone, Copy, Debug)]
pub struct FetchTopicToWrite<'a, P = FetchPartition> {
    /// Name, written up to version 12.
    pub name: &'a str,
    /// Topic id, written from version 13 on.
    pub id: Uuid,
    pub partitions: &'a [P],
}

impl<P: for<'p> Field<'p, Value = P>> FetchTopicToWrite<'_, P> {
    fn write(&self, writer: &mut Writer<'_>, version: i16) {
        if version >= TOPIC_IDS_SINCE {
            writer.uuid(self.id);
        } else {
            writer.string(self.name);
        }
        writer.array(self.partitions, |writer, partition| {
            P::write(partition, writer, version);
        });
        writer.no_tags();
    }
}

impl Default for FetchRequestToWrite<'_> {
    /// A consumer's request for nothing, without a session.
    fn default() -> Self {
        FetchRequestToWrite {
            cluster_id: None,
            replica_id: -1,
            replica_epoch: -1,
            max_wait_ms: 500,
            min_bytes: 1,
            max_bytes: i32::MAX,
            isolation_level: 0,
            session_id: 0,
            session_epoch: -1,
            topics: &[],
            forgotten: &[],
            rack_id: "",
        }
    }
}

impl FetchRequestToWrite<'_> {
    /// Appends the body for a version of 0 to 17; others' fields are omitted.
    pub fn encode(&self, out: &mut Vec<u8>, version: i16) {
        let mut writer = Writer::new(out, version >= FLEXIBLE_SINCE);
        if version < REPLICA_STATE_SINCE {
            writer.i32(self.replica_id);
        }
        writer.i32(self.max_wait_ms);
        writer.i32(self.min_bytes);
        if version >= MAX_BYTES_SINCE {
            writer.i32(self.max_bytes);
        }
        if version >= BATCHES_SINCE {
            writer.i8(self.isolation_level);
        }
        if version >= SESSIONS_SINCE {
            writer.i32(self.session_id);
            writer.i32(self.session_epoch);
        }
        writer.array(self.topics, |writer, topic| topic.write(writer, version));
        if version >= SESSIONS_SINCE {
            writer.array(self.forgotten, |writer, topic| topic.write(writer, version));
        }
        if version >= RACK_SINCE {
            writer.string(self.rack_id);
        }
        self.encode_tags(&mut writer, version);
    }

    fn encode_tags(&self, writer: &mut Writer<'_>, version: i16) {
        let has_cluster = version >= FLEXIBLE_SINCE && self.cluster_id.is_some();
        let has_state =
            version >= REPLICA_STATE_SINCE && (self.replica_id != -1 || self.replica_epoch != -1);
        writer.tag_count(u32::from(has_cluster) + u32::from(has_state));
        if has_cluster {
            writer.tagged_field(0, |field| field.nullable_string(self.cluster_id));
        }
        if has_state {
            writer.tagged_field(1, |field| {
                field.i32(self.replica_id);
                field.i64(self.replica_epoch);
                field.no_tags();
            });
        }
    }
}
