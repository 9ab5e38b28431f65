//! The answer to a produce request, while its partitions wait to be acknowledged.

use std::sync::Arc;

use pyrklog_wire::ErrorCode;
use pyrklog_wire::leader::{CurrentLeader, NodeEndpoint};
use pyrklog_wire::produce::{ProducePartitionResponse, ProduceResponseWriter, RecordError};

use crate::image::Image;

/// What is to be said about one partition.
#[derive(Debug)]
pub struct PartitionAnswer {
    /// Topic name; shared with the partition where that exists.
    pub topic: Arc<str>,
    /// Whether the request starts a topic here.
    pub starts_topic: bool,
    /// Partition index.
    pub index: i32,
    /// Error so far.
    pub error: ErrorCode,
    /// First offset given, -1 with an error.
    pub base_offset: i64,
    /// -1 for CreateTime.
    pub log_append_time_ms: i64,
    /// -1 with an error.
    pub log_start_offset: i64,
    /// The text of a refusal.
    pub message: Option<String>,
    /// Which records were refused: (index in the batch, why).
    pub record_errors: Vec<(i32, String)>,
    /// Whether the acknowledgement is still due.
    pub is_waiting: bool,
}

impl PartitionAnswer {
    /// A refusal.
    pub fn failed(topic: Arc<str>, index: i32, error: ErrorCode) -> PartitionAnswer {
        PartitionAnswer {
            topic,
            starts_topic: false,
            index,
            error,
            base_offset: -1,
            log_append_time_ms: -1,
            log_start_offset: -1,
            message: None,
            record_errors: Vec::new(),
            is_waiting: false,
        }
    }

    /// Turns an acknowledgement that is due into a refusal.
    fn fail(&mut self, error: ErrorCode) {
        self.error = error;
        self.base_offset = -1;
        self.log_append_time_ms = -1;
        self.log_start_offset = -1;
    }
}

/// See the module.
#[derive(Debug, Default)]
pub struct PendingProduce {
    /// API version.
    pub api_version: i16,
    /// For the response header.
    pub correlation_id: i32,
    /// When it fails with REQUEST_TIMED_OUT; monotonic milliseconds.
    pub deadline_ms: i64,
    /// Partitions in the request's order.
    pub answers: Vec<PartitionAnswer>,
    waiting: usize,
}

impl PendingProduce {
    /// Starts over for another request, keeping the memory.
    pub fn reset(&mut self, api_version: i16, correlation_id: i32, deadline_ms: i64) {
        self.api_version = api_version;
        self.correlation_id = correlation_id;
        self.deadline_ms = deadline_ms;
        self.answers.clear();
        self.waiting = 0;
    }

    /// Adds a partition.
    pub fn push(&mut self, answer: PartitionAnswer) {
        self.waiting += usize::from(answer.is_waiting);
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
            .any(|answer| answer.error != ErrorCode::NONE)
    }

    /// One partition is acknowledged, or refused late.
    pub fn settle(&mut self, index: u32, error: ErrorCode) {
        let Some(answer) = self.answers.get_mut(index as usize) else {
            return;
        };
        if !answer.is_waiting {
            return;
        }
        answer.is_waiting = false;
        self.waiting -= 1;
        if error != ErrorCode::NONE {
            answer.fail(error);
        }
    }

    /// Time is up: what is still due is refused.
    pub fn time_out(&mut self) {
        for index in 0..self.answers.len() {
            self.settle(index as u32, ErrorCode::REQUEST_TIMED_OUT);
        }
    }

    /// Appends the response body. `image` and `listener` tell clients where a partition's leader
    /// went (KIP-951).
    pub fn encode(&self, image: &Image, listener: &str, out: &mut Vec<u8>) {
        let topic_count = self
            .answers
            .iter()
            .filter(|answer| answer.starts_topic)
            .count();
        let mut writer = ProduceResponseWriter::begin(out, self.api_version, topic_count);
        let mut leaders: Vec<i32> = Vec::new();
        for (position, answer) in self.answers.iter().enumerate() {
            if answer.starts_topic {
                let rest = &self.answers[position + 1..];
                let more = rest
                    .iter()
                    .take_while(|answer| !answer.starts_topic)
                    .count();
                writer.topic(&answer.topic, 1 + more);
            }
            let leader = answer.leader_hint(image);
            if let Some(leader) = &leader
                && !leaders.contains(&leader.leader_id)
            {
                leaders.push(leader.leader_id);
            }
            writer.partition(&answer.response(leader));
        }
        let endpoints: Vec<NodeEndpoint<'_>> = leaders
            .iter()
            .filter_map(|leader| image.endpoint(*leader, listener))
            .collect();
        writer.end(0, &endpoints);
    }
}

impl PartitionAnswer {
    fn leader_hint(&self, image: &Image) -> Option<CurrentLeader> {
        if self.error != ErrorCode::NOT_LEADER_OR_FOLLOWER {
            return None;
        }
        let (leader_id, leader_epoch) = image.leader(&self.topic, self.index)?;
        Some(CurrentLeader {
            leader_id,
            leader_epoch,
        })
    }

    fn response(&self, current_leader: Option<CurrentLeader>) -> ProducePartitionResponse<'_> {
        let record_errors: Vec<RecordError<'_>> = self
            .record_errors
            .iter()
            .map(|(batch_index, message)| RecordError {
                batch_index: *batch_index,
                message: Some(message.as_str().into()),
            })
            .collect();
        ProducePartitionResponse {
            index: self.index,
            error_code: self.error,
            base_offset: self.base_offset,
            log_append_time_ms: self.log_append_time_ms,
            log_start_offset: self.log_start_offset,
            record_errors,
            error_message: self.message.as_deref().map(Into::into),
            current_leader,
        }
    }
}
