//! The generator's requests for records, each in one fixed version, and their replies.
//!
//! Versions are the newest that Apache Kafka 3.9 clients use, so that brokers run the same code as
//! for them; Produce of transaction version 2 is Kafka 4's. Replies begin with the correlation id.

use crate::error::{Failure, Result};
use pyrklog_wire::api::key;
use pyrklog_wire::fetch::{FetchPartition, FetchRequestToWrite, FetchResponse, FetchTopicToWrite};
use pyrklog_wire::header::parse_response_header;
use pyrklog_wire::list_offsets::{
    ListOffsetsPartition, ListOffsetsRequest, ListOffsetsResponse, ListOffsetsTopic,
};
use pyrklog_wire::metadata::{MetadataRequest, MetadataRequestTopic, MetadataResponse};
use pyrklog_wire::produce::{ProduceRequest, ProduceResponse, TopicToProduce, encode_request};
use pyrklog_wire::{ErrorCode, RequestHeader, Span, Uuid};

/// API key and version.
pub(crate) type Api = (i16, i16);

/// Produce of Kafka 3.9's clients.
pub const PRODUCE: i16 = 11;
/// The same format; enrolls its partitions in the transaction (KIP-890 part 2).
pub const PRODUCE_ENROLLS: i16 = 12;
/// Of Kafka 0.10's clients, with message sets.
pub const PRODUCE_OLD: i16 = 2;
const FETCH: i16 = 17;
/// Of Kafka 0.10's clients, which get message sets.
const FETCH_OLD: i16 = 3;
const LIST_OFFSETS: Api = (key::LIST_OFFSETS, 7);
const METADATA: Api = (key::METADATA, 12);
const CLIENT_ID: &str = "pyrklog-loadgen";

/// Errors of a partition that is being created or moved.
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
    pub id: Uuid,
    /// (partition index, address of its leader), by index.
    pub partitions: Vec<(i32, String)>,
}

/// Writes one frame, replacing what `out` holds.
pub(crate) fn write_frame(
    out: &mut Vec<u8>,
    (api_key, api_version): Api,
    correlation_id: i32,
    body: impl FnOnce(&mut Vec<u8>, i16),
) {
    out.clear();
    let header = RequestHeader {
        api_key,
        api_version,
        correlation_id,
        client_id: Some(CLIENT_ID),
    };
    header
        .encode_frame(out, |out| body(out, api_version))
        .expect("the options keep requests far below 2 GiB");
}

/// The correlation id and the body of a reply.
pub(crate) fn open(frame: &[u8], (api_key, version): Api) -> Result<(i32, &[u8])> {
    let (correlation_id, body_at) = parse_response_header(frame, api_key, version)?;
    Ok((correlation_id, &frame[body_at..]))
}

/// Asks for one topic, without creating it.
pub fn metadata_request(topic: &str) -> Vec<u8> {
    let mut out = Vec::new();
    let request = MetadataRequest {
        topics: Some(vec![MetadataRequestTopic {
            id: Uuid::default(),
            name: Some(topic),
        }]),
        allow_auto_topic_creation: false,
        include_cluster_authorized_operations: false,
        include_topic_authorized_operations: false,
    };
    write_frame(&mut out, METADATA, 0, |out, version| {
        request.encode(out, version)
    });
    out
}

/// Reads the reply to [`metadata_request`].
///
/// # Errors
/// A missing topic, a partition without a leader, an invalid reply.
pub fn metadata_reply(frame: &[u8]) -> Result<Topic> {
    let (_, body) = open(frame, METADATA)?;
    let reply = MetadataResponse::decode(body, METADATA.1)?;
    let [topic] = reply.topics.as_slice() else {
        return Err(Failure::Protocol(
            "Metadata did not answer for the one topic asked".into(),
        ));
    };
    let name = topic.name.unwrap_or_default().to_owned();
    if !topic.error_code.is_none() {
        let text = format!("topic {name:?}: {}; create it first", topic.error_code);
        return Err(Failure::Refused(text));
    }
    let mut partitions = Vec::with_capacity(topic.partitions.len());
    for partition in &topic.partitions {
        let mut brokers = reply.head.brokers.iter();
        let Some(leader) = brokers.find(|broker| broker.node_id == partition.leader_id) else {
            let text = format!("partition {} of {name:?} has no leader", partition.index);
            return Err(Failure::NotYet(text));
        };
        partitions.push((partition.index, format!("{}:{}", leader.host, leader.port)));
    }
    partitions.sort();
    Ok(Topic {
        name,
        id: topic.id,
        partitions,
    })
}

/// Asks for the offset at `timestamp` (-1 latest, -2 earliest) of `partitions`.
pub fn list_offsets_request(topic: &str, partitions: &[i32], timestamp: i64) -> Vec<u8> {
    let each = partitions.iter();
    let partitions = each
        .map(|&index| ListOffsetsPartition {
            index,
            current_leader_epoch: -1,
            timestamp,
            max_offsets: 1,
        })
        .collect();
    let request = ListOffsetsRequest {
        replica_id: -1,
        isolation_level: 0,
        topics: vec![ListOffsetsTopic {
            name: topic,
            partitions,
        }],
    };
    let mut out = Vec::new();
    write_frame(&mut out, LIST_OFFSETS, 0, |out, version| {
        request.encode(out, version)
    });
    out
}

