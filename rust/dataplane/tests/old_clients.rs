//! Clients of before Kafka 0.11: message sets, and versions without record batches.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use crate::harness::*;
use pyrklog_dataplane::seam::TopicConfig;
use pyrklog_log::LogConfig;
use pyrklog_log::compression::compress;
use pyrklog_log::disk::RealDisk;
use pyrklog_wire::api::key;
use pyrklog_wire::batch::{self, BatchHeader, Compression, HEADER_LEN};
use pyrklog_wire::builder::{BatchBuilder, transaction_marker};
use pyrklog_wire::list_offsets::{
    ListOffsetsPartition, ListOffsetsRequest, ListOffsetsTopic, OldListOffsetsResponse,
};
use pyrklog_wire::message_set::{MAGIC_0, MAGIC_1, Messages, message_len, write_message};
use pyrklog_wire::offset_for_leader_epoch::{
    EpochPartition, EpochRequest, EpochResponse, EpochTopic, NO_REPLICA,
};
use pyrklog_wire::records::Records;
use pyrklog_wire::{ErrorCode, Reader, Writer};

const NOW_MS: i64 = 1_700_000_000_000;

/// The format of a version's sets.
fn format_of(produce_version: i16) -> i8 {
    if produce_version < 2 {
        MAGIC_0
    } else {
        MAGIC_1
    }
}

fn set(magic: i8, values: &[&[u8]]) -> Vec<u8> {
    let mut set = Vec::new();
    for (offset, value) in (0..).zip(values) {
        write_message(
            &mut set,
            (magic, 0),
            offset,
            NOW_MS,
            Some(b"k"),
            Some(value),
        );
    }
    set
}

fn produce(client: &mut Client, version: i16, set: &[u8]) -> (ErrorCode, i64) {
    let body = produce_body(version, 1, 10_000, "t", &[(0, Some(set))]);
    let answer = client.call(key::PRODUCE, version, &body);
    produced(&answer, version)
}

/// (offset, value) of the messages that a version gets.
fn fetch(client: &mut Client, version: i16, offset: i64) -> Vec<(i64, Vec<u8>)> {
    let mut reply = client.fetch(&Ask::one("t", 0, offset).version(version));
    let fetched = reply.partitions.remove(0);
    assert_eq!(fetched.error, ErrorCode::NONE);
    let magic = if version < 2 { MAGIC_0 } else { MAGIC_1 };
    let messages = Messages::new(&fetched.records).map(Result::unwrap);
    messages
        .map(|message| {
            assert_eq!((message.magic, message.verify_crc()), (magic, Ok(())));
            (message.offset, message.value.unwrap().to_vec())
        })
        .collect()
}

fn started(config: &TopicConfig) -> (tempfile::TempDir, TestPlane) {
    let dir = tempfile::tempdir().unwrap();
    let mut test = TestPlane::start(dir.path());
    assert_eq!(test.lead("t", 1, config), [0]);
    (dir, test)
}

#[test]
fn each_version_writes_what_each_reads() {
    let (_dir, test) = started(&topic_config());
    let mut client = test.client();
    let mut expected = Vec::new();
    for version in 0..3 {
        let values = [format!("one {version}"), format!("two {version}")];
        let bytes: Vec<&[u8]> = values.iter().map(String::as_bytes).collect();
        let base = 2 * i64::from(version);
        let set = set(format_of(version), &bytes);
        assert_eq!(produce(&mut client, version, &set), (ErrorCode::NONE, base));
        let offsets = base..;
        expected.extend(offsets.zip(values.map(String::into_bytes)));
    }
    assert_eq!(client.produce("t", 0, &batch(&[b"new"])).1, 6);
    expected.push((6, b"new".to_vec()));
    for version in 0..4 {
        for offset in 0..=7 {
            let rest = expected[offset..].to_vec();
            assert_eq!(
                fetch(&mut client, version, offset as i64),
                rest,
                "v{version}"
            );
        }
    }
    let read = client.fetch_one("t", 0, 0);
    assert_eq!(read.batches(), [0, 2, 4, 6]);
    let first = BatchHeader::parse(&read.records).unwrap();
    assert_eq!(first.max_timestamp, batch::NO_TIMESTAMP);
    let records = &read.records[HEADER_LEN..first.total_len()];
    let record = Records::new(records).next().unwrap().unwrap();
    assert_eq!(
        (record.key, record.value),
        (Some(&b"k"[..]), Some(&b"one 0"[..]))
    );
}

