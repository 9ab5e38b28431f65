//! OffsetForLeaderEpoch (KIP-101, KIP-320): where an epoch ended in this log.

use pyrklog_wire::ErrorCode;
use pyrklog_wire::api::key;
use pyrklog_wire::header::{RequestHeader, encode_response_header};
use pyrklog_wire::offset_for_leader_epoch::{
    EpochPartition, EpochPartitionResponse, EpochRequest, EpochResponse, EpochTopicResponse,
};

use crate::admission;
use crate::client::Client;
use crate::context::Context;
use crate::outcome::Close;
use crate::outcome::Step;
use pyrklog_control::policy::{self, Operation, Resource};

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
    let request = EpochRequest::decode(&frame[body_start..], api_version).map_err(|error| {
        Close::Protocol(format!("OffsetForLeaderEpoch v{api_version}: {error}"))
    })?;
    let partitions = request.topics.iter().map(|topic| topic.partitions.len());
    let each_bytes = admission::OTHER_PARTITION_BYTES;
    if !admission::admit_partitions(cx, client, partitions.sum(), each_bytes)? {
        return Ok(Step::Wait);
    }
    let mut topics = Vec::with_capacity(request.topics.len());
    for topic in &request.topics {
        let partitions = topic
            .partitions
            .iter()
            .map(|wanted| {
                let (error_code, (leader_epoch, end_offset)) =
                    match look(cx, client, topic.name, wanted) {
                        Ok(end) => (ErrorCode::NONE, end),
                        Err(error) => (error, (-1, -1)),
                    };
                EpochPartitionResponse {
                    error_code,
                    index: wanted.index,
                    leader_epoch,
                    end_offset,
                }
            })
            .collect();
        topics.push(EpochTopicResponse {
            name: topic.name,
            partitions,
        });
    }
    let open = client.out.begin_frame();
    let out = client.out.memory();
    encode_response_header(
        out,
        key::OFFSET_FOR_LEADER_EPOCH,
        api_version,
        correlation_id,
    );
    EpochResponse {
        throttle_ms: 0,
        topics,
    }
    .encode(out, api_version);
    client.out.end_frame(open)?;
    Ok(Step::Taken)
}

fn look(
    cx: &Context,
    client: &Client,
    topic: &str,
    wanted: &EpochPartition,
) -> Result<(i32, i64), ErrorCode> {
    let resource = Resource::Topic(topic);
    if !policy::authorize(&cx.image, &client.principal, Operation::Describe, resource) {
        return Err(ErrorCode::TOPIC_AUTHORIZATION_FAILED);
    }
    let partition = cx
        .held
        .partition(topic, wanted.index)
        .ok_or_else(|| cx.why_not_held(topic, wanted.index))?;
    let mut state = partition.lock();
    let log = state.led_in(wanted.current_leader_epoch)?;
    Ok(log.end_offset_for_epoch(wanted.leader_epoch))
}
