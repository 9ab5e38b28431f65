//! ListOffsets: the ends of a log from memory, look-ups by time through the readers, those of each
//! log directory apart. A look-up that a directory does not answer in time gets an error that
//! clients try again after, so that the answers of others are not kept waiting.
//!
//! Where this broker may have been led around, the end that it knows is not the latest: its followers
//! confirm that it leads first (docs/cluster.md, section 7), or the client is to try again.

use std::collections::HashSet;
use std::sync::Arc;

use pyrklog_log::{Isolation, ReadError, TimeQuery, TimeSpec, Wait};
use pyrklog_wire::ErrorCode;
use pyrklog_wire::api::key;
use pyrklog_wire::header::{RequestHeader, encode_response_header};
use pyrklog_wire::list_offsets::{
    EARLIEST_LOCAL_TIMESTAMP, EARLIEST_TIMESTAMP, LATEST_TIERED_TIMESTAMP, LATEST_TIMESTAMP,
    ListOffsetsPartition, ListOffsetsPartitionResponse, ListOffsetsRequest, ListOffsetsResponse,
    ListOffsetsTopicResponse, MAX_TIMESTAMP,
};

use crate::base::clock::mono_ms;
use crate::base::ids::{DEBUGGING_REPLICA_ID, Place, Token};
use crate::base::mailbox::Mailbox;
use crate::control::policy::{self, Operation, Resource};
use crate::replica::partition::{CONFIRMED_WITHIN_MS, DoubtWaiter};
use crate::requests::client::{Client, Close, Exclusive};
use crate::requests::cold_reads::{ReadTicket, Reading};
use crate::requests::context::Context;
use crate::requests::context::borrow_memory;
use crate::requests::dispatch::Step;
use crate::requests::produce::why_not_held;
use crate::requests::reply_admission;
use crate::storage::log_dir::Partition;
use crate::storage::reader_queue::{Desk, Job};

/// The replica id of a consumer; any other one sees to the log's end.
const CONSUMER_REPLICA_ID: i32 = -1;

/// How long look-ups may take; clients give a request up after 30 s.
const LOOK_UP_MAX_MS: i64 = 15_000;

/// The version from which OFFSET_NOT_AVAILABLE says "try again" (KIP-207).
const NOT_AVAILABLE_SINCE: i16 = 5;

/// A request with its answers so far. Those of look-ups that are due hold an error until they come.
#[derive(Debug)]
pub struct ListOffsetsWork {
    api_version: i16,
    correlation_id: i32,
    /// When it is answered with what there is; monotonic milliseconds.
    pub deadline_ms: i64,
    topics: Vec<(String, Vec<ListOffsetsPartitionResponse>)>,
    reading: Reading,
    isolation: Isolation,
    /// Followers answer none but those that compare replicas.
    of_leader_only: bool,
    asked_ms: i64,
    /// What waits for its followers; the last one is looked at first.
    doubtful: Vec<Doubtful>,
}

/// The latest offset of a partition, for which its followers have to confirm that this broker leads.
#[derive(Debug)]
struct Doubtful {
    held: Arc<Partition>,
    topic: usize,
    partition: usize,
    current_leader_epoch: i32,
}

/// Look-ups of one request in one log directory.
#[derive(Debug)]
pub struct LookUpJob {
    /// Whose they are.
    pub ticket: ReadTicket,
    queries: Vec<Query>,
    /// Takes it back to its connection.
    mailbox: Arc<dyn Mailbox<Box<LookUpJob>>>,
}

impl Job for LookUpJob {
    fn run(mut self: Box<Self>, desk: &Desk<'_>, _buffer: &mut Vec<u8>) {
        self.look_up(desk);
        let mailbox = Arc::clone(&self.mailbox);
        mailbox.post(self.ticket.place, self);
    }

    fn is_abandoned(&self) -> bool {
        self.ticket.is_abandoned()
    }
}

