//! A produce request's answer while partitions await acknowledgement.

use std::borrow::Cow;
use std::sync::Arc;

use pyrklog_log::Appended;
use pyrklog_log::validate::{RECORD_ERRORS_MAX, ValidationError};
use pyrklog_wire::ErrorCode;
use pyrklog_wire::leader::{CurrentLeader, NodeEndpoint};
use pyrklog_wire::produce::{
    ProducePartition, ProducePartitionResponse, ProduceRequest, ProduceResponseWriter,
    ProduceTopic, RecordError,
};

use crate::produce::refused_batches::ProducerBatch;
use crate::reply_header::ReplyHeader;
use crate::request_time::RequestTime;
use pyrklog_control::image::Image;
use pyrklog_replica::partition::{ProduceWaiter, WaitFor};
use pyrklog_storage::log_dir_state::Partition;

/// Partitions whose memory a reused answer keeps.
const KEPT_PARTITIONS_MAX: usize = 64;

/// One partition of the current request.
#[derive(Clone, Copy, Debug)]
pub struct Item<'r> {
    /// Its position in the request.
    pub position: usize,
    /// Its data in the request.
    pub wanted: &'r ProducePartition,
    /// Its topic.
    pub topic: &'r ProduceTopic,
}

impl<'r> Item<'r> {
    /// The item at `position`. Panics beyond the request's partitions.
    pub fn of(request: &'r ProduceRequest, position: usize) -> Item<'r> {
        let wanted = &request.partitions[position];
        Item {
            position,
            wanted,
            topic: &request.topics[wanted.topic],
        }
    }
}

/// Why a partition's batch was refused.
#[derive(Debug)]
pub struct Refusal {
    /// Protocol error.
    pub error: ErrorCode,
    /// Reason, one sentence.
    pub message: Option<String>,
    /// Refused records: (index in the batch, reason).
    pub record_errors: Vec<(i32, String)>,
}

impl From<ErrorCode> for Refusal {
    fn from(error: ErrorCode) -> Refusal {
        Refusal {
            error,
            message: None,
            record_errors: Vec::new(),
        }
    }
}

impl From<ValidationError> for Refusal {
    fn from(error: ValidationError) -> Refusal {
        Refusal {
            error: error.code,
            message: Some(error.message),
            record_errors: error.record_errors,
        }
    }
}

impl Refusal {
    /// With a reason.
    pub fn with(error: ErrorCode, message: impl Into<String>) -> Refusal {
        Refusal {
            error,
            message: Some(message.into()),
            record_errors: Vec::new(),
        }
    }
}

/// The answer for one partition.
#[derive(Debug)]
pub struct PartitionAnswer {
    /// Topic name; shared with the partition if that exists.
    pub topic: Arc<str>,
    /// Whether it is its topic's first partition in the request.
    pub starts_topic: bool,
    /// What is sent; `current_leader` is added then.
    pub response: ProducePartitionResponse<'static>,
    /// The outstanding acknowledgement.
    waits: Option<Waiting>,
}

#[derive(Debug)]
struct Waiting {
    partition: Arc<Partition>,
    due: Due,
}

/// What an acknowledgement waits for.
#[derive(Clone, Copy, Debug)]
pub struct Due {
    /// The awaited event.
    pub what: WaitFor,
    /// Who is told.
    pub waiter: ProduceWaiter,
    /// The batch of an idempotent producer.
    pub batch: Option<ProducerBatch>,
}

/// A batch that was refused after its append.
#[derive(Debug)]
pub struct RefusedLate {
    /// Topic name.
    pub topic: Arc<str>,
    /// Partition index.
    pub index: i32,
    /// The batch.
    pub batch: ProducerBatch,
}

/// A batch's outcome: its append, and what its acknowledgement waits for.
pub type Appending = Result<(Appended, Option<Due>), Refusal>;

impl PartitionAnswer {
    /// Sets the outcome of the batch in `partition`.
    pub fn set_outcome(&mut self, outcome: Appending, partition: Option<Arc<Partition>>) {
        let response = &mut self.response;
        match outcome {
            Ok((appended, due)) => {
                response.base_offset = appended.base_offset;
                response.log_append_time_ms = appended.log_append_time_ms;
                response.log_start_offset = appended.log_start_offset;
                self.waits = due
                    .zip(partition)
                    .map(|(due, partition)| Waiting { partition, due });
            }
            Err(refusal) => {
                response.error_code = refusal.error;
                response.error_message = refusal.message.map(Into::into);
                let errors = refusal.record_errors.into_iter();
                response.record_errors = errors
                    .map(|(batch_index, message)| RecordError {
                        batch_index,
                        message: Some(message.into()),
                    })
                    .collect();
            }
        }
    }

    /// About its heap size.
    fn memory_bytes(&self) -> usize {
        let text_bytes = |text: &Option<Cow<'_, str>>| text.as_ref().map_or(0, |text| text.len());
        let errors = self.response.record_errors.iter();
        let error_bytes: usize = errors
            .map(|error| size_of_val(error) + text_bytes(&error.message))
            .sum();
        let message_bytes = text_bytes(&self.response.error_message);
        let name_bytes = if self.starts_topic {
            self.topic.len()
        } else {
            0
        };
        size_of::<PartitionAnswer>() + error_bytes + message_bytes + name_bytes
    }

