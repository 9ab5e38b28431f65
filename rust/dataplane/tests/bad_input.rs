//! Invalid input costs one connection, with one line for the operator; all others go on.

use std::io::Write;
use std::sync::Arc;

use crate::harness::*;
use pyrklog_dataplane::seam::{LeaderSpec, TopicConfig};
use pyrklog_log::disk::RealDisk;
use pyrklog_wire::ErrorCode;
use pyrklog_wire::api::{TABLE, key};
use pyrklog_wire::api_versions::{ApiVersionsResponse, Offer};
use pyrklog_wire::produce::ProduceResponse;

fn assert_refused(test: &mut TestPlane, bytes: &[u8]) {
    let mut client = test.client();
    let mut bystander = test.client();
    // The broker may close before everything is sent.
    let _ = client.stream.write_all(bytes);
    assert!(client.is_closed(), "{bytes:02x?}");
    let fields = test.wait_for_notice("connection_refused");
    assert!(
        fields
            .iter()
            .any(|(name, text)| *name == "reason" && !text.is_empty())
    );
    assert_eq!(
        bystander.produce("t", 0, &batch(&[b"v"])).0,
        ErrorCode::NONE
    );
}

#[test]
fn garbage_closes_its_connection_only() {
    let dir = tempfile::tempdir().unwrap();
    let mut test = TestPlane::start(dir.path());
    test.create("t", 1);
    let huge = (11i32 << 20).to_be_bytes();
    assert_refused(&mut test, b"GET / HTTP/1.1\r\nHost: here\r\n\r\n");
    assert_refused(&mut test, &huge);
    assert_refused(&mut test, &(-1i32).to_be_bytes());
    assert_refused(&mut test, &[0, 0, 0, 0]);
    assert_refused(&mut test, &[0, 0, 0, 3, 0, 0, 0]);
    let mut client = test.client();
    let unknown_api = client.frame(999, 0, &[]);
    assert_refused(&mut test, &unknown_api);
    let new_version = client.frame(key::FETCH, 99, &[]);
    assert_refused(&mut test, &new_version);
    let old_version = client.frame(key::FETCH, 3, &[]);
    assert_refused(&mut test, &old_version);
    // An array that claims two billion elements.
    let lying = client.frame(
        key::FETCH,
        4,
        &[[0xff; 17].as_slice(), &[0x7f, 0xff, 0xff, 0xff]].concat(),
    );
    assert_refused(&mut test, &lying);
    let record = batch(&[b"v"]);
    let body = produce_body(PRODUCE_VERSION, 1, 1000, "t", &[(0, Some(&record))]);
    for len in [0, 3, 10, body.len() - 3] {
        let cut = client.frame(key::PRODUCE, PRODUCE_VERSION, &body[..len]);
        assert_refused(&mut test, &cut);
    }
    // Nothing of the cut requests was appended: only the bystanders' records are there.
    let bystanders = test.statistic("protocol_errors");
    assert_eq!(bystanders, 13);
    assert_eq!(
        test.client().fetch_one("t", 0, 0).high_watermark,
        bystanders as i64
    );
}

#[test]
fn every_api_of_the_table_survives_a_garbage_body() {
    let dir = tempfile::tempdir().unwrap();
    let mut test = TestPlane::start(dir.path());
    test.create("t", 1);
    for row in TABLE.iter().filter(|row| !row.is_between_brokers) {
        for version in row.min_version..=row.max_version {
            for body in [&[][..], &[0xff; 64], &[0x00; 7], &[0x7f; 200]] {
                let mut client = test.client();
                client.send(row.key, version, body);
                // Answered, closed, or handed to the control plane: the bystander tells.
                client.stream.shutdown(std::net::Shutdown::Write).unwrap();
            }
        }
    }
    assert_eq!(
        test.client().produce("t", 0, &batch(&[b"v"])),
        (ErrorCode::NONE, 0)
    );
}

#[test]
fn an_unknown_version_of_api_versions_is_told_the_known_ones() {
    let dir = tempfile::tempdir().unwrap();
    let test = TestPlane::start(dir.path());
    let mut client = test.client();
    client.send(key::API_VERSIONS, 99, &[1, 2, 3]);
    let frame = client.receive_frame().unwrap();
    assert_eq!(frame[..4], client.correlation_id.to_be_bytes());
    let response = ApiVersionsResponse::decode(&frame[4..], 0).unwrap();
    assert_eq!(response.error_code, ErrorCode::UNSUPPORTED_VERSION);
    assert_eq!(
        response.apis,
        ApiVersionsResponse::of_table(Offer::default()).apis
    );
    client.call(key::API_VERSIONS, 0, &[]);
}