#[derive(Debug)]
struct Query {
    topic: usize,
    partition: usize,
    dir: usize,
    time: TimeQuery,
    /// See [`Found::Later`].
    shows_less: bool,
    /// "Try again" at first.
    answer: ListOffsetsPartitionResponse,
}

/// What one partition gives at once.
enum Found {
    Answer(ListOffsetsPartitionResponse),
    Later {
        /// The log directory.
        dir: usize,
        /// The look-up.
        time: TimeQuery,
        /// The leader is new and may show less than the one before did: what it does not find may be there.
        shows_less: bool,
    },
    /// The followers are to confirm that this broker leads.
    Doubtful(Arc<Partition>),
}

/// Serves a request.
pub fn handle(
    cx: &mut Context,
    client: &mut Client,
    header: RequestHeader<'_>,
    frame: &[u8],
    body_start: usize,
) -> Result<Step, Close> {
    let RequestHeader {
        api_version,
        correlation_id,
        ..
    } = header;
    let request = ListOffsetsRequest::decode(&frame[body_start..], api_version)
        .map_err(|error| Close::Protocol(format!("ListOffsets v{api_version}: {error}")))?;
    let partitions = request.topics.iter().map(|topic| topic.partitions.len());
    let each_bytes = reply_admission::OTHER_PARTITION_BYTES;
    if !reply_admission::admit_partitions(cx, client, partitions.sum(), each_bytes)? {
        return Ok(Step::Wait);
    }
    client.last_wait += 1;
    // Not when the turn began: the process may have stood still since, and been led around.
    let now_ms = mono_ms();
    let mut work = ListOffsetsWork {
        api_version,
        correlation_id,
        deadline_ms: now_ms + LOOK_UP_MAX_MS,
        topics: Vec::new(),
        reading: Reading::new(client.last_wait, now_ms),
        isolation: isolation(&request),
        of_leader_only: request.replica_id != DEBUGGING_REPLICA_ID,
        asked_ms: now_ms,
        doubtful: Vec::new(),
    };
    let queries = look_all(cx, client, &request, &mut work);
    hand_over(cx, client, &mut work, queries);
    work.ask_followers(cx, client.token, client.last_wait, &work.doubtful);
    work.take_confirmed();
    if work.is_done() {
        work.forget_doubts(client.token);
        finish(client, &work)?;
    } else {
        cx.timers
            .want(client.token, work.due_ms(), &mut client.timer_ms);
        client.exclusive = Some(Exclusive::ListOffsets(Box::new(work)));
    }
    Ok(Step::Taken)
}

/// Answers what can be answered at once; returns the look-ups that remain.
fn look_all(
    cx: &Context,
    client: &Client,
    request: &ListOffsetsRequest<'_>,
    work: &mut ListOffsetsWork,
) -> Vec<Query> {
    let mut queries = Vec::new();
    let mut seen = HashSet::new();
    for topic in &request.topics {
        let mut answers = Vec::with_capacity(topic.partitions.len());
        for wanted in &topic.partitions {
            let found = if seen.insert((topic.name, wanted.index)) {
                look(cx, client, topic.name, wanted, work)
            } else {
                Err(ErrorCode::INVALID_REQUEST)
            };
            answers.push(match found {
                Ok(Found::Answer(answer)) => answer,
                Ok(Found::Later {
                    dir,
                    time,
                    shows_less,
                }) => {
                    let answer = work.not_in_time(wanted.index);
                    queries.push(Query {
                        topic: work.topics.len(),
                        partition: answers.len(),
                        dir,
                        time,
                        shows_less,
                        answer,
                    });
                    answer
                }
                Ok(Found::Doubtful(held)) => {
                    work.doubtful.push(Doubtful {
                        held,
                        topic: work.topics.len(),
                        partition: answers.len(),
                        current_leader_epoch: wanted.current_leader_epoch,
                    });
                    work.not_in_time(wanted.index)
                }
                Err(error) => ListOffsetsPartitionResponse::none(wanted.index, error),
            });
        }
        work.topics.push((topic.name.to_owned(), answers));
    }
    queries
}