/// (partition, offset) of the reply to [`list_offsets_request`].
///
/// # Errors
/// An error code for a partition, an invalid reply.
pub fn list_offsets_reply(frame: &[u8]) -> Result<Vec<(i32, i64)>> {
    let check = |(index, offset, code): (i32, i64, ErrorCode)| {
        if code.is_none() {
            return Ok((index, offset));
        }
        let text = format!("offsets of partition {index}: {code}");
        Err(match PASSING.contains(&code) {
            true => Failure::NotYet(text),
            false => Failure::Refused(text),
        })
    };
    list_offsets_each(frame)?.into_iter().map(check).collect()
}

/// (partition, offset, error code) of the reply to [`list_offsets_request`].
///
/// # Errors
/// An invalid reply.
pub fn list_offsets_each(frame: &[u8]) -> Result<Vec<(i32, i64, ErrorCode)>> {
    let (_, body) = open(frame, LIST_OFFSETS)?;
    let reply = ListOffsetsResponse::decode(body, LIST_OFFSETS.1)?;
    let partitions = reply.topics.iter().flat_map(|topic| &topic.partitions);
    Ok(partitions
        .map(|partition| (partition.index, partition.offset, partition.error_code))
        .collect())
}

/// What Produce requests say beside their batch.
#[derive(Clone, Copy, Debug)]
pub struct ProduceTerms<'a> {
    /// 0, 1 or -1.
    pub acks: i16,
    /// How long the broker may wait for replicas.
    pub timeout_ms: i32,
    /// Of a transaction's batches.
    pub transactional_id: Option<&'a str>,
    /// [`PRODUCE`], [`PRODUCE_ENROLLS`] or [`PRODUCE_OLD`].
    pub version: i16,
}

impl ProduceTerms<'_> {
    /// Outside of transactions.
    pub fn plain(acks: i16, timeout_ms: i32) -> Self {
        Self {
            acks,
            timeout_ms,
            transactional_id: None,
            version: PRODUCE,
        }
    }
}

/// A Produce frame of one batch for one partition, and the batch's place in it.
///
/// # Errors
/// None for a topic's name and a batch within the protocol's limits.
pub fn produce_request(
    correlation_id: i32,
    (topic, partition): (&str, i32),
    terms: &ProduceTerms<'_>,
    batch: &[u8],
) -> Result<(Vec<u8>, Span)> {
    let mut out = Vec::new();
    let mut body_at = 0;
    let version = terms.version;
    write_frame(
        &mut out,
        (key::PRODUCE, version),
        correlation_id,
        |out, version| {
            body_at = out.len();
            let partitions = [(partition, Some(batch))];
            let topics = [TopicToProduce {
                name: topic,
                partitions: &partitions,
            }];
            let (id, acks, timeout_ms) = (terms.transactional_id, terms.acks, terms.timeout_ms);
            encode_request(out, version, id, acks, timeout_ms, &topics);
        },
    );
    let mut written = ProduceRequest::default();
    written.decode(&out, body_at, version)?;
    let place = written.partitions[0].records;
    place
        .map(|place| (out, place))
        .ok_or_else(|| Failure::Protocol("a Produce request lost its batch".into()))
}

/// The correlation id and the error code of a Produce reply of one partition.
///
/// # Errors
/// An invalid reply.
pub fn produce_reply(frame: &[u8], version: i16) -> Result<(i32, ErrorCode)> {
    let (correlation_id, body) = open(frame, (key::PRODUCE, version))?;
    let reply = ProduceResponse::decode(body, version)?;
    let mut partitions = reply.topics.iter().flat_map(|topic| &topic.partitions);
    match (partitions.next(), partitions.next()) {
        (Some(partition), None) => Ok((correlation_id, partition.error_code)),
        _ => Err(Failure::Protocol(
            "Produce did not answer for the one partition sent".into(),
        )),
    }
}

/// Limits of a fetch.
#[derive(Clone, Copy, Debug)]
pub struct FetchLimits {
    /// Longest wait for data.
    pub max_wait_ms: i32,
    /// Most bytes of a partition.
    pub partition_bytes: i32,
    /// Only what transactions have committed, and the list of those that did not.
    pub read_committed: bool,
    /// Message sets, as Kafka 0.10's clients get them.
    pub is_old: bool,
}

impl FetchLimits {
    fn api(self) -> Api {
        (key::FETCH, if self.is_old { FETCH_OLD } else { FETCH })
    }
}

/// One partition of a consumer's fetch without a session.
pub fn fetch_partition(index: i32, fetch_offset: i64, limits: FetchLimits) -> FetchPartition {
    FetchPartition {
        index,
        current_leader_epoch: -1,
        fetch_offset,
        last_fetched_epoch: -1,
        log_start_offset: -1,
        max_bytes: limits.partition_bytes,
        directory_id: Uuid::default(),
    }
}

