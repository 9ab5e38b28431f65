//! Responses of every API and version that the data plane encodes: decoded and encoded to the same
//! bytes; damaged ones are refused or consistent, within memory bounds.

use std::borrow::Cow;

use pyrklog_wire::ErrorCode;
use pyrklog_wire::api::{self, key};
use pyrklog_wire::api_versions::{ApiVersion, ApiVersionsResponse};
use pyrklog_wire::error::Result;
use pyrklog_wire::features::Features;
use pyrklog_wire::fetch::{
    AbortedTransaction, EpochEndOffset, FetchPartitionHead, FetchPartitionResponse,
    FetchPartitionTail, FetchResponse, FetchResponseHead, FetchTopicResponse, SnapshotId,
};
use pyrklog_wire::leader::{CurrentLeader, NodeEndpoint};
use pyrklog_wire::list_offsets::{
    ListOffsetsPartitionResponse, ListOffsetsResponse, ListOffsetsTopicResponse,
    OldListOffsetsPartitionResponse, OldListOffsetsResponse, OldListOffsetsTopicResponse,
};
use pyrklog_wire::metadata::{MetadataHead, MetadataPartition, MetadataResponse, MetadataTopic};
use pyrklog_wire::offset_for_leader_epoch::{
    EpochPartitionResponse, EpochResponse, EpochTopicResponse,
};
use pyrklog_wire::produce::{
    ProducePartitionResponse, ProduceResponse, ProduceTopicResponse, RecordError,
};

use crate::script::{Damage, Script};
use crate::{Verdict, expect, memory};

const ELEMENTS_MAX: usize = 3;

/// Drops hints about leaders; accepts a truncated body.
pub const PLANTED: &[&str] = &["leader-hint-dropped", "cut-forgiven"];

/// Memory limit of a decoded and re-encoded response per byte of its body.
const MEMORY_FACTOR: usize = 100;

/// The APIs whose responses are written here.
const WRITTEN: [i16; 6] = [
    key::PRODUCE,
    key::FETCH,
    key::LIST_OFFSETS,
    key::METADATA,
    key::API_VERSIONS,
    key::OFFSET_FOR_LEADER_EPOCH,
];

pub fn run(script: &mut Script<'_>, planted: Option<&str>) -> Verdict {
    let api_key = script.pick(&WRITTEN);
    let row = api::lookup(api_key).ok_or("an API that is not in the table")?;
    let versions = (row.max_version - row.min_version) as usize + 1;
    let version = row.min_version + script.below(versions) as i16;
    let mut body = Vec::new();
    make(script, api_key, version, &mut body);
    let written = body.clone();
    let damage = if script.bool() {
        script.damage(&mut body)
    } else {
        Damage::None
    };
    let once = memory::bounded(body.len(), MEMORY_FACTOR, || {
        again(&body, api_key, version, planted)
    })?;
    let about = || format!("{} v{version}, {damage:?}: {body:02x?}", row.name);
    let once = match (once, damage) {
        (Ok(once), Damage::None) => {
            expect(once == written, || {
                format!("{}: read as {once:02x?}", about())
            })?;
            once
        }
        (Ok(_), Damage::Cut | Damage::Longer) => {
            return Err(format!("{}: not refused", about()));
        }
        (Ok(once), Damage::Changed) => once,
        (Err(error), Damage::None) => return Err(format!("{}: {error}", about())),
        (Err(_), _) => return Ok(()),
    };
    let twice = again(&once, api_key, version, planted).map_err(|error| error.to_string())?;
    expect(twice == once, || format!("{}: unstable", about()))
}

