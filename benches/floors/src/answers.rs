//! Answers to a load generator, each appended as a whole frame.

use crate::files::Ahead;
use crate::partition::Found;
use crate::relay::Relay;
use crate::store::{Store, Topic};
use pyrklog_wire::api::{key, max_version};
use pyrklog_wire::api_versions::{ApiVersion, ApiVersionsResponse, Offer};
use pyrklog_wire::fetch::{
    FetchPartitionHead, FetchPartitionTail, FetchRequest, FetchResponseHead, FetchResponseWriter,
};
use pyrklog_wire::header::encode_response_header;
use pyrklog_wire::leader::NodeEndpoint;
use pyrklog_wire::list_offsets::{
    ListOffsetsPartitionResponse, ListOffsetsRequest, ListOffsetsResponse, ListOffsetsTopicResponse,
};
use pyrklog_wire::metadata::{
    MetadataHead, MetadataPartition, MetadataRequest, MetadataResponse, MetadataTopic,
};
use pyrklog_wire::produce::{ProducePartitionResponse, ProduceRequest, ProduceResponseWriter};
use pyrklog_wire::{ErrorCode, RequestHeader, frame};
use std::io;
use std::net::SocketAddr;
use std::ops::Range;
use std::sync::Arc;

const NODE_ID: i32 = 1;
const EARLIEST: i64 = -2;
const LATEST: i64 = -1;
const INIT_PRODUCER_ID_MAX: i16 = 1;
const SPOKEN: [i16; 5] = [
    key::PRODUCE,
    key::FETCH,
    key::LIST_OFFSETS,
    key::METADATA,
    key::API_VERSIONS,
];

/// Records that belong into `out` at a position.
#[derive(Debug)]
pub struct Records {
    /// Position in `out`.
    pub at: usize,
    /// The records.
    pub found: Found,
}

fn wrong(error: impl std::fmt::Display) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, error.to_string())
}

/// One frame around the body that `body` writes.
fn answer(out: &mut Vec<u8>, request: &RequestHeader<'_>, body: impl FnOnce(&mut Vec<u8>)) {
    let start = frame::begin(out);
    let RequestHeader {
        api_key,
        api_version,
        correlation_id,
        ..
    } = *request;
    encode_response_header(out, api_key, api_version, correlation_id);
    body(out);
    frame::end(out, start, 0).expect("a short reply");
}

/// ApiVersions, for foreign producers: what is spoken here, and InitProducerId without tags.
///
/// # Errors
/// An unknown version.
pub fn api_versions(out: &mut Vec<u8>, request: &RequestHeader<'_>) -> io::Result<()> {
    let version = request.api_version;
    if version > max_version(key::API_VERSIONS) {
        return Err(wrong(format!("ApiVersions {version} is not spoken here")));
    }
    let mut response = ApiVersionsResponse::of_table(Offer::default());
    response.apis.retain(|api| SPOKEN.contains(&api.key));
    response.apis.push(ApiVersion {
        key: key::INIT_PRODUCER_ID,
        min_version: 0,
        max_version: INIT_PRODUCER_ID_MAX,
    });
    answer(out, request, |out| response.encode(out, version));
    Ok(())
}

/// InitProducerId: all get the same producer id, because nobody checks it.
///
/// # Errors
/// An unknown version.
pub fn init_producer_id(out: &mut Vec<u8>, request: &RequestHeader<'_>) -> io::Result<()> {
    if request.api_version > INIT_PRODUCER_ID_MAX {
        return Err(wrong("InitProducerId with tags is not spoken here"));
    }
    answer(out, request, |out| {
        let (throttle_ms, error_code, producer_id, epoch) = (0_i32, 0_i16, 1_i64, 0_i16);
        out.extend_from_slice(&throttle_ms.to_be_bytes());
        out.extend_from_slice(&error_code.to_be_bytes());
        out.extend_from_slice(&producer_id.to_be_bytes());
        out.extend_from_slice(&epoch.to_be_bytes());
    });
    Ok(())
}

