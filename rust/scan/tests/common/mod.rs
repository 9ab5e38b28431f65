//! A broker with one topic of one partition, which answers as a test wants.
#![allow(dead_code)] // Each test file uses a part.

use std::collections::HashMap;
use std::io::{Read, Write};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::sync::{Arc, Barrier, Mutex, MutexGuard};
use std::thread;
use std::time::{Duration, Instant};

use arrow_array::RecordBatch;
use arrow_array::cast::AsArray;
use arrow_array::types::Int64Type;
use pyrklog_client::{Address, Cancel, ClientConfig, Isolation};
use pyrklog_compression::compress;
use pyrklog_scan::{
    Column, Columns, Missing, Position, Result, ScanOptions, ScanReader, Status, TopicPartitions,
    Unanswered, plan,
};
use pyrklog_wire::api::key;
use pyrklog_wire::api_versions::{ApiVersion, ApiVersionsResponse, Offer};
use pyrklog_wire::batch::Compression;
use pyrklog_wire::builder::BatchBuilder;
use pyrklog_wire::fetch::{
    FetchPartitionHead, FetchPartitionTail, FetchRequest, FetchResponseHead, FetchResponseWriter,
};
use pyrklog_wire::header::encode_response_header;
use pyrklog_wire::leader::NodeEndpoint;
use pyrklog_wire::list_offsets::{
    ListOffsetsPartition, ListOffsetsPartitionResponse, ListOffsetsRequest, ListOffsetsResponse,
    ListOffsetsTopicResponse,
};
use pyrklog_wire::metadata::{MetadataHead, MetadataPartition, MetadataResponse, MetadataTopic};
use pyrklog_wire::offset_for_leader_epoch::{
    EpochPartitionResponse, EpochResponse, EpochTopicResponse,
};
use pyrklog_wire::{ErrorCode, RequestHeader};

pub const TOPIC: &str = "t";
pub const PATIENCE: Duration = Duration::from_secs(60);
const PAUSE: Duration = Duration::from_millis(20);

/// What a Fetch is answered with.
pub enum Reply {
    /// What the log has from the offset on.
    Log,
    Error(ErrorCode),
    /// The leader epoch is this one from now on, and so it is refused.
    Fenced(i32),
    /// These bytes as records.
    Records(Vec<u8>),
    /// These bytes instead of a frame, and the connection closes.
    Bytes(Vec<u8>),
    /// The partition twice.
    Twice,
    /// Another topic.
    Other,
    /// The reader is to ask this replica.
    Preferred(i32),
    /// No partition at all, and a wait of so many milliseconds.
    Throttled(i32),
    /// Nothing, ever.
    Silence,
    /// A frame of so many bytes, a few of them after the other.
    Drip {
        bytes: i32,
        piece: usize,
    },
}

/// Called with the number of the Fetch, from 0, and its offset.
pub type Script = Box<dyn FnMut(usize, i64) -> Reply + Send>;

pub struct State {
    pub id: i32,
    /// None: the topic does not exist.
    pub topic_id: Option<[u8; 16]>,
    pub leader_epoch: i32,
    pub log_start: i64,
    pub high_watermark: i64,
    /// (base offset, batch), ascending.
    pub log: Vec<(i64, Vec<u8>)>,
    /// (leader epoch, end offset) that OffsetForLeaderEpoch tells.
    pub epoch_end: (i32, i64),
    /// Brokers besides broker 1, with their ports; 0 is this one's.
    pub others: Vec<(i32, u16)>,
    /// Leader of each partition.
    pub leaders: Vec<i32>,
    /// Where each connection waits before its first answer.
    pub barrier: Option<Arc<Barrier>>,
    /// Ranges that are not Kafka 3.9's.
    pub ranges: HashMap<i16, (i16, i16)>,
    /// Records that a Fetch gets which asks for open transactions, too.
    pub uncommitted: Option<Vec<u8>>,
    /// Partitions that ListOffsets tells of besides those that were asked for.
    pub more_partitions: i32,
    /// The pieces, with a pause behind each, in which an answer to Fetch is sent.
    pub pieces: usize,
    pub fetches: usize,
    /// The longest wait that a Fetch has allowed.
    pub longest_wait_ms: i32,
    /// Whether Fetches in an older leader epoch are refused.
    pub is_fencing: bool,
    /// Bytes of frames that drip.
    pub dripped: usize,
    pub connections: usize,
    script: Script,
}

pub struct FakeBroker {
    pub port: u16,
    state: Arc<Mutex<State>>,
}

/// A batch of `count` records of so many bytes.
pub fn batch(base: i64, count: i64, bytes: usize, leader_epoch: i32) -> Vec<u8> {
    let builder = BatchBuilder::new().base_offset(base);
    let mut builder = builder.leader_epoch(leader_epoch);
    for _ in 0..count {
        builder.append(1, None, Some(&vec![7; bytes]));
    }
    builder.build()
}

