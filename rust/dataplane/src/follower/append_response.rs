//! What an answer means for one partition: records to append, or an error.

use std::ops::Range;
use std::sync::Arc;

use pyrklog_log::validate::validate_replica;
use pyrklog_log::{AppendError, BatchInfo, Log, Origin};
use pyrklog_wire::ErrorCode;
use pyrklog_wire::batch::{BatchHeader, HEADER_LEN};
use pyrklog_wire::fetch::{EpochEndOffset, FetchPartitionResponse};
use pyrklog_wire::list_offsets::{
    ListOffsetsPartition, ListOffsetsRequest, ListOffsetsResponse, ListOffsetsTopic,
};

use crate::follower::fetch_state::{Ask, Key};
use crate::follower::link::LinkError;
use pyrklog_base::clock::Now;
use pyrklog_base::injected_faults::{Fault, is_injected};
use pyrklog_control::outbox::Outbox;
use pyrklog_replica::partition::{PartitionState, Role};
use pyrklog_storage::log_dir_state::Partition;
use pyrklog_storage::log_manager::LogManager;

/// Kafka's version between brokers of 3.9.
pub const LIST_OFFSETS_VERSION: i16 = 9;
const LATEST: i64 = -1;
const EARLIEST: i64 = -2;

/// The answer for one partition.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Answer {
    pub key: Key,
    pub ask: Ask,
    /// Range of its records in the answer's frame.
    pub records: Range<usize>,
    error: ErrorCode,
    diverging: Option<EpochEndOffset>,
    high_watermark: i64,
    log_start: i64,
}

impl Answer {
    /// From a decoded answer, whose bytes lie in `frame`.
    pub fn new(key: Key, ask: Ask, partition: &FetchPartitionResponse<'_>, frame: &[u8]) -> Answer {
        let records = partition.records.unwrap_or_default();
        let begin = match records.is_empty() {
            true => 0,
            false => records.as_ptr().addr() - frame.as_ptr().addr(),
        };
        Answer {
            key,
            ask,
            records: begin..begin + records.len(),
            error: partition.head.error_code,
            diverging: partition.tail.diverging_epoch,
            high_watermark: partition.head.high_watermark,
            log_start: partition.head.log_start_offset,
        }
    }
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum AppendOutcome {
    /// It was empty, or does not count any more.
    Nothing,
    Progress,
    /// To be asked again after a pause; with the reason if it should be logged.
    Later(Option<String>),
    Fenced,
    /// Our log has records that the leader's has not.
    Diverges(EpochEndOffset),
    /// Our log's end lies outside of the leader's log.
    OutOfRange,
    /// Our log is empty, and its first offset lies within a batch, since records were deleted up to
    /// there: the log is to begin where the batch does.
    BeginsAt(Box<Carried>),
}

/// An answer that can be appended once the log begins at the batch.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Carried {
    answer: Answer,
    records: Vec<u8>,
}

impl Carried {
    fn new(answer: &Answer, offset: i64, records: &[u8]) -> Carried {
        let ask = Ask {
            offset,
            log_start: offset,
            ..answer.ask
        };
        Carried {
            answer: Answer {
                ask,
                ..answer.clone()
            },
            records: records.to_vec(),
        }
    }

    /// Where the log is to begin.
    pub fn offset(&self) -> i64 {
        self.answer.ask.offset
    }

    /// Appends the answer; the log begins there now.
    pub fn append(mut self, logs: &LogManager, partition: &Arc<Partition>) -> AppendOutcome {
        append_answer(logs, partition, &self.answer, &mut self.records)
    }
}

/// Appends an answer's records, if it still counts.
pub fn append_answer(
    logs: &LogManager,
    partition: &Arc<Partition>,
    answer: &Answer,
    records: &mut [u8],
) -> AppendOutcome {
    match answer.error {
        ErrorCode::NONE => {}
        ErrorCode::OFFSET_OUT_OF_RANGE => return AppendOutcome::OutOfRange,
        ErrorCode::FENCED_LEADER_EPOCH => return AppendOutcome::Fenced,
        // The leader does not know its role yet, or leads no more.
        ErrorCode::NOT_LEADER_OR_FOLLOWER
        | ErrorCode::UNKNOWN_LEADER_EPOCH
        | ErrorCode::UNKNOWN_TOPIC_OR_PARTITION
        | ErrorCode::UNKNOWN_TOPIC_ID
        | ErrorCode::INCONSISTENT_TOPIC_ID
        | ErrorCode::KAFKA_STORAGE_ERROR
        | ErrorCode::OFFSET_NOT_AVAILABLE => return AppendOutcome::Later(None),
        error => return AppendOutcome::Later(Some(format!("the leader answers {error:?}"))),
    }
    // Records beside a diverging end belong to a log that differs from ours.
    if let Some(end) = answer.diverging
        && !is_injected(Fault::AppendDiverging)
    {
        return AppendOutcome::Diverges(end);
    }
    let batches = match checked(records, answer) {
        Ok(batches) => batches,
        Err(Unfit::Because(reason)) => return AppendOutcome::Later(Some(reason)),
        Err(Unfit::BeginsAt(offset)) => {
            return AppendOutcome::BeginsAt(Box::new(Carried::new(answer, offset, records)));
        }
    };
    append(logs, partition, answer, records, &batches)
}

enum Unfit {
    Because(String),
    /// The log is empty and begins within a batch, which begins here.
    BeginsAt(i64),
}

