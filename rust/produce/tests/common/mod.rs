//! A cluster of one topic, on which a producer writes, and which answers as a test wants.
#![allow(dead_code)] // Each test file uses a part.

use std::collections::{BTreeMap, HashMap};
use std::io::{Read, Write};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::sync::{Arc, Mutex, MutexGuard};
use std::thread;
use std::time::Duration;

use arrow_array::{ArrayRef, BinaryArray, RecordBatch};
use pyrklog_client::{Address, ClientConfig};
use pyrklog_compression::with_decompressed;
use pyrklog_produce::{ProduceOptions, Producer};
use pyrklog_wire::api::key;
use pyrklog_wire::api_versions::{ApiVersion, ApiVersionsResponse, Offer};
use pyrklog_wire::batch::{BatchHeader, Compression, HEADER_LEN, verify_crc};
use pyrklog_wire::header::encode_response_header;
use pyrklog_wire::leader::NodeEndpoint;
use pyrklog_wire::metadata::{
    MetadataHead, MetadataPartition, MetadataRequest, MetadataResponse, MetadataTopic,
};
use pyrklog_wire::produce::{ProducePartitionResponse, ProduceRequest, ProduceResponseWriter};
use pyrklog_wire::records::Records;
use pyrklog_wire::transactions::{
    AddPartitionsPartitionResponse, AddPartitionsRequest, AddPartitionsResponse,
    AddPartitionsTopicResponse, EndTxnRequest, EndTxnResponse, FindCoordinatorResponse,
    InitProducerIdRequest, InitProducerIdResponse, ListTransactionsResponse, ListedTransaction,
};
use pyrklog_wire::{ErrorCode, RequestHeader};

pub const TOPIC: &str = "t";
pub const PRODUCER: (i64, i16) = (77, 5);

/// What a request is answered with.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reply {
    /// As a broker does.
    Serve,
    /// As a broker does, and the answer is lost with the connection.
    Lose,
    /// The connection closes.
    Close,
    /// All partitions have this error.
    Error(ErrorCode),
    /// Nothing, ever.
    Silence,
    /// Of a Produce: no partition.
    Nothing,
    /// Of a Produce: each partition twice.
    Twice,
}

/// Called with the API key, and the number of its requests so far.
pub type Script = Box<dyn FnMut(i16, usize) -> Reply + Send>;

/// A record: sequence and value.
pub type Written = (i32, Vec<u8>);

pub struct State {
    /// The ports of brokers 0, 1, …
    pub ports: Vec<u16>,
    /// Leader of each partition.
    pub leaders: Vec<i32>,
    pub coordinator: i32,
    pub topic_error: ErrorCode,
    /// Batches above this are refused.
    pub batch_bytes_max: usize,
    /// Ranges that are not Kafka 3.9's.
    pub ranges: HashMap<i16, (i16, i16)>,
    pub log: BTreeMap<i32, Vec<Written>>,
    /// The partition of each batch that was appended, in order.
    pub appended: Vec<i32>,
    /// Partitions that were added to the transaction.
    pub added: Vec<i32>,
    /// (id, producer, is commit) of each EndTxn that was served.
    pub ends: Vec<(String, (i64, i16), bool)>,
    pub open: Vec<&'static str>,
    pub timeout_ms: i32,
    /// Requests by API.
    pub requests: HashMap<i16, usize>,
    /// (API, broker) in order.
    pub asked: Vec<(i16, i32)>,
    pub largest_batch: usize,
    /// Of ProduceAt: the offsets in each partition, and where it ends.
    pub offsets: BTreeMap<i32, Vec<i64>>,
    pub log_ends: BTreeMap<i32, i64>,
    script: Script,
}

/// A cluster whose brokers share their state.
pub struct FakeCluster {
    state: Arc<Mutex<State>>,
}

