//! A ListOffsets request under way: answers, look-ups, partitions in doubt.

use std::collections::HashMap;
use std::sync::Arc;

use pyrklog_log::{Isolation, ReadError, SegmentStarts, TimeQuery, TimeSpec, Wait};
use pyrklog_wire::ErrorCode;
use pyrklog_wire::list_offsets::ListOffsetsPartitionResponse;

use crate::cold_reads::{ReadTicket, Reading};
use crate::reply_header::ReplyHeader;
use pyrklog_base::clock::Now;
use pyrklog_base::ids::Token;
use pyrklog_base::mailbox::Mailbox;
use pyrklog_control::outbox::Outbox;
use pyrklog_replica::partition::{CONFIRMED_WITHIN_MS, DoubtWaiter};
use pyrklog_storage::log_dir_state::Partition;
use pyrklog_storage::reader_queue::{Job, ReaderWorker};

/// Since this version OFFSET_NOT_AVAILABLE means "retry" (KIP-207).
const NOT_AVAILABLE_SINCE: i16 = 5;

/// A request with its answers so far. Outstanding look-ups have an error until they are back.
#[derive(Debug)]
pub struct DelayedListOffsets {
    /// Of its reply.
    pub header: ReplyHeader,
    /// When it is answered with what there is; monotonic milliseconds.
    pub deadline_ms: i64,
    /// Answers by topic.
    pub topics: Vec<(String, Vec<ListOffsetsPartitionResponse>)>,
    /// Look-ups at the readers.
    pub reading: Reading,
    /// How far it sees.
    pub isolation: Isolation,
    /// Followers answer only tools that compare replicas.
    pub of_leader_only: bool,
    /// When it arrived, monotonic milliseconds.
    pub asked_ms: i64,
    /// Version 0: further offsets of partitions, by positions of topic and partition.
    pub older: HashMap<(usize, usize), OlderOffsets>,
    /// Partitions that wait for followers; the last one is looked at first.
    pub doubtful: Vec<Doubtful>,
}

/// Version 0: offsets of a partition besides the one of its answer.
#[derive(Debug, Default)]
pub struct OlderOffsets {
    /// How many to name, with the answer's.
    pub max: usize,
    /// Where earlier segments begin, descending.
    pub starts: Vec<i64>,
}

/// What is looked up.
#[derive(Debug)]
pub enum LookUp {
    /// An offset by time.
    Time(TimeQuery),
    /// Version 0: starts of segments by time.
    Starts {
        /// The segments.
        starts: SegmentStarts,
        /// The time.
        timestamp: i64,
        /// How many offsets to name.
        max: usize,
    },
}

/// A partition whose latest offset waits until followers confirm this leader.
#[derive(Debug)]
pub struct Doubtful {
    /// The partition.
    pub hosted: Arc<Partition>,
    /// Position of its topic in the request.
    pub topic: usize,
    /// Its position in the topic.
    pub partition: usize,
    /// The client's leader epoch.
    pub current_leader_epoch: i32,
}

/// A request's look-ups in one log directory.
#[derive(Debug)]
pub struct LookUpJob {
    /// Whose they are.
    pub ticket: ReadTicket,
    /// The look-ups.
    pub queries: Vec<Query>,
    /// Returns the job to its connection.
    pub mailbox: Arc<dyn Mailbox<Box<LookUpJob>>>,
}

impl Job for LookUpJob {
    fn run(mut self: Box<Self>, worker: &ReaderWorker<'_>, _buffer: &mut Vec<u8>) {
        self.look_up(worker);
        let mailbox = Arc::clone(&self.mailbox);
        mailbox.post(self.ticket.place, self);
    }

    fn is_abandoned(&self) -> bool {
        self.ticket.is_abandoned()
    }
}

/// One look-up.
#[derive(Debug)]
pub struct Query {
    /// Position of its topic in the request.
    pub topic: usize,
    /// Its partition's position in the topic.
    pub partition: usize,
    /// The log directory.
    pub dir: usize,
    /// What to look up.
    pub what: LookUp,
    /// The leader is new and may show less than its predecessor did.
    pub shows_less: bool,
    /// "Retry" at first.
    pub answer: ListOffsetsPartitionResponse,
    /// Version 0: offsets besides the answer's.
    pub older: Vec<i64>,
}

impl DelayedListOffsets {
    /// The answer until something is found.
    pub fn not_in_time(&self, index: i32) -> ListOffsetsPartitionResponse {
        ListOffsetsPartitionResponse::none(index, not_available(self.header.api_version))
    }

    /// Whether everything is answered.
    pub fn is_done(&self) -> bool {
        self.reading.is_done() && self.doubtful.is_empty()
    }

    /// When to answer with what there is.
    pub fn due_ms(&self) -> i64 {
        match self.doubtful.is_empty() {
            true => self.deadline_ms,
            false => self.deadline_ms.min(self.asked_ms + CONFIRMED_WITHIN_MS),
        }
    }

