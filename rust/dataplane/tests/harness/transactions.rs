//! A transactional producer, and what the control plane does for it.

use std::time::Duration;

use pyrklog_dataplane::seam::*;
use pyrklog_wire::ErrorCode;
use pyrklog_wire::api::key;
use pyrklog_wire::builder::BatchBuilder;
use pyrklog_wire::produce::{self, ProduceResponse, TopicToProduce};
use rustix::net::sockopt::set_socket_linger;

use super::{Client, TestPlane};

pub const PRODUCER: (i64, i16) = (7, 3);
/// The newest version of clients that add partitions by themselves.
pub const ADDS: i16 = 11;
/// The first one that leaves that to the brokers.
pub const ENROLS: i16 = 12;

/// One record of a transaction.
pub fn record((id, epoch): (i64, i16), sequence: i32) -> Vec<u8> {
    let mut builder = BatchBuilder::new()
        .producer(id, epoch, sequence)
        .transactional();
    builder.append(1_700_000_000_000, None, Some(b"v"));
    builder.build()
}

/// A request for partitions of `t`.
pub fn request(version: i16, timeout_ms: i32, batches: &[(i32, Vec<u8>)]) -> Vec<u8> {
    request_of("txn", version, timeout_ms, batches)
}

pub fn request_of(
    transactional_id: &str,
    version: i16,
    timeout_ms: i32,
    batches: &[(i32, Vec<u8>)],
) -> Vec<u8> {
    let partitions: Vec<(i32, Option<&[u8]>)> = batches
        .iter()
        .map(|(index, batch)| (*index, Some(&batch[..])))
        .collect();
    let topics = [TopicToProduce {
        name: "t",
        partitions: &partitions,
    }];
    let mut body = Vec::new();
    let id = Some(transactional_id);
    produce::encode_request(&mut body, version, id, -1, timeout_ms, &topics);
    body
}

/// (error, base offset) of each partition.
pub type Answers = Vec<(ErrorCode, i64)>;

pub fn answers(body: &[u8], version: i16) -> Answers {
    let response = ProduceResponse::decode(body, version).unwrap();
    let partitions = &response.topics[0].partitions;
    let answer = partitions.iter();
    answer
        .map(|one| (one.error_code, one.base_offset))
        .collect()
}

pub fn send(client: &mut Client, version: i16, batches: &[(i32, Vec<u8>)]) {
    client.send(key::PRODUCE, version, &request(version, 30_000, batches));
}

pub fn receive(client: &mut Client, version: i16) -> Answers {
    answers(&client.receive(key::PRODUCE, version).1, version)
}

pub fn wait_for_question(test: &mut TestPlane) -> VerifyTransaction {
    let event = test.wait_for("a verification", |event| {
        matches!(event, Event::VerifyTransaction(_))
    });
    match event {
        Event::VerifyTransaction(asked) => asked,
        other => panic!("{other:?}"),
    }
}

/// Sends a batch of [`PRODUCER`] to `t`-0 whose question gets this answer.
pub fn verified(
    test: &mut TestPlane,
    client: &mut Client,
    version: i16,
    sequence: i32,
    code: ErrorCode,
) -> (ErrorCode, i64) {
    send(client, version, &[(0, record(PRODUCER, sequence))]);
    let asked = wait_for_question(test);
    test.plane.transaction_verified(asked.id, &[code.0]);
    receive(client, version)[0]
}

pub fn marker(partition: i32, (id, epoch): (i64, i16), is_commit: bool) -> Marker {
    Marker {
        topic: "t".into(),
        partition,
        producer_id: id,
        producer_epoch: epoch,
        coordinator_epoch: 0,
        is_commit,
        transaction_version: 1,
    }
}

pub fn write(test: &TestPlane, markers: &[Marker]) -> TicketId {
    test.plane
        .write_markers(markers, 1_700_000_000_000)
        .unwrap()
}

/// (error, offset) of each.
pub fn written(test: &mut TestPlane, ticket: TicketId) -> Answers {
    match test.ticket(ticket) {
        TicketOutcome::Markers(results) => {
            let results = results.into_iter();
            results
                .map(|(code, offset)| (ErrorCode(code), offset))
                .collect()
        }
        other => panic!("{other:?}"),
    }
}

pub fn write_now(test: &mut TestPlane, markers: &[Marker]) -> Answers {
    let ticket = write(test, markers);
    written(test, ticket)
}

/// The client is gone, and takes no answer.
pub fn hang_up(client: Client) {
    set_socket_linger(&client.stream, Some(Duration::ZERO)).unwrap();
}
