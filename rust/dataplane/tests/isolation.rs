//! A hanging directory, topic or producer delays no other.

use std::path::PathBuf;
use std::sync::Arc;

use crate::harness::*;
use pyrklog_log::compression::compress;
use pyrklog_log::down_convert::hold_large;
use pyrklog_wire::ErrorCode;
use pyrklog_wire::api::key;
use pyrklog_wire::batch::Compression;
use pyrklog_wire::builder::BatchBuilder;
use pyrklog_wire::message_set::Messages;

const REFUSED: (ErrorCode, i64) = (ErrorCode::REQUEST_TIMED_OUT, -1);

/// A plane on two directories, "one" with topic `a` and "two" with topic `b`, two batches in each.
fn two_directories() -> (TestPlane, Stalling, tempfile::TempDir) {
    let dir = tempfile::tempdir().unwrap();
    let dirs: Vec<PathBuf> = ["one", "two"].map(|name| dir.path().join(name)).to_vec();
    let disk = Stalling::new();
    let mut test = TestPlane::start_with(config(dirs.clone()), Arc::new(disk.0.clone()));
    for topic in ["a", "b"] {
        test.create(topic, 1);
        for _ in 0..2 {
            assert_eq!(
                test.client().produce(topic, 0, &large_batch(100_000)).0,
                ErrorCode::NONE
            );
        }
    }
    assert!(dirs[0].join("a-0").exists() && dirs[1].join("b-0").exists());
    (test, disk, dir)
}

/// A plane on one directory whose producers must wait after `unwritten_max_bytes`.
fn narrow(
    unwritten_max_bytes: usize,
    receive_max_bytes: usize,
) -> (TestPlane, Stalling, tempfile::TempDir) {
    let dir = tempfile::tempdir().unwrap();
    let disk = Stalling::new();
    let mut config = config(vec![dir.path().join("logs")]);
    config.unwritten_max_bytes = Some(unwritten_max_bytes);
    config.receive_buffers_max_bytes = receive_max_bytes;
    let mut test = TestPlane::start_with(config, Arc::new(disk.0.clone()));
    test.create("t", 1);
    (test, disk, dir)
}

fn wait_for_statistic(test: &TestPlane, name: &str, is_it: impl Fn(u64) -> bool) {
    eventually(name, || is_it(test.statistic(name)).then_some(()));
}

fn send(client: &mut Client, acks: i16, timeout_ms: i32, record: &[u8]) {
    let partitions = [(0, Some(record))];
    let body = produce_body(PRODUCE_VERSION, acks, timeout_ms, "t", &partitions);
    client.send(key::PRODUCE, PRODUCE_VERSION, &body);
}

fn answer(client: &mut Client) -> (ErrorCode, i64) {
    let (_, body) = client.receive(key::PRODUCE, PRODUCE_VERSION);
    produced(&body, PRODUCE_VERSION)
}

/// Fills the directory of [`narrow`]; returns the client whose request is appended, and answered
/// when the disk moves again.
fn fill(test: &TestPlane, size_bytes: usize) -> Client {
    let mut client = test.client();
    send(&mut client, 1, 30_000, &large_batch(size_bytes));
    wait_for_statistic(test, "unwritten_bytes.0", |bytes| bytes > 0);
    client
}

#[test]
fn fetch_over_two_directories_returns_records_of_the_working_one() {
    let (test, disk, _dir) = two_directories();
    let mut client = test.client();
    disk.set_cold(Some("/one/"));
    disk.stall("/one/");
    let mut ask = Ask::one("a", 0, 0).wait(200, 1);
    ask.partitions.push(("b".into(), partition(0, 1)));
    // Before the readers are known to hang, and after.
    for _ in 0..4 {
        let reply = client.fetch(&ask);
        let [a, b] = &reply.partitions[..] else {
            panic!("{reply:?}");
        };
        assert_eq!(
            (a.error, a.high_watermark, a.records.len()),
            (ErrorCode::NONE, 2, 0)
        );
        assert_eq!(b.batches(), [1]);
    }
    assert!(disk.waiting() > 0);
    disk.resume();
    eventually("what was held up", || {
        let reply = client.fetch(&ask);
        (reply.partitions[0].batches() == [0, 1]).then_some(())
    });
}