#[test]
fn answers_have_their_versions_form() {
    let (_dir, test) = started(&topic_config());
    let mut client = test.client();
    for version in 0..3 {
        // Less than a message: nothing is appended, and nothing is wrong.
        let body = produce_body(version, 1, 1_000, "t", &[(0, Some(&[9, 9]))]);
        let answer = client.call(key::PRODUCE, version, &body);
        let mut expected = vec![0, 0, 0, 1, 0, 1, b't', 0, 0, 0, 1, 0, 0, 0, 0, 0, 0];
        expected.extend([0xff; 8]);
        expected.extend(vec![0xff; if version == 2 { 8 } else { 0 }]);
        expected.extend(vec![0; if version >= 1 { 4 } else { 0 }]);
        assert_eq!(answer, expected, "v{version}");
    }
    for version in 0..4 {
        let answer = client.call(
            key::FETCH,
            version,
            &Ask::one("t", 0, 0).version(version).encode(),
        );
        let mut expected = vec![0; if version >= 1 { 4 } else { 0 }];
        expected.extend([0, 0, 0, 1, 0, 1, b't', 0, 0, 0, 1, 0, 0, 0, 0, 0, 0]);
        // High watermark, and no records.
        expected.extend([0; 8 + 4]);
        assert_eq!(answer, expected, "v{version}");
    }
}

#[test]
fn bad_sets_fail_their_partition_and_without_acks_close_the_connection() {
    let (_dir, test) = started(&topic_config());
    let mut client = test.client();
    let mut corrupt = set(MAGIC_1, &[b"v"]);
    *corrupt.last_mut().unwrap() ^= 1;
    let refused = produce(&mut client, 2, &corrupt);
    assert_eq!(refused, (ErrorCode::CORRUPT_MESSAGE, -1));
    let mut lying = set(MAGIC_1, &[b"v"]);
    lying[8..12].copy_from_slice(&(-5_i32).to_be_bytes());
    assert_eq!(
        produce(&mut client, 2, &lying).0,
        ErrorCode::CORRUPT_MESSAGE
    );
    assert_eq!(
        produce(&mut client, 2, &set(MAGIC_1, &[b"v"])),
        (ErrorCode::NONE, 0)
    );
    let body = produce_body(2, 0, 1_000, "t", &[(0, Some(&corrupt))]);
    client.send(key::PRODUCE, 2, &body);
    assert!(client.is_closed());
}

#[test]
fn a_fetch_waits_for_records_and_for_enough_of_them() {
    let (_dir, test) = started(&topic_config());
    let (mut reader, mut writer) = (test.client(), test.client());
    let ask = Ask::one("t", 0, 0).version(2).wait(20_000, 1);
    reader.send(key::FETCH, 2, &ask.encode());
    assert_eq!(produce(&mut writer, 1, &set(MAGIC_0, &[b"first"])).1, 0);
    let (_, answer) = reader.receive(key::FETCH, 2);
    let reply = fetched(&answer, &ask);
    assert_eq!(Messages::new(&reply.partitions[0].records).count(), 1);
    let one = message_len(MAGIC_1, Some(b"k"), Some(b"first"));
    let ask = Ask::one("t", 0, 0).version(2).wait(20_000, one as i32 + 1);
    reader.send(key::FETCH, 2, &ask.encode());
    assert_eq!(produce(&mut writer, 1, &set(MAGIC_0, &[b"second"])).1, 1);
    let (_, answer) = reader.receive(key::FETCH, 2);
    let reply = fetched(&answer, &ask);
    assert_eq!(Messages::new(&reply.partitions[0].records).count(), 2);
}

