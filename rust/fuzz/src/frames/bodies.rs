//! Bodies of requests: valid ones, and the facts in them.

use pyrklog_wire::Writer;
use pyrklog_wire::api::{self, key};
use pyrklog_wire::api_versions::ApiVersionsRequest;
use pyrklog_wire::fetch::{FetchPartition, FetchRequest, FetchRequestToWrite, FetchTopicToWrite};
use pyrklog_wire::list_offsets::{ListOffsetsPartition, ListOffsetsRequest, ListOffsetsTopic};
use pyrklog_wire::membership::Membership;
use pyrklog_wire::metadata::{MetadataRequest, MetadataRequestTopic};
use pyrklog_wire::offset_commit::OffsetCommitRequest;
use pyrklog_wire::offset_for_leader_epoch::{EpochPartition, EpochRequest, EpochTopic};
use pyrklog_wire::produce::{
    PartitionToProduceAt, ProduceRequest, TopicToProduce, encode_request, encode_request_at,
};
use pyrklog_wire::replica_segments::ReplicaSegmentsRequest;
use pyrklog_wire::replica_start::ReplicaStartRequest;

use super::Facts;
use crate::script::Script;

type PartitionToProduce<'a> = (i32, Option<&'a [u8]>);

const TOPICS_MAX: usize = 3;
const PARTITIONS_MAX: usize = 3;

/// Appends a body and returns the facts to be read back.
pub fn write(script: &mut Script<'_>, key: i16, version: i16, out: &mut Vec<u8>) -> Facts {
    match key {
        key::PRODUCE => produce(script, version, out),
        key::PRODUCE_AT => produce_at(script, out),
        key::FETCH => fetch(script, version, out),
        key::LIST_OFFSETS => list_offsets(script, version, out),
        key::METADATA => metadata(script, version, out),
        key::OFFSET_FOR_LEADER_EPOCH => epochs(script, version, out),
        key::API_VERSIONS => api_versions(script, version, out),
        key::OFFSET_COMMIT => commit(script, version, out),
        key::HEARTBEAT => heartbeat(script, version, out),
        key::REPLICA_START => replica_start(script, version, out),
        key::REPLICA_SEGMENTS => replica_segments(script, version, out),
        _ => {
            let body = script.bytes(60);
            out.extend_from_slice(&body);
            vec![format!("{body:?}")]
        }
    }
}

fn produce(script: &mut Script<'_>, version: i16, out: &mut Vec<u8>) -> Facts {
    let id = script.bool().then(|| script.text());
    let (acks, timeout_ms) = (script.i16(), script.i32());
    let topics = script.list(TOPICS_MAX, |script| {
        let partitions = script.list(PARTITIONS_MAX, |script| {
            (script.i32(), script.bool().then(|| script.bytes(30)))
        });
        (script.topic(), partitions)
    });
    let id = id.filter(|_| version >= 3);
    let mut facts = vec![format!("{id:?} {acks} {timeout_ms}")];
    for (name, partitions) in &topics {
        facts.push(name.clone());
        facts.extend(partitions.iter().map(|one| format!("{one:?}")));
    }
    let mut borrowed: Vec<Vec<PartitionToProduce<'_>>> = Vec::new();
    for (_, partitions) in &topics {
        let partitions = partitions.iter();
        borrowed.push(
            partitions
                .map(|(index, records)| (*index, records.as_deref()))
                .collect(),
        );
    }
    let topics: Vec<TopicToProduce<'_>> = topics
        .iter()
        .zip(&borrowed)
        .map(|((name, _), partitions)| TopicToProduce { name, partitions })
        .collect();
    encode_request(out, version, id.as_deref(), acks, timeout_ms, &topics);
    facts
}