/// Metadata: this program leads all partitions of every requested topic.
///
/// # Errors
/// An unreadable request, or a topic that cannot be created.
pub fn metadata(
    out: &mut Vec<u8>,
    request: &RequestHeader<'_>,
    body: &[u8],
    store: &Store,
    own: SocketAddr,
) -> io::Result<()> {
    let asked = MetadataRequest::decode(body, request.api_version).map_err(wrong)?;
    let host = own.ip().to_string();
    let names = asked.topics.unwrap_or_default();
    let topics: Vec<Arc<Topic>> = names
        .iter()
        .map(|topic| store.topic(topic.name.unwrap_or_default()))
        .collect::<io::Result<_>>()?;
    let response = MetadataResponse {
        head: MetadataHead {
            throttle_ms: 0,
            brokers: vec![NodeEndpoint {
                node_id: NODE_ID,
                host: &host,
                port: i32::from(own.port()),
                rack: None,
            }],
            cluster_id: None,
            controller_id: NODE_ID,
        },
        topics: topics.iter().map(|topic| described(topic)).collect(),
        cluster_authorized_operations: i32::MIN,
    };
    answer(out, request, |out| {
        response.encode(out, request.api_version)
    });
    Ok(())
}

fn described(topic: &Topic) -> MetadataTopic<'_> {
    let each = 0..topic.partitions.len() as i32;
    MetadataTopic {
        error_code: ErrorCode::NONE,
        name: Some(&topic.name),
        id: topic.id,
        is_internal: false,
        partitions: each
            .map(|index| MetadataPartition {
                error_code: ErrorCode::NONE,
                index,
                leader_id: NODE_ID,
                leader_epoch: 0,
                replicas: vec![NODE_ID].into(),
                isr: vec![NODE_ID].into(),
                offline: Vec::new().into(),
            })
            .collect(),
        authorized_operations: i32::MIN,
    }
}

/// ListOffsets: the first offset in memory, or the end of what can be fetched.
///
/// # Errors
/// An unreadable request.
pub fn list_offsets(
    out: &mut Vec<u8>,
    request: &RequestHeader<'_>,
    body: &[u8],
    store: &Store,
) -> io::Result<()> {
    let asked = ListOffsetsRequest::decode(body, request.api_version).map_err(wrong)?;
    let mut topics = Vec::new();
    for topic in &asked.topics {
        let known = store.topic(topic.name)?;
        if topic
            .partitions
            .iter()
            .any(|asked| asked.timestamp == LATEST)
        {
            // A consumer that asks for the end reads on from there.
            known.relay.get_or_init(Relay::default);
        }
        let partitions = topic.partitions.iter().map(|partition| {
            let found = usize::try_from(partition.index).ok();
            let Some(one) = found.and_then(|index| known.partitions.get(index)) else {
                let code = ErrorCode::UNKNOWN_TOPIC_OR_PARTITION;
                return ListOffsetsPartitionResponse::none(partition.index, code);
            };
            let Range { start, end } = one.offsets();
            let offset = if partition.timestamp == EARLIEST {
                start
            } else {
                end
            };
            ListOffsetsPartitionResponse {
                offset,
                ..ListOffsetsPartitionResponse::none(partition.index, ErrorCode::NONE)
            }
        });
        topics.push(ListOffsetsTopicResponse {
            name: topic.name,
            partitions: partitions.collect(),
        });
    }
    let response = ListOffsetsResponse {
        throttle_ms: 0,
        topics,
    };
    answer(out, request, |out| {
        response.encode(out, request.api_version)
    });
    Ok(())
}

/// Produce: appends each batch. `content` is the whole frame after its length; `decoded` is reused.
///
/// # Errors
/// An unreadable request.
pub fn produce(
    out: &mut Vec<u8>,
    request: &RequestHeader<'_>,
    (content, body_at): (&[u8], usize),
    store: &Store,
    decoded: &mut ProduceRequest,
    last: &mut Option<Arc<Topic>>,
) -> io::Result<()> {
    let version = request.api_version;
    decoded.decode(content, body_at, version).map_err(wrong)?;
    let start = frame::begin(out);
    encode_response_header(out, key::PRODUCE, version, request.correlation_id);
    let mut writer = ProduceResponseWriter::begin(out, version, decoded.topics.len());
    for topic in &decoded.topics {
        let name = topic.name.text(content);
        // A connection usually produces to one topic.
        let known = match last.take().filter(|topic| &*topic.name == name) {
            Some(topic) => topic,
            None => store.topic(name)?,
        };
        let partitions = decoded.partitions_of(topic);
        writer.topic(name, partitions.len());
        for partition in partitions {
            let index = usize::try_from(partition.index).ok();
            let target = index.and_then(|index| known.partitions.get(index));
            let batch = partition.records.map(|span| span.of(content));
            let base_offset = target
                .zip(batch)
                .and_then(|(target, batch)| store.append(target, batch));
            if let Some(((relay, base_offset), batch)) =
                known.relay.get().zip(base_offset).zip(batch)
            {
                relay.offer((&known.name, known.id), partition.index, base_offset, batch)?;
            }
            writer.partition(&match base_offset {
                Some(base_offset) => ProducePartitionResponse {
                    base_offset,
                    ..ProducePartitionResponse::failed(partition.index, ErrorCode::NONE)
                },
                None => {
                    ProducePartitionResponse::failed(partition.index, ErrorCode::CORRUPT_MESSAGE)
                }
            });
        }
        *last = Some(known);
    }
    writer.end(0, &[]);
    if decoded.acks == 0 {
        out.truncate(start);
    } else {
        frame::end(out, start, 0).expect("a short reply");
    }
    Ok(())
}