/// A batch of ten records, offsets 0 to 9, that expands to about so many bytes.
pub fn bomb(codec: Compression, bytes: usize) -> Vec<u8> {
    let mut builder = BatchBuilder::new();
    for _ in 0..10 {
        builder.append(1, None, Some(&vec![0; bytes / 10]));
    }
    builder.build_compressed(codec, |records| {
        let mut out = Vec::new();
        compress(codec, records, &mut out).unwrap();
        out
    })
}

impl FakeBroker {
    /// With ten batches of ten records, offsets 0 to 99, of epoch 1.
    pub fn start(script: impl FnMut(usize, i64) -> Reply + Send + 'static) -> FakeBroker {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let port = listener.local_addr().unwrap().port();
        let log = (0..10).map(|number| (10 * number, batch(10 * number, 10, 20, 1)));
        let state = Arc::new(Mutex::new(State {
            id: 1,
            topic_id: Some([1; 16]),
            leader_epoch: 1,
            log_start: 0,
            high_watermark: 100,
            log: log.collect(),
            epoch_end: (1, 100),
            others: Vec::new(),
            leaders: vec![1],
            barrier: None,
            ranges: HashMap::new(),
            uncommitted: None,
            more_partitions: 0,
            pieces: 1,
            fetches: 0,
            longest_wait_ms: 0,
            is_fencing: false,
            dripped: 0,
            connections: 0,
            script: Box::new(script),
        }));
        let shared = Arc::clone(&state);
        // Ends with the process: a test has only a few.
        thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                let shared = Arc::clone(&shared);
                thread::spawn(move || {
                    shared.lock().unwrap().connections += 1;
                    serve(stream, port, &shared);
                    shared.lock().unwrap().connections -= 1;
                });
            }
        });
        FakeBroker { port, state }
    }

    pub fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap()
    }

    /// Options that fail soon.
    pub fn options(&self) -> ScanOptions {
        let columns = [Column::Value, Column::Offset];
        ScanOptions {
            client: ClientConfig {
                bootstrap: vec![Address {
                    host: "127.0.0.1".into(),
                    port: self.port,
                }],
                client_id: "test".into(),
                connect_timeout: Duration::from_secs(5),
                request_timeout: Duration::from_secs(5),
                security: Default::default(),
            },
            topics: vec![TopicPartitions {
                topic: TOPIC.into(),
                partitions: None,
            }],
            topic_ids: HashMap::new(),
            start: Position::Earliest,
            end: Position::Latest,
            starts: HashMap::new(),
            ends: HashMap::new(),
            columns: Arc::new(Columns::new(&columns)),
            decode: None,
            isolation: Isolation::ReadCommitted,
            rack: String::new(),
            missing: Missing::Fail,
            unanswered: Unanswered::Fail,
            threads: 2,
            batch_rows: 1000,
            batch_bytes: 1 << 20,
            memory_bytes: 16 << 20,
            large_bytes: 32 << 20,
            timeout: Duration::from_secs(20),
            check_crcs: true,
        }
    }
}

/// Plans and starts. A scan that hangs ends as interrupted.
pub fn start(options: ScanOptions) -> Result<ScanReader> {
    let started = Instant::now();
    let interrupt = Box::new(move || started.elapsed() > PATIENCE);
    ScanReader::start(
        plan(options, Cancel::new().unwrap())?,
        None,
        Some(interrupt),
    )
}

/// The offsets of all rows, and the figures.
pub fn read(options: ScanOptions) -> Result<(Vec<i64>, Status)> {
    let mut reader = start(options)?;
    let status = reader.status();
    let mut offsets = Vec::new();
    while let Some(batch) = reader.next_batch()? {
        offsets.extend(offsets_of(&batch));
    }
    Ok((offsets, status))
}

pub fn offsets_of(batch: &RecordBatch) -> Vec<i64> {
    let column = batch.column_by_name("offset").unwrap();
    column.as_primitive::<Int64Type>().values().to_vec()
}

fn serve(mut stream: TcpStream, port: u16, state: &Mutex<State>) {
    while let Some(frame) = read_frame(&mut stream) {
        let (header, body_at) = RequestHeader::parse(&frame).unwrap();
        let (api, version) = (header.api_key, header.api_version);
        let mut out = Vec::new();
        encode_response_header(&mut out, api, version, header.correlation_id);
        let body = &frame[body_at..];
        match api {
            key::API_VERSIONS => answer_versions(&mut out, version, state),
            key::METADATA => answer_metadata(&mut out, version, port, state),
            key::LIST_OFFSETS => answer_offsets(&mut out, version, body, state),
            key::OFFSET_FOR_LEADER_EPOCH => answer_epochs(&mut out, version, state),
            key::FETCH => {
                if !answer_fetch(&mut out, version, &frame, body_at, state, &mut stream) {
                    stream.shutdown(Shutdown::Both).ok();
                    return;
                }
            }
            other => panic!("API {other}"),
        }
        let len = (out.len() as i32).to_be_bytes();
        let pieces = match api {
            key::FETCH => state.lock().unwrap().pieces,
            _ => 1,
        };
        if send(&mut stream, &[&len[..], &out].concat(), pieces).is_err() {
            return;
        }
    }
}

