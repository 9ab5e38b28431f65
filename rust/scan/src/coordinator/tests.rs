//! Splits on their way to a lane that is lost meanwhile.

use std::io::{Read, Write};
// Shipped code of this crate knows no sockets, which is checked file by file.
#[cfg(test)]
use std::net::TcpListener;
use std::sync::mpsc::channel;
use std::thread;

use pyrklog_client::{Address, Cancel, ClientConfig, Isolation};
use pyrklog_wire::RequestHeader;
use pyrklog_wire::api_versions::{ApiVersionsResponse, Offer};
use pyrklog_wire::header::encode_response_header;

use super::*;
use crate::queue::Queue;
use crate::split::Split;

const LANE: LaneId = LaneId {
    broker: 1,
    shard: 0,
    number: 0,
};

/// A broker that tells its versions, and no more.
pub(crate) fn broker() -> Address {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    thread::spawn(move || {
        let mut streams = Vec::new();
        for mut stream in listener.incoming().flatten() {
            let mut len = [0; 4];
            stream.read_exact(&mut len).unwrap();
            let mut frame = vec![0; i32::from_be_bytes(len) as usize];
            stream.read_exact(&mut frame).unwrap();
            let (header, _) = RequestHeader::parse(&frame).unwrap();
            let (api, version) = (header.api_key, header.api_version);
            let mut out = Vec::new();
            encode_response_header(&mut out, api, version, header.correlation_id);
            ApiVersionsResponse::of_table(Offer::default()).encode(&mut out, version);
            let len = (out.len() as i32).to_be_bytes();
            stream.write_all(&[&len[..], &out].concat()).unwrap();
            streams.push(stream);
        }
    });
    Address {
        host: "127.0.0.1".into(),
        port,
    }
}

pub(crate) fn cursor(partition: i32) -> Cursor {
    let split = Split {
        topic: Arc::from("t"),
        topic_id: [1; 16],
        partition,
        start: 0,
        end: 10,
        leader_epoch: -1,
        is_listed: false,
    };
    Cursor::new(0, &split)
}

/// With one worker, whose commands are returned, and a lane that is being opened, for which
/// partition 0 waits.
fn coordinator(address: &Address) -> (Coordinator, Receiver<Command>) {
    let patience = Duration::from_secs(30);
    let config = ClientConfig {
        bootstrap: vec![address.clone()],
        client_id: "test".into(),
        connect_timeout: patience,
        request_timeout: patience,
        security: Default::default(),
    };
    let client = Client::new(config, Cancel::new().unwrap());
    let progress = Arc::new(Progress::new(&[]));
    let queue = Arc::new(Queue::new(1, Arc::clone(&progress)));
    let shared = Shared::new(queue, client.cancel().clone());
    let terms = Arc::new(FetchTerms {
        isolation: Isolation::ReadCommitted,
        rack: String::new(),
        bytes: 1,
        timeout: patience,
        request_timeout: patience,
    });
    let (commands, told) = channel();
    let worker = WorkerHandle {
        commands,
        waker: Arc::new(Waker::new().unwrap()),
    };
    let (events, heard) = channel();
    let openers = Openers::new(client.opener(), events);
    let mut coordinator = Coordinator::new(
        client,
        shared,
        progress,
        terms,
        (Missing::Fail, Unanswered::Fail),
        LeftOuts::default(),
        vec![worker],
        heard,
        openers,
        Lanes::new(1, 1, 1),
        Vec::new(),
    );
    open(&mut coordinator, address, LANE, 0);
    (coordinator, told)
}

fn open(coordinator: &mut Coordinator, address: &Address, lane: LaneId, partition: i32) {
    coordinator.lanes.opened(lane);
    coordinator.openers.open(lane, address.clone()).unwrap();
    coordinator.assign(lane, cursor(partition));
}

/// What a worker says of the first lane.
fn lose(coordinator: &mut Coordinator) {
    let lost = Event::LaneLost(LANE, Vec::new(), "connection lost".into());
    coordinator.on_event(lost).unwrap();
}

fn take_opened(coordinator: &mut Coordinator) {
    let event = coordinator.events.recv().unwrap();
    assert!(matches!(event, Event::Opened(_, Ok(_))), "{event:?}");
    coordinator.on_event(event).unwrap();
}

fn waiting(coordinator: &Coordinator) -> Vec<i32> {
    let waiting = coordinator.waiting.iter();
    waiting.map(|one| one.cursor.partition).collect()
}

#[test]
fn splits_of_a_lane_that_is_lost_before_it_is_open_wait_for_another() {
    let (mut coordinator, told) = coordinator(&broker());
    lose(&mut coordinator);
    take_opened(&mut coordinator);
    assert_eq!(waiting(&coordinator), [0]);
    assert!(told.try_recv().is_err());
}

#[test]
fn late_news_of_a_lane_take_no_split_from_the_one_in_its_place() {
    let address = broker();
    let (mut coordinator, told) = coordinator(&address);
    take_opened(&mut coordinator);
    coordinator.lanes.lost(LANE);
    let newer = LaneId { number: 1, ..LANE };
    open(&mut coordinator, &address, newer, 1);
    lose(&mut coordinator);
    take_opened(&mut coordinator);
    let assigned = |command| match command {
        Command::Assign(lane, cursor) => Some((lane.number, cursor.partition)),
        Command::Open(..) | Command::Close(_) => None,
    };
    let assigned: Vec<_> = told.try_iter().filter_map(assigned).collect();
    assert_eq!(assigned, [(0, 0), (1, 1)]);
    assert_eq!(waiting(&coordinator), [0; 0]);
}