    /// Adds the waiter to each of these partitions and asks their followers.
    pub fn ask_followers(&self, waiter: DoubtWaiter, doubtful: &[Doubtful], outbox: &mut Outbox) {
        for one in doubtful {
            let mut state = one.hosted.lock();
            state.ask_followers_for(waiter, self.asked_ms, outbox);
        }
    }

    /// Answers partitions no longer in doubt. Each such change wakes the request, so looking at the
    /// last one suffices.
    pub fn take_confirmed(&mut self) {
        while let Some(last) = self.doubtful.last() {
            let Some(answer) = self.look_again(last) else {
                return;
            };
            self.topics[last.topic].1[last.partition] = answer;
            self.doubtful.pop();
        }
    }

    /// `None` while in doubt.
    pub fn look_again(&self, one: &Doubtful) -> Option<ListOffsetsPartitionResponse> {
        let index = one.hosted.index;
        let failed = |error| Some(ListOffsetsPartitionResponse::none(index, error));
        let mut state = one.hosted.lock();
        if let Err(error) = state.led_in(one.current_leader_epoch) {
            return failed(error);
        }
        if state.is_in_doubt(self.asked_ms) {
            return None;
        }
        if !state.knows_latest() {
            return failed(not_available(self.header.api_version));
        }
        let log = state.led().ok()?;
        let query = log.offset_for_time(TimeSpec::Latest, self.isolation);
        drop(state);
        match answer(index, &query, Wait::Nowait) {
            Ok(answer) => Some(answer),
            Err(_) => failed(not_available(self.header.api_version)),
        }
    }

    /// Removes the waiters at partitions in doubt.
    pub fn forget_doubts(&self, token: Token) {
        for one in &self.doubtful {
            one.hosted.lock().remove_doubt_waiter(token);
        }
    }

    /// Number of partitions asked about.
    pub fn partition_count(&self) -> usize {
        let topics = self.topics.iter();
        topics.map(|(_, partitions)| partitions.len()).sum()
    }

    /// Takes a reader's result; true once everything is answered.
    pub fn take_back(&mut self, mut job: LookUpJob) -> bool {
        if !self.reading.take_back(&job.ticket) {
            return false;
        }
        for query in &mut job.queries {
            self.topics[query.topic].1[query.partition] = query.answer;
            if let Some(older) = self.older.get_mut(&(query.topic, query.partition)) {
                older.starts.append(&mut query.older);
            }
        }
        self.is_done()
    }

    /// The offsets that version 0 names for a partition.
    pub fn old_offsets(&self, topic: usize, partition: usize) -> Vec<i64> {
        let answer = &self.topics[topic].1[partition];
        let first = (answer.offset >= 0).then_some(answer.offset);
        let Some(older) = self.older.get(&(topic, partition)) else {
            // It waited for followers.
            return first.into_iter().collect();
        };
        let below = |start: &&i64| **start < answer.offset;
        let offsets = first.iter().chain(older.starts.iter().filter(below));
        offsets.take(older.max).copied().collect()
    }
}

impl LookUpJob {
    /// Looks up; waits for the disk.
    pub fn look_up(&mut self, worker: &ReaderWorker<'_>) {
        for query in &mut self.queries {
            if self.ticket.is_abandoned() {
                return;
            }
            self.ticket.step(worker);
            let index = query.answer.index;
            let found = match &query.what {
                LookUp::Time(time) => answer(index, time, Wait::Blocking).ok(),
                LookUp::Starts {
                    starts,
                    timestamp,
                    max,
                } => {
                    let found = starts.before(*timestamp, Now::read().wall_ms, *max);
                    found.ok().map(|offsets| {
                        let mut answer = ListOffsetsPartitionResponse::none(index, ErrorCode::NONE);
                        answer.offset = offsets.first().copied().unwrap_or(-1);
                        query.older = offsets;
                        answer
                    })
                }
            };
            let found = found.unwrap_or_else(|| {
                ListOffsetsPartitionResponse::none(index, ErrorCode::KAFKA_STORAGE_ERROR)
            });
            let is_missing = found.error_code == ErrorCode::NONE && found.offset < 0;
            if !(is_missing && query.shows_less) {
                query.answer = found;
            }
        }
    }
}

/// A look-up's result; `WouldBlock` if it may not wait but must read the disk.
///
/// # Errors
/// As [`TimeQuery::resolve`].
pub fn answer(
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

/// "Retry" as this version says it.
pub fn not_available(api_version: i16) -> ErrorCode {
    if api_version >= NOT_AVAILABLE_SINCE {
        ErrorCode::OFFSET_NOT_AVAILABLE
    } else {
        ErrorCode::LEADER_NOT_AVAILABLE
    }
}
