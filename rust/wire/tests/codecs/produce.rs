use proptest::prelude::*;
use pyrklog_wire::produce::{
    self, ProducePartitionResponse, ProduceRequest, ProduceResponse, ProduceTopicResponse,
    RecordError, TopicToProduce,
};
use pyrklog_wire::{DecodeError, Result};

use crate::support::{CASES, borrow, bytes, change, check, endpoints, error, leader, name, some};

fn answered() -> impl Strategy<Value = ProducePartitionResponse<'static>> {
    let message = || prop::option::of(name().prop_map(Into::into));
    let refused = (any::<i32>(), message()).prop_map(|(batch_index, message)| RecordError {
        batch_index,
        message,
    });
    let numbers = (any::<i32>(), error(), any::<[i64; 3]>());
    (
        numbers,
        some(refused),
        message(),
        prop::option::of(leader()),
    )
        .prop_map(
            |((index, error_code, offsets), record_errors, error_message, current_leader)| {
                ProducePartitionResponse {
                    index,
                    error_code,
                    base_offset: offsets[0],
                    log_append_time_ms: offsets[1],
                    log_start_offset: offsets[2],
                    record_errors,
                    error_message,
                    current_leader,
                }
            },
        )
}

fn in_version(answer: &mut ProducePartitionResponse<'_>, version: i16) {
    if version < 2 {
        answer.log_append_time_ms = -1;
    }
    if version < 5 {
        answer.log_start_offset = -1;
    }
    if version < 8 {
        answer.record_errors.clear();
        answer.error_message = None;
    }
    if version < 10 {
        answer.current_leader = None;
    }
}

/// Decodes the request behind `body_start` other bytes and encodes it again.
fn request_again(frame: &[u8], body_start: usize, version: i16) -> Result<Vec<u8>> {
    let mut request = ProduceRequest::default();
    request.decode(frame, body_start, version)?;
    let lists: Vec<Vec<_>> = request
        .topics
        .iter()
        .map(|topic| {
            let partitions = request.partitions_of(topic).iter();
            partitions
                .map(|part| (part.index, part.records.map(|span| span.of(frame))))
                .collect()
        })
        .collect();
    let topics: Vec<_> = request
        .topics
        .iter()
        .zip(&lists)
        .map(|(topic, partitions)| TopicToProduce {
            name: topic.name.text(frame),
            partitions,
        })
        .collect();
    let transactional_id = request.transactional_id.map(|span| span.text(frame));
    let (acks, timeout_ms) = (request.acks, request.timeout_ms);
    let mut out = frame[..body_start].to_vec();
    produce::encode_request(
        &mut out,
        version,
        transactional_id,
        acks,
        timeout_ms,
        &topics,
    );
    Ok(out)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(CASES))]

    #[test]
    fn requests(
        transactional_id in prop::option::of(name()),
        acks in any::<i16>(),
        timeout_ms in any::<i32>(),
        topics in some((name(), some((any::<i32>(), prop::option::of(bytes()))))),
        change in change(),
    ) {
        let lists: Vec<Vec<_>> = topics
            .iter()
            .map(|(_, list)| list.iter().map(|(index, it)| (*index, it.as_deref())).collect())
            .collect();
        let written: Vec<_> = topics
            .iter()
            .zip(&lists)
            .map(|((name, _), partitions)| TopicToProduce { name, partitions })
            .collect();
        // One structure for all versions, as the broker has.
        let mut request = ProduceRequest::default();
        for version in 0..=12 {
            let mut frame = vec![0xee; 9];
            let id = transactional_id.as_deref().filter(|_| version >= 3);
            produce::encode_request(&mut frame, version, id, acks, timeout_ms, &written);
            request.decode(&frame, 9, version).unwrap();
            prop_assert_eq!(request.transactional_id.map(|span| span.text(&frame)), id);
            prop_assert_eq!((request.acks, request.timeout_ms), (acks, timeout_ms));
            prop_assert_eq!(request.topics.len(), topics.len());
            for (number, (topic, expected)) in request.topics.iter().zip(&written).enumerate() {
                prop_assert_eq!(topic.name.text(&frame), expected.name);
                let partitions = request.partitions_of(topic);
                prop_assert!(partitions.iter().all(|part| part.topic == number));
                let partitions: Vec<_> = partitions
                    .iter()
                    .map(|part| (part.index, part.records.map(|span| span.of(&frame))))
                    .collect();
                prop_assert_eq!(&partitions[..], expected.partitions);
            }
            check(&frame[9..], change, &|bytes| request_again(bytes, 0, version));
            prop_assert_eq!(request_again(&frame, 9, version).unwrap(), frame);
        }
    }

    #[test]
    fn responses(
        topics in some((name(), some(answered()))),
        throttle_ms in any::<i32>(),
        hints in endpoints(),
        change in change(),
    ) {
        for version in 0..=12 {
            let topics = topics
                .iter()
                .map(|(name, partitions)| {
                    ProduceTopicResponse { name, partitions: partitions.clone() }
                })
                .collect();
            let mut response =
                ProduceResponse { topics, throttle_ms, endpoints: borrow(&hints) };
            let mut body = Vec::new();
            response.encode(&mut body, version);
            let partitions = response.topics.iter_mut().flat_map(|topic| &mut topic.partitions);
            partitions.for_each(|answer| in_version(answer, version));
            if version < 1 {
                response.throttle_ms = 0;
            }
            if version < 10 {
                response.endpoints.clear();
            }
            prop_assert_eq!(ProduceResponse::decode(&body, version).unwrap(), response);
            check(&body, change, &|bytes| {
                let mut out = Vec::new();
                ProduceResponse::decode(bytes, version)?.encode(&mut out, version);
                Ok(out)
            });
        }
    }

    #[test]
    fn random_bytes(bytes in prop::collection::vec(any::<u8>(), 0..120)) {
        for version in 0..=13 {
            let _ = request_again(&bytes, bytes.len() / 8, version);
            let _ = ProduceResponse::decode(&bytes, version);
        }
    }
}

