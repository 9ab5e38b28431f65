//! Offset commits that share a batch of `__consumer_offsets`, from append to answers.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use pyrklog_wire::ErrorCode;
use pyrklog_wire::offset_records;

use crate::control_request::ControlRequest;
use crate::offset_commit::OffsetCommit;
use crate::outbox::Outbox;
use crate::request_channel::RequestChannel;
use pyrklog_base::network_event::{Answer, NetworkEvent};

/// See the module.
#[derive(Debug)]
pub struct CommitBatch {
    commits: Vec<Arc<OffsetCommit>>,
    now_ms: i64,
    channel: Arc<RequestChannel>,
    is_answered: AtomicBool,
}

impl CommitBatch {
    /// Staged commits, stamped with `now_ms`.
    pub fn new(
        commits: Vec<Arc<OffsetCommit>>,
        now_ms: i64,
        channel: Arc<RequestChannel>,
    ) -> CommitBatch {
        CommitBatch {
            commits,
            now_ms,
            channel,
            is_answered: AtomicBool::new(false),
        }
    }

    /// Whether all are answered.
    pub fn is_answered(&self) -> bool {
        self.is_answered.load(Ordering::Acquire)
    }

    /// The records in order.
    pub fn records(&self) -> CommitRecords {
        let mut records = CommitRecords::default();
        for commit in &self.commits {
            let group_id = commit.membership().group_id;
            for (topic, partition, value) in commit.values(self.now_ms) {
                offset_records::encode_key(group_id, topic, partition, &mut records.bytes);
                let key_end = records.bytes.len();
                value.encode(&mut records.bytes);
                records.ends.push((key_end, records.bytes.len()));
            }
        }
        records
    }

    /// Unanswered commits now wait for replication and give up their places.
    pub fn park(&self, outbox: &mut Outbox) {
        let memory = &self.channel.waiting_memory().commits;
        for commit in &self.commits {
            let ControlRequest { session, body, .. } = &commit.request;
            commit.hold(|| memory.charge_anyway(session.host, body.len()));
            if let Some(next) = self.channel.park_charged(commit.request.id) {
                outbox.unblock(next);
            }
        }
    }

    /// The append is over: updates the tables and answers the clients.
    pub fn finish(&self, error: ErrorCode, base_offset: i64, outbox: &mut Outbox) {
        let mut next_offset = base_offset;
        for commit in &self.commits {
            next_offset = commit.finish(error, next_offset, self.now_ms);
        }
        self.answer(commit_error(error), outbox);
    }

    /// Answers the clients with a time-out; the records' outcome follows later.
    pub fn time_out(&self, outbox: &mut Outbox) {
        self.answer(commit_error(ErrorCode::REQUEST_TIMED_OUT), outbox);
    }

    fn answer(&self, error: ErrorCode, outbox: &mut Outbox) {
        if self.is_answered.swap(true, Ordering::AcqRel) {
            return;
        }
        for commit in &self.commits {
            answer(commit, error, &self.channel, outbox);
        }
    }
}

/// Keys and values, concatenated.
#[derive(Debug, Default)]
pub struct CommitRecords {
    bytes: Vec<u8>,
    ends: Vec<(usize, usize)>,
}

impl CommitRecords {
    /// (key, value) of each.
    pub fn iter(&self) -> impl Iterator<Item = (&[u8], Option<&[u8]>)> {
        let mut start = 0;
        self.ends.iter().map(move |&(key_end, end)| {
            let record = (&self.bytes[start..key_end], Some(&self.bytes[key_end..end]));
            start = end;
            record
        })
    }
}

fn answer(commit: &OffsetCommit, error: ErrorCode, channel: &RequestChannel, outbox: &mut Outbox) {
    let id = commit.request.id;
    let Some((place, next)) = channel.finish(id) else {
        return;
    };
    let event = NetworkEvent::Reply {
        token: place.token,
        request: id,
        answer: Answer::Body(commit.encode_answer(error), None),
    };
    outbox.push(place.thread, event);
    if let Some(next) = next {
        outbox.unblock(next);
    }
}

/// Kafka's error for offsets that could not be written. `groups/persistence.py` has the same table
/// for its own appends.
pub fn commit_error(error: ErrorCode) -> ErrorCode {
    match error {
        ErrorCode::UNKNOWN_TOPIC_OR_PARTITION
        | ErrorCode::NOT_ENOUGH_REPLICAS
        | ErrorCode::NOT_ENOUGH_REPLICAS_AFTER_APPEND => ErrorCode::COORDINATOR_NOT_AVAILABLE,
        ErrorCode::NOT_LEADER_OR_FOLLOWER
        | ErrorCode::FENCED_LEADER_EPOCH
        | ErrorCode::KAFKA_STORAGE_ERROR => ErrorCode::NOT_COORDINATOR,
        ErrorCode::NETWORK_EXCEPTION => ErrorCode::COORDINATOR_LOAD_IN_PROGRESS,
        ErrorCode::MESSAGE_TOO_LARGE
        | ErrorCode::RECORD_LIST_TOO_LARGE
        | ErrorCode::INVALID_FETCH_SIZE => ErrorCode::INVALID_COMMIT_OFFSET_SIZE,
        other => other,
    }
}
