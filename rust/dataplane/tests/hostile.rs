//! Valid requests that cost the broker more than their sender: their cost is bounded.

use std::io::Write;
use std::sync::Arc;
use std::time::Duration;

use crate::harness::*;
use pyrklog_log::compression::compress;
use pyrklog_log::disk::RealDisk;
use pyrklog_wire::ErrorCode;
use pyrklog_wire::api::key;
use pyrklog_wire::batch::{Compression, NO_TIMESTAMP, TimestampType};
use pyrklog_wire::builder::BatchBuilder;
use pyrklog_wire::fetch::{FetchRequestToWrite, FetchResponse, FetchTopicToWrite};
use pyrklog_wire::list_offsets::{
    ListOffsetsPartition, ListOffsetsRequest, ListOffsetsResponse, ListOffsetsTopic,
};
use pyrklog_wire::metadata::{MetadataRequest, MetadataRequestTopic};
use pyrklog_wire::produce::{self, ProduceResponse, TopicToProduce};

use rustix::net::sockopt::set_socket_linger;

/// Record errors of one reply, as documented.
const RECORD_ERRORS_MAX: usize = 1000;

/// Small on the wire, with each record refused: it takes append time that the frame's size does not
/// show.
fn refused_record_by_record(records: usize) -> Vec<u8> {
    let mut builder = BatchBuilder::new().timestamp_type(TimestampType::LogAppendTime);
    for _ in 0..records {
        builder.append(NO_TIMESTAMP, None, None);
    }
    builder.build_compressed(Compression::Gzip, |records| {
        let mut body = Vec::new();
        compress(Compression::Gzip, records, &mut body).unwrap();
        body
    })
}

