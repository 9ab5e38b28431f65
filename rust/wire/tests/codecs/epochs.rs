use proptest::prelude::*;
use pyrklog_wire::offset_for_leader_epoch::{
    EpochPartition, EpochPartitionResponse, EpochRequest, EpochResponse, EpochTopic,
    EpochTopicResponse, NO_REPLICA,
};

use crate::support::{CASES, change, check, error, name, some};

fn asked() -> impl Strategy<Value = EpochPartition> {
    (any::<i32>(), any::<i32>(), any::<i32>()).prop_map(|(index, current, leader_epoch)| {
        EpochPartition {
            index,
            current_leader_epoch: current,
            leader_epoch,
        }
    })
}

fn answered() -> impl Strategy<Value = EpochPartitionResponse> {
    (error(), any::<i32>(), any::<i32>(), any::<i64>()).prop_map(
        |(error_code, index, leader_epoch, end_offset)| EpochPartitionResponse {
            error_code,
            index,
            leader_epoch,
            end_offset,
        },
    )
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(CASES))]

    #[test]
    fn requests(
        replica_id in any::<i32>(),
        topics in some((name(), some(asked()))),
        change in change(),
    ) {
        for version in 0..=4 {
            let mut request = EpochRequest {
                replica_id,
                topics: topics
                    .iter()
                    .map(|(name, partitions)| EpochTopic { name, partitions: partitions.clone() })
                    .collect(),
            };
            let mut body = Vec::new();
            request.encode(&mut body, version);
            if version < 3 {
                request.replica_id = NO_REPLICA;
            }
            if version < 2 {
                let partitions = request.topics.iter_mut().flat_map(|topic| &mut topic.partitions);
                partitions.for_each(|partition| partition.current_leader_epoch = -1);
            }
            prop_assert_eq!(EpochRequest::decode(&body, version).unwrap(), request);
            check(&body, change, &|bytes| {
                let mut out = Vec::new();
                EpochRequest::decode(bytes, version)?.encode(&mut out, version);
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
        for version in 0..=4 {
            let mut response = EpochResponse {
                throttle_ms,
                topics: topics
                    .iter()
                    .map(|(name, partitions)| {
                        EpochTopicResponse { name, partitions: partitions.clone() }
                    })
                    .collect(),
            };
            let mut body = Vec::new();
            response.encode(&mut body, version);
            if version < 2 {
                response.throttle_ms = 0;
            }
            if version < 1 {
                let partitions = response.topics.iter_mut().flat_map(|topic| &mut topic.partitions);
                partitions.for_each(|partition| partition.leader_epoch = -1);
            }
            prop_assert_eq!(EpochResponse::decode(&body, version).unwrap(), response);
            check(&body, change, &|bytes| {
                let mut out = Vec::new();
                EpochResponse::decode(bytes, version)?.encode(&mut out, version);
                Ok(out)
            });
        }
    }

    #[test]
    fn random_bytes(bytes in prop::collection::vec(any::<u8>(), 0..80)) {
        for version in -1..=5 {
            let _ = EpochRequest::decode(&bytes, version);
            let _ = EpochResponse::decode(&bytes, version);
        }
    }
}
