//! Requests that the control plane answers, and those that wait for it.

mod harness;

use std::sync::Arc;

use harness::*;
use pyrklog_dataplane::api::Event;
use pyrklog_log::disk::RealDisk;
use pyrklog_wire::ErrorCode;
use pyrklog_wire::api::key;
use pyrklog_wire::metadata::MetadataResponse;

#[test]
fn a_request_goes_up_and_its_reply_comes_back_in_order() {
    let dir = tempfile::tempdir().unwrap();
    let mut test = TestPlane::start(dir.path());
    let mut client = test.client();
    let describe = client.frame(key::DESCRIBE_CLUSTER, 1, &[1, 2, 3]);
    let versions = client.frame(key::API_VERSIONS, 0, &[]);
    std::io::Write::write_all(&mut client.stream, &[describe, versions].concat()).unwrap();
    let request = test.wait_for_request();
    assert_eq!(
        (request.api_key, request.api_version),
        (key::DESCRIBE_CLUSTER, 1)
    );
    assert_eq!(request.body, [1, 2, 3]);
    assert_eq!(request.session.client_id.as_deref(), Some("test"));
    assert_eq!(&*request.session.listener, "PLAINTEXT");
    assert_eq!(
        test.statistic("requests.ApiVersions"),
        0,
        "the next one waits for this"
    );
    test.plane.reply(request.id, vec![9, 9]);
    assert_eq!(client.receive(key::DESCRIBE_CLUSTER, 1), (1, vec![9, 9]));
    assert_eq!(client.receive(key::API_VERSIONS, 0).0, 2);
    // A second answer, or one to nobody, changes nothing.
    test.plane.reply(request.id, vec![8]);
    test.plane.close_request(12345);
    client.call(key::API_VERSIONS, 0, &[]);
}

#[test]
fn no_answer_closes_the_connection() {
    let dir = tempfile::tempdir().unwrap();
    let mut test = TestPlane::start(dir.path());
    let mut client = test.client();
    client.send(key::DESCRIBE_CLUSTER, 0, &[0]);
    let request = test.wait_for_request();
    test.plane.close_request(request.id);
    assert!(client.is_closed());
    // A client that left before its answer disturbs nobody: its connection ends with the answer.
    let mut gone = test.client();
    gone.send(key::DESCRIBE_CLUSTER, 0, &[0]);
    let request = test.wait_for_request();
    drop(gone);
    test.plane.reply(request.id, vec![1]);
    eventually("its end", || {
        (test.statistic("connections") == 0).then_some(())
    });
    test.client().call(key::API_VERSIONS, 0, &[]);
}

#[test]
fn the_channel_is_bounded_and_serves_those_who_waited() {
    let dir = tempfile::tempdir().unwrap();
    let mut config = config(vec![dir.path().join("logs")]);
    config.control_queue_max_requests = 2;
    let mut test = TestPlane::start_with(config, Arc::new(RealDisk));
    let mut clients: Vec<Client> = (0..6).map(|_| test.client()).collect();
    for client in &mut clients {
        client.send(key::DESCRIBE_CLUSTER, 0, &[0]);
    }
    eventually("four that wait", || {
        (test.statistic("control_queue_waiting") == 4).then_some(())
    });
    assert_eq!(test.statistic("control_queue_depth"), 2);
    for number in 0..6 {
        let request = test.wait_for_request();
        assert!(test.statistic("control_queue_depth") <= 2);
        test.plane.reply(request.id, vec![number]);
    }
    let mut bodies: Vec<u8> = clients
        .iter_mut()
        .map(|client| client.receive(key::DESCRIBE_CLUSTER, 0).1[0])
        .collect();
    bodies.sort_unstable();
    assert_eq!(bodies, [0, 1, 2, 3, 4, 5]);
}

#[test]
fn orders_of_the_controller_get_through_a_full_channel() {
    let dir = tempfile::tempdir().unwrap();
    let mut config = config(vec![dir.path().join("logs")]);
    config.control_queue_max_requests = 1;
    config.cluster = Some(cluster());
    let mut test = TestPlane::start_with(config, Arc::new(RealDisk));
    let mut clients: Vec<Client> = (0..3).map(|_| test.client()).collect();
    for client in &mut clients {
        client.send(key::DESCRIBE_CLUSTER, 0, &[0]);
    }
    let first = test.wait_for_request();
    eventually("two that wait", || {
        (test.statistic("control_queue_waiting") == 2).then_some(())
    });
    let orders = [
        (key::LEADER_AND_ISR, 7),
        (key::STOP_REPLICA, 4),
        (key::UPDATE_METADATA, 8),
        (key::CONTROLLED_SHUTDOWN, 3),
        (key::ALTER_PARTITION, 3),
    ];
    let mut brokers: Vec<Client> = orders.iter().map(|_| test.client()).collect();
    let mut ids = Vec::new();
    for ((api_key, version), broker) in orders.iter().zip(&mut brokers) {
        broker.send(*api_key, *version, &[7]);
        let order = test.wait_for_request();
        assert_eq!((order.api_key, &order.body[..]), (*api_key, &[7][..]));
        ids.push(order.id);
    }
    assert_eq!(test.statistic("control_queue_orders"), 5);
    assert_eq!(test.statistic("control_queue_depth"), 1);
    for (((api_key, version), broker), id) in orders.iter().zip(&mut brokers).zip(ids) {
        test.plane.reply(id, vec![8]);
        assert_eq!(broker.receive(*api_key, *version).1, [8]);
    }
    assert_eq!(
        test.statistic("control_queue_waiting"),
        2,
        "an order that ends makes no place for others"
    );
    test.plane.reply(first.id, vec![9]);
    for _ in 0..2 {
        let request = test.wait_for_request();
        test.plane.reply(request.id, vec![9]);
    }
    for client in &mut clients {
        assert_eq!(client.receive(key::DESCRIBE_CLUSTER, 0).1, [9]);
    }
}