/// Decodes a body, and writes it anew.
fn again(body: &[u8], api_key: i16, version: i16, planted: Option<&str>) -> Result<Vec<u8>> {
    let mut out = Vec::new();
    match api_key {
        key::PRODUCE => {
            let mut response = ProduceResponse::decode(body, version)?;
            if planted == Some("leader-hint-dropped") {
                let partitions = response.topics.iter_mut().flat_map(|t| &mut t.partitions);
                partitions.for_each(|partition| partition.current_leader = None);
            }
            response.encode(&mut out, version);
        }
        key::FETCH => FetchResponse::decode(body, version)?.encode(&mut out, version),
        key::LIST_OFFSETS if version == 0 => {
            OldListOffsetsResponse::decode(body, version)?.encode(&mut out, version);
        }
        key::LIST_OFFSETS => {
            let padded = [body, &[0; 4]].concat();
            let read = match ListOffsetsResponse::decode(body, version) {
                Err(_) if planted == Some("cut-forgiven") => {
                    ListOffsetsResponse::decode(&padded, version)
                }
                read => read,
            };
            read?.encode(&mut out, version);
        }
        key::METADATA => MetadataResponse::decode(body, version)?.encode(&mut out, version),
        key::API_VERSIONS => ApiVersionsResponse::decode(body, version)?.encode(&mut out, version),
        _ => EpochResponse::decode(body, version)?.encode(&mut out, version),
    }
    Ok(out)
}

fn make(script: &mut Script<'_>, api_key: i16, version: i16, out: &mut Vec<u8>) {
    match api_key {
        key::PRODUCE => produce(script, version, out),
        key::FETCH => fetch(script, version, out),
        key::LIST_OFFSETS if version == 0 => old_list_offsets(script, out),
        key::LIST_OFFSETS => list_offsets(script, version, out),
        key::METADATA => metadata(script, version, out),
        key::API_VERSIONS => api_versions(script, version, out),
        _ => epochs(script, version, out),
    }
}

fn names(script: &mut Script<'_>) -> Vec<String> {
    script.list(ELEMENTS_MAX, |script| script.text())
}

fn error_code(script: &mut Script<'_>) -> ErrorCode {
    ErrorCode(script.i16())
}

fn leader(script: &mut Script<'_>) -> CurrentLeader {
    CurrentLeader {
        leader_id: script.i32(),
        leader_epoch: script.i32(),
    }
}

fn endpoints<'a>(
    script: &mut Script<'_>,
    hosts: &'a [String],
    racks: bool,
) -> Vec<NodeEndpoint<'a>> {
    hosts
        .iter()
        .map(|host| NodeEndpoint {
            node_id: script.i32(),
            host,
            port: script.i32(),
            rack: script.option(|_| host.as_str()).filter(|_| racks),
        })
        .collect()
}

fn produce(script: &mut Script<'_>, version: i16, out: &mut Vec<u8>) {
    let (topics, hosts) = (names(script), names(script));
    let topics = topics
        .iter()
        .map(|name| ProduceTopicResponse {
            name,
            partitions: script.list(ELEMENTS_MAX, |script| ProducePartitionResponse {
                index: script.i32(),
                error_code: error_code(script),
                base_offset: script.i64(),
                log_append_time_ms: script.i64(),
                log_start_offset: script.i64(),
                record_errors: script.list(ELEMENTS_MAX, |script| RecordError {
                    batch_index: script.i32(),
                    message: script.option(|script| script.text().into()),
                }),
                error_message: script.option(|script| script.text().into()),
                current_leader: script.option(leader),
            }),
        })
        .collect();
    ProduceResponse {
        topics,
        throttle_ms: script.i32(),
        endpoints: endpoints(script, &hosts, true),
    }
    .encode(out, version);
}

fn fetch(script: &mut Script<'_>, version: i16, out: &mut Vec<u8>) {
    let (topics, hosts, records) = (names(script), names(script), script.bytes(60));
    let topics = topics
        .iter()
        .map(|name| FetchTopicResponse {
            name,
            id: script.uuid(),
            partitions: script.list(ELEMENTS_MAX, |script| fetch_partition(script, &records)),
        })
        .collect();
    FetchResponse {
        head: FetchResponseHead {
            throttle_ms: script.i32(),
            error_code: error_code(script),
            session_id: script.i32(),
        },
        topics,
        endpoints: endpoints(script, &hosts, true),
    }
    .encode(out, version);
}

