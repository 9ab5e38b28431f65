//! OffsetForLeaderEpoch (KIP-101, KIP-320): an epoch's end offset in this log.

use pyrklog_wire::ErrorCode;
use pyrklog_wire::offset_for_leader_epoch::{
    EpochPartition, EpochPartitionResponse, EpochRequest, EpochResponse, EpochTopicResponse,
};

use crate::admission;
use crate::context::Context;
use crate::handled::{Handled, Outcome};
use crate::out_queue::OutQueue;
use crate::request::Request;

/// Serves a request.
pub fn handle(cx: &mut Context, request: Request<'_>, out: &mut OutQueue) -> Handled {
    let api_version = request.header.api_version;
    let asked = request.decode(EpochRequest::decode)?;
    let partitions = asked.topics.iter().map(|topic| topic.partitions.len());
    let each_bytes = admission::OTHER_PARTITION_BYTES;
    admission::admit_partitions(cx, request.client, partitions.sum(), each_bytes)?;
    let mut topics = Vec::with_capacity(asked.topics.len());
    for topic in &asked.topics {
        let partitions = topic.partitions.iter();
        let answer = |wanted| answer(cx, topic.name, wanted);
        topics.push(EpochTopicResponse {
            name: topic.name,
            partitions: partitions.map(answer).collect(),
        });
    }
    let response = EpochResponse {
        throttle_ms: 0,
        topics,
    };
    request.reply(out, |body| response.encode(body, api_version))?;
    Ok(Outcome::Replied)
}

fn answer(cx: &Context, topic: &str, wanted: &EpochPartition) -> EpochPartitionResponse {
    let (error_code, (leader_epoch, end_offset)) = match find_epoch_end(cx, topic, wanted) {
        Ok(end) => (ErrorCode::NONE, end),
        Err(error) => (error, (-1, -1)),
    };
    EpochPartitionResponse {
        error_code,
        index: wanted.index,
        leader_epoch,
        end_offset,
    }
}

fn find_epoch_end(
    cx: &Context,
    topic: &str,
    wanted: &EpochPartition,
) -> Result<(i32, i64), ErrorCode> {
    let partition = cx
        .hosted
        .partition(topic, wanted.index)
        .ok_or_else(|| cx.why_not_hosted(topic, wanted.index))?;
    let mut state = partition.lock();
    let log = state.led_in(wanted.current_leader_epoch)?;
    Ok(log.end_offset_for_epoch(wanted.leader_epoch))
}
