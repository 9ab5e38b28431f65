//! A replica that begins at its leader's end (`expansion.md`): what its fetcher asks before it
//! fetches, and how it becomes an ordinary one.

use std::sync::Arc;

use pyrklog_log::StartAtEnd;
use pyrklog_wire::ErrorCode;
use pyrklog_wire::api::key;
use pyrklog_wire::list_offsets::{
    EARLIEST_TIMESTAMP, ListOffsetsPartition, ListOffsetsRequest, ListOffsetsResponse,
    ListOffsetsTopic,
};
use pyrklog_wire::replica_start::{ReplicaStartRequest, ReplicaStartResponse};

use crate::follower::append_response::LIST_OFFSETS_VERSION;
use crate::follower::fetcher_queue::Fetchers;
use crate::follower::link::LinkError;
use crate::follower::truncation::{Cut, until_written};
use pyrklog_replica::partition::{Beginning, Standing};
use pyrklog_storage::checkpoints::CutLog;
use pyrklog_storage::log_dir_state::Partition;
use pyrklog_storage::log_loader::Command;
use pyrklog_storage::log_manager::LogManager;

/// Of the first brokers that have it.
const REPLICA_START_VERSION: i16 = 0;

/// What the leader is asked about one partition.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Question {
    /// Where and with what to start.
    Start,
    /// Its log start offset.
    LeadersStart,
}

/// What follows from the answer.
#[derive(Debug, PartialEq, Eq)]
pub enum Verdict {
    /// To be looked at again.
    Again,
    /// The log is to be cut so.
    Cut(Cut),
    /// To be asked again after a pause; with the reason if it should be logged.
    Later(Option<String>),
    /// There is a newer leader.
    Fenced,
}

impl Question {
    /// Of a partition that stands so; `None` if there is nothing to ask.
    pub fn of(standing: Standing) -> Option<Question> {
        match standing {
            Standing::NeedsStart => Some(Question::Start),
            Standing::NeedsLeadersStart => Some(Question::LeadersStart),
            Standing::Fetches | Standing::IsWhole => None,
        }
    }

    /// API key and version.
    pub fn api(self) -> (i16, i16) {
        match self {
            Question::Start => (key::REPLICA_START, REPLICA_START_VERSION),
            Question::LeadersStart => (key::LIST_OFFSETS, LIST_OFFSETS_VERSION),
        }
    }

    /// Appends the request's body.
    /// `fills`: this broker back-fills.
    pub fn encode(
        self,
        (broker, fills): (i32, bool),
        partition: &Partition,
        leader_epoch: i32,
        out: &mut Vec<u8>,
    ) {
        let (topic, index) = (&partition.topic, partition.index);
        match self {
            Question::Start => ReplicaStartRequest {
                replica_id: broker,
                topic: &topic.name,
                topic_id: topic.id,
                partition: index,
                current_leader_epoch: leader_epoch,
                fills_compacted: fills,
            }
            .encode(out, REPLICA_START_VERSION),
            Question::LeadersStart => ListOffsetsRequest {
                replica_id: broker,
                isolation_level: 0,
                topics: vec![ListOffsetsTopic {
                    name: &topic.name,
                    partitions: vec![ListOffsetsPartition {
                        index,
                        current_leader_epoch: leader_epoch,
                        timestamp: EARLIEST_TIMESTAMP,
                        max_offsets: 1,
                    }],
                }],
            }
            .encode(out, LIST_OFFSETS_VERSION),
        }
    }

    /// Takes the answer to a question in a leader epoch.
    ///
    /// # Errors
    /// Bytes that are no answer: the connection is useless.
    pub fn judge(
        self,
        partition: &Partition,
        leader_epoch: i32,
        body: &[u8],
    ) -> Result<Verdict, LinkError> {
        match self {
            Question::Start => {
                let response = ReplicaStartResponse::decode(body, REPLICA_START_VERSION)?;
                Ok(judge_start(partition, leader_epoch, &response))
            }
            Question::LeadersStart => {
                let response = ListOffsetsResponse::decode(body, LIST_OFFSETS_VERSION)?;
                let mut found = response.topics.iter().flat_map(|topic| &topic.partitions);
                let found = found.find(|found| found.index == partition.index);
                Ok(match found.map(|found| (found.error_code, found.offset)) {
                    Some((ErrorCode::NONE, start)) if start >= 0 => {
                        judge_leaders_start(partition, leader_epoch, start)
                    }
                    Some((error, _)) => refused(error),
                    None => Verdict::Later(None),
                })
            }
        }
    }
}