#[test]
fn fetch_from_a_hanging_directory_returns_empty_and_succeeds_later() {
    let (test, disk, _dir) = two_directories();
    let mut client = test.client();
    disk.set_cold(Some("/one/"));
    disk.stall("/one/");
    let ask = Ask::one("a", 0, 0).wait(100, 1);
    for _ in 0..2 {
        let reply = client.fetch(&ask).partitions.remove(0);
        assert_eq!((reply.error, reply.records.len()), (ErrorCode::NONE, 0));
    }
    disk.resume();
    eventually("the records", || {
        (client.fetch(&ask).partitions[0].batches() == [0, 1]).then_some(())
    });
}

#[test]
fn topics_of_one_directory_are_apart() {
    let dir = tempfile::tempdir().unwrap();
    let disk = Stalling::new();
    let mut config = config(vec![dir.path().join("logs")]);
    config.reader_threads = 8;
    let mut test = TestPlane::start_with(config, Arc::new(disk.0.clone()));
    let disk = disk;
    let topics: Vec<String> = (0..12).map(|number| format!("topic-{number}")).collect();
    for topic in &topics {
        test.create(topic, 1);
        test.client().produce(topic, 0, &batch(&[b"v"]));
    }
    disk.set_cold(Some("/topic-"));
    disk.stall("/topic-0-0/");
    assert_eq!(test.statistic("reader_threads"), 0, "none without work");
    // Each of the queue's two threads hangs.
    let mut stuck: Vec<Client> = (0..2).map(|_| test.client()).collect();
    let ask = Ask::one("topic-0", 0, 0).wait(60_000, 1);
    for client in &mut stuck {
        client.send(key::FETCH, ask.version, &ask.encode());
    }
    // Both want the same: one reads, the other waits for it.
    eventually("a read that hangs", || (disk.waiting() == 1).then_some(()));
    let stalled_ms = |number| test.statistic(&format!("reader_queue_stalled_ms.0.fetch-{number}"));
    eventually("a queue that stands still", || {
        (0..4)
            .any(|number| stalled_ms(number) > 1_500)
            .then_some(())
    });
    let mut client = test.client();
    let served = topics[1..].iter().filter(|topic| {
        let reply = client.fetch(&Ask::one(topic, 0, 0).wait(100, 1));
        reply.partitions[0].batches() == [0]
    });
    let served = served.count();
    assert!(
        (6..=10).contains(&served),
        "{served} of 11 beside one of four queues"
    );
    let running = |number| test.statistic(&format!("reader_queue_running.0.fetch-{number}"));
    eventually("nothing else under way", || {
        let mut busy: Vec<u64> = (0..4).map(running).collect();
        busy.sort_unstable();
        (busy == [0, 0, 0, 2]).then_some(())
    });
    disk.resume();
    for client in &mut stuck {
        let (_, body) = client.receive(key::FETCH, ask.version);
        assert_eq!(fetched(&body, &ask).partitions[0].batches(), [0]);
    }
}

/// A small batch that expands to more than each thread may have at any time.
fn expanding() -> Vec<u8> {
    let mut builder = BatchBuilder::new();
    builder.append(1_700_000_000_000, None, Some(&vec![b'v'; 5 << 20]));
    builder.build_compressed(Compression::Gzip, |records| {
        let mut out = Vec::new();
        compress(Compression::Gzip, records, &mut out).unwrap();
        out
    })
}

#[test]
fn large_batches_for_old_clients_hold_no_reader_of_others() {
    let (test, disk, _dir) = two_directories();
    let mut client = test.client();
    assert_eq!(client.produce("b", 0, &expanding()).1, 2);
    let held = hold_large();
    let ask = Ask::one("b", 0, 2).version(3).wait(60_000, 1);
    let mut old: Vec<Client> = (0..3).map(|_| test.client()).collect();
    for client in &mut old {
        client.send(key::FETCH, 3, &ask.encode());
    }
    let at_readers = || {
        let all = test.plane.statistics();
        let of_jobs = all.iter().filter(|(name, _)| {
            let count = ["reader_queue_waiting.1.", "reader_queue_running.1."];
            count.iter().any(|start| name.starts_with(start))
        });
        of_jobs.map(|(_, count)| *count).sum::<u64>()
    };
    eventually("the old clients' reads", || {
        (at_readers() == 3).then_some(())
    });
    disk.set_cold(Some("/two/"));
    for _ in 0..3 {
        let reply = client.fetch(&Ask::one("b", 0, 0).wait(1_000, 1));
        assert_eq!(reply.partitions[0].batches(), [0, 1, 2]);
    }
    drop(held);
    for client in &mut old {
        let (_, body) = client.receive(key::FETCH, 3);
        let records = fetched(&body, &ask).partitions.remove(0).records;
        let offsets = Messages::new(&records).map(|message| message.unwrap().offset);
        assert_eq!(offsets.collect::<Vec<_>>(), [2]);
    }
}

