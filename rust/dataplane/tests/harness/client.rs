//! A blocking client that speaks the protocol through `pyrklog-wire`.

use std::io::{Read, Write};
use std::net::{Ipv4Addr, SocketAddrV4, TcpStream};

use pyrklog_wire::ErrorCode;
use pyrklog_wire::api::key;
use pyrklog_wire::batch::Batches;
use pyrklog_wire::builder::BatchBuilder;
use pyrklog_wire::fetch::{
    FetchPartition, FetchRequestToWrite, FetchResponse, FetchTopicToWrite, TOPIC_IDS_SINCE,
};
use pyrklog_wire::header::{RequestHeader, parse_response_header};
use pyrklog_wire::list_offsets::{
    ListOffsetsPartition, ListOffsetsPartitionResponse, ListOffsetsRequest, ListOffsetsResponse,
    ListOffsetsTopic,
};
use pyrklog_wire::metadata::{MetadataRequest, MetadataRequestTopic};
use pyrklog_wire::offset_for_leader_epoch::{
    EpochPartition, EpochRequest, EpochResponse, EpochTopic, NO_REPLICA,
};
use pyrklog_wire::produce::{self, ProduceResponse, TopicToProduce};

use rustix::net::{self, AddressFamily, SocketType};

use super::PATIENCE;

pub const PRODUCE_VERSION: i16 = 11;
pub const FETCH_VERSION: i16 = 12;
pub const LIST_OFFSETS_VERSION: i16 = 9;

pub struct Client {
    pub stream: TcpStream,
    pub correlation_id: i32,
    pub client_id: &'static str,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Fetched {
    pub topic: String,
    pub index: i32,
    pub error: ErrorCode,
    pub high_watermark: i64,
    pub last_stable_offset: i64,
    pub log_start_offset: i64,
    pub records: Vec<u8>,
    pub aborted: Option<Vec<(i64, i64)>>,
    pub diverging: Option<(i32, i64)>,
    pub preferred_replica: i32,
    pub current_leader: Option<(i32, i32)>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FetchReply {
    pub error: ErrorCode,
    pub session_id: i32,
    pub partitions: Vec<Fetched>,
}

#[derive(Clone, Debug)]
pub struct Ask {
    pub version: i16,
    pub replica_id: i32,
    pub max_wait_ms: i32,
    pub min_bytes: i32,
    pub max_bytes: i32,
    pub isolation_level: i8,
    pub session: (i32, i32),
    pub partitions: Vec<(String, FetchPartition)>,
    /// Partitions that leave the session.
    pub forgotten: Vec<(String, i32)>,
    pub topic_ids: Option<fn(&str) -> [u8; 16]>,
    pub rack: &'static str,
}

pub fn partition(index: i32, fetch_offset: i64) -> FetchPartition {
    FetchPartition {
        index,
        current_leader_epoch: -1,
        fetch_offset,
        last_fetched_epoch: -1,
        log_start_offset: -1,
        max_bytes: 1 << 20,
        directory_id: [0; 16],
    }
}

impl Ask {
    /// One partition from an offset on, answered at once.
    pub fn one(topic: &str, index: i32, offset: i64) -> Ask {
        Ask {
            version: FETCH_VERSION,
            replica_id: -1,
            max_wait_ms: 0,
            min_bytes: 1,
            max_bytes: 50 << 20,
            isolation_level: 0,
            session: (0, -1),
            partitions: vec![(topic.into(), partition(index, offset))],
            forgotten: vec![],
            topic_ids: None,
            rack: "",
        }
    }

    pub fn wait(mut self, max_wait_ms: i32, min_bytes: i32) -> Ask {
        self.max_wait_ms = max_wait_ms;
        self.min_bytes = min_bytes;
        self
    }

    pub fn version(mut self, version: i16) -> Ask {
        self.version = version;
        self
    }

    pub fn rack(mut self, rack: &'static str) -> Ask {
        self.rack = rack;
        self
    }

    pub fn session(mut self, id: i32, epoch: i32) -> Ask {
        self.session = (id, epoch);
        self
    }

