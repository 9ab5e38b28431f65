//! OffsetCommit requests that the control plane hands back whole: what reaches the log, the group's
//! table and the client, and when.

use std::sync::Arc;

use crate::harness::internal::*;
use crate::harness::*;
use pyrklog_dataplane::seam::*;
use pyrklog_dataplane::{CommitBatch, CommittedOffset, OffsetCommit, OffsetTable, commit_error};
use pyrklog_wire::ErrorCode;
use pyrklog_wire::api::key;
use pyrklog_wire::reader::Reader;
use pyrklog_wire::writer::Writer;

const VERSION: i16 = 8;
const NOW_MS: i64 = 1_700_000_000_000;

type Wanted<'a> = (&'a str, i32, i64, Option<&'a str>);

fn body(partitions: &[Wanted<'_>]) -> Vec<u8> {
    let mut out = Vec::new();
    let mut writer = Writer::new(&mut out, true);
    writer.string("group");
    writer.i32(3);
    writer.string("member");
    writer.nullable_string(None);
    writer.array(partitions, |writer, &(topic, index, offset, metadata)| {
        writer.string(topic);
        writer.array(&[index], |writer, index| {
            writer.i32(*index);
            writer.i64(offset);
            writer.i32(2);
            writer.nullable_string(metadata);
            writer.no_tags();
        });
        writer.no_tags();
    });
    writer.no_tags();
    out
}

fn codes(body: &[u8]) -> Vec<(i32, i16)> {
    let mut reader = Reader::new(body, true);
    assert_eq!(reader.i32(), Ok(0));
    let topics = reader.array(3, |reader| {
        reader.string()?;
        let codes = reader.array(6, |reader| {
            let code = (reader.i32()?, reader.i16()?);
            reader.skip_tags()?;
            Ok(code)
        })?;
        reader.skip_tags()?;
        Ok(codes)
    });
    reader.skip_tags().unwrap();
    assert_eq!(reader.expect_end(), Ok(()));
    topics.unwrap().concat()
}

fn arrived(test: &mut TestPlane) -> Arc<OffsetCommit> {
    match test.wait_for("a commit", |event| matches!(event, Event::OffsetCommit(_))) {
        Event::OffsetCommit(commit) => commit,
        other => panic!("{other:?}"),
    }
}

fn append(test: &TestPlane, commits: Vec<Arc<OffsetCommit>>) -> Arc<CommitBatch> {
    test.plane.append_commits(&terms(), commits).unwrap()
}

fn committed(record_offset: i64, offset: i64, metadata: &str) -> CommittedOffset {
    CommittedOffset {
        record_offset,
        offset,
        leader_epoch: 2,
        metadata: metadata.into(),
        commit_ms: NOW_MS,
        expire_ms: -1,
    }
}

#[test]
fn commits_of_a_batch_reach_the_log_the_table_and_their_clients() {
    let dir = tempfile::tempdir().unwrap();
    let mut test = start(dir.path());
    test.create("t", 3);
    let table = Arc::new(OffsetTable::default());
    let mut clients: Vec<Client> = (0..3).map(|_| test.client()).collect();
    let mut commits = Vec::new();
    for (number, client) in clients.iter_mut().enumerate() {
        let partitions = [("t", number as i32, 7, Some("\u{e9}")), ("t", 0, 8, None)];
        client.send(key::OFFSET_COMMIT, VERSION, &body(&partitions));
        let commit = arrived(&mut test);
        let asks = commit.membership();
        assert_eq!((asks.group_id, asks.member_id), ("group", "member"));
        assert_eq!((asks.generation, asks.instance_id), (3, None));
        assert_eq!(commit.metadata_units(), 1);
        assert!(commit.stage(&table, number as u64));
        assert!(!commit.stage(&table, 9), "staged twice");
        commits.push(commit);
    }
    assert_eq!((table.len(), table.pending()), (0, 3));
    let batch = append(&test, commits);
    for (number, client) in (0..).zip(&mut clients) {
        let (_, answer) = client.receive(key::OFFSET_COMMIT, VERSION);
        assert_eq!(codes(&answer), [(number, 0), (0, 0)]);
    }
    assert!(batch.is_answered());
    assert_eq!((table.len(), table.pending()), (3, 0));
    assert_eq!(table.get("t", 0), Some(committed(5, 8, "")));
    assert_eq!(table.get("t", 1), Some(committed(2, 7, "\u{e9}")));
    let read = read(&mut test, 0, 1 << 20);
    let [batch] = &read.batches[..] else {
        panic!("{read:?}")
    };
    let records: Vec<_> = batch.records().collect();
    assert_eq!(records.len(), 6);
    let (offset, key, value) = records[2];
    assert_eq!(offset, 2);
    assert_eq!(key, Some(&b"\0\x01\0\x05group\0\x01t\0\0\0\x01"[..]));
    assert_eq!(value.unwrap()[..2], [0, 3]);
}

#[test]
fn commits_out_of_the_ordinary_go_to_the_control_plane() {
    let dir = tempfile::tempdir().unwrap();
    let mut test = start(dir.path());
    test.create("t", 1);
    let long = "x".repeat(40_000);
    let mut cut = body(&[("t", 0, 7, None)]);
    cut.truncate(cut.len() - 3);
    let bodies = [
        body(&[("t", 0, 7, None), ("missing", 0, 7, None)]),
        body(&[("t", 1, 7, None)]),
        body(&[("t", 0, 7, Some(&long))]),
        body(&[]),
        cut,
    ];
    for body in bodies {
        let mut client = test.client();
        client.send(key::OFFSET_COMMIT, VERSION, &body);
        let request = test.wait_for_request();
        assert_eq!((request.api_key, request.body), (key::OFFSET_COMMIT, body));
    }
}

#[test]
fn a_commit_that_cannot_be_written_says_so_and_leaves_nothing() {
    let dir = tempfile::tempdir().unwrap();
    let mut test = start(dir.path());
    test.create("t", 1);
    let table = Arc::new(OffsetTable::default());
    let mut client = test.client();
    client.send(key::OFFSET_COMMIT, VERSION, &body(&[("t", 0, 7, None)]));
    let commit = arrived(&mut test);
    commit.stage(&table, 1);
    let old_epoch = InternalAppend {
        expected_epoch: 5,
        ..terms()
    };
    test.plane.append_commits(&old_epoch, vec![commit]).unwrap();
    let (_, answer) = client.receive(key::OFFSET_COMMIT, VERSION);
    assert_eq!(codes(&answer), [(0, ErrorCode::NOT_COORDINATOR.0)]);
    assert_eq!((table.len(), table.pending()), (0, 0));
    assert_eq!(
        commit_error(ErrorCode::MESSAGE_TOO_LARGE),
        ErrorCode::INVALID_COMMIT_OFFSET_SIZE
    );
}

#[test]
fn a_client_that_has_waited_enough_is_told_and_the_offset_counts_later() {
    let dir = tempfile::tempdir().unwrap();
    let disk = SlowDisk::default();
    let config = config(vec![dir.path().join("logs")]);
    let mut test = TestPlane::start_with(config, Arc::new(disk.clone()));
    test.create(TOPIC, 1);
    test.create("t", 1);
    let table = Arc::new(OffsetTable::default());
    let mut client = test.client();
    client.send(key::OFFSET_COMMIT, VERSION, &body(&[("t", 0, 7, None)]));
    let commit = arrived(&mut test);
    commit.stage(&table, 1);
    disk.freeze();
    let batch = append(&test, vec![commit]);
    assert!(!batch.is_answered());
    test.plane.time_out_commits(&batch);
    let (_, answer) = client.receive(key::OFFSET_COMMIT, VERSION);
    assert_eq!(codes(&answer), [(0, ErrorCode::REQUEST_TIMED_OUT.0)]);
    assert!(table.is_pending("t", 0));
    disk.thaw();
    eventually("the offset counts", || table.get("t", 0));
    assert_eq!(table.pending(), 0);
    test.plane.time_out_commits(&batch);
    client.call(key::API_VERSIONS, 0, &[]);
}

#[test]
fn commits_that_wait_for_replication_take_no_place_and_their_memory_is_bounded() {
    const NOTE_BYTES: usize = 30_000;
    let dir = tempfile::tempdir().unwrap();
    let disk = SlowDisk::default();
    let mut config = config(vec![dir.path().join("logs")]);
    config.control_queue_max_requests = 2;
    config.receive_buffers_max_bytes = 4 * 1024 * 1024;
    let mut test = TestPlane::start_with(config, Arc::new(disk.clone()));
    test.create(TOPIC, 1);
    test.create("t", 1);
    let table = Arc::new(OffsetTable::default());
    let note = "x".repeat(NOTE_BYTES);
    disk.freeze();
    let mut batches = Vec::new();
    let mut clients = Vec::new();
    let refused = loop {
        let mut client = test.client();
        client.send(
            key::OFFSET_COMMIT,
            VERSION,
            &body(&[("t", 0, 7, Some(&note))]),
        );
        if clients.len() >= 6 {
            break client;
        }
        let commit = arrived(&mut test);
        commit.stage(&table, clients.len() as u64);
        batches.push(append(&test, vec![commit]));
        assert_eq!(test.statistic("control_queue_depth"), 0);
        clients.push(client);
        assert_eq!(test.statistic("control_queue_parked"), clients.len() as u64);
    };
    let (_, answer) = { refused }.receive(key::OFFSET_COMMIT, VERSION);
    let no_room = (0, ErrorCode::COORDINATOR_NOT_AVAILABLE.0);
    assert_eq!(codes(&answer), [no_room], "before anybody is asked");
    for (batch, client) in batches.iter().zip(&mut clients) {
        test.plane.time_out_commits(batch);
        let (_, answer) = client.receive(key::OFFSET_COMMIT, VERSION);
        assert_eq!(codes(&answer), [(0, ErrorCode::REQUEST_TIMED_OUT.0)]);
    }
    assert_eq!(test.statistic("control_queue_parked"), 0);
    let held = test.statistic("control_queue_parked_bytes");
    assert!(
        held >= 6 * NOTE_BYTES as u64,
        "until they are replicated: {held}"
    );
    drop(batches);
    disk.thaw();
    eventually("nothing is held", || {
        (test.statistic("control_queue_parked_bytes") == 0).then_some(())
    });
    assert_eq!(table.get("t", 0).unwrap().record_offset, 5);
}

#[test]
fn a_connection_that_has_gone_does_not_keep_its_offset_from_counting() {
    let dir = tempfile::tempdir().unwrap();
    let mut test = start(dir.path());
    test.create("t", 1);
    let table = Arc::new(OffsetTable::default());
    let mut client = test.client();
    client.send(key::OFFSET_COMMIT, VERSION, &body(&[("t", 0, 7, None)]));
    let commit = arrived(&mut test);
    commit.stage(&table, 1);
    drop(client);
    append(&test, vec![commit]);
    eventually("the offset counts", || table.get("t", 0));
    eventually("its place is free", || {
        (test.statistic("control_queue_depth") == 0).then_some(())
    });
}

#[test]
fn commit_to_a_partition_gone_since_goes_to_the_control_plane() {
    let dir = tempfile::tempdir().unwrap();
    let mut test = start(dir.path());
    test.create("t", 1);
    test.create("u", 1);
    let table = Arc::new(OffsetTable::default());
    let mut client = test.client();
    client.send(key::OFFSET_COMMIT, VERSION, &body(&[("t", 0, 7, None)]));
    let before = arrived(&mut test);
    let mut other = test.client();
    other.send(key::OFFSET_COMMIT, VERSION, &body(&[("u", 0, 7, None)]));
    let unconcerned = arrived(&mut test);
    test.delete("t", 1);
    assert!(!before.stage(&table, 1));
    assert!(table.is_unused());
    assert!(unconcerned.stage(&table, 2));
}

#[test]
fn finished_commit_batch_releases_its_memory() {
    let dir = tempfile::tempdir().unwrap();
    let mut test = start(dir.path());
    test.create("t", 1);
    let table = Arc::new(OffsetTable::default());
    let mut client = test.client();
    client.send(key::OFFSET_COMMIT, VERSION, &body(&[("t", 0, 7, None)]));
    let commit = arrived(&mut test);
    commit.stage(&table, 1);
    let request = Arc::downgrade(&commit);
    let batch = Arc::downgrade(&append(&test, vec![commit]));
    client.receive(key::OFFSET_COMMIT, VERSION);
    eventually("the request is forgotten", || {
        (batch.upgrade().is_none() && request.upgrade().is_none()).then_some(())
    });
}

#[test]
fn a_commit_of_more_than_could_be_written_is_refused_at_once() {
    let dir = tempfile::tempdir().unwrap();
    let mut test = start(dir.path());
    test.create("t", 1);
    let many = vec![("t", 0, 7, None); 30_000];
    let mut client = test.client();
    let answer = client.call(key::OFFSET_COMMIT, VERSION, &body(&many));
    let refused = (0, ErrorCode::INVALID_COMMIT_OFFSET_SIZE.0);
    assert_eq!(codes(&answer), vec![refused; many.len()]);
    let note = "x".repeat(30_000);
    let long = vec![("t", 0, 7, Some(&note[..])); 200];
    client.send(key::OFFSET_COMMIT, VERSION, &body(&long));
    assert!(client.is_closed());
    test.client().call(key::API_VERSIONS, 0, &[]);
}
