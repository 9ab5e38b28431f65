use proptest::prelude::*;
use pyrklog_wire::replica_start::{ReplicaStartRequest, ReplicaStartResponse, StartEpoch};

use crate::support::{CASES, bytes, change, check, error, id, name, some};

fn epoch() -> impl Strategy<Value = StartEpoch> {
    (any::<i32>(), any::<i64>()).prop_map(|(epoch, start_offset)| StartEpoch {
        epoch,
        start_offset,
    })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(CASES))]

    #[test]
    fn requests(
        (replica_id, partition, current_leader_epoch) in any::<(i32, i32, i32)>(),
        topic in name(),
        topic_id in id(),
        fills_compacted in any::<bool>(),
        change in change(),
    ) {
        let request = ReplicaStartRequest {
            replica_id,
            topic: &topic,
            topic_id,
            partition,
            current_leader_epoch,
            fills_compacted,
        };
        let mut body = Vec::new();
        request.encode(&mut body, 0);
        prop_assert_eq!(ReplicaStartRequest::decode(&body, 0).unwrap(), request);
        check(&body, change, &|bytes| {
            let mut out = Vec::new();
            ReplicaStartRequest::decode(bytes, 0)?.encode(&mut out, 0);
            Ok(out)
        });
    }

    #[test]
    fn responses(
        error_code in error(),
        (start_offset, log_start_offset) in any::<(i64, i64)>(),
        epochs in some(epoch()),
        producers in prop::option::of(bytes()),
        change in change(),
    ) {
        let response = ReplicaStartResponse {
            error_code,
            start_offset,
            log_start_offset,
            epochs,
            producers: producers.as_deref(),
        };
        let mut body = Vec::new();
        response.encode(&mut body, 0);
        prop_assert_eq!(&ReplicaStartResponse::decode(&body, 0).unwrap(), &response);
        check(&body, change, &|bytes| {
            let mut out = Vec::new();
            ReplicaStartResponse::decode(bytes, 0)?.encode(&mut out, 0);
            Ok(out)
        });
    }
}