/// A requested topic.
#[derive(Debug)]
pub struct Asked {
    /// The topic.
    pub topic: Arc<Topic>,
    /// Partitions and offsets.
    pub positions: Vec<(usize, i64)>,
}

/// The result of a fetch.
#[derive(Debug)]
pub struct Fetched {
    /// Records to insert into the written answer.
    pub records: Vec<Records>,
    /// The request, if it is for one topic and may wait.
    pub asked: Option<Asked>,
}

/// Fetch: everything around the records, and the places of the records.
///
/// # Errors
/// An unreadable request, or an unknown topic.
pub fn fetch(
    out: &mut Vec<u8>,
    request: &RequestHeader<'_>,
    (content, body_at): (&[u8], usize),
    store: &Store,
    old: &mut Option<Ahead>,
) -> io::Result<Fetched> {
    let version = request.api_version;
    let mut asked = FetchRequest::default();
    asked.decode(content, body_at, version).map_err(wrong)?;
    let mut records = Vec::new();
    let start = frame::begin(out);
    encode_response_header(out, key::FETCH, version, request.correlation_id);
    let head = FetchResponseHead {
        throttle_ms: 0,
        error_code: ErrorCode::NONE,
        session_id: 0,
    };
    let mut writer = FetchResponseWriter::begin(out, version, head, asked.topics.len());
    for topic in &asked.topics {
        let known = store
            .topic_by_id(&topic.id)
            .ok_or_else(|| wrong("no such topic"))?;
        let partitions = asked.partitions_of(topic);
        writer.topic(&known.name, &known.id, partitions.len());
        for partition in partitions {
            let index = usize::try_from(partition.index).map_err(wrong)?;
            let target = known
                .partitions
                .get(index)
                .ok_or_else(|| wrong("no such partition"))?;
            let most = usize::try_from(partition.max_bytes).unwrap_or(0);
            let Range { start, end } = target.offsets();
            let head = FetchPartitionHead {
                high_watermark: end,
                last_stable_offset: end,
                log_start_offset: start,
                ..FetchPartitionHead::failed(partition.index, ErrorCode::NONE)
            };
            let offset = partition.fetch_offset;
            let found = match target.find(offset, most) {
                None if offset < end => old.get_or_insert_default().find(target, offset, most)?,
                found => found,
            };
            let length = found.as_ref().map_or(0, |found| found.range.len());
            let at = writer.partition_head(&head, Some(length));
            records.extend(found.map(|found| Records { at, found }));
            writer.partition_tail(&FetchPartitionTail::default());
        }
    }
    writer.end(&[]);
    let elsewhere = records
        .iter()
        .map(|records| records.found.range.len())
        .sum();
    frame::end(out, start, elsewhere).expect("a short reply");
    Ok(Fetched {
        records,
        asked: followed(&asked, store),
    })
}

fn followed(asked: &FetchRequest, store: &Store) -> Option<Asked> {
    let [topic] = &asked.topics[..] else {
        return None;
    };
    if asked.max_wait_ms == 0 {
        return None;
    }
    let positions = asked.partitions_of(topic).iter().map(|partition| {
        let index = usize::try_from(partition.index).unwrap_or(usize::MAX);
        (index, partition.fetch_offset)
    });
    Some(Asked {
        topic: store.topic_by_id(&topic.id)?,
        positions: positions.collect(),
    })
}