#[test]
fn lookup_in_a_hanging_directory_gets_a_retriable_error() {
    let (test, disk, _dir) = two_directories();
    disk.stall("/one/");
    let mut hanging = [test.client(), test.client()];
    for client in &mut hanging {
        let body = Client::list_offsets_body("a", 0, 1_700_000_000_000);
        client.send(key::LIST_OFFSETS, LIST_OFFSETS_VERSION, &body);
    }
    wait_for_statistic(&test, "reader_queue_running.0.lookup", |count| count == 1);
    wait_for_statistic(&test, "reader_queue_oldest_wait_ms.0.lookup", |ms| {
        ms > 1_500
    });
    let mut client = test.client();
    let listed = client.list_offset("a", 0, 1_700_000_000_000);
    assert_eq!(listed.error_code, ErrorCode::OFFSET_NOT_AVAILABLE);
    assert_eq!(test.statistic("reader_queue_rejected.0.lookup"), 1);
    // The ends of the log are in memory, and the other directory has readers of its own.
    assert_eq!(client.list_offset("a", 0, -1).offset, 2);
    assert_eq!(client.list_offset("b", 0, 1_700_000_000_000).offset, 0);
    disk.resume();
    for client in &mut hanging {
        let (_, body) = client.receive(key::LIST_OFFSETS, LIST_OFFSETS_VERSION);
        assert_eq!(listed_offset(&body).offset, 0);
    }
}

#[test]
fn a_reply_that_hangs_with_its_disk_ends_its_connection() {
    let (test, disk, _dir) = two_directories();
    let mut client = test.client();
    disk.stall("/one/");
    // The first batch's header is resident; a reader sends the bytes, from this disk alone.
    let ask = Ask::one("a", 0, 0).wait(100, 1);
    client.send(key::FETCH, ask.version, &ask.encode());
    eventually("a read that hangs", || (disk.waiting() == 1).then_some(()));
    assert!(client.is_closed());
    let notice = {
        let mut test = test;
        let notice = test.wait_for_notice("fetch_failed");
        disk.resume();
        notice
    };
    assert!(notice[0].1.contains("gave nothing"), "{notice:?}");
}

#[test]
fn muted_produce_times_out_with_those_behind_it() {
    let (test, disk, _dir) = narrow(50_000, 64 << 20);
    disk.stall("/logs/t-0/");
    let mut filling = fill(&test, 60_000);
    let mut client = test.client();
    for _ in 0..3 {
        send(&mut client, -1, 10, &batch(&[b"v"]));
    }
    wait_for_statistic(&test, "produce_muted_waiting.0", |count| count == 1);
    assert_eq!(test.statistic("connections_muted_for_room"), 1);
    for _ in 0..3 {
        assert_eq!(answer(&mut client), REFUSED);
    }
    assert_eq!(test.statistic("produce_muted_timed_out.0"), 3);
    assert_eq!(test.statistic("produce_muted_waiting.0"), 0);
    // The next one has its own time.
    send(&mut client, 1, 30_000, &batch(&[b"v"]));
    wait_for_statistic(&test, "produce_muted_waiting.0", |count| count == 1);
    disk.resume();
    assert_eq!(answer(&mut filling), (ErrorCode::NONE, 0));
    assert_eq!(answer(&mut client), (ErrorCode::NONE, 1));
    assert_eq!(test.statistic("produce_muted_bytes.0"), 0);
}

/// Each roll saves all producers: with small segments and many producers, snapshots take far more
/// than the batches.
#[test]
fn producers_wait_for_the_snapshots_of_small_segments_too() {
    let (mut test, disk, _dir) = narrow(200_000, 64 << 20);
    let mut small = topic_config();
    small.log.segment_bytes = 200;
    assert_eq!(test.lead("small", 1, &small), [0]);
    disk.stall("/logs/small-0/");
    let of_producer = |id: i64| {
        let mut builder = BatchBuilder::new().producer(id, 0, 0);
        builder.append(1_700_000_000_000, None, Some(b"v"));
        builder.build()
    };
    let mut client = test.client();
    let mut sent_bytes = 0;
    for id in 0..300 {
        let record = of_producer(id);
        sent_bytes += record.len() as u64;
        let partitions = [(0, Some(&*record))];
        let body = produce_body(PRODUCE_VERSION, 1, 30_000, "small", &partitions);
        client.send(key::PRODUCE, PRODUCE_VERSION, &body);
    }
    assert!(sent_bytes < 50_000);
    wait_for_statistic(&test, "produce_muted_waiting.0", |count| count == 1);
    disk.resume();
    for offset in 0..300 {
        assert_eq!(answer(&mut client), (ErrorCode::NONE, offset));
    }
    wait_for_statistic(&test, "produce_muted_waiting.0", |count| count == 0);
}

