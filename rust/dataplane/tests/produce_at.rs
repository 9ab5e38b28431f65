//! ProduceAt: batches at offsets of their own, if the log ends where the request says.

mod harness;

use harness::*;
use pyrklog_dataplane::seam::TicketOutcome;
use pyrklog_wire::ErrorCode;
use pyrklog_wire::api::key;
use pyrklog_wire::batch::{BatchView, Batches};
use pyrklog_wire::builder::BatchBuilder;
use pyrklog_wire::produce::{PartitionToProduceAt, encode_request_at};
use pyrklog_wire::records::Records;

const VERSION: i16 = 11;

/// Records at these offsets; each value is the offset.
fn at(offsets: &[i64]) -> Vec<u8> {
    let mut builder = BatchBuilder::new().base_offset(offsets[0]);
    for offset in offsets {
        builder.skip_offsets((offset - builder.end_offset()) as i32);
        let value = offset.to_string();
        builder.append(1_700_000_000_000, None, Some(value.as_bytes()));
    }
    builder.build()
}

fn body(expected_end: i64, records: &[u8]) -> Vec<u8> {
    let partition = PartitionToProduceAt {
        index: 0,
        expected_end,
        records,
    };
    let mut body = Vec::new();
    encode_request_at(&mut body, 10_000, &[("t", vec![partition])]);
    body
}

fn send(client: &mut Client, expected_end: i64, records: &[u8]) -> (ErrorCode, i64) {
    let answer = client.call(key::PRODUCE_AT, VERSION, &body(expected_end, records));
    produced(&answer, VERSION)
}

fn offsets_of(batch: &BatchView<'_>) -> Vec<i64> {
    let base = batch.header.base_offset;
    let records = Records::new(batch.body());
    records
        .map(|record| {
            let record = record.unwrap();
            let offset = base + i64::from(record.offset_delta);
            let value = std::str::from_utf8(record.value.unwrap()).unwrap();
            assert_eq!(value, offset.to_string());
            offset
        })
        .collect()
}

/// The offsets of all records from an offset on.
fn read(client: &mut Client, mut from: i64) -> Vec<i64> {
    let mut all = Vec::new();
    loop {
        let found = client.fetch_one("t", 0, from);
        assert_eq!(found.error, ErrorCode::NONE);
        let before = all.len();
        for batch in Batches::new(&found.records).map_while(Result::ok) {
            all.extend(offsets_of(&batch).into_iter().filter(|one| *one >= from));
        }
        if all.len() == before {
            return all;
        }
        from = all[all.len() - 1] + 1;
    }
}

fn end(client: &mut Client) -> i64 {
    client.list_offset("t", 0, -1).offset
}

#[test]
fn records_keep_their_offsets_over_gaps_of_any_size_and_restarts() {
    let dir = tempfile::tempdir().unwrap();
    let far = 1_i64 << 40;
    let batches = [
        vec![1000, 1001, 1005],
        vec![1006],
        vec![2_000, 900_000],
        vec![far, far + 1],
        vec![far + 7],
    ];
    let all: Vec<i64> = batches.concat();
    let mut test = TestPlane::start(dir.path());
    test.create("t", 1);
    let mut client = test.client();
    let mut expected = 0;
    for batch in &batches {
        assert_eq!(
            send(&mut client, expected, &at(batch)),
            (ErrorCode::NONE, batch[0])
        );
        expected = batch[batch.len() - 1] + 1;
        assert_eq!(end(&mut client), expected);
    }
    for round in 0..3 {
        if round > 0 {
            match round {
                1 => drop(test),
                _ => assert!(test.shutdown()),
            }
            test = TestPlane::start(dir.path());
            test.create("t", 1);
            client = test.client();
        }
        assert_eq!(end(&mut client), far + 8);
        assert_eq!(client.list_offset("t", 0, -2).offset, 0);
        for from in [
            0,
            999,
            1000,
            1002,
            1006,
            1007,
            5_000,
            far - 1,
            far + 1,
            far + 2,
            far + 8,
        ] {
            let wanted: Vec<i64> = all.iter().copied().filter(|one| *one >= from).collect();
            assert_eq!(
                read(&mut client, from),
                wanted,
                "from {from} in round {round}"
            );
        }
    }
    // An ordinary producer goes on behind.
    assert_eq!(
        client.produce("t", 0, &batch(&[b"1099511627784"])),
        (ErrorCode::NONE, far + 8)
    );
}