    pub fn encode(&self) -> Vec<u8> {
        let topics = self.by_topic(&self.partitions);
        let forgotten = self.by_topic(&self.forgotten);
        let request = FetchRequestToWrite {
            cluster_id: None,
            replica_id: self.replica_id,
            replica_epoch: -1,
            max_wait_ms: self.max_wait_ms,
            min_bytes: self.min_bytes,
            max_bytes: self.max_bytes,
            isolation_level: self.isolation_level,
            session_id: self.session.0,
            session_epoch: self.session.1,
            topics: &topics,
            forgotten: &forgotten,
            rack_id: self.rack,
        };
        let mut body = Vec::new();
        request.encode(&mut body, self.version);
        body
    }

    fn by_topic<'a, P>(&self, partitions: &'a [(String, P)]) -> Vec<FetchTopicToWrite<'a, P>> {
        let topic = |(name, partition): &'a (String, P)| FetchTopicToWrite {
            name,
            id: match self.topic_ids {
                Some(id) if self.version >= TOPIC_IDS_SINCE => id(name),
                _ => super::topic_id(name),
            },
            partitions: std::slice::from_ref(partition),
        };
        partitions.iter().map(topic).collect()
    }
}

pub fn batch(values: &[&[u8]]) -> Vec<u8> {
    let mut builder = BatchBuilder::new();
    for value in values {
        builder.append(1_700_000_000_000, None, Some(value));
    }
    builder.build()
}

pub fn large_batch(size_bytes: usize) -> Vec<u8> {
    batch(&[&vec![b'x'; size_bytes]])
}

/// Metadata of one topic, version 12.
pub fn metadata_body(name: &str) -> Vec<u8> {
    let request = MetadataRequest {
        topics: Some(vec![MetadataRequestTopic {
            id: [0; 16],
            name: Some(name),
        }]),
        allow_auto_topic_creation: true,
        include_cluster_authorized_operations: false,
        include_topic_authorized_operations: false,
    };
    let mut body = Vec::new();
    request.encode(&mut body, 12);
    body
}

pub fn produce_body(
    version: i16,
    acks: i16,
    timeout_ms: i32,
    topic: &str,
    partitions: &[(i32, Option<&[u8]>)],
) -> Vec<u8> {
    let topics = [TopicToProduce {
        name: topic,
        partitions,
    }];
    let mut body = Vec::new();
    produce::encode_request(&mut body, version, None, acks, timeout_ms, &topics);
    body
}

/// (error, base offset) of the first partition.
pub fn produced(body: &[u8], version: i16) -> (ErrorCode, i64) {
    let response = ProduceResponse::decode(body, version).unwrap();
    let partition = &response.topics[0].partitions[0];
    (partition.error_code, partition.base_offset)
}

pub fn fetched(body: &[u8], ask: &Ask) -> FetchReply {
    let response = FetchResponse::decode(body, ask.version).unwrap();
    let mut partitions = Vec::new();
    for topic in &response.topics {
        let name = match ask.version {
            ..TOPIC_IDS_SINCE => topic.name.to_owned(),
            _ => {
                let id_of = ask.topic_ids.unwrap_or(super::topic_id);
                let known = ask
                    .partitions
                    .iter()
                    .find(|(name, _)| id_of(name) == topic.id);
                known.map_or(String::new(), |(name, _)| name.clone())
            }
        };
        for part in &topic.partitions {
            partitions.push(Fetched {
                topic: name.clone(),
                index: part.head.index,
                error: part.head.error_code,
                high_watermark: part.head.high_watermark,
                last_stable_offset: part.head.last_stable_offset,
                log_start_offset: part.head.log_start_offset,
                records: part.records.unwrap_or_default().to_vec(),
                aborted: part.head.aborted.as_ref().map(|list| {
                    list.iter()
                        .map(|txn| (txn.producer_id, txn.first_offset))
                        .collect()
                }),
                preferred_replica: part.head.preferred_read_replica,
                diverging: part
                    .tail
                    .diverging_epoch
                    .map(|end| (end.epoch, end.end_offset)),
                current_leader: part
                    .tail
                    .current_leader
                    .map(|leader| (leader.leader_id, leader.leader_epoch)),
            });
        }
    }
    FetchReply {
        error: response.head.error_code,
        session_id: response.head.session_id,
        partitions,
    }
}