#[test]
fn a_later_batch_of_a_producer_never_overtakes_one_that_was_refused() {
    let (test, disk, _dir) = narrow(50_000, 64 << 20);
    disk.stall("/logs/t-0/");
    let mut filling = fill(&test, 60_000);
    let of_producer = |sequence: i32| {
        let mut builder = BatchBuilder::new().producer(7, 0, sequence);
        builder.append(1_700_000_000_000, None, Some(b"v"));
        builder.build()
    };
    let mut client = test.client();
    for sequence in 0..3 {
        send(&mut client, -1, 10, &of_producer(sequence));
    }
    assert_eq!(answer(&mut client), REFUSED);
    assert!(
        client.is_closed(),
        "what follows would be taken for the first"
    );
    disk.resume();
    assert_eq!(answer(&mut filling), (ErrorCode::NONE, 0));
    let mut again = test.client();
    for sequence in 0..3 {
        send(&mut again, -1, 10_000, &of_producer(sequence));
    }
    for offset in 1..=3 {
        assert_eq!(answer(&mut again), (ErrorCode::NONE, offset));
    }
}

#[test]
fn a_full_muted_queue_refuses_at_once_and_others_still_receive() {
    // Two may wait.
    let (test, disk, _dir) = narrow(50_000, 1 << 20);
    disk.stall("/logs/t-0/");
    let mut filling = fill(&test, 60_000);
    let mut muted = [test.client(), test.client()];
    for (position, client) in muted.iter_mut().enumerate() {
        send(client, 1, 30_000, &large_batch(200_000));
        wait_for_statistic(&test, "produce_muted_waiting.0", |count| {
            count == position as u64 + 1
        });
    }
    let mut refused = test.client();
    send(&mut refused, 1, 30_000, &batch(&[b"v"]));
    assert_eq!(answer(&mut refused), REFUSED);
    assert_eq!(test.statistic("produce_muted_rejected.0"), 1);
    assert_eq!(refused.fetch_one("t", 0, 0).error, ErrorCode::NONE);
    let [first, second] = muted;
    let at_once = Some(std::time::Duration::ZERO);
    rustix::net::sockopt::set_socket_linger(&first.stream, at_once).unwrap();
    drop(first);
    wait_for_statistic(&test, "produce_muted_waiting.0", |count| count == 1);
    send(&mut refused, 1, 30_000, &batch(&[b"v"]));
    wait_for_statistic(&test, "produce_muted_waiting.0", |count| count == 2);
    disk.resume();
    assert_eq!(answer(&mut filling), (ErrorCode::NONE, 0));
    let mut offsets = [second, refused].map(|mut client| answer(&mut client).1);
    offsets.sort_unstable();
    assert_eq!(offsets, [1, 2]);
}

#[test]
fn a_hanging_directory_keeps_no_topic_from_being_made_elsewhere() {
    let (mut test, disk, dir) = two_directories();
    disk.stall("/one/");
    // Both loader threads of "one" hang, with more commands queued.
    let made = (0..6).map(|number| {
        let name = format!("c{number}");
        test.describe_topic(&name, 1, &topic_config());
        let spec = TestPlane::leader_spec(&name, 0, 0);
        (name, test.plane.become_leaders(vec![spec]).unwrap())
    });
    let made: Vec<_> = made.collect();
    let elsewhere = |name: &String| !dir.path().join("one").join(format!("{name}-0")).exists();
    // They are placed in turn, so every second one lies in "two".
    for (_, ticket) in made.iter().skip(1).step_by(2) {
        test.ticket(*ticket);
    }
    assert!(elsewhere(&made[0].0), "it cannot have been made");
    assert_eq!(
        test.client().produce("c1", 0, &batch(&[b"v"])),
        (ErrorCode::NONE, 0)
    );
    disk.resume();
    for (_, ticket) in made.iter().step_by(2) {
        test.ticket(*ticket);
    }
}