impl FakeCluster {
    pub fn start(
        brokers: usize,
        partitions: usize,
        script: impl FnMut(i16, usize) -> Reply + Send + 'static,
    ) -> FakeCluster {
        let bind = |_| TcpListener::bind("127.0.0.1:0").unwrap();
        let listeners: Vec<TcpListener> = (0..brokers).map(bind).collect();
        let port = |one: &TcpListener| one.local_addr().unwrap().port();
        let state = Arc::new(Mutex::new(State {
            ports: listeners.iter().map(port).collect(),
            leaders: (0..partitions).map(|at| (at % brokers) as i32).collect(),
            coordinator: 0,
            topic_error: ErrorCode::NONE,
            batch_bytes_max: usize::MAX,
            ranges: HashMap::new(),
            log: BTreeMap::new(),
            appended: Vec::new(),
            added: Vec::new(),
            ends: Vec::new(),
            open: Vec::new(),
            timeout_ms: 0,
            requests: HashMap::new(),
            asked: Vec::new(),
            largest_batch: 0,
            offsets: BTreeMap::new(),
            log_ends: BTreeMap::new(),
            script: Box::new(script),
        }));
        // They end with the process: a test has only a few.
        for (broker, listener) in listeners.into_iter().enumerate() {
            let state = Arc::clone(&state);
            thread::spawn(move || {
                for stream in listener.incoming().flatten() {
                    let state = Arc::clone(&state);
                    thread::spawn(move || serve(stream, broker as i32, &state));
                }
            });
        }
        FakeCluster { state }
    }

    pub fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap()
    }

    pub fn client(&self) -> ClientConfig {
        ClientConfig {
            bootstrap: vec![Address {
                host: "127.0.0.1".into(),
                port: self.state().ports[0],
            }],
            client_id: "test".into(),
            connect_timeout: Duration::from_secs(5),
            request_timeout: Duration::from_secs(5),
            security: Default::default(),
        }
    }

    pub fn options(&self) -> ProduceOptions {
        ProduceOptions {
            client: self.client(),
            topic: Some(TOPIC.into()),
            columns: vec!["key".into(), "value".into()],
            codec: Compression::None,
            batch_bytes: 400,
            memory_bytes: 4000,
            request_bytes: 1000,
            delivery_timeout: Duration::from_secs(20),
            transactional_id: None,
            transaction_timeout_ms: 60_000,
            keeps_offsets: false,
        }
    }

    /// The values of each partition; panics if sequences have a gap or come twice.
    pub fn values(&self) -> Vec<Vec<u8>> {
        let state = self.state();
        let mut all = Vec::new();
        for (partition, records) in &state.log {
            let sequences: Vec<i32> = records.iter().map(|one| one.0).collect();
            let expected: Vec<i32> = (0..records.len() as i32).collect();
            assert_eq!(sequences, expected, "partition {partition}");
            all.extend(records.iter().map(|one| one.1.clone()));
        }
        all
    }
}

/// Rows without keys, or with their value as a key.
pub fn rows(range: std::ops::Range<usize>, keyed: bool) -> RecordBatch {
    let values: Vec<Vec<u8>> = range.map(|at| format!("{at:06}").into_bytes()).collect();
    let key = |value: &Vec<u8>| keyed.then(|| value.clone());
    let keys: Vec<Option<Vec<u8>>> = values.iter().map(key).collect();
    let keys: BinaryArray = keys.iter().map(|one| one.as_deref()).collect();
    let values: BinaryArray = values.iter().map(Some).collect();
    let columns: [(&str, ArrayRef); 2] = [("key", Arc::new(keys)), ("value", Arc::new(values))];
    RecordBatch::try_from_iter(columns).unwrap()
}

/// Writes so many rows in several batches, and waits.
pub fn write(producer: &mut Producer, count: usize) -> pyrklog_produce::Result<()> {
    for start in (0..count).step_by(100) {
        producer.send(&rows(start..count.min(start + 100), true))?;
    }
    producer.flush()
}

/// All values of `write`, sorted.
pub fn expected(count: usize) -> Vec<Vec<u8>> {
    (0..count)
        .map(|at| format!("{at:06}").into_bytes())
        .collect()
}

