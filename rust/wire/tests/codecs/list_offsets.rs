use proptest::prelude::*;
use pyrklog_wire::list_offsets::{
    ListOffsetsPartition, ListOffsetsPartitionResponse, ListOffsetsRequest, ListOffsetsResponse,
    ListOffsetsTopic, ListOffsetsTopicResponse, OldListOffsetsPartitionResponse,
    OldListOffsetsResponse, OldListOffsetsTopicResponse,
};

use crate::support::{CASES, change, check, error, name, some};

fn asked() -> impl Strategy<Value = ListOffsetsPartition> {
    (any::<i32>(), any::<i32>(), any::<i64>(), any::<i32>()).prop_map(
        |(index, epoch, timestamp, max_offsets)| ListOffsetsPartition {
            index,
            current_leader_epoch: epoch,
            timestamp,
            max_offsets,
        },
    )
}

fn answered() -> impl Strategy<Value = ListOffsetsPartitionResponse> {
    (
        any::<i32>(),
        error(),
        any::<i64>(),
        any::<i64>(),
        any::<i32>(),
    )
        .prop_map(|(index, error_code, timestamp, offset, leader_epoch)| {
            ListOffsetsPartitionResponse {
                index,
                error_code,
                timestamp,
                offset,
                leader_epoch,
            }
        })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(CASES))]

    #[test]
    fn requests(
        replica_id in any::<i32>(),
        isolation_level in any::<i8>(),
        topics in some((name(), some(asked()))),
        change in change(),
    ) {
        for version in 0..=9 {
            let mut request = ListOffsetsRequest {
                replica_id,
                isolation_level,
                topics: topics
                    .iter()
                    .map(|(name, partitions)| ListOffsetsTopic { name, partitions: partitions.clone() })
                    .collect(),
            };
            let mut body = Vec::new();
            request.encode(&mut body, version);
            if version < 2 {
                request.isolation_level = 0;
            }
            if version < 4 {
                let partitions = request.topics.iter_mut().flat_map(|topic| &mut topic.partitions);
                partitions.for_each(|partition| partition.current_leader_epoch = -1);
            }
            if version > 0 {
                let partitions = request.topics.iter_mut().flat_map(|topic| &mut topic.partitions);
                partitions.for_each(|partition| partition.max_offsets = 1);
            }
            prop_assert_eq!(ListOffsetsRequest::decode(&body, version).unwrap(), request);
            check(&body, change, &|bytes| {
                let mut out = Vec::new();
                ListOffsetsRequest::decode(bytes, version)?.encode(&mut out, version);
                Ok(out)
            });
        }
    }

    #[test]
    fn responses(
        throttle_ms in any::<i32>(),
        topics in some((name(), some(answered()))),
        change in change(),
    ) {
        for version in 1..=9 {
            let mut response = ListOffsetsResponse {
                throttle_ms,
                topics: topics
                    .iter()
                    .map(|(name, partitions)| {
                        ListOffsetsTopicResponse { name, partitions: partitions.clone() }
                    })
                    .collect(),
            };
            let mut body = Vec::new();
            response.encode(&mut body, version);
            if version < 2 {
                response.throttle_ms = 0;
            }
            if version < 4 {
                let partitions = response.topics.iter_mut().flat_map(|topic| &mut topic.partitions);
                partitions.for_each(|partition| partition.leader_epoch = -1);
            }
            prop_assert_eq!(ListOffsetsResponse::decode(&body, version).unwrap(), response);
            check(&body, change, &|bytes| {
                let mut out = Vec::new();
                ListOffsetsResponse::decode(bytes, version)?.encode(&mut out, version);
                Ok(out)
            });
        }
    }

    #[test]
    fn responses_of_version_0(
        topics in some((
            name(),
            some((any::<i32>(), error(), prop::collection::vec(any::<i64>(), 0..5))),
        )),
        change in change(),
    ) {
        let response = OldListOffsetsResponse {
            topics: topics
                .iter()
                .map(|(name, partitions)| OldListOffsetsTopicResponse {
                    name,
                    partitions: partitions
                        .iter()
                        .map(|(index, error_code, offsets)| OldListOffsetsPartitionResponse {
                            index: *index,
                            error_code: *error_code,
                            offsets: offsets.clone(),
                        })
                        .collect(),
                })
                .collect(),
        };
        let mut body = Vec::new();
        response.encode(&mut body, 0);
        prop_assert_eq!(OldListOffsetsResponse::decode(&body, 0).unwrap(), response);
        check(&body, change, &|bytes| {
            let mut out = Vec::new();
            OldListOffsetsResponse::decode(bytes, 0)?.encode(&mut out, 0);
            Ok(out)
        });
    }

    #[test]
    fn random_bytes(bytes in prop::collection::vec(any::<u8>(), 0..80)) {
        for version in -1..=10 {
            let _ = ListOffsetsRequest::decode(&bytes, version);
            let _ = ListOffsetsResponse::decode(&bytes, version);
            let _ = OldListOffsetsResponse::decode(&bytes, version);
        }
    }
}