#[test]
fn what_cannot_be_converted_is_told() {
    let (_dir, mut test) = started(&topic_config());
    let mut client = test.client();
    let mut builder = BatchBuilder::new();
    builder.append(NOW_MS, None, Some(b"v"));
    let zstd = builder.build_compressed(Compression::Zstd, |records| {
        let mut out = Vec::new();
        compress(Compression::Zstd, records, &mut out).unwrap();
        out
    });
    assert_eq!(client.produce("t", 0, &zstd).0, ErrorCode::NONE);
    let error = |client: &mut Client, version| {
        let reply = client.fetch(&Ask::one("t", 0, 0).version(version));
        reply.partitions[0].error
    };
    for version in 0..4 {
        let told = error(&mut client, version);
        assert_eq!(told, ErrorCode::UNSUPPORTED_COMPRESSION_TYPE);
    }
    let forbidden = TopicConfig {
        log: LogConfig {
            message_downconversion_enable: false,
            ..LogConfig::default()
        },
        ..topic_config()
    };
    test.describe_topic("t", 1, &forbidden);
    for version in 0..4 {
        assert_eq!(error(&mut client, version), ErrorCode::UNSUPPORTED_VERSION);
    }
    assert_eq!(error(&mut client, 4), ErrorCode::NONE);
}

#[test]
fn a_batch_beyond_the_limit_is_read_piece_by_piece() {
    let (_dir, test) = started(&topic_config());
    let mut client = test.client();
    let values: Vec<Vec<u8>> = (0..50).map(|number| vec![number; 1_000]).collect();
    let borrowed: Vec<&[u8]> = values.iter().map(Vec::as_slice).collect();
    assert_eq!(client.produce("t", 0, &batch(&borrowed)).0, ErrorCode::NONE);
    for version in 0..4 {
        let mut read = Vec::new();
        while read.len() < values.len() {
            let mut ask = Ask::one("t", 0, read.len() as i64).version(version);
            ask.partitions[0].1.max_bytes = 2_500;
            let reply = client.fetch(&ask);
            let records = &reply.partitions[0].records;
            assert!(records.len() <= 2_500);
            let before = read.len();
            for message in Messages::new(records) {
                let message = message.unwrap();
                assert_eq!(message.offset, read.len() as i64);
                read.push(message.value.unwrap().to_vec());
            }
            assert!(read.len() > before);
        }
        assert_eq!(read, values);
        // A message beyond the limit comes alone and whole.
        let mut ask = Ask::one("t", 0, 3).version(version);
        ask.partitions[0].1.max_bytes = 10;
        let records = client.fetch(&ask).partitions.remove(0).records;
        let first = Messages::new(&records).next().unwrap().unwrap();
        assert_eq!((first.offset, first.bytes.len()), (3, records.len()));
    }
}

/// Creates topic `t` with as many partitions, and writes a batch to each.
fn with_batches(test: &mut TestPlane, batches: &[Vec<u8>]) {
    test.create("t", batches.len() as i32);
    let mut client = test.client();
    for (partition, batch) in (0..).zip(batches) {
        assert_eq!(client.produce("t", partition, batch).0, ErrorCode::NONE);
    }
}

/// All partitions of `t` in one request of version 3.
fn ask_all(count: i32, max_bytes: i32) -> Ask {
    let mut ask = Ask::one("t", 0, 0).version(3).wait(60_000, 1);
    ask.partitions = (0..count)
        .map(|index| ("t".into(), partition(index, 0)))
        .collect();
    for asked in &mut ask.partitions {
        asked.1.max_bytes = max_bytes;
    }
    ask
}

#[test]
fn partitions_behind_large_batches_are_read_in_the_same_fetch() {
    let large = |mebibytes: usize| {
        let mut builder = BatchBuilder::new();
        builder.append(NOW_MS, None, Some(&vec![b'v'; mebibytes << 20]));
        builder.build_compressed(Compression::Gzip, |records| {
            let mut out = Vec::new();
            compress(Compression::Gzip, records, &mut out).unwrap();
            out
        })
    };
    let dir = tempfile::tempdir().unwrap();
    let mut test = TestPlane::start(dir.path());
    let mut batches = vec![large(5), batch(&[b"small"]), large(6)];
    batches.extend((0..4).map(|_| large(3)));
    with_batches(&mut test, &batches);
    let reply = test.client().fetch(&ask_all(7, 1 << 20));
    for partition in &reply.partitions {
        assert_eq!(partition.error, ErrorCode::NONE);
        assert_eq!(Messages::new(&partition.records).count(), 1);
    }
}