fn produce_at(script: &mut Script<'_>, out: &mut Vec<u8>) -> Facts {
    let timeout_ms = script.i32();
    let topics = script.list(TOPICS_MAX, |script| {
        let partitions = script.list(PARTITIONS_MAX, |script| {
            (script.i32(), script.i64(), script.bytes(30))
        });
        (script.topic(), partitions)
    });
    let mut facts = vec![format!("{timeout_ms}")];
    for (name, partitions) in &topics {
        facts.push(name.clone());
        facts.extend(partitions.iter().map(|one| format!("{one:?}")));
    }
    let to_write: Vec<(&str, Vec<PartitionToProduceAt<'_>>)> = topics
        .iter()
        .map(|(name, partitions)| {
            let partitions = partitions.iter().map(|one| PartitionToProduceAt {
                index: one.0,
                expected_end: one.1,
                records: &one.2,
            });
            (name.as_str(), partitions.collect())
        })
        .collect();
    encode_request_at(out, timeout_ms, &to_write);
    facts
}

pub fn produce_at_facts(request: &ProduceRequest, frame: &[u8]) -> Facts {
    let mut facts = vec![format!("{}", request.timeout_ms)];
    for topic in &request.topics {
        facts.push(topic.name.text(frame).to_owned());
        for one in request.partitions_of(topic) {
            let records = one.records.map_or(&[][..], |span| span.of(frame));
            let end = one.expected_end.unwrap_or(-1);
            facts.push(format!("{:?}", (one.index, end, records)));
        }
    }
    facts
}

pub fn produce_facts(request: &ProduceRequest, frame: &[u8]) -> Facts {
    let id = request.transactional_id.map(|span| span.text(frame));
    let mut facts = vec![format!("{id:?} {} {}", request.acks, request.timeout_ms)];
    for topic in &request.topics {
        facts.push(topic.name.text(frame).to_owned());
        for one in request.partitions_of(topic) {
            let records = one.records.map(|span| span.of(frame));
            facts.push(format!("{:?}", (one.index, records)));
        }
    }
    facts
}

fn fetch(script: &mut Script<'_>, version: i16, out: &mut Vec<u8>) -> Facts {
    let topics = script.list(TOPICS_MAX, |script| {
        let partitions = script.list(PARTITIONS_MAX, |script| FetchPartition {
            index: script.i32(),
            current_leader_epoch: -1,
            fetch_offset: script.i64(),
            last_fetched_epoch: -1,
            log_start_offset: -1,
            max_bytes: script.i32(),
            directory_id: [0; 16],
        });
        (script.topic(), script.below(256) as u8, partitions)
    });
    let forgotten = script.list(TOPICS_MAX, |script| {
        (script.topic(), script.list(PARTITIONS_MAX, Script::i32))
    });
    let request = FetchRequestToWrite {
        max_wait_ms: script.i32(),
        min_bytes: script.i32(),
        max_bytes: [i32::MAX, script.i32()][usize::from(version >= 3)],
        isolation_level: [0, script.below(2) as i8][usize::from(version >= 4)],
        topics: &topics
            .iter()
            .map(|(name, id, partitions)| FetchTopicToWrite {
                name,
                id: [*id; 16],
                partitions,
            })
            .collect::<Vec<_>>(),
        forgotten: &forgotten
            .iter()
            .map(|(name, partitions)| FetchTopicToWrite {
                name,
                id: [1; 16],
                partitions,
            })
            .collect::<Vec<_>>(),
        ..FetchRequestToWrite::default()
    };
    request.encode(out, version);
    let mut facts = vec![format!(
        "{} {} {} {}",
        request.max_wait_ms, request.min_bytes, request.max_bytes, request.isolation_level
    )];
    for (name, id, partitions) in &topics {
        let by_name = version < 13;
        facts.push(format!(
            "{:?}",
            if by_name {
                (name.as_str(), 0)
            } else {
                ("", *id)
            }
        ));
        let of =
            |one: &FetchPartition| format!("{} {} {}", one.index, one.fetch_offset, one.max_bytes);
        facts.extend(partitions.iter().map(of));
    }
    if version >= 7 {
        facts.extend(forgotten.iter().flat_map(|(_, p)| p).map(i32::to_string));
    }
    facts
}

pub fn fetch_facts(request: &FetchRequest, frame: &[u8]) -> Facts {
    let mut facts = vec![format!(
        "{} {} {} {}",
        request.max_wait_ms, request.min_bytes, request.max_bytes, request.isolation_level
    )];
    for topic in &request.topics {
        facts.push(format!("{:?}", (topic.name.text(frame), topic.id[0])));
        let end = topic.first_partition + topic.partition_count;
        let of =
            |one: &FetchPartition| format!("{} {} {}", one.index, one.fetch_offset, one.max_bytes);
        facts.extend(
            request.partitions[topic.first_partition..end]
                .iter()
                .map(of),
        );
    }
    facts.extend(request.forgotten_partitions.iter().map(i32::to_string));
    facts
}

fn list_offsets(script: &mut Script<'_>, version: i16, out: &mut Vec<u8>) -> Facts {
    let names = script.list(TOPICS_MAX, Script::topic);
    let request = ListOffsetsRequest {
        replica_id: script.i32(),
        isolation_level: if version >= 2 {
            script.below(2) as i8
        } else {
            0
        },
        topics: names
            .iter()
            .map(|name| ListOffsetsTopic {
                name,
                partitions: script.list(PARTITIONS_MAX, |script| ListOffsetsPartition {
                    index: script.i32(),
                    current_leader_epoch: if version >= 4 { script.i32() } else { -1 },
                    timestamp: script.i64(),
                    max_offsets: if version == 0 { script.i32() } else { 1 },
                }),
            })
            .collect(),
    };
    request.encode(out, version);
    vec![format!("{request:?}")]
}

fn metadata(script: &mut Script<'_>, version: i16, out: &mut Vec<u8>) -> Facts {
    let names = script.list(TOPICS_MAX, Script::topic);
    let wants_all = version >= 1 && script.one_in(4);
    let topics = names.iter().map(|name| MetadataRequestTopic {
        id: [0; 16],
        name: Some(name),
    });
    let request = MetadataRequest {
        // Version 0 says "all" with an empty list.
        topics: (!wants_all && (version > 0 || !names.is_empty())).then(|| topics.collect()),
        allow_auto_topic_creation: version < 4 || script.bool(),
        include_cluster_authorized_operations: (8..=10).contains(&version) && script.bool(),
        include_topic_authorized_operations: version >= 8 && script.bool(),
    };
    request.encode(out, version);
    vec![format!("{request:?}")]
}

fn epochs(script: &mut Script<'_>, version: i16, out: &mut Vec<u8>) -> Facts {
    let names = script.list(TOPICS_MAX, Script::topic);
    let replica_id = script.i32();
    let request = EpochRequest {
        replica_id: if version >= 3 { replica_id } else { -2 },
        topics: names
            .iter()
            .map(|name| EpochTopic {
                name,
                partitions: script.list(PARTITIONS_MAX, |script| EpochPartition {
                    index: script.i32(),
                    current_leader_epoch: if version >= 2 { script.i32() } else { -1 },
                    leader_epoch: script.i32(),
                }),
            })
            .collect(),
    };
    request.encode(out, version);
    vec![format!("{request:?}")]
}

fn replica_start(script: &mut Script<'_>, version: i16, out: &mut Vec<u8>) -> Facts {
    let topic = script.topic();
    let request = ReplicaStartRequest {
        replica_id: script.i32(),
        topic: &topic,
        topic_id: [script.below(256) as u8; 16],
        partition: script.i32(),
        current_leader_epoch: script.i32(),
        fills_compacted: script.bool(),
    };
    request.encode(out, version);
    vec![format!("{request:?}")]
}

fn replica_segments(script: &mut Script<'_>, version: i16, out: &mut Vec<u8>) -> Facts {
    let topic = script.topic();
    let request = ReplicaSegmentsRequest {
        replica_id: script.i32(),
        topic: &topic,
        topic_id: [script.below(256) as u8; 16],
        partition: script.i32(),
        current_leader_epoch: script.i32(),
        end_offset: i64::from(script.i32()),
        aborted_known: script.i32(),
    };
    request.encode(out, version);
    vec![format!("{request:?}")]
}

fn api_versions(script: &mut Script<'_>, version: i16, out: &mut Vec<u8>) -> Facts {
    let (name, software_version) = (script.text(), script.text());
    let has_names = version >= 3;
    let request = ApiVersionsRequest {
        client_software_name: if has_names { &name } else { "" },
        client_software_version: if has_names { &software_version } else { "" },
    };
    request.encode(out, version);
    vec![format!("{request:?}")]
}

fn commit(script: &mut Script<'_>, version: i16, out: &mut Vec<u8>) -> Facts {
    let group = script.text();
    let (member, generation) = match version {
        0 => (String::new(), -1),
        _ => (script.text(), script.i32()),
    };
    let instance = (version >= 7 && script.bool()).then(|| script.text());
    let has_retention = (2..=4).contains(&version);
    let retention_ms = if has_retention { script.i64() } else { -1 };
    let topics = script.list(TOPICS_MAX, |script| {
        let partitions = script.list(PARTITIONS_MAX, |script| {
            let epoch = if version >= 6 { script.i32() } else { -1 };
            let note = script.bool().then(|| script.text());
            (script.i32(), script.i64(), epoch, note)
        });
        (script.topic(), partitions)
    });
    let mut writer = Writer::new(out, is_flexible(key::OFFSET_COMMIT, version));
    writer.string(&group);
    if version >= 1 {
        writer.i32(generation);
        writer.string(&member);
    }
    if version >= 7 {
        writer.nullable_string(instance.as_deref());
    }
    if has_retention {
        writer.i64(retention_ms);
    }
    writer.array(&topics, |writer, (name, partitions)| {
        writer.string(name);
        writer.array(partitions, |writer, (index, offset, epoch, note)| {
            writer.i32(*index);
            writer.i64(*offset);
            if version >= 6 {
                writer.i32(*epoch);
            }
            if version == 1 {
                writer.i64(-1);
            }
            writer.nullable_string(note.as_deref());
            writer.no_tags();
        });
        writer.no_tags();
    });
    writer.no_tags();
    let mut facts = vec![format!(
        "{:?}",
        (group, generation, member, instance, retention_ms)
    )];
    for (name, partitions) in topics {
        let named = partitions
            .into_iter()
            .map(|(index, offset, epoch, note)| (name.clone(), index, offset, epoch, note));
        facts.extend(named.map(|one| format!("{one:?}")));
    }
    facts
}

pub fn commit_facts(request: &OffsetCommitRequest, body: &[u8]) -> Facts {
    let asks = request.membership.of(body);
    let retention_ms = request.retention_ms;
    let mut facts = vec![format!(
        "{:?}",
        (
            asks.group_id,
            asks.generation,
            asks.member_id,
            asks.instance_id,
            retention_ms
        )
    )];
    facts.extend(request.partitions().map(|(topic, one)| {
        let note = one.metadata.map(|span| span.text(body));
        let name = topic.text(body);
        format!(
            "{:?}",
            (name, one.index, one.offset, one.leader_epoch, note)
        )
    }));
    facts
}

fn heartbeat(script: &mut Script<'_>, version: i16, out: &mut Vec<u8>) -> Facts {
    let (group, member, generation) = (script.text(), script.text(), script.i32());
    let instance = (version >= 3 && script.bool()).then(|| script.text());
    let mut writer = Writer::new(out, is_flexible(key::HEARTBEAT, version));
    writer.string(&group);
    writer.i32(generation);
    writer.string(&member);
    if version >= 3 {
        writer.nullable_string(instance.as_deref());
    }
    writer.no_tags();
    vec![format!("{:?}", (group, generation, member, instance))]
}

pub fn heartbeat_facts(asks: Membership<'_>) -> Facts {
    let facts = (
        asks.group_id,
        asks.generation,
        asks.member_id,
        asks.instance_id,
    );
    vec![format!("{facts:?}")]
}

fn is_flexible(key: i16, version: i16) -> bool {
    api::is_flexible(key, version)
}