fn isolation(request: &ListOffsetsRequest<'_>) -> Isolation {
    match (request.replica_id, request.isolation_level) {
        (CONSUMER_REPLICA_ID, 0) => Isolation::HighWatermark,
        (CONSUMER_REPLICA_ID, _) => Isolation::Committed,
        _ => Isolation::LogEnd,
    }
}

/// Gives each directory's look-ups to its readers, unless they stand still.
fn hand_over(cx: &Context, client: &Client, work: &mut ListOffsetsWork, mut queries: Vec<Query>) {
    let readers = &cx.services.readers;
    let place = Place {
        thread: cx.thread,
        token: client.token,
    };
    while let Some(first) = queries.first() {
        let dir = first.dir;
        let queries = queries.extract_if(.., |query| query.dir == dir).collect();
        let queue = readers.for_look_up(dir);
        if !readers.queue(queue).accepts(cx.now.mono_ms) {
            continue;
        }
        let ticket = work.reading.ticket(place, queue);
        let job = LookUpJob {
            ticket: ticket.clone(),
            queries,
            mailbox: Arc::clone(&cx.services.mailboxes.look_ups),
        };
        if readers.submit(queue, Box::new(job)).is_ok() {
            work.reading.add(&ticket);
        }
    }
}

/// The special timestamps, each with the version that brought it.
fn is_known(timestamp: i64, api_version: i16) -> bool {
    match timestamp {
        0.. | LATEST_TIMESTAMP | EARLIEST_TIMESTAMP => true,
        MAX_TIMESTAMP => api_version >= 7,
        EARLIEST_LOCAL_TIMESTAMP => api_version >= 8,
        LATEST_TIERED_TIMESTAMP => api_version >= 9,
        _ => false,
    }
}

fn look(
    cx: &Context,
    client: &Client,
    topic: &str,
    wanted: &ListOffsetsPartition,
    work: &ListOffsetsWork,
) -> Result<Found, ErrorCode> {
    let (isolation, api_version) = (work.isolation, work.api_version);
    let resource = Resource::Topic(topic);
    if !policy::authorize(&cx.image, &client.principal, Operation::Describe, resource) {
        return Err(ErrorCode::TOPIC_AUTHORIZATION_FAILED);
    }
    if !is_known(wanted.timestamp, api_version) {
        return Err(ErrorCode::UNSUPPORTED_VERSION);
    }
    let partition = cx
        .held
        .partition(topic, wanted.index)
        .ok_or_else(|| why_not_held(cx, topic, wanted.index))?;
    let mut state = partition.lock();
    state.shown_in(wanted.current_leader_epoch, work.of_leader_only)?;
    // What the leader of an earlier epoch has shown may lie above the high watermark.
    let shows_less = isolation != Isolation::LogEnd && !state.knows_latest();
    if wanted.timestamp == LATEST_TIMESTAMP && shows_less {
        return Err(not_available(api_version));
    }
    let is_latest = wanted.timestamp == LATEST_TIMESTAMP && isolation != Isolation::LogEnd;
    if is_latest && state.is_in_doubt(work.asked_ms) {
        return Ok(Found::Doubtful(Arc::clone(partition)));
    }
    let log = state.shown(work.of_leader_only)?;
    if wanted.timestamp == LATEST_TIERED_TIMESTAMP {
        // Nothing is tiered.
        return Ok(Found::Answer(ListOffsetsPartitionResponse::none(
            wanted.index,
            ErrorCode::NONE,
        )));
    }
    let spec = TimeSpec::from_wire(wanted.timestamp).ok_or(ErrorCode::UNSUPPORTED_VERSION)?;
    let query = log.offset_for_time(spec, isolation);
    drop(state);
    let dir = partition.dir.index;
    match wanted.timestamp {
        EARLIEST_TIMESTAMP | LATEST_TIMESTAMP | EARLIEST_LOCAL_TIMESTAMP => {
            match answer(wanted.index, &query, Wait::Nowait) {
                Ok(answer) => Ok(Found::Answer(answer)),
                Err(ReadError::WouldBlock) => Ok(Found::Later {
                    dir,
                    time: query,
                    shows_less: false,
                }),
                Err(_) => Err(ErrorCode::KAFKA_STORAGE_ERROR),
            }
        }
        _ => Ok(Found::Later {
            dir,
            time: query,
            shows_less,
        }),
    }
}