#[test]
fn first_messages_beyond_the_limits_add_up_to_little() {
    const MESSAGE_BYTES: usize = 100_000;
    let dir = tempfile::tempdir().unwrap();
    let disk = Stalling::new();
    let config = config(vec![dir.path().join("logs")]);
    let mut test = TestPlane::start_with(config, Arc::new(disk.0.clone()));
    with_batches(&mut test, &vec![batch(&[&[7; MESSAGE_BYTES]]); 30]);
    disk.set_cold(Some("/t-"));
    let reply = test.client().fetch(&ask_all(30, 1));
    let bytes: usize = reply.partitions.iter().map(|one| one.records.len()).sum();
    let most = (1 << 20) + MESSAGE_BYTES + 100;
    assert!((1 << 20..most).contains(&bytes), "{bytes}");
}

/// A batch of small records that do not compress: as messages they are twice as large.
fn growing() -> Vec<u8> {
    let mut builder = BatchBuilder::new();
    let mut value = 1u32;
    for _ in 0..100_000 {
        // A linear congruential generator's next number.
        value = value.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        builder.append(NOW_MS, None, Some(&value.to_be_bytes()));
    }
    builder.build_compressed(Compression::Gzip, |records| {
        let mut out = Vec::new();
        compress(Compression::Gzip, records, &mut out).unwrap();
        out
    })
}

#[test]
fn topics_of_a_fetch_make_messages_one_after_another() {
    let dir = tempfile::tempdir().unwrap();
    let mut test = TestPlane::start(dir.path());
    let (topics, batch) = (["a", "b", "c", "d", "e", "f"], growing());
    for topic in topics {
        test.create(topic, 1);
        assert_eq!(test.client().produce(topic, 0, &batch).0, ErrorCode::NONE);
    }
    let mut ask = Ask::one("a", 0, 0).version(3).wait(60_000, 1);
    ask.partitions = topics.map(|topic| (topic.into(), partition(0, 0))).to_vec();
    let reply = test.client().fetch(&ask);
    let sizes = reply.partitions.iter().map(|one| one.records.len());
    let (most, all) = (sizes.clone().max().unwrap(), sizes.sum::<usize>());
    assert!(most > batch.len() * 3 / 2, "{most} of {}", batch.len());
    assert!(all < (1 << 20) + most, "{all} of {most} each");
}

/// A request of a few bytes asks for a record that is copied into memory.
#[test]
fn large_records_that_are_not_read_stay_within_reply_memory() {
    const MEMORY_BYTES: usize = 32 << 20;
    const RECORD_BYTES: usize = 9 << 20;
    let dir = tempfile::tempdir().unwrap();
    let mut config = config(vec![dir.path().join("logs")]);
    config.receive_buffers_max_bytes = MEMORY_BYTES;
    config.socket_send_buffer_bytes = 16 << 10;
    let mut test = TestPlane::start_with(config, Arc::new(RealDisk));
    let mut options = topic_config();
    options.log.max_message_bytes = 10 << 20;
    assert_eq!(test.lead("t", 1, &options), [0]);
    let record = vec![7; RECORD_BYTES];
    let produced = test.client().produce("t", 0, &batch(&[&record]));
    assert_eq!(produced.0, ErrorCode::NONE);
    let ask = Ask::one("t", 0, 0).version(2).wait(200, 1);
    let mut silent: Vec<Client> = (0..12).map(|_| test.client()).collect();
    for client in &mut silent {
        client.send(key::FETCH, 2, &ask.encode());
    }
    let used = || test.statistic("reply_memory_bytes") as usize;
    eventually("some have their records", || {
        (used() > 2 * RECORD_BYTES).then_some(())
    });
    let mut most = 0;
    for _ in 0..100 {
        std::thread::sleep(Duration::from_millis(10));
        most = most.max(used());
    }
    // One connection may exceed the bound.
    let beyond = RECORD_BYTES + (2 << 20);
    assert!(most <= MEMORY_BYTES + beyond, "{most}");
    drop(silent);
    eventually("a client that reads gets it", || {
        let fetched = fetch(&mut test.client(), 2, 0);
        (fetched == [(0, record.clone())]).then_some(())
    });
}