/// Writes a Fetch frame for several partitions, replacing what `out` holds.
pub fn fetch_request(
    out: &mut Vec<u8>,
    correlation_id: i32,
    topic: &Topic,
    partitions: &[FetchPartition],
    limits: FetchLimits,
) {
    let topics = [FetchTopicToWrite {
        name: &topic.name,
        id: topic.id,
        partitions,
    }];
    let request = FetchRequestToWrite {
        max_wait_ms: limits.max_wait_ms,
        isolation_level: i8::from(limits.read_committed),
        topics: &topics,
        ..FetchRequestToWrite::default()
    };
    write_frame(out, limits.api(), correlation_id, |out, version| {
        request.encode(out, version)
    });
}

/// The correlation id and the content of a Fetch reply.
///
/// # Errors
/// An error of the whole reply, an invalid reply.
pub fn fetch_reply(frame: &[u8], limits: FetchLimits) -> Result<(i32, FetchResponse<'_>)> {
    let (correlation_id, body) = open(frame, limits.api())?;
    let reply = FetchResponse::decode(body, limits.api().1)?;
    match reply.head.error_code {
        ErrorCode::NONE => Ok((correlation_id, reply)),
        code => Err(Failure::Refused(format!("Fetch: {code}"))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use pyrklog_wire::fetch::FetchRequest;
    use pyrklog_wire::header::encode_response_header;
    use pyrklog_wire::metadata::{MetadataHead, MetadataTopic};
    use pyrklog_wire::produce::{ProducePartitionResponse, ProduceTopicResponse};

    fn body_at(frame: &[u8]) -> usize {
        let announced = i32::from_be_bytes(frame[..4].try_into().unwrap());
        assert_eq!(announced as usize, frame.len() - 4);
        4 + RequestHeader::parse(&frame[4..]).unwrap().1
    }

    #[test]
    fn a_batch_is_where_it_is_said_to_be() {
        let (frame, place) =
            produce_request(9, ("t", 3), &ProduceTerms::plain(1, 30_000), b"batch").unwrap();
        assert_eq!(place.of(&frame), b"batch");
        let (header, _) = RequestHeader::parse(&frame[4..]).unwrap();
        assert_eq!(
            (header.api_key, header.api_version, header.correlation_id),
            (0, 11, 9)
        );
    }

    #[test]
    fn a_fetch_names_its_positions() {
        let topic = Topic {
            name: "t".into(),
            id: [7; 16],
            partitions: Vec::new(),
        };
        let limits = FetchLimits {
            max_wait_ms: 1,
            partition_bytes: 2,
            read_committed: true,
            is_old: false,
        };
        let positions = [
            fetch_partition(0, 500, limits),
            fetch_partition(4, 600, limits),
        ];
        let mut frame = vec![1, 2, 3];
        fetch_request(&mut frame, 1, &topic, &positions, limits);
        let mut request = FetchRequest::default();
        request.decode(&frame, body_at(&frame), FETCH).unwrap();
        assert_eq!(request.partitions, positions);
        assert_eq!((request.max_wait_ms, request.topics[0].id), (1, [7; 16]));
        assert_eq!(request.isolation_level, 1);
    }

    #[test]
    fn a_produce_reply_gives_the_error_code() {
        let mut reply = Vec::new();
        encode_response_header(&mut reply, key::PRODUCE, PRODUCE, 5);
        let failed = ProducePartitionResponse::failed(2, ErrorCode::NOT_LEADER_OR_FOLLOWER);
        let topics = vec![ProduceTopicResponse {
            name: "t",
            partitions: vec![failed],
        }];
        let response = ProduceResponse {
            topics,
            throttle_ms: 0,
            endpoints: Vec::new(),
        };
        response.encode(&mut reply, PRODUCE);
        assert_eq!(
            produce_reply(&reply, PRODUCE).unwrap(),
            (5, ErrorCode::NOT_LEADER_OR_FOLLOWER)
        );
        for cut in 0..reply.len() {
            assert!(
                produce_reply(&reply[..cut], PRODUCE).is_err(),
                "cut at {cut}"
            );
        }
    }

    #[test]
    fn a_missing_topic_is_refused_by_name() {
        let mut reply = Vec::new();
        encode_response_header(&mut reply, METADATA.0, METADATA.1, 0);
        let head = MetadataHead {
            throttle_ms: 0,
            brokers: vec![],
            cluster_id: None,
            controller_id: 1,
        };
        let topic = MetadataTopic {
            error_code: ErrorCode::UNKNOWN_TOPIC_OR_PARTITION,
            name: Some("absent"),
            id: Uuid::default(),
            is_internal: false,
            partitions: Vec::new(),
            authorized_operations: i32::MIN,
        };
        let topics = vec![topic];
        let response = MetadataResponse {
            head,
            topics,
            cluster_authorized_operations: i32::MIN,
        };
        response.encode(&mut reply, METADATA.1);
        let error = metadata_reply(&reply).unwrap_err().to_string();
        assert!(
            error.contains("absent") && error.contains("UNKNOWN_TOPIC_OR_PARTITION"),
            "{error}"
        );
    }
}