#[test]
fn a_kill_takes_no_record_behind_a_gap_between_segments() {
    let dir = tempfile::tempdir().unwrap();
    let mut options = topic_config();
    options.log.segment_bytes = 2_000;
    let mut all: Vec<i64> = Vec::new();
    for _ in 0..3 {
        let mut test = TestPlane::start(dir.path());
        assert_eq!(test.lead("t", 1, &options), [0]);
        let mut client = test.client();
        assert_eq!(read(&mut client, 0), all);
        for _ in 0..60 {
            // Each batch lies behind a gap, so that one lies before each segment.
            let end = all.last().map_or(0, |last| last + 1);
            let batch = [end + 5, end + 6, end + 9];
            assert_eq!(
                send(&mut client, end, &at(&batch)),
                (ErrorCode::NONE, end + 5)
            );
            all.extend(batch);
        }
        // Dropped, not shut down.
    }
}

#[test]
fn the_beginning_is_cut_off_as_any_other() {
    let dir = tempfile::tempdir().unwrap();
    let mut test = TestPlane::start(dir.path());
    test.create("t", 1);
    let mut client = test.client();
    send(&mut client, 0, &at(&[5_000_000_000, 5_000_000_001]));
    let ticket = test
        .plane
        .delete_records(vec![("t".into(), 0, 4_999_999_000)]);
    match test.ticket(ticket.unwrap()) {
        TicketOutcome::DeleteRecords(results) => assert_eq!(results[0], (0, 4_999_999_000)),
        other => panic!("{other:?}"),
    }
    assert_eq!(client.list_offset("t", 0, -2).offset, 4_999_999_000);
    assert_eq!(
        read(&mut client, 4_999_999_000),
        [5_000_000_000, 5_000_000_001]
    );
}

#[test]
fn a_log_that_ends_elsewhere_takes_nothing() {
    let dir = tempfile::tempdir().unwrap();
    let mut test = TestPlane::start(dir.path());
    test.create("t", 1);
    let mut client = test.client();
    let first = at(&[10, 11]);
    assert_eq!(send(&mut client, 0, &first).0, ErrorCode::NONE);
    for (expected, batch) in [
        (0, at(&[10, 11])),
        (10, at(&[10, 11])),
        (11, at(&[12])),
        (11, at(&[11])),
        (13, at(&[13])),
        (13, at(&[20])),
    ] {
        assert_eq!(
            send(&mut client, expected, &batch),
            (ErrorCode::OFFSET_OUT_OF_RANGE, -1)
        );
    }
    assert_eq!(read(&mut client, 0), [10, 11]);
    assert_eq!(send(&mut client, 12, &at(&[12])), (ErrorCode::NONE, 12));
    // Somebody else's record moves the end.
    client.produce("t", 0, &batch(&[b"13"]));
    assert_eq!(
        send(&mut client, 13, &at(&[13])).0,
        ErrorCode::OFFSET_OUT_OF_RANGE
    );
    assert_eq!(read(&mut client, 0), [10, 11, 12, 13]);
}

#[test]
fn lies_are_refused() {
    let dir = tempfile::tempdir().unwrap();
    let mut test = TestPlane::start(dir.path());
    test.create("t", 1);
    let mut client = test.client();
    assert_eq!(send(&mut client, 0, &at(&[3])).0, ErrorCode::NONE);
    let request = ErrorCode::INVALID_REQUEST;
    let record = ErrorCode::INVALID_RECORD;
    let moved = |base: i64| {
        let mut bytes = at(&[0, 1]);
        bytes[..8].copy_from_slice(&base.to_be_bytes());
        bytes
    };
    let with_producer = {
        let mut builder = BatchBuilder::new().base_offset(4).producer(1, 0, 0);
        builder.append(1, None, Some(b"v"));
        builder.build()
    };
    let back = {
        // The last offset delta says less than the records do.
        let mut bytes = at(&[4, 9]);
        bytes[23..27].copy_from_slice(&2_i32.to_be_bytes());
        pyrklog_wire::batch::refresh_crc(&mut bytes);
        bytes
    };
    for (expected, batch, error) in [
        (-1, at(&[4]), request),
        (i64::MIN, at(&[4]), request),
        (5, at(&[4]), request),
        (i64::MAX, at(&[4]), request),
        // An end that fits, but a batch that would go back.
        (4, at(&[3]), request),
        (4, at(&[0]), request),
        (4, moved(-1), record),
        (4, moved(i64::MIN), record),
        (4, moved(i64::MAX), record),
        (4, moved(i64::MAX - 1), record),
        (4, moved(1 << 62), record),
        (4, back, record),
        (4, with_producer, record),
        (4, vec![], record),
    ] {
        assert_eq!(
            send(&mut client, expected, &batch),
            (error, -1),
            "{expected}"
        );
    }
    // Without the field, as of an ordinary request.
    let plain = at(&[4]);
    let ordinary = produce_body(VERSION, -1, 1000, "t", &[(0, Some(&plain))]);
    let answer = client.call(key::PRODUCE_AT, VERSION, &ordinary);
    assert_eq!(produced(&answer, VERSION), (request, -1));
    // And with fewer acknowledgements: behind the empty id of no transaction.
    for acks in [0_i16, 1, 2, -2, i16::MIN, i16::MAX] {
        let mut asked = body(4, &plain);
        asked[1..3].copy_from_slice(&acks.to_be_bytes());
        let answer = client.call(key::PRODUCE_AT, VERSION, &asked);
        let refused = (ErrorCode::INVALID_REQUIRED_ACKS, -1);
        assert_eq!(produced(&answer, VERSION), refused, "acks {acks}");
    }
    assert_eq!(end(&mut client), 4);
    assert_eq!(read(&mut client, 0), [3]);
    assert_eq!(send(&mut client, 4, &plain), (ErrorCode::NONE, 4));
    // An ordinary Produce takes neither.
    assert_eq!(client.produce("t", 0, &at(&[5])).0, record);
    client.send(key::PRODUCE_AT, 10, &body(5, &at(&[5])));
    client.send(key::PRODUCE_AT, 12, &body(5, &at(&[5])));
    drop(client);
    let mut client = test.client();
    assert_eq!(read(&mut client, 0), [3, 4]);
}