impl Fetched {
    /// Base offsets of the whole batches.
    pub fn batches(&self) -> Vec<i64> {
        Batches::new(&self.records)
            .map_while(Result::ok)
            .map(|batch| batch.header.base_offset)
            .collect()
    }
}

impl Client {
    pub fn connect(port: u16) -> Client {
        Client::on(TcpStream::connect(("127.0.0.1", port)).unwrap())
    }

    /// From 127.0.0.`host`.
    pub fn connect_from(host: u8, port: u16) -> Client {
        let socket = net::socket(AddressFamily::INET, SocketType::STREAM, None).unwrap();
        let address = |host, port| SocketAddrV4::new(Ipv4Addr::new(127, 0, 0, host), port);
        net::bind(&socket, &address(host, 0)).unwrap();
        net::connect(&socket, &address(1, port)).unwrap();
        Client::on(TcpStream::from(socket))
    }

    fn on(stream: TcpStream) -> Client {
        stream.set_nodelay(true).unwrap();
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        Client {
            stream,
            correlation_id: 0,
            client_id: "test",
        }
    }

    pub fn frame(&mut self, api_key: i16, api_version: i16, body: &[u8]) -> Vec<u8> {
        self.correlation_id += 1;
        let header = RequestHeader {
            api_key,
            api_version,
            correlation_id: self.correlation_id,
            client_id: Some(self.client_id),
        };
        let mut frame = vec![0; 4];
        header.encode(&mut frame);
        frame.extend_from_slice(body);
        let len = (frame.len() - 4) as i32;
        frame[..4].copy_from_slice(&len.to_be_bytes());
        frame
    }

    /// Sends a request; returns its correlation id.
    pub fn send(&mut self, api_key: i16, api_version: i16, body: &[u8]) -> i32 {
        let frame = self.frame(api_key, api_version, body);
        self.stream.write_all(&frame).unwrap();
        self.correlation_id
    }

    /// Waits until something has arrived, and leaves it there.
    pub fn wait_for_bytes(&self) {
        assert_eq!(self.stream.peek(&mut [0]).unwrap(), 1);
    }

    /// Receives a frame; `None` when the connection was closed.
    pub fn receive_frame(&mut self) -> Option<Vec<u8>> {
        let mut prefix = [0; 4];
        let mut filled = 0;
        while filled < 4 {
            match self.stream.read(&mut prefix[filled..]) {
                Ok(0) => return None,
                Ok(count) => filled += count,
                Err(error) if error.kind() == std::io::ErrorKind::ConnectionReset => return None,
                Err(error) => panic!("{error}"),
            }
        }
        let mut frame = vec![0; i32::from_be_bytes(prefix) as usize];
        self.stream.read_exact(&mut frame).unwrap();
        Some(frame)
    }

    /// Receives a response: (correlation id, body).
    pub fn receive(&mut self, api_key: i16, api_version: i16) -> (i32, Vec<u8>) {
        let frame = self
            .receive_frame()
            .expect("the broker closed the connection");
        let (correlation_id, start) = parse_response_header(&frame, api_key, api_version).unwrap();
        (correlation_id, frame[start..].to_vec())
    }

    pub fn is_closed(&mut self) -> bool {
        self.receive_frame().is_none()
    }

    pub fn call(&mut self, api_key: i16, api_version: i16, body: &[u8]) -> Vec<u8> {
        let sent = self.send(api_key, api_version, body);
        let (correlation_id, body) = self.receive(api_key, api_version);
        assert_eq!(correlation_id, sent);
        body
    }

    pub fn produce(&mut self, topic: &str, index: i32, batch: &[u8]) -> (ErrorCode, i64) {
        self.produce_acks(1, topic, index, batch)
    }

    pub fn produce_acks(
        &mut self,
        acks: i16,
        topic: &str,
        index: i32,
        batch: &[u8],
    ) -> (ErrorCode, i64) {
        let partitions = [(index, Some(batch))];
        let body = produce_body(PRODUCE_VERSION, acks, 10_000, topic, &partitions);
        let answer = self.call(key::PRODUCE, PRODUCE_VERSION, &body);
        produced(&answer, PRODUCE_VERSION)
    }