/// A partition of markers of about 66 MiB, and a record behind them, as another broker left it.
/// Returns the record's offset.
fn write_markers(log_dir: &Path) -> i64 {
    const MARKERS: i64 = 888_000;
    let mut marker = transaction_marker(7, 0, true, 0, NOW_MS);
    let mut bytes = Vec::with_capacity(marker.len() * MARKERS as usize);
    for offset in 0..MARKERS {
        batch::set_base_offset(&mut marker, offset);
        bytes.extend_from_slice(&marker);
    }
    let mut last = batch(&[b"behind"]);
    batch::set_base_offset(&mut last, MARKERS);
    bytes.extend_from_slice(&last);
    let folder = log_dir.join("t-0");
    std::fs::create_dir_all(&folder).unwrap();
    std::fs::write(folder.join("00000000000000000000.log"), bytes).unwrap();
    MARKERS
}

#[test]
fn markers_are_passed_over_however_many_they_are() {
    let dir = tempfile::tempdir().unwrap();
    let behind = write_markers(&dir.path().join("logs"));
    let mut test = TestPlane::start(dir.path());
    assert_eq!(test.lead("t", 1, &topic_config()), [0]);
    let mut client = test.client();
    let mut ask = Ask::one("t", 0, 0).version(3).wait(0, 1);
    ask.partitions[0].1.max_bytes = 1;
    let records = client.fetch(&ask).partitions.remove(0).records;
    let message = Messages::new(&records).next().unwrap().unwrap();
    assert_eq!(
        (message.offset, message.value),
        (behind, Some(&b"behind"[..]))
    );
}

#[test]
fn a_client_is_named_once() {
    let (_dir, mut test) = started(&topic_config());
    for _ in 0..3 {
        let mut client = test.client();
        client.client_id = "veteran";
        fetch(&mut client, 1, 0);
        produce(&mut client, 2, &set(MAGIC_1, &[b"v"]));
    }
    let mut other = test.client();
    other.client_id = "another";
    other.fetch_one("t", 0, 0);
    fetch(&mut other, 3, 0);
    let told: Vec<_> = (0..2).map(|_| test.wait_for_notice("old_client")).collect();
    let field = |at: usize, name| {
        told[at]
            .iter()
            .find(|field| field.0 == name)
            .unwrap()
            .1
            .clone()
    };
    assert_eq!(
        (field(0, "client_id"), field(0, "request")),
        ("veteran".into(), "Fetch v1".into())
    );
    assert_eq!(
        (field(1, "client_id"), field(1, "request")),
        ("another".into(), "Fetch v3".into())
    );
}

fn old_offsets(client: &mut Client, timestamp: i64, max_offsets: i32) -> (ErrorCode, Vec<i64>) {
    let request = ListOffsetsRequest {
        replica_id: -1,
        isolation_level: 0,
        topics: vec![ListOffsetsTopic {
            name: "t",
            partitions: vec![ListOffsetsPartition {
                index: 0,
                current_leader_epoch: -1,
                timestamp,
                max_offsets,
            }],
        }],
    };
    let mut body = Vec::new();
    request.encode(&mut body, 0);
    let answer = client.call(key::LIST_OFFSETS, 0, &body);
    let mut response = OldListOffsetsResponse::decode(&answer, 0).unwrap();
    let partition = response.topics.remove(0).partitions.remove(0);
    (partition.error_code, partition.offsets)
}

