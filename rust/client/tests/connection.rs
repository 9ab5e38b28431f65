//! Connections to a server that a test plays.

mod playing;

use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::thread;

use pyrklog_client::{Address, Arrival, ClientError, Security, api};
use pyrklog_wire::api_versions::{ApiVersion, ApiVersionsResponse};
use pyrklog_wire::{ErrorCode, RequestHeader};

use playing::{arrive, client, server};

fn read_request(stream: &mut TcpStream) -> (i16, i32) {
    let mut len = [0; 4];
    stream.read_exact(&mut len).unwrap();
    let mut frame = vec![0; i32::from_be_bytes(len) as usize];
    stream.read_exact(&mut frame).unwrap();
    let (header, _) = RequestHeader::parse(&frame).unwrap();
    assert_eq!(header.client_id, Some("test"));
    (header.api_version, header.correlation_id)
}

fn frame(correlation_id: i32, body: &[u8]) -> Vec<u8> {
    let len = (4 + body.len()) as i32;
    [&len.to_be_bytes(), &correlation_id.to_be_bytes(), body].concat()
}

fn versions(error_code: ErrorCode, version: i16) -> Vec<u8> {
    let metadata = ApiVersion {
        key: api::METADATA.key,
        min_version: 0,
        max_version: 4,
    };
    let response = ApiVersionsResponse {
        error_code,
        apis: vec![metadata],
        throttle_ms: 0,
        features: Default::default(),
    };
    let mut body = Vec::new();
    response.encode(&mut body, version);
    body
}

/// Answers the first exchange.
fn greet(stream: &mut TcpStream) {
    let (version, id) = read_request(stream);
    let body = versions(ErrorCode::NONE, version);
    stream.write_all(&frame(id, &body)).unwrap();
}

#[test]
fn a_broker_without_the_newest_version_of_the_first_question_is_asked_again() {
    let address = server(|mut stream| {
        let (version, id) = read_request(&mut stream);
        assert_eq!(version, 3);
        // Kafka 0.11 lists nothing beside the error.
        stream.write_all(&frame(id, &[0, 35, 0, 0, 0, 0])).unwrap();
        let (version, id) = read_request(&mut stream);
        assert_eq!(version, 0);
        let body = versions(ErrorCode::NONE, 0);
        stream.write_all(&frame(id, &body)).unwrap();
    });
    let connection = client(&address, Security::default())
        .opener()
        .open(&address)
        .unwrap();
    assert_eq!(connection.version(api::METADATA).unwrap(), 4);
    let error = connection.version(api::FETCH).unwrap_err().to_string();
    assert!(
        error.contains("has no Fetch of version 4 to 17, but none"),
        "{error}"
    );
}

#[test]
fn frames_are_received_however_they_are_cut() {
    let sizes = [4, 5, 300_000, 262_144, 2_000_000, 10];
    let address = server(move |mut stream| {
        greet(&mut stream);
        let mut out = Vec::new();
        for size in sizes {
            let (_, id) = read_request(&mut stream);
            out.extend(frame(id, &vec![7; size]));
        }
        for piece in out.chunks(77_777) {
            stream.write_all(piece).unwrap();
        }
    });
    let mut connection = client(&address, Security::default())
        .opener()
        .open(&address)
        .unwrap();
    for _ in sizes {
        connection.push(api::METADATA.key, 4, |_, _| {}).unwrap();
    }
    assert!(connection.flush().unwrap());
    for size in sizes {
        assert_eq!(arrive(&mut connection).unwrap(), Arrival::Frame);
        let frame = connection.take_frame().unwrap();
        assert_eq!(frame.body(), vec![7; size]);
        connection.give_back(frame, 1 << 20);
    }
    assert_eq!(connection.in_flight(), 0);
    let error = arrive(&mut connection).unwrap_err();
    assert!(error.is_retriable(), "{error}");
}

#[test]
fn a_frame_above_the_limit_waits_until_it_is_allowed() {
    let address = server(|mut stream| {
        greet(&mut stream);
        let (_, id) = read_request(&mut stream);
        stream.write_all(&frame(id, &[1; 1000])).unwrap();
        // Until the other side hangs up.
        stream.read_exact(&mut [0]).ok();
    });
    let mut connection = client(&address, Security::default())
        .opener()
        .open(&address)
        .unwrap();
    connection.set_frame_limit(100);
    connection.push(api::METADATA.key, 4, |_, _| {}).unwrap();
    connection.flush().unwrap();
    for _ in 0..2 {
        assert_eq!(arrive(&mut connection).unwrap(), Arrival::TooLong(1004));
    }
    connection.set_frame_limit(1004);
    assert_eq!(arrive(&mut connection).unwrap(), Arrival::Frame);
}

#[test]
fn requests_are_sent_whole_while_the_socket_is_behind() {
    const REQUESTS: usize = 40;
    let body = |number: usize| vec![number as u8; 700_000];
    let address = server(move |mut stream| {
        greet(&mut stream);
        for number in 0..REQUESTS {
            let mut len = [0; 4];
            stream.read_exact(&mut len).unwrap();
            let mut frame = vec![0; i32::from_be_bytes(len) as usize];
            stream.read_exact(&mut frame).unwrap();
            let (header, at) = RequestHeader::parse(&frame).unwrap();
            assert!(frame[at..] == body(number), "request {number}");
            let answer = self::frame(header.correlation_id, &[number as u8]);
            stream.write_all(&answer).unwrap();
        }
    });
    let mut connection = client(&address, Security::default())
        .opener()
        .open(&address)
        .unwrap();
    // Two more are always on their way: the socket is never empty.
    for number in 0..REQUESTS + 2 {
        if number < REQUESTS {
            connection
                .push(api::METADATA.key, 4, |out, _| out.extend(body(number)))
                .unwrap();
        }
        if number >= 2 {
            assert_eq!(arrive(&mut connection).unwrap(), Arrival::Frame);
            let frame = connection.take_frame().unwrap();
            assert_eq!(frame.body(), [number as u8 - 2]);
        }
    }
}

#[test]
fn an_answer_that_does_not_come_can_be_cancelled() {
    let address = server(|mut stream| {
        greet(&mut stream);
        stream.read_to_end(&mut Vec::new()).ok();
    });
    let mut asking = client(&address, Security::default());
    let cancel = asking.cancel().clone();
    let thread = thread::spawn(move || asking.refresh(&["t"]).map(|_| ()));
    cancel.cancel();
    let ended = thread.join().unwrap();
    assert!(matches!(ended, Err(ClientError::Cancelled)), "{ended:?}");
}

#[test]
fn a_port_that_nobody_has_is_named() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = Address::parse(&listener.local_addr().unwrap().to_string()).unwrap();
    drop(listener);
    let error = client(&address, Security::default())
        .refresh(&["t"])
        .unwrap_err();
    assert!(error.is_retriable());
    let text = error.to_string();
    assert!(
        text.starts_with(&format!("broker {address}: cannot connect")),
        "{text}"
    );
}