fn fetch_partition<'a>(script: &mut Script<'_>, records: &'a [u8]) -> FetchPartitionResponse<'a> {
    FetchPartitionResponse {
        head: FetchPartitionHead {
            index: script.i32(),
            error_code: error_code(script),
            high_watermark: script.i64(),
            last_stable_offset: script.i64(),
            log_start_offset: script.i64(),
            aborted: script.option(|script| {
                Cow::Owned(script.list(ELEMENTS_MAX, |script| AbortedTransaction {
                    producer_id: script.i64(),
                    first_offset: script.i64(),
                }))
            }),
            preferred_read_replica: script.i32(),
        },
        records: script.option(|_| records),
        tail: FetchPartitionTail {
            diverging_epoch: script.option(|script| EpochEndOffset {
                epoch: script.i32(),
                end_offset: script.i64(),
            }),
            current_leader: script.option(leader),
            snapshot_id: script.option(|script| SnapshotId {
                end_offset: script.i64(),
                epoch: script.i32(),
            }),
        },
    }
}

fn list_offsets(script: &mut Script<'_>, version: i16, out: &mut Vec<u8>) {
    let topics = names(script);
    let topics = topics
        .iter()
        .map(|name| ListOffsetsTopicResponse {
            name,
            partitions: script.list(ELEMENTS_MAX, |script| ListOffsetsPartitionResponse {
                index: script.i32(),
                error_code: error_code(script),
                timestamp: script.i64(),
                offset: script.i64(),
                leader_epoch: script.i32(),
            }),
        })
        .collect();
    ListOffsetsResponse {
        throttle_ms: script.i32(),
        topics,
    }
    .encode(out, version);
}

fn old_list_offsets(script: &mut Script<'_>, out: &mut Vec<u8>) {
    let topics = names(script);
    let partition = |script: &mut Script<'_>| OldListOffsetsPartitionResponse {
        index: script.i32(),
        error_code: error_code(script),
        offsets: script.list(ELEMENTS_MAX, Script::i64),
    };
    let topics = topics.iter().map(|name| OldListOffsetsTopicResponse {
        name,
        partitions: script.list(ELEMENTS_MAX, partition),
    });
    OldListOffsetsResponse {
        topics: topics.collect(),
    }
    .encode(out, 0);
}

fn metadata(script: &mut Script<'_>, version: i16, out: &mut Vec<u8>) {
    let (topics, hosts, cluster_id) = (names(script), names(script), script.text());
    let topics = topics
        .iter()
        .map(|name| MetadataTopic {
            error_code: error_code(script),
            name: script.option(|_| name.as_str()),
            id: script.uuid(),
            is_internal: script.bool(),
            partitions: script.list(ELEMENTS_MAX, |script| MetadataPartition {
                error_code: error_code(script),
                index: script.i32(),
                leader_id: script.i32(),
                leader_epoch: script.i32(),
                replicas: script.list(ELEMENTS_MAX, Script::i32).into(),
                isr: script.list(ELEMENTS_MAX, Script::i32).into(),
                offline: script.list(ELEMENTS_MAX, Script::i32).into(),
            }),
            authorized_operations: script.i32(),
        })
        .collect();
    MetadataResponse {
        head: MetadataHead {
            throttle_ms: script.i32(),
            brokers: endpoints(script, &hosts, version >= 1),
            cluster_id: script.option(|_| cluster_id.as_str()),
            controller_id: script.i32(),
        },
        topics,
        cluster_authorized_operations: script.i32(),
    }
    .encode(out, version);
}

fn api_versions(script: &mut Script<'_>, version: i16, out: &mut Vec<u8>) {
    ApiVersionsResponse {
        error_code: error_code(script),
        apis: script.list(ELEMENTS_MAX, |script| ApiVersion {
            key: script.i16(),
            min_version: script.i16(),
            max_version: script.i16(),
        }),
        throttle_ms: script.i32(),
        features: Features::of_table(),
    }
    .encode(out, version);
}

fn epochs(script: &mut Script<'_>, version: i16, out: &mut Vec<u8>) {
    let topics = names(script);
    let topics = topics
        .iter()
        .map(|name| EpochTopicResponse {
            name,
            partitions: script.list(ELEMENTS_MAX, |script| EpochPartitionResponse {
                error_code: error_code(script),
                index: script.i32(),
                leader_epoch: script.i32(),
                end_offset: script.i64(),
            }),
        })
        .collect();
    EpochResponse {
        throttle_ms: script.i32(),
        topics,
    }
    .encode(out, version);
}
