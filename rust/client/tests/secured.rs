//! TLS with a server in this process, and SASL with one that a test plays.

mod playing;

use std::io::{Read, Write};
use std::os::fd::AsFd;
use std::sync::Arc;
use std::time::Duration;

use pyrklog_client::{
    Address, Arrival, ClientError, Connection, Credentials, Pem, Secret, Security, Tls,
    TlsSettings, api, wait,
};
use pyrklog_wire::api_versions::{ApiVersion, ApiVersionsResponse};
use pyrklog_wire::sasl::{SaslAuthenticateResponse, SaslHandshakeResponse};
use pyrklog_wire::{ErrorCode, RequestHeader};
use rustls::pki_types::PrivateKeyDer;
use rustls::{ServerConfig, ServerConnection, StreamOwned};

use playing::{arrive, client, server};

trait Stream: Read + Write {}
impl<T: Read + Write> Stream for T {}

/// A server with a certificate of its own for `name`, and the certificate in PEM.
fn tls_server(
    name: &str,
    serve: impl FnOnce(&mut dyn Stream) + Send + 'static,
) -> (Address, String) {
    let made = rcgen::generate_simple_self_signed(vec![name.to_owned()]).unwrap();
    let key = PrivateKeyDer::try_from(made.key_pair.serialize_der()).unwrap();
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let config = ServerConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_no_client_auth()
        .with_single_cert(vec![made.cert.der().clone()], key)
        .unwrap();
    let pem = made.cert.pem();
    let address = server(move |socket| {
        let connection = ServerConnection::new(Arc::new(config)).unwrap();
        serve(&mut StreamOwned::new(connection, socket));
    });
    (address, pem)
}

fn tls(pem: &str, checks_name: bool) -> Option<Tls> {
    let settings = TlsSettings {
        roots: Some(Pem {
            source: "test".into(),
            text: Secret::new(pem),
        }),
        identity: None,
        key_password: None,
        checks_name,
    };
    Some(Tls::new(&settings).unwrap())
}

fn open(address: &Address, security: Security) -> Result<Connection, ClientError> {
    client(address, security).opener().open(address)
}

/// (API key, version, correlation id, what follows the header).
fn read_request(stream: &mut dyn Stream) -> Option<(i16, i16, i32, Vec<u8>)> {
    let mut len = [0; 4];
    stream.read_exact(&mut len).ok()?;
    let mut frame = vec![0; i32::from_be_bytes(len) as usize];
    stream.read_exact(&mut frame).ok()?;
    let (header, at) = RequestHeader::parse(&frame).unwrap();
    let found = (header.api_key, header.api_version, header.correlation_id);
    Some((found.0, found.1, found.2, frame[at..].to_vec()))
}

fn answer(stream: &mut dyn Stream, id: i32, header_tags: &[u8], body: &[u8]) {
    let len = (4 + header_tags.len() + body.len()) as i32;
    let frame = [&len.to_be_bytes(), &id.to_be_bytes()[..], header_tags, body].concat();
    stream.write_all(&frame).unwrap();
    stream.flush().unwrap();
}

fn greet(stream: &mut dyn Stream) {
    let Some((_, version, id, _)) = read_request(stream) else {
        return;
    };
    let own = [api::METADATA, api::SASL_HANDSHAKE, api::SASL_AUTHENTICATE];
    let response = ApiVersionsResponse {
        error_code: ErrorCode::NONE,
        apis: own
            .map(|api| ApiVersion {
                key: api.key,
                min_version: api.min,
                max_version: api.min,
            })
            .to_vec(),
        throttle_ms: 0,
        features: Default::default(),
    };
    let mut body = Vec::new();
    response.encode(&mut body, version);
    answer(stream, id, &[], &body);
}

#[test]
fn frames_pass_tls_however_long() {
    let sizes = [4, 300_000, 2_000_000, 10];
    let (address, pem) = tls_server("localhost", move |stream| {
        greet(stream);
        for size in sizes {
            let (_, _, id, body) = read_request(stream).unwrap();
            assert_eq!(body.len(), size);
            answer(stream, id, &[], &body);
        }
    });
    let tls = tls(&pem, true);
    let security = Security {
        tls,
        ..Default::default()
    };
    let mut connection = open(&address, security).unwrap();
    for size in sizes {
        let body = vec![7; size];
        let push = |out: &mut Vec<u8>, _| out.extend(&body);
        connection.push(api::METADATA.key, 4, push).unwrap();
        assert_eq!(arrive(&mut connection).unwrap(), Arrival::Frame);
        assert_eq!(connection.take_frame().unwrap().body(), body);
    }
}

#[test]
fn what_tls_has_decrypted_is_not_waited_for() {
    let (address, pem) = tls_server("localhost", |stream| {
        greet(stream);
        let (_, _, id, _) = read_request(stream).unwrap();
        answer(stream, id, &[], &[1; 1000]);
        stream.read_exact(&mut [0]).ok();
    });
    let tls = tls(&pem, true);
    let security = Security {
        tls,
        ..Default::default()
    };
    let mut connection = open(&address, security).unwrap();
    connection.set_frame_limit(100);
    connection.push(api::METADATA.key, 4, |_, _| {}).unwrap();
    assert_eq!(arrive(&mut connection).unwrap(), Arrival::TooLong(1004));
    connection.set_frame_limit(2000);
    let files = [(connection.as_fd(), connection.interest())];
    assert_eq!(wait(&files, Duration::ZERO).unwrap(), [true]);
    assert_eq!(connection.receive().unwrap(), Arrival::Frame);
}