fn serve(mut stream: TcpStream, broker: i32, shared: &Mutex<State>) {
    while let Some(frame) = read_frame(&mut stream) {
        let (header, body_at) = RequestHeader::parse(&frame).unwrap();
        let (api, version) = (header.api_key, header.api_version);
        let mut state = shared.lock().unwrap();
        let number = state.requests.get(&api).copied().unwrap_or(0);
        state.requests.insert(api, number + 1);
        state.asked.push((api, broker));
        let reply = (state.script)(api, number);
        let mut out = Vec::new();
        encode_response_header(&mut out, api, version, header.correlation_id);
        match reply {
            Reply::Silence => continue,
            Reply::Close => {}
            _ => answer(
                &mut state,
                &mut out,
                (api, version),
                broker,
                &frame,
                body_at,
                reply,
            ),
        }
        drop(state);
        if matches!(reply, Reply::Close | Reply::Lose) {
            stream.shutdown(Shutdown::Both).ok();
            return;
        }
        let len = (out.len() as i32).to_be_bytes();
        if stream.write_all(&[&len[..], &out].concat()).is_err() {
            return;
        }
    }
}

fn read_frame(stream: &mut TcpStream) -> Option<Vec<u8>> {
    let mut len = [0; 4];
    stream.read_exact(&mut len).ok()?;
    let mut frame = vec![0; i32::from_be_bytes(len) as usize];
    stream.read_exact(&mut frame).ok()?;
    Some(frame)
}

fn answer(
    state: &mut State,
    out: &mut Vec<u8>,
    (api, version): (i16, i16),
    broker: i32,
    frame: &[u8],
    body_at: usize,
    reply: Reply,
) {
    let body = &frame[body_at..];
    let error = match reply {
        Reply::Error(code) => code,
        _ => ErrorCode::NONE,
    };
    match api {
        key::API_VERSIONS => answer_versions(state, out, version),
        key::METADATA => answer_metadata(state, out, body, version),
        key::PRODUCE => answer_produce(state, out, version, broker, frame, body_at, reply),
        key::PRODUCE_AT => answer_produce_at(state, out, version, broker, frame, body_at, reply),
        key::FIND_COORDINATOR => {
            let response = FindCoordinatorResponse {
                throttle_ms: 0,
                error_code: error,
                error_message: None,
                node_id: state.coordinator,
                host: "127.0.0.1",
                port: state.ports[state.coordinator as usize].into(),
            };
            response.encode(out, version);
        }
        key::INIT_PRODUCER_ID => {
            let request = InitProducerIdRequest::decode(body, version).unwrap();
            state.timeout_ms = request.timeout_ms;
            let response = InitProducerIdResponse {
                throttle_ms: 0,
                error_code: error,
                producer_id: PRODUCER.0,
                producer_epoch: PRODUCER.1,
            };
            response.encode(out, version);
        }
        key::ADD_PARTITIONS_TO_TXN => answer_add(state, out, body, version, error),
        key::END_TXN => {
            let request = EndTxnRequest::decode(body, version).unwrap();
            let code = match error {
                ErrorCode::NONE => coordinator_code(state, broker),
                code => code,
            };
            if code.is_none() {
                let producer = (request.producer_id, request.producer_epoch);
                let id = request.transactional_id.to_owned();
                state.ends.push((id, producer, request.committed));
            }
            let response = EndTxnResponse {
                throttle_ms: 0,
                error_code: code,
            };
            response.encode(out, version);
        }
        key::LIST_TRANSACTIONS => answer_list(state, out, version, error),
        other => panic!("API {other}"),
    }
}

fn answer_list(state: &State, out: &mut Vec<u8>, version: i16, error_code: ErrorCode) {
    let transactions = state.open.iter().map(|id| ListedTransaction {
        transactional_id: id,
        producer_id: 1,
        state: "Ongoing",
    });
    let response = ListTransactionsResponse {
        throttle_ms: 0,
        error_code,
        unknown_states: Vec::new(),
        transactions: transactions.collect(),
    };
    response.encode(out, version);
}