#[test]
fn offsets_are_listed_by_segment() {
    let small = TopicConfig {
        log: LogConfig {
            segment_bytes: 1_000,
            ..LogConfig::default()
        },
        ..topic_config()
    };
    let (_dir, test) = started(&small);
    let mut client = test.client();
    assert_eq!(old_offsets(&mut client, -1, 1), (ErrorCode::NONE, vec![0]));
    // Two to a segment, each a second later.
    for number in 0..6 {
        let mut builder = BatchBuilder::new();
        builder.append(NOW_MS + 1_000 * number, None, Some(&[7; 400]));
        assert_eq!(client.produce("t", 0, &builder.build()).1, number);
    }
    for (timestamp, max, expected) in [
        (-1, 1, vec![6]),
        (-1, 3, vec![6, 4, 2]),
        (-1, 9, vec![6, 4, 2, 0]),
        (-1, 0, vec![]),
        (-1, -1, vec![]),
        (-2, 1, vec![0]),
        (-2, 5, vec![0]),
        (NOW_MS, 5, vec![]),
        (NOW_MS + 1_000, 5, vec![0]),
        (NOW_MS + 4_999, 5, vec![2, 0]),
        (NOW_MS + 4_999, 1, vec![2]),
        (NOW_MS + 5_000, 5, vec![4, 2, 0]),
        (i64::MAX, 2, vec![6, 4]),
    ] {
        let listed = old_offsets(&mut client, timestamp, max);
        assert_eq!(listed, (ErrorCode::NONE, expected), "{timestamp} {max}");
    }
    let refused = old_offsets(&mut client, -3, 1);
    assert_eq!(refused, (ErrorCode::UNSUPPORTED_VERSION, vec![]));
}

#[test]
fn ends_of_epochs_are_told_in_each_version() {
    let (_dir, test) = started(&topic_config());
    let mut client = test.client();
    assert_eq!(client.produce("t", 0, &batch(&[b"v"])).0, ErrorCode::NONE);
    let request = EpochRequest {
        replica_id: NO_REPLICA,
        topics: vec![EpochTopic {
            name: "t",
            partitions: vec![EpochPartition {
                index: 0,
                current_leader_epoch: -1,
                leader_epoch: 0,
            }],
        }],
    };
    for version in 0..=4 {
        let mut body = Vec::new();
        request.encode(&mut body, version);
        let answer = client.call(key::OFFSET_FOR_LEADER_EPOCH, version, &body);
        let response = EpochResponse::decode(&answer, version).unwrap();
        let found = &response.topics[0].partitions[0];
        assert_eq!((found.error_code, found.end_offset), (ErrorCode::NONE, 1));
        assert_eq!(found.leader_epoch, if version == 0 { -1 } else { 0 });
    }
}

#[test]
fn offsets_in_zookeeper_are_refused_on_each_partition() {
    let (_dir, test) = started(&topic_config());
    let mut client = test.client();
    let request = |is_commit: bool| {
        let mut body = Vec::new();
        let mut writer = Writer::new(&mut body, false);
        writer.string("group");
        writer.array(&["t", "u"], |writer, topic| {
            writer.string(topic);
            writer.array(&[0, 7], |writer, index| {
                writer.i32(*index);
                if is_commit {
                    writer.i64(42);
                    writer.nullable_string(None);
                }
            });
        });
        body
    };
    for (api_key, is_commit) in [(key::OFFSET_COMMIT, true), (key::OFFSET_FETCH, false)] {
        let answer = client.call(api_key, 0, &request(is_commit));
        let mut reader = Reader::new(&answer, false);
        let topics = reader.array(1, |reader| {
            let name = reader.string()?;
            let partitions = reader.array(1, |reader| {
                let index = reader.i32()?;
                if !is_commit {
                    assert_eq!((reader.i64()?, reader.string()?), (-1, ""));
                }
                Ok((index, reader.error_code()?))
            })?;
            Ok((name, partitions))
        });
        let refused = [0, 7]
            .map(|index| (index, ErrorCode::UNSUPPORTED_VERSION))
            .to_vec();
        assert_eq!(topics, Ok(vec![("t", refused.clone()), ("u", refused)]));
        assert_eq!(reader.expect_end(), Ok(()));
    }
}
