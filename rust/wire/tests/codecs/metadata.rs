use proptest::prelude::*;
use pyrklog_wire::metadata::{
    MetadataHead, MetadataPartition, MetadataRequest, MetadataRequestTopic, MetadataResponse,
    MetadataTopic, OPERATIONS_OMITTED,
};

use crate::support::{CASES, borrow, change, check, endpoints, error, id, name, some};

fn partition() -> impl Strategy<Value = MetadataPartition<'static>> {
    let ids = || some(any::<i32>());
    (
        error(),
        any::<i32>(),
        any::<i32>(),
        any::<i32>(),
        ids(),
        ids(),
        ids(),
    )
        .prop_map(
            |(error_code, index, leader_id, leader_epoch, replicas, isr, offline)| {
                MetadataPartition {
                    error_code,
                    index,
                    leader_id,
                    leader_epoch,
                    replicas: replicas.into(),
                    isr: isr.into(),
                    offline: offline.into(),
                }
            },
        )
}

/// What version `version` has of a topic.
fn in_version<'a>(topic: &MetadataTopic<'a>, version: i16) -> MetadataTopic<'a> {
    let mut topic = topic.clone();
    if version < 12 {
        topic.name = Some(topic.name.unwrap_or_default());
    }
    if version < 10 {
        topic.id = [0; 16];
    }
    if version < 8 {
        topic.authorized_operations = OPERATIONS_OMITTED;
    }
    topic.is_internal &= version >= 1;
    for partition in &mut topic.partitions {
        if version < 7 {
            partition.leader_epoch = -1;
        }
        if version < 5 {
            partition.offline = vec![].into();
        }
    }
    topic
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(CASES))]

    #[test]
    fn requests(
        topics in prop::option::of(some((id(), prop::option::of(name())))),
        flags in any::<[bool; 3]>(),
        change in change(),
    ) {
        for version in 0..=12 {
            let mut topics: Option<Vec<_>> = topics.as_ref().map(|topics| {
                topics
                    .iter()
                    .map(|(id, name)| MetadataRequestTopic { id: *id, name: name.as_deref() })
                    .collect()
            });
            if version < 10 {
                for topic in topics.iter_mut().flatten() {
                    *topic = MetadataRequestTopic {
                        id: [0; 16],
                        name: Some(topic.name.unwrap_or_default()),
                    };
                }
            }
            if version == 0 {
                topics = topics.filter(|topics| !topics.is_empty());
            }
            let request = MetadataRequest {
                topics,
                allow_auto_topic_creation: flags[0] || version < 4,
                include_cluster_authorized_operations: flags[1] && (8..=10).contains(&version),
                include_topic_authorized_operations: flags[2] && version >= 8,
            };
            let mut body = Vec::new();
            request.encode(&mut body, version);
            prop_assert_eq!(MetadataRequest::decode(&body, version).unwrap(), request);
            check(&body, change, &|bytes| {
                let mut out = Vec::new();
                MetadataRequest::decode(bytes, version)?.encode(&mut out, version);
                Ok(out)
            });
        }
    }

    #[test]
    fn responses(
        numbers in any::<[i32; 3]>(),
        brokers in endpoints(),
        cluster_id in prop::option::of(name()),
        topics in some((error(), prop::option::of(name()), id(), any::<bool>(), some(partition()))),
        change in change(),
    ) {
        let [throttle_ms, controller_id, operations] = numbers;
        for version in 0..=12 {
            let head = MetadataHead {
                throttle_ms,
                brokers: borrow(&brokers),
                cluster_id: cluster_id.as_deref(),
                controller_id,
            };
            let topics = topics
                .iter()
                .map(|(error_code, name, id, is_internal, partitions)| MetadataTopic {
                    error_code: *error_code,
                    name: name.as_deref(),
                    id: *id,
                    is_internal: *is_internal,
                    partitions: partitions.clone(),
                    authorized_operations: operations,
                })
                .collect();
            let mut response =
                MetadataResponse { head, topics, cluster_authorized_operations: operations };
            let mut body = Vec::new();
            response.encode(&mut body, version);

            let head = &mut response.head;
            if version < 3 {
                head.throttle_ms = 0;
            }
            if version < 2 {
                head.cluster_id = None;
            }
            if version < 1 {
                head.controller_id = -1;
                head.brokers.iter_mut().for_each(|broker| broker.rack = None);
            }
            if !(8..=10).contains(&version) {
                response.cluster_authorized_operations = OPERATIONS_OMITTED;
            }
            response.topics =
                response.topics.iter().map(|topic| in_version(topic, version)).collect();
            prop_assert_eq!(MetadataResponse::decode(&body, version).unwrap(), response);
            check(&body, change, &|bytes| {
                let mut out = Vec::new();
                MetadataResponse::decode(bytes, version)?.encode(&mut out, version);
                Ok(out)
            });
        }
    }

    #[test]
    fn random_bytes(bytes in prop::collection::vec(any::<u8>(), 0..120)) {
        for version in -1..=13 {
            let _ = MetadataRequest::decode(&bytes, version);
            let _ = MetadataResponse::decode(&bytes, version);
        }
    }
}
