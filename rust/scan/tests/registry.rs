//! Values that name their schemas, and a registry that answers, lies or is away.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::Duration;

use arrow_array::cast::AsArray;
use arrow_array::types::Int64Type;
use arrow_array::{Array, RecordBatch};
use pyrklog_client::{Cancel, ClientConfig};
use pyrklog_scan::testing::{How, decode_columns, registered};
use pyrklog_scan::{Column, Columns, Decoding, ErrorKind, OnBad, ScanError};
use pyrklog_wire::builder::BatchBuilder;
use serde_json::{Value, json};

const NOT_FOUND: &str = "HTTP/1.1 404 Not Found\r\n\r\n{\"error_code\":40403}";

/// Answers each path with what `answer` says, and notes it.
struct Server {
    address: SocketAddr,
    asked: Arc<Mutex<Vec<String>>>,
}

impl Server {
    fn new(answer: impl Fn(&str) -> String + Send + 'static) -> Server {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let asked = Arc::new(Mutex::new(Vec::new()));
        let notes = Arc::clone(&asked);
        thread::spawn(move || {
            for stream in listener.incoming() {
                let mut stream = stream.unwrap();
                let mut head = Vec::new();
                while !head.ends_with(b"\r\n\r\n") {
                    let mut byte = [0];
                    if stream.read(&mut byte).unwrap_or(0) == 0 {
                        break;
                    }
                    head.push(byte[0]);
                }
                let head = String::from_utf8(head).unwrap();
                let path = head.split(' ').nth(1).unwrap_or_default().to_owned();
                let text = answer(&path);
                notes.lock().unwrap().push(path);
                // The other end may have gone.
                let _ = stream.write_all(text.as_bytes());
            }
        });
        Server { address, asked }
    }

    fn asked(&self) -> Vec<String> {
        self.asked.lock().unwrap().clone()
    }
}

fn found(schema: &Value) -> String {
    let body = json!({"schema": schema.to_string()}).to_string();
    format!(
        "HTTP/1.1 200 OK\r\nContent-Length: {}\r\n\r\n{body}",
        body.len()
    )
}

fn record(fields: &Value) -> Value {
    json!({"type": "record", "name": "R", "fields": fields})
}

fn decoding(address: SocketAddr, timeout: Duration, cancel: &Cancel, on_bad: OnBad) -> Decoding {
    let config = ClientConfig {
        bootstrap: Vec::new(),
        client_id: String::new(),
        connect_timeout: timeout,
        request_timeout: timeout,
        security: Default::default(),
    };
    let reader = record(&json!([
        {"name": "a", "type": "long"}, {"name": "b", "type": "string", "default": "-"}]));
    let url = format!("http://{address}/r/");
    registered(&reader.to_string(), &url, &config, cancel, on_bad).unwrap()
}

/// Values as a broker sends them: what each becomes, and how many are bad.
fn decoded(
    how: How,
    decoding: Decoding,
    values: &[Option<&[u8]>],
) -> Result<(Vec<Value>, u64), ScanError> {
    let mut builder = BatchBuilder::new();
    for value in values {
        builder.append(7, None, *value);
    }
    let columns = Columns::decoded(&[Column::Value], decoding);
    let (batches, figures) = decode_columns(how, columns, &builder.build(), &[])?;
    Ok((batches.iter().flat_map(cells).collect(), figures.bad))
}

fn cells(batch: &RecordBatch) -> Vec<Value> {
    let values = batch.column(0).as_struct();
    let numbers = values.column(0).as_primitive::<Int64Type>();
    let texts = values.column(1).as_string::<i32>();
    let cell = |row| match values.is_valid(row) {
        true => json!({"a": numbers.value(row), "b": texts.value(row)}),
        false => Value::Null,
    };
    (0..batch.num_rows()).map(cell).collect()
}

fn framed(id: u32, datum: &[u8]) -> Vec<u8> {
    [&[0][..], &id.to_be_bytes(), datum].concat()
}