fn send(stream: &mut TcpStream, frame: &[u8], pieces: usize) -> std::io::Result<()> {
    for piece in frame.chunks(frame.len().div_ceil(pieces)) {
        stream.write_all(piece)?;
        if pieces > 1 {
            thread::sleep(PAUSE);
        }
    }
    Ok(())
}

/// Until the other side hangs up.
fn drip(stream: &mut TcpStream, bytes: i32, piece: usize, state: &Mutex<State>) {
    let frame = [&bytes.to_be_bytes()[..], &vec![0; bytes as usize]].concat();
    for piece in frame.chunks(piece) {
        if stream.write_all(piece).is_err() {
            return;
        }
        state.lock().unwrap().dripped += piece.len();
        thread::sleep(PAUSE);
    }
}

fn read_frame(stream: &mut TcpStream) -> Option<Vec<u8>> {
    let mut len = [0; 4];
    stream.read_exact(&mut len).ok()?;
    let mut frame = vec![0; i32::from_be_bytes(len) as usize];
    stream.read_exact(&mut frame).ok()?;
    Some(frame)
}

fn answer_versions(out: &mut Vec<u8>, version: i16, state: &Mutex<State>) {
    let barrier = state.lock().unwrap().barrier.clone();
    if let Some(barrier) = barrier {
        barrier.wait();
    }
    let mut response = ApiVersionsResponse::of_table(Offer::default());
    for (api, (min_version, max_version)) in &state.lock().unwrap().ranges {
        response.apis.retain(|one| one.key != *api);
        response.apis.push(ApiVersion {
            key: *api,
            min_version: *min_version,
            max_version: *max_version,
        });
    }
    response.encode(out, version);
}

fn answer_metadata(out: &mut Vec<u8>, version: i16, port: u16, state: &Mutex<State>) {
    let state = state.lock().unwrap();
    let partition = |(index, leader): (usize, &i32)| MetadataPartition {
        error_code: ErrorCode::NONE,
        index: index as i32,
        leader_id: *leader,
        leader_epoch: state.leader_epoch,
        replicas: vec![*leader].into(),
        isr: vec![*leader].into(),
        offline: vec![].into(),
    };
    let partitions = state.leaders.iter().enumerate().map(partition);
    let broker = |(node_id, other): &(i32, u16)| NodeEndpoint {
        node_id: *node_id,
        host: "127.0.0.1",
        port: match other {
            0 => port.into(),
            other => (*other).into(),
        },
        rack: None,
    };
    let response = MetadataResponse {
        head: MetadataHead {
            throttle_ms: 0,
            brokers: [(state.id, 0)]
                .iter()
                .chain(&state.others)
                .map(broker)
                .collect(),
            cluster_id: None,
            controller_id: 1,
        },
        topics: vec![MetadataTopic {
            error_code: match state.topic_id {
                Some(_) => ErrorCode::NONE,
                None => ErrorCode::UNKNOWN_TOPIC_OR_PARTITION,
            },
            name: Some(TOPIC),
            id: state.topic_id.unwrap_or_default(),
            is_internal: false,
            partitions: match state.topic_id {
                Some(_) => partitions.collect(),
                None => Vec::new(),
            },
            authorized_operations: i32::MIN,
        }],
        cluster_authorized_operations: i32::MIN,
    };
    response.encode(out, version);
}

fn answer_offsets(out: &mut Vec<u8>, version: i16, body: &[u8], state: &Mutex<State>) {
    let state = state.lock().unwrap();
    let request = ListOffsetsRequest::decode(body, version).unwrap();
    let answer = |asked: &ListOffsetsPartition| ListOffsetsPartitionResponse {
        index: asked.index,
        error_code: ErrorCode::NONE,
        timestamp: -1,
        offset: match asked.timestamp {
            -2 => state.log_start,
            -1 => state.high_watermark,
            _ => -1,
        },
        leader_epoch: 1,
    };
    let more = (1000..1000 + state.more_partitions)
        .map(|index| ListOffsetsPartitionResponse::none(index, ErrorCode::NONE));
    let asked = request.topics[0].partitions.iter().map(answer);
    let response = ListOffsetsResponse {
        throttle_ms: 0,
        topics: vec![ListOffsetsTopicResponse {
            name: TOPIC,
            partitions: asked.chain(more).collect(),
        }],
    };
    response.encode(out, version);
}