#[test]
fn certificates_are_refused_with_the_reason() {
    let (_, other) = tls_server("localhost", |_| {});
    let (address, _) = tls_server("localhost", greet);
    let security = Security {
        tls: tls(&other, true),
        ..Default::default()
    };
    let error = open(&address, security).unwrap_err();
    assert!(
        error.to_string().contains("its certificate is not trusted"),
        "{error}"
    );
    assert!(!error.is_retriable());
    for checks_name in [true, false] {
        let (address, pem) = tls_server("elsewhere", greet);
        let security = Security {
            tls: tls(&pem, checks_name),
            ..Default::default()
        };
        let opened = open(&address, security);
        match checks_name {
            false => drop(opened.unwrap()),
            true => {
                let error = opened.unwrap_err().to_string();
                assert!(error.contains("of another name"), "{error}");
            }
        }
    }
}

#[test]
fn tls_on_one_side_only_is_said() {
    let (_, pem) = tls_server("localhost", |_| {});
    let address = server(|mut stream| {
        stream
            .write_all(b"HTTP/1.1 400 Bad Request\r\n\r\n")
            .unwrap();
    });
    let security = Security {
        tls: tls(&pem, true),
        ..Default::default()
    };
    let error = open(&address, security).unwrap_err().to_string();
    assert!(error.contains("does not speak TLS"), "{error}");
    let address = server(|mut stream| {
        stream.read_exact(&mut [0; 4]).unwrap();
        stream.write_all(&[21, 3, 3, 0, 2, 2, 80]).unwrap();
    });
    let error = open(&address, Security::default()).unwrap_err().to_string();
    assert!(error.contains("it speaks TLS only"), "{error}");
}

#[test]
fn a_listener_that_hangs_up_is_asked_about_by_name() {
    let address = server(|mut stream| {
        read_request(&mut stream);
    });
    let error = open(&address, Security::default()).unwrap_err();
    assert!(error.is_retriable());
    let text = error.to_string();
    assert!(
        text.contains("security.protocol SSL or SASL_SSL?"),
        "{text}"
    );
    let address = server(|mut stream| {
        greet(&mut stream);
        read_request(&mut stream);
    });
    let mut connection = open(&address, Security::default()).unwrap();
    connection.push(api::METADATA.key, 4, |_, _| {}).unwrap();
    let text = arrive(&mut connection).unwrap_err().to_string();
    assert!(
        text.contains("security.protocol SASL_PLAINTEXT or SASL_SSL?"),
        "{text}"
    );
}

fn plain() -> Security {
    let credentials = Some(Credentials::Plain {
        username: "alice".into(),
        password: Secret::new("wonder"),
    });
    Security {
        tls: None,
        credentials,
    }
}

/// Answers one handshake and PLAIN's message.
fn authenticate(stream: &mut dyn Stream, code: ErrorCode) {
    let (key, _, id, _) = read_request(stream).unwrap();
    assert_eq!(key, api::SASL_HANDSHAKE.key);
    let mut body = Vec::new();
    let mechanisms = vec!["PLAIN"];
    SaslHandshakeResponse {
        error_code: ErrorCode::NONE,
        mechanisms,
    }
    .encode(&mut body, 1);
    answer(stream, id, &[], &body);
    let (key, version, id, sent) = read_request(stream).unwrap();
    assert_eq!(key, api::SASL_AUTHENTICATE.key);
    assert!(sent.ends_with(b"\0alice\0wonder"));
    let response = SaslAuthenticateResponse {
        error_code: code,
        error_message: (!code.is_none()).then_some("wrong name or password"),
        auth_bytes: Some(b""),
        session_lifetime_ms: 0,
    };
    let mut body = Vec::new();
    response.encode(&mut body, version);
    answer(stream, id, &[], &body);
}

#[test]
fn a_name_is_taken_or_refused_with_the_brokers_words() {
    let address = server(|mut stream| {
        greet(&mut stream);
        authenticate(&mut stream, ErrorCode::NONE);
        // Until the other side hangs up.
        stream.read_exact(&mut [0]).ok();
    });
    open(&address, plain()).unwrap();
    let address = server(|mut stream| {
        greet(&mut stream);
        authenticate(&mut stream, ErrorCode::SASL_AUTHENTICATION_FAILED);
    });
    let error = open(&address, plain()).unwrap_err();
    assert!(!error.is_retriable());
    let text = format!("{error} {error:?} {:?}", plain());
    assert!(
        text.contains("PLAIN failed: it refuses sasl.username and sasl.password: wrong name"),
        "{text}"
    );
    assert!(!text.contains("wonder"), "{text}");
}

#[test]
fn an_unknown_mechanism_is_answered_with_those_of_the_broker() {
    let address = server(|mut stream| {
        greet(&mut stream);
        let (_, _, id, _) = read_request(&mut stream).unwrap();
        let error_code = ErrorCode::UNSUPPORTED_SASL_MECHANISM;
        let mechanisms = vec!["SCRAM-SHA-512", "GSSAPI"];
        let mut body = Vec::new();
        SaslHandshakeResponse {
            error_code,
            mechanisms,
        }
        .encode(&mut body, 1);
        answer(&mut stream, id, &[], &body);
    });
    let error = open(&address, plain()).unwrap_err().to_string();
    assert!(
        error.contains("no such sasl.mechanism, but SCRAM-SHA-512, GSSAPI"),
        "{error}"
    );
}