fn coordinator_code(state: &State, broker: i32) -> ErrorCode {
    match state.coordinator == broker {
        true => ErrorCode::NONE,
        false => ErrorCode::NOT_COORDINATOR,
    }
}

fn answer_add(state: &mut State, out: &mut Vec<u8>, body: &[u8], version: i16, code: ErrorCode) {
    let request = AddPartitionsRequest::decode(body, version).unwrap();
    let topics = request
        .topics
        .iter()
        .map(|topic| AddPartitionsTopicResponse {
            name: topic.name,
            partitions: topic
                .partitions
                .iter()
                .map(|index| AddPartitionsPartitionResponse {
                    index: *index,
                    error_code: code,
                })
                .collect(),
        });
    let response = AddPartitionsResponse {
        throttle_ms: 0,
        topics: topics.collect(),
    };
    response.encode(out, version);
    if code.is_none() {
        let added = request.topics.iter().flat_map(|topic| &topic.partitions);
        state.added.extend(added);
    }
}

fn answer_versions(state: &State, out: &mut Vec<u8>, version: i16) {
    let mut response = ApiVersionsResponse::of_table(Offer::default());
    for (api, (min_version, max_version)) in &state.ranges {
        response.apis.retain(|one| one.key != *api);
        if max_version >= min_version {
            response.apis.push(ApiVersion {
                key: *api,
                min_version: *min_version,
                max_version: *max_version,
            });
        }
    }
    response.encode(out, version);
}

fn answer_metadata(state: &State, out: &mut Vec<u8>, body: &[u8], version: i16) {
    let request = MetadataRequest::decode(body, version).unwrap();
    let partition = |(index, leader): (usize, &i32)| MetadataPartition {
        error_code: ErrorCode::NONE,
        index: index as i32,
        leader_id: *leader,
        leader_epoch: 1,
        replicas: vec![*leader].into(),
        isr: vec![*leader].into(),
        offline: vec![].into(),
    };
    let broker = |(node_id, port): (usize, &u16)| NodeEndpoint {
        node_id: node_id as i32,
        host: "127.0.0.1",
        port: (*port).into(),
        rack: None,
    };
    let asked = request.topics.unwrap_or_default();
    let topics = asked.iter().map(|one| MetadataTopic {
        error_code: match one.name == Some(TOPIC) {
            true => state.topic_error,
            false => ErrorCode::UNKNOWN_TOPIC_OR_PARTITION,
        },
        name: one.name,
        id: [1; 16],
        is_internal: false,
        partitions: match one.name == Some(TOPIC) && state.topic_error.is_none() {
            true => state.leaders.iter().enumerate().map(partition).collect(),
            false => Vec::new(),
        },
        authorized_operations: i32::MIN,
    });
    let response = MetadataResponse {
        head: MetadataHead {
            throttle_ms: 0,
            brokers: state.ports.iter().enumerate().map(broker).collect(),
            cluster_id: None,
            controller_id: 0,
        },
        topics: topics.collect(),
        cluster_authorized_operations: i32::MIN,
    };
    response.encode(out, version);
}

fn answer_produce(
    state: &mut State,
    out: &mut Vec<u8>,
    version: i16,
    broker: i32,
    frame: &[u8],
    body_at: usize,
    reply: Reply,
) {
    let mut request = ProduceRequest::default();
    request.decode(frame, body_at, version).unwrap();
    assert_eq!(request.acks, -1);
    let is_transactional = request.transactional_id.is_some();
    let mut answers = Vec::new();
    for partition in &request.partitions {
        let batch = partition.records.unwrap().of(frame);
        let code = match reply {
            Reply::Error(code) => code,
            _ if state.leaders[partition.index as usize] != broker => {
                ErrorCode::NOT_LEADER_OR_FOLLOWER
            }
            _ if is_transactional && !state.added.contains(&partition.index) => {
                ErrorCode::INVALID_TXN_STATE
            }
            _ => append(state, partition.index, batch),
        };
        let mut answer = ProducePartitionResponse::failed(partition.index, code);
        answer.base_offset = 0;
        match reply {
            Reply::Nothing => {}
            Reply::Twice => answers.extend([answer.clone(), answer]),
            _ => answers.push(answer),
        }
    }
    let mut writer = ProduceResponseWriter::begin(out, version, 1);
    writer.topic(TOPIC, answers.len());
    for answer in &answers {
        writer.partition(answer);
    }
    writer.end(0, &[]);
}