fn answer_epochs(out: &mut Vec<u8>, version: i16, state: &Mutex<State>) {
    let state = state.lock().unwrap();
    let response = EpochResponse {
        throttle_ms: 0,
        topics: vec![EpochTopicResponse {
            name: TOPIC,
            partitions: vec![EpochPartitionResponse {
                error_code: ErrorCode::NONE,
                index: 0,
                leader_epoch: state.epoch_end.0,
                end_offset: state.epoch_end.1,
            }],
        }],
    };
    response.encode(out, version);
}

/// False if the connection is to be closed.
fn answer_fetch(
    out: &mut Vec<u8>,
    version: i16,
    frame: &[u8],
    body_at: usize,
    shared: &Mutex<State>,
    stream: &mut TcpStream,
) -> bool {
    let mut request = FetchRequest::default();
    request.decode(frame, body_at, version).unwrap();
    let partition = request.partitions[0];
    let mut state = shared.lock().unwrap();
    let number = state.fetches;
    state.fetches += 1;
    state.longest_wait_ms = state.longest_wait_ms.max(request.max_wait_ms);
    let offset = partition.fetch_offset;
    let mut reply = (state.script)(number, offset);
    if request.isolation_level == 0
        && let Some(records) = &state.uncommitted
    {
        reply = Reply::Records(records.clone());
    }
    if state.is_fencing && (0..state.leader_epoch).contains(&partition.current_leader_epoch) {
        reply = Reply::Error(ErrorCode::FENCED_LEADER_EPOCH);
    }
    let mut answer = FetchAnswer {
        code: ErrorCode::NONE,
        times: 1,
        throttle_ms: 0,
        preferred_read_replica: -1,
        topic_id: request.topics[0].id,
        partition: partition.index,
        records: Vec::new(),
    };
    match reply {
        Reply::Log => answer.records = from_log(&state, offset, partition.max_bytes as usize),
        Reply::Records(bytes) => answer.records = bytes,
        Reply::Error(error) => answer.code = error,
        Reply::Fenced(epoch) => {
            state.leader_epoch = epoch;
            answer.code = ErrorCode::FENCED_LEADER_EPOCH;
        }
        Reply::Twice => answer.times = 2,
        Reply::Other => answer.topic_id = [9; 16],
        Reply::Preferred(replica) => answer.preferred_read_replica = replica,
        Reply::Throttled(ms) => (answer.times, answer.throttle_ms) = (0, ms),
        Reply::Bytes(bytes) => {
            drop(state);
            stream.write_all(&bytes).ok();
            return false;
        }
        Reply::Drip { bytes, piece } => {
            drop(state);
            drip(stream, bytes, piece, shared);
            return false;
        }
        Reply::Silence => {
            drop(state);
            // Until the other side hangs up.
            stream.read_exact(&mut [0]).ok();
            return false;
        }
    }
    answer.write(out, version, &state);
    true
}

struct FetchAnswer {
    code: ErrorCode,
    /// How often it has the partition.
    times: usize,
    throttle_ms: i32,
    preferred_read_replica: i32,
    topic_id: [u8; 16],
    partition: i32,
    records: Vec<u8>,
}

impl FetchAnswer {
    fn write(&self, out: &mut Vec<u8>, version: i16, state: &State) {
        let head = FetchResponseHead {
            throttle_ms: self.throttle_ms,
            error_code: ErrorCode::NONE,
            session_id: 0,
        };
        let topics = usize::from(self.times > 0);
        let mut writer = FetchResponseWriter::begin(out, version, head, topics);
        if topics > 0 {
            writer.topic(TOPIC, &self.topic_id, self.times);
        }
        for _ in 0..self.times {
            let head = FetchPartitionHead {
                high_watermark: state.high_watermark,
                last_stable_offset: state.high_watermark,
                log_start_offset: state.log_start,
                preferred_read_replica: self.preferred_read_replica,
                ..FetchPartitionHead::failed(self.partition, self.code)
            };
            writer.partition_head(&head, Some(self.records.len()));
            writer.out().extend_from_slice(&self.records);
            writer.partition_tail(&FetchPartitionTail::default());
        }
        writer.end(&[]);
    }
}

/// Whole batches from the one that has the offset on, as many as fit, one at least.
fn from_log(state: &State, offset: i64, max_bytes: usize) -> Vec<u8> {
    let mut records = Vec::new();
    let first = state.log.partition_point(|(base, _)| *base <= offset);
    for (base, batch) in &state.log[first.saturating_sub(1)..] {
        if *base >= state.high_watermark
            || (!records.is_empty() && records.len() + batch.len() > max_bytes)
        {
            break;
        }
        records.extend_from_slice(batch);
    }
    records
}
