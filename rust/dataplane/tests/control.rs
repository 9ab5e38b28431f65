//! Requests that the control plane answers, and those that wait for it.

use std::sync::Arc;

use crate::harness::*;
use pyrklog_dataplane::seam::Event;
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
    // A second answer, or one to an unknown request, changes nothing.
    test.plane.reply(request.id, vec![8]);
    test.plane.close_request(12345);
    client.call(key::API_VERSIONS, 0, &[]);
}

#[test]
fn closing_a_request_closes_its_connection() {
    let dir = tempfile::tempdir().unwrap();
    let mut test = TestPlane::start(dir.path());
    let mut client = test.client();
    client.send(key::DESCRIBE_CLUSTER, 0, &[0]);
    let request = test.wait_for_request();
    test.plane.close_request(request.id);
    assert!(client.is_closed());
    // A client that left before its answer disturbs no other: its connection ends with the answer.
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
fn request_channel_is_bounded_and_serves_waiting_connections() {
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
    assert_eq!(test.statistic("control_queue_placeless"), 5);
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
fn half_closed_client_still_gets_its_answer() {
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

    // One of the members has gone; its answer does no harm.
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
fn parked_requests_have_their_own_bound() {
    let dir = tempfile::tempdir().unwrap();
    let mut config = config(vec![dir.path().join("logs")]);
    config.receive_buffers_max_bytes = 4 * 1024 * 1024;
    let mut test = TestPlane::start_with(config, Arc::new(RealDisk));
    let mut clients: Vec<Client> = (0..3).map(|_| test.client()).collect();
    let mut ids = Vec::new();
    for client in &mut clients {
        client.send(key::JOIN_GROUP, 0, &vec![0; 100_000]);
        ids.push(test.wait_for_request().id);
    }
    assert!(test.plane.park(ids[0]) && test.plane.park(ids[1]));
    let parked_bytes = test.statistic("control_queue_parked_bytes");
    assert!(parked_bytes >= 200_000, "{parked_bytes}");
    assert!(!test.plane.park(ids[2]));
    assert_eq!(test.statistic("control_queue_depth"), 1);
    test.plane.reply(ids[0], vec![7]);
    assert!(test.plane.park(ids[2]));
    test.plane.reply(ids[1], vec![7]);
    test.plane.reply(ids[2], vec![7]);
    for client in &mut clients {
        assert_eq!(client.receive(key::JOIN_GROUP, 0).1, [7]);
    }
    assert_eq!(test.statistic("control_queue_parked_bytes"), 0);
}

#[test]
fn waiting_memory_is_shared_by_hosts_and_separate_for_commits() {
    let dir = tempfile::tempdir().unwrap();
    let mut config = config(vec![dir.path().join("logs")]);
    config.receive_buffers_max_bytes = 4 * 1024 * 1024;
    let mut test = TestPlane::start_with(config, Arc::new(RealDisk));
    let mut greedy = Vec::new();
    let refused = loop {
        let mut client = test.client_from(1);
        client.send(key::JOIN_GROUP, 0, &vec![0; 50_000]);
        let id = test.wait_for_request().id;
        let is_parked = test.plane.park(id);
        greedy.push((client, id));
        if !is_parked {
            break id;
        }
    };
    assert!(greedy.len() < 6, "{}", greedy.len());
    // Another host, and a commit of the same one, find room.
    let mut modest = test.client_from(2);
    modest.send(key::JOIN_GROUP, 0, &vec![0; 50_000]);
    let id = test.wait_for_request().id;
    assert!(test.plane.park(id));
    let mut committer = test.client_from(1);
    committer.send(key::OFFSET_COMMIT, 2, &[0; 100]);
    let commit = test.wait_for_request().id;
    assert!(test.plane.park(commit));
    assert!(!test.plane.park(refused));
    for id in [id, commit] {
        test.plane.reply(id, vec![7]);
    }
    assert_eq!(modest.receive(key::JOIN_GROUP, 0).1, [7]);
    assert_eq!(committer.receive(key::OFFSET_COMMIT, 2).1, [7]);
}

#[test]
fn heartbeats_get_through_a_full_channel() {
    let dir = tempfile::tempdir().unwrap();
    let mut config = config(vec![dir.path().join("logs")]);
    config.control_queue_max_requests = 1;
    let mut test = TestPlane::start_with(config, Arc::new(RealDisk));
    let mut first = test.client();
    first.send(key::DESCRIBE_CLUSTER, 0, &[0]);
    let ahead = test.wait_for_request();
    let mut held = test.client();
    held.send(key::DESCRIBE_CLUSTER, 0, &[0]);
    eventually("one that waits", || {
        (test.statistic("control_queue_waiting") == 1).then_some(())
    });
    let mut member = test.client();
    // Group "g", generation 1, member "m".
    member.send(key::HEARTBEAT, 0, &[0, 1, b'g', 0, 0, 0, 1, 0, 1, b'm']);
    let event = test.wait_for("a heartbeat", |event| matches!(event, Event::Heartbeat(_)));
    let Event::Heartbeat(heartbeat) = event else {
        panic!("{event:?}")
    };
    let body = heartbeat.answer(ErrorCode::NONE);
    test.plane.reply(heartbeat.request.id, body);
    assert_eq!(member.receive(key::HEARTBEAT, 0).1, [0, 0]);
    assert_eq!(test.statistic("control_queue_placeless"), 0);
    assert_eq!(test.statistic("control_queue_waiting"), 1);
    test.plane.reply(ahead.id, vec![9]);
    let second = test.wait_for_request();
    test.plane.reply(second.id, vec![9]);
}

#[test]
fn the_control_plane_is_told_of_clients_that_have_gone() {
    let dir = tempfile::tempdir().unwrap();
    let mut test = TestPlane::start(dir.path());
    let gone = |event: &Event| matches!(event, Event::ClientGone { .. });
    for is_parked in [false, true] {
        let mut client = test.client();
        client.send(key::JOIN_GROUP, 0, &[0]);
        let request = test.wait_for_request();
        if is_parked {
            assert!(test.plane.park(request.id));
        }
        drop(client);
        let Event::ClientGone { id } = test.wait_for("its end", gone) else {
            unreachable!()
        };
        assert_eq!(id, request.id);
        test.plane.close_request(id);
    }
    // Two requests and the end at once: both are reported, each in its turn.
    let mut client = test.client();
    let frames = [
        client.frame(key::DESCRIBE_CLUSTER, 0, &[1]),
        client.frame(key::DESCRIBE_CLUSTER, 0, &[2]),
    ];
    std::io::Write::write_all(&mut client.stream, &frames.concat()).unwrap();
    client.stream.shutdown(std::net::Shutdown::Write).unwrap();
    for number in [1, 2] {
        let request = test.wait_for_request();
        assert_eq!(request.body, [number]);
        let Event::ClientGone { id } = test.wait_for("its end", gone) else {
            unreachable!()
        };
        assert_eq!(id, request.id);
        // A hint only: a client that waits for the answer still gets it.
        test.plane.reply(request.id, vec![number]);
        assert_eq!(client.receive(key::DESCRIBE_CLUSTER, 0).1, [number]);
    }
    assert!(client.is_closed());
    eventually("all to be free", || {
        (test.statistic("connections") == 0).then_some(())
    });
    assert_eq!(test.statistic("control_queue_depth"), 0);
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
    assert_eq!(
        client.produce("fresh", 0, &batch(&[b"v"])),
        (ErrorCode::NONE, 0)
    );
}