fn answer(
    index: i32,
    query: &TimeQuery,
    wait: Wait,
) -> Result<ListOffsetsPartitionResponse, ReadError> {
    let mut answer = ListOffsetsPartitionResponse::none(index, ErrorCode::NONE);
    if let Some(found) = query.resolve(wait)? {
        answer.timestamp = found.timestamp;
        answer.offset = found.offset;
        answer.leader_epoch = found.leader_epoch;
    }
    Ok(answer)
}

/// "Try again", in the words of the request's version.
fn not_available(api_version: i16) -> ErrorCode {
    if api_version >= NOT_AVAILABLE_SINCE {
        ErrorCode::OFFSET_NOT_AVAILABLE
    } else {
        ErrorCode::LEADER_NOT_AVAILABLE
    }
}

impl ListOffsetsWork {
    /// The answer while nothing is found yet.
    fn not_in_time(&self, index: i32) -> ListOffsetsPartitionResponse {
        ListOffsetsPartitionResponse::none(index, not_available(self.api_version))
    }

    fn is_done(&self) -> bool {
        self.reading.is_done() && self.doubtful.is_empty()
    }

    /// When to answer with what there is.
    pub fn due_ms(&self) -> i64 {
        match self.doubtful.is_empty() {
            true => self.deadline_ms,
            false => self.deadline_ms.min(self.asked_ms + CONFIRMED_WITHIN_MS),
        }
    }

    /// Leaves a waiter at each of these, and asks their followers.
    fn ask_followers(&self, cx: &mut Context, token: Token, wait: u64, doubtful: &[Doubtful]) {
        let place = Place {
            thread: cx.thread,
            token,
        };
        let waiter = DoubtWaiter { place, wait };
        for one in doubtful {
            let mut state = one.held.lock();
            state.ask_followers_for(waiter, self.asked_ms, &mut cx.outbox);
        }
    }

    /// Answers what is in doubt no longer. Each one that is brings the request here, so that it is enough to
    /// look at the last.
    fn take_confirmed(&mut self) {
        while let Some(last) = self.doubtful.last() {
            let Some(answer) = self.look_again(last) else {
                return;
            };
            self.topics[last.topic].1[last.partition] = answer;
            self.doubtful.pop();
        }
    }

    /// `None` while it is in doubt.
    fn look_again(&self, one: &Doubtful) -> Option<ListOffsetsPartitionResponse> {
        let index = one.held.index;
        let failed = |error| Some(ListOffsetsPartitionResponse::none(index, error));
        let mut state = one.held.lock();
        if let Err(error) = state.led_in(one.current_leader_epoch) {
            return failed(error);
        }
        if state.is_in_doubt(self.asked_ms) {
            return None;
        }
        if !state.knows_latest() {
            return failed(not_available(self.api_version));
        }
        let log = state.led().ok()?;
        let query = log.offset_for_time(TimeSpec::Latest, self.isolation);
        drop(state);
        match answer(index, &query, Wait::Nowait) {
            Ok(answer) => Some(answer),
            Err(_) => failed(not_available(self.api_version)),
        }
    }