fn produce_all(client: &mut Client, topics: &[TopicToProduce<'_>]) -> Vec<u8> {
    let mut body = Vec::new();
    produce::encode_request(&mut body, PRODUCE_VERSION, None, 1, 10_000, topics);
    client.call(key::PRODUCE, PRODUCE_VERSION, &body)
}

#[test]
fn last_batch_of_a_repeated_partition_counts() {
    let dir = tempfile::tempdir().unwrap();
    let mut test = TestPlane::start(dir.path());
    test.create("t", 2);
    test.create("u", 1);
    let refused = refused_record_by_record(1000);
    let (good, better) = (batch(&[b"good"]), batch(&[b"better", b"still"]));
    let again = vec![(0, Some(&refused[..])); 1000];
    let topics = [
        TopicToProduce {
            name: "t",
            partitions: &again,
        },
        TopicToProduce {
            name: "u",
            partitions: &[(0, Some(&good))],
        },
        TopicToProduce {
            name: "t",
            partitions: &[(1, Some(&good)), (0, Some(&good)), (0, Some(&better))],
        },
    ];
    let mut client = test.client();
    let answer = produce_all(&mut client, &topics);
    assert!(answer.len() < 1000, "{} bytes", answer.len());
    let response = ProduceResponse::decode(&answer, PRODUCE_VERSION).unwrap();
    let mut told = Vec::new();
    for topic in &response.topics {
        for part in &topic.partitions {
            told.push((topic.name, part.index, part.error_code, part.base_offset));
        }
    }
    told.sort_unstable_by_key(|(name, index, ..)| (*name, *index));
    let expected =
        [("t", 0), ("t", 1), ("u", 0)].map(|(name, index)| (name, index, ErrorCode::NONE, 0));
    assert_eq!(told, expected);
    assert_eq!(response.topics.len(), 2);
    assert_eq!(
        client.fetch_one("t", 0, 0).high_watermark,
        2,
        "the last batch alone"
    );
    assert_eq!(client.fetch_one("t", 1, 0).high_watermark, 1);
}

#[test]
fn record_errors_are_bounded_for_a_request_not_for_a_batch() {
    let dir = tempfile::tempdir().unwrap();
    let mut test = TestPlane::start(dir.path());
    test.create("t", 40);
    let refused = refused_record_by_record(600);
    let partitions: Vec<_> = (0..40).map(|index| (index, Some(&refused[..]))).collect();
    let topics = [TopicToProduce {
        name: "t",
        partitions: &partitions,
    }];
    let mut client = test.client();
    let answer = produce_all(&mut client, &topics);
    let response = ProduceResponse::decode(&answer, PRODUCE_VERSION).unwrap();
    let parts = &response.topics[0].partitions;
    assert_eq!(parts.len(), 40);
    for part in parts {
        assert_eq!(part.error_code, ErrorCode::INVALID_TIMESTAMP);
        assert!(part.error_message.is_some());
    }
    let told: usize = parts.iter().map(|part| part.record_errors.len()).sum();
    assert_eq!(told, RECORD_ERRORS_MAX);
    assert_eq!(parts[0].record_errors.len(), 600);
}

/// The bound on the memory of replies in these tests, which one request may exceed.
const REPLIES_MAX_BYTES: usize = 4 << 20;

/// A plane with little memory for replies and small socket buffers.
fn start_small(dir: &std::path::Path) -> TestPlane {
    let mut config = config(vec![dir.join("logs")]);
    config.receive_buffers_max_bytes = REPLIES_MAX_BYTES;
    config.socket_send_buffer_bytes = 16 << 10;
    TestPlane::start_with(config, Arc::new(RealDisk))
}

/// A fetch of partitions that do not exist, which are answered at once.
fn fetch_of(partitions: i32, version: i16) -> Vec<u8> {
    let wanted: Vec<_> = (0..partitions).map(|index| partition(index, 0)).collect();
    let topics = [FetchTopicToWrite {
        name: "nothing",
        id: [0; 16],
        partitions: &wanted,
    }];
    let request = FetchRequestToWrite {
        max_wait_ms: 0,
        topics: &topics,
        ..FetchRequestToWrite::default()
    };
    let mut body = Vec::new();
    request.encode(&mut body, version);
    body
}

#[test]
fn a_request_with_more_elements_than_any_client_needs_is_refused_before_it_is_decoded() {
    let dir = tempfile::tempdir().unwrap();
    let mut config = config(vec![dir.path().join("logs")]);
    config.socket_request_max_bytes = 32 << 20;
    let mut test = TestPlane::start_with(config, Arc::new(RealDisk));
    test.create("t", 1);
    let names = vec![
        MetadataRequestTopic {
            id: [0; 16],
            name: Some("t"),
        };
        400_001
    ];
    let metadata = MetadataRequest {
        topics: Some(names),
        allow_auto_topic_creation: false,
        include_cluster_authorized_operations: false,
        include_topic_authorized_operations: false,
    };
    let mut names = Vec::new();
    metadata.encode(&mut names, 4);
    let nothing = vec![(0, None); 400_001];
    let produce = produce_body(PRODUCE_VERSION, 1, 1000, "t", &nothing);
    let requests = [
        (key::FETCH, 4, fetch_of(400_001, 4)),
        (key::METADATA, 4, names),
        (key::PRODUCE, PRODUCE_VERSION, produce),
    ];
    for (api_key, version, body) in requests {
        let mut client = test.client();
        client.send(api_key, version, &body);
        assert!(client.is_closed());
        let reason = test.wait_for_notice("connection_refused");
        let (_, reason) = reason.iter().find(|(name, _)| *name == "reason").unwrap();
        assert!(reason.contains("more than 400000 elements"), "{reason}");
    }
}

#[test]
fn fetches_of_many_partitions_share_the_memory_of_replies_and_are_all_answered() {
    let dir = tempfile::tempdir().unwrap();
    let test = start_small(dir.path());
    let partitions = 9_000;
    let body = fetch_of(partitions, 4);
    let readers: Vec<_> = (0..8)
        .map(|_| {
            let (mut client, body) = (test.client(), body.clone());
            std::thread::spawn(move || client.call(key::FETCH, 4, &body))
        })
        .collect();
    let one_bytes = 512 * partitions as u64;
    let mut most_bytes = 0;
    eventually("all answers", || {
        most_bytes = most_bytes.max(test.statistic("reply_memory_bytes"));
        readers
            .iter()
            .all(|reader| reader.is_finished())
            .then_some(())
    });
    for reader in readers {
        let answer = reader.join().unwrap();
        let response = FetchResponse::decode(&answer, 4).unwrap();
        assert_eq!(response.topics[0].partitions.len() as i32, partitions);
    }
    assert!(most_bytes > 0, "nothing was counted");
    assert!(
        most_bytes <= REPLIES_MAX_BYTES as u64 + one_bytes,
        "{most_bytes}"
    );
    eventually("the memory given back", || {
        (test.statistic("reply_memory_bytes") == 0).then_some(())
    });
}

#[test]
fn unread_replies_are_bounded_and_do_not_block_other_clients() {
    let dir = tempfile::tempdir().unwrap();
    let mut test = start_small(dir.path());
    test.describe_topic("wide", 30_000, &topic_config());
    test.create("t", 1);
    let body = metadata_body("wide");
    let mut silent: Vec<Client> = (0..8).map(|_| test.client()).collect();
    for client in &mut silent {
        client.send(key::METADATA, 12, &body);
    }
    let reply_bytes = 30_000 * 64;
    eventually("no memory left for replies", || {
        let bytes = test.statistic("reply_memory_bytes") as usize;
        assert!(bytes <= REPLIES_MAX_BYTES + reply_bytes, "{bytes}");
        (bytes + reply_bytes > REPLIES_MAX_BYTES).then_some(())
    });
    // Clients with small replies are served meanwhile.
    let mut small = test.client();
    for _ in 0..10 {
        assert_eq!(small.produce("t", 0, &batch(&[b"v"])).0, ErrorCode::NONE);
    }
    assert_eq!(small.fetch_one("t", 0, 0).high_watermark, 10);
    // A client that reads gets a large reply: those that do not read are closed for it.
    let mut reader = test.client();
    let answer = reader.call(key::METADATA, 12, &body);
    assert!(answer.len() > 30_000 * 20);
    let notice = test.wait_for_notice("connection_refused");
    assert!(
        notice
            .iter()
            .any(|(_, text)| text.contains("stayed unread"))
    );
    drop(silent);
    eventually("the memory given back", || {
        (test.statistic("reply_memory_bytes") == 0).then_some(())
    });
}

#[test]
fn a_request_may_need_half_of_the_memory_for_replies() {
    let dir = tempfile::tempdir().unwrap();
    let mut config = config(vec![dir.path().join("logs")]);
    config.receive_buffers_max_bytes = 16 << 20;
    let mut test = TestPlane::start_with(config, Arc::new(RealDisk));
    let mut client = test.client();
    let answer = client.call(key::FETCH, 4, &fetch_of(16_000, 4));
    let response = FetchResponse::decode(&answer, 4).unwrap();
    assert_eq!(response.topics[0].partitions.len(), 16_000);
    client.send(key::FETCH, 4, &fetch_of(17_000, 4));
    assert!(client.is_closed());
    let notice = test.wait_for_notice("connection_refused");
    let has_reason = |text: &str| text.contains("too much of the memory for replies");
    assert!(notice.iter().any(|(_, text)| has_reason(text)));
}

#[test]
fn answers_of_the_control_plane_share_the_memory_of_replies() {
    let dir = tempfile::tempdir().unwrap();
    let mut test = start_small(dir.path());
    let mut clients: Vec<Client> = (0..3).map(|_| test.client()).collect();
    let mut ids = Vec::new();
    for client in &mut clients {
        client.send(key::DESCRIBE_GROUPS, 0, &[0; 4]);
        ids.push(test.wait_for_request().id);
    }
    // The first one is not read, so there is no room for the second.
    let answer = vec![7; REPLIES_MAX_BYTES - 1000];
    test.plane.reply(ids[0], answer.clone());
    eventually("the reply counted", || {
        (test.statistic("reply_memory_bytes") as usize >= REPLIES_MAX_BYTES / 2).then_some(())
    });
    test.plane.reply(ids[1], answer.clone());
    assert!(clients[1].is_closed());
    test.plane.reply(ids[2], vec![8; 100]);
    assert_eq!(clients[2].receive(key::DESCRIBE_GROUPS, 0).1, [8; 100]);
    assert_eq!(clients[0].receive(key::DESCRIBE_GROUPS, 0).1, answer);
    eventually("the memory given back", || {
        (test.statistic("reply_memory_bytes") == 0).then_some(())
    });
}

#[test]
fn group_strings_are_bounded_in_each_request() {
    let dir = tempfile::tempdir().unwrap();
    let mut test = TestPlane::start(dir.path());
    for (api_key, version) in [
        (key::OFFSET_COMMIT, 2),
        (key::JOIN_GROUP, 0),
        (key::SYNC_GROUP, 0),
    ] {
        let mut client = test.client();
        client.send(api_key, version, &vec![0; (4 << 20) + 1]);
        assert!(client.is_closed());
        test.wait_for_notice("connection_refused");
    }
    let mut client = test.client();
    client.send(key::JOIN_GROUP, 0, &vec![0; 4 << 20]);
    assert_eq!(test.wait_for_request().body.len(), 4 << 20);
}

#[test]
fn fetches_that_wait_give_their_memory_up_when_others_need_it() {
    let dir = tempfile::tempdir().unwrap();
    let mut config = config(vec![dir.path().join("logs")]);
    config.receive_buffers_max_bytes = 512 << 10;
    let mut test = TestPlane::start_with(config, Arc::new(RealDisk));
    test.create("t", 600);
    test.describe_topic("wide", 30_000, &topic_config());
    // Each may hold memory for an hour, on any thread.
    let wanted: Vec<_> = (0..600).map(|index| partition(index, 0)).collect();
    let topics = [FetchTopicToWrite {
        name: "t",
        id: test.topic_id.unwrap_or_default(),
        partitions: &wanted,
    }];
    let request = FetchRequestToWrite {
        max_wait_ms: 3_600_000,
        min_bytes: 1,
        max_bytes: 1 << 20,
        topics: &topics,
        ..FetchRequestToWrite::default()
    };
    let mut body = Vec::new();
    request.encode(&mut body, 4);
    let mut waiting: Vec<Client> = (0..4).map(|_| test.client()).collect();
    for client in &mut waiting {
        client.send(key::FETCH, 4, &body);
    }
    eventually("no memory left for replies", || {
        (test.statistic("reply_memory_bytes") >= 2 * 600 * 512).then_some(())
    });
    let wide = metadata_body("wide");
    let mut others: Vec<Client> = (0..4).map(|_| test.client()).collect();
    for other in &mut others {
        other.send(key::METADATA, 12, &wide);
    }
    for other in &mut others {
        assert!(other.receive(key::METADATA, 12).1.len() > 30_000 * 20);
    }
    for client in &mut waiting {
        let (_, answer) = client.receive(key::FETCH, 4);
        let response = FetchResponse::decode(&answer, 4).unwrap();
        assert_eq!(response.topics[0].partitions.len(), 600);
    }
    // The memory is free again: a fetch waits again.
    waiting[0].send(key::FETCH, 4, &body);
    eventually("a fetch that waits", || {
        (test.statistic("purgatory_fetch") >= 600).then_some(())
    });
}

#[test]
fn answers_that_wait_for_their_turn_are_bounded_in_memory_not_only_in_number() {
    let dir = tempfile::tempdir().unwrap();
    let mut test = TestPlane::start(dir.path());
    test.describe_topic("t", 1, &topic_config());
    let mut replicated = TestPlane::leader_spec("t", 0, 0);
    replicated.replicas = vec![1, 2];
    replicated.isr = vec![1, 2];
    assert_eq!(test.become_leaders(vec![replicated]), [0]);
    let record = batch(&[b"v"]);
    // One partition that waits for its follower, and many that do not exist.
    let mut partitions: Vec<_> = (1..2000).map(|index| (index, None)).collect();
    partitions.push((0, Some(&record[..])));
    let body = produce_body(PRODUCE_VERSION, -1, 60_000, "t", &partitions);
    let mut client = test.client();
    let sender = {
        let frames: Vec<Vec<u8>> = (0..200)
            .map(|_| client.frame(key::PRODUCE, PRODUCE_VERSION, &body))
            .collect();
        let mut stream = client.stream.try_clone().unwrap();
        std::thread::spawn(move || {
            for frame in frames {
                if stream.write_all(&frame).is_err() {
                    break;
                }
            }
        })
    };
    eventually("answers that wait", || {
        (test.statistic("reply_memory_bytes") >= 4 << 20).then_some(())
    });
    let mut bystander = test.client();
    bystander.call(key::API_VERSIONS, 0, &[]);
    assert!(test.statistic("reply_memory_bytes") <= 5 << 20);
    assert!(test.statistic("purgatory_produce") < 40);
    client.stream.shutdown(std::net::Shutdown::Both).unwrap();
    sender.join().unwrap();
}

#[test]
fn produce_of_a_closed_connection_leaves_the_purgatory() {
    let dir = tempfile::tempdir().unwrap();
    let mut test = TestPlane::start(dir.path());
    test.describe_topic("t", 1, &topic_config());
    let mut replicated = TestPlane::leader_spec("t", 0, 0);
    replicated.replicas = vec![1, 2];
    replicated.isr = vec![1, 2];
    assert_eq!(test.become_leaders(vec![replicated]), [0]);
    let record = batch(&[b"v"]);
    let partitions = [(0, Some(&record[..]))];
    let hasty = produce_body(PRODUCE_VERSION, -1, 1, "t", &partitions);
    let patient = produce_body(PRODUCE_VERSION, -1, 3_600_000, "t", &partitions);
    let mut leaving = test.client();
    for _ in 0..20 {
        leaving.send(key::PRODUCE, PRODUCE_VERSION, &patient);
    }
    eventually("the patient ones", || {
        (test.statistic("purgatory_produce") == 20).then_some(())
    });
    let mut client = test.client();
    for _ in 0..10 {
        client.send(key::PRODUCE, PRODUCE_VERSION, &hasty);
    }
    for _ in 0..10 {
        let (_, answer) = client.receive(key::PRODUCE, PRODUCE_VERSION);
        let (error, _) = produced(&answer, PRODUCE_VERSION);
        assert_eq!(error, ErrorCode::REQUEST_TIMED_OUT);
    }
    assert_eq!(test.statistic("purgatory_produce"), 20);
    // A reset connection, not one that may still read.
    set_socket_linger(&leaving.stream, Some(Duration::ZERO)).unwrap();
    drop(leaving);
    eventually("none waiting", || {
        (test.statistic("purgatory_produce") == 0).then_some(())
    });
}

#[test]
fn batches_that_expand_to_much_hold_up_their_own_connection_only() {
    let dir = tempfile::tempdir().unwrap();
    let mut config = config(vec![dir.path().join("logs")]);
    config.network_threads = 1;
    let mut test = TestPlane::start_with(config, Arc::new(RealDisk));
    test.create("bombs", 16);
    test.create("t", 1);
    let mut builder = BatchBuilder::new();
    builder.append(1_700_000_000_000, None, Some(&vec![0; 16 << 20]));
    let bomb = builder.build_compressed(Compression::Gzip, |records| {
        let mut body = Vec::new();
        compress(Compression::Gzip, records, &mut body).unwrap();
        body
    });
    assert!(bomb.len() < 100_000, "{}", bomb.len());
    let partitions: Vec<_> = (0..16).map(|index| (index, Some(&bomb[..]))).collect();
    let body = produce_body(PRODUCE_VERSION, 1, 10_000, "bombs", &partitions);
    let mut sender = test.client();
    sender.send(key::PRODUCE, PRODUCE_VERSION, &body);
    // Later requests on their connection wait for their turn.
    let behind = batch(&[b"behind"]);
    let body = produce_body(PRODUCE_VERSION, 1, 10_000, "bombs", &[(0, Some(&behind))]);
    sender.send(key::PRODUCE, PRODUCE_VERSION, &body);
    eventually("the bombs under way", || {
        (test.statistic("validation_running") > 0).then_some(())
    });
    let mut other = test.client();
    for _ in 0..10 {
        assert_eq!(other.produce("t", 0, &batch(&[b"v"])).0, ErrorCode::NONE);
    }
    assert_eq!(other.fetch_one("t", 0, 0).high_watermark, 10);
    // All of that on the thread that the bombs came to, while they were under way.
    assert_eq!(test.statistic("validation_running"), 1);
    assert_eq!(other.fetch_one("bombs", 0, 0).high_watermark, 0);
    for offset in [0, 1] {
        let (_, answer) = sender.receive(key::PRODUCE, PRODUCE_VERSION);
        let response = ProduceResponse::decode(&answer, PRODUCE_VERSION).unwrap();
        for part in &response.topics[0].partitions {
            let told = (part.error_code, part.base_offset);
            assert_eq!(told, (ErrorCode::NONE, offset));
        }
    }
    assert_eq!(test.statistic("validation_running"), 0);
}

#[test]
fn closed_connection_drops_its_waiting_validations() {
    let dir = tempfile::tempdir().unwrap();
    let mut test = TestPlane::start(dir.path());
    let mut options = topic_config();
    options.log.compression_type = Some(Compression::Gzip);
    assert_eq!(test.lead("t", 8, &options), [0; 8]);
    // Uncompressed, to be stored in another codec: that work is left to validators, too.
    let large = large_batch(900_000);
    let partitions: Vec<_> = (0..8).map(|index| (index, Some(&large[..]))).collect();
    let body = produce_body(PRODUCE_VERSION, 1, 10_000, "t", &partitions);
    let mut leaving = test.client();
    leaving.send(key::PRODUCE, PRODUCE_VERSION, &body);
    eventually("work under way", || {
        (test.statistic("validation_running") > 0).then_some(())
    });
    set_socket_linger(&leaving.stream, Some(Duration::ZERO)).unwrap();
    drop(leaving);
    eventually("the memory given back", || {
        let is_idle = test.statistic("validation_running") == 0;
        (is_idle && test.statistic("receive_memory_bytes") == 0).then_some(())
    });
    // A client that stays gets its records, in the topic's codec.
    let mut client = test.client();
    let answer = client.call(key::PRODUCE, PRODUCE_VERSION, &body);
    assert_eq!(produced(&answer, PRODUCE_VERSION).0, ErrorCode::NONE);
    let stored = client.fetch_one("t", 0, 0).records;
    assert!(stored.len() < 100_000, "{}", stored.len());
}

/// An incremental fetch of a few bytes is answered with all partitions that have an error.
#[test]
fn unread_answers_of_a_large_session_are_bounded_and_their_request_waits() {
    const LARGE: i32 = 5_000;
    let dir = tempfile::tempdir().unwrap();
    let mut config = config(vec![dir.path().join("logs")]);
    config.receive_buffers_max_bytes = REPLIES_MAX_BYTES;
    config.socket_send_buffer_bytes = 16 << 10;
    config.network_threads = 1;
    let test = TestPlane::start_with(config, Arc::new(RealDisk));
    let wanted: Vec<_> = (0..LARGE).map(|index| partition(index, 0)).collect();
    let (mut session, first) = SessionClient::open(&test, &wanted, |_| {});
    assert_eq!(first.len() as i32, LARGE);
    let mut silent = Vec::new();
    let waits = loop {
        let looks = test.statistic("fetch_looks");
        session.client = test.client();
        session.send(&[], 0);
        let is_answered = (0..100).any(|_| {
            std::thread::sleep(Duration::from_millis(5));
            test.statistic("fetch_looks") > looks
        });
        if !is_answered {
            break true;
        }
        session.ask.session.1 += 1;
        silent.push(std::mem::replace(&mut session.client, test.client()));
        if silent.len() == 60 {
            break false;
        }
    };
    let bytes = test.statistic("reply_memory_bytes") as usize;
    assert!(waits, "{} replies, {bytes} bytes", silent.len());
    assert!(bytes <= REPLIES_MAX_BYTES + 512 * LARGE as usize, "{bytes}");
    drop(silent);
    assert_eq!(session.receive().len() as i32, LARGE);
    assert_eq!(session.fetch(&[]).len() as i32, LARGE, "all are due");
}

#[test]
fn list_offsets_of_a_partition_named_twice_is_invalid_and_answered_once() {
    let dir = tempfile::tempdir().unwrap();
    let mut test = TestPlane::start(dir.path());
    test.create("t", 2);
    let wanted = |index| ListOffsetsPartition {
        index,
        current_leader_epoch: -1,
        timestamp: -1,
        max_offsets: 1,
    };
    let topic = |indexes: &[i32]| ListOffsetsTopic {
        name: "t",
        partitions: indexes.iter().copied().map(wanted).collect(),
    };
    let request = ListOffsetsRequest {
        replica_id: -1,
        isolation_level: 0,
        topics: vec![topic(&[0, 1, 0]), topic(&[0])],
    };
    let mut body = Vec::new();
    request.encode(&mut body, 7);
    let answer = test.client().call(key::LIST_OFFSETS, 7, &body);
    let response = ListOffsetsResponse::decode(&answer, 7).unwrap();
    assert_eq!(response.topics.len(), 1);
    let told = response.topics[0].partitions.iter();
    let told: Vec<_> = told.map(|one| (one.index, one.error_code)).collect();
    assert_eq!(
        told,
        [(0, ErrorCode::INVALID_REQUEST), (1, ErrorCode::NONE)]
    );
}