    /// Adds a moved partition's leader (KIP-951).
    fn add_leader(&mut self, image: &Image) {
        if self.response.error_code == ErrorCode::NOT_LEADER_OR_FOLLOWER {
            let leader = image.leader(&self.topic, self.response.index);
            self.response.current_leader = leader.map(|(leader_id, leader_epoch)| CurrentLeader {
                leader_id,
                leader_epoch,
            });
        }
    }
}

/// See the module.
#[derive(Debug, Default)]
pub struct DelayedProduce {
    /// Of its reply.
    pub header: ReplyHeader,
    /// When it fails with REQUEST_TIMED_OUT; monotonic milliseconds.
    pub deadline_ms: i64,
    /// Partitions in request order.
    pub answers: Vec<PartitionAnswer>,
    /// What it took so far.
    pub time: RequestTime,
    waiting: usize,
    record_errors: usize,
    memory_bytes: usize,
}

impl DelayedProduce {
    /// Starts over for another request, keeping the memory.
    pub fn reset(&mut self, header: ReplyHeader, deadline_ms: i64) {
        self.header = header;
        self.deadline_ms = deadline_ms;
        self.clear();
    }

    /// Clears it and keeps a bounded part of the memory.
    pub fn clear(&mut self) {
        self.answers.clear();
        self.answers.shrink_to(KEPT_PARTITIONS_MAX);
        self.waiting = 0;
        self.record_errors = 0;
        self.memory_bytes = 0;
    }

    /// The next partition's answer, initially without error. `frame` holds the request.
    pub fn begin_answer(
        &self,
        partition: Option<&Partition>,
        item: Item<'_>,
        frame: &[u8],
    ) -> PartitionAnswer {
        let is_first = item.position == item.topic.first_partition;
        // Copies a topic's name once, however many partitions follow.
        let known = match partition {
            Some(partition) => Some(&partition.topic.name),
            None if is_first => None,
            None => self.answers.last().map(|answer| &answer.topic),
        };
        PartitionAnswer {
            topic: known.map_or_else(|| Arc::from(item.topic.name.text(frame)), Arc::clone),
            starts_topic: is_first,
            response: ProducePartitionResponse::failed(item.wanted.index, ErrorCode::NONE),
            waits: None,
        }
    }

    /// Record errors that the reply may still contain.
    pub fn record_errors_left(&self) -> usize {
        RECORD_ERRORS_MAX.saturating_sub(self.record_errors)
    }

    /// About its heap size; the reply needs no more.
    pub fn memory_bytes(&self) -> usize {
        self.memory_bytes
    }

    /// Adds a partition.
    pub fn push(&mut self, answer: PartitionAnswer) {
        self.waiting += usize::from(answer.waits.is_some());
        self.record_errors += answer.response.record_errors.len();
        self.memory_bytes += answer.memory_bytes();
        self.answers.push(answer);
    }

    /// Whether everything is acknowledged or refused.
    pub fn is_done(&self) -> bool {
        self.waiting == 0
    }

    /// Whether any partition was refused.
    pub fn has_error(&self) -> bool {
        self.answers
            .iter()
            .any(|answer| answer.response.error_code != ErrorCode::NONE)
    }

    /// A partition is acknowledged or refused late; returns a refused batch of an idempotent
    /// producer.
    pub fn complete_partition(&mut self, index: u32, error: ErrorCode) -> Option<RefusedLate> {
        let answer = self.answers.get_mut(index as usize)?;
        let waited = answer.waits.take()?;
        self.waiting -= 1;
        if error == ErrorCode::NONE {
            return None;
        }
        let index = answer.response.index;
        answer.response = ProducePartitionResponse::failed(index, error);
        waited.due.batch.map(|batch| RefusedLate {
            topic: Arc::clone(&answer.topic),
            index,
            batch,
        })
    }

    /// Timed out: refuses what is outstanding and removes its waiters.
    pub fn time_out(&mut self) {
        self.forget_waiters();
        for index in 0..self.answers.len() {
            self.complete_partition(index as u32, ErrorCode::REQUEST_TIMED_OUT);
        }
    }

    /// Removes its waiters at the partitions.
    pub fn forget_waiters(&self) {
        for waits in self
            .answers
            .iter()
            .filter_map(|answer| answer.waits.as_ref())
        {
            let mut state = waits.partition.lock();
            state.forget_waiter(waits.due.what, waits.due.waiter);
        }
    }

    /// Appends the response body. `image` and `listener` give the leaders of moved partitions
    /// (KIP-951).
    pub fn encode(&mut self, image: &Image, listener: &str, out: &mut Vec<u8>) {
        let mut leaders: Vec<i32> = Vec::new();
        for answer in &mut self.answers {
            answer.add_leader(image);
            if let Some(leader) = &answer.response.current_leader
                && !leaders.contains(&leader.leader_id)
            {
                leaders.push(leader.leader_id);
            }
        }
        let starts = self.answers.iter().filter(|answer| answer.starts_topic);
        let version = self.header.api_version;
        let mut writer = ProduceResponseWriter::begin(out, version, starts.count());
        for topic in self.answers.chunk_by(|_, next| !next.starts_topic) {
            writer.topic(&topic[0].topic, topic.len());
            for answer in topic {
                writer.partition(&answer.response);
            }
        }
        let endpoints: Vec<NodeEndpoint<'_>> = leaders
            .iter()
            .filter_map(|leader| image.endpoint(*leader, listener))
            .collect();
        writer.end(0, &endpoints);
    }
}
