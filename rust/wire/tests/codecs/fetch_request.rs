use proptest::prelude::*;
use pyrklog_wire::Result;
use pyrklog_wire::fetch::{FetchPartition, FetchRequest, FetchRequestToWrite, FetchTopicToWrite};

use crate::support::{CASES, change, check, id, name, some};

fn partition() -> impl Strategy<Value = FetchPartition> {
    (any::<[i32; 4]>(), any::<[i64; 2]>(), id()).prop_map(|(numbers, offsets, directory_id)| {
        FetchPartition {
            index: numbers[0],
            current_leader_epoch: numbers[1],
            last_fetched_epoch: numbers[2],
            max_bytes: numbers[3],
            fetch_offset: offsets[0],
            log_start_offset: offsets[1],
            directory_id,
        }
    })
}

fn in_version(partition: &FetchPartition, version: i16) -> FetchPartition {
    let mut partition = *partition;
    if version < 9 {
        partition.current_leader_epoch = -1;
    }
    if version < 12 {
        partition.last_fetched_epoch = -1;
    }
    if version < 5 {
        partition.log_start_offset = -1;
    }
    if version < 17 {
        partition.directory_id = [0; 16];
    }
    partition
}

fn request_again(frame: &[u8], body_start: usize, version: i16) -> Result<Vec<u8>> {
    let mut request = FetchRequest::default();
    request.decode(frame, body_start, version)?;
    let topics: Vec<_> = request
        .topics
        .iter()
        .map(|topic| FetchTopicToWrite {
            name: topic.name.text(frame),
            id: topic.id,
            partitions: request.partitions_of(topic),
        })
        .collect();
    let forgotten: Vec<_> = request
        .forgotten
        .iter()
        .map(|topic| FetchTopicToWrite {
            name: topic.name.text(frame),
            id: topic.id,
            partitions: request.forgotten_of(topic),
        })
        .collect();
    let mut out = frame[..body_start].to_vec();
    FetchRequestToWrite {
        cluster_id: request.cluster_id.map(|span| span.text(frame)),
        replica_id: request.replica_id,
        replica_epoch: request.replica_epoch,
        max_wait_ms: request.max_wait_ms,
        min_bytes: request.min_bytes,
        max_bytes: request.max_bytes,
        isolation_level: request.isolation_level,
        session_id: request.session_id,
        session_epoch: request.session_epoch,
        topics: &topics,
        forgotten: &forgotten,
        rack_id: request.rack_id.text(frame),
    }
    .encode(&mut out, version);
    Ok(out)
}

/// Compares everything that the version has with what was written.
fn compare(request: &FetchRequest, frame: &[u8], version: i16, written: &FetchRequestToWrite<'_>) {
    assert_eq!(request.replica_id, written.replica_id);
    let epoch = if version >= 15 {
        written.replica_epoch
    } else {
        -1
    };
    assert_eq!(request.replica_epoch, epoch);
    let limits = (request.max_wait_ms, request.min_bytes, request.max_bytes);
    let max_bytes = if version >= 3 {
        written.max_bytes
    } else {
        i32::MAX
    };
    assert_eq!(limits, (written.max_wait_ms, written.min_bytes, max_bytes));
    let isolation_level = if version >= 4 {
        written.isolation_level
    } else {
        0
    };
    assert_eq!(request.isolation_level, isolation_level);
    let session = (request.session_id, request.session_epoch);
    let has_session = version >= 7;
    let expected = (written.session_id, written.session_epoch);
    assert_eq!(session, if has_session { expected } else { (0, -1) });
    let rack = if version >= 11 { written.rack_id } else { "" };
    assert_eq!(request.rack_id.text(frame), rack);
    let cluster = written.cluster_id.filter(|_| version >= 12);
    assert_eq!(request.cluster_id.map(|span| span.text(frame)), cluster);

    let key = |name: &str, id| match version >= 13 {
        true => (String::new(), id),
        false => (name.to_owned(), [0; 16]),
    };
    assert_eq!(request.topics.len(), written.topics.len());
    for (topic, expected) in request.topics.iter().zip(written.topics) {
        let got = (topic.name.text(frame).to_owned(), topic.id);
        assert_eq!(got, key(expected.name, expected.id));
        let partitions: Vec<_> = expected
            .partitions
            .iter()
            .map(|part| in_version(part, version))
            .collect();
        assert_eq!(request.partitions_of(topic), partitions);
    }
    let forgotten = if has_session { written.forgotten } else { &[] };
    assert_eq!(request.forgotten.len(), forgotten.len());
    for (topic, expected) in request.forgotten.iter().zip(forgotten) {
        let got = (topic.name.text(frame).to_owned(), topic.id);
        assert_eq!(got, key(expected.name, expected.id));
        assert_eq!(request.forgotten_of(topic), expected.partitions);
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(CASES))]

    #[test]
    fn requests(
        texts in (prop::option::of(name()), name()),
        replica in (-2i32..3, -1i64..3),
        numbers in any::<[i32; 5]>(),
        isolation_level in any::<i8>(),
        topics in some((name(), id(), some(partition()))),
        forgotten in some((name(), id(), some(any::<i32>()))),
        change in change(),
    ) {
        let topics: Vec<_> = topics
            .iter()
            .map(|(name, id, partitions)| FetchTopicToWrite { name, id: *id, partitions })
            .collect();
        let forgotten: Vec<_> = forgotten
            .iter()
            .map(|(name, id, partitions)| FetchTopicToWrite { name, id: *id, partitions })
            .collect();
        let written = FetchRequestToWrite {
            cluster_id: texts.0.as_deref(),
            replica_id: replica.0,
            replica_epoch: replica.1,
            max_wait_ms: numbers[0],
            min_bytes: numbers[1],
            max_bytes: numbers[2],
            isolation_level,
            session_id: numbers[3],
            session_epoch: numbers[4],
            topics: &topics,
            forgotten: &forgotten,
            rack_id: &texts.1,
        };
        // One structure for all versions, as the broker has.
        let mut request = FetchRequest::default();
        for version in (0..=17).rev() {
            let mut frame = vec![0xee; 5];
            written.encode(&mut frame, version);
            request.decode(&frame, 5, version).unwrap();
            compare(&request, &frame, version, &written);
            prop_assert_eq!(request_again(&frame, 5, version).unwrap(), frame.clone());
            check(&frame[5..], change, &|bytes| request_again(bytes, 0, version));
        }
    }

    #[test]
    fn random_bytes(bytes in prop::collection::vec(any::<u8>(), 0..160)) {
        for version in -1..=18 {
            let _ = request_again(&bytes, bytes.len() / 8, version);
        }
    }
}