#[test]
fn versions_that_are_not_served_are_refused() {
    for version in [i16::MIN, -1, 13, i16::MAX] {
        let refused = DecodeError::UnsupportedVersion {
            api_key: 0,
            api_version: version,
        };
        assert_eq!(
            ProduceRequest::default().decode(&[0; 64], 0, version),
            Err(refused)
        );
        assert_eq!(ProduceResponse::decode(&[0; 64], version), Err(refused));
    }
}

#[test]
fn records_can_be_patched_in_the_frame() {
    let mut frame = Vec::new();
    let partitions = [(0, Some(&[1u8, 2, 3][..])), (1, None)];
    let topics = [TopicToProduce {
        name: "t",
        partitions: &partitions,
    }];
    produce::encode_request(&mut frame, 9, None, -1, 100, &topics);
    let mut request = ProduceRequest::default();
    request.decode(&frame, 0, 9).unwrap();
    let records = request.partitions[0].records.unwrap();
    records.of_mut(&mut frame).fill(9);
    request.decode(&frame, 0, 9).unwrap();
    assert_eq!(request.partitions[0].records.unwrap().of(&frame), [9, 9, 9]);
    assert_eq!(request.partitions[1].records, None);
}

#[test]
fn partitions_of_produce_at_say_where_their_logs_end() {
    use pyrklog_wire::produce::PartitionToProduceAt;
    let partition = |index, expected_end| PartitionToProduceAt {
        index,
        expected_end,
        records: b"batch",
    };
    let topics = [
        ("a", vec![partition(0, 0), partition(3, i64::MAX)]),
        ("b", vec![partition(1, -7)]),
    ];
    let mut frame = vec![0xee; 9];
    produce::encode_request_at(&mut frame, 700, &topics);
    let mut request = ProduceRequest::default();
    request.decode_at(&frame, 9, 11).unwrap();
    assert_eq!((request.acks, request.timeout_ms), (-1, 700));
    let found: Vec<_> = request
        .partitions
        .iter()
        .map(|part| (part.topic, part.index, part.expected_end))
        .collect();
    let expected = [(0, 0, Some(0)), (0, 3, Some(i64::MAX)), (1, 1, Some(-7))];
    assert_eq!(found, expected);
    // Ordinary brokers pass the field over, and ProduceAt needs it.
    request.decode(&frame, 9, 11).unwrap();
    assert!(
        request
            .partitions
            .iter()
            .all(|part| part.expected_end.is_none())
    );
    let mut plain = Vec::new();
    let part: &[(i32, Option<&[u8]>)] = &[(0, None)];
    let named = TopicToProduce {
        name: "a",
        partitions: part,
    };
    produce::encode_request(&mut plain, 11, None, -1, 0, &[named]);
    request.decode_at(&plain, 0, 11).unwrap();
    assert_eq!(request.partitions[0].expected_end, Some(-1));
    for version in [-1, 8, 12] {
        let refused = request.decode_at(&plain, 0, version);
        assert!(
            matches!(refused, Err(DecodeError::UnsupportedVersion { .. })),
            "{version}"
        );
    }
}