    /// With acks=1, and a time-out of the request's own.
    pub fn produce_within(
        &mut self,
        timeout_ms: i32,
        topic: &str,
        index: i32,
        batch: &[u8],
    ) -> (ErrorCode, i64) {
        let partitions = [(index, Some(batch))];
        let body = produce_body(PRODUCE_VERSION, 1, timeout_ms, topic, &partitions);
        let answer = self.call(key::PRODUCE, PRODUCE_VERSION, &body);
        produced(&answer, PRODUCE_VERSION)
    }

    pub fn fetch(&mut self, ask: &Ask) -> FetchReply {
        let body = self.call(key::FETCH, ask.version, &ask.encode());
        fetched(&body, ask)
    }

    pub fn fetch_one(&mut self, topic: &str, index: i32, offset: i64) -> Fetched {
        let mut reply = self.fetch(&Ask::one(topic, index, offset));
        assert_eq!(reply.error, ErrorCode::NONE);
        reply.partitions.remove(0)
    }

    pub fn list_offsets_body(topic: &str, index: i32, timestamp: i64) -> Vec<u8> {
        Client::list_offsets_body_as(LIST_OFFSETS_VERSION, topic, index, timestamp)
    }

    fn list_offsets_body_as(version: i16, topic: &str, index: i32, timestamp: i64) -> Vec<u8> {
        let wanted = ListOffsetsPartition {
            index,
            current_leader_epoch: -1,
            timestamp,
            max_offsets: 1,
        };
        Client::list_offsets_body_of(version, -1, topic, wanted)
    }

    fn list_offsets_body_of(
        version: i16,
        replica_id: i32,
        topic: &str,
        wanted: ListOffsetsPartition,
    ) -> Vec<u8> {
        let request = ListOffsetsRequest {
            replica_id,
            isolation_level: 0,
            topics: vec![ListOffsetsTopic {
                name: topic,
                partitions: vec![wanted],
            }],
        };
        let mut body = Vec::new();
        request.encode(&mut body, version);
        body
    }

    /// The latest offset of the first partition of `t`, asked in the client's leader epoch, -1 for
    /// none.
    pub fn latest_offset(
        &mut self,
        replica_id: i32,
        current_leader_epoch: i32,
    ) -> (ErrorCode, i64) {
        let wanted = ListOffsetsPartition {
            index: 0,
            current_leader_epoch,
            timestamp: -1,
            max_offsets: 1,
        };
        let body = Client::list_offsets_body_of(LIST_OFFSETS_VERSION, replica_id, "t", wanted);
        let answer = listed_offset(&self.call(key::LIST_OFFSETS, LIST_OFFSETS_VERSION, &body));
        (answer.error_code, answer.offset)
    }

    /// The error of OffsetForLeaderEpoch for the first partition of `t`.
    pub fn end_of_epoch_error(&mut self, current_leader_epoch: i32) -> ErrorCode {
        let topics = vec![EpochTopic {
            name: "t",
            partitions: vec![EpochPartition {
                index: 0,
                current_leader_epoch,
                leader_epoch: 0,
            }],
        }];
        let request = EpochRequest {
            replica_id: NO_REPLICA,
            topics,
        };
        let mut body = Vec::new();
        request.encode(&mut body, 4);
        let answer = self.call(key::OFFSET_FOR_LEADER_EPOCH, 4, &body);
        EpochResponse::decode(&answer, 4).unwrap().topics[0].partitions[0].error_code
    }

    pub fn list_offset(
        &mut self,
        topic: &str,
        index: i32,
        timestamp: i64,
    ) -> ListOffsetsPartitionResponse {
        let body = Client::list_offsets_body(topic, index, timestamp);
        let answer = self.call(key::LIST_OFFSETS, LIST_OFFSETS_VERSION, &body);
        listed_offset(&answer)
    }

    /// The error for an older client's request.
    pub fn list_offset_error(&mut self, version: i16, timestamp: i64) -> ErrorCode {
        let body = Client::list_offsets_body_as(version, "t", 0, timestamp);
        let answer = self.call(key::LIST_OFFSETS, version, &body);
        let response = ListOffsetsResponse::decode(&answer, version).unwrap();
        response.topics[0].partitions[0].error_code
    }
}

pub fn listed_offset(body: &[u8]) -> ListOffsetsPartitionResponse {
    let response = ListOffsetsResponse::decode(body, LIST_OFFSETS_VERSION).unwrap();
    response.topics[0].partitions[0]
}