#[test]
fn a_bad_batch_fails_its_partition_and_the_connection_lives() {
    let dir = tempfile::tempdir().unwrap();
    let mut test = TestPlane::start(dir.path());
    test.create("t", 3);
    let mut client = test.client();
    let good = batch(&[b"good"]);
    let mut corrupt = good.clone();
    *corrupt.last_mut().unwrap() ^= 1;
    let partitions = [
        (0, Some(&corrupt[..])),
        (1, Some(&good[..])),
        (7, Some(&good[..])),
        (2, None),
    ];
    let body = produce_body(PRODUCE_VERSION, 1, 1000, "t", &partitions);
    let answer = client.call(key::PRODUCE, PRODUCE_VERSION, &body);
    let response = ProduceResponse::decode(&answer, PRODUCE_VERSION).unwrap();
    let codes: Vec<ErrorCode> = response.topics[0]
        .partitions
        .iter()
        .map(|part| part.error_code)
        .collect();
    assert_eq!(
        codes,
        [
            ErrorCode::CORRUPT_MESSAGE,
            ErrorCode::NONE,
            ErrorCode::UNKNOWN_TOPIC_OR_PARTITION,
            ErrorCode::INVALID_RECORD,
        ]
    );
    assert_eq!(client.fetch_one("t", 0, 0).high_watermark, 0);
    assert_eq!(client.fetch_one("t", 1, 0).high_watermark, 1);
}

#[test]
fn errors_of_produce_and_fetch_are_kafkas() {
    let dir = tempfile::tempdir().unwrap();
    let mut test = TestPlane::start(dir.path());
    let strict = TopicConfig {
        min_insync_replicas: 2,
        ..topic_config()
    };
    test.describe_topic("strict", 1, &strict);
    let one_of_two = LeaderSpec {
        replicas: vec![1, 2],
        ..TestPlane::leader_spec("strict", 0, 0)
    };
    assert_eq!(test.become_leaders(vec![one_of_two]), [0]);
    test.create("t", 1);
    test.describe_topic_led_by("elsewhere", 1, &topic_config(), 9);
    let mut client = test.client();
    let record = batch(&[b"v"]);
    assert_eq!(
        client.produce_acks(2, "t", 0, &record).0,
        ErrorCode::INVALID_REQUIRED_ACKS
    );
    assert_eq!(
        client.produce_acks(-1, "strict", 0, &record).0,
        ErrorCode::NOT_ENOUGH_REPLICAS
    );
    assert_eq!(
        client.produce_acks(1, "strict", 0, &record).0,
        ErrorCode::NONE
    );
    assert_eq!(
        client.produce("nothing", 0, &record).0,
        ErrorCode::UNKNOWN_TOPIC_OR_PARTITION
    );
    assert_eq!(
        client.produce("elsewhere", 0, &record).0,
        ErrorCode::NOT_LEADER_OR_FOLLOWER
    );
    assert_eq!(
        client.fetch_one("elsewhere", 0, 0).error,
        ErrorCode::NOT_LEADER_OR_FOLLOWER
    );
    // As in Kafka, also with the version that names addresses.
    for (version, leader) in [(FETCH_VERSION, None), (15, None), (16, Some((9, 0)))] {
        let ask = Ask::one("elsewhere", 0, 0).version(version);
        assert_eq!(client.fetch(&ask).partitions[0].current_leader, leader);
    }
    assert_eq!(
        client.fetch_one("t", 0, 1).error,
        ErrorCode::OFFSET_OUT_OF_RANGE
    );
    assert_eq!(
        client.fetch_one("t", 5, 0).error,
        ErrorCode::UNKNOWN_TOPIC_OR_PARTITION
    );
    // A broker without a replica may not fetch as one.
    let mut ask = Ask::one("t", 0, 0);
    ask.replica_id = 8;
    assert_eq!(
        client.fetch(&ask).partitions[0].error,
        ErrorCode::NOT_LEADER_OR_FOLLOWER
    );
}