fn judge_start(
    partition: &Partition,
    leader_epoch: i32,
    response: &ReplicaStartResponse<'_>,
) -> Verdict {
    match response.error_code {
        ErrorCode::NONE => {}
        // Nothing would ever make it whole, or the leader thinks that it is.
        ErrorCode::POLICY_VIOLATION | ErrorCode::INVALID_REQUEST => {
            let mut state = partition.lock();
            if state.leader_epoch == leader_epoch {
                state.beginning = Beginning::Copies;
            }
            return Verdict::Again;
        }
        error => return refused(error),
    }
    let epochs = response.epochs.iter();
    let epochs = epochs.map(|entry| (entry.epoch, entry.start_offset));
    let producers = response.producers.unwrap_or_default();
    match StartAtEnd::received(response.start_offset, epochs, producers) {
        Ok(start) => Verdict::Cut(Cut::AtEnd(Arc::new(start))),
        Err(reason) => Verdict::Later(Some(format!("the leader's end: {reason}"))),
    }
}

fn judge_leaders_start(partition: &Partition, leader_epoch: i32, start: i64) -> Verdict {
    let mut state = partition.lock();
    if state.leader_epoch != leader_epoch {
        return Verdict::Again;
    }
    state.leader_log_start = state.leader_log_start.max(start);
    match state.standing() {
        Standing::NeedsLeadersStart => Verdict::Cut(Cut::Lacks(start)),
        _ => Verdict::Again,
    }
}

fn refused(error: ErrorCode) -> Verdict {
    match error {
        ErrorCode::FENCED_LEADER_EPOCH => Verdict::Fenced,
        ErrorCode::NOT_LEADER_OR_FOLLOWER
        | ErrorCode::UNKNOWN_LEADER_EPOCH
        | ErrorCode::UNKNOWN_TOPIC_OR_PARTITION
        | ErrorCode::INCONSISTENT_TOPIC_ID
        | ErrorCode::KAFKA_STORAGE_ERROR
        | ErrorCode::OFFSET_NOT_AVAILABLE => Verdict::Later(None),
        error => Verdict::Later(Some(format!("the leader answers {error:?}"))),
    }
}

/// Says on the disk that the log lacks nothing any more, then follows again, as an ordinary
/// replica. Only then the leader hears where the log begins: no member of the ISR has the file.
pub fn submit_whole(
    logs: &Arc<LogManager>,
    fetchers: &Arc<dyn Fetchers>,
    partition: Arc<Partition>,
) {
    let fetchers = Arc::clone(fetchers);
    let command = Command::about(partition, logs, move |logs, partition| {
        become_whole(logs, partition);
        fetchers.follow(partition);
    });
    logs.loader.submit([command]);
}

fn become_whole(logs: &Arc<LogManager>, partition: &Partition) {
    let (cut_log, job) = {
        let state = partition.lock();
        let is_whole = state.standing() == Standing::IsWhole;
        let Some(log) = state.log.as_ref().filter(|_| is_whole) else {
            return;
        };
        // What came from elsewhere was compacted there: the own cleaner knows nothing of it.
        (CutLog::of(log).not_compacted(), log.whole_job())
    };
    let Some(job) = job else { return };
    // Once the file is gone, the next start believes the checkpoint: with a log start from before a
    // back-fill it would delete what was joined.
    let (topic, index) = (&*partition.topic.name, partition.index);
    let is_written = until_written(logs, partition, || {
        partition.dir().write_cut(topic, index, cut_log)?;
        job.execute()
    });
    if !is_written {
        return;
    }
    if let Some(log) = &mut partition.lock().log {
        log.become_whole();
    }
    let fields = vec![
        ("topic", partition.topic.name.to_string()),
        ("partition", partition.index.to_string()),
    ];
    logs.events.notice("replica_whole", "info", fields);
}
