//! How connections end: requests sent before the end are served, and no closed connection is kept.

use std::io::Write;
use std::net::Shutdown;

use crate::harness::*;
use pyrklog_wire::api::key;
use rustix::net::{SendFlags, send};

/// Sends bytes and the end of the stream in one segment, so that the broker sees both at once.
fn send_and_end(client: &Client, bytes: &[u8]) {
    let sent = send(&client.stream, bytes, SendFlags::MORE).unwrap();
    assert_eq!(sent, bytes.len());
    client.stream.shutdown(Shutdown::Write).unwrap();
}

#[test]
fn end_of_stream_that_arrives_with_the_last_bytes_is_noticed() {
    let dir = tempfile::tempdir().unwrap();
    let mut test = TestPlane::start(dir.path());
    test.create("t", 1);
    for _ in 0..20 {
        let mut client = test.client();
        // Served once, so that the connection is an old one.
        client.call(key::API_VERSIONS, 0, &[]);
        let record = batch(&[b"v"]);
        let body = produce_body(PRODUCE_VERSION, 0, 1000, "t", &[(0, Some(&record))]);
        let frame = client.frame(key::PRODUCE, PRODUCE_VERSION, &body);
        send_and_end(&client, &frame);
        assert!(client.is_closed());
    }
    eventually("the last connection's end", || {
        (test.statistic("connections") == 0).then_some(())
    });
    // The producers did not wait for their records: those outside the cache are visible once
    // written.
    let mut client = test.client();
    eventually("all 20 records", || {
        (client.list_offset("t", 0, -1).offset == 20).then_some(())
    });
}

#[test]
fn requests_received_before_the_end_of_stream_are_answered() {
    let dir = tempfile::tempdir().unwrap();
    let test = TestPlane::start(dir.path());
    let mut client = test.client();
    let count = 10_000;
    let mut frames = Vec::new();
    for _ in 0..count {
        frames.extend(client.frame(key::API_VERSIONS, 0, &[]));
    }
    let mut sender = client.stream.try_clone().unwrap();
    let sending = std::thread::spawn(move || {
        sender.write_all(&frames).unwrap();
        sender.shutdown(Shutdown::Write).unwrap();
    });
    sending.join().unwrap();
    let mut answers = 0;
    while client.receive_frame().is_some() {
        answers += 1;
    }
    assert_eq!(answers, count);
}