    /// Nobody waits for followers any more.
    pub fn forget_doubts(&self, token: Token) {
        for one in &self.doubtful {
            one.held.lock().remove_doubt_waiter(token);
        }
    }

    /// Partitions that were asked about.
    pub fn partition_count(&self) -> usize {
        let topics = self.topics.iter();
        topics.map(|(_, partitions)| partitions.len()).sum()
    }

    /// Takes what a reader found; true once everything is back.
    fn take_back(&mut self, job: &LookUpJob) -> bool {
        if !self.reading.take_back(&job.ticket) {
            return false;
        }
        for query in &job.queries {
            self.topics[query.topic].1[query.partition] = query.answer;
        }
        self.is_done()
    }
}

impl LookUpJob {
    /// Does the look-ups; waits for the disk.
    pub fn look_up(&mut self, desk: &Desk<'_>) {
        for query in &mut self.queries {
            if self.ticket.is_abandoned() {
                return;
            }
            self.ticket.step(desk);
            let index = query.answer.index;
            let found = answer(index, &query.time, Wait::Blocking).unwrap_or_else(|_| {
                ListOffsetsPartitionResponse::none(index, ErrorCode::KAFKA_STORAGE_ERROR)
            });
            let is_missing = found.error_code == ErrorCode::NONE && found.offset < 0;
            if !(is_missing && query.shows_less) {
                query.answer = found;
            }
        }
    }
}

/// A reader has looked up times.
pub fn finish_look_up(cx: &mut Context, client: &mut Client, job: &LookUpJob) -> Result<(), Close> {
    let is_whole = match &mut client.exclusive {
        Some(Exclusive::ListOffsets(work)) => work.take_back(job),
        _ => false,
    };
    if is_whole {
        answer_now(cx, client)?;
    }
    Ok(())
}

/// Followers have confirmed that this broker leads a partition, or it leads no more.
pub fn wake(cx: &mut Context, client: &mut Client, wait: u64) -> Result<(), Close> {
    let Some(Exclusive::ListOffsets(work)) = &mut client.exclusive else {
        return Ok(());
    };
    if !work.reading.is_number(wait) {
        return Ok(());
    }
    work.take_confirmed();
    if work.is_done() {
        return answer_now(cx, client);
    }
    // What it was woken for may have begun anew, in another epoch.
    let last = work.doubtful.len().saturating_sub(1);
    work.ask_followers(cx, client.token, wait, &work.doubtful[last..]);
    Ok(())
}

/// Followers have not confirmed in time, or readers have not: those partitions are to be asked for again.
pub fn expire(cx: &mut Context, client: &mut Client) -> Result<(), Close> {
    let Some(Exclusive::ListOffsets(work)) = &mut client.exclusive else {
        return Ok(());
    };
    work.forget_doubts(client.token);
    work.doubtful.clear();
    match work.is_done() || work.deadline_ms <= cx.now.mono_ms {
        true => answer_now(cx, client),
        false => Ok(()),
    }
}

/// Answers the request under way with what there is.
pub fn answer_now(cx: &mut Context, client: &mut Client) -> Result<(), Close> {
    if let Some(Exclusive::ListOffsets(work)) = client.exclusive.take() {
        work.forget_doubts(client.token);
        borrow_memory(cx, client);
        finish(client, &work)?;
    }
    Ok(())
}

/// Queues the response.
fn finish(client: &mut Client, work: &ListOffsetsWork) -> Result<(), Close> {
    let response = ListOffsetsResponse {
        throttle_ms: 0,
        topics: work
            .topics
            .iter()
            .map(|(name, partitions)| ListOffsetsTopicResponse {
                name,
                partitions: partitions.clone(),
            })
            .collect(),
    };
    let open = client.out.begin_frame();
    let out = client.out.memory();
    encode_response_header(
        out,
        key::LIST_OFFSETS,
        work.api_version,
        work.correlation_id,
    );
    response.encode(out, work.api_version);
    client.out.end_frame(open)
}
