//! Replies to other brokers neither wait for clients nor are refused because of them.

use std::path::Path;
use std::sync::Arc;

use crate::harness::*;
use pyrklog_dataplane::seam::{Event, PlaneConfig};
use pyrklog_log::disk::RealDisk;
use pyrklog_wire::api::key;
use pyrklog_wire::fetch::{FetchRequestToWrite, FetchResponse, FetchTopicToWrite};

/// The memory of replies in these tests: an eighth of it is for brokers.
const REPLIES_MAX_BYTES: usize = 4 << 20;

/// A reply that fills the clients' part.
const LARGE_BYTES: usize = REPLIES_MAX_BYTES - 1000;

/// Two such replies fit into the brokers' part.
const BROKERS_BYTES: usize = 180 << 10;

fn small(dir: &Path) -> PlaneConfig {
    let mut config = config(vec![dir.join("logs")]);
    config.receive_buffers_max_bytes = REPLIES_MAX_BYTES;
    config.socket_send_buffer_bytes = 16 << 10;
    config.cluster = Some(cluster());
    config
}

fn leave_unread(test: &mut TestPlane) -> Client {
    let mut client = test.client();
    client.send(key::DESCRIBE_GROUPS, 0, &[0; 4]);
    let request = test.wait_for_request();
    test.plane.reply(request.id, vec![7; LARGE_BYTES]);
    client
}

fn wait_until_full(test: &TestPlane) {
    eventually("no memory left for clients", || {
        let used_bytes = test.statistic("reply_memory_bytes") as usize;
        (used_bytes >= REPLIES_MAX_BYTES / 8 * 7 - LARGE_BYTES / 4).then_some(())
    });
}

fn is_refusal(event: &Event, why: &str) -> bool {
    let Event::Notice { event, fields, .. } = event else {
        return false;
    };
    *event == "connection_refused" && fields.iter().any(|(_, text)| text.contains(why))
}

#[test]
fn connection_with_unread_replies_is_closed_when_a_reply_finds_no_memory() {
    let dir = tempfile::tempdir().unwrap();
    let mut test = TestPlane::start_with(small(dir.path()), Arc::new(RealDisk));
    let _silent = leave_unread(&mut test);
    wait_until_full(&test);
    let mut client = test.client();
    client.send(key::DESCRIBE_GROUPS, 0, &[0; 4]);
    let request = test.wait_for_request();
    test.plane.reply(request.id, vec![7; LARGE_BYTES]);
    assert!(client.is_closed());
    assert_eq!(test.statistic("replies_refused"), 1);
    test.wait_for("why", |event| is_refusal(event, "no memory for its answer"));
    test.wait_for("why", |event| is_refusal(event, "stayed unread"));
    eventually("the memory given back", || {
        (test.statistic("reply_memory_bytes") == 0).then_some(())
    });
    client = test.client();
    client.send(key::DESCRIBE_GROUPS, 0, &[0; 4]);
    let request = test.wait_for_request();
    test.plane.reply(request.id, vec![7; LARGE_BYTES]);
    assert_eq!(client.receive(key::DESCRIBE_GROUPS, 0).1.len(), LARGE_BYTES);
}

#[test]
fn replies_to_brokers_fit_despite_unread_client_replies() {
    let dir = tempfile::tempdir().unwrap();
    let mut test = TestPlane::start_with(small(dir.path()), Arc::new(RealDisk));
    let _silent = leave_unread(&mut test);
    wait_until_full(&test);
    let mut brokers: Vec<Client> = (0..3).map(|_| test.client()).collect();
    for broker in &mut brokers {
        broker.send(key::LEADER_AND_ISR, 7, &[7]);
        let order = test.wait_for_request();
        test.plane.reply(order.id, vec![8; BROKERS_BYTES]);
        broker.wait_for_bytes();
    }
    for broker in &mut brokers {
        let answer = broker.receive(key::LEADER_AND_ISR, 7).1;
        assert_eq!(answer.len(), BROKERS_BYTES);
    }
    assert_eq!(test.statistic("replies_refused"), 0);
}

#[test]
fn brokers_with_unread_replies_return_borrowed_memory() {
    let dir = tempfile::tempdir().unwrap();
    let mut test = TestPlane::start_with(small(dir.path()), Arc::new(RealDisk));
    let mut silent = test.client();
    silent.send(key::LEADER_AND_ISR, 7, &[7]);
    let order = test.wait_for_request();
    test.plane.reply(order.id, vec![8; LARGE_BYTES]);
    wait_until_full(&test);
    // The first client is answered in any case.
    let _first = leave_unread(&mut test);
    let _refused = leave_unread(&mut test);
    test.wait_for("why", |event| is_refusal(event, "no memory for its answer"));
    test.wait_for("why", |event| is_refusal(event, "stayed unread"));
    eventually("the memory given back", || {
        (test.statistic("reply_memory_bytes") == 0).then_some(())
    });
}

#[test]
fn followers_do_not_wait_for_memory_that_clients_fill() {
    let dir = tempfile::tempdir().unwrap();
    let mut test = TestPlane::start_with(small(dir.path()), Arc::new(RealDisk));
    let port = test.port;
    test.know(&[(1, port), (2, port)]);
    test.describe_topic("wide", 100_000, &topic_config());
    let _silent = leave_unread(&mut test);
    wait_until_full(&test);
    // One reply may exceed the bound.
    let mut beyond = test.client();
    beyond.send(key::METADATA, 12, &metadata_body("wide"));
    eventually("more than there is", || {
        let used_bytes = test.statistic("reply_memory_bytes") as usize;
        (used_bytes > REPLIES_MAX_BYTES).then_some(())
    });
    let wanted: Vec<_> = (0..1000).map(|index| partition(index, 0)).collect();
    let topics = [FetchTopicToWrite {
        name: "nothing",
        id: [0; 16],
        partitions: &wanted,
    }];
    for version in [12, 17] {
        let request = FetchRequestToWrite {
            replica_id: 2,
            replica_epoch: 1,
            max_wait_ms: 0,
            topics: &topics,
            ..FetchRequestToWrite::default()
        };
        let mut body = Vec::new();
        request.encode(&mut body, version);
        let answer = test.client().call(key::FETCH, version, &body);
        let response = FetchResponse::decode(&answer, version).unwrap();
        assert_eq!(response.topics[0].partitions.len(), 1000);
    }
    assert_eq!(test.statistic("protocol_errors"), 0, "nobody had to go");
}