#[test]
fn a_client_that_sends_no_more_still_gets_the_answer_it_has_to_wait_for() {
    let dir = tempfile::tempdir().unwrap();
    let mut config = config(vec![dir.path().join("logs")]);
    config.control_queue_max_requests = 1;
    let mut test = TestPlane::start_with(config, Arc::new(RealDisk));
    let mut first = test.client();
    first.send(key::DESCRIBE_CLUSTER, 0, &[0]);
    let ahead = test.wait_for_request();
    let mut client = test.client();
    let describe = client.frame(key::DESCRIBE_CLUSTER, 0, &[1]);
    let versions = client.frame(key::API_VERSIONS, 0, &[]);
    std::io::Write::write_all(&mut client.stream, &[describe, versions].concat()).unwrap();
    client.stream.shutdown(std::net::Shutdown::Write).unwrap();
    eventually("its wait for a place", || {
        (test.statistic("control_queue_waiting") == 1).then_some(())
    });
    // Long enough for the end of its sending side to be seen.
    test.client().call(key::API_VERSIONS, 0, &[]);
    test.plane.reply(ahead.id, vec![7]);
    let request = test.wait_for_request();
    assert_eq!(request.body, [1]);
    test.plane.reply(request.id, vec![8]);
    assert_eq!(client.receive(key::DESCRIBE_CLUSTER, 0).1, [8]);
    assert_eq!(client.receive(key::API_VERSIONS, 0).0, 2);
    assert!(client.is_closed());
}

#[test]
fn bodies_at_the_control_plane_count_as_receive_memory() {
    const BODY_BYTES: usize = 1024 * 1024;
    let dir = tempfile::tempdir().unwrap();
    let mut test = TestPlane::start(dir.path());
    let mut client = test.client();
    client.send(key::DESCRIBE_CLUSTER, 0, &vec![0; BODY_BYTES]);
    let request = test.wait_for_request();
    assert!(test.statistic("receive_memory_bytes") >= BODY_BYTES as u64);
    drop(client);
    test.plane.reply(request.id, vec![1]);
    eventually("all memory to be given back", || {
        (test.statistic("receive_memory_bytes") == 0).then_some(())
    });
}

#[test]
fn a_request_that_is_parked_leaves_its_place_to_the_next() {
    let dir = tempfile::tempdir().unwrap();
    let mut config = config(vec![dir.path().join("logs")]);
    config.control_queue_max_requests = 1;
    let mut test = TestPlane::start_with(config, Arc::new(RealDisk));
    let mut clients: Vec<Client> = (0..4).map(|_| test.client()).collect();
    for client in &mut clients {
        client.send(key::JOIN_GROUP, 0, &[0]);
    }
    let mut parked = Vec::new();
    for number in 1..=4 {
        let request = test.wait_for_request();
        test.plane.park(request.id);
        test.plane.park(request.id);
        parked.push(request.id);
        assert_eq!(test.statistic("control_queue_parked"), number);
    }
    let mut late = test.client();
    late.send(key::DESCRIBE_CLUSTER, 0, &[0]);
    let request = test.wait_for_request();
    test.plane.reply(request.id, vec![9]);
    assert_eq!(late.receive(key::DESCRIBE_CLUSTER, 0).1, [9]);

    // One of the members has gone; its answer harms nobody.
    drop(clients.pop());
    for id in parked {
        test.plane.reply(id, vec![7]);
        test.plane.reply(id, vec![8]);
    }
    for client in &mut clients {
        assert_eq!(client.receive(key::JOIN_GROUP, 0).1, [7]);
    }
    assert_eq!(test.statistic("control_queue_parked"), 0);
}

#[test]
fn metadata_waits_for_the_topics_that_it_creates() {
    let dir = tempfile::tempdir().unwrap();
    let mut test = TestPlane::start(dir.path());
    test.create("known", 2);
    let mut client = test.client();
    let answer = client.call(key::METADATA, 12, &metadata_body("known"));
    let response = MetadataResponse::decode(&answer, 12).unwrap();
    assert_eq!(response.topics[0].partitions.len(), 2);
    assert_eq!(response.head.brokers[0].port, i32::from(test.port));
    assert_eq!(response.head.cluster_id, Some("test-cluster"));

    for (name, created) in [("fresh", true), ("refused", false)] {
        client.send(key::METADATA, 12, &metadata_body(name));
        let event = test.wait_for("missing topics", |event| {
            matches!(event, Event::TopicsMissing { .. })
        });
        let Event::TopicsMissing { id, topics, .. } = event else {
            panic!("{event:?}")
        };
        assert_eq!(topics, [name]);
        if created {
            test.create(name, 1);
            test.plane.resume(id, vec![]);
        } else {
            test.plane.resume(
                id,
                vec![(name.into(), ErrorCode::INVALID_REPLICATION_FACTOR.0)],
            );
        }
        let (_, answer) = client.receive(key::METADATA, 12);
        let response = MetadataResponse::decode(&answer, 12).unwrap();
        let expected = if created {
            ErrorCode::NONE
        } else {
            ErrorCode::INVALID_REPLICATION_FACTOR
        };
        assert_eq!(response.topics[0].error_code, expected, "{name}");
        assert_eq!(response.topics[0].partitions.len(), usize::from(created));
    }
    // The first produce to the new topic is accepted.
    assert_eq!(
        client.produce("fresh", 0, &batch(&[b"v"])),
        (ErrorCode::NONE, 0)
    );
}