#[test]
fn gaps_that_make_segments_wait_for_the_syncer() {
    let dir = tempfile::tempdir().unwrap();
    let mut test = TestPlane::start(dir.path());
    test.create("t", 1);
    let mut client = test.client();
    let mut taken: Vec<i64> = Vec::new();
    let error = loop {
        let offset = (taken.len() as i64 + 1) << 32;
        let expected = taken.last().map_or(0, |last| last + 1);
        match send(&mut client, expected, &at(&[offset])).0 {
            ErrorCode::NONE => taken.push(offset),
            error => break error,
        }
        assert!(taken.len() < 1000);
    };
    assert_eq!(error, ErrorCode::THROTTLING_QUOTA_EXCEEDED);
    assert!(taken.len() > 10, "{}", taken.len());
    assert_eq!(read(&mut client, 0), taken);
    let end = taken[taken.len() - 1] + 1;
    assert_eq!(send(&mut client, end, &at(&[end])), (ErrorCode::NONE, end));
}

#[test]
fn others_do_not_see_the_api() {
    let dir = tempfile::tempdir().unwrap();
    let mut test = TestPlane::start(dir.path());
    test.create("t", 1);
    let mut client = test.client();
    for version in 0..=2 {
        let answer = client.call(key::API_VERSIONS, version, &[]);
        let found = pyrklog_wire::api_versions::ApiVersionsResponse::decode(&answer, version);
        let apis = found.unwrap().apis;
        assert!(apis.iter().any(|one| one.key == key::PRODUCE));
        assert!(
            apis.iter().all(|one| one.key != key::PRODUCE_AT),
            "v{version}"
        );
    }
    // An empty request is how a tool finds out.
    let mut body = Vec::new();
    encode_request_at(&mut body, 0, &[]);
    client.call(key::PRODUCE_AT, VERSION, &body);
}

#[test]
fn followers_copy_gaps_and_lead_on() {
    let mut pair = Pair::start();
    pair.lead(1, 0, &BOTH);
    let mut client = pair.plane(1).client();
    let far = 7_000_000_000;
    pair.follow(2, 1, 0);
    assert_eq!(send(&mut client, 0, &at(&[100, 200])).0, ErrorCode::NONE);
    assert_eq!(
        send(&mut client, 201, &at(&[far, far + 2])).0,
        ErrorCode::NONE
    );
    pair.wait_visible(1, far + 3);
    // The other one leads: the same end, the same records.
    pair.lead(2, 1, &[2]);
    pair.follow(1, 2, 1);
    let mut client = pair.plane(2).client();
    eventually("the end at the new leader", || {
        (end(&mut client) == far + 3).then_some(())
    });
    let late = send(&mut client, 201, &at(&[far, far + 2])).0;
    assert_eq!(late, ErrorCode::OFFSET_OUT_OF_RANGE);
    let at_old = send(&mut pair.plane(1).client(), far + 3, &at(&[far + 9])).0;
    assert_eq!(at_old, ErrorCode::NOT_LEADER_OR_FOLLOWER);
    pair.lead(2, 2, &BOTH);
    pair.follow(1, 2, 2);
    assert_eq!(
        send(&mut client, far + 3, &at(&[far + 9])).0,
        ErrorCode::NONE
    );
    assert_eq!(read(&mut client, 0), [100, 200, far, far + 2, far + 9]);
    pair.lead(1, 3, &[1]);
    let mut client = pair.plane(1).client();
    eventually("the end at the first leader", || {
        (end(&mut client) == far + 10).then_some(())
    });
    assert_eq!(read(&mut client, 0), [100, 200, far, far + 2, far + 9]);
}