#[test]
fn each_schema_is_asked_for_once() {
    let server = Server::new(|path| match path {
        "/r/schemas/ids/1" => found(&record(&json!([{"name": "a", "type": "int"}]))),
        "/r/schemas/ids/2" => found(&record(&json!([
            {"name": "b", "type": "string"}, {"name": "a", "type": "long"}]))),
        "/r/schemas/ids/4" => found(&json!("string")),
        "/r/schemas/ids/5" => found(&json!("nothing")),
        "/r/schemas/ids/6" => {
            "HTTP/1.1 200 OK\r\n\r\n{\"schema\":\"x\",\"schemaType\":\"PROTOBUF\"}".into()
        }
        _ => NOT_FOUND.into(),
    });
    let one = framed(1, &[2]);
    let two = framed(2, &[2, 0x62, 4]);
    let bads: [(Vec<u8>, &str); 9] = [
        (framed(3, &[2]), "the registry has no schema 3"),
        (
            framed(u32::MAX, &[2]),
            "the registry has no schema 4294967295",
        ),
        (
            framed(4, &[2]),
            "schema 4: string is not read as the record R",
        ),
        (framed(5, &[2]), "schema 5: there is no type \"nothing\""),
        (framed(6, &[2]), "schema 6 is PROTOBUF, not Avro"),
        (framed(1, &[2, 2]), "1 bytes are left behind it"),
        (Vec::new(), "0 bytes are too few for the id of a schema"),
        (
            vec![0, 0, 0, 1],
            "4 bytes are too few for the id of a schema",
        ),
        (
            vec![1, 0, 0, 0, 1, 2],
            "its first byte is 1, not 0: it names no schema",
        ),
    ];
    let cancel = Cancel::new().unwrap();
    let timeout = Duration::from_secs(30);
    let nulls = decoding(server.address, timeout, &cancel, OnBad::Null);
    let mut values = Vec::new();
    let mut expected = Vec::new();
    for _ in 0..3 {
        for (bad, _) in &bads {
            values.extend([Some(&bad[..]), Some(&one[..]), None, Some(&two[..])]);
            expected.extend([Value::Null, json!({"a": 1, "b": "-"})]);
            expected.extend([Value::Null, json!({"a": 2, "b": "b"})]);
        }
    }
    for batch_rows in [1, 1000] {
        let how = How {
            batch_rows,
            ..How::default()
        };
        let found = decoded(how, nulls.clone(), &values).unwrap();
        assert_eq!(found, (expected.clone(), 3 * bads.len() as u64));
    }
    let mut asked = server.asked();
    asked.sort_unstable();
    let ids = ["1", "2", "3", "4", "4294967295", "5", "6"];
    assert_eq!(asked, ids.map(|id| format!("/r/schemas/ids/{id}")));
    for (bad, reason) in bads {
        let fails = decoding(server.address, timeout, &cancel, OnBad::Fail);
        let error = decoded(How::default(), fails, &[Some(&bad)]).unwrap_err();
        assert_eq!(error.kind, ErrorKind::BadValue);
        let place = "topic topic partition 3 offset 0: the value does not fit the schema: ";
        assert_eq!(error.text, format!("{place}{reason}"));
    }
}

#[test]
fn a_registry_that_is_away_costs_no_value() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let nobody = listener.local_addr().unwrap();
    drop(listener);
    let silent = TcpListener::bind("127.0.0.1:0").unwrap();
    let failing = Server::new(|_| "HTTP/1.1 500\r\n\r\n{\"message\":\"no disk\"}".into());
    let other = Server::new(|_| "HTTP/1.1 404\r\n\r\n<html>".into());
    let stranger = Server::new(|_| "SSH-2.0-OpenSSH_9\r\n".into());
    let half = Server::new(|_| "HTTP/1.1 200\r\nContent-Length: 9\r\n\r\nhalf".into());
    let cases = [
        (nobody, "cannot connect: "),
        (silent.local_addr().unwrap(), "no answer within 0.2 s"),
        (failing.address, "status 500, no disk"),
        (other.address, "status 404"),
        (stranger.address, "an answer that is no HTTP"),
        (half.address, "asking: "),
    ];
    let cancel = Cancel::new().unwrap();
    let timeout = Duration::from_millis(200);
    for (address, reason) in cases {
        for on_bad in [OnBad::Null, OnBad::Drop, OnBad::Fail] {
            let decoding = decoding(address, timeout, &cancel, on_bad);
            let value = framed(7, &[2]);
            let error = decoded(How::default(), decoding, &[None, Some(&value)]).unwrap_err();
            assert_eq!(error.kind, ErrorKind::Registry, "{error}");
            let text = format!(
                "topic topic partition 3 offset 1: the registry http://{address}/r gives no \
                 schema 7: {reason}"
            );
            assert!(error.text.starts_with(&text), "{error}");
        }
    }
    // It was asked again.
    assert!(failing.asked().len() > 3);
}

#[test]
fn a_registry_that_comes_back_is_asked_again() {
    let tries = Mutex::new(0);
    let server = Server::new(move |_| {
        let mut tries = tries.lock().unwrap();
        *tries += 1;
        match *tries {
            1 => "HTTP/1.1 503\r\n\r\n".into(),
            2 => String::new(),
            _ => found(&record(&json!([{"name": "a", "type": "int"}]))),
        }
    });
    let cancel = Cancel::new().unwrap();
    let decoding = decoding(
        server.address,
        Duration::from_secs(30),
        &cancel,
        OnBad::Fail,
    );
    let value = framed(7, &[2]);
    let (cells, _) = decoded(How::default(), decoding, &[Some(&value)]).unwrap();
    assert_eq!(cells, [json!({"a": 1, "b": "-"})]);
    assert_eq!(server.asked().len(), 3);
}

#[test]
fn a_closed_scan_waits_for_no_registry() {
    let silent = TcpListener::bind("127.0.0.1:0").unwrap();
    let cancel = Cancel::new().unwrap();
    let timeout = Duration::from_secs(600);
    let decoding = decoding(silent.local_addr().unwrap(), timeout, &cancel, OnBad::Null);
    let closer = thread::spawn(move || {
        silent.accept().unwrap();
        cancel.cancel();
    });
    let value = framed(7, &[2]);
    let error = decoded(How::default(), decoding, &[Some(&value)]).unwrap_err();
    assert_eq!(error.kind, ErrorKind::Cancelled);
    closer.join().unwrap();
}