fn answer_produce_at(
    state: &mut State,
    out: &mut Vec<u8>,
    version: i16,
    broker: i32,
    frame: &[u8],
    body_at: usize,
    reply: Reply,
) {
    let mut request = ProduceRequest::default();
    request.decode_at(frame, body_at, version).unwrap();
    assert_eq!((request.acks, request.transactional_id), (-1, None));
    let mut answers = Vec::new();
    for partition in &request.partitions {
        let index = partition.index;
        let batch = partition.records.unwrap().of(frame);
        let end = state.log_ends.get(&index).copied().unwrap_or(0);
        let code = match reply {
            Reply::Error(code) => code,
            _ if state.leaders[index as usize] != broker => ErrorCode::NOT_LEADER_OR_FOLLOWER,
            _ if batch.len() > state.batch_bytes_max => ErrorCode::MESSAGE_TOO_LARGE,
            _ if partition.expected_end != Some(end) => ErrorCode::OFFSET_OUT_OF_RANGE,
            _ => append_at(state, index, batch),
        };
        answers.push(ProducePartitionResponse::failed(index, code));
    }
    let topics = usize::from(!answers.is_empty());
    let mut writer = ProduceResponseWriter::begin(out, version, topics);
    if topics > 0 {
        writer.topic(TOPIC, answers.len());
    }
    for answer in &answers {
        writer.partition(answer);
    }
    writer.end(0, &[]);
}

fn append_at(state: &mut State, index: i32, batch: &[u8]) -> ErrorCode {
    verify_crc(batch).unwrap();
    let header = BatchHeader::parse(batch).unwrap();
    assert_eq!((header.producer_id, header.base_sequence), (-1, -1));
    let log = state.offsets.entry(index).or_default();
    for record in Records::new(&batch[HEADER_LEN..]) {
        log.push(header.base_offset + i64::from(record.unwrap().offset_delta));
    }
    let end = header.base_offset + i64::from(header.last_offset_delta) + 1;
    state.log_ends.insert(index, end);
    ErrorCode::NONE
}

/// As a broker: a batch that is there already is a success, and one that leaves a gap is refused.
fn append(state: &mut State, partition: i32, batch: &[u8]) -> ErrorCode {
    verify_crc(batch).unwrap();
    let header = BatchHeader::parse(batch).unwrap();
    assert_eq!(header.total_len(), batch.len(), "one batch a partition");
    assert_eq!((header.producer_id, header.producer_epoch), PRODUCER);
    if batch.len() > state.batch_bytes_max {
        return ErrorCode::MESSAGE_TOO_LARGE;
    }
    state.largest_batch = state.largest_batch.max(batch.len());
    let log = state.log.entry(partition).or_default();
    let next = log.last().map_or(0, |one| one.0 + 1);
    if header.base_sequence < next {
        return match header.base_sequence % 2 {
            0 => ErrorCode::NONE,
            _ => ErrorCode::DUPLICATE_SEQUENCE_NUMBER,
        };
    }
    if header.base_sequence > next {
        return ErrorCode::OUT_OF_ORDER_SEQUENCE_NUMBER;
    }
    state.appended.push(partition);
    let codec = header.compression().unwrap();
    with_decompressed(codec, &batch[HEADER_LEN..], 1 << 28, |records| {
        for record in Records::new(records) {
            let record = record.unwrap();
            let sequence = header.base_sequence + record.offset_delta;
            log.push((sequence, record.value.unwrap().to_vec()));
        }
    })
    .unwrap();
    ErrorCode::NONE
}
