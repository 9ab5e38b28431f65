use proptest::prelude::*;
use pyrklog_wire::replica_segments::{
    ReplicaSegmentsRequest, ReplicaSegmentsResponse, SegmentAborted, SegmentOrigin,
};

use crate::support::{CASES, change, check, error, id, name, some};

fn aborted() -> impl Strategy<Value = SegmentAborted> {
    any::<(i64, i64, i64, i64)>().prop_map(
        |(producer_id, first_offset, last_offset, last_stable_offset)| SegmentAborted {
            producer_id,
            first_offset,
            last_offset,
            last_stable_offset,
        },
    )
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(CASES))]

    #[test]
    fn requests(
        (replica_id, partition, current_leader_epoch) in any::<(i32, i32, i32)>(),
        aborted_known in any::<i32>(),
        end_offset in any::<i64>(),
        topic in name(),
        topic_id in id(),
        change in change(),
    ) {
        let request = ReplicaSegmentsRequest {
            replica_id,
            topic: &topic,
            topic_id,
            partition,
            current_leader_epoch,
            end_offset,
            aborted_known,
        };
        let mut body = Vec::new();
        request.encode(&mut body, 0);
        prop_assert_eq!(ReplicaSegmentsRequest::decode(&body, 0).unwrap(), request);
        check(&body, change, &|bytes| {
            let mut out = Vec::new();
            ReplicaSegmentsRequest::decode(bytes, 0)?.encode(&mut out, 0);
            Ok(out)
        });
    }

    #[test]
    fn responses(
        error_code in error(),
        (log_start_offset, begin_offset, size_bytes, newest_ms) in any::<(i64, i64, i64, i64)>(),
        aborted in some(aborted()),
        (opening, segment, clean_below) in any::<(i64, i64, i64)>(),
        change in change(),
    ) {
        let response = ReplicaSegmentsResponse {
            error_code,
            log_start_offset,
            begin_offset,
            size_bytes,
            newest_ms,
            aborted,
            origin: SegmentOrigin {
                opening,
                segment,
                clean_below,
            },
        };
        let mut body = Vec::new();
        response.encode(&mut body, 0);
        prop_assert_eq!(&ReplicaSegmentsResponse::decode(&body, 0).unwrap(), &response);
        check(&body, change, &|bytes| {
            let mut out = Vec::new();
            ReplicaSegmentsResponse::decode(bytes, 0)?.encode(&mut out, 0);
            Ok(out)
        });
    }
}