/// The whole batches, each with its range. Checks checksums, that offsets rise, and that epochs
/// neither fall nor exceed the leader's.
fn checked(records: &[u8], answer: &Answer) -> Result<Vec<(Range<usize>, BatchInfo)>, Unfit> {
    let mut batches = Vec::new();
    let mut begin = 0;
    let mut next_offset = answer.ask.offset;
    let mut last_epoch = answer.ask.last_epoch;
    while records.len() - begin >= HEADER_LEN {
        let rest = &records[begin..];
        let at = |error: &dyn std::fmt::Display| {
            Unfit::Because(format!("behind offset {next_offset}: {error}"))
        };
        let header = BatchHeader::parse(rest).map_err(|error| at(&error))?;
        let len = header.total_len();
        // The last batch may be incomplete.
        if len > rest.len() {
            break;
        }
        let info = validate_replica(&rest[..len]).map_err(|error| at(&error.message))?;
        let end = info.base_offset + i64::from(info.last_offset_delta) + 1;
        if end > next_offset {
            if info.base_offset < next_offset {
                let is_empty = answer.ask.log_start == answer.ask.offset;
                if is_empty && batches.is_empty() {
                    return Err(Unfit::BeginsAt(info.base_offset));
                }
                return Err(at(&format!("a batch that begins at {}", info.base_offset)));
            }
            if info.partition_leader_epoch < last_epoch
                || info.partition_leader_epoch > answer.ask.leader_epoch
            {
                return Err(at(&format!(
                    "a batch of epoch {}",
                    info.partition_leader_epoch
                )));
            }
            next_offset = end;
            last_epoch = info.partition_leader_epoch;
            batches.push((begin..begin + len, info));
        }
        begin += len;
    }
    Ok(batches)
}

fn append(
    logs: &LogManager,
    partition: &Arc<Partition>,
    answer: &Answer,
    records: &mut [u8],
    batches: &[(Range<usize>, BatchInfo)],
) -> AppendOutcome {
    let now_ms = Now::read().wall_ms;
    let mut outbox = logs.outbox();
    let mut state = partition.lock();
    let counts = state.role == Role::Follower
        && state.leader_epoch == answer.ask.leader_epoch
        && state.log.as_ref().map(Log::log_end_offset) == Some(answer.ask.offset);
    if !counts {
        return AppendOutcome::Nothing;
    }
    let log_start = state.log.as_ref().map(Log::log_start_offset);
    state.leader_high_watermark = answer.high_watermark;
    state.leader_log_start = answer.log_start;
    let mut outcome = AppendOutcome::Nothing;
    for (range, info) in batches {
        let batch = &mut records[range.clone()];
        match append_one(&mut state, partition, batch, info, now_ms, &mut outbox) {
            Ok(()) => outcome = AppendOutcome::Progress,
            // The log directory reports its own errors.
            Err(
                AppendError::Poisoned(_)
                | AppendError::ReadOnly
                | AppendError::Truncating
                | AppendError::Leaving,
            ) => {
                outcome = AppendOutcome::Later(None);
                break;
            }
            Err(error) => {
                outcome = AppendOutcome::Later(Some(error.to_string()));
                break;
            }
        }
    }
    // Consumers of this replica wait for the high watermark, not for the bytes.
    if state.raise_high_watermark(usize::MAX, &mut outbox) {
        partition.dir().syncer.high_watermark_moved();
    }
    if state.log.as_ref().map(Log::log_start_offset) != log_start {
        partition.dir().syncer.log_start_moved();
    }
    partition.unlock_and_write(state);
    outbox.deliver(logs);
    outcome
}

fn append_one(
    state: &mut PartitionState,
    partition: &Partition,
    batch: &mut [u8],
    info: &BatchInfo,
    now_ms: i64,
    outbox: &mut Outbox,
) -> Result<(), AppendError> {
    let leader_epoch = state.leader_epoch;
    if let Some(log) = &mut state.log {
        let appended = log.append(batch, info, Origin::Replication, leader_epoch, now_ms)?;
        state.appended(&appended, &**partition.dir(), outbox);
    }
    Ok(())
}

/// The leader's log start and log end offset; `None` if it does not say. `exchange` returns an
/// answer's frame and where its body begins.
pub fn ask_ends(
    broker: i32,
    partition: &Partition,
    leader_epoch: i32,
    mut exchange: impl FnMut(&ListOffsetsRequest<'_>) -> Result<(Vec<u8>, usize), LinkError>,
) -> Result<Option<(i64, i64)>, LinkError> {
    let mut ends = [0; 2];
    for (end, timestamp) in ends.iter_mut().zip([EARLIEST, LATEST]) {
        let request = ListOffsetsRequest {
            replica_id: broker,
            isolation_level: 0,
            topics: vec![ListOffsetsTopic {
                name: &partition.topic.name,
                partitions: vec![ListOffsetsPartition {
                    index: partition.index,
                    current_leader_epoch: leader_epoch,
                    timestamp,
                    max_offsets: 1,
                }],
            }],
        };
        let (frame, body) = exchange(&request)?;
        let response = ListOffsetsResponse::decode(&frame[body..], LIST_OFFSETS_VERSION)?;
        let found = response
            .topics
            .iter()
            .flat_map(|topic| &topic.partitions)
            .find(|found| found.index == partition.index);
        match found {
            Some(found) if found.error_code == ErrorCode::NONE && found.offset >= 0 => {
                *end = found.offset;
            }
            _ => return Ok(None),
        }
    }
    Ok(Some((ends[0], ends[1])))
}