#[test]
fn leader_epochs_fence_both_ways() {
    let dir = tempfile::tempdir().unwrap();
    let mut test = TestPlane::start(dir.path());
    test.create("t", 1);
    let mut client = test.client();
    let mut ask = Ask::one("t", 0, 0);
    ask.partitions[0].1.current_leader_epoch = 4;
    assert_eq!(
        client.fetch(&ask).partitions[0].error,
        ErrorCode::UNKNOWN_LEADER_EPOCH
    );
    assert_eq!(
        test.become_leaders(vec![TestPlane::leader_spec("t", 0, 6)]),
        [0]
    );
    assert_eq!(
        client.fetch(&ask).partitions[0].error,
        ErrorCode::FENCED_LEADER_EPOCH
    );
    assert_eq!(
        test.become_leaders(vec![TestPlane::leader_spec("t", 0, 5)]),
        [74]
    );
}

#[test]
fn silent_and_slow_connections_are_dropped() {
    let dir = tempfile::tempdir().unwrap();
    let mut config = config(vec![dir.path().join("logs")]);
    config.connections_max_idle_ms = 100;
    let test = TestPlane::start_with(config, Arc::new(RealDisk));
    let mut idle = test.client();
    assert!(idle.is_closed());
    // A frame that drips in does not keep its connection open.
    let mut slow = test.client();
    let frame = slow.frame(key::API_VERSIONS, 0, &[0; 1000]);
    let mut sent = 0;
    while slow.stream.write_all(&frame[sent..=sent]).is_ok() {
        sent += 1;
        assert!(sent < 900, "a slow frame was not dropped");
        // Often enough that the connection is never silent for its whole time.
        std::thread::sleep(std::time::Duration::from_millis(10));
    }
    eventually("both counted", || {
        (test.statistic("idle_closed") == 2).then_some(())
    });
    assert_eq!(test.statistic("connections"), 0);
}

#[test]
fn limits_on_connections_hold() {
    let dir = tempfile::tempdir().unwrap();
    let mut config = config(vec![dir.path().join("logs")]);
    config.max_connections_per_ip = 3;
    let test = TestPlane::start_with(config, Arc::new(RealDisk));
    let mut admitted: Vec<Client> = (0..3).map(|_| test.client()).collect();
    for client in &mut admitted {
        client.call(key::API_VERSIONS, 0, &[]);
    }
    assert!(test.client().is_closed());
    drop(admitted.pop());
    eventually("a free place", || {
        (test.statistic("connections") == 2).then_some(())
    });
    test.client().call(key::API_VERSIONS, 0, &[]);
}

#[test]
fn at_the_limit_of_all_connections_newcomers_wait_for_a_place() {
    let dir = tempfile::tempdir().unwrap();
    let mut config = config(vec![dir.path().join("logs")]);
    config.max_connections = 2;
    let mut test = TestPlane::start_with(config, Arc::new(RealDisk));
    let mut admitted: Vec<Client> = (0..2).map(|_| test.client()).collect();
    for client in &mut admitted {
        client.call(key::API_VERSIONS, 0, &[]);
    }
    let mut third = test.client();
    third.send(key::API_VERSIONS, 0, &[]);
    eventually("the limit noticed", || {
        (test.statistic("connections_at_limit") > 0).then_some(())
    });
    assert_eq!(test.statistic("connections"), 2);
    test.wait_for_notice("connections_at_limit");
    drop(admitted.pop());
    third.receive(key::API_VERSIONS, 0);
}

#[test]
fn brokers_come_in_when_clients_have_taken_every_connection() {
    let dir = tempfile::tempdir().unwrap();
    let mut config = config(vec![dir.path().join("logs")]);
    config.max_connections = 2;
    let mut test = TestPlane::start_with(config, Arc::new(RealDisk));
    let port = test.plane.listen("PEERS", "127.0.0.1", 0, true).unwrap();
    let mut clients: Vec<Client> = (0..2).map(|_| test.client()).collect();
    for client in &mut clients {
        client.call(key::API_VERSIONS, 0, &[]);
    }
    let mut broker = Client::connect(port);
    broker.call(key::API_VERSIONS, 0, &[]);
    let mut waiting = test.client();
    waiting.send(key::API_VERSIONS, 0, &[]);
    test.wait_for_notice("connections_at_limit");
    assert_eq!(test.statistic("connections"), 3);
    drop((clients, broker));
    waiting.receive(key::API_VERSIONS, 0);
}

