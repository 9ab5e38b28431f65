use proptest::prelude::*;
use pyrklog_wire::fetch::{
    AbortedTransaction, EpochEndOffset, FetchPartitionHead, FetchPartitionResponse,
    FetchPartitionTail, FetchResponse, FetchResponseHead, FetchResponseWriter, FetchTopicResponse,
    SnapshotId,
};
use pyrklog_wire::{ErrorCode, frame};

use crate::support::{
    CASES, borrow, bytes, change, check, endpoints, error, id, leader, name, some,
};

fn head() -> impl Strategy<Value = FetchPartitionHead<'static>> {
    let aborted =
        (any::<i64>(), any::<i64>()).prop_map(|(producer_id, first_offset)| AbortedTransaction {
            producer_id,
            first_offset,
        });
    let aborted = prop::option::of(some(aborted));
    (any::<[i32; 2]>(), error(), any::<[i64; 3]>(), aborted).prop_map(
        |(numbers, error_code, offsets, aborted)| FetchPartitionHead {
            index: numbers[0],
            error_code,
            high_watermark: offsets[0],
            last_stable_offset: offsets[1],
            log_start_offset: offsets[2],
            aborted: aborted.map(Into::into),
            preferred_read_replica: numbers[1],
        },
    )
}

fn tail() -> impl Strategy<Value = FetchPartitionTail> {
    let diverging = (any::<i32>(), any::<i64>())
        .prop_map(|(epoch, end_offset)| EpochEndOffset { epoch, end_offset });
    let snapshot = (any::<i64>(), any::<i32>())
        .prop_map(|(end_offset, epoch)| SnapshotId { end_offset, epoch });
    (
        prop::option::of(diverging),
        prop::option::of(leader()),
        prop::option::of(snapshot),
    )
        .prop_map(
            |(diverging_epoch, current_leader, snapshot_id)| FetchPartitionTail {
                diverging_epoch,
                current_leader,
                snapshot_id,
            },
        )
}

/// What version `version` has of a response.
fn in_version(response: &mut FetchResponse<'_>, version: i16) {
    if version < 1 {
        response.head.throttle_ms = 0;
    }
    if version < 7 {
        response.head.error_code = ErrorCode::NONE;
        response.head.session_id = 0;
    }
    if version < 16 {
        response.endpoints.clear();
    }
    for topic in &mut response.topics {
        if version < 13 {
            topic.id = [0; 16];
        } else {
            topic.name = "";
        }
        for partition in &mut topic.partitions {
            if version < 4 {
                partition.head.last_stable_offset = -1;
                partition.head.aborted = None;
            }
            if version < 5 {
                partition.head.log_start_offset = -1;
            }
            if version < 11 {
                partition.head.preferred_read_replica = -1;
            }
            if version < 12 {
                partition.tail = FetchPartitionTail::default();
            }
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(CASES))]

    #[test]
    fn responses(
        start in (any::<i32>(), error(), any::<i32>()),
        topics in some((name(), id(), some((head(), prop::option::of(bytes()), tail())))),
        hints in endpoints(),
        change in change(),
    ) {
        let (throttle_ms, error_code, session_id) = start;
        for version in 0..=17 {
            let topics = topics
                .iter()
                .map(|(name, id, partitions)| FetchTopicResponse {
                    name,
                    id: *id,
                    partitions: partitions
                        .iter()
                        .map(|(head, records, tail)| FetchPartitionResponse {
                            head: head.clone(),
                            records: records.as_deref(),
                            tail: *tail,
                        })
                        .collect(),
                })
                .collect();
            let head = FetchResponseHead { throttle_ms, error_code, session_id };
            let mut response = FetchResponse { head, topics, endpoints: borrow(&hints) };
            let mut body = Vec::new();
            response.encode(&mut body, version);
            in_version(&mut response, version);
            prop_assert_eq!(FetchResponse::decode(&body, version).unwrap(), response);
            check(&body, change, &|bytes| {
                let mut out = Vec::new();
                FetchResponse::decode(bytes, version)?.encode(&mut out, version);
                Ok(out)
            });
        }
    }

    #[test]
    fn random_bytes(bytes in prop::collection::vec(any::<u8>(), 0..160)) {
        for version in -1..=18 {
            let _ = FetchResponse::decode(&bytes, version);
        }
    }
}

/// Separate record bytes: the body has gaps, and inserting the bytes at the returned places
/// completes it.
#[test]
fn record_bytes_are_left_out_and_fit_in() {
    let records: [&[u8]; 3] = [&[1; 200], &[], &[3; 5]];
    for version in 0..=17 {
        let mut out = Vec::new();
        let start = frame::begin(&mut out);
        let head = FetchResponseHead {
            throttle_ms: 1,
            error_code: ErrorCode::NONE,
            session_id: 9,
        };
        let mut writer = FetchResponseWriter::begin(&mut out, version, head, 2);
        let mut gaps = Vec::new();
        for (topic, partitions) in [(0u8, 0..2), (1, 2..3)] {
            writer.topic(
                ["a", "b"][usize::from(topic)],
                &[topic; 16],
                partitions.len(),
            );
            for partition in partitions {
                let head = FetchPartitionHead {
                    high_watermark: 7,
                    ..FetchPartitionHead::failed(partition, ErrorCode::NONE)
                };
                let bytes = records[partition as usize];
                gaps.push((writer.partition_head(&head, Some(bytes.len())), bytes));
                writer.partition_tail(&FetchPartitionTail::default());
            }
        }
        writer.end(&[]);
        let elsewhere = records.iter().map(|bytes| bytes.len()).sum();
        frame::end(&mut out, start, elsewhere).unwrap();

        let mut whole = Vec::new();
        let mut from = 0;
        for (at, bytes) in gaps {
            whole.extend_from_slice(&out[from..at]);
            whole.extend_from_slice(bytes);
            from = at;
        }
        whole.extend_from_slice(&out[from..]);
        let scan = frame::scan(&whole, usize::MAX).unwrap();
        assert_eq!(
            scan,
            frame::Scan::Whole {
                content_len: whole.len() - 4
            }
        );
        let response = FetchResponse::decode(&whole[4..], version).unwrap();
        let got: Vec<_> = response
            .topics
            .iter()
            .flat_map(|topic| &topic.partitions)
            .map(|partition| partition.records.unwrap())
            .collect();
        assert_eq!(got, records, "{version}");
    }
}