#[test]
fn a_produce_to_the_wrong_broker_is_told_the_leader() {
    let dir = tempfile::tempdir().unwrap();
    let mut test = TestPlane::start(dir.path());
    test.describe_topic_led_by("elsewhere", 1, &topic_config(), 9);
    let record = batch(&[b"v"]);
    let body = produce_body(PRODUCE_VERSION, 1, 1000, "elsewhere", &[(0, Some(&record))]);
    let answer = test.client().call(key::PRODUCE, PRODUCE_VERSION, &body);
    let response = ProduceResponse::decode(&answer, PRODUCE_VERSION).unwrap();
    let partition = &response.topics[0].partitions[0];
    assert_eq!(partition.error_code, ErrorCode::NOT_LEADER_OR_FOLLOWER);
    assert_eq!(
        partition.current_leader.map(|leader| leader.leader_id),
        Some(9)
    );
    // A partition that is still being opened names this broker, with its endpoint.
    test.describe_topic("soon", 1, &topic_config());
    let body = produce_body(PRODUCE_VERSION, 1, 1000, "soon", &[(0, Some(&record))]);
    let answer = test.client().call(key::PRODUCE, PRODUCE_VERSION, &body);
    let response = ProduceResponse::decode(&answer, PRODUCE_VERSION).unwrap();
    let partition = &response.topics[0].partitions[0];
    assert_eq!(
        partition.current_leader.map(|leader| leader.leader_id),
        Some(1)
    );
    assert_eq!(response.endpoints[0].port, i32::from(test.port));
}

#[test]
fn partial_frames_are_bounded_in_sum_and_whole_ones_get_through() {
    let dir = tempfile::tempdir().unwrap();
    let mut config = config(vec![dir.path().join("logs")]);
    config.receive_buffers_max_bytes = 2 << 20;
    let mut test = TestPlane::start_with(config, Arc::new(RealDisk));
    let mut options = topic_config();
    options.log.max_message_bytes = 8 << 20;
    assert_eq!(test.lead("t", 1, &options), [0]);
    // Each frame alone is larger than the bound; together they are far beyond it.
    let senders: Vec<_> = (0..6)
        .map(|_| {
            let mut client = test.client();
            std::thread::spawn(move || client.produce("t", 0, &large_batch(3 << 20)))
        })
        .collect();
    let mut offsets: Vec<i64> = senders
        .into_iter()
        .map(|sender| {
            let (error, offset) = sender.join().unwrap();
            assert_eq!(error, ErrorCode::NONE);
            offset
        })
        .collect();
    offsets.sort_unstable();
    assert_eq!(offsets, [0, 1, 2, 3, 4, 5]);
    eventually("the memory given back", || {
        (test.statistic("receive_memory_bytes") < 2 << 20).then_some(())
    });
}

#[test]
fn silent_connection_does_not_hold_up_sending_ones() {
    let dir = tempfile::tempdir().unwrap();
    let mut config = config(vec![dir.path().join("logs")]);
    config.receive_buffers_max_bytes = 1 << 20;
    config.network_threads = 1;
    let mut test = TestPlane::start_with(config, Arc::new(RealDisk));
    test.create("t", 1);
    let record = large_batch(900_000);
    let body = produce_body(PRODUCE_VERSION, 1, 10_000, "t", &[(0, Some(&record))]);
    // Two that have sent a part of their frames fill the memory. The second one's part need not be
    // received: the first may have taken the turn by then.
    let mut senders: Vec<(Client, Vec<u8>, usize)> = Vec::new();
    for (sent, memory) in [(800_000, 800_000), (200_000, 1 << 20)] {
        let mut client = test.client();
        let frame = client.frame(key::PRODUCE, PRODUCE_VERSION, &body);
        client.stream.write_all(&frame[..sent]).unwrap();
        senders.push((client, frame, sent));
        eventually("the memory taken", || {
            (test.statistic("receive_memory_bytes") >= memory).then_some(())
        });
    }
    let silent: Vec<Client> = (0..5).map(|_| test.client()).collect();
    eventually("the newcomers", || {
        (test.statistic("connections") == 7).then_some(())
    });
    for (client, frame, sent) in &mut senders {
        client.stream.write_all(&frame[*sent..]).unwrap();
    }
    for (client, ..) in &mut senders {
        let (_, answer) = client.receive(key::PRODUCE, PRODUCE_VERSION);
        assert_eq!(produced(&answer, PRODUCE_VERSION).0, ErrorCode::NONE);
    }
    drop(silent);
}
